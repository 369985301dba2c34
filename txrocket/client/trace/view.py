# SPDX-License-Identifier: Apache-2.0
"""
What became of a message, as clients have written it down; what C{mqadmin
queryMsgTraceById} shows::

    reader = TraceReader(cluster)
    trace = await reader.byId(result.msgId)
    trace.sent                  # by whom, when, how long it took
    trace.consumed["billing"]   # each time that a listener was given it

A trace takes half a second to be written, and a moment more to be found.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import attrs
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.puller import readable
from txrocket.client.querymessage import MOST, queryMessages
from txrocket.errors import ProtocolError
from txrocket.message import MessageExt
from txrocket.protocol.tracebodies import (
    TRACE_TOPIC,
    ConsumeReturnType,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    decodeTraces,
    traceKeys,
)

__all__ = ["MessageTrace", "TraceReader", "TracedConsume", "TracedEnd", "TracedSend", "tracesIn"]


@attrs.frozen
class TracedSend:
    """
    A message was sent.  Times are in seconds.

    @ivar group: the producer's.
    @ivar host: its address.
    @ivar time: when it began, since 1970.
    @ivar cost: how long it took.
    @ivar success: whether it is as safe as the broker should have made it.
    @ivar broker: the address that it was sent to.
    @ivar bodyLength: how many bytes, which may have been compressed.
    """

    group: str
    host: str
    time: float
    cost: float
    success: bool
    broker: str
    bodyLength: int
    msgType: MessageType
    offsetMsgId: str


@attrs.frozen
class TracedConsume:
    """
    A listener was given a message.  Times are in seconds.

    @ivar host: the consumer's address.
    @ivar began: when it was called, since 1970, if that is known.
    @ivar ended: when it was done, if it is and that is known.
    @ivar cost: how long it took, for each message of the call; L{None} if it is not
        done yet, or never was.
    @ivar success: whether the listener consumed the message.
    @ivar status: what came of it, if the consumer says so.
    @ivar retryTimes: how often the message had come again.
    """

    group: str
    host: str
    began: float | None
    ended: float | None = None
    cost: float | None = None
    success: bool | None = None
    status: ConsumeReturnType | None = None
    retryTimes: int | None = None


@attrs.frozen
class TracedEnd:
    """
    The transaction of a half message has ended.

    @ivar group: the producer's.
    @ivar host: its address.
    @ivar time: when, in seconds since 1970.
    @ivar state: C{COMMIT_MESSAGE}, C{ROLLBACK_MESSAGE} or C{UNKNOW}.
    @ivar checked: whether a broker had asked.
    """

    group: str
    host: str
    time: float
    state: str
    checked: bool


@attrs.frozen
class MessageTrace:
    """
    The traces of a message.

    @ivar topic: if the sender wrote a trace, as is C{tags}.
    @ivar sent: each time that it was sent.
    @ivar consumed: each time that a listener was given it, by group.
    @ivar ended: each time that its transaction ended.
    """

    msgId: str
    topic: str | None = None
    tags: str | None = None
    keys: tuple[str, ...] = ()
    sent: tuple[TracedSend, ...] = ()
    consumed: Mapping[str, tuple[TracedConsume, ...]] = attrs.field(factory=dict, hash=False)
    ended: tuple[TracedEnd, ...] = ()


class TraceReader:
    """
    Finds out what became of messages.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        topic: str = TRACE_TOPIC,
        *,
        most: int = MOST,
        timeout: float | None = None,
    ) -> None:
        """
        @param topic: where clients write traces.
        @param most: how many messages with traces to ask each broker for.
        @param timeout: of the brokers, in seconds.
        """
        self._cluster = cluster
        self._topic = topic
        self._most = most
        self._timeout = timeout

    @inlineCallbacks
    def byId(self, msgId: str) -> Generator[Deferred[Any], Any, MessageTrace | None]:
        """
        The traces of a message.

        @param msgId: the id that its sender gave it.
        @return: a Deferred, of L{None} if nothing is known, which fails as that of
            L{queryMessages<txrocket.client.querymessage.queryMessages>}.
        """
        found = yield self._find(msgId)
        return next((each for each in found if each.msgId == msgId), None)

    @inlineCallbacks
    def byKey(self, key: str) -> Generator[Deferred[Any], Any, list[MessageTrace]]:
        """
        The traces of all messages that have a key, in the order of their first records.
        """
        found = yield self._find(key)
        return [each for each in found if key in each.keys]

    @inlineCallbacks
    def _find(self, key: str) -> Generator[Deferred[Any], Any, list[MessageTrace]]:
        messages = yield queryMessages(
            self._cluster, self._topic, key, self._most, timeout=self._timeout
        )
        records: list[tuple[Trace, str]] = []
        for message in messages:
            try:
                records += tracesIn(message)
            except ProtocolError as error:
                self._log.warn(
                    "The traces in {msgId} cannot be read: {error}",
                    msgId=message.msgId,
                    error=error,
                )
        return _told([each for each in records if key in traceKeys(each[0])])


