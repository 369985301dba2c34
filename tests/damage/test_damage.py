# SPDX-License-Identifier: Apache-2.0
"""
A hundred random damages, and tests of the harness that judges them.

C{TXROCKET_DAMAGES} and C{TXROCKET_DAMAGE_SEED} in the environment have other cases run.
"""

from __future__ import annotations

import copy
import json
import os
import random
from functools import cache
from typing import Any
from unittest.mock import patch

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from tests.damage import __main__ as command
from tests.damage.audit import Audit
from tests.damage.case import Bench, Judgement, Verdict, faultOf
from tests.damage.fault import Fault, Impact, choose, fileKind
from tests.damage.template import TOPICS, Template, Truth, make

CASES = int(os.environ.get("TXROCKET_DAMAGES", "100"))
SEED = int(os.environ.get("TXROCKET_DAMAGE_SEED", "17"))
NOTHING = Fault("lock", "cut", 4)


@cache
def made() -> tuple[dict[bool, Template], dict[bool, Bench]]:
    """
    The folders by whether the broker was stopped, and what judges damage to them.
    """
    folder = os.path.abspath(f"damage-{os.getpid()}")
    templates = {clean: make(folder, clean=clean) for clean in (True, False)}
    return templates, {clean: Bench(each, folder) for clean, each in templates.items()}


class RandomDamageTests(SynchronousTestCase):
    """
    The broker itself.
    """

    def test_randomDamageHarmlessOrTold(self) -> None:
        """
        Whatever one damage does, no sound message is lost, nothing wrong is served, no offset is
        given twice, no client stalls, and harm is told.
        """
        results = command.runAll(SEED, CASES, os.cpu_count() or 1)
        self.assertEqual([each["number"] for each in results], list(range(CASES)))
        failed = [command.line(each) for each in results if each["outcome"] == "failed"]
        said = "\n".join([f"seed {SEED}", *failed, *command.table(results)])
        self.assertEqual(failed, [], said)


