# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.transaction.check} and L{txrocket.broker.transaction.halfmessages}.
"""

from __future__ import annotations

import errno
from typing import Any

from twisted.logger import LogLevel

from tests.captures import captures
from tests.processors.transactioncase import (
    CHECK_MAX_TOPIC,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    TransactionTests,
)
from tests.store.support import HOST, Held, abandon
from txrocket.broker.transaction import check, opmessages
from txrocket.broker.transaction.opmessages import GROUP, HALF_TOPIC, OP_TOPIC
from txrocket.errors import StoreError
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import ONEWAY_FLAG
from txrocket.protocol.headers import CheckTransactionStateRequestHeader
from txrocket.protocol.record import decodeRecord
from txrocket.protocol.record.fields import encodeProperties
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")


class CheckTests(TransactionTests):
    """
    Checks of producers.
    """

    def test_oldHalfIsChecked(self) -> None:
        """
        A half that is not 6 seconds old is not checked, and an older one is checked: one
        that is.
        """
        self.half()
        self.assertEqual(self.passed(5.999), [])
        self.assertEqual(len(self.passed(0.001)), 1)

    def test_halfsOwnAgeCounts(self) -> None:
        """
        A half may say its own age for the check; an invalid number does not count.
        """
        for text, seconds in (("30", 30), ("0", 0), ("soon", 6), ("-1", 6), ("9" * 30, 6)):
            half = self.half(b"x", CHECK_IMMUNITY_TIME_IN_SECONDS=text)
            if seconds:
                self.assertEqual(self.passed(seconds - 0.001), [], text)
            (asked,) = self.passed(0.001)
            self.assertEqual(asked.message.body, b"x")
            self.tell(asked.half, ROLLBACK)
            self.assertNotEqual(asked.half, half)

    def test_waitingHalfDelaysNoOther(self) -> None:
        """
        A half that has to wait does not delay the check of those behind it.
        """
        self.half(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        self.half(b"fast")
        self.assertEqual([each.message.body for each in self.passed(10)], [b"fast"])
        self.assertEqual(self.pending(), [b"slow", b"fast"])

    def test_wrongProducerClockDoesNotMoveCheck(self) -> None:
        """
        A producer's clock that is wrong causes no check too early or too late.
        """
        for wrong in (-3_600_000, 3_600_000):
            born = self.now() + wrong
            self.sent(
                b"x",
                properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01x",
                bornTimestamp=born,
            )
            self.assertEqual(self.passed(5), [])
            for _ in range(3):
                (asked,) = self.passed(7)
                self.assertEqual(asked.message.bornTimestamp, born)
            self.tell(asked.half, ROLLBACK)

    def test_clockSetAheadChecksNotEarly(self) -> None:
        """
        If the broker's clock is set ahead, a half that is seconds old is not checked: its
        producer is at work.
        """
        for ahead in (3600, 365 * 24 * 3600):
            self.half()
            self.assertEqual(self.passed(1), [])
            self.shift += ahead
            self.assertEqual(self.passed(4), [])
            (asked,) = self.passed(1.001)
            self.tell(asked.half, ROLLBACK)

    def test_clockSetBackChecksInTime(self) -> None:
        """
        If the clock is set back, a half from its future is checked all the same, and a
        newer one is not.
        """
        for back in (3600, 365 * 24 * 3600):
            self.half(b"before")
            # As it does every second.
            self.checks.look()
            self.turn()
            self.assertEqual(self.passed(1), [])
            self.shift -= back
            self.half(b"since")
            self.assertEqual(self.passed(4.9), [])
            self.assertEqual([each.message.body for each in self.passed(0.6)], [b"before"])
            asked = self.passed(7)
            self.assertEqual(sorted(each.message.body for each in asked), [b"before", b"since"])
            for each in asked:
                self.tell(each.half, ROLLBACK)

    def test_clockSetAheadGivesNothingUp(self) -> None:
        """
        A clock that is set ahead by a year has no half given up for its age.
        """
        self.half()
        self.producer.lose()
        self.passed(10)
        self.shift += 365 * 24 * 3600
        self.passed(3600)
        self.assertEqual((self.pending(), self.bodies(CHECK_MAX_TOPIC)), ([b"x"], []))

    def test_checkHasJavasFields(self) -> None:
        """
        The question has the fields that Java's has: where the half is now, at the end of
        its queue, and its ids; and the message as it will be in its topic, with the
        number of checks among its properties.
        """
        self.half(b"u", 3, TAGS="t", KEYS="k")
        self.clock.advance(60)
        self.checks.check()
        self.turn()
        (request,) = self.producer.answers()
        (first, *_) = [
            each
            for each in captures()
            if each.requestCode == RequestCode.CHECK_TRANSACTION_STATE and each.kind == "oneway"
        ]
        self.assertEqual(set(request.extFields), set(first.header["extFields"]))
        copy = self.halves()[1]
        self.assertEqual(
            request.decodeHeader(CheckTransactionStateRequestHeader),
            CheckTransactionStateRequestHeader(1, copy.commitLogOffset, "u", "u", copy.offsetMsgId),
        )
        message = decodeRecord(request.body, checkCrc=True)
        java = decodeRecord(first.body)
        self.assertEqual((message.topic, message.queueId), ("T", 3))
        self.assertEqual((message.queueOffset, message.sysFlag), (1, java.sysFlag))
        self.assertEqual(message.commitLogOffset, copy.commitLogOffset)
        self.assertEqual(message.properties["TRANSACTION_CHECK_TIMES"], "1")
        # Java's own doing, which is in no record of its either.
        names = {*java.properties} - {"WAIT"}
        self.assertEqual({*message.properties} - {"TRAN_PREPARED_QUEUE_OFFSET"}, names)

    def test_checkedHalfIsAppendedAgain(self) -> None:
        """
        A half that is asked about is at the end of its queue with the number of checks
        and the place where it was first, and is otherwise as it was; an op says that it
        is not where it was, which is no decision.
        """
        self.half()
        self.half(b"y")
        self.sent(
            b"z",
            queueId=1,
            flag=7,
            reconsumeTimes=2,
            properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02DELAY\x015",
        )
        self.passed(60)
        self.passed(60)
        first, again, last = (self.halves()[at] for at in (2, 5, 8))
        self.assertEqual(
            {**first.properties, "TRANSACTION_CHECK_TIMES": "2", "TRAN_PREPARED_QUEUE_OFFSET": "2"},
            last.properties,
        )
        for name in (
            *("body", "flag", "sysFlag", "bornTimestamp", "bornHost", "reconsumeTimes"),
            *("topic", "queueId", "preparedTransactionOffset"),
        ):
            self.assertEqual(getattr(first, name), getattr(last, name), name)
        self.assertEqual(again.properties["TRANSACTION_CHECK_TIMES"], "1")
        self.assertEqual(self.ops(), [(at, False) for at in range(6)])

    def test_lastCheckGivesHalfUp(self) -> None:
        """
        A producer is checked 15 times and no more.  Then the half is in a readable topic as
        it last was, and is decided in its own.
        """
        self.half(b"x", 2)
        asked = [len(self.passed(60)) for _ in range(20)]
        self.assertEqual(asked, [1] * 15 + [0] * 5)
        (given,) = self.stored(CHECK_MAX_TOPIC)
        self.assertEqual((given.body, given.properties["REAL_QID"]), (b"x", "2"))
        self.assertEqual(given.properties, self.halves()[-1].properties)
        self.assertEqual(self.pending(), [])
        self.assertEqual(self.topics.table[CHECK_MAX_TOPIC].readQueueNums, 1)
        self.assertIn("asked 15 times", self.logged(LogLevel.warn)[-1])

    def test_changedSettingsApplyToWaitingHalves(self) -> None:
        """
        The age of the first check, and the number of checks, may be changed while
        halves wait.
        """
        self.change(transactionTimeOut="0", transactionCheckMax="2")
        self.half()
        self.assertEqual([len(self.passed()) for _ in range(4)], [1, 1, 0, 0])
        self.change(transactionTimeOut="60000", transactionCheckMax="15")
        self.half()
        self.assertEqual([len(self.passed(30)) for _ in range(3)], [0, 1, 1])

    def test_decidedHalfIsNotChecked(self) -> None:
        """
        A decided half is not checked, also if it was decided in this turn.
        """
        half, other = self.half(), self.half(b"y")
        self.tell(half, COMMIT)
        self.clock.advance(60)
        self.checks.check()
        self.client.write(self.ending(other, ROLLBACK, ONEWAY_FLAG))
        self.turn()
        self.assertEqual(self.questions(self.producer), [])

    def test_decisionEndsTransaction(self) -> None:
        """
        A producer's answer ends the transaction; unknown is checked again.
        """
        for body in (b"a", b"b", b"c"):
            self.half(body)
        for asked, state in zip(self.passed(60), (COMMIT, ROLLBACK, UNKNOWN), strict=True):
            self.tell(asked.half, state, fromTransactionCheck=True)
        self.assertEqual((self.bodies(), self.pending()), ([b"a"], [b"c"]))
        (asked,) = self.passed(60)
        self.assertEqual(asked.message.properties["TRANSACTION_CHECK_TIMES"], "2")
        self.tell(asked.half, COMMIT, fromTransactionCheck=True)
        self.assertEqual((self.bodies(), self.pending()), ([b"a", b"c"], []))
        self.assertEqual(self.passed(60), [])

    def test_lateDecisionCountsForCopy(self) -> None:
        """
        A decision for a half that was moved meanwhile counts for where it is now: its
        producer is asked once, and not again.
        """
        committed, rolledBack = self.half(b"a"), self.half(b"b")
        first = [each.half for each in self.passed(10)]
        self.tell(committed, COMMIT)
        self.tell(rolledBack, ROLLBACK)
        self.assertEqual((self.bodies(), self.pending()), ([b"a"], []))
        self.assertEqual(self.passed(60), [])
        self.assertEqual(self.ops()[2:], [(each, True) for each in (0, 1, 2, 3)])
        # So it is for each place where it has been.
        half = self.half(b"c")
        (second,) = self.passed(60)
        self.passed(60)
        self.tell(second.half, COMMIT)
        self.assertEqual(self.passed(60), [])
        self.assertEqual(self.pending(), [])
        self.assertEqual((len(first), half.queueOffset), (2, 4))

    def test_lateDecisionCountsAfterCrash(self) -> None:
        """
        The same holds if the broker crashes in between.
        """
        half = self.half()
        self.passed(10)
        self.tell(half, COMMIT)
        self.crash()
        self.assertEqual(self.passed(60), [])
        self.assertEqual((self.bodies(), self.pending()), ([b"x"], []))

    def test_lateDecisionCountsAfterStop(self) -> None:
        """
        The same holds if the broker is stopped in between.
        """
        half = self.half()
        self.passed(10)
        self.tell(half, COMMIT)
        self.checks.look()
        self.turn()
        self.checks.stop()
        self.successResultOf(self.checks.save())
        self.successResultOf(self.store.stop())
        self.build()
        self.turn()
        self.assertEqual(self.pending(), [])
        self.assertEqual(self.passed(60), [])

    def test_lateDecisionsAreBounded(self) -> None:
        """
        Late decisions are forgotten once they have had their effect, and their number is
        limited: beyond it the producer is checked again.
        """
        self.patch(opmessages, "_LATE", 1)
        for body in (b"a", b"b"):
            self.half(body)
        self.passed(10)
        self.tell(self.halfAt(0), COMMIT)
        self.tell(self.halfAt(1), COMMIT)
        (asked,) = self.passed(60)
        self.assertEqual(asked.message.body, b"b")
        self.assertFalse(self.transactions.opMessages.isLate(0))

    def halfAt(self, queueOffset: int) -> Any:
        """
        A half, as the producer that ends its transaction knows it.
        """
        return self.halves()[queueOffset]

    # --- producers -----------------------------------------------------------

    def test_producersAreCheckedInTurn(self) -> None:
        """
        The producers of a group are checked in turn, and those of other groups are not.
        """
        second, stranger = self.join("P"), self.join("Q")
        for body in (b"a", b"b"):
            self.half(body)
        asked = [self.passed(60), self.questions(second), self.questions(stranger)]
        self.assertEqual([len(each) for each in asked], [1, 1, 0])

    def test_noProducerLeavesHalfUnchecked(self) -> None:
        """
        While no producer of its group is connected, a half waits where it is, and its
        checks do not count; it does not matter how long.
        """
        self.half()
        self.producer.lose()
        for _ in range(40):
            self.passed(60)
        self.assertEqual([each.checks for each in self.transactions.pending(9)], [0])
        self.assertEqual(len(self.halves()), 1)
        self.producer = self.join("P")
        self.assertEqual([len(self.passed(60)) for _ in range(16)], [1] * 15 + [0])

    def test_expiringHalfIsGivenUp(self) -> None:
        """
        As long as messages are kept, that is: then it would be deleted with them, and is
        put where it can be found.
        """
        self.half()
        self.half(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS=str(1000 * 3600))
        self.producer.lose()
        self.passed(72 * 3600)
        self.assertEqual(len(self.pending()), 2)
        self.passed(1)
        self.assertEqual((self.pending(), self.bodies(CHECK_MAX_TOPIC)), ([], [b"x", b"immune"]))

    def test_lostProducerIsCheckedNextTime(self) -> None:
        """
        If a producer is lost before its check, the check is made in the next pass.
        """
        self.inThread = held = Held()
        self.half()
        self.clock.advance(60)
        self.checks.check()
        self.patch(self.producer.peer, "connected", 1)
        self.clock.advance(0)
        self.producer.peer.connected = 0
        self.turn()
        self.assertEqual(held.jobs, [])
        self.producer = self.join("P")
        self.assertEqual(len(self.passed(60)), 1)

    def test_unreadProducerIsCheckedSlowly(self) -> None:
        """
        A producer that does not read is asked more slowly.
        """
        self.patch(opmessages, "_HALVES", 2)
        for number in range(6):
            self.half(b"%d" % number)
        self.producer.peer.outbox.pauseProducing()
        limits = self.producer.peer._limits
        self.producer.peer.outbox._oneways = limits.oneways - 1
        self.assertEqual(len(self.passed(60)), 1)
        self.assertIn("did not get the check", self.logged(LogLevel.warn)[-1])
        self.assertEqual(len(self.halves()), 8)
        self.producer.peer.outbox.resumeProducing()
        self.clock.advance(0.9)
        self.assertEqual(self.questions(self.producer), [])
        self.clock.advance(0.1)
        self.turn()
        self.assertEqual(len(self.questions(self.producer)), 4)

    def test_unstoredCopyIsNotChecked(self) -> None:
        """
        A check is not sent before the copy that its answer would name is stored.
        """
        self.half()
        self.checks.stop()
        abandon(self.store)
        self.storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}
        self.inThread = held = Held()
        self.build()
        self.turn()
        self.assertEqual(self.passed(60), [])
        self.assertEqual(len(self.halves()), 2)
        while held.jobs:
            held.work()
        self.turn()
        self.assertEqual(len(self.questions(self.producer)), 1)
        # A disk that is slow has it all the same.
        self.passed(60)
        self.clock.advance(6)
        self.turn()
        self.assertEqual(len(self.questions(self.producer)), 1)
        while held.jobs:
            held.work()

    # --- slices --------------------------------------------------------------

    def test_manyHalvesTakeSeveralTurns(self) -> None:
        """
        Many halves are looked at bit by bit, and one pass at a time.
        """
        self.patch(opmessages, "_HALVES", 3)
        for number in range(10):
            self.half(b"%d" % number)
        real, seen = self.transactions.opMessages.halves, []

        def some(start: int, end: int) -> list[Any]:
            found = real(start, end)
            seen.append(len(found))
            # Not another one now.
            self.checks.check()
            return found

        self.patch(self.transactions.opMessages, "halves", some)
        asked = self.passed(60)
        self.assertEqual(seen, [3, 3, 3, 1, 0])
        self.assertEqual([each.message.body for each in asked], [b"%d" % n for n in range(10)])

    def test_largeHalvesAreReadInPortions(self) -> None:
        """
        Halves are read with a limit of bytes.
        """
        self.patch(opmessages, "_HALVES_SIZE", 1000)
        for number in range(6):
            self.half(b"%d" % number + b"x" * 400, UNIQ_KEY=str(number))
        found = self.transactions.opMessages.halves(0, 6)
        self.assertEqual([offset for offset, _ in found], [0, 1])
        self.assertEqual(len(self.passed(60)), 6)

    def test_halfMovedDuringPassWaits(self) -> None:
        """
        A half that is moved during a pass is left to the next.
        """
        self.patch(opmessages, "_HALVES", 1)
        self.change(transactionTimeOut="0")
        self.half()
        self.assertEqual([len(self.passed()) for _ in range(3)], [1, 1, 1])

    def test_farHalfIsMovedUncounted(self) -> None:
        """
        A half that has to wait while very many come behind it is moved to the end of its
        queue, without counting as asked about; so that what is known of those behind
        it stays small.
        """
        self.patch(check, "_REACH", 5)
        waits = self.half(b"wait", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        for number in range(5):
            self.tell(self.half(b"%d" % number), COMMIT)
        self.passed(1)
        self.assertEqual(self.transactions.opMessages.first, 6)
        (half,) = self.transactions.pending(9)
        self.assertEqual((half.queueOffset, half.checks, half.msgId), (6, 0, "wait"))
        self.assertEqual(self.passed(590), [])
        # A decision for where it was counts.
        self.tell(waits, COMMIT)
        self.assertEqual(self.passed(60), [])
        self.assertEqual(self.bodies()[-1], b"wait")

    def test_movedHalfIsCheckedAtItsAge(self) -> None:
        """
        Moved or not, a half is checked at the age that it says.
        """
        self.patch(check, "_REACH", 0)
        self.half(b"wait", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        for _ in range(9):
            self.assertEqual(self.passed(60), [])
        (asked,) = self.passed(60)
        self.assertEqual(asked.message.properties["TRANSACTION_CHECK_TIMES"], "1")
        self.assertEqual(asked.message.properties["TRAN_PREPARED_QUEUE_OFFSET"], "0")

    # --- what cannot be done ---------------------------------------------------

    def put(self, **properties: str) -> None:
        """
        A half that was not sent, but is there.
        """
        self.store.put(HALF_TOPIC, 0, b"odd", encodeProperties(properties), self.now(), HOST)
        self.turn()

    def test_halfWithoutDestinationIsSkipped(self) -> None:
        """
        A half without a destination is skipped.
        """
        self.put(PGROUP="P")
        self.half()
        self.assertEqual([each.message.body for each in self.passed(60)], [b"x"])
        self.assertIn("cannot be read", self.logged(LogLevel.error)[0])
        self.assertEqual(self.transactions.opMessages.first, 2)

    def test_halfWithoutRecordIsSkipped(self) -> None:
        """
        A half without a record is skipped.
        """
        self.half()
        patching = self.patch(self.store, "messages", lambda places: [None for _ in places])
        self.assertEqual(self.passed(60), [])
        self.assertEqual(self.transactions.pending(9), [])
        patching.restore()
        self.assertIn("no message for the half 0", self.logged(LogLevel.error)[0])
        self.assertEqual(self.transactions.opMessages.first, 1)
        self.half(b"y")
        self.assertEqual(len(self.passed(60)), 1)

    def test_missingEntriesAreSkipped(self) -> None:
        """
        So are all whose entries in the queue cannot be read.
        """
        for number in range(3):
            self.half(b"%d" % number)
        patching = self.patch(self.store, "mended", lambda *asked: iter(()))
        self.assertEqual(self.passed(60), [])
        patching.restore()
        self.assertEqual(self.transactions.opMessages.first, 3)

    def test_oddOpsAreSkipped(self) -> None:
        """
        Ops without a half, or of a missing one, are skipped.
        """
        self.half()
        for body in (b"", b"x", b"-1", b"1", b"9" * 19, b"9" * 40):
            self.store.put(OP_TOPIC, 0, body, b"TAGS\x01d", self.now(), HOST)
        self.store.put(OP_TOPIC, 0, b"0", b"TAGS\x01d", self.now(), HOST)
        self.checks.look()
        self.turn()
        self.assertEqual(self.transactions.opMessages.decidedUpTo, (1, 7))

    def test_deletedFilesAreSkipped(self) -> None:
        """
        Halves and ops that are deleted with their files are passed over.
        """
        for number in range(30):
            self.tell(self.half(b"%d" % number), COMMIT)
        self.half(b"last")
        self.checks.stop()
        self.store.log.segments.removeFirst()
        self.store.queues.follow(self.store.log.first)
        self.assertGreater(self.store.minOffset(HALF_TOPIC, 0), 0)
        self.crash()
        self.assertEqual(self.pending(), [b"last"])

    def test_halfWithoutGroupWaitsUntilOld(self) -> None:
        """
        A half without a group waits until it is old.
        """
        self.put(REAL_TOPIC="T", REAL_QID="0")
        self.assertEqual(self.passed(60), [])
        self.passed(72 * 3600)
        self.assertEqual(self.bodies(CHECK_MAX_TOPIC), [b"odd"])

    def test_halfWithoutRoomForCountIsGivenUp(self) -> None:
        """
        A half without room for the number of its checks is given up at once, and one that
        waits stays in its place.
        """
        self.disk.used = 0
        self.store.stop()
        self.storeOptions = {"mappedFileSizeCommitLog": 1 << 20}
        self.root = self.mktemp()
        self.build()
        self.put(REAL_TOPIC="T", REAL_QID="0", PGROUP="P", a="x" * 32720)
        self.patch(check, "_REACH", 0)
        self.assertEqual(self.passed(1), [])
        self.assertEqual(len(self.stored(CHECK_MAX_TOPIC)), 1)
        self.put(REAL_TOPIC="T", REAL_QID="0", PGROUP="P", a="x" * 32720)
        self.assertEqual(self.passed(60), [])
        self.assertEqual(len(self.stored(CHECK_MAX_TOPIC)), 2)

    def test_unstorableHalfStays(self) -> None:
        """
        A half that cannot be stored elsewhere any more stays in its place.
        """
        self.half(b"x" * 100, UNIQ_KEY="u")
        self.store.log.maxBody = 50
        for _ in range(2):
            self.assertEqual(self.passed(60), [])
            self.assertIn("stays undecided", self.logged(LogLevel.error)[-1])
        self.assertEqual(self.pending(), [b"u"])
        self.store.log.maxBody = 1000
        self.assertEqual(len(self.passed(60)), 1)

    def test_fullDiskDelaysChecks(self) -> None:
        """
        While the disk is full no half is checked, and then all are.
        """
        for body in (b"a", b"b"):
            self.half(body)
        self.disk.failing = {"pwrite": FULL, "allocate": FULL}
        for _ in range(3):
            self.assertEqual(self.passed(60), [])
        self.assertIn("checked later", self.logged(LogLevel.error)[-1])
        self.disk.failing.clear()
        self.assertEqual(self.pending(), [b"a", b"b"])
        self.assertEqual([each.checks for each in self.transactions.pending(9)], [0, 0])
        self.assertEqual(len(self.passed(60)), 2)

    def test_diskFullDuringPassChecksStored(self) -> None:
        """
        If the disk fills up during a pass, the stored halves are checked, and the others in
        the next pass.
        """
        for number in range(12):
            self.half(b"%d" % number + b"x" * 100, UNIQ_KEY=str(number))
        # The next file of the log cannot be begun.
        self.disk.failing = {"allocate": FULL}
        asked = self.passed(60)
        self.assertGreater(len(asked), 0)
        self.assertLess(len(asked), 12)
        self.disk.failing.clear()
        again = self.passed(60)
        times = [int(each.message.properties["TRANSACTION_CHECK_TIMES"]) for each in again]
        self.assertEqual((times.count(2), times.count(1)), (len(asked), 12 - len(asked)))

    def test_unreadableDiskIsTriedAgain(self) -> None:
        """
        A disk that does not give the halves is tried the next time.
        """
        self.half()

        def fail(places: Any) -> Any:
            raise StoreError("broken")

        patching = self.patch(self.store, "messages", fail)
        self.assertEqual(self.passed(60), [])
        self.assertIn("checked later: broken", self.logged(LogLevel.error)[-1])
        patching.restore()
        self.assertEqual(len(self.passed(60)), 1)

    # --- offsets -------------------------------------------------------------

    def saved(self) -> tuple[int, int]:
        """
        The offsets in C{consumerOffset.json}.
        """
        self.offsets.load()
        return (
            self.offsets.query(GROUP, HALF_TOPIC, 0),
            self.offsets.query(GROUP, OP_TOPIC, 0),
        )

    def test_passWritesDecidedOffsets(self) -> None:
        """
        The offsets of CID_RMQ_SYS_TRANS in both topics say what is decided, and are
        written after a pass.
        """
        self.assertEqual(GROUP, "CID_RMQ_SYS_TRANS")
        halves = [self.half(b"%d" % number) for number in range(4)]
        for number in (0, 1, 3):
            self.tell(halves[number], COMMIT)
        self.passed(1)
        self.assertEqual(self.saved(), (2, 0))
        self.tell(halves[2], ROLLBACK)
        self.passed(1)
        self.assertEqual(self.saved(), (4, 4))

    def test_offsetsAreWrittenAfterCopies(self) -> None:
        """
        The offsets are written only after the copies are on the disk: a half whose copy is
        lost is not skipped.
        """
        self.half()
        self.disk.synced.clear()
        self.passed(60)
        self.assertEqual(self.saved(), (1, 1))
        synced = [each for each in self.disk.synced if "commitlog" in each or "Offset" in each]
        self.assertIn("commitlog", synced[0])
        self.assertIn("consumerOffset", synced[-1])

    def test_stopEndsChecks(self) -> None:
        """
        When the broker stops it sends no more checks, and the offsets are written.
        """
        self.tell(self.half(), COMMIT)
        self.half(b"y")
        self.checks.look()
        self.turn()
        self.clock.advance(60)
        self.checks.check()
        self.checks.stop()
        self.turn()
        self.assertEqual(self.questions(self.producer), [])
        self.successResultOf(self.checks.save())
        self.assertEqual(self.saved(), (1, 1))
        self.successResultOf(self.checks.save())
        self.checks.load()

    def test_failedWriteIsRepeated(self) -> None:
        """
        Offsets that cannot be written are written the next time.
        """
        self.tell(self.half(), COMMIT)
        self.checks.look()
        self.turn()
        self.disk.failing = {"sync": OSError(errno.EIO, "broken")}
        self.successResultOf(self.checks.save())
        self.assertIn("not written now", self.logged(LogLevel.error)[-1])
        self.assertEqual(self.saved(), (-1, -1))
        self.flushLoggedErrors()

    def test_spansBoundWhatIsReadAgain(self) -> None:
        """
        Ops about later halves are read again only as far as necessary.
        """
        self.patch(opmessages, "_SPAN", 2)
        halves = [self.half(b"%d" % number) for number in range(8)]
        for number in (0, 1, 4, 5, 2, 3, 7):
            self.tell(halves[number], COMMIT)
        self.passed(1)
        self.assertEqual(self.saved(), (6, 6))
        self.crash()
        self.assertEqual(self.pending(), [b"6"])

    # --- restarts ------------------------------------------------------------

    def test_restartKeepsDecisionsAndChecks(self) -> None:
        """
        A broker that starts anew knows what is decided, how often was asked, and goes
        on with it.
        """
        halves = [self.half(b"%d" % number) for number in range(6)]
        self.tell(halves[1], COMMIT)
        self.passed(60)
        self.tell(halves[4], ROLLBACK)
        for _ in range(2):
            self.crash()
            self.turn()
            self.assertEqual(sorted(self.pending()), [b"0", b"2", b"3", b"5"])
            self.assertEqual({each.checks for each in self.transactions.pending(9)}, {1})
        asked = self.passed(60)
        self.assertEqual(len(asked), 4)
        for each in asked:
            self.assertEqual(each.message.properties["TRANSACTION_CHECK_TIMES"], "2")
            self.tell(each.half, COMMIT)
        self.crash()
        self.assertEqual((self.pending(), self.passed(600)), ([], []))

    def test_offsetsOutsideQueueAreCorrected(self) -> None:
        """
        Offsets beyond the queue, as after a power loss of Java's, or before it, are
        corrected.
        """
        self.half()
        for offset in (99, -5):
            self.offsets.commit(GROUP, HALF_TOPIC, 0, offset, "a test")
            self.offsets.commit(GROUP, OP_TOPIC, 0, offset, "a test")
            self.successResultOf(self.offsets.save())
            self.crash()
            self.assertEqual(self.transactions.opMessages.decidedUpTo, (1 if offset > 0 else 0, 0))

    def test_shorterLogCorrectsOffsets(self) -> None:
        """
        Where the offsets were beyond what is there, they are not any more when new halves
        take the place of those that are lost: none of these is taken for decided.
        """
        self.offsets.commit(GROUP, HALF_TOPIC, 0, 99, "a test")
        self.successResultOf(self.offsets.save())
        self.crash()
        for number in range(3):
            self.half(b"%d" % number)
            self.crash()
        self.assertEqual(self.pending(), [b"0", b"1", b"2"])

    def test_javasCopiesAreTaken(self) -> None:
        """
        Copies that Java made are recognised: checked ones, which do not name their origin,
        and waiting ones, which Java moves and counts each time.
        """
        self.tell(self.half(), COMMIT)
        born = self.now() - 100_000
        for properties in (
            {"TRANSACTION_CHECK_TIMES": "3", "UNIQ_KEY": "asked"},
            {
                "TRANSACTION_CHECK_TIMES": "1",
                "CHECK_IMMUNITY_TIME_IN_SECONDS": "200",
                "TRAN_PREPARED_QUEUE_OFFSET": "0",
                "UNIQ_KEY": "waits",
            },
        ):
            self.store.put(
                HALF_TOPIC,
                0,
                b"x",
                encodeProperties({**properties, "REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "P"}),
                born,
                HOST,
            )
        self.turn()
        self.assertEqual([each.checks for each in self.transactions.pending(9)], [3, 1])
        (asked,) = self.passed(1)
        self.assertEqual(asked.message.msgId, "asked")
        self.assertEqual(asked.message.properties["TRANSACTION_CHECK_TIMES"], "4")
        self.tell(asked.half, COMMIT)
        (asked,) = self.passed(100)
        self.assertEqual(asked.message.msgId, "waits")

    # --- lists -----------------------------------------------------------------

    def test_pendingListsUndecidedHalves(self) -> None:
        """
        Undecided halves can be listed: their ids, groups and topics, their ages, and
        how often they were checked; up to a limit at a time.
        """
        self.patch(opmessages, "_HALVES", 2)
        halves = [self.half(b"%d" % number) for number in range(5)]
        self.tell(halves[1], COMMIT)
        self.passed(60)
        self.half(b"new")
        self.clock.advance(7)
        first, *_ = listed = self.transactions.pending(9)
        self.assertEqual([each.msgId for each in listed], ["0", "2", "3", "4", "new"])
        copy = self.halves()[first.queueOffset]
        self.assertEqual(
            first,
            (5, "0", copy.offsetMsgId, "T", "P", copy.bornTimestamp, 1, 67_000),
        )
        self.assertEqual(listed[-1].checks, 0)
        self.assertEqual(self.transactions.pending(3), listed[:3])
        self.assertEqual(self.transactions.pending(9, listed[2].queueOffset + 1), listed[3:])
        self.assertEqual(self.transactions.pending(0), [])

    def test_unreadablePendingIsLeftOut(self) -> None:
        """
        A pending half that cannot be read is left out.
        """
        self.put(PGROUP="P")
        (listed,) = self.transactions.pending(9)
        self.assertEqual((listed.topic, listed.age), ("", 0))