def tracesIn(message: MessageExt) -> list[tuple[Trace, str]]:
    """
    The records in a message of the trace topic, and the address of their writer.

    @raise ProtocolError: if they cannot be read.
    """
    host = message.bornHost[0]
    return [(each, host) for each in decodeTraces(readable(message).body)]


def _told(records: Iterable[tuple[Trace, str]]) -> list[MessageTrace]:
    """
    The content of records, message by message.
    """
    messages: dict[str, list[tuple[Trace, str]]] = {}
    # What was sent twice, because an answer was lost, happened once.
    for record in dict.fromkeys(records):
        messages.setdefault(record[0].msgId or "", []).append(record)
    return [_message(msgId, each) for msgId, each in messages.items()]


def _message(msgId: str, records: list[tuple[Trace, str]]) -> MessageTrace:
    sent: list[TracedSend] = []
    ended: list[TracedEnd] = []
    topic = tags = None
    keys: dict[str, None] = {}
    for trace, host in records:
        keys |= dict.fromkeys(traceKeys(trace)[1:])
        if isinstance(trace, Pub | EndTransaction):
            topic, tags = trace.topic or None, trace.tags or None
        if isinstance(trace, Pub):
            sent.append(_sent(trace, host))
        elif isinstance(trace, EndTransaction):
            ended.append(
                TracedEnd(
                    group=trace.groupName or "",
                    host=host,
                    time=trace.timeStamp / 1000,
                    state=trace.transactionState,
                    checked=trace.fromTransactionCheck,
                )
            )
    return MessageTrace(
        msgId,
        topic,
        tags,
        tuple(keys),
        tuple(sorted(sent, key=lambda each: each.time)),
        _consumed(records),
        tuple(sorted(ended, key=lambda each: each.time)),
    )


def _sent(trace: Pub, host: str) -> TracedSend:
    return TracedSend(
        group=trace.groupName or "",
        host=trace.clientHost or host,
        time=trace.timeStamp / 1000,
        cost=trace.costTime / 1000,
        success=trace.success,
        broker=trace.storeHost or "",
        bodyLength=trace.bodyLength,
        msgType=trace.msgType,
        offsetMsgId=trace.offsetMsgId or "",
    )


def _consumed(records: list[tuple[Trace, str]]) -> dict[str, tuple[TracedConsume, ...]]:
    """
    The calls of listeners, by group: the records from before and after each belong
    together, and either may be missing.
    """
    calls: dict[str | None, TracedConsume] = {}
    # Those before come first, wherever they were found.
    for trace, host in sorted(records, key=lambda each: isinstance(each[0], SubAfter)):
        if isinstance(trace, SubBefore):
            calls[trace.requestId] = TracedConsume(
                group=trace.groupName or "",
                host=host,
                began=trace.timeStamp / 1000,
                retryTimes=trace.retryTimes,
            )
        elif isinstance(trace, SubAfter):
            call = calls.get(trace.requestId) or TracedConsume(trace.groupName or "", host, None)
            calls[trace.requestId] = attrs.evolve(
                call,
                ended=None if trace.timeStamp is None else trace.timeStamp / 1000,
                cost=trace.costTime / 1000,
                success=trace.success,
                status=_status(trace),
            )
    groups: dict[str, list[TracedConsume]] = {}
    for call in sorted(calls.values(), key=lambda each: each.began or each.ended or 0.0):
        groups.setdefault(call.group, []).append(call)
    return {group: tuple(each) for group, each in groups.items()}


def _status(trace: SubAfter) -> ConsumeReturnType | None:
    try:
        status = ConsumeReturnType(trace.contextCode)
    except ValueError:
        return None
    # A consumer that gives no status is read as SUCCESS, whatever it was.
    return None if status is ConsumeReturnType.SUCCESS and not trace.success else status
