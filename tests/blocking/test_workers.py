# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking}: what workers of other systems need that read whole
topics.
"""

from __future__ import annotations

import zlib

from tests.blocking.server import cut, inTurn, refuse
from tests.blocking.test_client import QUEUE, ClientCase, found, record
from tests.captures import captures
from txrocket.acl import Credentials, signature
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    MessageTooLarge,
    NoPermission,
    SubscriptionParseFailed,
    SystemBusy,
    TopicNotExist,
)
from txrocket.filters.tags import tagSubscription
from txrocket.message import Message
from txrocket.model import ConsumeType, MessageModel, MessageQueue
from txrocket.protocol.bodies import HeartbeatData, TopicList
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageResponseHeader
from txrocket.protocol.record.batch import encodeItem


class DataTests(ClientCase):
    """
    Pulls that are not read.
    """

    def test_pullDataReturnsBrokerBytes(self) -> None:
        """
        The bytes are the broker's, whatever is in them, and what was asked is what a
        pull asks.
        """
        data = record(7, zlib.compress(b"x"), sysFlag=0x301, TAGS="AaAa") + b"torn"
        self.a.serve[RequestCode.PULL_MESSAGE] = found(data)
        client = self.client(consumerGroup="g")
        result = client.pullData(QUEUE, 7, 1000, "BBBB")
        self.assertEqual(result, (PullStatus.FOUND, 9, 3, 20, data))
        # Neither the record, which is before the pull, nor what follows it is a message.
        self.assertEqual((), client.pull(QUEUE, 8, 1000, "zz").messages)
        self.assertEqual(2, client.unreadable)
        given, usual = [each.extFields for each in self.a.requests]
        self.assertEqual(given["subscription"], "BBBB")
        self.assertEqual({**given, "queueOffset": "8", "subscription": "zz"}, usual)
        client.pullData(QUEUE, 7, expression="a = 1", expressionType="SQL92", group="h")
        fields = self.a.requests[-1].extFields
        self.assertEqual((fields["expressionType"], fields["consumerGroup"]), ("SQL92", "h"))

    def test_pullDataWithoutMessagesIsEmpty(self) -> None:
        """
        Without messages there are no bytes; a refusal is an error, and so is an invalid
        expression.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = found(b"x", code=ResponseCode.PULL_NOT_FOUND)
        client = self.client()
        self.assertEqual(client.pullData(QUEUE, 7), (PullStatus.NO_NEW_MSG, 9, 3, 20, b""))
        self.a.serve[RequestCode.PULL_MESSAGE] = refuse(ResponseCode.NO_PERMISSION)
        self.assertRaises(NoPermission, client.pullData, QUEUE, 7)
        self.assertRaises(SubscriptionParseFailed, client.pullData, QUEUE, 7, expression="||")

    def test_masterOptionIgnoresSuggestion(self) -> None:
        """
        A slave is pulled from if the broker says so, unless the master is asked for.
        """
        self.addSlave()
        for each in (self.a, self.b):
            each.serve[RequestCode.PULL_MESSAGE] = found(suggested=1)
        client = self.client()
        for master in (False, False, True, False):
            client.pullData(QUEUE, 7, master=master)
        self.assertEqual((len(self.a.requests), len(self.b.requests)), (2, 2))


