# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking}: pulling, offsets, looking up, topics, settings.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import zlib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.blocking.server import HastyCase, Reply, Serve, cut, inTurn, refuse, silence
from txrocket.blocking import TLS, Client, Settings
from txrocket.blocking.deadline import Deadline
from txrocket.client.sansio.results import PullResult, PullStatus
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    MalformedField,
    MissingField,
    NoPermission,
    RemoteSystemError,
    RequestTimedOut,
    SubscriptionParseFailed,
    TopicNotExist,
)
from txrocket.message import Message
from txrocket.model import BrokerData, MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.bodies import ClusterInfo
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetResponseHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageResponseHeader,
    SearchOffsetResponseHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.messageid import encodeMessageId
from txrocket.protocol.record import encodeHost, encodeProperties, encodeRecord, encodeTopic

QUEUE = MessageQueue("T", "a", 1)
HOST = encodeHost("192.0.2.1", 10911)


def record(
    offset: int, body: bytes = b"body", *, sysFlag: int = 0, stored: int = 0, **properties: str
) -> bytes:
    """
    A record as the log holds it.
    """
    return encodeRecord(
        *(encodeTopic("T"), body, encodeProperties(properties), 1, 0, offset, offset * 100),
        *(sysFlag, 1, HOST, stored, HOST),
    )


def found(*records: bytes, code: int = 0, suggested: int = 0) -> Serve:
    """
    Answer a pull.
    """
    header = PullMessageResponseHeader(suggested, 9, 3, 20)
    return lambda request: responseCommand(code, None, header, b"".join(records))


class ClientCase(HastyCase):
    """
    Tests of calls, which do not sleep between attempts.
    """

    def addSlave(self) -> None:
        """
        Broker a gets a slave, which is b.
        """
        addresses = {0: self.a.address, 1: self.b.address}
        self.routes["T"] = TopicRouteData(
            None, (QueueData("a", 2, 2, 6),), (BrokerData("c", "a", addresses),)
        )


