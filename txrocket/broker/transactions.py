# SPDX-License-Identifier: Apache-2.0
"""
Halves of transactions, as Java's C{TransactionalMessageBridge} keeps them::

    TRAN_MSG=true --> RMQ_SYS_TRANS_HALF_TOPIC, queue 0: REAL_TOPIC, REAL_QID
                           |
        decided            |  RMQ_SYS_TRANS_OP_HALF_TOPIC: "d", its queue offset
        checked once more  |  the same, and a copy of it at the end of its queue,
                           |      TRANSACTION_CHECK_TIMES one higher
        checked enough     '  the same, and a copy in TRANS_CHECK_MAX_TIME_TOPIC

A committed message is put before the op, and a copy of a half before the op for
what it is a copy of.  The log keeps its order, so that a crash between the two has
something done once more, and never has it forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from txrocket.broker.decisions import HALF_TOPIC, OP_TOPIC, Decisions
from txrocket.broker.detours import Place, aside, encodeSplit, realPlace
from txrocket.broker.topics import Topics
from txrocket.errors import MalformedRecord, MessageIllegal, RemoteSystemError
from txrocket.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PGROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRAN_PREPARED_QUEUE_OFFSET,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    MessageExt,
)
from txrocket.protocol.parts import PROPERTIES_LIMIT
from txrocket.protocol.record import decodeRecord
from txrocket.store.messages import Appended, MessageStore

__all__ = ["CHECK_MAX_TOPIC", "Pending", "Transactions", "checksOf", "immunityOf", "originOf"]

#: Where a half goes that was checked as often as it may be.
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# The tag of all ops: a half is dealt with.
_REMOVE: Final = "d"

# What a copy says beside its half: two names, a number of 10 digits, one of 19, and
# the separators.
_ROOM: Final = (
    len(PROPERTY_TRANSACTION_CHECK_TIMES + PROPERTY_TRAN_PREPARED_QUEUE_OFFSET) + 10 + 19 + 4
)


class Pending(NamedTuple):
    """
    An undecided half.

    @ivar queueOffset: its place in the queue of the halves.
    @ivar msgId: the id that its producer gave it.
    @ivar offsetMsgId: the broker's, by which it can be looked up.
    @ivar topic: where it goes if it is committed.
    @ivar group: the producers that are asked about it.
    @ivar checks: how often they were.
    @ivar age: since it was born, in milliseconds.
    """

    queueOffset: int
    msgId: str
    offsetMsgId: str
    topic: str
    group: str
    bornTimestamp: int
    checks: int
    age: int


def checksOf(half: MessageExt) -> int:
    """
    How often producers were asked about a half.
    """
    return _number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)) or 0


def originOf(half: MessageExt) -> int | None:
    """
    The queue offset of the half that another is a copy of, by way of however many
    copies.
    """
    return _number(half.properties.get(PROPERTY_TRAN_PREPARED_QUEUE_OFFSET))


def immunityOf(half: MessageExt) -> int | None:
    """
    How old a half wants to be before anybody is asked, in milliseconds; L{None} if it
    does not say.
    """
    seconds = _number(half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS))
    return None if seconds is None else seconds * 1000


def _number(text: str | None) -> int | None:
    if text is None or len(text) > 19 or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


class Transactions:
    """
    The halves of a broker.

    @ivar decisions: which of them are decided.
    """

    def __init__(
        self, store: MessageStore, topics: Topics, storeHost: bytes, now: Callable[[], int]
    ) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        @param now: the time in milliseconds.
        """
        self._store = store
        self._topics = topics
        self._storeHost = storeHost
        self._now = now
        self.decisions = Decisions(store)

    # --- halves --------------------------------------------------------------

    def half(self, place: Place) -> Place:
        """
        Where a message waits until it is known whether it counts.

        @raise MessageIllegal: if that could never be known.
        """
        if not place.properties.get(PROPERTY_PGROUP):
            raise MessageIllegal("half of a transaction has to name its producer group, PGROUP")
        properties = dict(place.properties)
        # Who sends on what it has consumed may send these along, and they would speak
        # of another half.
        properties.pop(PROPERTY_TRANSACTION_CHECK_TIMES, None)
        properties.pop(PROPERTY_TRAN_PREPARED_QUEUE_OFFSET, None)
        waiting = aside(HALF_TOPIC, 0, place._replace(properties=properties))
        size = len(encodeSplit(waiting.properties))
        if size + _ROOM > PROPERTIES_LIMIT:
            raise MessageIllegal(
                f"properties of {size} bytes leave no room for those of a transaction:"
                f" {PROPERTIES_LIMIT - _ROOM} are allowed, with the broker's own"
            )
        self._topics.ensure(HALF_TOPIC, 1)
        return waiting

    def find(self, commitLogOffset: int, *topics: str) -> MessageExt:
        """
        The half at an offset of the log.

        @param topics: the topics that it may be in.
        @raise RemoteSystemError: if there is none.
        """
        record = self._store.messageAt(commitLogOffset)
        if record is None:
            raise RemoteSystemError(f"there is no message at {commitLogOffset}")
        try:
            half = decodeRecord(record)
            if half.topic in topics:
                realPlace(half)
                return half
        except MalformedRecord as error:
            raise RemoteSystemError(str(error)) from None
        raise RemoteSystemError(
            f"the message at {commitLogOffset}, of topic {half.topic}, is no half of a transaction"
        )

    def pending(self, most: int, offset: int = 0) -> list[Pending]:
        """
        The first undecided halves.  Those that were decided within the last moments may
        be among them.

        @param offset: in the queue of the halves, to begin there; what is next after
            the last of an answer has the answer go on.
        @raise StoreError: if the disk does not give them.
        """
        decisions, now = self.decisions, self._now()
        decisions.read()
        found: list[Pending] = []
        while len(found) < most:
            halves = decisions.halves(offset, decisions.end)
            if not halves:
                break
            for queueOffset, half in halves[: most - len(found)]:
                offset = queueOffset + 1
                if half is not None and not self.isDecided(half):
                    found.append(_pending(half, now))
        return found

    def isDecided(self, half: MessageExt) -> bool:
        """
        Whether an undecided half is a copy of one that was decided since.
        """
        origin = originOf(half)
        return origin is not None and self.decisions.isLate(origin)

    # --- what becomes of them --------------------------------------------------

    def decided(self, half: MessageExt) -> int:
        """
        A half is committed or rolled back, and what that entails was put.

        @return: where all of that ends in the log.
        @raise StoreError: if the store takes no messages now.
        """
        end = self.done(half)
        origin = originOf(half)
        if origin is not None:
            # Further copies may have been made of it, by now or before a crash.
            end = self._putOp(origin, {})
        return end

    def done(self, half: MessageExt) -> int:
        """
        There is nothing more to be done about a half: what it is a copy of is decided.

        @return: where that ends in the log.
        @raise StoreError: if the store takes no messages now.
        """
        return self._putOp(half.queueOffset, {})

    def again(self, half: MessageExt, checks: int | None = None) -> tuple[MessageExt, int]:
        """
        Put a half at the end of its queue, and be done with it where it was.

        @param checks: how often its producers were asked by now, if that has changed.
        @return: the half as it is there, and where all of that ends in the log.
        @raise InvalidMessage: if that is not possible.
        @raise StoreError: if the store takes no messages now.
        """
        origin = originOf(half)
        properties = dict(half.properties)
        if checks is not None:
            properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks)
        properties[PROPERTY_TRAN_PREPARED_QUEUE_OFFSET] = str(
            half.queueOffset if origin is None else origin
        )
        copy = replace(half, propertiesData=encodeSplit(properties))
        appended = self._put(HALF_TOPIC, copy)
        copy = replace(
            copy,
            topic=HALF_TOPIC,
            queueOffset=appended.queueOffset,
            commitLogOffset=appended.offset,
            storeHostData=self._storeHost,
        )
        return copy, self._moved(half) or appended.end

    def giveUp(self, half: MessageExt) -> int:
        """
        Put a half where an operator can find it, and be done with it.

        @return: where all of that ends in the log.
        @raise InvalidMessage: if that is not possible.
        @raise StoreError: if the store takes no messages now.
        """
        self._topics.ensure(CHECK_MAX_TOPIC, 1)
        appended = self._put(CHECK_MAX_TOPIC, half)
        return self._moved(half) or appended.end

    def _moved(self, half: MessageExt) -> int | None:
        if half.topic != HALF_TOPIC:
            return None
        checks = str(checksOf(half))
        return self._putOp(half.queueOffset, {PROPERTY_TRANSACTION_CHECK_TIMES: checks})

    def _put(self, topic: str, half: MessageExt) -> Appended:
        return self._store.put(
            topic,
            0,
            half.body,
            half.propertiesData,
            half.bornTimestamp,
            half.bornHostData,
            half.flag,
            half.sysFlag,
            half.reconsumeTimes,
        )

    def _putOp(self, queueOffset: int, properties: dict[str, str]) -> int:
        return self._store.put(
            OP_TOPIC,
            0,
            b"%d" % queueOffset,
            encodeSplit({PROPERTY_TAGS: _REMOVE, **properties}),
            self._now(),
            self._storeHost,
        ).end


def _pending(half: MessageExt, now: int) -> Pending:
    return Pending(
        half.queueOffset,
        half.msgId,
        half.offsetMsgId,
        half.properties.get(PROPERTY_REAL_TOPIC, ""),
        half.properties.get(PROPERTY_PGROUP, ""),
        half.bornTimestamp,
        checksOf(half),
        max(0, now - half.bornTimestamp),
    )