class AheadTests(ClientCase):
    """
    Several pulls at once.
    """

    def offset(self, request: RemotingCommand) -> int:
        """
        Where a pull begins.
        """
        return int(request.extFields["queueOffset"])

    def test_pullAheadKeepsRequestOrder(self) -> None:
        """
        All are asked before the first is answered, and the results are in their order,
        whatever order the answers have.
        """
        held: list[RemotingCommand] = []

        def serve(request: RemotingCommand) -> bytes | None:
            held.append(request)
            if len(held) < 3:
                return None
            answers = []
            for each in (held[1], held[2], held[0]):
                header = PullMessageResponseHeader(0, self.offset(each) + 1, 0, 9)
                answer = responseCommand(0, None, header, record(self.offset(each)))
                answer.opaque = each.opaque
                answers.append(answer.encode())
            return b"".join(answers)

        self.a.serve[RequestCode.PULL_MESSAGE] = serve
        pulled = self.client().pullAhead(QUEUE, [5, 7, 9], 2, group="g")
        self.assertEqual([each.nextBeginOffset for each in pulled], [6, 8, 10])
        self.assertEqual([each.data for each in pulled], [record(each) for each in (5, 7, 9)])
        self.assertEqual({each.extFields["maxMsgNums"] for each in held}, {"2"})
        self.assertEqual({each.extFields["consumerGroup"] for each in held}, {"g"})

    def test_pullAheadDoesNotRetry(self) -> None:
        """
        Nothing is retried: a missing answer, a refusal and an unknown broker are errors.
        """
        self.a.serve[RequestCode.PULL_MESSAGE] = cut
        self.assertRaises(ConnectionLost, self.client().pullAhead, QUEUE, [1, 2])
        self.a.serve[RequestCode.PULL_MESSAGE] = inTurn(found(), refuse(ResponseCode.SYSTEM_BUSY))
        self.assertRaises(SystemBusy, self.client().pullAhead, QUEUE, [1, 2])
        self.assertEqual(self.pauses, [])
        unknown = MessageQueue("T", "c", 0)
        self.assertRaises(ConnectFailed, self.client().pullAhead, unknown, [1])

    def test_pullAheadAsksSuggestedBroker(self) -> None:
        """
        Pulls go to the suggested broker, and to the master if it does not exist.
        """
        self.addSlave()
        for each in (self.a, self.b):
            each.serve[RequestCode.PULL_MESSAGE] = found(suggested=1)
        client = self.client()
        client.pullData(QUEUE, 0)
        client.pullAhead(QUEUE, [1, 2])
        self.assertEqual((len(self.a.requests), len(self.b.requests)), (1, 2))
        self.b.serve[RequestCode.PULL_MESSAGE] = found(suggested=9)
        client.pullAhead(QUEUE, [1])
        client.pullAhead(QUEUE, [1])
        self.assertEqual((len(self.a.requests), len(self.b.requests)), (2, 3))


