# SPDX-License-Identifier: Apache-2.0
"""
Messages that are parked in a system topic before the broker delivers them.  Their
properties name their real topic and queue::

    sent, sent back, committed --> Reroutes --> the topic itself
                                       \\--> SCHEDULE_TOPIC_XXXX  REAL_TOPIC, REAL_QID
                                                 time passes
                                       the topic itself <-- L{deliverAll}, L{deliver}

The store knows nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import FlushDiskTimeout, InvalidMessage, MalformedRecord, StoreError
from txrocket.message import PROPERTY_REAL_QID, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.record.fields import PROPERTIES_LIMIT, encodeTopic, tooManyProperties
from txrocket.store.log.write import Write
from txrocket.store.messagestore import Appended, MessageStore

__all__ = [
    "Destination",
    "Put",
    "Reroute",
    "Reroutes",
    "appendTo",
    "deliver",
    "deliverAll",
    "encodeSplit",
    "parkIn",
    "realDestination",
]

_log = Logger()


class Destination(NamedTuple):
    """
    The topic and queue that a message is appended to, and its properties there.
    """

    topic: str
    queueId: int
    properties: Mapping[str, str]


#: Where a message is parked; L{None} if it need not be.  Raises L{MessageIllegal} if its
#: properties ask for a delay that the broker cannot give.
Reroute: TypeAlias = Callable[[Destination], Destination | None]


class Reroutes:
    """
    Decides whether a message is parked, and where.
    """

    def __init__(self, *reroutes: Reroute) -> None:
        """
        @param reroutes: asked in this order; the first that parks a message decides.
        """
        self._reroutes = reroutes

    def place(self, topic: str, queueId: int, properties: Mapping[str, str]) -> Destination:
        """
        Where a message is appended now.

        @raise MessageIllegal: if its properties ask for a delay that the broker cannot give.
        """
        wanted = Destination(topic, queueId, properties)
        for reroute in self._reroutes:
            waits = reroute(wanted)
            if waits is not None:
                return waits
        return wanted


def parkIn(topic: str, queueId: int, place: Destination) -> Destination:
    """
    Park a message in a system topic.

    @raise InvalidMessage: if the message could not be stored in its real topic.
    """
    encodeTopic(place.topic)
    real = {PROPERTY_REAL_TOPIC: place.topic, PROPERTY_REAL_QID: str(place.queueId)}
    return Destination(topic, queueId, {**place.properties, **real})


def realDestination(message: MessageExt) -> tuple[str, int]:
    """
    The real topic and queue of a parked message.

    @raise MalformedRecord: if its properties do not name them.
    """
    topic = message.properties.get(PROPERTY_REAL_TOPIC)
    queueId = message.properties.get(PROPERTY_REAL_QID, "")
    # Not int() alone, which takes more than Java does.
    if not topic or not (queueId.isascii() and queueId.isdecimal()):
        raise MalformedRecord(
            f"the message at {message.commitLogOffset} in topic {message.topic} does not say"
            " which topic and queue it belongs to"
        )
    return topic, int(queueId)


def encodeSplit(properties: Mapping[str, str]) -> bytes:
    """
    Properties of a stored message, as a record has them.  Unlike the properties of a new
    message they may hold separators, because such a message must not be lost.

    @raise InvalidMessage: if they are too long.
    """
    data = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()
    if len(data) > PROPERTIES_LIMIT:
        raise tooManyProperties(len(data))
    return data


def deliver(store: MessageStore, message: MessageExt) -> Appended:
    """
    Append a parked message to its real topic.

    As in Java, it keeps its properties: its delay, its real topic and its real queue.

    @raise MalformedRecord: if its properties do not name its real topic.
    @raise InvalidMessage: if it cannot be stored there.
    @raise StoreError: if the store accepts no messages now.
    """
    return appendTo(store, message, *realDestination(message))


def appendTo(store: MessageStore, message: MessageExt, topic: str, queueId: int) -> Appended:
    """
    Append a message of the log once more, unchanged, to another queue.

    @raise InvalidMessage: if it cannot be stored there.
    @raise StoreError: if the store accepts no messages now.
    """
    return store.put(
        topic,
        queueId,
        message.body,
        message.propertiesData,
        message.bornTimestamp,
        message.bornHostData,
        message.flag,
        message.sysFlag,
        message.reconsumeTimes,
    )


#: Appends a parked message to its next queue.
Put: TypeAlias = Callable[[MessageExt], Appended]


@inlineCallbacks
def deliverAll(
    store: MessageStore, places: Sequence[tuple[int, int]], put: Put
) -> Generator[Deferred[Any], None, tuple[int, StoreError | None]]:
    """
    Append parked messages to their next queues.

    A message that does not exist any more, or can never be appended, is skipped.

    @param places: their offsets in the log, and sizes.
    @return: a Deferred of how many, from the first on, are delivered; and the error that
        stopped the rest.
    """
    # A message that is skipped shares the write of the message before it.
    writes: list[Write] = []
    write, end = Write(), 0
    write.isWritten = True
    error: StoreError | None = None
    try:
        for message in store.messages(places):
            appended = _deliverOne(message, put)
            if appended is not None:
                write, end = appended.write, appended.end
            writes.append(write)
            if write.error is not None:
                break
    except StoreError as failed:
        error = failed
    lost = next((each.error for each in writes if each.error is not None), None)
    if lost is not None:
        # stored() would wait for the message that gets the lost one's place in the log.
        error = error or lost
    elif end:
        try:
            yield store.stored(end)
        except FlushDiskTimeout:
            # The messages are in the files, and consumers see them already.
            pass
        except StoreError as failed:
            error = failed
    return sum(1 for _ in takewhile(attrgetter("isWritten"), writes)), error


def _deliverOne(message: MessageExt | None, put: Put) -> Appended | None:
    """
    @return: L{None} if the message is skipped.
    @raise StoreError: if the store accepts no messages now.
    """
    if message is None:
        return None
    try:
        return put(message)
    except (InvalidMessage, MalformedRecord) as error:
        _log.error(
            "The message {id} is not delivered: {error}", id=message.offsetMsgId, error=error
        )
        return None
