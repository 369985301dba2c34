# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered later, by one of the levels of C{messageDelayLevel}; Java's
C{ScheduleMessageService}::

    DELAY=3 --> SCHEDULE_TOPIC_XXXX, queue 2 --> due --> the topic itself
                    ^                              |
                    delayOffset.json: {3: offset} -+

All messages of a level wait equally long, so those of its queue are due in its order,
and one timer for the first of them is enough.  The entry of each holds the time at
which it is due.

A level's offset is written to C{delayOffset.json} only once all that was delivered
before it is on the disk.  So a crash may have messages delivered twice, and never
has one lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.detours import Place, aside, deliver
from txrocket.broker.kept import Kept
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedRecord,
    MessageIllegal,
    StoreError,
)
from txrocket.message import PROPERTY_DELAY, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.store.flush import InThread
from txrocket.store.follow import SCHEDULE_TOPIC
from txrocket.store.messages import MessageStore
from txrocket.store.tables import Table

__all__ = ["DelayLevels"]

# Messages that are delivered at once: what is more waits for the next turn of the
# reactor, in which others have theirs.
_BATCH: Final = 128

# How long to wait, in seconds, before the store is tried again that took nothing.
_PATIENCE: Final = 1.0

_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"


class DelayLevels:
    """
    The delay levels of a broker.

    @ivar offsets: how far each level has been delivered.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        store: MessageStore,
        table: Table,
        inThread: InThread,
        delays: Sequence[int],
        delivered: Callable[[str, int, int], None],
    ) -> None:
        """
        @param table: C{delayOffset.json}.
        @param delays: the delays in milliseconds; level 1 is the first.
        @param delivered: told the topic, number and size of what was delivered.
        """
        self._clock = clock
        self._store = store
        self._delays = delays
        self._delivered = delivered
        self.offsets: dict[int, int] = {}
        self._safe: dict[int, int] = {}
        self._kept = Kept(
            table, lambda: encodeBody(DelayOffsetSerializeWrapper(self._safe)), inThread
        )
        self._timers: dict[int, IDelayedCall] = {}
        self._delivering: set[int] = set()
        self._running = False

    # --- messages that come ------------------------------------------------

    def detour(self, place: Place) -> Place | None:
        """
        Where a message waits that asks for a level.

        @raise MessageIllegal: if what it asks for is no number.
        """
        text = place.properties.get(PROPERTY_DELAY)
        if text is None:
            return None
        try:
            level = min(int(text), len(self._delays))
        except ValueError:
            raise MessageIllegal(f"delay level {text[:20]!r} is no number") from None
        if level <= 0:
            return None
        # It is due when it was stored so long ago, and that will be now or later.
        self._watch(level, self._delays[level - 1] / 1000)
        properties = {**place.properties, PROPERTY_DELAY: str(level)}
        return aside(SCHEDULE_TOPIC, level - 1, place._replace(properties=properties))

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Read C{delayOffset.json}.

        @raise StoreCorrupt: if it cannot be read.
        """
        saved = self._kept.load(lambda data: decodeBody(DelayOffsetSerializeWrapper, data))
        if saved is not None:
            self.offsets = dict(saved.offsetTable)
            self._safe = dict(saved.offsetTable)

    def start(self) -> None:
        """
        Begin to deliver, once the store is open.
        """
        self._running = True
        for level, offset in self.offsets.items():
            self._correct(level, offset)
        self.look()

    def stop(self) -> None:
        """
        Deliver nothing more.
        """
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def look(self) -> None:
        """
        See to levels that have messages nobody waits for: on a start, or because a
        full disk kept them from their queue when they came.
        """
        for level in range(1, len(self._delays) + 1):
            if self.offsets.get(level, 0) < self._store.maxOffset(SCHEDULE_TOPIC, level - 1):
                self._watch(level, 0)

    def save(self) -> Deferred[None]:
        """
        Write the offsets, if they have changed, once what was delivered is on the
        disk.  A failure is logged: they are written the next time.

        @return: a Deferred that fires once nothing is being written.
        """
        reached = dict(self.offsets)
        if reached == self._safe:
            return self._kept.idle()

        def flushed(none: None) -> Deferred[None]:
            self._safe = reached
            return self._kept.save()

        return maybeDeferred(self._store.flushed).addCallback(flushed).addErrback(self._kept.failed)

    # --- delivering --------------------------------------------------------

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _watch(self, level: int, seconds: float) -> None:
        if self._running and level not in self._timers and level not in self._delivering:
            self._timers[level] = self._clock.callLater(seconds, self._look, level)

    def _look(self, level: int) -> None:
        del self._timers[level]
        if level in self._delivering:
            return
        try:
            self._deliver(level)
        except StoreError as error:
            self._later(level, error)

    def _later(self, level: int, error: object) -> None:
        self._log.error(
            "Messages of delay level {level} come late, the next try is in {seconds} s: {error}",
            level=level,
            seconds=_PATIENCE,
            error=error,
        )
        self._watch(level, _PATIENCE)

    def _correct(self, level: int, offset: int) -> int:
        """
        Where to go on: messages may have become too old, or be gone after a crash.
        """
        low = self._store.minOffset(SCHEDULE_TOPIC, level - 1)
        high = self._store.maxOffset(SCHEDULE_TOPIC, level - 1)
        corrected = min(max(offset, low), high)
        if corrected != offset:
            self._log.warn(
                "Delay level {level} was delivered up to {offset}, its queue has {low} to {high}:"
                " it goes on at {corrected}",
                level=level,
                offset=offset,
                low=low,
                high=high,
                corrected=corrected,
            )
            self.offsets[level] = corrected
        return corrected

    def _deliver(self, level: int) -> None:
        """
        Deliver what is due of a level, and wait for what is not.
        """
        offset = self._correct(level, self.offsets.get(level, 0))
        now = self._now()
        due: list[tuple[int, int]] = []
        for at, size, when in self._store.entries(SCHEDULE_TOPIC, level - 1, offset, _BATCH):
            # As Java: what would wait longer than its level, because the clock was set
            # back or the levels were changed, waits no more.
            left = when - now
            if 0 < left <= self._delays[level - 1]:
                if not due:
                    self._watch(level, left / 1000)
                break
            due.append((at, size))
        if due:
            self._put(level, offset, due)

    def _put(self, level: int, offset: int, due: list[tuple[int, int]]) -> None:
        end, error = 0, None
        messages = self._store.messages(due)
        for message in messages:
            try:
                end = self._putOne(message) or end
            except StoreError as failed:
                error = failed
                break
            offset += 1
        if error is not None:
            self._later(level, error)
        if end:
            self._delivering.add(level)
            self._store.stored(end).addBoth(self._stored, level, offset)
        elif error is None:
            self.offsets[level] = offset
            self._watch(level, 0)

    def _putOne(self, message: MessageExt | None) -> int | None:
        """
        @return: where the message ends in the log; L{None} if it cannot be delivered,
            ever.
        @raise StoreError: if the store takes no messages now.
        """
        if message is None:
            return None
        try:
            if message.properties.get(PROPERTY_REAL_TOPIC) == _HALF_TOPIC:
                # Java 4.9.7 lets halves be delayed, and then drops them here.
                raise InvalidMessage("half of a transaction is not delivered")
            appended = deliver(self._store, message, [PROPERTY_DELAY])
        except (InvalidMessage, MalformedRecord) as error:
            self._log.error(
                "The delayed message {id} is not delivered: {error}",
                id=message.offsetMsgId,
                error=error,
            )
            return None
        self._delivered(message.properties[PROPERTY_REAL_TOPIC], 1, appended.sizes[0])
        return appended.end

    def _stored(self, result: Failure | None, level: int, offset: int) -> None:
        self._delivering.discard(level)
        # A disk that is slow has the messages in its files, and they are there for
        # consumers already.
        if isinstance(result, Failure) and not result.check(FlushDiskTimeout):
            result.trap(StoreError)
            self._later(level, result.getErrorMessage())
            return
        self.offsets[level] = offset
        self._watch(level, 0)
