# SPDX-License-Identifier: Apache-2.0
"""
The requests of tests over real sockets, and the values in their answers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
from twisted.internet.defer import Deferred

from txrocket.message import Message, MessageExt
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.record import decodeRecords, encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.remoting.peers import Peers

__all__ = [
    "COMMIT",
    "SUSPEND",
    "Pulled",
    "commit",
    "committed",
    "pull",
    "query",
    "sendBatch",
    "sendOne",
]

# Bits of a pull's sysFlag.
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

# The seconds after which an answer counts as lost.
LIMIT = 120.0


def _sending(
    code: RequestCode, topic: str, queueId: int, properties: str, body: bytes
) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producerGroup="senders",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queueId,
        sysFlag=0,
        bornTimestamp=int(time.time() * 1000),
        flag=0,
        properties=properties,
        reconsumeTimes=0,
        unitMode=False,
        batch=code is RequestCode.SEND_BATCH_MESSAGE,
    )
    return requestCommand(code, header, body)


def sendOne(
    peers: Peers,
    address: str,
    topic: str,
    queueId: int,
    body: bytes,
    properties: dict[str, str] | None = None,
) -> Deferred[RemotingCommand]:
    """
    Send a message.
    """
    text = encodeProperties(properties or {}).decode()
    command = _sending(RequestCode.SEND_MESSAGE_V2, topic, queueId, text, body)
    return peers.request(address, command, LIMIT)


def sendBatch(
    peers: Peers, address: str, topic: str, queueId: int, messages: Sequence[Message]
) -> Deferred[RemotingCommand]:
    """
    Send several messages at once.
    """
    body = encodeBatch(messages)
    command = _sending(RequestCode.SEND_BATCH_MESSAGE, topic, queueId, "", body)
    return peers.request(address, command, LIMIT)


@attrs.frozen
class Pulled:
    """
    The answer to a pull.
    """

    code: int
    remark: str | None
    nextOffset: int
    maxOffset: int
    messages: Sequence[MessageExt]


async def pull(
    peers: Peers,
    address: str,
    topic: str,
    queueId: int,
    offset: int,
    *,
    count: int = 32,
    flags: int = 0,
    hold: float = 15.0,
    commitOffset: int = 0,
    tags: str = "*",
    group: str = "pullers",
    limit: float = LIMIT,
) -> Pulled:
    """
    Pull messages.

    @param hold: the seconds that the broker may hold it, with L{SUSPEND}.
    @param commitOffset: the group's offset, with L{COMMIT}.
    """
    header = PullMessageRequestHeader(
        consumerGroup=group,
        topic=topic,
        queueId=queueId,
        queueOffset=offset,
        maxMsgNums=count,
        sysFlag=flags | SUBSCRIPTION,
        commitOffset=commitOffset,
        suspendTimeoutMillis=int(hold * 1000),
        subVersion=0,
        subscription=tags,
        expressionType="TAG",
    )
    answer = await peers.request(address, requestCommand(RequestCode.PULL_MESSAGE, header), limit)
    if "nextBeginOffset" not in answer.extFields:
        return Pulled(answer.code, answer.remark, -1, -1, ())
    told = answer.decodeHeader(PullMessageResponseHeader)
    messages = decodeRecords(answer.body) if answer.code == ResponseCode.SUCCESS else ()
    return Pulled(answer.code, answer.remark, told.nextBeginOffset, told.maxOffset, messages)


async def commit(
    peers: Peers, address: str, group: str, topic: str, queueId: int, offset: int
) -> None:
    """
    Commit a group's offset.
    """
    header = UpdateConsumerOffsetRequestHeader(group, topic, queueId, offset)
    command = requestCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    answer = await peers.request(address, command, LIMIT)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def committed(peers: Peers, address: str, group: str, topic: str, queueId: int) -> int:
    """
    A group's offset; -1 if it has none.
    """
    header = QueryConsumerOffsetRequestHeader(group, topic, queueId)
    command = requestCommand(RequestCode.QUERY_CONSUMER_OFFSET, header)
    answer = await peers.request(address, command, LIMIT)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return -1
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset


async def query(peers: Peers, address: str, topic: str, key: str) -> Sequence[MessageExt]:
    """
    The messages that have a key.
    """
    header = QueryMessageRequestHeader(topic, key, 32, 0, 2**63 - 1)
    command = requestCommand(RequestCode.QUERY_MESSAGE, header)
    answer = await peers.request(address, command, LIMIT)
    return decodeRecords(answer.body) if answer.code == ResponseCode.SUCCESS else ()
