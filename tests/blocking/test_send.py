# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking}: sending, and the routes that it takes.
"""

from __future__ import annotations

import os
import random
import socket
import zlib
from collections.abc import Sequence
from typing import Any

from tests.blocking.server import HastyCase, Server, cut, inTurn, refuse, silence
from txrocket.blocking import Client, routes
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.sender import uniqueIds
from txrocket.client.sansio.results import SendStatus
from txrocket.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    MessageTooLarge,
    ProtocolError,
    RequestTimedOut,
    ResponseError,
    SendFailed,
    SystemBusy,
    TopicNotExist,
)
from txrocket.message import Message, splitProperties
from txrocket.model import BrokerData, MessageQueue, TopicRouteData
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.record.batch import decodeBatch

HELLO = Message("T", b"hello")
SEND = RequestCode.SEND_MESSAGE_V2
BUSY = refuse(ResponseCode.SYSTEM_BUSY)


class SendCase(HastyCase):
    """
    Tests of sends, which do not sleep between attempts.
    """

    def failed(self, client: Client, message: Message = HELLO, **options: Any) -> SendFailed:
        """
        Why a message cannot be sent.
        """
        error = self.assertRaises(SendFailed, client.send, message, **options)
        assert isinstance(error, SendFailed)
        return error

    def sent(self, *servers: Server) -> list[RemotingCommand]:
        """
        The messages that servers have got.
        """
        return [each for server in servers for each in server.requests if each.code == SEND]


class SendTests(SendCase):
    """
    One message.
    """

    def test_resultNamesQueue(self) -> None:
        """
        A message goes to a queue of its topic, and the result says which.
        """
        client = self.client(producerGroup="scripts")
        result = client.send(Message("T", b"hello", "tag", "key", flag=3))
        self.assertIs(result.sendStatus, SendStatus.SEND_OK)
        self.assertEqual((result.offsetMsgId, result.queueOffset), ("0A", 7))
        (request,) = self.sent(self.a, self.b)
        fields = request.extFields
        self.assertEqual(result.messageQueue, MessageQueue("T", fields["n"], int(fields["e"])))
        self.assertEqual((fields["a"], fields["b"], fields["h"]), ("scripts", "T", "3"))
        self.assertEqual(
            splitProperties(fields["i"]), {"UNIQ_KEY": result.msgId, "TAGS": "tag", "KEYS": "key"}
        )
        self.assertEqual(request.body, b"hello")

    def test_unsafeStoreIsResult(self) -> None:
        """
        A message that is stored less safely than it should be is a result.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = self.flushedLate
        result = self.client().send(HELLO)
        self.assertIs(result.sendStatus, SendStatus.FLUSH_DISK_TIMEOUT)

    def flushedLate(self, request: RemotingCommand) -> RemotingCommand:
        """
        The answer of such a broker.
        """
        answer = self.stored(request)
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        return answer

    def test_queuesTakeTurns(self) -> None:
        """
        Each queue has its turn.
        """
        client = self.client()
        found = [client.send(HELLO).messageQueue for _ in range(8)]
        self.assertEqual(len(set(found[:4])), 4)
        self.assertEqual(found[:4], found[4:])

    def test_queueKeyOrSelectorChoosesQueue(self) -> None:
        """
        A queue that is asked for is sent to; a key chooses by its hash, a selector
        by whatever it likes.
        """
        client = self.client()
        queue = MessageQueue("T", "b", 1)

        def first(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
            self.assertEqual((message, key), (HELLO, "key"))
            return queues[0]

        for _ in range(2):
            self.assertEqual(client.send(HELLO, queue).messageQueue, queue)
            self.assertEqual(client.send(HELLO, key=7).messageQueue, queue)
            found = client.send(HELLO, selector=first, key="key").messageQueue
            self.assertEqual(found, MessageQueue("T", "a", 0))

    def test_largeBodyIsCompressed(self) -> None:
        """
        Large bodies are compressed.
        """
        self.client(compressOver=100).send(Message("T", bytes(100)))
        (request,) = self.sent(self.a, self.b)
        self.assertEqual(zlib.decompress(request.body), bytes(100))
        self.assertEqual(request.extFields["f"], str(0x301))

    def test_invalidMessageIsRefusedAtOnce(self) -> None:
        """
        An invalid message is refused before any request.
        """
        client = self.client(maxMessageSize=100)
        for message, kind in (
            (Message("a b", b"x"), InvalidMessage),
            (Message("T", b""), InvalidMessage),
            (Message("T", bytes(101)), MessageTooLarge),
        ):
            self.assertRaises(kind, client.send, message)
            self.assertRaises(kind, client.sendBatch, [message])
        self.assertEqual(self.names.requests, [])

    def test_messageTooLargeForFrameIsRefused(self) -> None:
        """
        A message that no frame holds is refused as well.
        """
        client = self.client(frameMaxLength=1000)
        self.assertRaises(InvalidMessage, client.send, Message("T", bytes(900)))
        self.assertEqual(self.sent(self.a, self.b), [])

    def test_idsAreUniqueAcrossProcesses(self) -> None:
        """
        No two messages have one id, and no two processes give one: an id has the
        process in it.
        """
        client = self.client()
        ids = {client.send(HELLO).msgId for _ in range(3)}
        self.patch(os, "getpid", lambda: 0xABCD)
        ids.add(client.send(HELLO).msgId)
        last = client.send(HELLO).msgId
        ids.add(last)
        self.assertEqual(len(ids), 5)
        self.assertEqual(last[8:12], "ABCD")

    def test_noNetworkMeansLoopbackIds(self) -> None:
        """
        A machine without a network has the loopback address in its ids.
        """

        class Unconnected(socket.socket):
            def connect(self, where: Any) -> None:
                raise OSError

        self.patch(socket, "socket", Unconnected)
        self.assertTrue(uniqueIds()().startswith("7F000001"))


class RetryTests(SendCase):
    """
    Errors that are retried, and errors that are not.
    """

    def test_retriableErrorGoesToAnotherBroker(self) -> None:
        """
        A message that one broker cannot take now goes to another, with the same id,
        whatever the reason.
        """
        for trouble in (BUSY, cut, lambda request: b"\xff" * 8):
            del self.a.requests[:], self.b.requests[:]
            self.a.serve[SEND] = trouble
            client = self.client()
            for _ in range(4):
                self.assertEqual(client.send(HELLO).messageQueue.brokerName, "b")
            refused = {each.extFields["i"] for each in self.sent(self.a)}
            self.assertTrue(refused)
            self.assertLessEqual(refused, {each.extFields["i"] for each in self.sent(self.b)})
        self.assertEqual(self.pauses, [])

    def test_otherBrokersQueuesGetEqualShares(self) -> None:
        """
        The queues of the other broker get equal shares.
        """
        self.a.serve[SEND] = BUSY
        client = self.client()
        found = [client.send(HELLO).messageQueue.queueId for _ in range(8)]
        self.assertEqual((found.count(0), found.count(1)), (4, 4))

    def test_finalErrorEndsSend(self) -> None:
        """
        An answer that will not change ends it, and the error has all that is known.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL, "not this one")
        error = self.failed(self.client())
        assert isinstance(error.error, ResponseError)
        self.assertEqual((error.error.code, error.error.remark), (13, "not this one"))
        self.assertEqual((error.phase, error.attempts, error.retriable), ("answer", 1, False))
        self.assertIn(error.address, (self.a.address, self.b.address))
        self.assertLess(0, error.elapsed)
        self.assertIs(error.__cause__, error.error)

    def test_unreadableAnswerEndsSend(self) -> None:
        """
        So does one that cannot be understood: the message may be stored.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = lambda request: responseCommand()
        error = self.failed(self.client())
        self.assertIsInstance(error.error, ProtocolError)
        self.assertEqual(error.attempts, 1)

    def test_lastErrorCountsAfterAllAttempts(self) -> None:
        """
        There are as many attempts as there may be, and the last error counts.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = BUSY
        for retries in (0, 1, 2):
            error = self.failed(self.client(retries=retries))
            self.assertEqual(error.attempts, retries + 1)
            self.assertIsInstance(error.error, SystemBusy)

    def test_sameBrokerIsRetriedAfterPause(self) -> None:
        """
        The same broker is asked again after a pause, which grows.
        """
        self.routes["T"] = self.routeTo(self.a)
        self.a.serve[SEND] = inTurn(BUSY, BUSY, self.stored)
        self.assertEqual(self.client().send(HELLO).messageQueue.brokerName, "a")
        self.assertEqual(self.pauses, [1, 2])

    def test_noTimeToPauseEndsSend(self) -> None:
        """
        If there is no time for a pause, the error is raised at once.
        """
        self.routes["T"] = self.routeTo(self.a)
        self.a.serve[SEND] = BUSY
        self.patch(Deadline, "pause", lambda deadline, attempts: False)
        error = self.failed(self.client())
        self.assertIsInstance(error.error, SystemBusy)
        self.assertEqual(len(self.sent(self.a)), 1)

    def test_lateBrokerEndsSend(self) -> None:
        """
        A broker that does not answer in time ends the send.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = silence
        client = self.client()
        # The route is known, so that all of the time is the broker's.
        client.queues("T")
        error = self.failed(client, timeout=1.0)
        self.assertIsInstance(error.error, RequestTimedOut)
        self.assertEqual((error.phase, error.attempts), ("answer", 1))

    def test_unreachableBrokerIsSkipped(self) -> None:
        """
        A broker that cannot be reached is passed over.
        """
        self.routes["T"] = self.routeTo(self.nowhere(), self.b)
        client = self.client()
        for _ in range(4):
            self.assertEqual(client.send(HELLO).messageQueue.brokerName, "b")

    def test_unreachableBrokersEndInConnectPhase(self) -> None:
        """
        If no broker can be reached, nothing was sent, and the phase says so.
        """
        self.routes["T"] = self.routeTo(self.nowhere(), self.nowhere())
        error = self.failed(self.client())
        self.assertIsInstance(error.error, ConnectFailed)
        self.assertEqual((error.phase, error.attempts), ("connect", 3))

    def test_lostConnectionsEndSend(self) -> None:
        """
        If all brokers lose their connections, that is the error.
        """
        for each in (self.a, self.b):
            each.serve[SEND] = cut
        error = self.failed(self.client())
        self.assertIsInstance(error.error, ConnectionLost)
        self.assertEqual((error.phase, error.attempts), ("send", 3))

    def test_failureRefreshesRoute(self) -> None:
        """
        After a failure the route is asked for again: the broker may be elsewhere.
        """
        self.routes["T"] = self.routeTo(self.nowhere())
        client = self.client()
        moved = self.routeTo(self.a)
        queue = MessageQueue("T", "a", 0)
        asked = inTurn(self.tellRoute, lambda request: self.move(moved, request))
        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = asked
        self.assertEqual(client.send(HELLO, queue).messageQueue, queue)
        self.assertEqual(self.pauses, [])

    def move(self, route: TopicRouteData, request: RemotingCommand) -> RemotingCommand:
        """
        The name server learns of a new route, and tells it.
        """
        self.routes["T"] = route
        return self.tellRoute(request)


class RouteTests(SendCase):
    """
    Finding the route of a topic.
    """

    def asked(self) -> list[str]:
        """
        The topics that the name server was asked for.
        """
        return [each.extFields["topic"] for each in self.names.requests]

    def test_routeIsCachedHalfAMinute(self) -> None:
        """
        A route is asked for once in half a minute.
        """
        client = self.client()
        client.send(HELLO)
        client.send(HELLO)
        self.assertEqual(self.asked(), ["T"])
        self.patch(routes, "_MAX_AGE", 0)
        client.send(HELLO)
        self.assertEqual(self.asked(), ["T", "T"])

    def test_cachedRouteStaysWithoutNameServers(self) -> None:
        """
        If no name server answers, or each refuses, the known route counts; that is logged
        once, until the route is refreshed again.
        """
        client = self.client()
        client.send(HELLO)
        self.patch(routes, "_MAX_AGE", 0)
        serves = self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        for trouble in (refuse(ResponseCode.SYSTEM_ERROR), cut):
            self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = trouble
            with self.assertLogs("txrocket.blocking", "WARNING") as logged:
                client.send(HELLO)
                client.send(HELLO)
            [said] = logged.output
            self.assertIn("The route of T cannot be refreshed", said)
            self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = serves
            client.send(HELLO)

    def test_topicGoneFromBrokersIsRefused(self) -> None:
        """
        A topic that the brokers do not have any more is not sent to.
        """
        client = self.client()
        client.send(HELLO)
        del self.routes["T"]
        self.patch(routes, "_MAX_AGE", 0)
        for each in (self.a, self.b):
            each.serve[SEND] = refuse(ResponseCode.TOPIC_NOT_EXIST)
        self.assertIsInstance(self.failed(client).error, TopicNotExist)
        sent = len(self.sent(self.a, self.b))
        error = self.failed(client)
        self.assertIsInstance(error.error, TopicNotExist)
        self.assertEqual((error.attempts, len(self.sent(self.a, self.b))), (0, sent))

    def test_unknownToNameServerKept(self) -> None:
        """
        A topic is sent to as before if the name server does not know it: it may have
        been restarted.
        """
        client = self.client()
        client.send(HELLO)
        del self.routes["T"]
        self.patch(routes, "_MAX_AGE", 0)
        with self.assertLogs("txrocket.blocking", "WARNING") as logged:
            for _ in range(3):
                client.send(HELLO)
        [said] = logged.output
        self.assertIn("The route of T cannot be refreshed", said)

    def test_withoutBrokersKept(self) -> None:
        """
        A topic is sent to as before if the name server has no broker of it.
        """
        client = self.client()
        client.send(HELLO)
        self.routes["T"] = TopicRouteData()
        self.patch(routes, "_MAX_AGE", 0)
        with self.assertLogs("txrocket.blocking", "WARNING"):
            client.send(HELLO)

    def test_servedBrokerKeepsRoute(self) -> None:
        """
        A broker that failed once and has served since keeps the route, if the name server
        does not know it.
        """
        client = self.client()
        client.send(HELLO)
        for each in (self.a, self.b):
            each.serve[SEND] = inTurn(cut, *[self.stored] * 9)
        for _ in range(4):
            client.send(HELLO)
        del self.routes["T"]
        self.patch(routes, "_MAX_AGE", 0)
        with self.assertLogs("txrocket.blocking", "WARNING"):
            client.send(HELLO)

    def test_silentNameServerIsReplaced(self) -> None:
        """
        If one name server does not answer, another is asked, and stays the one to ask.
        """
        deaf = self.server()
        deaf.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = cut
        self.patch(random, "randrange", lambda below: 0)
        client = self.client(deaf.address, self.nowhere())
        with self.assertLogs("txrocket.blocking", "WARNING") as logged:
            for topic in ("T", "U", "V"):
                self.routes[topic] = self.routes["T"]
                client.queues(topic)
        self.assertEqual(self.asked(), ["T", "U", "V"])
        self.assertEqual((len(deaf.requests), len(logged.output)), (1, 2))

    def test_ignorantNameServerIsReplaced(self) -> None:
        """
        If one name server does not know the topic, another is asked, and stays the one to
        ask.  A name server without an answer is skipped.
        """
        young = self.server()
        young.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(ResponseCode.TOPIC_NOT_EXIST)
        self.patch(random, "randrange", lambda below: 0)
        client = self.client(young.address, self.nowhere())
        with self.assertLogs("txrocket.blocking", "WARNING"):
            client.send(HELLO)
        self.routes["U"] = self.routes["T"]
        client.queues("U")
        self.assertEqual(self.asked(), ["T", "U"])
        self.assertEqual(len(young.requests), 1)

    def test_nameServersShareTime(self) -> None:
        """
        Each name server has its share of the time only.
        """
        deaf = self.server()
        deaf.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence
        self.patch(random, "randrange", lambda below: 0)
        client = self.client(deaf.address)
        with self.assertLogs("txrocket.blocking", "WARNING"):
            self.assertEqual(len(client.queues("T", timeout=3.0)), 4)
        self.assertEqual(len(deaf.requests), 1)

    def test_noNameServerEndsSend(self) -> None:
        """
        Without a name server nothing is sent.
        """
        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = cut
        error = self.failed(self.client())
        self.assertIsInstance(error.error, ConnectionLost)
        self.assertEqual((error.phase, error.attempts, error.address), ("route", 0, ""))

    def test_undecodableRouteIsError(self) -> None:
        """
        A route that cannot be decoded is an error as others.
        """
        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: responseCommand(
            body=b"[1]"
        )
        error = self.failed(self.client())
        self.assertIsInstance(error.error, ProtocolError)

    def test_missingTopicInheritsRoute(self) -> None:
        """
        A topic that does not exist is sent to where one is that it can inherit
        from, and has a route of its own from then on.
        """
        self.routes["TBW102"] = self.routeTo(self.a, queues=8)
        client = self.client(defaultTopicQueueNums=3)
        found = {client.send(Message("New", b"x")).messageQueue.queueId for _ in range(8)}
        self.assertEqual(found, {0, 1, 2})
        self.assertEqual({each.extFields["d"] for each in self.sent(self.a)}, {"3"})
        self.routes["New"] = self.routeTo(self.b)
        self.assertEqual(
            client.send(Message("New", b"x"), key=0).messageQueue, MessageQueue("New", "a", 0)
        )
        self.assertEqual(len(self.sent(self.b)), 1)

    def test_failedInheritedBrokerIsAskedAgain(self) -> None:
        """
        If the broker of an inherited route fails, it is asked again.
        """
        self.routes["TBW102"] = self.routeTo(self.a, queues=8)
        self.a.serve[SEND] = inTurn(cut, self.stored)
        client = self.client()
        self.assertEqual(client.send(Message("New", b"x")).messageQueue.brokerName, "a")
        self.assertEqual(self.pauses, [1])

    def test_missingTopicWithoutDefaultIsError(self) -> None:
        """
        Where brokers do not create topics, the error is of the topic itself.
        """
        error = self.failed(self.client(), Message("New", b"x"))
        self.assertIsInstance(error.error, TopicNotExist)
        self.assertEqual(self.asked(), ["New", "TBW102"])
        self.assertEqual((error.phase, error.attempts), ("route", 0))

    def test_unwritableTopicIsRequestedAgain(self) -> None:
        """
        A topic without write permission is not sent to, and its route is requested again
        the next time.
        """
        self.routes["T"] = self.routeTo(self.a, perm=4)
        client = self.client()
        error = self.failed(client)
        self.assertIsInstance(error.error, TopicNotExist)
        self.assertEqual((error.phase, error.attempts), ("route", 0))
        self.routes["T"] = self.routeTo(self.a)
        client.send(HELLO)

    def test_missingMasterIsNotSentTo(self) -> None:
        """
        A queue of an unknown broker, or of one without a master, is not sent to.
        """
        slave = TopicRouteData(None, (), (BrokerData("c", "a", {1: self.a.address}),))
        for route in (slave, self.routeTo(self.b)):
            self.routes["T"] = route
            error = self.failed(self.client(), queue=MessageQueue("T", "x", 0))
            self.assertIsInstance(error.error, ConnectFailed)
            self.assertIn("no master of broker x", str(error))
            self.assertEqual(error.address, "")


class BatchTests(SendCase):
    """
    Many messages at once.
    """

    def batches(self) -> list[list[Message]]:
        """
        The batches that the brokers have got.
        """
        return [
            decodeBatch(each.body, "T")
            for server in (self.a, self.b)
            for each in server.requests
            if each.code == RequestCode.SEND_BATCH_MESSAGE
        ]

    def test_batchIsOneRequest(self) -> None:
        """
        They go in one request, each with an id.
        """
        (result,) = self.client().sendBatch(Message("T", each) for each in (b"a", b"b"))
        ((first, second),) = self.batches()
        self.assertEqual((first.body, second.body), (b"a", b"b"))
        self.assertEqual(
            result.msgId, f"{first.properties['UNIQ_KEY']},{second.properties['UNIQ_KEY']}"
        )

    def test_largeBatchIsSplit(self) -> None:
        """
        Those that are too many go in several requests, to one queue if that is
        wanted.
        """
        messages = [Message("T", bytes([number]) * 100) for number in range(5)]
        queue = MessageQueue("T", "a", 1)
        results = self.client(maxMessageSize=400).sendBatch(messages, queue)
        self.assertEqual([each.messageQueue for each in results], [queue] * 3)
        bodies = [[each.body[0] for each in batch] for batch in self.batches()]
        self.assertEqual(bodies, [[0, 1], [2, 3], [4]])

    def test_invalidMessageStopsBatch(self) -> None:
        """
        If one cannot be sent, none is.
        """
        client = self.client(maxMessageSize=400)
        large = Message("T", bytes(300))
        for bad in (Message("T", b""), Message("U", bytes(300)), Message("T", bytes(401))):
            self.assertRaises(InvalidMessage, client.sendBatch, [large, large, bad])
        self.assertRaises(InvalidMessage, client.sendBatch, [])
        self.assertEqual(self.batches(), [])

    def test_failedRequestKeepsEarlierResults(self) -> None:
        """
        If a request fails, those after it are not made, and the error has the results of
        those before it.
        """
        messages = [Message("T", bytes([number]) * 300) for number in range(4)]
        serve = self.a.serve[RequestCode.SEND_BATCH_MESSAGE]
        no = refuse(ResponseCode.MESSAGE_ILLEGAL)
        for each in (self.a, self.b):
            each.serve[RequestCode.SEND_BATCH_MESSAGE] = lambda request: (
                no(request) if b"\2" * 300 in request.body else serve(request)
            )
        client = self.client(maxMessageSize=400)
        error = self.assertRaises(SendFailed, client.sendBatch, messages)
        self.assertEqual(len(self.batches()), 3)
        self.assertEqual([each.sendStatus for each in error.sent], [SendStatus.SEND_OK] * 2)
