# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.endtransaction}.
"""

from __future__ import annotations

import errno

from twisted.logger import LogLevel

from tests.processors.replay import requests, responseTo
from tests.processors.support import CLUSTER
from tests.processors.transactioncase import (
    CHECK_MAX_TOPIC,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    TransactionTests,
)
from tests.store.support import HOST, Held
from txrocket.broker.transaction.opmessages import OP_TOPIC
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import ResumeCheckHalfMessageRequestHeader
from txrocket.store.settings import FlushDiskType


class EndTests(TransactionTests):
    """
    END_TRANSACTION.
    """

    def test_commitAppendsMessage(self) -> None:
        """
        A committed message is in its queue as it was sent, with the flag of a commit, the
        place of its half, and, as Java leaves them to it, the half's properties; and an
        op, with the tag d, has the half's number in its queue for a body.
        """
        self.half(b"other")
        half = self.half(b"x", 2, TAGS="t", KEYS="k")
        before = self.halves()[1]
        self.clock.advance(3)
        self.assertEqual(self.end(half, COMMIT).code, 0)
        (message,) = self.stored(queueId=2)
        self.assertEqual((message.body, message.queueOffset), (b"x", 0))
        self.assertEqual(message.sysFlag, 8)
        self.assertEqual(message.preparedTransactionOffset, half.commitLogOffset)
        self.assertEqual(message.bornTimestamp, before.bornTimestamp)
        self.assertEqual(message.bornHost, before.bornHost)
        self.assertEqual(message.storeTimestamp, self.now())
        self.assertEqual(
            message.properties,
            {
                "TRAN_MSG": "true",
                "PGROUP": "P",
                "UNIQ_KEY": "x",
                "TAGS": "t",
                "KEYS": "k",
                "CLUSTER": CLUSTER,
                "REAL_TOPIC": "T",
                "REAL_QID": "2",
            },
        )
        (op,) = self.stored(OP_TOPIC)
        self.assertEqual((op.body, op.tags, op.sysFlag), (b"1", "d", 0))
        self.assertGreater(op.commitLogOffset, message.commitLogOffset)
        self.assertEqual(self.pending(), [b"other"])

    def test_committedMessageHasItsTag(self) -> None:
        """
        A consumer that wants a tag gets the committed messages that have it.
        """
        for tag in "ab":
            self.end(self.half(tag.encode(), TAGS=tag), COMMIT)
        self.assertEqual(self.pulled(subscription="b").body.count(b"TAGS\x01b"), 1)
        self.assertNotIn(b"TAGS\x01a", self.pulled(subscription="b").body)

    def test_rollbackAppendsOnlyOp(self) -> None:
        """
        A message that is rolled back is in no queue, and its half message is settled.
        """
        half = self.half()
        self.assertEqual(self.end(half, ROLLBACK).code, 0)
        self.assertEqual(self.bodies(), [])
        self.assertEqual(self.ops(), [(0, True)])
        self.assertEqual(self.pending(), [])

    def test_unknownGetsNoResponse(self) -> None:
        """
        Who does not know is not answered, as in Java, asked or not; the half stays.
        """
        half = self.half()
        for asked in (False, True):
            self.client.write(self.ending(half, UNKNOWN, fromTransactionCheck=asked))
            self.tell(half, UNKNOWN, fromTransactionCheck=asked)
        self.assertEqual(self.client.answers(), [])
        self.assertEqual((self.ops(), self.pending()), ([], [b"x"]))

    def test_onewayDecisionCounts(self) -> None:
        """
        Producers want no answer, and what they say counts all the same, be they asked
        or not.
        """
        for asked in (False, True):
            self.tell(self.half(b"a"), COMMIT, fromTransactionCheck=asked)
            self.tell(self.half(b"b"), ROLLBACK, fromTransactionCheck=asked)
        self.assertEqual(self.bodies(), [b"a", b"a"])
        self.assertEqual(self.pending(), [])

    def test_capturedRequestsEndTransactions(self) -> None:
        """
        Captured requests, of clients in Java and Go, end transactions here; Go wants an
        answer, and gets the one that Java gave.
        """
        answered = 0
        for request in requests(RequestCode.END_TRANSACTION, "broker"):
            fields = request.header["extFields"]
            half = self.half(b"m", PGROUP=fields["producerGroup"])
            count = len(self.ops())
            end = self.client.request(RequestCode.END_TRANSACTION, None)
            end.flag = request.header["flag"]
            end.fields = {
                **fields,
                "commitLogOffset": str(half.commitLogOffset),
                "tranStateTableOffset": str(half.queueOffset),
            }
            self.client.write(end)
            self.clock.advance(0)
            answers = self.client.answers()
            self.assertEqual(len(self.ops()), count + 1)
            response = responseTo(request)
            if response is None:
                self.assertEqual(answers, [])
                continue
            (answer,) = answers
            self.assertEqual(answer.code, response.header["code"])
            self.assertEqual((answer.extFields, answer.body, answer.remark), ({}, b"", None))
            answered += 1
        self.assertEqual(answered, 2)
        self.assertEqual(len(self.bodies()), 6)

    def test_wrongHalfIsRefused(self) -> None:
        """
        The half must be where the producer says, in the log and in its queue, and of the
        producer's group; what is no half is not committed, however much it looks like one.
        """
        half = self.half()
        properties = "PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010"
        plain = self.sent(properties=properties).extFields
        ordinary = Half(int(plain["queueOffset"]), int(plain["msgId"][16:], 16))
        for end, changes, remark in (
            (half, {"producerGroup": "Q"}, "group Q"),
            (half._replace(queueOffset=5), {}, "not at 5 in its queue, but at 0"),
            (half._replace(commitLogOffset=half.commitLogOffset + 1), {}, "no message at"),
            (half._replace(commitLogOffset=1 << 40), {}, "no message at 1099511627776"),
            (half._replace(commitLogOffset=-1), {}, "no message at -1"),
            (ordinary, {}, "is no half"),
        ):
            for state in (COMMIT, ROLLBACK):
                answer = self.end(end, state, **changes)
                self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
                self.assertIn(remark, answer.remark or "")
                # A oneway request gets no response, so the error is logged.
                self.tell(end, state, **changes)
                self.assertIn(remark, self.logged(LogLevel.warn)[-1])
        self.assertEqual((self.bodies(), self.ops(), self.pending()), ([b"x"], [], [b"x"]))

    def test_noPlace(self) -> None:
        """
        A half that does not say where it belongs cannot be committed.
        """
        appended = self.store.put("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"x", b"PGROUP\x01P", 1, HOST)
        self.clock.advance(0)
        answer = self.end(Half(appended.queueOffset, appended.offset), COMMIT)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("which topic and queue", answer.remark or "")

    def test_badState(self) -> None:
        """
        What is no way to end a transaction is refused.
        """
        request = self.ending(self.half(), COMMIT)
        request.fields = {**request.extFields, "commitOrRollback": "4"}
        self.assertEqual(self.answerTo(request).code, ResponseCode.SYSTEM_ERROR)

    def test_secondCommitIsCommitted(self) -> None:
        """
        As in Java, a second commit, or one after a rollback, is executed.
        """
        half = self.half()
        for state in (COMMIT, COMMIT, ROLLBACK, COMMIT):
            self.assertEqual(self.end(half, state).code, 0)
        self.assertEqual(self.bodies(), [b"x"] * 3)
        self.assertEqual(self.pending(), [])

    def test_delayBeginsAtCommit(self) -> None:
        """
        A half's delay begins when it is committed, and the message waits without the
        half's properties.
        """
        half = self.half(DELAY="1", TAGS="t")
        self.clock.advance(30)
        self.delays.start()
        self.addCleanup(self.delays.stop)
        self.end(half, COMMIT)
        (waiting,) = self.stored("SCHEDULE_TOPIC_XXXX")
        self.assertEqual(waiting.sysFlag, 8)
        self.assertEqual(
            (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]), ("T", "0")
        )
        self.assertNotIn("TRAN_MSG", waiting.properties)
        self.clock.advance(0.9)
        self.assertEqual(self.bodies(), [])
        self.clock.pump([0.1, 0])
        (message,) = self.stored()
        self.assertEqual((message.body, message.tags, message.sysFlag), (b"x", "t", 8))
        self.assertEqual(message.preparedTransactionOffset, half.commitLogOffset)

    def test_committedMessageIsCounted(self) -> None:
        """
        A committed message counts for its topic.
        """
        half = self.half()
        self.stats.puts.clear()
        self.end(half, COMMIT)
        ((topic, count, size),) = self.stats.puts
        self.assertEqual((topic, count, size), ("T", 1, self.stored()[0].storeSize))


class EndDiskTests(TransactionTests):
    """
    END_TRANSACTION, and a disk that fails or is slow.
    """

    def test_fullDiskKeepsHalf(self) -> None:
        """
        If the disk is full, a transaction cannot end, and its half stays; once there is
        room, it can.
        """
        half = self.half()
        self.disk.failing = {"pwrite": OSError(errno.ENOSPC, "full")}
        for state in (COMMIT, ROLLBACK):
            answer = self.end(half, state)
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertIn("no room", answer.remark or "")
            self.tell(half, state)
        self.disk.failing.clear()
        self.assertEqual((self.bodies(), self.ops(), self.pending()), ([], [], [b"x"]))
        self.assertEqual(self.end(half, COMMIT).code, 0)
        self.assertEqual((self.bodies(), self.pending()), ([b"x"], []))

    def test_failedStoreRefusesEnd(self) -> None:
        """
        A store that has failed takes no ends.
        """
        half = self.half()
        self.disk.failing = {"pwrite": OSError(errno.EIO, "broken")}
        self.assertEqual(self.end(half, COMMIT).code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.end(half, COMMIT).code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.flushLoggedErrors()

    def test_tooLong(self) -> None:
        """
        A message that cannot be stored in its topic cannot be committed.
        """
        half = self.half(b"x" * 100, UNIQ_KEY="u")
        self.store.log.maxBody = 50
        self.assertEqual(self.end(half, COMMIT).code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.pending(), [b"u"])


class EndSyncTests(TransactionTests):
    """
    END_TRANSACTION with SYNC_FLUSH.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "syncFlushTimeout": 5000}

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()

    def work(self) -> None:
        while self.held.jobs:
            self.held.work()

    def answerTo(self, request: RemotingCommand, client: object = None) -> RemotingCommand:
        self.client.write(request)
        self.clock.advance(0)
        self.work()
        self.clock.advance(0)
        (answer,) = self.client.answers()
        return answer

    def test_responseWaitsForDisk(self) -> None:
        """
        Who wants an answer gets it when the message is on the disk; and if that takes
        too long, as if it were, like in Java.
        """
        half = self.half()
        for wait in (self.work, lambda: self.clock.advance(6)):
            self.client.write(self.ending(half, COMMIT))
            self.clock.advance(0)
            self.assertEqual(self.client.answers(), [])
            wait()
            self.clock.advance(0)
            (answer,) = self.client.answers()
            self.assertEqual(answer.code, 0)
        self.work()


