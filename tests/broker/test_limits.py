# SPDX-License-Identifier: Apache-2.0
"""
Tests for the limits of what clients can make a broker keep.  Each is met through
requests to a whole broker; the refusal names the setting, what was there goes on, and
what goes away makes room.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.broker.brokers import Caller, WholeBrokerTests
from txrocket.model import MessageQueue, SubscriptionData, SubscriptionGroupConfig
from txrocket.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerData,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.headers.fields import Header


class LimitsCase(WholeBrokerTests):
    """
    The base: a broker, and clients that ask it.
    """

    def ask(
        self, caller: Caller, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """
        The answer to a request.
        """
        caller.ask(code, header, body)
        self.turn()
        [answer] = [each for each in caller.answers() if each.isResponse]
        return answer

    def refused(self, answer: RemotingCommand, code: int, setting: str) -> None:
        """
        An answer refuses, with a code, and names the setting and its value.
        """
        self.assertEqual(answer.code, code, answer.remark)
        self.assertIn(setting, answer.remark or "")

    def served(self, answer: RemotingCommand) -> None:
        """
        An answer is a success.
        """
        self.assertEqual((answer.code, answer.remark), (0, None))

    def send(self, caller: Caller, topic: str) -> RemotingCommand:
        """
        Send a message.
        """
        header = SendMessageRequestHeader("P", topic, "TBW102", 4, 0, 0, 0, 0, None, 0, False)
        return self.ask(caller, RequestCode.SEND_MESSAGE, header, b"x")

    def create(self, caller: Caller, topic: str) -> RemotingCommand:
        """
        Make a topic as administrators do.
        """
        header = CreateTopicRequestHeader(topic, "TBW102", 1, 1, 6, "SINGLE_TAG", 0, False)
        return self.ask(caller, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def beat(
        self,
        caller: Caller,
        *groups: str,
        producers: tuple[str, ...] = (),
        topics: tuple[str, ...] = (),
        clientId: str = "c",
    ) -> RemotingCommand:
        """
        Tell of a client.
        """
        wanted = frozenset(SubscriptionData(each, "*", subVersion=1) for each in topics)
        data = HeartbeatData(
            clientId,
            frozenset(map(ProducerData, producers)),
            frozenset(ConsumerData(each, subscriptionDataSet=wanted) for each in groups),
        )
        return self.ask(caller, RequestCode.HEART_BEAT, body=encodeBody(data))

    def isMember(self, caller: Caller, group: str) -> bool:
        """
        Whether a group has a consumer.
        """
        header = GetConsumerListByGroupRequestHeader(group)
        return not self.ask(caller, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header).code


class TopicLimitTests(LimitsCase):
    """
    C{maxTopicNum}.
    """

    def test_fullTableRefusesNewTopics(self) -> None:
        """
        Sends and administrators make no more topics than C{maxTopicNum}; the topics that
        are there are sent to and changed, and a deleted one makes room.
        """
        self.start(maxTopicNum="3")
        caller = self.call()
        for topic in ("A", "B"):
            self.served(self.send(caller, topic))
        self.served(self.create(caller, "C"))
        self.refused(self.send(caller, "D"), ResponseCode.TOPIC_NOT_EXIST, "maxTopicNum is 3")
        self.refused(self.create(caller, "D"), ResponseCode.SYSTEM_ERROR, "maxTopicNum is 3")
        self.served(self.send(caller, "A"))
        self.served(self.create(caller, "A"))
        for _ in range(8):
            self.send(caller, "D")
        said = [each for each in self.logged(LogLevel.warn) if "sends to topic D" in each]
        self.assertEqual(len(said), 1)
        header = DeleteTopicRequestHeader("B")
        self.served(self.ask(caller, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        self.served(self.send(caller, "D"))
        self.refused(self.send(caller, "E"), ResponseCode.TOPIC_NOT_EXIST, "maxTopicNum is 3")

    def test_retryTopicsHaveTheirOwnLimit(self) -> None:
        """
        A new group gets its retry topic though clients have created C{maxTopicNum} topics,
        and sends create no more retry topics than that either.
        """
        made = self.start(maxTopicNum="2")
        caller = self.call()
        for topic in ("A", "B"):
            self.served(self.send(caller, topic))
        self.served(self.beat(caller, "G", "H"))
        self.assertIsNotNone(made.tables.topics.get("%RETRY%H"))
        answer = self.send(caller, "%RETRY%I")
        self.refused(answer, ResponseCode.TOPIC_NOT_EXIST, "maxTopicNum is 2")
        header = DeleteTopicRequestHeader("%RETRY%H")
        self.served(self.ask(caller, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        self.served(self.send(caller, "%RETRY%I"))

    def test_loweredLimitKeepsTopics(self) -> None:
        """
        Topics that are more than a lowered C{maxTopicNum} stay, of either kind.
        """
        made = self.start()
        caller = self.call()
        for topic in ("A", "B"):
            self.served(self.send(caller, topic))
        self.served(self.beat(caller, "G", "H"))
        made.stopService()
        self.turn(10)
        made = self.start(maxTopicNum="2")
        caller = self.call(-2)
        self.served(self.send(caller, "B"))
        self.refused(self.send(caller, "D"), ResponseCode.TOPIC_NOT_EXIST, "maxTopicNum is 2")
        answer = self.send(caller, "%RETRY%I")
        self.refused(answer, ResponseCode.TOPIC_NOT_EXIST, "maxTopicNum is 2")


class GroupLimitTests(LimitsCase):
    """
    C{maxSubscriptionGroupNum}.
    """

    def test_fullTableRefusesNewGroups(self) -> None:
        """
        Heartbeats and administrators make no more groups than
        C{maxSubscriptionGroupNum}; a client is a member of those that are there all the
        same, and a deleted one makes room.
        """
        made = self.start(maxSubscriptionGroupNum="2")
        caller = self.call()
        self.served(self.beat(caller, "G", "H"))
        other = self.call()
        answer = self.beat(other, "G", "I", producers=("P",), clientId="d")
        self.refused(
            answer, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "maxSubscriptionGroupNum is 2"
        )
        self.assertNotIn("I", made.tables.groups.table)
        said = [each for each in self.logged(LogLevel.warn) if "maxSubscriptionGroupNum" in each]
        self.assertEqual(len(said), 1)
        self.assertIsNone(made.tables.topics.get("%RETRY%I"))
        self.assertFalse(self.isMember(other, "I"))
        header = UnregisterClientRequestHeader("c", consumerGroup="G")
        self.served(self.ask(caller, RequestCode.UNREGISTER_CLIENT, header))
        self.assertTrue(self.isMember(other, "G"))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = self.ask(caller, code, body=encodeBody(SubscriptionGroupConfig("I")))
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxSubscriptionGroupNum is 2")
        self.served(self.ask(caller, code, body=encodeBody(SubscriptionGroupConfig("G"))))
        delete = DeleteSubscriptionGroupRequestHeader("H", True)
        self.served(self.ask(caller, RequestCode.DELETE_SUBSCRIPTIONGROUP, delete))
        self.served(self.beat(other, "I", clientId="d"))


class MemberLimitTests(LimitsCase):
    """
    The members of groups.
    """

    def test_groupsPerConnectionAreLimited(self) -> None:
        """
        A connection is in no more consumer and producer groups than
        C{maxGroupNumPerClient}, its heartbeats count in those, and leaving makes room.
        """
        made = self.start(maxGroupNumPerClient="2", autoCreateSubscriptionGroup="false")
        caller = self.call()
        self.served(self.beat(caller, "G", "H", producers=("P", "Q")))
        self.served(self.beat(caller, "G", "H", producers=("P", "Q")))
        for answer in (self.beat(caller, "I"), self.beat(caller, producers=("R",))):
            self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxGroupNumPerClient is 2")
        self.assertFalse(self.isMember(caller, "I"))
        self.assertEqual(len(made.tables.groups.table), 7)
        header = UnregisterClientRequestHeader("c", consumerGroup="G")
        self.served(self.ask(caller, RequestCode.UNREGISTER_CLIENT, header))
        self.served(self.beat(caller, "I"))

    def test_noGroupIsMade(self) -> None:
        """
        A client that may be in no further group makes none.
        """
        made = self.start(maxGroupNumPerClient="1")
        caller = self.call()
        self.served(self.beat(caller, "G"))
        answer = self.beat(caller, "H")
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxGroupNumPerClient is 1")
        self.assertNotIn("H", made.tables.groups.table)

    def test_membersInAllAreLimited(self) -> None:
        """
        All consumer groups together have no more members than C{maxGroupMemberNum}, and a
        connection that ends makes room.
        """
        self.start(maxGroupMemberNum="3")
        first, second = self.call(), self.call()
        self.served(self.beat(first, "G", "H", producers=("P", "Q")))
        self.served(self.beat(second, "G", clientId="d"))
        answer = self.beat(second, "H", clientId="d")
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxGroupMemberNum is 3")
        self.served(self.beat(second, clientId="d", producers=("P",)))
        first.wire.loseConnection()
        self.turn()
        self.served(self.beat(second, "H", clientId="d"))

    def test_tooManySubscriptionsAreRefused(self) -> None:
        """
        A heartbeat with more topics than C{maxSubscriptionNumPerGroup} is refused.
        """
        self.start(maxSubscriptionNumPerGroup="2")
        caller = self.call()
        answer = self.beat(caller, "G", topics=("A", "B", "C"))
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxSubscriptionNumPerGroup is 2")
        self.assertFalse(self.isMember(caller, "G"))
        self.served(self.beat(caller, "G", topics=("A", "B")))


class OffsetLimitTests(LimitsCase):
    """
    Offsets that groups commit.
    """

    def commit(self, caller: Caller, group: str, topic: str, queueId: int = 0) -> RemotingCommand:
        """
        Commit the offset 0.
        """
        header = UpdateConsumerOffsetRequestHeader(group, topic, queueId, 0)
        return self.ask(caller, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def test_fullTableRefusesNewOffsets(self) -> None:
        """
        No more pairs of a topic and a group have offsets than C{maxConsumerOffsetNum};
        those that have some go on, and a deleted group makes room.
        """
        self.start(maxConsumerOffsetNum="2")
        caller = self.call()
        self.served(self.create(caller, "A"))
        self.served(self.send(caller, "A"))
        for group in ("G", "H"):
            self.served(self.commit(caller, group, "A"))
        answer = self.commit(caller, "I", "A")
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxConsumerOffsetNum is 2")
        clone = CloneGroupOffsetRequestHeader("G", "I", "A", True)
        answer = self.ask(caller, RequestCode.CLONE_GROUP_OFFSET, clone)
        self.refused(answer, ResponseCode.SYSTEM_ERROR, "maxConsumerOffsetNum is 2")
        self.served(self.commit(caller, "G", "A"))
        delete = DeleteSubscriptionGroupRequestHeader("H", True)
        self.served(self.ask(caller, RequestCode.DELETE_SUBSCRIPTIONGROUP, delete))
        self.served(self.commit(caller, "I", "A"))

    def test_offsetOfMissingQueueIsRefused(self) -> None:
        """
        No offset is kept in a missing topic, nor in a queue that the topic does not have.
        """
        made = self.start()
        caller = self.call()
        self.served(self.create(caller, "A"))
        answer = self.commit(caller, "G", "B")
        self.refused(answer, ResponseCode.TOPIC_NOT_EXIST, "topic B does not exist")
        for queueId in (-1, 1, 2**31 - 1):
            answer = self.commit(caller, "G", "A", queueId)
            self.refused(answer, ResponseCode.SYSTEM_ERROR, "is not one of topic A")
        self.assertEqual(made.tables.offsets.topicsOf("G"), set())
        header = QueryConsumerOffsetRequestHeader("G", "A", 0)
        self.served(self.ask(caller, RequestCode.QUERY_CONSUMER_OFFSET, header))


class LockLimitTests(LimitsCase):
    """
    C{maxQueueLockNum}.
    """

    def lock(self, caller: Caller, group: str, *queues: int) -> RemotingCommand:
        """
        Lock queues.
        """
        body = LockBatchRequestBody(
            group, "c", frozenset(MessageQueue("T", "b", q) for q in queues)
        )
        return self.ask(caller, RequestCode.LOCK_BATCH_MQ, body=encodeBody(body))

    def got(self, answer: RemotingCommand) -> int:
        """
        How many queues were locked.
        """
        self.served(answer)
        return len(decodeBody(LockBatchResponseBody, answer.body).lockOKMQSet)

    def test_fullTableRefusesNewLocks(self) -> None:
        """
        No more queues are locked than C{maxQueueLockNum}; locks are renewed, and those that
        are given back or expire make room.
        """
        self.start(maxQueueLockNum="3")
        caller = self.call()
        self.assertEqual(self.got(self.lock(caller, "G", 0, 1)), 2)
        self.assertEqual(self.got(self.lock(caller, "H", 0, 1)), 1)
        self.assertEqual(self.got(self.lock(caller, "G", 0, 1)), 2)
        self.refused(self.lock(caller, "I", 0), ResponseCode.SYSTEM_ERROR, "maxQueueLockNum is 3")
        body = UnlockBatchRequestBody("G", "c", frozenset({MessageQueue("T", "b", 0)}))
        self.served(self.ask(caller, RequestCode.UNLOCK_BATCH_MQ, body=encodeBody(body)))
        self.assertEqual(self.got(self.lock(caller, "I", 0)), 1)
        for _ in range(8):
            self.turn(10)
        self.assertEqual(self.got(self.lock(self.call(), "J", 0, 1, 2)), 3)
