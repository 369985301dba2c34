# SPDX-License-Identifier: Apache-2.0
"""
The largest request of every code that a broker and a name server serve: as large as its
limit allows, and about as many topics or groups as exist.

A test and a benchmark send all of them and measure how long each keeps other peers waiting.
A new code needs its largest request here; the test fails without it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.crowd import BUSY, CROWDED, SHARED, WIDE, Crowd
from txrocket.broker.settings import ClientSettings
from txrocket.filters.expressions import EXPRESSION_LIMIT
from txrocket.model import DataVersion, MessageQueue, SubscriptionGroupConfig, TopicConfig
from txrocket.processors.bodylimits import BODY_LIMIT, BODY_LIMITS
from txrocket.protocol import headers as h
from txrocket.protocol.bodies import (
    LockBatchRequestBody,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.bodies.inspect import InspectHalvesRequestHeader, InspectRequestHeader
from txrocket.protocol.bodies.registerbroker import encodeRegisterBroker
from txrocket.protocol.bodies.replication import HADemoteRequestHeader, HAPromoteRequestHeader
from txrocket.protocol.codes import InspectCode, ReplicationCode, RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.record.batch import BATCH_LIMIT, encodeItem

__all__ = ["brokerRequests", "namesrvRequests"]

_C = RequestCode

# The bit of a pull's sysFlag for a pull that carries its subscription.
_BROUGHT = 4

# Properties of nearly the largest length.
_PROPERTIES = "k\x01" + "v" * 32_000

_CLUSTER, _BROKER, _ADDRESS = "c", "b", "192.0.2.1:10911"

_Requests = Iterator[RemotingCommand]


def brokerRequests(crowd: Crowd) -> _Requests:
    """
    Requests for a broker, in an order in which each finds the objects that it needs.
    """
    yield from _sends()
    yield from _pulls()
    yield from _clients(crowd)
    yield from _offsets()
    yield from _lists()
    yield from _administration(crowd)
    yield from _roles()


def _roles() -> _Requests:
    """
    Requests about the broker's role, which take it and give it back.
    """
    yield requestCommand(ReplicationCode.HA_STATUS)
    yield requestCommand(ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(True))
    yield requestCommand(ReplicationCode.HA_PROMOTE, HAPromoteRequestHeader(True))


def _send(topic: str = SHARED, **changes: object) -> h.SendMessageRequestHeaderV2:
    header = h.SendMessageRequestHeaderV2("p", topic, "TBW102", 4, 0, 0, 1, 0)
    for name, value in changes.items():
        setattr(header, name, value)
    return header


def _sends() -> _Requests:
    body = b"x" * (4 * 1024 * 1024 - 40_000)
    long = _send(properties=_PROPERTIES)
    yield requestCommand(_C.SEND_MESSAGE_V2, long, body)
    names = h.SendMessageRequestHeader.__struct_fields__
    plain = h.SendMessageRequestHeader(**{each: getattr(long, each) for each in names})
    yield requestCommand(_C.SEND_MESSAGE, plain, body)
    batch = encodeItem(b"", b"") * BATCH_LIMIT
    yield requestCommand(_C.SEND_BATCH_MESSAGE, _send(batch=True), batch)
    filled = encodeItem(b"x" * 100, b"TAGS\x01t") * BATCH_LIMIT
    yield requestCommand(_C.SEND_BATCH_MESSAGE, _send(batch=True), filled)
    yield requestCommand(_C.SEND_REPLY_MESSAGE_V2, long, body)
    yield requestCommand(_C.SEND_REPLY_MESSAGE, plain, body)
    back = h.ConsumerSendMsgBackRequestHeader(0, BUSY, 3)
    yield requestCommand(_C.CONSUMER_SEND_MSG_BACK, back)
    yield requestCommand(_C.END_TRANSACTION, h.EndTransactionRequestHeader("p", 0, 0, 8, "m"))
    yield requestCommand(_C.RESUME_CHECK_HALF_MESSAGE)


def _pulls() -> _Requests:
    tags = "||".join(f"t{number}" for number in range(EXPRESSION_LIMIT // 6))
    for subscription, kind in (("*", "TAG"), (tags[:EXPRESSION_LIMIT], "TAG")):
        header = h.PullMessageRequestHeader(
            BUSY, SHARED, 0, 0, 32, _BROUGHT, 0, 0, 0, subscription, kind
        )
        yield requestCommand(_C.PULL_MESSAGE, header)
    yield requestCommand(_C.QUERY_MESSAGE, h.QueryMessageRequestHeader(SHARED, "k", 64, 0, 2**62))
    yield requestCommand(_C.VIEW_MESSAGE_BY_ID, h.ViewMessageRequestHeader(0))
    entries = h.QueryConsumeQueueRequestHeader(SHARED, 0, 0, 1024, CROWDED)
    yield requestCommand(_C.QUERY_CONSUME_QUEUE, entries)


def _clients(crowd: Crowd) -> _Requests:
    limit = BODY_LIMITS[_C.HEART_BEAT]
    new = [{"groupName": f"new-{number}"} for number in range(200)]
    known = [{"groupName": name} for name in crowd.groupNames()]
    most = ClientSettings().maxSubscriptionNumPerGroup
    wanted = [{"topic": f"t{number}", "subString": "*"} for number in range(most)]
    many = [{"groupName": name, "subscriptionDataSet": wanted} for name in crowd.groupNames()[:10]]
    for consumers, odd in ((new, False), (new, True), (known, False), (many, True)):
        body = {"clientID": "one", "consumerDataSet": _fitted(consumers, limit - 100)}
        data = msgspec.json.encode(body)
        assert len(data) <= limit
        # Perhaps in a form that only the reader of odd JSON takes.
        yield requestCommand(_C.HEART_BEAT, body=data.replace(b'"', b"'") if odd else data)
    gone = h.UnregisterClientRequestHeader("one", consumerGroup=BUSY)
    yield requestCommand(_C.UNREGISTER_CLIENT, gone)
    for header in (h.GetConsumerListByGroupRequestHeader, h.GetConsumerConnectionListRequestHeader):
        code = (
            _C.GET_CONSUMER_LIST_BY_GROUP
            if header is h.GetConsumerListByGroupRequestHeader
            else _C.GET_CONSUMER_CONNECTION_LIST
        )
        yield requestCommand(code, header(CROWDED))
    yield requestCommand(
        _C.GET_PRODUCER_CONNECTION_LIST, h.GetProducerConnectionListRequestHeader(BUSY)
    )
    yield requestCommand(_C.GET_ALL_PRODUCER_INFO)
    tags = "||".join(f"t{number}" for number in range(EXPRESSION_LIMIT // 6))
    check = {"subscriptionData": {"topic": SHARED, "subString": tags[:EXPRESSION_LIMIT]}}
    yield requestCommand(_C.CHECK_CLIENT_CONFIG, body=msgspec.json.encode(check))
    yield from _locks()


def _fitted(items: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """
    As many of some items as fit into a number of bytes.
    """
    size = 0
    for count, each in enumerate(items):
        size += len(msgspec.json.encode(each)) + 1
        if size > limit:
            return items[:count]
    return items


def _locks() -> _Requests:
    limit = BODY_LIMITS[_C.LOCK_BATCH_MQ]
    queues = frozenset(MessageQueue("t", "b", number) for number in range(limit // 50))
    data = encodeBody(LockBatchRequestBody(CROWDED, "one", queues))
    assert limit * 9 // 10 < len(data) <= limit
    half = frozenset(sorted(queues)[: len(queues) // 2])
    # In a form that only the reader of odd JSON takes.
    odd = encodeBody(LockBatchRequestBody(CROWDED, "one", half)).replace(b'"', b"'")
    for body in (data, odd):
        yield requestCommand(_C.LOCK_BATCH_MQ, body=body)
    yield requestCommand(InspectCode.INSPECT_LOCKS, InspectRequestHeader())
    for body in (data, odd):
        yield requestCommand(_C.UNLOCK_BATCH_MQ, body=body)


def _offsets() -> _Requests:
    queue = SHARED, 0
    for code, header in (
        (_C.QUERY_CONSUMER_OFFSET, h.QueryConsumerOffsetRequestHeader(BUSY, *queue)),
        (_C.UPDATE_CONSUMER_OFFSET, h.UpdateConsumerOffsetRequestHeader(BUSY, *queue, 0)),
        (_C.GET_MAX_OFFSET, h.GetMaxOffsetRequestHeader(*queue)),
        (_C.GET_MIN_OFFSET, h.GetMinOffsetRequestHeader(*queue)),
        (_C.SEARCH_OFFSET_BY_TIMESTAMP, h.SearchOffsetRequestHeader(*queue, 1)),
        (_C.GET_EARLIEST_MSG_STORETIME, h.GetEarliestMsgStoretimeRequestHeader(*queue)),
        (
            _C.QUERY_CORRECTION_OFFSET,
            h.QueryCorrectionOffsetHeader(BUSY, SHARED, ",".join(["g"] * 50_000)),
        ),
        (_C.CLONE_GROUP_OFFSET, h.CloneGroupOffsetRequestHeader(BUSY, "clone", offline=True)),
        (_C.INVOKE_BROKER_TO_RESET_OFFSET, h.ResetOffsetRequestHeader(WIDE, CROWDED, 1, True)),
        (
            _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            h.GetConsumerStatusRequestHeader(WIDE, CROWDED),
        ),
        (_C.QUERY_CONSUME_TIME_SPAN, h.QueryConsumeTimeSpanRequestHeader(WIDE, CROWDED)),
        (_C.QUERY_TOPIC_CONSUME_BY_WHO, h.QueryTopicConsumeByWhoRequestHeader(SHARED)),
        (_C.GET_CONSUME_STATS, h.GetConsumeStatsRequestHeader(CROWDED, WIDE)),
        (_C.GET_BROKER_CONSUME_STATS, h.GetConsumeStatsInBrokerHeader()),
        (_C.GET_TOPIC_STATS_INFO, h.GetTopicStatsInfoRequestHeader(WIDE)),
    ):
        yield requestCommand(code, header)


def _lists() -> _Requests:
    for code in (
        _C.GET_ALL_CONSUMER_OFFSET,
        _C.GET_ALL_DELAY_OFFSET,
        _C.GET_ALL_TOPIC_CONFIG,
        _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        _C.GET_BROKER_RUNTIME_INFO,
        _C.GET_BROKER_CONFIG,
    ):
        yield requestCommand(code)
    yield requestCommand(InspectCode.INSPECT_HALVES, InspectHalvesRequestHeader())
    yield requestCommand(InspectCode.INSPECT_SUBSCRIPTIONS, InspectRequestHeader())
    stats = h.ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", SHARED)
    yield requestCommand(_C.VIEW_BROKER_STATS_DATA, stats)
    told = h.GetConsumerRunningInfoRequestHeader(CROWDED, "member-0")
    yield requestCommand(_C.GET_CONSUMER_RUNNING_INFO, told, b"x" * BODY_LIMIT)
    tried = h.ConsumeMessageDirectlyResultRequestHeader(CROWDED, "member-0", "0" * 32)
    yield requestCommand(_C.CONSUME_MESSAGE_DIRECTLY, tried, b"x" * BODY_LIMIT)


def _administration(crowd: Crowd) -> _Requests:
    limit = BODY_LIMITS[_C.UPDATE_BROKER_CONFIG]
    keys = "".join(f"key{number}=1\n" for number in range(limit // 10))
    yield requestCommand(_C.UPDATE_BROKER_CONFIG, body=keys[:limit].encode())
    few = "".join(f"transactionCheckMac{number}=1\n" for number in range(90))
    yield requestCommand(_C.UPDATE_BROKER_CONFIG, body=few.encode())
    yield requestCommand(_C.UPDATE_BROKER_CONFIG, body=b"a=" + b"\\u0041" * (limit // 6 - 1))
    topic = h.CreateTopicRequestHeader("made", "TBW102", 8192, 8192, 6, "SINGLE_TAG")
    yield requestCommand(_C.UPDATE_AND_CREATE_TOPIC, topic)
    group = encodeBody(SubscriptionGroupConfig("made"))
    yield requestCommand(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.ljust(BODY_LIMIT))
    yield requestCommand(_C.DELETE_TOPIC_IN_BROKER, h.DeleteTopicRequestHeader(SHARED))
    yield requestCommand(
        _C.DELETE_SUBSCRIPTIONGROUP, h.DeleteSubscriptionGroupRequestHeader(BUSY, True)
    )
    for code in (
        _C.CLEAN_UNUSED_TOPIC,
        _C.CLEAN_EXPIRED_CONSUMEQUEUE,
        _C.DELETE_EXPIRED_COMMITLOG,
    ):
        yield requestCommand(code)


# --- a name server ---------------------------------------------------------


def namesrvRequests(crowd: Crowd) -> _Requests:
    """
    Requests for a name server, in an order in which each finds the objects that it needs.
    """
    yield from _registrations(crowd)
    for number in range(4):
        put = h.PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", f"k{number}", "v" * 200_000)
        yield requestCommand(_C.PUT_KV_CONFIG, put)
    yield requestCommand(_C.GET_KV_CONFIG, h.GetKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "k0"))
    listed = h.GetKVListByNamespaceRequestHeader("ORDER_TOPIC_CONFIG")
    yield requestCommand(_C.GET_KVLIST_BY_NAMESPACE, listed)
    gone = h.DeleteKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "k0")
    yield requestCommand(_C.DELETE_KV_CONFIG, gone)
    yield requestCommand(_C.GET_ROUTEINFO_BY_TOPIC, h.GetRouteInfoRequestHeader(SHARED))
    for code in (
        _C.GET_BROKER_CLUSTER_INFO,
        _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        _C.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        _C.GET_UNIT_TOPIC_LIST,
        _C.GET_HAS_UNIT_SUB_TOPIC_LIST,
        _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        _C.GET_NAMESRV_CONFIG,
    ):
        yield requestCommand(code)
    yield requestCommand(_C.GET_TOPICS_BY_CLUSTER, h.GetTopicsByClusterRequestHeader(_CLUSTER))
    yield requestCommand(
        _C.WIPE_WRITE_PERM_OF_BROKER, h.WipeWritePermOfBrokerRequestHeader(_BROKER)
    )
    yield requestCommand(_C.ADD_WRITE_PERM_OF_BROKER, h.AddWritePermOfBrokerRequestHeader(_BROKER))
    yield requestCommand(
        _C.DELETE_TOPIC_IN_NAMESRV, h.DeleteTopicFromNamesrvRequestHeader(SHARED, _CLUSTER)
    )
    limit = BODY_LIMITS[_C.UPDATE_NAMESRV_CONFIG]
    keys = "".join(f"key{number}=1\n" for number in range(limit // 10))
    yield requestCommand(_C.UPDATE_NAMESRV_CONFIG, body=keys[:limit].encode())
    header = h.UnRegisterBrokerRequestHeader(_BROKER, _ADDRESS, _CLUSTER, 0)
    yield requestCommand(_C.UNREGISTER_BROKER, header)


def _registrations(crowd: Crowd) -> _Requests:
    limit = BODY_LIMITS[_C.REGISTER_BROKER]
    table = crowd.topicConfigs()
    # More than the crowd: as many as the largest body holds.
    for number in range((limit - 200 * len(table)) // 180):
        name = f"more-{number:07d}"
        table[name] = TopicConfig(name, topicSysFlag=3)
    for counter, compressed in enumerate((False, True)):
        wrapper = TopicConfigSerializeWrapper(table, DataVersion(1, counter))
        body = encodeRegisterBroker(RegisterBrokerBody(wrapper), compressed)
        assert len(body) <= limit
        yield _registration(body, compressed)
        # The version that is known now: its topics are passed over.
        yield _registration(body, compressed)
    version = encodeBody(DataVersion(1, 2)).ljust(BODY_LIMIT)
    asked = h.QueryDataVersionRequestHeader(_BROKER, _ADDRESS, _CLUSTER, 0)
    yield requestCommand(_C.QUERY_DATA_VERSION, asked, version)


def _registration(body: bytes, compressed: bool) -> RemotingCommand:
    header: Header = h.RegisterBrokerRequestHeader(
        *(_BROKER, _ADDRESS, _CLUSTER, "192.0.2.1:10912", 0, compressed),
        zlib.crc32(body) & 0x7FFFFFFF,
    )
    return requestCommand(_C.REGISTER_BROKER, header, body)