class HarnessTests(SynchronousTestCase):
    """
    Damages that are blamed, and damages that are not.
    """

    def setUp(self) -> None:
        self.templates, self.benches = made()

    def truth(self, clean: bool = True, least: int = 0) -> Truth:
        """
        A message of a topic with a body, from an offset of the log on.
        """
        return next(
            each
            for each in self.templates[clean].truths
            if each.offset >= least and each.place[0] in TOPICS and each.place[2] > 0
        )

    def bitIn(self, truth: Truth, at: int) -> Fault:
        """
        A damage to a byte of a record.
        """
        size = len(next(iter(self.log(True))))
        base = truth.offset // size * size
        return Fault(f"commitlog/{base:020}", "bit", truth.offset - base + at, b"\1")

    def log(self, clean: bool) -> list[bytes]:
        """
        The files of the log.
        """
        files = self.templates[clean].files
        return [files[name] for name in sorted(files) if name.startswith("commitlog/")]

    def judged(
        self, fault: Fault = NOTHING, *, clean: bool = True, told: str = "", **changes: Any
    ) -> Verdict:
        """
        The verdict if clients got what is usual, but for some changes.
        """
        template, bench = self.templates[clean], self.benches[clean]
        usual = bench.baseline.audit
        audit = copy.copy(usual)
        for name, value in changes.items():
            setattr(audit, name, value)
        verdict = Verdict(fault, clean, told=[told] if told else [])
        truths = {each.place: each for each in template.truths}
        Judgement(template, truths, usual, audit, verdict).judge()
        return verdict

    def without(self, truth: Truth, clean: bool = True) -> dict[str, Any]:
        """
        What clients get if a message is lost.
        """
        usual: Audit = self.benches[clean].baseline.audit
        return {
            "pulled": {place: each for place, each in usual.pulled.items() if place != truth.place},
            "pushed": [
                each
                for each in usual.pushed
                if (each.topic, each.queueId, each.queueOffset) != truth.place
            ],
            "keyed": {key: places - {truth.place} for key, places in usual.keyed.items()},
        }

    def changed(self, truth: Truth, **changes: Any) -> dict[str, Any]:
        """
        What clients get if a message is served otherwise.
        """
        usual = self.benches[True].baseline.audit
        other = msgspec.structs.replace(usual.pulled[truth.place], **changes)
        return {"pulled": {**usual.pulled, truth.place: other}}

    def test_noDamageHarmless(self) -> None:
        """
        Without damage nothing is blamed, and nothing is told, after either kind of stop.
        """
        for clean, bench in self.benches.items():
            verdict = bench.run(NOTHING)
            found = (verdict.outcome, verdict.failures, verdict.harm, verdict.told)
            self.assertEqual(found, ("harmless", [], [], []), clean)
            self.assertEqual(bench.baseline.audit.faults, [])

    def test_templateHasEverything(self) -> None:
        """
        The folders have every kind of file, several of most, and the one that was not closed has
        messages that no checkpoint knows of.
        """
        for clean, template in self.templates.items():
            kinds = [fileKind(name) for name in template.files]
            tables = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
            for name in (*tables, "consumerFilter"):
                self.assertIn(f"{name}.json", kinds)
                self.assertIn(f"{name}.json.bak", kinds)
            for name in ("commitlog", "consumequeue", "index"):
                self.assertGreater(kinds.count(name), 2)
            self.assertEqual(("abort" in kinds, "checkpoint" in kinds), (not clean, True))
            behind = [each for each in template.truths if each.offset >= template.safe]
            self.assertEqual(bool(behind), not clean)
            topics = {each.place[0] for each in template.truths}
            self.assertTrue({*TOPICS, "SCHEDULE_TOPIC_XXXX"} < topics)

    def test_baselineServesEverything(self) -> None:
        """
        Without damage pulls give every message of every topic that can be pulled, as it was sent.
        """
        for clean, bench in self.benches.items():
            pulled = bench.baseline.audit.pulled
            missing = {each.place[0] for each in self.templates[clean].truths} - {
                place[0] for place in pulled
            }
            self.assertEqual(missing, {"RMQ_SYS_TRANS_OP_HALF_TOPIC"})

    def test_templateRepeats(self) -> None:
        """
        A folder made again has the same records at the same places, so that a seed is enough.
        """
        again = make(os.path.abspath(self.mktemp()), clean=False)
        facts = [
            [(each.place, each.offset, len(each.data)) for each in template.truths]
            for template in (again, self.templates[False])
        ]
        self.assertEqual(facts[0], facts[1])

    def test_seedRepeatsCase(self) -> None:
        """
        A seed and a number make the same damage again; all kinds of damage and files come.
        """
        templates = list(self.templates.values())
        several = [faultOf(5, number, templates) for number in range(400)]
        for number, (template, fault) in enumerate(several):
            self.assertEqual(faultOf(5, number, templates), (template, fault))
        self.assertEqual({fault.kind for _, fault in several}, {"bit", "zeros", "garbage", "cut"})
        kinds = {fileKind(name) for name in self.templates[False].files}
        self.assertEqual({fileKind(fault.name) for _, fault in several}, kinds)

    def test_faultApplied(self) -> None:
        """
        A bit, a sector and a cut change what they say, and nothing else.
        """
        data = bytes(range(256)) * 5
        bit = Fault("f", "bit", 3, b"\x10").apply(data)
        self.assertEqual(bit, data[:3] + b"\x13" + data[4:])
        self.assertEqual(Fault("f", "cut", 7).apply(data), data[:7])
        zeros = Fault("f", "zeros", 512, bytes(512)).apply(data)
        self.assertEqual(zeros, data[:512] + bytes(512) + data[1024:])
        last = Fault("f", "zeros", 1024, bytes(512)).apply(data)
        self.assertEqual(last, data[:1024] + bytes(256))

    def test_soundMessageLostBlamed(self) -> None:
        """
        A message whose bytes are sound must be served, though the harm was told.
        """
        verdict = self.judged(told="log: something", **self.without(self.truth()))
        self.assertEqual(verdict.outcome, "failed")
        self.assertIn("unreachable by pull: 1 sound", verdict.failures[0])

    def test_damagedMessageLostToldOrBlamed(self) -> None:
        """
        A message that was damaged may be left out if that is told, and else is blamed.
        """
        truth = self.truth()
        fault, lost = self.bitIn(truth, 90), self.without(truth)
        self.assertEqual(self.judged(fault, told="log: skipped", **lost).outcome, "told")
        verdict = self.judged(fault, **lost)
        self.assertIn("silent", verdict.failures[0])

    def test_wrongBodyBlamed(self) -> None:
        """
        Another body is blamed, even of a message that was damaged and though harm was told.
        """
        truth = self.truth()
        change = self.changed(truth, body=b"other")
        verdict = self.judged(self.bitIn(truth, 90), told="log: something", **change)
        self.assertIn("wrong body", verdict.failures[0])

    def test_fieldWithoutChecksumUntellable(self) -> None:
        """
        Another time of birth is untellable if that is what was damaged, and else is blamed.
        """
        truth = self.truth()
        change = self.changed(truth, bornTimestamp=7)
        verdict = self.judged(self.bitIn(truth, 41), **change)
        self.assertEqual((verdict.outcome, verdict.excuse), ("untellable", "no checksum"))
        self.assertEqual(self.judged(self.bitIn(truth, 90), **change).outcome, "failed")
        self.assertEqual(self.judged(**change).outcome, "failed")

    def test_offsetGivenTwiceBlamed(self) -> None:
        """
        A new message must get an offset behind all those that were acknowledged.
        """
        topic, queueId, number = self.truth().place
        sent = {**self.benches[True].baseline.audit.sent, (topic, queueId, number): b"new"}
        verdict = self.judged(told="log: something", sent=sent)
        self.assertIn("offset given twice", verdict.failures[0])

    def test_tornTailExcused(self) -> None:
        """
        The last record of a broker that was killed looks as if it was never whole; one that a
        checkpoint knows, or that sound records follow, does not.
        """
        template = self.templates[False]
        for truth, clean, tail in (
            (template.truths[-1], False, True),
            (template.truths[-2], False, False),
            (self.templates[True].truths[-1], True, False),
        ):
            impact = Impact(self.templates[clean], self.bitIn(truth, 90))
            self.assertEqual((impact.isTail, impact.touched), (tail, [truth]))
        last = template.truths[-1]
        verdict = self.judged(self.bitIn(last, 90), clean=False, **self.without(last, clean=False))
        self.assertEqual((verdict.outcome, verdict.excuse), ("untellable", "torn tail"))

    def test_tableDiffersToldOrBlamed(self) -> None:
        """
        A table that differs is harm, and is to be told.
        """
        state = {**self.benches[True].baseline.audit.state, "offsets": {}}
        self.assertIn("silent", self.judged(state=state).failures[0])
        self.assertEqual(self.judged(state=state, told="log: .bak").outcome, "told")

    def test_clientsFaultBlamed(self) -> None:
        """
        A stall or a garbled answer is blamed as it is.
        """
        self.assertEqual(self.judged(faults=["stall: push"]).failures, ["stall: push"])

    def test_refusalBlamed(self) -> None:
        """
        A start that is refused is blamed, with the words of the refusal.
        """
        bench = self.benches[True]
        with patch.object(bench, "_work", side_effect=OSError("no way")):
            verdict = bench.run(NOTHING)
        self.assertEqual(verdict.failures, ["refused: OSError: no way"])

    def test_crashTold(self) -> None:
        """
        A case that ends its process fails, and the next one is run in a new process.
        """
        program = self.mktemp()
        about = {"number": 0, "file": "lock", "fault": "lock bit at 0", "clean": True}
        done = {**about, "number": 1, "outcome": "harmless", "excuse": "", "failures": []}
        with open(program, "w") as file:
            file.write(
                "#!/bin/sh\n"
                f"[ $6 = 0 ] && echo '{json.dumps({**about, 'begun': True})}' && kill -SEGV $$\n"
                f"echo '{json.dumps({**done, 'harm': [], 'told': []})}'\n"
            )
        os.chmod(program, 0o755)
        with patch("sys.executable", os.path.abspath(program)):
            first, second = command.work(3, range(2))
        self.assertEqual((first["number"], first["outcome"]), (0, "failed"))
        self.assertIn("crash: the process ended with -11", first["failures"][0])
        self.assertEqual((second["number"], second["outcome"]), (1, "harmless"))
        self.assertIn("case 0 clean lock bit at 0: crash", command.line(first))
        rows = list(command.table([first, second]))
        self.assertEqual(rows[1].split(), ["lock", "1", "0", "0", "1"])

    def test_writtenDamagedMost(self) -> None:
        """
        Damage lies where something was written, as a rule.
        """
        chance, template = random.Random(2), self.templates[True]
        faults = [choose(template, chance) for _ in range(300)]
        inside = [
            fault.position <= len(template.files[fault.name].rstrip(b"\0")) for fault in faults
        ]
        self.assertGreater(sum(inside), 260)
