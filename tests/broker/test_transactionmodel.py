# SPDX-License-Identifier: Apache-2.0
"""
Transactions that end in any way or not at all, producers that answer late, wrongly or
never, and a broker that is stopped, killed, killed in the middle of a write, or loses
the power, against what is promised:

  - What is committed is delivered, at least once, and not more often than was said.
  - What is rolled back or undecided is seen by nobody.
  - Nobody is asked before the half is old enough, nor more often than it may be.
  - What is listed as undecided is what is.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from itertools import count, product
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.transactioncase import (
    CHECK_MAX_TOPIC,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    TransactionTests,
)
from tests.store.support import LOG_SIZE, Disk, abandon
from txrocket.broker.transaction import check, opmessages
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import ResumeCheckHalfMessageRequestHeader

TIMEOUT, MOST = 6000, 3

BROKEN = OSError(errno.EIO, "the process has ended")

which = st.integers(0, 30)


class Sent(NamedTuple):
    """
    A half that was sent and acknowledged.

    @ivar stored: when.
    """

    half: Half
    stored: int
    immunity: int
    delayed: bool


class EndingDisk(Disk):
    """
    A disk of a process that is killed after a number of writes.
    """

    left: int | None = None

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        if self.left is not None:
            if not self.left:
                raise BROKEN
            self.left -= 1
        super().pwrite(handle, data, offset)


class Transacting(TransactionTests):
    """
    A broker's parts, without a test.
    """

    liveSettings = {"transactionTimeOut": str(TIMEOUT), "transactionCheckMax": str(MOST)}

    def runTest(self) -> None:
        """
        The model has no test of its own.
        """

    def build(self) -> None:
        if not isinstance(self.disk, EndingDisk):
            self.disk = EndingDisk()
        super().build()
        self.delays.load()
        self.delays.start()

    def stop(self) -> None:
        """
        Nothing of the broker runs any more.
        """
        self.checks.stop()
        self.delays.stop()


class TransactionMachine(RuleBasedStateMachine):
    """
    Producers, and the fates of the broker.
    """

    def __init__(self) -> None:
        super().__init__()
        self.case = Transacting("runTest")
        self.case.setUp()
        self.sent: dict[bytes, Sent] = {}
        # What the producers know: the outcome of local transactions.
        self.outcome: dict[bytes, int] = {}
        # What the broker was told of, and has acknowledged: up to where in its log.
        self.told: dict[bytes, int] = {}
        self.everTold: set[bytes] = set()
        self.commits: Counter[bytes] = Counter()
        self.asked: Counter[bytes] = Counter()
        self.questions: list[tuple[bytes, Half]] = []
        self.resumes: set[str] = set()
        self.count = 0
        # How often the broker ended other than by itself, and whether a write, or what
        # was written, may be lost.
        self.crashes = 0
        self.torn = False

    def teardown(self) -> None:
        """
        In the end everything is decided.
        """
        try:
            self.finish()
        finally:
            case: Any = self.case
            case.stop()
            while case._cleanups:
                function, args, kwargs = case._cleanups.pop()
                function(*args, **kwargs)
            shutil.rmtree(case.root, ignore_errors=True)

    def finish(self) -> None:
        case = self.case
        for body in self.sent:
            self.outcome.setdefault(body, ROLLBACK)
        self.join()
        for _ in range(4 * MOST):
            if not case.pending() and not self.resumed():
                break
            self.check(10_000)
            while self.questions:
                self.answer(0, True)
        assert not case.pending()
        case.clock.pump([1.0] * 5)
        self.rightful()
        found = Counter(case.bodies())
        for body in self.sent:
            if self.outcome[body] == COMMIT:
                assert found[body], "a committed message is lost"
                # After a crash delayed messages may be delivered once more.
                more = self.torn or (self.crashes and self.sent[body].delayed)
                assert more or found[body] <= self.commits[body], "a message too many"

    def resumed(self) -> bool:
        """
        Have those that were given up checked again.
        """
        found = False
        case = self.case
        for half in case.stored(CHECK_MAX_TOPIC):
            if half.body not in self.told and half.offsetMsgId not in self.resumes:
                self.resumes.add(half.offsetMsgId)
                del self.asked[half.body]
                header = ResumeCheckHalfMessageRequestHeader(half.offsetMsgId)
                request = case.client.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
                assert case.answerTo(request).code == 0
                found = True
        return found

    def body(self, at: int) -> bytes:
        """
        One of those that were sent.
        """
        bodies = list(self.sent)
        return bodies[at % len(bodies)]

    # --- producers -----------------------------------------------------------

    @rule(
        immunity=st.sampled_from([None, None, 0, 1, 20, 100]),
        delayed=st.sampled_from([False, False, False, True]),
        size=st.sampled_from([0, 0, 0, 700]),
    )
    def send(self, immunity: int | None, delayed: bool, size: int) -> None:
        """
        Half of a transaction.
        """
        self.count += 1
        body = b"%04d" % self.count + b"x" * size
        properties = {"UNIQ_KEY": f"{self.count:04d}"}
        if immunity is not None:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity)
        if delayed:
            properties["DELAY"] = "1"
        half = self.case.half(body, 0, **properties)
        wait = TIMEOUT if immunity is None else immunity * 1000
        self.sent[body] = Sent(half, self.case.now(), wait, delayed)

    @precondition(lambda self: self.sent)
    @rule(at=which, outcome=st.sampled_from([COMMIT, COMMIT, ROLLBACK]))
    def decide(self, at: int, outcome: int) -> None:
        """
        A local transaction comes to its end, of which the broker does not hear.
        """
        self.outcome.setdefault(self.body(at), outcome)

    @precondition(lambda self: self.sent)
    @rule(at=which)
    def tell(self, at: int) -> None:
        """
        The broker hears of it, perhaps not for the first time.
        """
        body = self.body(at)
        if body in self.outcome:
            self.end(body, self.sent[body].half, False)

    def end(self, body: bytes, half: Half, asked: bool) -> None:
        outcome = self.outcome[body]
        self.commits[body] += outcome == COMMIT
        answer = self.case.end(half, outcome, fromTransactionCheck=asked)
        assert answer.code == 0, answer.remark
        self.note(body)

    def note(self, body: bytes) -> None:
        """
        The broker has heard.
        """
        self.told.setdefault(body, self.case.store.log.written)
        self.everTold.add(body[:4])

    @precondition(lambda self: self.questions)
    @rule(at=which, knows=st.booleans())
    def answer(self, at: int, knows: bool) -> None:
        """
        A producer answers.
        """
        body, half = self.questions.pop(at % len(self.questions))
        if knows and body in self.outcome:
            self.end(body, half, True)
        else:
            self.case.tell(half, UNKNOWN, fromTransactionCheck=True)

    @precondition(lambda self: self.questions)
    @rule(at=which)
    def ignore(self, at: int) -> None:
        """
        A question is lost.
        """
        self.questions.pop(at % len(self.questions))

    @rule()
    def leave(self) -> None:
        """
        The producers are gone.
        """
        self.hear()
        if self.case.producer.peer.connected:
            self.case.producer.lose()

    @rule()
    def join(self) -> None:
        """
        One is there.
        """
        self.hear()
        if not self.case.producer.peer.connected:
            self.case.producer = self.case.join("P")

    def hear(self) -> None:
        """
        The producers are asked, but not too early nor too often.
        """
        for asked in self.case.questions(self.case.producer):
            body = asked.message.body
            sent = self.sent[body]
            assert self.case.now() - sent.stored >= sent.immunity, "asked too early"
            self.asked[body] += 1
            assert self.asked[body] <= MOST * (1 + self.crashes), "asked too often"
            assert int(asked.message.properties["TRANSACTION_CHECK_TIMES"]) <= MOST
            assert self.torn or body not in self.told, "asked about what is decided"
            self.questions.append((body, asked.half))

    # --- the broker ------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 1, 3, 7, 60]))
    def turn(self, seconds: float) -> None:
        """
        Time passes.
        """
        self.case.clock.advance(seconds)
        self.case.turn()

    @rule(milliseconds=st.sampled_from([0, 3000, 7000, 60_000]))
    def check(self, milliseconds: int) -> None:
        """
        The broker looks at all undecided halves.
        """
        self.case.clock.advance(milliseconds / 1000)
        self.case.checks.check()
        self.case.turn()
        self.hear()

    @rule()
    def look(self) -> None:
        """
        It sees what is decided.
        """
        self.case.checks.look()
        self.case.turn()

    @rule()
    def restart(self) -> None:
        """
        It is stopped, and started again.
        """
        case = self.case
        self.hear()
        case.stop()
        case.successResultOf(case.checks.save())
        case.successResultOf(case.delays.save())
        case.successResultOf(case.offsets.save())
        case.successResultOf(case.store.stop())
        case.build()
        case.turn()

    @rule()
    def kill(self) -> None:
        """
        It is killed: its written files stay.
        """
        self.hear()
        self.crashes += 1
        self.end_()
        self.begin()

    def end_(self) -> None:
        self.case.stop()
        abandon(self.case.store)

    def begin(self) -> None:
        self.case.build()
        self.case.turn()

    @rule(writes=st.integers(0, 4), seconds=st.sampled_from([0, 7, 60]))
    def killInPass(self, writes: int, seconds: int) -> None:
        """
        It is killed in the middle of a pass.
        """
        case = self.case
        self.hear()
        case.clock.advance(seconds)
        case.turn()
        self.crashes += 1
        self.torn = True
        disk: Any = case.disk
        disk.left = writes
        case.checks.check()
        case.turn()
        self.hear()
        self.end_()
        disk.left = None
        self.begin()

    @precondition(lambda self: self.sent)
    @rule(at=which, writes=st.integers(0, 2))
    def killInEnd(self, at: int, writes: int) -> None:
        """
        It is killed while a transaction is ended.
        """
        case = self.case
        body = self.body(at)
        if body not in self.outcome:
            return
        self.hear()
        self.crashes += 1
        self.torn = True
        disk: Any = case.disk
        disk.left = writes
        answer = case.end(self.sent[body].half, self.outcome[body])
        if answer.code == 0:
            self.note(body)
        else:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        self.end_()
        disk.left = None
        self.begin()

    @precondition(lambda self: self.count)
    @rule(kept=st.integers(-4, 3))
    def losePower(self, kept: int) -> None:
        """
        The power is lost, and with it what was not yet on the disk, but for some of it.
        """
        case = self.case
        self.hear()
        self.crashes += 1
        flushed, end = case.store.flusher.flushed.offset, case.store.log.written
        bounds = [end]
        at = flushed
        while at < end:
            bounds.append(at)
            found = case.store.log.recordAt(at)
            at = at + len(found[0]) if found else (at // LOG_SIZE + 1) * LOG_SIZE
        cut = sorted(bounds)[kept % len(bounds)]
        if cut < end:
            self.torn = True
            self.told = {body: heard for body, heard in self.told.items() if heard <= cut}
            self.sent = {
                body: each for body, each in self.sent.items() if each.half.commitLogOffset < cut
            }
            self.questions = [
                each for each in self.questions if each[0] in self.sent and each[1][1] < cut
            ]
        self.end_()
        self.erase(cut)
        self.begin()

    def erase(self, cut: int) -> None:
        """
        Have the log end at an offset.
        """
        folder = os.path.join(self.case.root, "commitlog")
        for name in os.listdir(folder):
            begin = max(0, cut - int(name))
            if begin < LOG_SIZE:
                with open(os.path.join(folder, name), "r+b") as file:
                    file.seek(begin)
                    file.write(bytes(LOG_SIZE - begin))

    # --- what is always so -------------------------------------------------------

    @invariant()
    def rightful(self) -> None:
        """
        Whatever is delivered was committed.
        """
        for body in self.case.bodies():
            assert self.outcome.get(body) == COMMIT, "seen before it was committed"

    @invariant()
    def listed(self) -> None:
        """
        The list of undecided halves is right.
        """
        pending = [each.msgId.encode() for each in self.case.transactions.pending(1000)]
        given = {each.body[:4] for each in self.case.stored(CHECK_MAX_TOPIC)}
        expected = {body[:4] for body in self.sent.keys() - self.told.keys()} - given
        if self.torn:
            # Of what the broker wrote when it was told the first half may be there, which
            # must then be enough.
            assert {*pending} | self.everTold >= expected, "an undecided half is forgotten"
        else:
            assert sorted(pending) == sorted(expected)


class ModelTests(SynchronousTestCase):
    """
    Transactions against promises.
    """

    def setUp(self) -> None:
        # So that all of it happens to few halves.
        self.patch(opmessages, "_HALVES", 3)
        self.patch(opmessages, "_OPS", 4)
        self.patch(opmessages, "_SPAN", 2)
        self.patch(check, "_REACH", 4)

    def scene(self, machine: TransactionMachine, steps: int, saves: bool) -> None:
        """
        Transactions of all kinds, in the middle of what they do.

        @param saves: whether a pass brings all to the disk when it ends.
        """
        if not saves:
            self.patch(machine.case.checks, "save", lambda: None)
        everything: list[tuple[Any, ...]] = [
            *[(machine.send, None, delayed, 0) for delayed in (False, False, True, False)],
            *[(machine.decide, at, how) for at, how in enumerate((COMMIT, ROLLBACK, COMMIT))],
            (machine.decide, 3, COMMIT),
            (machine.tell, 0),
            (machine.check, 7000),
            (machine.answer, 0, True),
            (machine.answer, 0, True),
            # For a half that was moved.
            (machine.tell, 3),
            (machine.send, 20, False, 0),
            (machine.check, 7000),
            (machine.turn, 0),
        ]
        for function, *given in everything[:steps]:
            function(*given)

    def test_powerLossKeepsPromises(self) -> None:
        """
        Promises are kept wherever the power is lost: after any step, and at any record of
        the log.
        """
        cuts = 0
        for steps, saves in product((9, 10, 13, 15), (True, False)):
            seen = set()
            for kept in count():
                machine = TransactionMachine()
                self.scene(machine, steps, saves)
                machine.losePower(kept)
                cut = machine.case.store.log.end
                machine.listed()
                machine.rightful()
                machine.teardown()
                if cut in seen:
                    break
                seen.add(cut)
            cuts += len(seen)
        self.assertGreater(cuts, 40)

    def test_transactionsMatchModel(self) -> None:
        """
        Whatever producers do, and whatever happens to the broker, promises are kept.
        """
        run_state_machine_as_test(
            TransactionMachine,
            settings=settings(
                max_examples=int(os.environ.get("TXROCKET_EXAMPLES", "80")),
                stateful_step_count=40,
                suppress_health_check=list(HealthCheck),
                deadline=None,
            ),
        )
