# SPDX-License-Identifier: Apache-2.0
"""
One case: a damage, all that clients get afterwards, and the verdict.

A case fails for what must never be (a crash, a wrong body, a sound message that is unreachable, an
offset given twice, a stall) and for a damage that does harm and is told by nobody.  Two kinds of
harm no program can tell, and they are counted apart: a change of a part of a record that has no
checksum, and a record that looks as if the broker had ended while it wrote it.
"""

from __future__ import annotations

import gc
import io
import os
import random
import re
import shutil
from typing import Any, Final

import attrs

from tests.damage.audit import Audit, Auditor, Place
from tests.damage.fault import Fault, Impact, choose, fileKind
from tests.damage.template import TAGS, TOPICS, Template, Truth
from tests.damage.world import LEVELS, SLOTS, World
from txrocket.message import MessageExt
from txrocket.store.__main__ import main as storeCommand

KEYS: Final = 24
# A start may be refused only where nothing better can be done: the kind of file, and words of
# the refusal, which say how to go on.
REFUSALS: Final[tuple[tuple[str, str], ...]] = ()


@attrs.define
class Verdict:
    """
    What became of a damage.

    @ivar failures: what must not be.
    @ivar harm: in what the answers differ from those without the damage.
    @ivar told: what start, pulls and C{verify} said of it.
    @ivar excuse: why nobody can tell, if so.
    """

    fault: Fault
    clean: bool
    failures: list[str] = attrs.field(factory=list)
    harm: list[str] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)
    excuse: str = ""

    @property
    def outcome(self) -> str:
        """
        In one word.
        """
        if self.failures:
            return "failed"
        if not self.harm:
            return "harmless"
        return "told" if self.told else "untellable"


@attrs.define
class Baseline:
    """
    What clients get without any damage.
    """

    audit: Audit
    told: set[str]


def normal(line: str) -> str:
    """
    A line without its numbers.
    """
    return re.sub(r"\d+", "#", line)


def verify(folder: str) -> list[str]:
    """
    What C{verify} finds wrong.
    """
    out = io.StringIO()
    code = storeCommand(
        ["verify", "--slots", str(SLOTS), "--levels", str(LEVELS), folder], out, out
    )
    lines = out.getvalue().splitlines()
    found = [line for line in lines if line.startswith(("problem", "first bad", "txrocket"))]
    return found or (lines[-1:] if code else [])


