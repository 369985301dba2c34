# SPDX-License-Identifier: Apache-2.0
"""
Every body of RocketMQ 4.9.7 that is not a message: one declaration each, by the
name of its Java class, with the wire's own member names; and L{BODIES}, which
says which code carries which::

    BODIES[code]  ->  (type of the request's body, of the response's)

The values that other layers hold too are in L{txrocket.model}; those that only
travel are here.  They are values and nothing else: L{txrocket.protocol.bodycodec}
makes bytes of them and back.  Three kinds of body are no JSON:

    - records (pull, view, query, check transaction): L{txrocket.protocol.record};
    - settings, C{key=value} lines: L{txrocket.protocol.properties};
    - a broker's registration when its header says C{compressed=true}:
      L{txrocket.protocol.registration}.
"""

from __future__ import annotations

import enum

import msgspec

from txrocket.model import (
    BrokerData,
    ConsumeFromWhere,
    ConsumeType,
    DataVersion,
    Int32,
    Int64,
    MessageModel,
    MessageQueue,
    PlainAccessConfig,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
)
from txrocket.protocol.properties import Properties

__all__ = [
    "BODIES",
    "AclConfig",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CMResult",
    "CheckClientRequestBody",
    "ClusterAclVersionInfo",
    "ClusterInfo",
    "Connection",
    "ConsumeByWho",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerOffsetSerializeWrapper",
    "ConsumerRunningInfo",
    "DelayOffsetSerializeWrapper",
    "GetBrokerClusterAclConfigResponseBody",
    "GetConsumerListByGroupResponseBody",
    "GetConsumerStatusBody",
    "GroupList",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageQueueForC",
    "OffsetMovedEvent",
    "OffsetWrapper",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "RollbackStats",
    "SubscriptionGroupWrapper",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicOffset",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
]

# --- heartbeat -------------------------------------------------------------


class ProducerData(msgspec.Struct, frozen=True):
    """
    A producer group of a client.

    @ivar groupName: the group's name.
    """

    groupName: str


class ConsumerData(msgspec.Struct, frozen=True):
    """
    A consumer group of a client and what it subscribes to.

    @ivar groupName: the group's name.
    @ivar consumeType: whether it pulls or is pushed to.
    @ivar messageModel: whether it broadcasts or shares.
    @ivar consumeFromWhere: where a new group starts.
    @ivar subscriptionDataSet: its subscriptions, one a topic.
    @ivar unitMode: whether the client belongs to a unit.
    """

    groupName: str
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None
    subscriptionDataSet: frozenset[SubscriptionData] = frozenset()
    unitMode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True):
    """
    All groups of a client.

    @ivar clientID: the client's id, C{ip@instance}.
    @ivar producerDataSet: its producer groups.
    @ivar consumerDataSet: its consumer groups.
    """

    clientID: str
    producerDataSet: frozenset[ProducerData] = frozenset()
    consumerDataSet: frozenset[ConsumerData] = frozenset()


class CheckClientRequestBody(msgspec.Struct, frozen=True):
    """
    A subscription whose expression the broker is to try.

    @ivar clientId: the client's id.
    @ivar group: the consumer group.
    @ivar subscriptionData: the subscription; Java fails without one.
    """

    clientId: str | None = None
    group: str | None = None
    subscriptionData: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(msgspec.Struct, frozen=True):
    """
    The clients of a consumer group.

    @ivar consumerIdList: their ids; all members divide the queues by this list.
    """

    consumerIdList: tuple[str, ...] = ()


# --- locks of ordered consumers -----------------------------------------------


class LockBatchRequestBody(msgspec.Struct, frozen=True):
    """
    The queues that an ordered consumer wants for itself.

    @ivar consumerGroup: the consumer group.
    @ivar clientId: the client's id.
    @ivar mqSet: the queues, all of the broker that is asked.
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: frozenset[MessageQueue] = frozenset()


class LockBatchResponseBody(msgspec.Struct, frozen=True):
    """
    The queues that an ordered consumer got.

    @ivar lockOKMQSet: the queues that are locked for the client.
    """

    lockOKMQSet: frozenset[MessageQueue] = frozenset()


class UnlockBatchRequestBody(msgspec.Struct, frozen=True):
    """
    The queues that an ordered consumer gives back.

    @ivar consumerGroup: the consumer group.
    @ivar clientId: the client's id.
    @ivar mqSet: the queues.
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: frozenset[MessageQueue] = frozenset()


