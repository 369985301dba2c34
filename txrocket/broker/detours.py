# SPDX-License-Identifier: Apache-2.0
"""
Messages that are not delivered at once: they wait in a topic of the broker's own,
and their properties tell where they belong::

    sent, sent back, committed --> Detours --> the topic itself
                                       \\--> SCHEDULE_TOPIC_XXXX  REAL_TOPIC, REAL_QID
                                                 time passes
                                       the topic itself <-- L{move}, L{deliver}

The store knows nothing of this: what it puts goes where it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import FlushDiskTimeout, InvalidMessage, MalformedRecord, StoreError
from txrocket.message import PROPERTY_REAL_QID, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.parts import PROPERTIES_LIMIT, encodeTopic, tooManyProperties
from txrocket.store.messages import Appended, MessageStore

__all__ = [
    "Detour",
    "Detours",
    "Place",
    "Put",
    "aside",
    "deliver",
    "encodeSplit",
    "move",
    "putAt",
    "realPlace",
]

_log = Logger()


class Place(NamedTuple):
    """
    Where a message goes, and what it says then.
    """

    topic: str
    queueId: int
    properties: Mapping[str, str]


#: Where a message waits; L{None} if it need not, and if its properties ask for what
#: cannot be had, L{MessageIllegal}.
Detour: TypeAlias = Callable[[Place], Place | None]


class Detours:
    """
    All ways on which a message may come late.
    """

    def __init__(self, *detours: Detour) -> None:
        """
        @param detours: asked in this order; the first that keeps a message has it.
        """
        self._detours = detours

    def place(self, topic: str, queueId: int, properties: Mapping[str, str]) -> Place:
        """
        Where a message is to be put now.

        @raise MessageIllegal: if its properties ask for what cannot be had.
        """
        wanted = Place(topic, queueId, properties)
        for detour in self._detours:
            waits = detour(wanted)
            if waits is not None:
                return waits
        return wanted


def aside(topic: str, queueId: int, place: Place) -> Place:
    """
    A place to wait, in a topic of the broker's own.

    @raise InvalidMessage: if the message could not be stored where it belongs.
    """
    encodeTopic(place.topic)
    real = {PROPERTY_REAL_TOPIC: place.topic, PROPERTY_REAL_QID: str(place.queueId)}
    return Place(topic, queueId, {**place.properties, **real})


def realPlace(message: MessageExt) -> tuple[str, int]:
    """
    The topic and the queue that a waiting message belongs to.

    @raise MalformedRecord: if it does not say.
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
    Properties that were split, as a record has them.  Other than those that are new,
    they may hold separators where these do no harm, and such a message must not be
    lost on the way.

    @raise InvalidMessage: if there are too many by now.
    """
    data = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()
    if len(data) > PROPERTIES_LIMIT:
        raise tooManyProperties(len(data))
    return data


def deliver(store: MessageStore, message: MessageExt) -> Appended:
    """
    Put a message that has waited into the topic that it belongs to.

    It keeps its properties, as in Java: also the one that had it wait, and those that
    say where it belonged.

    @raise MalformedRecord: if it does not say where it belongs.
    @raise InvalidMessage: if it cannot be stored there.
    @raise StoreError: if the store takes no messages now.
    """
    return putAt(store, message, *realPlace(message))


def putAt(store: MessageStore, message: MessageExt, topic: str, queueId: int) -> Appended:
    """
    Put a message that is in the log once more, as it is, at another place.

    @raise InvalidMessage: if it cannot be stored there.
    @raise StoreError: if the store takes no messages now.
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


#: Puts a message that has waited to where it goes now.
Put: TypeAlias = Callable[[MessageExt], Appended]


@inlineCallbacks
def move(
    store: MessageStore, places: Sequence[tuple[int, int]], put: Put
) -> Generator[Deferred[Any], None, tuple[int, StoreError | None]]:
    """
    Put messages that have waited to where they go now.

    What is not there any more, or can never be put, is passed over.

    @param places: their offsets in the log, and sizes.
    @return: a Deferred of how many, from the first on, need not be moved again; and
        why not all.
    """
    # Where the log ends with each of them, or with the one before it.
    ends: list[int] = []
    losses = store.losses
    error: StoreError | None = None
    try:
        for message in store.messages(places):
            ends.append(_movedOne(message, put) or (ends[-1] if ends else 0))
            if store.losses != losses:
                break
    except StoreError as failed:
        error = failed
    if store.losses == losses:
        try:
            if ends and ends[-1]:
                yield store.stored(ends[-1])
            return len(ends), error
        except FlushDiskTimeout:
            # They are in the files, and there for consumers already.
            return len(ends), error
        except StoreError as failed:
            error = failed
    # Some are lost, and who asks for them now would wait for ever.  The first may have
    # been written with a file that they filled.
    error = error or store.settle(losses)
    written = store.written.offset
    return sum(1 for end in ends if end <= written), error


def _movedOne(message: MessageExt | None, put: Put) -> int:
    """
    @return: where the message ends in the log; 0 if it is not put, ever.
    @raise StoreError: if the store takes no messages now.
    """
    if message is None:
        return 0
    try:
        return put(message).end
    except (InvalidMessage, MalformedRecord) as error:
        _log.error(
            "The message {id} is not delivered: {error}", id=message.offsetMsgId, error=error
        )
        return 0
