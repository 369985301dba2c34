# SPDX-License-Identifier: Apache-2.0
"""
Messages that are not delivered at once: they wait in a topic of the broker's own,
and their properties tell where they belong::

    sent, sent back, committed --> Detours --> the topic itself
                                       \\--> SCHEDULE_TOPIC_XXXX  REAL_TOPIC, REAL_QID
                                                 time passes
                                       the topic itself <-- L{deliver}

The store knows nothing of this: what it puts goes where it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from txrocket.errors import MalformedRecord
from txrocket.message import PROPERTY_REAL_QID, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.parts import PROPERTIES_LIMIT, encodeTopic, tooManyProperties
from txrocket.store.messages import Appended, MessageStore

__all__ = ["Detour", "Detours", "Place", "aside", "deliver", "encodeSplit", "realPlace"]


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


def deliver(store: MessageStore, message: MessageExt, without: Iterable[str]) -> Appended:
    """
    Put a message that has waited into the topic that it belongs to.

    @param without: properties that have had their effect.
    @raise MalformedRecord: if it does not say where it belongs.
    @raise InvalidMessage: if it cannot be stored there.
    @raise StoreError: if the store takes no messages now.
    """
    topic, queueId = realPlace(message)
    properties = dict(message.properties)
    for name in without:
        properties.pop(name, None)
    return store.put(
        topic,
        queueId,
        message.body,
        encodeSplit(properties),
        message.bornTimestamp,
        message.bornHostData,
        message.flag,
        message.sysFlag,
        message.reconsumeTimes,
        message.preparedTransactionOffset,
    )