# --- routes, topics and groups ---------------------------------------------------


class ClusterInfo(msgspec.Struct, frozen=True):
    """
    All brokers that a name server knows.

    @ivar brokerAddrTable: broker name to its addresses.
    @ivar clusterAddrTable: cluster name to its broker names.
    """

    brokerAddrTable: dict[str, BrokerData] = {}
    clusterAddrTable: dict[str, frozenset[str]] = {}


class TopicList(msgspec.Struct, frozen=True):
    """
    Names of topics.

    @ivar topicList: the names.
    @ivar brokerAddr: one broker's address, given with the system topics.
    """

    topicList: frozenset[str] = frozenset()
    brokerAddr: str | None = None


class GroupList(msgspec.Struct, frozen=True):
    """
    Names of consumer groups.

    @ivar groupList: the names.
    """

    groupList: frozenset[str] = frozenset()


class KVTable(msgspec.Struct, frozen=True):
    """
    Names and texts: a name server's settings of a namespace, the order of topics
    for a broker that registers, or a broker's state.

    @ivar table: name to text.
    """

    table: dict[str, str] = {}


class TopicConfigSerializeWrapper(msgspec.Struct, frozen=True):
    """
    A broker's topics.

    @ivar topicConfigTable: topic name to its configuration.
    @ivar dataVersion: the table's version.
    """

    topicConfigTable: dict[str, TopicConfig] = {}
    dataVersion: DataVersion = DataVersion()


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True):
    """
    A broker's consumer groups.

    @ivar subscriptionGroupTable: group name to its configuration.
    @ivar dataVersion: the table's version.
    """

    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = {}
    dataVersion: DataVersion = DataVersion()


class ConsumerOffsetSerializeWrapper(msgspec.Struct, frozen=True):
    """
    The committed offsets of a broker.  (A broker with light message queues adds
    C{lmqOffsetTable}; Java's reader ignores it and so does this one.)

    @ivar offsetTable: C{topic@group} to queue id to offset.
    """

    offsetTable: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(msgspec.Struct, frozen=True):
    """
    How far a broker has delivered delayed messages.

    @ivar offsetTable: delay level to offset.
    """

    offsetTable: dict[Int32, Int64] = {}


class RegisterBrokerBody(msgspec.Struct, frozen=True):
    """
    What a broker tells a name server of itself.

    @ivar topicConfigSerializeWrapper: its topics; only the changed ones where
        it registers a single topic.
    @ivar filterServerList: its filter servers; no longer in use.
    """

    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filterServerList: tuple[str, ...] = ()


# --- who is connected -----------------------------------------------------------


class Connection(msgspec.Struct, frozen=True):
    """
    A connected client.

    @ivar clientId: the client's id.
    @ivar clientAddr: where it is, C{host:port}.
    @ivar language: the name of its language code.
    @ivar version: its version's ordinal.
    """

    clientId: str | None = None
    clientAddr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, frozen=True):
    """
    The consumers of a group.

    @ivar connectionSet: the clients.
    @ivar subscriptionTable: topic to the group's subscription.
    @ivar consumeType: as in L{ConsumerData}.
    @ivar messageModel: as in L{ConsumerData}.
    @ivar consumeFromWhere: as in L{ConsumerData}.
    """

    connectionSet: frozenset[Connection] = frozenset()
    subscriptionTable: dict[str, SubscriptionData] = {}
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None


class ProducerConnection(msgspec.Struct, frozen=True):
    """
    The producers of a group.

    @ivar connectionSet: the clients.
    """

    connectionSet: frozenset[Connection] = frozenset()


class ProducerInfo(msgspec.Struct, frozen=True):
    """
    A connected producer.

    @ivar clientId: the client's id.
    @ivar remoteIP: where it is, C{/host:port}.
    @ivar language: the name of its language code.
    @ivar version: its version's ordinal.
    @ivar lastUpdateTimestamp: its last heartbeat, in milliseconds.
    """

    clientId: str | None = None
    remoteIP: str | None = None
    language: str | None = None
    version: Int32 = 0
    lastUpdateTimestamp: Int64 = 0


class ProducerTableInfo(msgspec.Struct, frozen=True):
    """
    All producers of a broker.

    @ivar data: producer group to its producers.
    """

    data: dict[str, tuple[ProducerInfo, ...]] = {}


# --- offsets and progress ---------------------------------------------------------


