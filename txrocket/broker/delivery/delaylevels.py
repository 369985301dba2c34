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

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.delivery.deliverytime import withoutTimes
from txrocket.broker.delivery.reroute import Destination, deliver, deliverAll, parkIn
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.errors import InvalidMessage, MessageIllegal, StoreError
from txrocket.message import PROPERTY_DELAY, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.flush.flusher import InThread
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import Appended, MessageStore

__all__ = ["DelayLevels"]

# Messages that are delivered in one turn, and their bytes.  The rest waits for the next
# turn, so that other work has its share.
_BATCH: Final = 128
_BATCH_SIZE: Final = 1024 * 1024

# Seconds until the next attempt, if the store refuses messages.
_PATIENCE: Final = 1.0

_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"


class _Level:
    """
    One level.

    @ivar delay: in milliseconds.
    @ivar timer: fires when its first message is due.
    @ivar busy: whether messages of it are being delivered.
    @ivar limit: a queue offset, and the latest time at which all messages before it are
        due.
    @ivar failing: whether the last try to deliver failed.
    """

    __slots__ = ("busy", "delay", "failing", "limit", "number", "timer")

    def __init__(self, number: int, delay: int) -> None:
        self.number = number
        self.delay = delay
        self.timer: IDelayedCall | None = None
        self.busy = False
        self.limit = 0, 0
        self.failing = False

    def left(self, offset: int, end: int, when: int, now: int) -> int:
        """
        How many milliseconds a message still has to wait.

        From now on no message waits longer than the delay of its level.  It would do so if
        the clock was set back or the levels were changed after it was stored.  The store's
        times never go back, so that also holds for a while for new messages.  Java delivers
        such a message at once, which may be too early.

        @param offset: its queue offset.
        @param end: the queue offset of the next message.
        """
        left = when - now
        if left <= self.delay:
            return left
        before, latest = self.limit
        if offset >= before:
            before, latest = end, now + self.delay
        self.limit = before, min(latest, now + self.delay)
        return self.limit[1] - now


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
        @param delivered: called with the topic, number and size of delivered messages.
        """
        self._clock = clock
        self._store = store
        self._levels = [_Level(number, delay) for number, delay in enumerate(delays, 1)]
        self._delivered = delivered
        self.offsets: dict[int, int] = {}
        self._table: FlushedTable[DelayOffsetSerializeWrapper] = FlushedTable(
            store, table, inThread
        )
        self._running = False

    # --- parking -----------------------------------------------------------

    def reroute(self, place: Destination) -> Destination | None:
        """
        Where a message with a delay level is parked.

        @raise MessageIllegal: if the level is not a number.
        """
        text = place.properties.get(PROPERTY_DELAY)
        if text is None:
            return None
        try:
            number = min(int(text), len(self._levels))
        except ValueError:
            raise MessageIllegal(f"delay level {text[:20]!r} is no number") from None
        if number <= 0:
            return None
        level = self._levels[number - 1]
        # It will be stored now or later, so it is not due before this.
        self._watch(level, level.delay / 1000)
        # As in 5.x, a level takes precedence over a time.
        properties = {**withoutTimes(place.properties), PROPERTY_DELAY: str(number)}
        return parkIn(SCHEDULE_TOPIC, number - 1, place._replace(properties=properties))

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Read C{delayOffset.json}.

        @raise StoreCorrupt: if it cannot be read.
        """
        saved = self._table.load(DelayOffsetSerializeWrapper)
        if saved is not None:
            self.offsets = dict(saved.offsetTable)

    def start(self) -> None:
        """
        Begin to deliver: the store is open.
        """
        self._running = True
        for level in self._levels:
            self._correct(level.number)
        self.look()

    def stop(self) -> None:
        """
        Deliver no more.
        """
        self._running = False
        for level in self._levels:
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None

    def look(self) -> None:
        """
        Set the timers of all levels that have messages.  That is needed at start, after a
        full disk has delayed the dispatch of messages, and after the clock was set.
        """
        for level in self._levels:
            end = self._store.maxOffset(SCHEDULE_TOPIC, level.number - 1)
            if self.offsets.get(level.number, 0) < end:
                self._watch(level, 0)

    def save(self) -> Deferred[None]:
        """
        Write the offsets, if they have changed, once the delivered messages are on the
        disk.  A failure is logged, and the next call writes them.

        @return: a Deferred that fires once nothing is being written.
        """
        if not self.offsets:
            return succeed(None)
        return self._table.save(DelayOffsetSerializeWrapper(dict(self.offsets)))

    def adopt(self, offsets: Mapping[int, int]) -> None:
        """
        Take over how far the master has delivered each level.  L{save} writes it.
        """
        self.offsets = dict(offsets)

    def needed(self) -> int:
        """
        Where in the log the first parked message lies.
        """
        offsets = self.offsets
        found = [
            self._store.placeOf(SCHEDULE_TOPIC, each.number - 1, offsets.get(each.number, 0))
            for each in self._levels
        ]
        return min([self._store.log.written, *(each for each in found if each is not None)])

    def runtime(self) -> dict[str, object]:
        """
        The offset up to which each level is delivered, and the end of its queue.
        """
        return {
            f"scheduleMessageOffset_{number}": (
                f"{offset},{self._store.maxOffset(SCHEDULE_TOPIC, number - 1)}"
            )
            for number, offset in self.offsets.items()
        }

    # --- delivering --------------------------------------------------------

    def _watch(self, level: _Level, seconds: float) -> None:
        if level.timer is not None:
            # The sooner of the two counts, because the clock may have been set.
            if level.timer.getTime() > self._clock.seconds() + seconds:
                level.timer.reset(seconds)
        elif self._running and not level.busy:
            level.timer = self._clock.callLater(seconds, self._look, level)

    def _look(self, level: _Level) -> None:
        level.timer = None
        try:
            # A message of this turn is in its queue only once it is written, and no other
            # part writes it now.
            self._store.write()
            self._deliver(level)
        except StoreError as error:
            self._later(level, error)

    def _later(self, level: _Level, error: StoreError) -> None:
        if not level.failing:
            level.failing = True
            self._log.error(
                "Messages of delay level {number} are late, the broker tries again every"
                " {seconds} s: {error}",
                number=level.number,
                seconds=_PATIENCE,
                error=error,
            )
        self._watch(level, _PATIENCE)

    def _correct(self, number: int) -> int:
        """
        The offset to go on at, within the queue: messages may be deleted, or lost in a
        crash.
        """
        offset = self.offsets.get(number, 0)
        low = self._store.minOffset(SCHEDULE_TOPIC, number - 1)
        high = self._store.maxOffset(SCHEDULE_TOPIC, number - 1)
        corrected = min(max(offset, low), high)
        if corrected != offset:
            self._log.warn(
                "Delay level {number} is delivered up to {offset}, its queue has {low} to {high}:"
                " it goes on at {corrected}",
                number=number,
                offset=offset,
                low=low,
                high=high,
                corrected=corrected,
            )
            self.offsets[number] = corrected
        return corrected

    def _deliver(self, level: _Level) -> None:
        """
        Deliver the due messages of a level, and set the timer for the next.
        """
        queueId = level.number - 1
        start = self._correct(level.number)
        end = self._store.maxOffset(SCHEDULE_TOPIC, queueId)
        now = self._store.now()
        due: list[tuple[int, int]] = []
        size = 0
        entries = self._store.mended(SCHEDULE_TOPIC, queueId, start, _BATCH)
        for offset, (at, length, when) in enumerate(entries, start):
            left = level.left(offset, end, when, now)
            if left > 0:
                if not due:
                    self._watch(level, left / 1000)
                break
            size += length
            if due and size > _BATCH_SIZE:
                break
            due.append((at, length))
        if due:
            level.busy = True
            moving = deliverAll(self._store, due, self._deliverOne)
            moving.addCallback(self._moved, level, start)
            moving.addErrback(self._broke, level)

    def _deliverOne(self, message: MessageExt) -> Appended:
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        if topic == _HALF_TOPIC:
            # Java 4.9.7 parks delayed halves, and then drops them here.
            raise InvalidMessage("half of a transaction is not delivered")
        appended = deliver(self._store, message)
        self._delivered(topic, 1, appended.sizes[0])
        return appended

    def _broke(self, failure: Failure, level: _Level) -> None:
        # An unexpected error: the next look() tries again.
        level.busy = False
        self._log.failure("Delivering delay level {number} failed", failure, number=level.number)

    def _moved(self, result: tuple[int, StoreError | None], level: _Level, start: int) -> None:
        count, error = result
        level.busy = False
        if count:
            self.offsets[level.number] = start + count
        if error is not None:
            self._later(level, error)
            return
        level.failing = False
        self._watch(level, 0)