class ResumeTests(TransactionTests):
    """
    RESUME_CHECK_HALF_MESSAGE.
    """

    def resume(self, msgId: str | None) -> RemotingCommand:
        """
        The response to an administrator that has a half checked again.
        """
        header = ResumeCheckHalfMessageRequestHeader(msgId)
        return self.answerTo(self.client.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))

    def givenUp(self) -> str:
        """
        The id of a half that was checked often enough.
        """
        self.half()
        for _ in range(15):
            self.assertEqual(len(self.passed(60)), 1)
        self.assertEqual(self.passed(60), [])
        (half,) = self.stored(CHECK_MAX_TOPIC)
        self.assertEqual(half.properties["TRANSACTION_CHECK_TIMES"], "15")
        return half.offsetMsgId

    def test_givenUpHalfIsCheckedAgain(self) -> None:
        """
        A half that was given up is checked again as often as any other.
        """
        msgId = self.givenUp()
        self.assertEqual(self.pending(), [])
        self.assertEqual(self.resume(msgId).code, 0)
        self.assertEqual([each.checks for each in self.transactions.pending(9)], [0])
        (asked,) = self.passed()
        self.assertEqual(asked.message.properties["TRANSACTION_CHECK_TIMES"], "1")
        self.tell(asked.half, COMMIT, fromTransactionCheck=True)
        self.assertEqual((self.bodies(), self.pending()), ([b"x"], []))

    def test_pendingHalfIsCheckedFromTheBeginning(self) -> None:
        """
        So is one that is still checked, by the id that its sender knows as well; it is
        still one.
        """
        half = self.half()
        msgId = self.halves()[0].offsetMsgId
        self.assertEqual(self.resume(msgId).code, 0)
        self.assertEqual(self.pending(), [b"x"])
        (asked,) = self.passed(10)
        self.assertNotEqual(asked.half, half)
        self.assertEqual(self.resume(asked.header.offsetMsgId or "").code, 0)
        self.assertEqual([each.checks for each in self.transactions.pending(9)], [0])

    def test_invalidIdIsRefused(self) -> None:
        """
        What is no id, or not that of a half, is refused.
        """
        plain = self.sent().extFields["msgId"]
        half = self.half()
        for msgId in (None, "", "no id", plain, plain[:16] + "0" * 12 + "7777"):
            self.assertEqual(self.resume(msgId).code, ResponseCode.SYSTEM_ERROR, msgId)
        self.assertEqual(len(self.halves()), 1)
        self.disk.failing = {"pwrite": OSError(errno.ENOSPC, "full")}
        self.assertEqual(half.queueOffset, 0)
        answer = self.resume(self.halves()[0].offsetMsgId)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("no room", answer.remark or "")

    def test_tooLong(self) -> None:
        """
        One that cannot be stored any more is refused.
        """
        self.half(b"x" * 100, UNIQ_KEY="u")
        self.store.log.maxBody = 50
        answer = self.resume(self.halves()[0].offsetMsgId)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.pending(), [b"u"])
