# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.producer}: where messages go, and what is tried again.
"""

from __future__ import annotations

from typing import Any

from tests.client.answering import ADDRESSES, NAME_SERVER, routeTo
from tests.client.producercase import HELLO, ProducerCase
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.faulttable import FaultTable
from txrocket.client.sansio.results import SendStatus
from txrocket.errors import (
    ConnectFailed,
    ConnectionLost,
    ProtocolError,
    RequestTimedOut,
    ResponseError,
    SendFailed,
    SystemBusy,
    TopicNotExist,
)
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import responseCommand


class SendTests(ProducerCase):
    """
    One message.
    """

    def test_sentMessageHasJavasFields(self) -> None:
        """
        A message goes to a queue of its topic with all fields of Java's producer, and the
        answer says where it is.
        """
        producer = self.producer()
        received = self.sent(producer, Message("T", b"hello", "tag", "key", flag=5))
        self.assertEqual(received.code, RequestCode.SEND_MESSAGE_V2)
        self.assertEqual(received.request.body, b"hello")
        fields = dict(received.fields)
        text = fields.pop("i")
        self.assertEqual(
            fields,
            {
                "a": "senders",
                "b": "T",
                "c": "TBW102",
                "d": "4",
                "e": "1",
                "f": "0",
                "g": "1700000000000",
                "h": "5",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": "broker-a",
            },
        )
        self.assertNoResult(self.sending)
        received.stored(offset=9, MSG_REGION="r", TRACE_ON="false")
        result = self.successResultOf(self.sending)
        self.assertEqual(
            result[1:],
            (result.msgId, "0A", MessageQueue("T", "broker-a", 1), 9, None, "r", False),
        )
        self.assertIs(result.sendStatus, SendStatus.SEND_OK)
        self.assertEqual(text, f"UNIQ_KEY\x01{result.msgId}\x02TAGS\x01tag\x02KEYS\x01key")


class TurnTests(ProducerCase):
    """
    Which queue a message goes to.
    """

    def places(self, producer: Producer, count: int, **codes: int) -> list[str]:
        """
        The brokers and queues that some messages go to.

        @param codes: by a broker's last letter, the code by which it answers.
        """
        found = []
        for _ in range(count):
            received = self.sent(producer)
            name = received.fields["n"][-1]
            found.append(f"{name}{received.fields['e']}")
            received.stored(codes.get(name, 0))
        return found

    def test_queuesTakeTurns(self) -> None:
        """
        Each queue has its turn, beginning anywhere.
        """
        self.assertEqual(self.places(self.producer(), 6), ["a1", "b0", "b1", "a0", "a1", "b0"])

    def test_failedBrokerIsAvoidedEvenly(self) -> None:
        """
        A refused message goes to another broker.  The skipped queues count as having had
        their turn, so the others share evenly (C{TopicPublishInfo.selectOneMessageQueue}).
        """
        self.network.routes["T"] = routeTo("broker-a", "broker-b", queues=3)
        producer = self.producer()
        found = []
        for _ in range(6):
            received = self.sent(producer)
            if received.fields["n"] == "broker-a":
                received.refuse(ResponseCode.SYSTEM_BUSY)
                received = self.network.only()
            found.append(f"{received.fields['n'][-1]}{received.fields['e']}")
            received.stored()
            self.successResultOf(self.sending)
        self.assertEqual(found, ["b0", "b1", "b2", "b0", "b1", "b2"])

    def test_onlyBrokersNextQueueIsTried(self) -> None:
        """
        If there is no other broker, the next queue of the same one has its turn.
        """
        self.network.routes["T"] = routeTo("broker-a")
        first = self.sent(self.producer())
        first.refuse(ResponseCode.SYSTEM_BUSY)
        second = self.network.only()
        self.assertEqual((first.fields["e"], second.fields["e"]), ("1", "0"))

    def test_chosenQueueIsUsedAgain(self) -> None:
        """
        A chosen queue is used, whatever was sent before, and again if its broker was busy.
        """
        producer = self.producer()
        queue = MessageQueue("T", "broker-b", 1)
        for _ in range(2):
            received = self.sent(producer, queue=queue)
            received.refuse(ResponseCode.SYSTEM_BUSY)
            received = self.network.only()
            self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))
            received.stored()
            self.assertEqual(self.successResultOf(self.sending).messageQueue, queue)

    def test_selectorChoosesQueue(self) -> None:
        """
        A selector gets the queues, the message and the key, and decides.
        """
        seen: list[Any] = []

        def last(queues: Any, message: Message, key: Any) -> MessageQueue:
            seen.append((len(queues), message, key))
            chosen: MessageQueue = queues[-1]
            return chosen

        received = self.sent(self.producer(), selector=last, key=5)
        self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))
        self.assertEqual(seen, [(4, HELLO, 5)])

    def test_keyIsHashed(self) -> None:
        """
        A key without a selector is hashed: 7 of four queues is the last, for a oneway
        message as well.
        """
        producer = self.producer()
        received = self.sent(producer, key=7)
        self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))
        for _ in range(3):
            producer.sendOneway(HELLO, key=7)
            received = self.network.only()
            self.assertEqual((received.fields["n"], received.fields["e"]), ("broker-b", "1"))

    def test_slowBrokerIsAvoided(self) -> None:
        """
        With a fault table, a broker that took 0.6 s is avoided for 30 s, one that took 0.5
        s is not, and one that failed is avoided for ten minutes.
        """
        producer = self.producer(faults=FaultTable())
        for latency, rest in ((0.5, 0.0), (0.6, 30.0)):
            received = self.sent(producer, queue=MessageQueue("T", "broker-a", 0))
            self.clock.advance(latency)
            received.stored()
            expected = {"a", "b"} if not rest else {"b"}
            self.assertEqual({each[0] for each in self.places(producer, 8)}, expected)
            self.clock.advance(rest)
            self.assertEqual({each[0] for each in self.places(producer, 8)}, {"a", "b"})
        refused = self.sent(producer, queue=MessageQueue("T", "broker-b", 0))
        refused.refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.failureResultOf(self.sending, SendFailed)
        for pause, expected in ((0.0, {"a"}), (599.0, {"a"}), (1.0, {"a", "b"})):
            self.clock.advance(pause)
            self.assertEqual({each[0] for each in self.places(producer, 8)}, expected)

    def test_silentOrBusyBrokerIsAvoided(self) -> None:
        """
        With a fault table, a broker that gave no answer, or is busy, is avoided as one that
        failed, and the message goes to another.
        """
        for lost in (True, False):
            producer = self.producer(faults=FaultTable())
            received = self.sent(producer)
            self.assertEqual(received.fields["n"], "broker-a")
            if lost:
                received.lose()
            else:
                received.refuse(ResponseCode.SYSTEM_BUSY)
            self.network.only().stored()
            result = self.successResultOf(self.sending)
            self.assertEqual(result.messageQueue.brokerName, "broker-b")
            self.assertEqual({each[0] for each in self.places(producer, 8)}, {"b"})

    def test_storedIsNoFault(self) -> None:
        """
        A broker that has stored a message less safely than it should is not avoided:
        Java's fault table avoids none for that.
        """
        for code in (
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ):
            found = self.places(self.producer(faults=FaultTable()), 8, a=code)
            self.assertEqual([each[0] for each in found].count("a"), 4)


class RetryTests(ProducerCase):
    """
    Errors that are retried, and errors that are not.
    """

    def test_retriableCodesGoToAnotherBroker(self) -> None:
        """
        The codes that Java's producer retries, and those by which a broker sheds load, are
        retried at another broker.
        """
        producer = self.producer()
        for code in (1, 2, 14, 16, 17, 204, 205, 215):
            first = self.sent(producer)
            first.refuse(code)
            second = self.network.only()
            self.assertNotEqual(first.fields["n"], second.fields["n"])
            self.assertEqual(first.fields["i"], second.fields["i"])
            second.stored()
            self.successResultOf(self.sending)

    def test_finalCodesEndSend(self) -> None:
        """
        Any other code ends the send at once, and the error has all details.
        """
        producer = self.producer()
        for code in (3, 13, 15, 18, 26, 999):
            self.sent(producer).refuse(code, "not this one")
            error = self.failed()
            self.assertEqual(self.network.run(), [])
            assert isinstance(error.error, ResponseError)
            self.assertEqual((error.error.code, error.error.remark), (code, "not this one"))
            self.assertEqual((error.phase, error.attempts, error.retriable), ("answer", 1, False))

    def test_thirdFailureEndsSend(self) -> None:
        """
        After the first attempt there are two more, as C{retryTimesWhenSendFailed} says, and
        then the last error is the send's.
        """
        producer = self.producer()
        self.sending = producer.send(HELLO)
        for remark in ("first", "second", "third"):
            self.clock.advance(0.5)
            self.network.only().refuse(ResponseCode.SYSTEM_BUSY, remark)
        error = self.failed()
        self.assertEqual(self.network.run(), [])
        self.assertEqual((error.attempts, error.phase, error.elapsed), (3, "answer", 1.5))
        self.assertIn("third", str(error))
        self.assertIn(error.address, ADDRESSES.values())
        self.assertTrue(error.retriable)

    def test_zeroRetriesEndsSendAtOnce(self) -> None:
        """
        A producer may be told not to retry.
        """
        self.sent(self.producer(retries=0)).refuse(ResponseCode.SYSTEM_BUSY)
        self.assertEqual(self.failed().attempts, 1)

    def test_attemptsShareTimeLimit(self) -> None:
        """
        All attempts share one time limit: the next has what is left of it.
        """
        received = self.sent(self.producer(timeout=3.0))
        self.clock.advance(2.0)
        received.refuse(ResponseCode.SYSTEM_BUSY)
        self.network.only()
        self.clock.advance(0.9)
        self.assertNoResult(self.sending)
        self.clock.advance(0.1)
        error = self.failed()
        self.assertIsInstance(error.error, RequestTimedOut)
        self.assertEqual((error.phase, error.attempts, error.elapsed), ("answer", 2, 3.0))

    def test_retriableErrorAfterTimeLimitEndsSend(self) -> None:
        """
        A retriable error that comes after the time limit ends the send.
        """
        received = self.sent(self.producer(), timeout=1.0)
        self.clock.advance(0.5)
        # Sweeps are 0.05 s apart, so an answer may come a little late.
        self.clock.rightNow += 0.5
        received.refuse(ResponseCode.SYSTEM_BUSY)
        self.assertEqual(self.network.run(), [])
        self.assertIsInstance(self.failed().error, SystemBusy)

    def test_lostConnectionRefreshesRoute(self) -> None:
        """
        A message whose connection is lost goes to another broker, and the route is
        requested again: the broker may have moved.
        """
        received = self.sent(self.producer())
        del self.network.asked[:]
        received.lose()
        self.network.only().stored()
        self.successResultOf(self.sending)
        self.assertIn("T", self.network.asked)

    def test_lostConnectionsEndSend(self) -> None:
        """
        If every broker loses its connection, that is the error.
        """
        self.sending = self.producer().send(HELLO)
        for _ in range(3):
            self.network.only().lose()
        error = self.failed()
        self.assertIsInstance(error.error, ConnectionLost)
        self.assertEqual((error.phase, error.attempts), ("send", 3))

    def test_unreachableBrokerIsSkipped(self) -> None:
        """
        An unreachable broker is skipped.
        """
        self.network.refusing.add(ADDRESSES["broker-a"])
        received = self.sent(self.producer())
        self.assertEqual(received.fields["n"], "broker-b")

    def test_unreachableBrokersEndInConnectPhase(self) -> None:
        """
        If no broker can be reached, nothing was sent, and the phase says so.
        """
        self.network.refusing.update(ADDRESSES.values())
        self.sending = self.producer().send(HELLO)
        self.network.run()
        # Peers pauses before it dials an address again.
        self.clock.pump([0.1] * 29)
        error = self.failed()
        self.assertIsInstance(error.error, ConnectFailed)
        self.assertEqual((error.phase, error.attempts), ("connect", 3))

    def test_unreadableAnswerIsNotRetried(self) -> None:
        """
        An answer that cannot be decoded is not retried: the message may be stored.
        """
        self.sent(self.producer()).answer(responseCommand())
        error = self.failed()
        self.assertIsInstance(error.error, ProtocolError)
        self.assertEqual((error.phase, error.retriable), ("answer", False))

    def test_attemptsShareId(self) -> None:
        """
        All attempts have one id, by which a consumer recognises a message that came twice.
        """
        first = self.sent(self.producer())
        first.lose()
        self.assertEqual(self.network.only().fields["i"], first.fields["i"])


class NotStoredTests(ProducerCase):
    """
    Messages that a broker has stored less safely than it should.
    """

    def test_unsafeStoreIsResult(self) -> None:
        """
        An unsafe store is a result, unless the producer was told otherwise.
        """
        producer = self.producer()
        for status in SendStatus:
            self.sent(producer).stored(status.value)
            self.assertIs(self.successResultOf(self.sending).sendStatus, status)

    def test_retryNotStoredUsesAnotherBroker(self) -> None:
        """
        With C{retryNotStored} (C{retryAnotherBrokerWhenNotStoreOK}) another broker gets it
        as well.
        """
        first = self.sent(self.producer(retryNotStored=True))
        first.stored(ResponseCode.SLAVE_NOT_AVAILABLE)
        second = self.network.only()
        self.assertNotEqual(first.fields["n"], second.fields["n"])
        second.stored()
        result = self.successResultOf(self.sending)
        self.assertIs(result.sendStatus, SendStatus.SEND_OK)
        self.assertEqual(result.messageQueue.brokerName, second.fields["n"])

    def test_refusedSecondStoreKeepsFirstResult(self) -> None:
        """
        If no other broker takes it, the first result counts, and is no failure.
        """
        first = self.sent(self.producer(retryNotStored=True))
        first.stored(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self.network.only().refuse(ResponseCode.MESSAGE_ILLEGAL)
        result = self.successResultOf(self.sending)
        self.assertIs(result.sendStatus, SendStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertEqual(result.messageQueue.brokerName, first.fields["n"])

    def test_lastUnsafeStoreIsResult(self) -> None:
        """
        If all others store it as unsafely, the last answer is the result.
        """
        self.sending = self.producer(retryNotStored=True).send(HELLO)
        for offset in (1, 2, 3):
            self.network.only().stored(ResponseCode.FLUSH_DISK_TIMEOUT, offset)
        self.assertEqual(self.successResultOf(self.sending).queueOffset, 3)

    def test_chosenQueueIsNotRetried(self) -> None:
        """
        A message for one queue is not sent to it twice.
        """
        producer = self.producer(retryNotStored=True)
        for options in ({"queue": MessageQueue("T", "broker-a", 0)}, {"key": 1}):
            self.sent(producer, **options).stored(ResponseCode.FLUSH_DISK_TIMEOUT)
            result = self.successResultOf(self.sending)
            self.assertIs(result.sendStatus, SendStatus.FLUSH_DISK_TIMEOUT)


class RouteTests(ProducerCase):
    """
    Finding the route of a topic.
    """

    def test_routeIsRequestedOnce(self) -> None:
        """
        A route is requested once, however many messages wait for it.
        """
        producer = self.producer()
        for _ in range(3):
            producer.send(HELLO)
        self.assertEqual(len(self.network.run()), 3)
        producer.send(HELLO)
        self.assertEqual(len(self.network.run()), 4)
        self.assertEqual(self.network.asked, ["T"])

    def test_missingTopicInheritsRoute(self) -> None:
        """
        A missing topic uses the route of the default topic, with as many queues as the
        producer wants.
        """
        producer = self.producer(defaultTopicQueueNums=3)
        queues = set()
        for _ in range(8):
            received = self.sent(producer, Message("New", b"x"))
            self.assertEqual((received.fields["n"], received.fields["d"]), ("broker-a", "3"))
            queues.add(received.fields["e"])
            received.stored()
        self.assertEqual(queues, {"0", "1", "2"})

    def test_missingTopicWithoutDefaultIsError(self) -> None:
        """
        Where brokers do not create topics, the error names the missing topic.
        """
        del self.network.routes["TBW102"]
        self.sending = self.producer().send(Message("New", b"x"))
        self.network.run()
        error = self.failed()
        self.assertIsInstance(error.error, TopicNotExist)
        self.assertEqual((error.phase, error.attempts, error.address), ("route", 0, ""))
        self.assertIn("no route of New", str(error))

    def test_noNameServerEndsSend(self) -> None:
        """
        Without a name server nothing is sent.
        """
        self.network.refusing.add(NAME_SERVER)
        self.sending = self.producer().send(HELLO)
        self.network.run()
        error = self.failed()
        self.assertIsInstance(error.error, ConnectFailed)
        self.assertEqual((error.phase, error.attempts, error.retriable), ("route", 0, True))

    def test_timeLimitIncludesRoute(self) -> None:
        """
        The time limit includes the request to the name server.
        """
        self.network.silent.add(NAME_SERVER)
        self.sending = self.producer().send(HELLO, timeout=0.5)
        self.network.run()
        self.clock.advance(0.4)
        self.assertNoResult(self.sending)
        self.clock.advance(0.1)
        error = self.failed()
        self.assertIsInstance(error.error, RequestTimedOut)
        self.assertEqual((error.phase, error.elapsed), ("route", 0.5))

    def test_longerTimeoutStillGetsRoute(self) -> None:
        """
        A send with a longer time limit still gets the route.
        """
        self.network.silent.add(NAME_SERVER)
        producer = self.producer()
        hasty = producer.send(HELLO, timeout=0.5)
        patient = producer.send(HELLO, timeout=10.0)
        self.network.run()
        self.clock.advance(0.5)
        self.failureResultOf(hasty, SendFailed)
        (asked,) = self.network.withheld
        self.network.tellRoute(asked)
        self.network.only().stored()
        self.successResultOf(patient)

    def test_zeroTimeoutSendsNothing(self) -> None:
        """
        Without time nothing is sent.
        """
        producer = self.producer()
        self.sent(producer).stored()
        for timeout in (0.0, -1.0):
            self.sending = producer.send(HELLO, timeout=timeout)
            self.assertEqual(self.network.run(), [])
            self.assertIsInstance(self.failed().error, RequestTimedOut)

    def test_unwritableTopicIsRequestedAgain(self) -> None:
        """
        A topic that may not be written to is not sent to, and its route is requested again
        with the next message.
        """
        self.network.routes["T"] = routeTo("broker-a", perm=4)
        producer = self.producer()
        self.sending = producer.send(HELLO)
        self.network.run()
        error = self.failed()
        self.assertIsInstance(error.error, TopicNotExist)
        self.assertEqual((error.phase, error.attempts), ("route", 0))
        self.network.routes["T"] = routeTo("broker-a")
        self.sent(producer).stored()
        self.successResultOf(self.sending)

    def test_unknownBrokerRefreshesRoute(self) -> None:
        """
        The route of a queue with an unknown broker is requested once more, and if it has
        the broker the message is sent.
        """
        producer = self.producer()
        self.sent(producer).stored()
        self.network.routes["T"] = routeTo("broker-a", "broker-c")
        received = self.sent(producer, queue=MessageQueue("T", "broker-c", 0))
        self.assertEqual(received.at, ADDRESSES["broker-c"])

    def test_brokerStillUnknownIsError(self) -> None:
        """
        If it has not, that is the error.
        """
        producer = self.producer()
        self.sent(producer).stored()
        self.sending = producer.send(HELLO, MessageQueue("T", "broker-x", 0))
        self.network.run()
        error = self.failed()
        self.assertIsInstance(error.error, ConnectFailed)
        self.assertIn("broker-x", str(error))

    def test_lostRouteKeepsFirstError(self) -> None:
        """
        If the route is gone before a retry, the first error counts.
        """
        received = self.sent(self.producer())
        del self.network.routes["T"], self.network.routes["TBW102"]
        routes = self.cluster.routes
        for name in ("broker-a", "broker-b"):
            routes.doubt("T", name, denied=True)
        gone = routes.refresh("T")
        self.network.run()
        self.failureResultOf(gone, TopicNotExist)
        received.refuse(ResponseCode.SYSTEM_BUSY)
        self.network.run()
        self.assertIsInstance(self.failed().error, SystemBusy)

    def test_queuesOfReturnsQueues(self) -> None:
        """
        The queues of a topic can be requested.
        """
        asked = self.producer().queuesOf("T")
        self.network.run()
        self.assertEqual(
            self.successResultOf(asked),
            tuple(
                MessageQueue("T", name, at) for name in ("broker-a", "broker-b") for at in (0, 1)
            ),
        )