class TopicsTests(ClientCase):
    """
    Topics and their queues.
    """

    def test_allTopicsAreListed(self) -> None:
        """
        All topics that the name server knows.
        """
        self.names.serve[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda request: (
            responseCommand(body=encodeBody(TopicList(frozenset(["T", "%RETRY%g"]))))
        )
        self.assertEqual(self.client().topics(), {"T", "%RETRY%g"})

    def test_boundsReadJavaAnswer(self) -> None:
        """
        Where all queues of a topic begin and end, by what Java answers.
        """
        body = next(
            each.body
            for each in captures()
            if each.requestCode == RequestCode.GET_TOPIC_STATS_INFO and each.kind == "response"
        )
        self.a.serve[RequestCode.GET_TOPIC_STATS_INFO] = lambda request: responseCommand(body=body)
        self.assertEqual(
            self.client().bounds("T", "a"),
            {MessageQueue("hcadm_T_e25d148e", "harness-a", each): (0, 6) for each in range(4)},
        )
        self.assertEqual(self.a.requests[0].extFields, {"topic": "T"})

    def test_progressReadsJavaAnswer(self) -> None:
        """
        How far a group has come in a topic, by what Java answers of all its topics.
        """
        body = next(
            each.body
            for each in captures()
            if each.requestCode == RequestCode.GET_CONSUME_STATS and each.kind == "response"
        )
        self.a.serve[RequestCode.GET_CONSUME_STATS] = lambda request: responseCommand(body=body)
        topic = "hcadm_T_e25d148e"
        self.routes[topic] = self.routeTo(self.a)
        client = self.client()
        self.assertEqual(
            client.progress("g", topic, "a"),
            {
                MessageQueue(topic, "harness-a", number): (offset, 6)
                for number, offset in enumerate((5, 6, 5, 6))
            },
        )
        self.assertEqual(self.a.requests[0].extFields["consumerGroup"], "g")
        self.assertEqual(client.progress("g", "T", "a"), {})

    def test_unknownTopicHasNoBounds(self) -> None:
        """
        A broker without the topic says so.
        """
        self.a.serve[RequestCode.GET_TOPIC_STATS_INFO] = refuse(ResponseCode.TOPIC_NOT_EXIST)
        self.assertRaises(TopicNotExist, self.client().bounds, "T", "a")


class HeartbeatTests(ClientCase):
    """
    Being known as a group.
    """

    def test_heartbeatReachesEachMasterOnce(self) -> None:
        """
        Each master of the topics is told once of the group, and what it wants of which
        topic.
        """
        self.routes["U"] = self.routeTo(self.a)
        for each in (self.a, self.b):
            each.serve[RequestCode.HEART_BEAT] = lambda request: responseCommand()
        self.client().heartbeat("g", ["U", "T", "T"], "x")
        for each in (self.a, self.b):
            (request,) = each.requests
            data = decodeBody(HeartbeatData, request.body)
            (consumer,) = data.consumerDataSet
            self.assertEqual(consumer.groupName, "g")
            self.assertIs(consumer.consumeType, ConsumeType.CONSUME_ACTIVELY)
            self.assertIs(consumer.messageModel, MessageModel.CLUSTERING)
            self.assertEqual(
                consumer.subscriptionDataSet, {tagSubscription("T", "x"), tagSubscription("U", "x")}
            )
            self.assertIn("@", data.clientID)

    def test_invalidHeartbeatIsNotSent(self) -> None:
        """
        An invalid group or expression is not sent, and no broker's refusal is hidden.
        """
        client = self.client()
        self.assertRaises(InvalidMessage, client.heartbeat, "a b", ["T"])
        self.assertRaises(SubscriptionParseFailed, client.heartbeat, "g", ["T"], "||")
        self.assertEqual(self.a.requests, [])
        self.a.serve[RequestCode.HEART_BEAT] = refuse(ResponseCode.NO_PERMISSION)
        self.b.serve[RequestCode.HEART_BEAT] = refuse(ResponseCode.NO_PERMISSION)
        self.assertRaises(NoPermission, client.heartbeat, "g", ["T"])


class SignedTests(ClientCase):
    """
    Requests of an account.
    """

    def test_credentialsSignEveryRequest(self) -> None:
        """
        With credentials every request is signed, also one that is sent again; without
        them none is.
        """

        def signed(request: RemotingCommand) -> bool:
            fields = request.extFields
            return fields.get("AccessKey") == "account" and fields.get("Signature") == signature(
                fields, request.body, "secret"
            )

        self.a.serve[RequestCode.PULL_MESSAGE] = found()
        client = self.client(credentials=Credentials("account", "secret"))
        client.pull(QUEUE, 0)
        client.send(Message("T", b"x"), QUEUE)
        client.sendBatch([Message("T", b"x")] * 2, QUEUE)
        self.assertEqual(len(self.a.requests), 3)
        self.assertTrue(all(map(signed, self.a.requests + self.names.requests)))
        self.client().pull(QUEUE, 0)
        self.assertNotIn("Signature", self.a.requests[-1].extFields)


class BornTests(ClientCase):
    """
    Messages that were made earlier.
    """

    def test_bornTimeDefaultsToNow(self) -> None:
        """
        When a message was made can be said; else it is now.
        """
        client = self.client()
        client.send(Message("T", b"x"), QUEUE, born=1_700_000_000.5)
        client.send(Message("T", b"x"), QUEUE)
        said, now = [int(each.extFields["g"]) for each in self.a.requests]
        self.assertEqual(said, 1_700_000_000_500)
        self.assertGreater(now, said)


class BatchTests(ClientCase):
    """
    Batches that are encoded already.
    """

    def test_encodedBatchIsSentUnchanged(self) -> None:
        """
        The bytes are sent as they are, to a queue or to each in turn.
        """
        client = self.client()
        data = encodeItem(b"x", b"UNIQ_KEY\x011") + encodeItem(b"y", b"UNIQ_KEY\x012")
        result = client.sendData("T", data, QUEUE)
        self.assertEqual((result.messageQueue, result.queueOffset), (QUEUE, 7))
        (request,) = self.a.requests
        self.assertEqual((request.code, request.body), (RequestCode.SEND_BATCH_MESSAGE, data))
        self.assertEqual(request.extFields["m"], "true")
        queues = {client.sendData("T", data).messageQueue for _ in range(4)}
        self.assertEqual(len(queues), 4)

    def test_oversizeOrReservedBatchIsRefused(self) -> None:
        """
        A batch that is too large, or for a topic of brokers, is not sent.
        """
        client = self.client(maxMessageSize=10)
        self.assertRaises(MessageTooLarge, client.sendData, "T", bytes(11))
        self.assertRaises(InvalidMessage, client.sendData, "SCHEDULE_TOPIC_XXXX", b"x")
        self.assertEqual(self.a.requests + self.b.requests, [])