class TopicOffset(msgspec.Struct, frozen=True):
    """
    The ends of a queue.

    @ivar minOffset: the first message's offset.
    @ivar maxOffset: the offset that the next message gets.
    @ivar lastUpdateTimestamp: when the last message was stored.
    """

    minOffset: Int64 = 0
    maxOffset: Int64 = 0
    lastUpdateTimestamp: Int64 = 0


class TopicStatsTable(msgspec.Struct, frozen=True):
    """
    The ends of a topic's queues.

    @ivar offsetTable: queue to its ends.
    """

    offsetTable: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(msgspec.Struct, frozen=True):
    """
    A group's place in a queue.

    @ivar brokerOffset: the queue's end.
    @ivar consumerOffset: the committed offset.
    @ivar lastTimestamp: when the message before that offset was stored.
    """

    brokerOffset: Int64 = 0
    consumerOffset: Int64 = 0
    lastTimestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, frozen=True):
    """
    A group's place in all its queues at a broker.

    @ivar offsetTable: queue to place.
    @ivar consumeTps: messages a second.
    """

    offsetTable: dict[MessageQueue, OffsetWrapper] = {}
    consumeTps: float = 0.0


class ConsumeStatsList(msgspec.Struct, frozen=True):
    """
    All groups' places at a broker.

    @ivar consumeStatsList: maps of one group name to its places, one a topic.
    @ivar brokerAddr: the broker's address.
    @ivar totalDiff: how many messages all groups are behind.
    """

    consumeStatsList: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    brokerAddr: str | None = None
    totalDiff: Int64 = 0


class RollbackStats(msgspec.Struct, frozen=True):
    """
    What a reset did to one queue.

    @ivar brokerName: the broker's name.
    @ivar queueId: the queue's number.
    @ivar brokerOffset: the queue's end.
    @ivar consumerOffset: the committed offset.
    @ivar timestampOffset: the offset at the wanted time.
    @ivar rollbackOffset: the offset that was set.
    """

    brokerName: str | None = None
    queueId: Int64 = 0
    brokerOffset: Int64 = 0
    consumerOffset: Int64 = 0
    timestampOffset: Int64 = 0
    rollbackOffset: Int64 = 0


class ResetOffsetBody(msgspec.Struct, frozen=True):
    """
    The offsets from which a group goes on.

    @ivar offsetTable: queue to offset.
    """

    offsetTable: dict[MessageQueue, Int64] = {}


class MessageQueueForC(msgspec.Struct, frozen=True):
    """
    A queue and the offset from which a group goes on there.

    @ivar topic: the topic's name.
    @ivar brokerName: the broker's name.
    @ivar queueId: the queue's number.
    @ivar offset: the offset.
    """

    topic: str
    brokerName: str
    queueId: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(msgspec.Struct, frozen=True):
    """
    L{ResetOffsetBody} for those who cannot read objects as keys.

    @ivar offsetTable: the queues, a list although the name is the same.
    """

    offsetTable: tuple[MessageQueueForC, ...] = ()


class GetConsumerStatusBody(msgspec.Struct, frozen=True):
    """
    Where the clients of a group are; a client fills the first table, a broker
    the second.

    @ivar messageQueueTable: queue to offset, of the client that answers.
    @ivar consumerTable: client id to queue to offset.
    """

    messageQueueTable: dict[MessageQueue, Int64] = {}
    consumerTable: dict[str, dict[MessageQueue, Int64]] = {}


class QueryCorrectionOffsetBody(msgspec.Struct, frozen=True):
    """
    The least offsets of other groups, to compare a group with.

    @ivar correctionOffsets: queue id to offset.
    """

    correctionOffsets: dict[Int32, Int64] = {}


class QueueTimeSpan(msgspec.Struct, frozen=True):
    """
    The times of a queue's messages.  Java computes the three texts from the
    times, in the broker's time zone, and does not read them.

    @ivar messageQueue: the queue.
    @ivar minTimeStamp: when the oldest message was stored.
    @ivar maxTimeStamp: when the newest one was stored.
    @ivar consumeTimeStamp: when the last consumed one was stored.
    @ivar delayTime: how long the oldest unconsumed one has waited.
    @ivar minTimeStampStr: C{yyyy-MM-dd#HH:mm:ss:SSS} of minTimeStamp.
    @ivar maxTimeStampStr: the same of maxTimeStamp.
    @ivar consumeTimeStampStr: the same of consumeTimeStamp.
    """

    messageQueue: MessageQueue | None = None
    minTimeStamp: Int64 = 0
    maxTimeStamp: Int64 = 0
    consumeTimeStamp: Int64 = 0
    delayTime: Int64 = 0
    minTimeStampStr: str | None = None
    maxTimeStampStr: str | None = None
    consumeTimeStampStr: str | None = None


