# SPDX-License-Identifier: Apache-2.0
"""
Lookups of messages, by key, by offset in the log, and by entry of a queue.

============================== ================================================
request                        its processor in Java
============================== ================================================
QUERY_MESSAGE                  QueryMessageProcessor: by key or unique id
VIEW_MESSAGE_BY_ID             QueryMessageProcessor: by offset in the log
QUERY_CONSUME_QUEUE            AdminBrokerProcessor: a queue's entries
============================== ================================================
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from txrocket.broker.clients.consumers import Consumers
from txrocket.errors import RemoteSystemError
from txrocket.message import PROPERTY_UNIQ_KEY
from txrocket.protocol.bodies import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from txrocket.protocol.record import decodeRecord
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messagestore import MessageStore
from txrocket.store.queue.entry import entries

__all__ = ["QueryProcessor"]

# The field that says that a key is a unique id.
_UNIQUE = "_UNIQUE_KEY_QUERY"

# How many entries of a queue are listed at a time; Java's tool asks for ten.
_MOST_ENTRIES = 1024


class QueryProcessor:
    """
    Serves lookups of messages.
    """

    def __init__(
        self,
        store: MessageStore,
        consumers: Consumers,
        filterOf: Callable[[str, str], str] = lambda group, topic: "null",
    ) -> None:
        """
        @param filterOf: a group's filter for a topic, as JSON.
        """
        self._store = store
        self._consumers = consumers
        self._filterOf = filterOf

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.QUERY_MESSAGE: self.byKey,
            RequestCode.VIEW_MESSAGE_BY_ID: self.byId,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue,
        }

    @inlineCallbacks
    def byKey(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """
        The messages that have a key, or a unique id.
        """
        header = request.decodeHeader(QueryMessageRequestHeader)
        most = header.maxNum
        if request.extFields.get(_UNIQUE) == "true":
            most = self._store.settings.defaultQueryMaxNum
        records, timestamp, offset = yield self._store.search(
            header.topic, header.key, header.beginTimestamp, header.endTimestamp, most
        )
        reach = QueryMessageResponseHeader(timestamp, offset)
        found = b"".join(each for each in records if _has(each, header.topic, header.key))
        if not found:
            return responseCommand(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of {header.topic} between the two times has the key {header.key}",
                reach,
            )
        return responseCommand(header=reach, body=found)

    def byId(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The message at an offset of the log, which is a part of its id.

        @raise RemoteSystemError: if there is no message at the offset.
        """
        offset = request.decodeHeader(ViewMessageRequestHeader).offset
        record = self._store.messageAt(offset)
        if record is None:
            raise RemoteSystemError(f"there is no message at the offset {offset}")
        return responseCommand(body=record)

    def queue(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Entries of a queue.

        @raise RemoteSystemError: if the queue does not exist.
        """
        header = request.decodeHeader(QueryConsumeQueueRequestHeader)
        topic, queueId, index = header.topic or "", header.queueId, header.index
        queue = self._store.queues.get(topic, queueId)
        if queue is None:
            raise RemoteSystemError(f"topic {topic} has no queue {queueId}")
        if not queue.minOffset <= index < queue.maxOffset:
            # As Java: SUCCESS without a body.
            return responseCommand(remark=f"queue {queueId} of {topic} has no entry {index}")
        subscription = filterData = None
        if header.consumerGroup is not None:
            subscription = self._consumers.subscription(header.consumerGroup, topic)
            filterData = (
                self._filterOf(header.consumerGroup, topic)
                if subscription is not None
                else f"no consumer of {header.consumerGroup} that wants {topic} is connected"
            )
        data = queue.read(index, min(header.count, _MOST_ENTRIES))
        body = QueryConsumeQueueResponseBody(
            subscription,
            filterData,
            tuple(ConsumeQueueData(*each) for each in entries(data)),
            queue.maxOffset,
            queue.minOffset,
        )
        return responseCommand(body=encodeBody(body))


def _has(data: bytes, topic: str, key: str) -> bool:
    """
    Whether a record has a key: the index has only the hash of topic and key.
    """
    record = decodeRecord(data, readBody=False)
    return record.topic == topic and (
        key in record.keys or record.properties.get(PROPERTY_UNIQ_KEY) == key
    )