class PullTests(ClientCase):
    """
    Pulling.
    """

    def pull(self, *serve: Serve, **options: Any) -> PullResult:
        """
        Pull from broker a.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = inTurn(*serve)
        return self.client().pull(QUEUE, 7, **options)

    def test_pullReturnsMessagesAndOffsets(self) -> None:
        """
        The messages are there, with where to go on and where the queue begins and
        ends.
        """
        result = self.pull(found(record(7, TAGS="x"), record(8)))
        self.assertEqual(result[:4], (PullStatus.FOUND, 9, 3, 20))
        first, second = result.messages
        self.assertEqual((first.queueOffset, first.tags, first.body), (7, "x", b"body"))
        self.assertEqual((second.queueOffset, second.brokerName), (8, "a"))

    def test_requestCarriesItsExpression(self) -> None:
        """
        The request brings the expression along, is in the name of the tools' group,
        and is not held.
        """
        self.pull(found(), most=5, expression="x || y")
        (request,) = self.a.requests
        self.assertEqual(
            request.extFields,
            {
                "consumerGroup": "TOOLS_CONSUMER",
                "topic": "T",
                "queueId": "1",
                "queueOffset": "7",
                "maxMsgNums": "5",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subVersion": "0",
                "subscription": "x || y",
                "expressionType": "TAG",
                "bname": "a",
            },
        )

    def test_groupOfCallOrSettingsIsUsed(self) -> None:
        """
        A group can be named, for all pulls and for one.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = found()
        client = self.client(consumerGroup="g")
        client.pull(QUEUE, 0)
        client.pull(QUEUE, 0, group="h")
        groups = [each.extFields["consumerGroup"] for each in self.a.requests]
        self.assertEqual(groups, ["g", "h"])

    def test_sqlExpressionHasVersion(self) -> None:
        """
        An expression of another kind is the broker's affair, and has a version.
        """
        result = self.pull(found(record(7, TAGS="x")), expression="a > 5", expressionType="SQL92")
        self.assertEqual(len(result.messages), 1)
        fields = self.a.requests[0].extFields
        self.assertEqual((fields["subscription"], fields["expressionType"]), ("a > 5", "SQL92"))
        self.assertGreater(int(fields["subVersion"]), 10**12)

    def test_tagsAreComparedByText(self) -> None:
        """
        Tags are compared, and not their hashes.
        """
        result = self.pull(found(record(7, TAGS="AaAa"), record(8, TAGS="BBBB")), expression="BBBB")
        self.assertEqual([each.queueOffset for each in result.messages], [8])
        self.assertRaises(SubscriptionParseFailed, self.client().pull, QUEUE, 0, expression="||")

    def test_noMessageIsResultAndNoError(self) -> None:
        """
        That there is nothing is a result.
        """
        for code, status in (
            (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
            (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
            (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
        ):
            self.assertEqual(self.pull(found(code=code)), (status, 9, 3, 20, (), ()))

    def test_damagedBodyIsSkippedAndCounted(self) -> None:
        """
        Bodies can be read; one that is damaged is passed over, counted and named.
        """
        good = record(7, zlib.compress(b"unpacked"), sysFlag=0x301)
        bad = record(8, b"damaged", sysFlag=0x301)
        for answer in (found(good, bad), found(good, b"no record")):
            with self.assertLogs("txrocket.blocking.puller", "ERROR") as told:
                result = self.pull(answer)
            self.assertEqual([each.body for each in result.messages], [b"unpacked"])
            self.assertEqual((result.nextBeginOffset, len(result.faults)), (9, 1))
            self.assertIn("1 messages behind offset 7", told.output[0])
            self.assertIn(result.faults[0], told.output[0])

    def test_waitExtendsTimeout(self) -> None:
        """
        A broker may hold the pull, and the call has its own time beside that.
        """
        self.pull(found(), wait=2.5)
        fields = self.a.requests[0].extFields
        # Suspend, and the subscription is in the request.
        self.assertEqual((fields["sysFlag"], fields["suspendTimeoutMillis"]), ("6", "2500"))
        began = time.monotonic()
        error = self.assertRaises(RequestTimedOut, self.pull, silence, wait=0.2, timeout=0.1)
        self.assertIn("within 0.3 s", str(error))
        self.assertGreater(time.monotonic() - began, 0.25)

    def test_refusalIsNotRetriedAtSameBroker(self) -> None:
        """
        A refused pull is not repeated if the broker's name has no other broker.
        """
        refusal = refuse(ResponseCode.NO_PERMISSION)
        self.assertRaises(NoPermission, self.pull, refusal)
        self.assertEqual(self.a.codes(), [RequestCode.PULL_MESSAGE])

    def test_silentBrokerIsRetriedAfterPause(self) -> None:
        """
        No answer is worth another attempt, after a pause.
        """
        self.assertEqual(len(self.pull(cut, cut, found(record(7))).messages), 1)
        self.assertEqual(self.pauses, [1, 2])
        self.assertRaises(ConnectionLost, self.pull, cut)
        self.assertEqual(len(self.a.requests), 6)

    def test_noTimeForPauseEndsPull(self) -> None:
        """
        Without time for a pause, the pull fails at once.
        """
        self.patch(Deadline, "pause", lambda deadline, attempts: False)
        self.assertRaises(ConnectionLost, self.pull, cut)
        self.assertEqual(len(self.a.requests), 1)

    def test_failedMasterHasSlaveAsked(self) -> None:
        """
        If the master cannot, its slave is asked.
        """
        self.addSlave()
        self.b.serve[RequestCode.PULL_MESSAGE] = found(record(7))
        for trouble in (cut, refuse(ResponseCode.SYSTEM_BUSY)):
            self.assertEqual(len(self.pull(trouble).messages), 1)
        self.assertEqual(self.pauses, [])

    def test_suggestedBrokerIsPulledNext(self) -> None:
        """
        The next pull goes to the broker that the last answer suggested.
        """
        self.addSlave()
        self.a.serve[RequestCode.PULL_MESSAGE] = found(suggested=1)
        self.b.serve[RequestCode.PULL_MESSAGE] = inTurn(found(suggested=1), found(suggested=0))
        client = self.client()
        for _ in range(4):
            client.pull(QUEUE, 7)
        self.assertEqual((len(self.a.requests), len(self.b.requests)), (2, 2))

    def test_unknownSuggestionAsksMaster(self) -> None:
        """
        If the suggested broker is unknown, the master is asked.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = found(suggested=5)
        client = self.client()
        client.pull(QUEUE, 7)
        client.pull(QUEUE, 7)
        self.assertEqual(len(self.a.requests), 2)

    def test_failureRefreshesRoute(self) -> None:
        """
        After a failure the route is asked for again, if a name server answers.
        """
        self.routes["T"] = self.routeTo(self.nowhere())
        self.b.serve[RequestCode.PULL_MESSAGE] = found(record(7))

        def move(request: RemotingCommand) -> Reply:
            self.routes["T"] = self.routeTo(self.b)
            return self.tellRoute(request)

        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = inTurn(self.tellRoute, move)
        self.assertEqual(len(self.client().pull(QUEUE, 7).messages), 1)

    def test_missingRouteAsksKnownBroker(self) -> None:
        """
        If the route is missing, the known broker is asked.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = inTurn(cut, found(record(7)))
        self.names.serve[RequestCode.GET_ROUTEINFO_BY_TOPIC] = inTurn(
            self.tellRoute, refuse(ResponseCode.TOPIC_NOT_EXIST)
        )
        self.assertEqual(len(self.client().pull(QUEUE, 7).messages), 1)

    def test_deniedTopicDropsRoute(self) -> None:
        """
        A route is dropped once its brokers say that the topic does not exist and no name
        server has it.
        """
        client = self.client(retries=0)
        client.queues("T")
        for each in (self.a, self.b):
            each.serve[RequestCode.PULL_MESSAGE] = refuse(ResponseCode.TOPIC_NOT_EXIST)
        del self.routes["T"]
        with self.assertLogs("txrocket.blocking", "WARNING"):
            self.assertEqual(len(client.queues("T")), 4)
        for name in ("a", "b"):
            self.assertRaises(TopicNotExist, client.pull, MessageQueue("T", name, 0), 0)
        self.assertRaises(TopicNotExist, client.queues, "T")

    def test_unknownBrokerRefreshesRouteFirst(self) -> None:
        """
        A broker that no route has is looked for once more before it is an error.
        """
        client = self.client()
        queue = MessageQueue("T", "c", 0)
        error = self.assertRaises(ConnectFailed, client.pull, queue, 0)
        self.assertIn("no broker c is known to have topic T", str(error))
        third = self.server()
        third.serve[RequestCode.PULL_MESSAGE] = found()
        self.routes["T"] = self.routeTo(self.a, self.b, third)
        client.pull(queue, 0)
        self.assertRaises(TopicNotExist, client.pull, MessageQueue("U", "a", 0), 0)


class OffsetTests(ClientCase):
    """
    Offsets.
    """

    def serve(self, code: int, header: Header | None) -> None:
        """
        Broker a answers with a header.
        """
        self.a.serve[code] = lambda request: responseCommand(header=header)

    def fields(self) -> dict[str, str]:
        """
        The fields of the one request to broker a.
        """
        (request,) = self.a.requests
        return request.extFields

    def test_offsetOfGroupIsReturned(self) -> None:
        """
        A group's offset in a queue.
        """
        self.serve(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetResponseHeader(5))
        self.assertEqual(self.client().offset("g", QUEUE), 5)
        self.assertEqual(
            self.fields(), {"consumerGroup": "g", "topic": "T", "queueId": "1", "bname": "a"}
        )

    def test_groupWithoutOffsetHasNone(self) -> None:
        """
        A group without an offset has L{None}.
        """
        self.a.serve[RequestCode.QUERY_CONSUMER_OFFSET] = refuse(ResponseCode.QUERY_NOT_FOUND)
        self.assertIsNone(self.client().offset("g", QUEUE))

    def test_slaveGivesOffset(self) -> None:
        """
        A slave knows the offset too.
        """
        self.addSlave()
        self.a.serve[RequestCode.QUERY_CONSUMER_OFFSET] = cut
        self.b.serve[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: responseCommand(
            header=QueryConsumerOffsetResponseHeader(6)
        )
        self.assertEqual(self.client().offset("g", QUEUE), 6)

    def test_commitGoesToMasterOnly(self) -> None:
        """
        The master saves the offset, and no other broker.
        """
        self.serve(RequestCode.UPDATE_CONSUMER_OFFSET, None)
        self.client().commit("g", QUEUE, 5)
        self.assertEqual(
            self.fields(),
            {
                "consumerGroup": "g",
                "topic": "T",
                "queueId": "1",
                "commitOffset": "5",
                "bname": "a",
            },
        )
        self.addSlave()
        self.a.serve[RequestCode.UPDATE_CONSUMER_OFFSET] = cut
        self.assertRaises(ConnectionLost, self.client().commit, "g", QUEUE, 5)
        self.assertEqual(self.b.requests, [])
        self.assertRaises(InvalidMessage, self.client().commit, "a b", QUEUE, 5)

    def test_commitWithoutMasterIsError(self) -> None:
        """
        Without a master a commit fails.
        """
        self.routes["T"] = TopicRouteData(None, (), (BrokerData("c", "a", {1: self.a.address}),))
        error = self.assertRaises(ConnectFailed, self.client().commit, "g", QUEUE, 5)
        self.assertIn("no master of broker a is known to have topic T", str(error))

    def test_minAndMaxOffsetAreReturned(self) -> None:
        """
        Where a queue begins and ends.
        """
        self.serve(RequestCode.GET_MIN_OFFSET, GetMinOffsetResponseHeader(3))
        self.serve(RequestCode.GET_MAX_OFFSET, GetMaxOffsetResponseHeader(20))
        client = self.client()
        self.assertEqual((client.minOffset(QUEUE), client.maxOffset(QUEUE)), (3, 20))
        for each in self.a.requests:
            self.assertEqual(each.extFields, {"topic": "T", "queueId": "1", "bname": "a"})

    def test_searchByTimeSendsMilliseconds(self) -> None:
        """
        Times are seconds here and milliseconds on the wire.
        """
        self.serve(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetResponseHeader(4))
        self.assertEqual(self.client().searchByTime(QUEUE, 1_700_000_000.5), 4)
        self.assertEqual(self.fields()["timestamp"], "1700000000500")

    def test_emptyQueueHasNoEarliestTime(self) -> None:
        """
        An empty queue has no first message.
        """
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        for told, expected in ((1_700_000_000_500, 1_700_000_000.5), (-1, None)):
            self.serve(code, GetEarliestMsgStoretimeResponseHeader(told))
            self.assertEqual(self.client().earliestTime(QUEUE), expected)

    def test_undecodableAnswerIsError(self) -> None:
        """
        An answer that cannot be decoded is an error.
        """
        self.serve(RequestCode.GET_MIN_OFFSET, None)
        error = self.assertRaises(MissingField, self.client().minOffset, QUEUE)
        self.assertEqual(error.field, "offset")


class LookTests(ClientCase):
    """
    Finding messages.
    """

    def test_viewMessageAsksBrokerOfId(self) -> None:
        """
        A message by its broker's id, from the broker that is in the id.
        """
        packed = record(7, zlib.compress(b"unpacked"), sysFlag=0x301)
        self.a.serve[RequestCode.VIEW_MESSAGE_BY_ID] = lambda request: responseCommand(body=packed)
        messageId = encodeMessageId(encodeHost("127.0.0.1", self.a.port), 700)
        message = self.client().viewMessage(messageId)
        self.assertEqual((message.body, message.queueOffset), (b"unpacked", 7))
        self.assertEqual(self.a.requests[0].extFields, {"offset": "700"})
        self.assertEqual(self.names.requests, [])

    def test_missingMessageIsErrorAtOnce(self) -> None:
        """
        A broker without the message is asked once; a broker that does not answer is asked
        again.
        """
        messageId = encodeMessageId(encodeHost("127.0.0.1", self.a.port), 700)
        refusal = refuse(ResponseCode.SYSTEM_ERROR, "no such message")
        self.a.serve[RequestCode.VIEW_MESSAGE_BY_ID] = inTurn(cut, refusal)
        self.assertRaises(RemoteSystemError, self.client().viewMessage, messageId)
        self.assertEqual((len(self.a.requests), self.pauses), (2, [1]))

    def test_invalidIdIsRefused(self) -> None:
        """
        An invalid id is refused by the client.
        """
        self.assertRaises(MalformedField, self.client().viewMessage, "nonsense")

    def test_idWithIPv6AddressIsAsked(self) -> None:
        """
        A broker may have an IPv6 address.
        """
        messageId = encodeMessageId(encodeHost("::1", 1), 0)
        error = self.assertRaises(
            ConnectFailed, self.client(retries=0).viewMessage, messageId, timeout=1.0
        )
        self.assertEqual(error.address, "[::1]:1")

    def answer(self, *records: bytes) -> Serve:
        """
        A broker that has found messages.
        """
        header = QueryMessageResponseHeader(0, 0)
        return lambda request: responseCommand(header=header, body=b"".join(records))

    def test_queryAsksAllBrokersNewestFirst(self) -> None:
        """
        All brokers of the topic are asked, what only resembles the key is left out,
        and the newest come first.
        """
        self.a.serve[RequestCode.QUERY_MESSAGE] = self.answer(
            record(1, KEYS="k x", stored=10), record(2, KEYS="other", stored=20)
        )
        self.b.serve[RequestCode.QUERY_MESSAGE] = self.answer(record(3, KEYS="k", stored=30))
        found = self.client().queryMessage("T", "k", begin=1.5, end=2.5)
        self.assertEqual(
            [(each.queueOffset, each.brokerName) for each in found], [(3, "b"), (1, "a")]
        )
        fields = self.a.requests[0].extFields
        self.assertEqual(
            fields,
            {
                "topic": "T",
                "key": "k",
                "maxNum": "32",
                "beginTimestamp": "1500",
                "endTimestamp": "2500",
                "_UNIQUE_KEY_QUERY": "false",
            },
        )

    def test_uniqueIdIsFoundAtAnyTime(self) -> None:
        """
        By the id that a client gave, and at any time.
        """
        self.a.serve[RequestCode.QUERY_MESSAGE] = self.answer(
            record(1, UNIQ_KEY="id"), record(2, KEYS="id")
        )
        self.b.serve[RequestCode.QUERY_MESSAGE] = refuse(ResponseCode.QUERY_NOT_FOUND)
        (message,) = self.client().queryMessage("T", "id", unique=True)
        self.assertEqual(message.queueOffset, 1)
        fields = self.a.requests[0].extFields
        self.assertEqual(fields["_UNIQUE_KEY_QUERY"], "true")
        self.assertEqual(fields["endTimestamp"], str(2**63 - 1))

    def test_queryLimitsMessages(self) -> None:
        """
        There are no more than were asked for.
        """
        for each in (self.a, self.b):
            each.serve[RequestCode.QUERY_MESSAGE] = self.answer(record(1, KEYS="k"))
        self.assertEqual(len(self.client().queryMessage("T", "k", 1)), 1)

    def test_unreachableBrokerFailsQuery(self) -> None:
        """
        If a broker cannot be asked, the query fails: the rest is not everything.
        """
        self.a.serve[RequestCode.QUERY_MESSAGE] = self.answer(record(1, KEYS="k"))
        self.b.serve[RequestCode.QUERY_MESSAGE] = cut
        self.assertRaises(ConnectionLost, self.client().queryMessage, "T", "k")


class TopicTests(ClientCase):
    """
    Topics.
    """

    def setUp(self) -> None:
        super().setUp()
        self.info = ClusterInfo(
            {
                "a": BrokerData("one", "a", {0: self.a.address}),
                "b": BrokerData("two", "b", {0: self.b.address}),
                "c": BrokerData("two", "c", {1: "192.0.2.1:1"}),
            }
        )
        self.names.serve[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: responseCommand(
            body=encodeBody(self.info)
        )
        for each in (self.a, self.b):
            each.serve[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda request: responseCommand()

    def test_queuesRefreshRouteEachTime(self) -> None:
        """
        The queues and the route are asked for each time.
        """
        client = self.client()
        self.assertEqual(
            client.queues("T"),
            tuple(MessageQueue("T", name, queueId) for name in "ab" for queueId in (0, 1)),
        )
        self.assertEqual(client.route("T"), self.routes["T"])
        self.assertEqual(len(self.names.requests), 2)
        self.assertRaises(TopicNotExist, client.queues, "U")

    def test_createTopicAsksAllMasters(self) -> None:
        """
        A topic is made at all masters, and its route is asked for after that.
        """
        client = self.client()
        client.send(Message("T", b"x"))
        del self.a.requests[:]
        client.createTopic("T", 5)
        (request,) = self.a.requests
        self.assertEqual(
            request.extFields,
            {
                "topic": "T",
                "defaultTopic": "TBW102",
                "readQueueNums": "5",
                "writeQueueNums": "5",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
        )
        self.assertIn(RequestCode.UPDATE_AND_CREATE_TOPIC, self.b.codes())
        asked = len(self.names.requests)
        client.send(Message("T", b"x"))
        self.assertEqual(len(self.names.requests), asked + 1)

    def test_createTopicInOneCluster(self) -> None:
        """
        Or at those of one cluster.
        """
        self.client().createTopic("New", cluster="two", perm=4)
        self.assertEqual(self.a.requests, [])
        self.assertEqual(self.b.requests[0].extFields["perm"], "4")

    def test_refusedTopicIsError(self) -> None:
        """
        An invalid name, a cluster without a master and a broker's refusal are errors.
        """
        client = self.client()
        self.assertRaises(InvalidMessage, client.createTopic, "a b")
        error = self.assertRaises(ConnectFailed, client.createTopic, "New", cluster="three")
        self.assertIn("the cluster three", str(error))
        self.info = ClusterInfo()
        error = self.assertRaises(ConnectFailed, client.createTopic, "New")
        self.assertIn("no cluster", str(error))
        self.setUp()
        self.b.serve[RequestCode.UPDATE_AND_CREATE_TOPIC] = refuse(ResponseCode.SYSTEM_ERROR)
        self.assertRaises(RemoteSystemError, self.client().createTopic, "New")


class LifeTests(ClientCase):
    """
    The client as an object.
    """

    def test_contextClosesConnections(self) -> None:
        """
        A client is a context, which closes its connections; it can be used after.
        """
        with self.client() as client:
            for _ in range(2):
                client.queues("T")
                self.assertEqual(len(self.names.connections), 1)
        client.queues("T")
        self.assertEqual(len(self.names.connections), 2)

    def test_pickledClientHasSettingsOnly(self) -> None:
        """
        A client can be pickled: the other one has the same settings, and no
        connection.
        """
        client = self.client(timeout=5.0, tls=None, producerGroup="p")
        client.queues("T")
        other = pickle.loads(pickle.dumps(client))
        self.addCleanup(other.close)
        self.assertEqual(other.settings, client.settings)
        self.assertEqual(len(self.names.connections), 1)
        self.assertEqual(other.queues("T"), client.queues("T"))
        self.assertEqual(len(self.names.connections), 2)

    def test_importLoadsNoTwisted(self) -> None:
        """
        Importing the client imports neither Twisted nor zope, which would take time and
        install a reactor.
        """
        program = (
            "import sys, txrocket.blocking\n"
            "print([each for each in sys.modules if each.split('.')[0] in ('twisted', 'zope')])"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(said.stdout, "[]\n")


class SettingsTests(SynchronousTestCase):
    """
    The settings of a client.
    """

    def test_nameServersComeFromArgumentOrEnvironment(self) -> None:
        """
        Name servers are given as text or a list, or come from the environment.
        """
        for given in ("a:1;b:2", ["a:1", "b:2"]):
            self.assertEqual(Settings(given).nameServers, ("a:1", "b:2"))
            self.assertEqual(Client(given).settings, Settings(given))
        self.patch(os, "environ", {"NAMESRV_ADDR": "c:3"})
        self.assertEqual(Client().settings.nameServers, ("c:3",))
        self.patch(os, "environ", {})
        self.assertRaises(ConfigError, Client)

    def test_settingsCompareHashAndPickle(self) -> None:
        """
        Settings are a value: to be compared, hashed and pickled.
        """
        settings = Settings("a:1", timeout=1.5, tls=TLS(authServer=True, keyPassword="secret"))
        self.assertEqual(pickle.loads(pickle.dumps(settings)), settings)
        self.assertEqual(hash(pickle.loads(pickle.dumps(settings))), hash(settings))
        self.assertNotIn("secret", repr(settings))

    def test_invalidSettingIsRefused(self) -> None:
        """
        An invalid setting is refused by its name.
        """
        for name, value in (
            ("timeout", 0.0),
            ("retries", -1),
            ("maxMessageSize", 0),
            ("defaultTopicQueueNums", 0),
        ):
            wrong: dict[str, Any] = {name: value}
            error = self.assertRaises(ConfigError, Settings, "a:1", **wrong)
            self.assertIn(f"{name}={value!r}", str(error))
        for name in ("producerGroup", "consumerGroup"):
            wrong = {name: "a b"}
            self.assertRaises(InvalidMessage, Settings, "a:1", **wrong)


class DeadlineTests(SynchronousTestCase):
    """
    The time limit of a call.
    """

    def setUp(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.patch(time, "monotonic", lambda: self.now)
        self.patch(time, "sleep", self.slept.append)

    def test_deadlineTellsTimeLeft(self) -> None:
        """
        It tells how much is left and how long it has been, until it is over.
        """
        deadline = Deadline(3.0)
        self.now += 2.0
        self.assertEqual((deadline.left(), deadline.elapsed, deadline.over), (1.0, 2.0, False))
        self.now += 1.0
        self.assertTrue(deadline.over)
        self.assertRaises(TimeoutError, deadline.left)

    def test_shareDividesTimeLeft(self) -> None:
        """
        Several things share what is left.
        """
        deadline = Deadline(3.0)
        self.assertIs(deadline.share(1), deadline)
        self.assertEqual(deadline.share(3).left(), 1.0)
        self.now += 5.0
        self.assertTrue(deadline.share(2).over)

    def test_pauseGrowsWithFailures(self) -> None:
        """
        A pause is 0.2 s, half as long again after each failure, and is not made if
        nothing could be done after it.
        """
        deadline = Deadline(0.46)
        self.assertTrue(deadline.pause(1))
        self.assertTrue(deadline.pause(3))
        self.assertFalse(deadline.pause(4))
        self.assertEqual([round(each, 3) for each in self.slept], [0.2, 0.45])