class QueryConsumeTimeSpanBody(msgspec.Struct, frozen=True):
    """
    The times of a topic's queues.

    @ivar consumeTimeSpanSet: one entry a queue; a list in spite of its name.
    """

    consumeTimeSpanSet: tuple[QueueTimeSpan, ...] = ()


class ConsumeQueueData(msgspec.Struct, frozen=True):
    """
    An entry of a consume queue.

    @ivar physicOffset: where the message is in the log.
    @ivar physicSize: its size there.
    @ivar tagsCode: the hash code of its tag.
    @ivar extendDataJson: the entry's extension, as JSON text.
    @ivar bitMap: the extension's bits.
    @ivar eval: whether the group's filter takes the message.
    @ivar msg: why it could not be tried.
    """

    physicOffset: Int64 = 0
    physicSize: Int32 = 0
    tagsCode: Int64 = 0
    extendDataJson: str | None = None
    bitMap: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(msgspec.Struct, frozen=True):
    """
    A stretch of a consume queue.

    @ivar subscriptionData: the group's subscription, where one was asked about.
    @ivar filterData: the group's filter, as JSON text; C{null} in words if none.
    @ivar queueData: the entries.
    @ivar maxQueueIndex: the queue's end.
    @ivar minQueueIndex: the queue's start.
    """

    subscriptionData: SubscriptionData | None = None
    filterData: str | None = None
    queueData: tuple[ConsumeQueueData, ...] | None = None
    maxQueueIndex: Int64 = 0
    minQueueIndex: Int64 = 0


class ConsumeByWho(msgspec.Struct, frozen=True):
    """
    Which groups have consumed a message.

    @ivar consumedGroup: those that have.
    @ivar notConsumedGroup: those that have not.
    @ivar topic: the message's topic.
    @ivar queueId: its queue.
    @ivar offset: its offset there.
    """

    consumedGroup: frozenset[str] = frozenset()
    notConsumedGroup: frozenset[str] = frozenset()
    topic: str | None = None
    queueId: Int32 = 0
    offset: Int64 = 0


class OffsetMovedEvent(msgspec.Struct, frozen=True):
    """
    The body of a message in the topic OFFSET_MOVED_EVENT: a group asked for an
    offset outside of a queue.

    @ivar consumerGroup: the consumer group.
    @ivar messageQueue: the queue.
    @ivar offsetRequest: the offset that it asked for.
    @ivar offsetNew: the offset that it was given.
    """

    consumerGroup: str | None = None
    messageQueue: MessageQueue | None = None
    offsetRequest: Int64 = 0
    offsetNew: Int64 = 0


# --- the insides of a consumer ----------------------------------------------------


class ProcessQueueInfo(msgspec.Struct, frozen=True):
    """
    A queue as a consumer sees it.

    @ivar commitOffset: the offset to commit.
    @ivar cachedMsgMinOffset: the first message in its window.
    @ivar cachedMsgMaxOffset: the last one.
    @ivar cachedMsgCount: how many there are.
    @ivar cachedMsgSizeInMiB: how large they are.
    @ivar transactionMsgMinOffset: the first message that an ordered consumer works on.
    @ivar transactionMsgMaxOffset: the last one.
    @ivar transactionMsgCount: how many there are.
    @ivar locked: whether the broker granted the queue's lock.
    @ivar tryUnlockTimes: how often giving it back failed.
    @ivar lastLockTimestamp: when the lock was last granted.
    @ivar droped: whether the queue was given up; spelt so by Java.
    @ivar lastPullTimestamp: when it was last pulled.
    @ivar lastConsumeTimestamp: when the listener last had messages of it.
    """

    commitOffset: Int64 = 0
    cachedMsgMinOffset: Int64 = 0
    cachedMsgMaxOffset: Int64 = 0
    cachedMsgCount: Int32 = 0
    cachedMsgSizeInMiB: Int32 = 0
    transactionMsgMinOffset: Int64 = 0
    transactionMsgMaxOffset: Int64 = 0
    transactionMsgCount: Int32 = 0
    locked: bool = False
    tryUnlockTimes: Int64 = 0
    lastLockTimestamp: Int64 = 0
    droped: bool = False
    lastPullTimestamp: Int64 = 0
    lastConsumeTimestamp: Int64 = 0