class Bench:
    """
    Runs cases with one variant of the template.
    """

    def __init__(self, template: Template, folder: str) -> None:
        self._template = template
        self._folder = folder
        keys = sorted(
            {
                (each.message.topic, key)
                for each in template.truths
                if each.message.topic in TOPICS
                for key in each.message.keys
            }
        )
        self._allKeys = keys
        self._someKeys = random.Random(3).sample(keys, KEYS)
        self._truths = {each.place: each for each in template.truths}
        self._baseline: Baseline | None = None

    @property
    def baseline(self) -> Baseline:
        """
        A run without damage.
        """
        if self._baseline is None:
            told: list[str] = []
            audit = self._work(told)
            self._baseline = Baseline(audit, {normal(each) for each in told})
        return self._baseline

    def _work(self, told: list[str], fault: Fault | None = None) -> Audit:
        template, folder = self._template, self._folder
        template.copy(folder)
        try:
            if fault is not None:
                with open(os.path.join(folder, fault.name), "wb") as file:
                    file.write(fault.apply(template.files[fault.name]))
            told += [f"verify before: {each}" for each in verify(folder)]
            world = World(folder, template.age + 1)
            try:
                try:
                    world.start()
                    audit = Auditor(world, template, self._keys(fault)).run()
                finally:
                    told += [f"log: {each}" for each in world.told]
            except BaseException:
                world.crash()
                raise
            world.stop()
            told += [f"log: {each}" for each in world.told if f"log: {each}" not in told]
            told += audit.told
            audit.faults += world.faults
            told += [f"verify: {each}" for each in verify(folder)]
            return audit
        finally:
            shutil.rmtree(folder)
            # Deferreds that nobody waits for tell of their errors now, and not in the next case.
            gc.collect()

    def _keys(self, fault: Fault | None) -> list[tuple[str, str]]:
        """
        The keys to look for: all of them where the index may have lost some.
        """
        if fault is None or fileKind(fault.name) == "index":
            return self._allKeys
        return self._someKeys

    def run(self, fault: Fault) -> Verdict:
        """
        Judge a damage.
        """
        verdict = Verdict(fault, self._template.clean)
        told: list[str] = []
        baseline = self.baseline
        try:
            audit = self._work(told, fault)
        except Exception as error:
            self._refused(verdict, error)
            return verdict
        verdict.told = [each for each in told if normal(each) not in baseline.told]
        Judgement(self._template, self._truths, baseline.audit, audit, verdict).judge()
        return verdict

    def _refused(self, verdict: Verdict, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        kind = fileKind(verdict.fault.name)
        if any(kind == each and words in said for each, words in REFUSALS):
            verdict.harm.append("the start was refused")
            verdict.told.append(said)
        else:
            verdict.failures.append(f"refused: {said}")


class Judgement:
    """
    Compares what clients got with the truth.
    """

    def __init__(
        self,
        template: Template,
        truths: dict[Place, Truth],
        usual: Audit,
        audit: Audit,
        verdict: Verdict,
    ) -> None:
        self._template = template
        self._truths = truths
        self._usual = usual
        self._audit = audit
        self._verdict = verdict
        self._impact = Impact(template, verdict.fault)
        self._touched = {each.place for each in self._impact.touched}
        self._bodies = {each.message.body for each in template.truths} | set(audit.sent.values())
        self._untellable = 0

    def judge(self) -> None:
        """
        Fill in the verdict.
        """
        verdict, tail = self._verdict, self._impact.isTail
        verdict.failures += self._audit.faults
        for each in self._audit.pulled.values():
            self._served(each, "pull")
        for each in self._audit.pushed:
            self._served(each, "push")
        pushed = {(each.topic, each.queueId, each.queueOffset) for each in self._audit.pushed}
        users = {each for each in self._truths if each[0] in TOPICS}
        # A system's topic without a setting cannot be pulled at all.
        pullable = set(self._usual.pulled) & set(self._truths)
        self._missing("unreachable by pull", pullable - set(self._audit.pulled))
        self._missing("unreachable by push", users - pushed)
        red = {
            place
            for place, truth in self._truths.items()
            if place[0] == "Orders" and truth.message.tags == TAGS[0]
        }
        found = {each for each in self._audit.tagged if each in self._truths}
        self._missing("not found by tag", red - found, sound="harm")
        if found - red - self._touched:
            verdict.harm.append("found by a tag that it has not")
        self._keys()
        self._delayed()
        for name, value in self._usual.state.items():
            if self._audit.state[name] != value:
                verdict.harm.append(f"the table of {name} differs")
        self._offsets(tail)
        if verdict.harm and not verdict.told and not verdict.failures:
            if tail:
                verdict.excuse = "torn tail"
            elif self._untellable == len(verdict.harm):
                verdict.excuse = "no checksum"
            else:
                verdict.failures.append(f"silent: {verdict.harm[0]}")

    def _served(self, message: MessageExt, how: str) -> None:
        """
        A record that a client got.
        """
        place = message.topic, message.queueId, message.queueOffset
        truth = self._truths.get(place)
        if truth is None:
            if message.body not in self._bodies:
                self._verdict.failures.append(f"wrong body: {how} {place}")
            return
        if message.body != truth.message.body:
            if place in self._audit.sent:
                # The offset was given twice, which is told as that.
                return
            self._verdict.failures.append(f"wrong body: {how} {place}")
        elif not message.propertiesData.startswith(truth.message.propertiesData) or (
            _facts(message) != _facts(truth.message)
        ):
            if place in self._touched and self._impact.onlyUnchecked(truth):
                self._untellable += 1
                self._verdict.harm.append(f"{how} {place} has another field without checksum")
            else:
                self._verdict.failures.append(f"changed record: {how} {place}")

    def _missing(self, what: str, places: set[Place], sound: str = "failures") -> list[Place]:
        """
        Messages that were not found.

        @return: those of them that are damaged.
        """
        damaged = sorted(places & self._touched)
        if damaged:
            self._verdict.harm.append(f"{what}: {len(damaged)} damaged, first {damaged[0]}")
        lost = sorted(places - self._touched)
        if lost:
            getattr(self._verdict, sound).append(f"{what}: {len(lost)} sound, first {lost[0]}")
        return damaged

    def _keys(self) -> None:
        damaged = fileKind(self._verdict.fault.name) == "index"
        for key, found in self._audit.keyed.items():
            lost = self._missing(
                f"not found by key: {key[1]}",
                self._usual.keyed[key] - found,
                sound="harm" if damaged else "failures",
            )
            if lost and all(self._impact.onlyUnchecked(self._truths[each]) for each in lost):
                # Its keys are among its properties, and its index entry is made from them.
                self._untellable += 1

    def _delayed(self) -> None:
        """
        What was on its way to be delivered, and is sound, comes.
        """
        came = {each.body for each in self._audit.pushed}
        delivered = {
            truth.message.body for place, truth in self._truths.items() if place[0] in TOPICS
        }
        missing = {
            place
            for place, truth in self._truths.items()
            if place[0] == "SCHEDULE_TOPIC_XXXX" and truth.message.body not in came | delivered
        }
        self._missing("never delivered", missing)
        if len(self._late(self._audit)) > len(self._late(self._usual)):
            self._verdict.harm.append("delayed messages were delivered again")

    def _late(self, audit: Audit) -> list[bytes]:
        """
        What came beside what was there and what was sent anew.
        """
        places = self._truths.keys() | audit.sent.keys()
        return [
            each.body
            for each in audit.pushed
            if (each.topic, each.queueId, each.queueOffset) not in places
        ]

    def _offsets(self, tail: bool) -> None:
        ends = self._template.ends
        twice = [each for each in self._audit.sent if each[2] < ends[each[:2]]]
        if not twice:
            return
        if tail:
            self._verdict.harm.append(f"offset given twice: {twice[0]}")
        else:
            self._verdict.failures.append(f"offset given twice: {len(twice)}, first {twice[0]}")


def _facts(message: MessageExt) -> Any:
    # Beside the properties: a consumer adds some of its own to them.
    return (
        *(message.flag, message.sysFlag, message.bornTimestamp),
        *(message.bornHostData, message.storeTimestamp, message.storeHostData),
        *(message.reconsumeTimes, message.preparedTransactionOffset, message.commitLogOffset),
    )


def faultOf(seed: int, number: int, templates: list[Template]) -> tuple[Template, Fault]:
    """
    The variant and the damage of a case.
    """
    chance = random.Random(f"{seed}/{number}")
    template = chance.choice(templates)
    return template, choose(template, chance)
