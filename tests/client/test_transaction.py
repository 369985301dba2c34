# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.transaction}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import LogLevel

from tests.captures import Capture, captures
from tests.client.brokers import A, ConsumerTests
from tests.client.messages import HOST
from tests.remoting.doubles import decoded
from txrocket.client.producer.transaction import (
    LocalTransactionState,
    TransactionProducer,
    TransactionSendResult,
)
from txrocket.client.sansio.results import SendStatus
from txrocket.errors import InvalidMessage, SendFailed
from txrocket.message import Message, MessageExt, splitProperties
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from txrocket.protocol.headers import SendMessageResponseHeader
from txrocket.protocol.messageid import encodeMessageId

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW


def captured(code: int, kind: str, sender: str) -> list[Capture]:
    """
    The requests of a code that RocketMQ 4.9.7 really sent.
    """
    return [
        each
        for each in captures()
        if (each.requestCode, each.kind, each.sender) == (code, kind, sender)
        and each.header["version"] == 407
    ]


class TransactionTests(ConsumerTests):
    """
    A producer of half messages, and the broker as the test plays it.
    """

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.cluster.stop)
        self.halves: list[RemotingCommand] = []
        self.ends: list[RemotingCommand] = []
        self.status = 0
        self.msgId = encodeMessageId(HOST, 4711)
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = self.store
        self.a.answers[RequestCode.END_TRANSACTION] = self.ends.append  # type: ignore[assignment]
        self.checked: list[MessageExt] = []
        self.told: Any = COMMIT
        self.producer = self.started("P")
        # Its heartbeat goes to the brokers that it knows.
        self.got(self.cluster.routes.find("T"))

    def started(self, group: str, **options: Any) -> TransactionProducer:
        """
        A producer.
        """
        producer = TransactionProducer(self.cluster, group, self.check, **options)
        self.got(producer.start())
        self.addCleanup(lambda: self.got(producer.stop()))
        return producer

    def check(self, message: MessageExt) -> Any:
        """
        The state of a transaction.
        """
        self.checked.append(message)
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    def store(self, request: RemotingCommand) -> RemotingCommand:
        """
        A half message comes.
        """
        self.halves.append(request)
        return responseCommand(
            self.status, None, SendMessageResponseHeader(self.msgId, 0, 21, transactionId="tx")
        )

    def send(self, execute: Any, message: Message | None = None) -> Deferred[TransactionSendResult]:
        """
        A transaction begins.
        """
        message = message or Message("T", b"hello", "tag", "key")
        sending = self.producer.sendInTransaction(message, execute)
        self.network.flush()
        return sending

    # --- half messages ---------------------------------------------------

    def test_halfIsMarkedAndGivenToTransaction(self) -> None:
        """
        A half message is marked, names its producer's group, and has an id; the local
        transaction gets it as it is.
        """
        given: list[Message] = []
        self.send(given.append)
        (half,) = self.halves
        (message,) = given
        properties = splitProperties(half.extFields["i"])
        self.assertEqual(properties, message.properties)
        self.assertEqual(
            {name: properties[name] for name in ("TRAN_MSG", "PGROUP", "TAGS", "KEYS")},
            {"TRAN_MSG": "true", "PGROUP": "P", "TAGS": "tag", "KEYS": "key"},
        )
        self.assertEqual((half.extFields["f"], len(properties["UNIQ_KEY"])), ("4", 32))

    def test_halfIsMarkedAsByJava(self) -> None:
        """
        Java's producer marks it in the same way.
        """
        java = [
            each.header["extFields"]
            for each in captured(310, "request", "client")
            if "TRAN_MSG" in each.header["extFields"]["i"]
        ]
        self.assertTrue(java)
        self.send(lambda message: COMMIT)
        (half,) = self.halves
        for fields in java:
            self.assertEqual(set(half.extFields), set(fields))
            self.assertEqual(half.extFields["f"], fields["f"])
            # Java also says that it waits, which goes without saying.
            self.assertEqual(
                {*splitProperties(half.extFields["i"]), "WAIT"}, {*splitProperties(fields["i"])}
            )

    def test_largeHalfIsCompressed(self) -> None:
        """
        A large body is compressed all the same.
        """
        self.send(lambda message: COMMIT, Message("T", b"x" * 5000))
        self.assertEqual(
            int(self.halves[0].extFields["f"]), 4 | COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
        )

    def test_halfHasNoDelay(self) -> None:
        """
        A half message has no delay: it would be delivered before its commit.
        """
        self.send(lambda message: COMMIT, Message("T", b"x", delayTimeLevel=3))
        self.assertNotIn("DELAY", splitProperties(self.halves[0].extFields["i"]))

    def test_givenIdIsKept(self) -> None:
        """
        An id of the application stays.
        """
        self.send(lambda message: COMMIT, Message("T", b"x", properties={"UNIQ_KEY": "mine"}))
        self.assertEqual(self.ends[0].extFields["msgId"], "mine")

    def test_plainSendIsNoTransaction(self) -> None:
        """
        A send without a transaction counts at once.
        """
        self.got(self.producer.send(Message("T", b"x")))
        self.assertEqual((self.halves[0].extFields["f"], self.ends), ("0", []))

    def test_unsentHalfBeginsNoTransaction(self) -> None:
        """
        If the half message cannot be sent, no local transaction begins.
        """
        given: list[Message] = []
        self.failed(self.send(given.append, Message("T", b"")), InvalidMessage)
        self.status = ResponseCode.MESSAGE_ILLEGAL
        self.failed(self.send(given.append), SendFailed)
        self.assertEqual((given, self.ends), ([], []))

    def test_unsafeHalfIsRolledBack(self) -> None:
        """
        If the half message is stored less safely than it should be, no local transaction
        begins, and the message is rolled back.
        """
        given: list[Message] = []
        self.status = SendStatus.FLUSH_DISK_TIMEOUT.value
        result = self.got(self.send(given.append))
        self.assertIs(result.sendResult.sendStatus, SendStatus.FLUSH_DISK_TIMEOUT)
        self.assertIs(result.localTransactionState, ROLLBACK)
        self.assertEqual((given, self.ends[0].extFields["commitOrRollback"]), ([], "12"))

    # --- the end ---------------------------------------------------------

    def test_endNamesHalfAndState(self) -> None:
        """
        The broker gets a oneway request with the half message and the state, in the fields
        of Java's producer.
        """
        result = self.got(self.send(lambda message: COMMIT))
        (end,) = self.ends
        self.assertTrue(end.isOneway)
        self.assertEqual(
            end.extFields,
            {
                "producerGroup": "P",
                "tranStateTableOffset": "21",
                "commitLogOffset": "4711",
                "commitOrRollback": "8",
                "msgId": result.sendResult.msgId,
                "fromTransactionCheck": "false",
                "transactionId": "tx",
                "bname": "a",
            },
        )
        self.assertIsNone(end.remark)
        java = [
            each.header["extFields"]
            for each in captured(37, "oneway", "client")
            if each.header["extFields"]["fromTransactionCheck"] == "false"
        ]
        self.assertTrue(java)
        for fields in java:
            self.assertEqual({*fields, "transactionId"}, set(end.extFields))

    def test_stateIsRecordFlag(self) -> None:
        """
        The state is sent as the flags of a record: 8 for commit, 12 for rollback, 0 for
        unknown.  No result means unknown.
        """
        for returned, state, flag in (
            (COMMIT, COMMIT, "8"),
            (ROLLBACK, ROLLBACK, "12"),
            (UNKNOWN, UNKNOWN, "0"),
            (None, UNKNOWN, "0"),
        ):
            result = self.got(self.send(lambda message, returned=returned: returned))
            self.assertIs(result.localTransactionState, state)
            self.assertEqual(self.ends.pop().extFields["commitOrRollback"], flag)
            self.assertEqual(result.sendResult.queueOffset, 21)

    def test_transactionMayReturnDeferred(self) -> None:
        """
        A local transaction may take its time.
        """
        promise: Deferred[LocalTransactionState] = Deferred()
        sending = self.send(lambda message: promise)
        self.network.advance(100)
        self.assertEqual(self.ends, [])
        promise.callback(ROLLBACK)
        self.assertIs(self.got(sending).localTransactionState, ROLLBACK)
        self.assertEqual(len(self.ends), 1)

    def test_transactionMayBeCoroutine(self) -> None:
        """
        It may be an C{async def}.
        """

        async def execute(message: Message) -> LocalTransactionState:
            return await succeed(COMMIT)

        self.assertIs(self.got(self.send(execute)).localTransactionState, COMMIT)

    def test_raisingTransactionIsUnknown(self) -> None:
        """
        If it raises, the caller gets the error, and the broker gets the state unknown, so
        that it checks.
        """

        def execute(message: Message) -> None:
            raise ZeroDivisionError("oh")

        async def coroutine(message: Message) -> None:
            raise ZeroDivisionError("oh")

        for each in (execute, coroutine, lambda message: fail(ZeroDivisionError("oh"))):
            self.failed(self.send(each), ZeroDivisionError)
            end = self.ends.pop()
            self.assertEqual(end.extFields["commitOrRollback"], "0")
            self.assertEqual(end.remark, "the local transaction failed: oh")

    def test_invalidStateIsError(self) -> None:
        """
        A result that is no state is an error.
        """
        self.assertIn("True", self.failed(self.send(lambda message: True), TypeError))
        self.assertEqual(self.ends[0].extFields["commitOrRollback"], "0")

    def test_untoldEndIsChecked(self) -> None:
        """
        If the broker cannot be told, it will check: the local transaction counts.
        """

        def execute(message: Message) -> LocalTransactionState:
            self.cluster.routes.brokers.pop("a")
            return COMMIT

        result = self.got(self.send(execute))
        self.assertIs(result.localTransactionState, COMMIT)
        self.assertIn("COMMIT_MESSAGE, and will ask: ", self.logged(LogLevel.warn)[0])

    def test_unreadableIdIsChecked(self) -> None:
        """
        The same holds if the broker's id of the message cannot be decoded.
        """
        self.msgId = "no id"
        self.assertIs(self.got(self.send(lambda message: COMMIT)).localTransactionState, COMMIT)
        self.assertEqual((len(self.logged(LogLevel.warn)), self.ends), (1, []))

    # --- the broker asks -------------------------------------------------

    def ask(self, capture: Capture) -> None:
        """
        The broker asks as it did when it was captured.
        """
        (request,) = decoded(capture.frame)
        self.network.accepted[A][0].oneway(request)
        self.network.flush()

    def test_checkIsAnswered(self) -> None:
        """
        On a transaction check the checker gets the message, and its result is sent in the
        fields of Java's producer.
        """
        question = captured(39, "oneway", "broker")[0]
        group = "hc_go_transaction_PT_mwip8pxp"
        self.started(group)
        self.network.flush()
        for told, flag in ((COMMIT, "8"), (ROLLBACK, "12"), (UNKNOWN, "0"), (succeed(None), "0")):
            self.told = told
            self.ask(question)
            self.assertEqual(self.ends.pop().extFields["commitOrRollback"], flag)
        self.told = COMMIT
        self.ask(question)
        (end,) = self.ends
        asked = question.header["extFields"]
        self.assertEqual(
            end.extFields,
            {
                "producerGroup": group,
                "tranStateTableOffset": asked["tranStateTableOffset"],
                "commitLogOffset": asked["commitLogOffset"],
                "commitOrRollback": "8",
                "msgId": asked["msgId"],
                "fromTransactionCheck": "true",
                "transactionId": asked["transactionId"],
            },
        )
        java = [
            each.header["extFields"]
            for each in captured(37, "oneway", "client")
            if each.header["extFields"]["fromTransactionCheck"] == "true"
        ]
        self.assertTrue(java)
        for fields in java:
            self.assertEqual(set(fields), set(end.extFields))
        self.assertEqual(self.checked[0].body, b"checkcommit1")
        self.assertEqual(self.checked[0].msgId, asked["msgId"])

    def test_raisingCheckAnswersNothing(self) -> None:
        """
        A check that raises answers nothing: the broker checks again.
        """
        self.started("hc_go_transaction_PT_mwip8pxp")
        self.network.flush()
        self.told = ZeroDivisionError("oh")
        self.ask(captured(39, "oneway", "broker")[0])
        self.assertEqual((len(self.checked), self.ends), (1, []))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("and will ask again", self.logged(LogLevel.critical)[0])

    # --- stop ------------------------------------------------------------

    def test_stopWaitsForTransactions(self) -> None:
        """
        A stop waits for local transactions, and the broker is told of them before the
        producer leaves.
        """
        promise: Deferred[LocalTransactionState] = Deferred()
        sending = self.send(lambda message: promise)
        stopping = self.producer.stop()
        self.network.advance(4.9)
        self.assertNoResult(stopping)
        promise.callback(COMMIT)
        self.got(stopping)
        self.got(sending)
        self.assertEqual((len(self.ends), len(self.a.left)), (1, 1))

    def test_lateTransactionIsNotTold(self) -> None:
        """
        A transaction that ends after the stop's time limit is not told any more: the broker
        will check with another producer of the group.
        """
        promise: Deferred[LocalTransactionState] = Deferred()
        sending = self.send(lambda message: promise)
        stopping = self.producer.stop(1.0)
        self.network.advance(1)
        self.got(stopping)
        promise.callback(COMMIT)
        self.assertIs(self.got(sending).localTransactionState, COMMIT)
        self.assertEqual(self.ends, [])
        self.assertIn("was stopped", self.logged(LogLevel.warn)[-1])
