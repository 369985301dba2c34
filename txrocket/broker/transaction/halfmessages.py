# SPDX-License-Identifier: Apache-2.0
"""
Half messages of transactions, as Java's C{TransactionalMessageBridge} stores them::

    TRAN_MSG=true --> RMQ_SYS_TRANS_HALF_TOPIC, queue 0: REAL_TOPIC, REAL_QID
                           |
        decided            |  RMQ_SYS_TRANS_OP_HALF_TOPIC: "d", its queue offset
        checked once more  |  the same, and a copy of it at the end of its queue,
                           |      TRANSACTION_CHECK_TIMES one higher
        checked enough     '  the same, and a copy in TRANS_CHECK_MAX_TIME_TOPIC

A committed message is appended before its op, and a copy of a half before the op of that
half.  After a crash between the two, the broker does the same again, and forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from txrocket.broker.delivery.reroute import Destination, encodeSplit, parkIn, realDestination
from txrocket.broker.tables.topics import Topics
from txrocket.broker.transaction.opmessages import HALF_TOPIC, OP_TOPIC, OpMessages
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
from txrocket.protocol.record import decodeRecord
from txrocket.protocol.record.fields import PROPERTIES_LIMIT
from txrocket.store.messagestore import Appended, MessageStore

__all__ = ["CHECK_MAX_TOPIC", "HalfMessages", "WaitingHalf", "checksOf", "immunityOf", "originOf"]

#: The topic of halves that were checked C{transactionCheckMax} times.
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# The tag of all ops: nothing more is to be done about a half.
_REMOVE: Final = "d"

# The size of the properties that a copy has more than its half: two names, numbers of 10
# and 19 digits, and separators.
_ROOM: Final = (
    len(PROPERTY_TRANSACTION_CHECK_TIMES + PROPERTY_TRAN_PREPARED_QUEUE_OFFSET) + 10 + 19 + 4
)


class WaitingHalf(NamedTuple):
    """
    An undecided half.

    @ivar queueOffset: its offset in the queue of the halves.
    @ivar msgId: the producer's id.
    @ivar offsetMsgId: the broker's id, for lookups.
    @ivar topic: its real topic.
    @ivar group: the producer group that is asked about it.
    @ivar checks: how often producers were asked.
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
    The queue offset of the original half of a copy; L{None} if it is not a copy.
    """
    return _number(half.properties.get(PROPERTY_TRAN_PREPARED_QUEUE_OFFSET))


def immunityOf(half: MessageExt) -> int | None:
    """
    The age at which a half asks to be checked first, in milliseconds; L{None} if it does
    not say.
    """
    seconds = _number(half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS))
    return None if seconds is None else seconds * 1000


def _number(text: str | None) -> int | None:
    if text is None or len(text) > 19 or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


class HalfMessages:
    """
    The half messages of a broker.

    @ivar opMessages: knows which of them are decided.
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
        self.opMessages = OpMessages(store)

    # --- halves --------------------------------------------------------------

    def half(self, place: Destination) -> Destination:
        """
        Where a half message is parked until it is decided.

        @raise MessageIllegal: if it has no producer group, or no room for the properties of
            a transaction.
        """
        if not place.properties.get(PROPERTY_PGROUP):
            raise MessageIllegal("half of a transaction has to name its producer group, PGROUP")
        properties = dict(place.properties)
        # A client that forwards a consumed message may send these along, and they refer to
        # another half.
        properties.pop(PROPERTY_TRANSACTION_CHECK_TIMES, None)
        properties.pop(PROPERTY_TRAN_PREPARED_QUEUE_OFFSET, None)
        waiting = parkIn(HALF_TOPIC, 0, place._replace(properties=properties))
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
        @raise RemoteSystemError: if there is no half at the offset.
        """
        record = self._store.messageAt(commitLogOffset)
        if record is None:
            raise RemoteSystemError(f"there is no message at {commitLogOffset}")
        try:
            half = decodeRecord(record)
            if half.topic in topics:
                realDestination(half)
                return half
        except MalformedRecord as error:
            raise RemoteSystemError(str(error)) from None
        raise RemoteSystemError(
            f"the message at {commitLogOffset}, of topic {half.topic}, is no half of a transaction"
        )

    def pending(self, most: int, offset: int = 0) -> list[WaitingHalf]:
        """
        The first undecided halves.  Some may have been decided within the last moments.

        @param offset: in the queue of the halves, to begin there; what is next after
            the last of an answer has the answer go on.
        @raise StoreError: if the disk does not give them.
        """
        opMessages, now = self.opMessages, self._now()
        opMessages.read()
        found: list[WaitingHalf] = []
        while len(found) < most:
            halves = opMessages.halves(offset, opMessages.end)
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
        return origin is not None and self.opMessages.isLate(origin)

    # --- what becomes of them --------------------------------------------------

    def decided(self, half: MessageExt) -> int:
        """
        Append the op of a half that is committed or rolled back.

        @return: where that ends in the log.
        @raise StoreError: if the store accepts no messages now.
        """
        end = self.done(half)
        origin = originOf(half)
        if origin is not None:
            # There may be more copies, from now or from before a crash.
            end = self._appendOp(origin, {})
        return end

    def done(self, half: MessageExt) -> int:
        """
        Append the op of a half that needs no more checks.

        @return: where that ends in the log.
        @raise StoreError: if the store accepts no messages now.
        """
        return self._appendOp(half.queueOffset, {})

    def again(self, half: MessageExt, checks: int | None = None) -> tuple[MessageExt, int]:
        """
        Append a copy of a half to its queue, and the op of the half itself.

        @param checks: how often producers were asked, if that has changed.
        @return: the copy, and where all of that ends in the log.
        @raise InvalidMessage: if the copy cannot be stored.
        @raise StoreError: if the store accepts no messages now.
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
        Append a half to L{CHECK_MAX_TOPIC}, for an operator, and its op.

        @return: where all of that ends in the log.
        @raise InvalidMessage: if it cannot be stored there.
        @raise StoreError: if the store accepts no messages now.
        """
        self._topics.ensure(CHECK_MAX_TOPIC, 1)
        appended = self._put(CHECK_MAX_TOPIC, half)
        return self._moved(half) or appended.end

    def _moved(self, half: MessageExt) -> int | None:
        if half.topic != HALF_TOPIC:
            return None
        checks = str(checksOf(half))
        return self._appendOp(half.queueOffset, {PROPERTY_TRANSACTION_CHECK_TIMES: checks})

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

    def _appendOp(self, queueOffset: int, properties: dict[str, str]) -> int:
        return self._store.put(
            OP_TOPIC,
            0,
            b"%d" % queueOffset,
            encodeSplit({PROPERTY_TAGS: _REMOVE, **properties}),
            self._now(),
            self._storeHost,
        ).end


def _pending(half: MessageExt, now: int) -> WaitingHalf:
    return WaitingHalf(
        half.queueOffset,
        half.msgId,
        half.offsetMsgId,
        half.properties.get(PROPERTY_REAL_TOPIC, ""),
        half.properties.get(PROPERTY_PGROUP, ""),
        half.bornTimestamp,
        checksOf(half),
        max(0, now - half.bornTimestamp),
    )