class ConsumeStatus(msgspec.Struct, frozen=True):
    """
    A consumer's speed at a topic.

    @ivar pullRT: milliseconds a pull.
    @ivar pullTPS: messages pulled a second.
    @ivar consumeRT: milliseconds a call of the listener.
    @ivar consumeOKTPS: messages consumed a second.
    @ivar consumeFailedTPS: messages failed a second.
    @ivar consumeFailedMsgs: messages failed in the last hour.
    """

    pullRT: float = 0.0
    pullTPS: float = 0.0
    consumeRT: float = 0.0
    consumeOKTPS: float = 0.0
    consumeFailedTPS: float = 0.0
    consumeFailedMsgs: Int64 = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True):
    """
    All that a consumer tells of itself.

    @ivar properties: its settings and C{PROP_...} entries.
    @ivar subscriptionSet: its subscriptions, sorted by C{topic@subString}.
    @ivar mqTable: queue to its state, sorted by queue.
    @ivar statusTable: topic to speed, sorted by topic.
    @ivar jstack: its threads' stacks, where they were asked for.
    """

    properties: dict[str, str] = {}
    subscriptionSet: tuple[SubscriptionData, ...] = ()
    mqTable: dict[MessageQueue, ProcessQueueInfo] = {}
    statusTable: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class CMResult(enum.Enum):
    """
    What a listener made of a message.
    """

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(msgspec.Struct, frozen=True):
    """
    What a consumer made of a message that was handed to it.

    @ivar order: whether its listener is an ordered one.
    @ivar autoCommit: whether that commits by itself.
    @ivar consumeResult: what the listener said.
    @ivar remark: the error's text, if there was one.
    @ivar spentTimeMills: how long it took.
    """

    order: bool = False
    autoCommit: bool = True
    consumeResult: CMResult | None = None
    remark: str | None = None
    spentTimeMills: Int64 = 0


# --- statistics and accounts ------------------------------------------------------


class BrokerStatsItem(msgspec.Struct, frozen=True):
    """
    A counter over a span of time.

    @ivar sum: the total.
    @ivar tps: the total a second.
    @ivar avgpt: the total a call.
    """

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(msgspec.Struct, frozen=True):
    """
    A counter over the last minute, hour and day.

    @ivar statsMinute: the last minute.
    @ivar statsHour: the last hour.
    @ivar statsDay: the last day.
    """

    statsMinute: BrokerStatsItem | None = None
    statsHour: BrokerStatsItem | None = None
    statsDay: BrokerStatsItem | None = None


class AclConfig(msgspec.Struct, frozen=True):
    """
    A broker's accounts, as the admin tool holds them.

    @ivar globalWhiteAddrs: the addresses that need no signature.
    @ivar plainAccessConfigs: the accounts.
    """

    globalWhiteAddrs: tuple[str, ...] | None = None
    plainAccessConfigs: tuple[PlainAccessConfig, ...] | None = None


class GetBrokerClusterAclConfigResponseBody(msgspec.Struct, frozen=True):
    """
    A broker's accounts, as it answers.

    @ivar globalWhiteAddrs: the addresses that need no signature.
    @ivar plainAccessConfigs: the accounts.
    """

    globalWhiteAddrs: tuple[str, ...] | None = None
    plainAccessConfigs: tuple[PlainAccessConfig, ...] | None = None


class ClusterAclVersionInfo(msgspec.Struct, frozen=True):
    """
    The versions of a broker's account files.  The admin tool makes it of the
    header that answers GET_BROKER_CLUSTER_ACL_INFO.

    @ivar brokerName: the broker's name.
    @ivar brokerAddr: the broker's address.
    @ivar aclConfigDataVersion: the version of the default file.
    @ivar allAclConfigDataVersion: file to version.
    @ivar clusterName: the cluster's name.
    """

    brokerName: str | None = None
    brokerAddr: str | None = None
    aclConfigDataVersion: DataVersion | None = None
    allAclConfigDataVersion: dict[str, DataVersion] | None = None
    clusterName: str | None = None


# --- which request carries what ------------------------------------------------------

