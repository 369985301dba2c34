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

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.detours import Place, aside, deliver, move
from txrocket.broker.reached import Reached
from txrocket.broker.times import withoutTimes
from txrocket.errors import InvalidMessage, MessageIllegal, StoreError
from txrocket.message import PROPERTY_DELAY, PROPERTY_REAL_TOPIC, MessageExt
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper
from txrocket.store.flush import InThread
from txrocket.store.follow import SCHEDULE_TOPIC
from txrocket.store.messages import Appended, MessageStore
from txrocket.store.tables import Table

__all__ = ["DelayLevels"]

# Messages that are delivered at once, and their bytes: what is more waits for the next
# turn of the reactor, in which others have theirs.
_BATCH: Final = 128
_BATCH_SIZE: Final = 1024 * 1024

# How long to wait, in seconds, before the store is tried again that took nothing.
_PATIENCE: Final = 1.0

_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"


class _Level:
    """
    One level.

    @ivar delay: in milliseconds.
    @ivar timer: when its first message is to be looked at.
    @ivar busy: whether messages of it are being delivered.
    @ivar limit: a queue offset, and the time at which all before it are due at the
        latest.
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
        How many milliseconds a message has to wait yet.

        No message waits longer than its level from now on.  One that would was stored
        before the clock was set back, or the levels were changed; and for a while also
        those that come then, for times of the store never go back.  Java delivers such
        a message at once, which may be too early.

        @param offset: its queue offset.
        @param end: that of the message which will come next.
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
        @param delivered: told the topic, number and size of what was delivered.
        """
        self._clock = clock
        self._store = store
        self._levels = [_Level(number, delay) for number, delay in enumerate(delays, 1)]
        self._delivered = delivered
        self.offsets: dict[int, int] = {}
        self._reached: Reached[DelayOffsetSerializeWrapper] = Reached(store, table, inThread)
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
            number = min(int(text), len(self._levels))
        except ValueError:
            raise MessageIllegal(f"delay level {text[:20]!r} is no number") from None
        if number <= 0:
            return None
        level = self._levels[number - 1]
        # It is due when it was stored so long ago, and that will be now or later.
        self._watch(level, level.delay / 1000)
        # As in 5.x, a level counts more than a time.
        properties = {**withoutTimes(place.properties), PROPERTY_DELAY: str(number)}
        return aside(SCHEDULE_TOPIC, number - 1, place._replace(properties=properties))

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Read C{delayOffset.json}.

        @raise StoreCorrupt: if it cannot be read.
        """
        saved = self._reached.load(DelayOffsetSerializeWrapper)
        if saved is not None:
            self.offsets = dict(saved.offsetTable)

    def start(self) -> None:
        """
        Begin to deliver, once the store is open.
        """
        self._running = True
        for level in self._levels:
            self._correct(level.number)
        self.look()

    def stop(self) -> None:
        """
        Deliver nothing more.
        """
        self._running = False
        for level in self._levels:
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None

    def look(self) -> None:
        """
        See to all levels that have messages: on a start, after a full disk kept messages
        from their queue, and after somebody has set the clock by which they are due.
        """
        for level in self._levels:
            end = self._store.maxOffset(SCHEDULE_TOPIC, level.number - 1)
            if self.offsets.get(level.number, 0) < end:
                self._watch(level, 0)

    def save(self) -> Deferred[None]:
        """
        Write the offsets, if they have changed, once what was delivered is on the
        disk.  A failure is logged: they are written the next time.

        @return: a Deferred that fires once nothing is being written.
        """
        if not self.offsets:
            return succeed(None)
        return self._reached.save(DelayOffsetSerializeWrapper(dict(self.offsets)))

    def needed(self) -> int:
        """
        Where the first message lies in the log that was not delivered.
        """
        offsets = self.offsets
        found = [
            self._store.placeOf(SCHEDULE_TOPIC, each.number - 1, offsets.get(each.number, 0))
            for each in self._levels
        ]
        return min([self._store.log.written, *(each for each in found if each is not None)])

    def runtime(self) -> dict[str, object]:
        """
        How far each level was delivered, and where its queue ends.
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
            # The sooner of the two counts: somebody may have set the clock meanwhile.
            if level.timer.getTime() > self._clock.seconds() + seconds:
                level.timer.reset(seconds)
        elif self._running and not level.busy:
            level.timer = self._clock.callLater(seconds, self._look, level)

    def _look(self, level: _Level) -> None:
        level.timer = None
        try:
            # What came in this turn is seen only once it is written, and nobody else
            # waits for it.
            self._store.write()
            self._deliver(level)
        except StoreError as error:
            self._later(level, error)

    def _later(self, level: _Level, error: StoreError) -> None:
        if not level.failing:
            level.failing = True
            self._log.error(
                "Messages of delay level {number} come late, every {seconds} s they are tried"
                " again: {error}",
                number=level.number,
                seconds=_PATIENCE,
                error=error,
            )
        self._watch(level, _PATIENCE)

    def _correct(self, number: int) -> int:
        """
        Where to go on: messages may have become too old, or be gone after a crash.
        """
        offset = self.offsets.get(number, 0)
        low = self._store.minOffset(SCHEDULE_TOPIC, number - 1)
        high = self._store.maxOffset(SCHEDULE_TOPIC, number - 1)
        corrected = min(max(offset, low), high)
        if corrected != offset:
            self._log.warn(
                "Delay level {number} was delivered up to {offset}, its queue has {low} to {high}:"
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
        Deliver what is due of a level, and wait for what is not.
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
            moving = move(self._store, due, self._putOne)
            moving.addCallback(self._moved, level, start)
            moving.addErrback(self._broke, level)

    def _putOne(self, message: MessageExt) -> Appended:
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        if topic == _HALF_TOPIC:
            # Java 4.9.7 lets halves be delayed, and then drops them here.
            raise InvalidMessage("half of a transaction is not delivered")
        appended = deliver(self._store, message)
        self._delivered(topic, 1, appended.sizes[0])
        return appended

    def _broke(self, failure: Failure, level: _Level) -> None:
        # No error that was thought of: it is tried again when somebody looks.
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
