# SPDX-License-Identifier: Apache-2.0
"""
What is written down of messages that are sent and consumed: Java's
C{SendMessageTraceHookImpl}, C{ConsumeMessageTraceHookImpl} and
C{EndTransactionTraceHookImpl}::

    send answered  --> Pub                       the broker says whether it wants to know
    listener       --> SubBefore, SubAfter       the message says so
    transaction    --> EndTransaction

As in Java there is nothing of a message that no broker has confirmed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

from zope.interface import implementer

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.consumehooks import Consuming, IConsumeMessageHook
from txrocket.client.producer.producer import ISendMessageHook, Producer
from txrocket.client.producer.sendcontext import Sending
from txrocket.client.sansio.results import SendResult, SendStatus
from txrocket.client.trace.dispatcher import MAX_BODY, Traces
from txrocket.message import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TRACE_ON,
    PROPERTY_TRAN_MSG,
    PROPERTY_UNIQ_KEY,
    Message,
    MessageExt,
)
from txrocket.protocol.names import GROUP_LIMIT
from txrocket.protocol.tracebodies import (
    DEFAULT_REGION,
    ConsumeReturnType,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
)

__all__ = ["ConsumeTrace", "SendTrace", "consumeTrace", "sendTrace"]

# The group of the producer that sends traces, and how much of the member's group it has.
_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_MOST: Final = GROUP_LIMIT - 50

# Of a message with traces, in seconds.
_TIMEOUT: Final = 5.0

# Properties of a message that is delivered later: by a level, and at a time.
_LATER: Final = (
    PROPERTY_DELAY,
    "__STARTDELIVERTIME",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _type(message: Message) -> MessageType:
    properties = message.properties
    if any(each in properties for each in _LATER):
        return MessageType.Delay_Msg
    if properties.get(PROPERTY_TRAN_MSG) == "true":
        return MessageType.Trans_Msg_Half
    return MessageType.Normal_Msg


def _wanted(message: Message | MessageExt) -> bool:
    return message.properties.get(PROPERTY_TRACE_ON) != "false"


def _region(message: Message | MessageExt) -> str:
    return message.properties.get(PROPERTY_MSG_REGION) or DEFAULT_REGION


def _keys(message: Message | MessageExt) -> str | None:
    # Java fails to read a record that ends with keys which are empty, but not with none.
    return message.properties.get(PROPERTY_KEYS) or None


@implementer(ISendMessageHook)
class SendTrace:
    """
    Writes down what a producer sends.
    """

    name = "trace"

    def __init__(self, traces: Traces, group: str, cluster: Cluster) -> None:
        self.traces = traces
        self._group = group
        self._cluster = cluster

    def beforeSend(self, sending: Sending) -> None:
        """
        Nothing is known yet.
        """

    def afterSend(self, sending: Sending) -> None:
        """
        A message was sent, or was not.
        """
        result = sending.result
        if result is None or not result.traceOn or not self.traces.covers(sending.topic):
            return
        cost = _milliseconds(self._cluster.reactor.seconds() - sending.began)
        # Not where it was tried last, if another broker was to have it as well.
        address = self._cluster.routes.address(result.messageQueue.brokerName)
        for message, msgId, offsetMsgId, size in _each(sending, result):
            self.traces.add(
                Pub(
                    timeStamp=sending.born,
                    regionId=result.regionId or DEFAULT_REGION,
                    groupName=self._group,
                    topic=sending.topic,
                    msgId=msgId,
                    tags=message.properties.get(PROPERTY_TAGS),
                    keys=_keys(message),
                    storeHost=address or sending.address,
                    bodyLength=size,
                    costTime=cost,
                    msgType=_type(message),
                    offsetMsgId=offsetMsgId,
                    success=result.sendStatus is SendStatus.SEND_OK,
                )
            )

    def ended(
        self,
        message: Message | MessageExt,
        msgId: str,
        address: str | None,
        state: str,
        result: SendResult | None = None,
    ) -> None:
        """
        A transaction has ended, and the broker is about to be told.

        @param address: the broker's.
        @param state: a name of
            L{LocalTransactionState<txrocket.client.producer.transaction.LocalTransactionState>}.
        @param result: what became of the half message; L{None} if a broker has asked.
        """
        wanted = _wanted(message) if result is None else result.traceOn
        if not wanted or not self.traces.covers(message.topic):
            return
        region = None if result is None else result.regionId
        self.traces.add(
            EndTransaction(
                timeStamp=self._cluster.now(),
                regionId=region or _region(message),
                groupName=self._group,
                topic=message.topic,
                msgId=msgId,
                tags=message.properties.get(PROPERTY_TAGS),
                keys=_keys(message),
                storeHost=address,
                msgType=MessageType.Trans_msg_Commit,
                transactionId=message.properties.get(PROPERTY_UNIQ_KEY),
                transactionState=state,
                fromTransactionCheck=result is None,
            )
        )


def _each(sending: Sending, result: SendResult) -> Iterator[tuple[Message, str, str, int]]:
    """
    The messages of a send, with their two ids and the sizes of their bodies.

    Of a batch Java makes one trace, under the ids of all with commas between them, where no
    query finds it.
    """
    message = sending.message
    if isinstance(message, Message):
        yield message, result.msgId, result.offsetMsgId, len(sending.body)
        return
    offsets = result.offsetMsgId.split(",")
    for index, (each, msgId) in enumerate(zip(message, result.msgId.split(","), strict=True)):
        yield each, msgId, offsets[index] if index < len(offsets) else "", len(each.body)


@implementer(IConsumeMessageHook)
class ConsumeTrace:
    """
    Writes down what a consumer is given.
    """

    name = "trace"

    def __init__(
        self, traces: Traces, uniqueId: Callable[[], str], timeOf: Callable[[float], int]
    ) -> None:
        """
        @param uniqueId: makes an id for a call.
        @param timeOf: the time of day in milliseconds, for seconds of the reactor's clock.
        """
        self.traces = traces
        self._timeOf = timeOf
        self._uniqueId = uniqueId
        self._requestIds: dict[Consuming, str] = {}

    def beforeConsume(self, consuming: Consuming) -> None:
        """
        A listener is about to be given messages.
        """
        requestId = self._requestIds[consuming] = self._uniqueId()
        began = self._timeOf(consuming.began)
        for message in consuming.messages:
            if self._covers(message):
                self.traces.add(
                    SubBefore(
                        timeStamp=began,
                        regionId=_region(message),
                        groupName=consuming.group,
                        requestId=requestId,
                        msgId=message.msgId,
                        retryTimes=message.reconsumeTimes,
                        keys=_keys(message),
                    )
                )

    def afterConsume(self, consuming: Consuming) -> None:
        """
        A listener was given messages.
        """
        assert consuming.ended is not None and consuming.status is not None
        requestId = self._requestIds.pop(consuming)
        ended = self._timeOf(consuming.ended)
        cost = _milliseconds(consuming.ended - consuming.began) // len(consuming.messages)
        for index, message in enumerate(consuming.messages):
            if self._covers(message):
                done = index < consuming.done
                status = consuming.status
                if done and status is ConsumeReturnType.FAILED:
                    status = ConsumeReturnType.SUCCESS
                self.traces.add(
                    SubAfter(
                        requestId=requestId,
                        msgId=message.msgId,
                        costTime=cost,
                        success=done,
                        keys=_keys(message),
                        contextCode=status,
                        timeStamp=ended,
                        groupName=consuming.group,
                    )
                )

    def _covers(self, message: MessageExt) -> bool:
        return self.traces.covers(message.topic) and _wanted(message)


def sendTrace(cluster: Cluster, group: str, topic: str | bool) -> SendTrace:
    """
    What writes down what a producer sends.

    @param topic: where to; L{True} for RocketMQ's own.
    @raise InvalidMessage: if nothing can be sent to that topic.
    """
    return SendTrace(_traces(cluster, group, topic, "PRODUCE"), group, cluster)


def consumeTrace(cluster: Cluster, group: str, topic: str | bool) -> ConsumeTrace:
    """
    The same of what a consumer is given.
    """
    return ConsumeTrace(_traces(cluster, group, topic, "CONSUME"), cluster.uniqueId, cluster.timeOf)


def _traces(cluster: Cluster, group: str, topic: str | bool, kind: str) -> Traces:
    def produce() -> Producer:
        # Named as Java names it, whose number counts all of a process.
        names = (f"{_PREFIX}-{group[:_MOST]}-{kind}-{number}" for number in itertools.count(1))
        name = next(each for each in names if each not in cluster.producers)
        return Producer(cluster, name, timeout=_TIMEOUT, maxMessageSize=MAX_BODY)

    return Traces(cluster.reactor, topic, produce)