#: Request code to the types of the request's and the response's body, for every
#: code of 4.9.7 where at least one is not a message.
BODIES: dict[int, tuple[type | None, type | None]] = {
    21: (None, TopicConfigSerializeWrapper),  # GET_ALL_TOPIC_CONFIG
    25: (Properties, None),  # UPDATE_BROKER_CONFIG
    26: (None, Properties),  # GET_BROKER_CONFIG
    28: (None, KVTable),  # GET_BROKER_RUNTIME_INFO
    34: (HeartbeatData, None),  # HEART_BEAT
    38: (None, GetConsumerListByGroupResponseBody),  # GET_CONSUMER_LIST_BY_GROUP
    41: (LockBatchRequestBody, LockBatchResponseBody),  # LOCK_BATCH_MQ
    42: (UnlockBatchRequestBody, None),  # UNLOCK_BATCH_MQ
    43: (None, ConsumerOffsetSerializeWrapper),  # GET_ALL_CONSUMER_OFFSET
    45: (None, DelayOffsetSerializeWrapper),  # GET_ALL_DELAY_OFFSET
    46: (CheckClientRequestBody, None),  # CHECK_CLIENT_CONFIG
    54: (None, GetBrokerClusterAclConfigResponseBody),  # GET_BROKER_CLUSTER_ACL_CONFIG
    # REGISTER_BROKER.  With compressed=true in its header the request is not JSON:
    # decodeRegisterBroker.  A broker before V3_0_11 sends a bare
    # TopicConfigSerializeWrapper.
    103: (RegisterBrokerBody, KVTable),
    # GET_ROUTEINFO_BY_TOPIC.  Standard JSON for peers from V4_9_4 on.
    105: (None, TopicRouteData),
    106: (None, ClusterInfo),  # GET_BROKER_CLUSTER_INFO
    200: (SubscriptionGroupConfig, None),  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    201: (None, SubscriptionGroupWrapper),  # GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    202: (None, TopicStatsTable),  # GET_TOPIC_STATS_INFO
    203: (None, ConsumerConnection),  # GET_CONSUMER_CONNECTION_LIST
    204: (None, ProducerConnection),  # GET_PRODUCER_CONNECTION_LIST
    206: (None, TopicList),  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    208: (None, ConsumeStats),  # GET_CONSUME_STATS
    219: (None, KVTable),  # GET_KVLIST_BY_NAMESPACE
    # RESET_CONSUMER_CLIENT_OFFSET.  ResetOffsetBodyForC where the one who asked for
    # the reset (not the one who is told) announced the language CPP.
    220: (ResetOffsetBody, None),
    221: (None, GetConsumerStatusBody),  # GET_CONSUMER_STATUS_FROM_CLIENT
    222: (None, ResetOffsetBody),  # INVOKE_BROKER_TO_RESET_OFFSET
    223: (None, GetConsumerStatusBody),  # INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    224: (None, TopicList),  # GET_TOPICS_BY_CLUSTER
    300: (None, GroupList),  # QUERY_TOPIC_CONSUME_BY_WHO
    303: (None, QueryConsumeTimeSpanBody),  # QUERY_CONSUME_TIME_SPAN
    304: (None, TopicList),  # GET_SYSTEM_TOPIC_LIST_FROM_NS
    305: (None, TopicList),  # GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    307: (None, ConsumerRunningInfo),  # GET_CONSUMER_RUNNING_INFO
    308: (None, QueryCorrectionOffsetBody),  # QUERY_CORRECTION_OFFSET
    # CONSUME_MESSAGE_DIRECTLY.  The request from broker to client is a record, and
    # that from the tool to the broker has none.
    309: (None, ConsumeMessageDirectlyResult),
    311: (None, TopicList),  # GET_UNIT_TOPIC_LIST
    312: (None, TopicList),  # GET_HAS_UNIT_SUB_TOPIC_LIST
    313: (None, TopicList),  # GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
    315: (None, BrokerStatsData),  # VIEW_BROKER_STATS_DATA
    317: (None, ConsumeStatsList),  # GET_BROKER_CONSUME_STATS
    318: (Properties, None),  # UPDATE_NAMESRV_CONFIG
    319: (None, Properties),  # GET_NAMESRV_CONFIG
    321: (None, QueryConsumeQueueResponseBody),  # QUERY_CONSUME_QUEUE
    322: (DataVersion, DataVersion),  # QUERY_DATA_VERSION
    328: (None, ProducerTableInfo),  # GET_ALL_PRODUCER_INFO
}
