# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered at a requested time, as in RocketMQ 5.x: its properties and
settings, with the files of 4.9.7::

    TIMER_DELAY_MS=90000 --> rmq_sys_timer, a queue of the wheel --> due --> the topic
                                  ^             |           ^          |     itself
                                  |        later than       |          |
                                  +------- the wheel goes   timers.json

They are parked in the log, and L{TimerWheel<txrocket.broker.delivery.timerwheel.TimerWheel>}
chooses the queue.  Of one bucket at a time the earliest messages are in memory, with one
timer for the first of them.

C{timers.json} says how far messages are delivered, and is written once those are on the
disk.  After a crash messages may come twice; none is lost, and none comes early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.delivery.deliverytime import askedTime, withTime
from txrocket.broker.delivery.reroute import Destination, Put, appendTo, deliver, deliverAll, parkIn
from txrocket.broker.delivery.timerbucket import BucketState, TimerBucket, Waiting
from txrocket.broker.delivery.timerwheel import TimerWheel
from txrocket.broker.settings import DelaySettings
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.config import Live
from txrocket.errors import MessageIllegal, RemoteSystemError, StoreError
from txrocket.message import PROPERTY_REAL_TOPIC, PROPERTY_TIMER_OUT_MS, MessageExt
from txrocket.store.dispatch import TIMER_TOPIC, timeOf
from txrocket.store.messagestore import Appended, MessageStore

__all__ = ["TimerProgress", "Timers"]

# A bucket is read this many milliseconds before its time: a million messages take a second.
_LEAD: Final = 10_000

# Messages that are delivered in one turn, and their bytes.
_BATCH: Final = 128
_BATCH_SIZE: Final = 1024 * 1024

# Seconds until the next attempt, if the store refuses messages.
_PATIENCE: Final = 1.0

# How many were delivered, and the error that stopped the rest.
_Moved: TypeAlias = tuple[int, StoreError | None]


class TimerProgress(msgspec.Struct, frozen=True):
    """
    How far messages are delivered.

    @ivar bucket: the number of the bucket that is being delivered.
    @ivar state: how far that one is delivered.
    @ivar offsets: by queue, the offset before which all is delivered.
    """

    bucket: int
    state: BucketState
    offsets: dict[int, int] = {}


class Timers:
    """
    Delivers messages at their times.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        store: MessageStore,
        wheel: TimerWheel,
        table: FlushedTable[TimerProgress],
        settings: Live[DelaySettings],
        delivered: Callable[[str, int, int], None],
    ) -> None:
        """
        @param table: C{timers.json}.
        @param delivered: called with the topic, number and size of delivered messages.
        """
        self._settings = settings
        self._clock = clock
        self._store = store
        self._wheel = wheel
        self._table = table
        self._delivered = delivered
        self._lead = min(_LEAD, wheel.unit // 2)
        self._current = wheel.bucket(self._store.now() // wheel.unit)
        self._coming: TimerBucket | None = None
        self._loaded: TimerProgress | None = None
        self._adopted: TimerProgress | None = None
        self._started = False
        self._timer: IDelayedCall | None = None
        self._used = False
        self._busy = False
        self._failing = False
        self._running = False

    # --- parking -----------------------------------------------------------

    def reroute(self, place: Destination) -> Destination | None:
        """
        Where a message with a requested time is parked.

        @raise MessageIllegal: if the time is not valid or too far away.
        @raise RemoteSystemError: if C{timerWheelEnable} is false.
        """
        asked = askedTime(place.properties, self._store.wall())
        if asked is None:
            return None
        name, when = asked
        now = self._store.now()
        if when <= now:
            shared = self._store.sharedTime
            if shared is not None and shared < when:
                # Else the time of its record would be before the requested one.
                self._store.write()
            return None
        if not self._settings.now.timerWheelEnable:
            raise RemoteSystemError(
                f"{name}: this broker delivers no messages at a time of their own,"
                " for timerWheelEnable is false"
            )
        longest = self._settings.now.timerMaxDelaySec
        if when - now > longest * 1000:
            raise MessageIllegal(
                f"{name}: the message is to be delivered in {(when - now) / 1000:.0f} s,"
                f" and timerMaxDelaySec is {longest}"
            )
        self._used = True
        number = self._wheel.bucketOf(when, self._current.number)
        if number <= self._current.number + 1:
            self._at(when)
        waits = place._replace(properties=withTime(place.properties, asked))
        return parkIn(TIMER_TOPIC, number % self._wheel.queues, waits)

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Read C{timers.json}.

        @raise StoreCorrupt: if it cannot be read.
        """
        self._loaded = self._table.load(TimerProgress)

    def start(self) -> None:
        """
        Begin to deliver: the store is open.
        """
        wheel, loaded = self._wheel, self._adopted or self._loaded
        if self._started and self._adopted is None:
            # The broker was a master before, and nothing was delivered since.
            loaded = self.progress()
        self._started, self._adopted, self._coming = True, None, None
        number, state = self._store.now() // wheel.unit, BucketState()
        self._used = wheel.used
        if loaded is not None:
            number = loaded.bucket
            # A queue that was created again counts from 0.
            state = loaded.state.within(wheel.end(number % wheel.queues))
            wheel.offsets = {each: min(at, wheel.end(each)) for each, at in loaded.offsets.items()}
        elif self._used:
            # No progress is known: go around once, and deliver all due messages.
            number -= wheel.queues - 1
        wheel.offsets[number % wheel.queues] = state.base
        wheel.since = number
        self._current = wheel.bucket(number, state)
        self._running = True
        self._after(0.0)

    def stop(self) -> None:
        """
        Deliver no more.
        """
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """
        Look for messages that no timer waits for: a full disk may have delayed their
        dispatch, or the clock may have been set ahead.
        """
        self._after(0.0)

    def save(self) -> Deferred[None]:
        """
        Write how far messages are delivered, if that has changed, once they are on the
        disk.  A failure is logged, and the next call writes it.

        @return: a Deferred that fires once nothing is being written.
        """
        progress = self.progress()
        return succeed(None) if progress is None else self._table.save(progress)

    def progress(self) -> TimerProgress | None:
        """
        How far messages are delivered; L{None} if none was ever parked.
        """
        if self._adopted is not None:
            return self._adopted
        if not self._used:
            return None
        current = self._current
        return TimerProgress(current.number, current.state, self._offsets())

    def adopt(self, progress: TimerProgress) -> None:
        """
        Take over how far the master has delivered messages.  L{save} writes it.
        """
        self._adopted = progress

    def needed(self) -> int:
        """
        Where in the log the first parked message lies.
        """
        offsets = self._offsets()
        found = [
            self._store.placeOf(TIMER_TOPIC, each, offsets.get(each, 0))
            for each in range(self._wheel.queues)
        ]
        return min([self._store.log.written, *(each for each in found if each is not None)])

    def runtime(self) -> dict[str, object]:
        """
        How many messages are parked, under the name of 5.x.  Those of the current bucket
        count until all of it is delivered.
        """
        wheel, offsets = self._wheel, self._offsets()
        ends = {each: wheel.end(each) for each in range(wheel.queues)}
        return {"timerCongestNum": sum(end - offsets.get(each, 0) for each, end in ends.items())}

    def _offsets(self) -> dict[int, int]:
        if self._adopted is not None:
            return self._adopted.offsets
        return {
            **self._wheel.offsets,
            self._current.number % self._wheel.queues: self._current.base,
        }

    # --- one turn after the other ------------------------------------------

    def _at(self, when: int) -> None:
        # Seconds are not exact, so a turn may come just before its time.  Let some time
        # pass before the next.
        self._after(max(1e-6, when / 1000 - self._store.wall()))

    def _after(self, seconds: float) -> None:
        """
        Have a turn within some seconds.
        """
        if not self._running or self._busy:
            return
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._turn)
        elif self._timer.getTime() > self._clock.seconds() + seconds:
            self._timer.reset(seconds)

    def _turn(self) -> None:
        self._timer = None
        try:
            # A message of this turn is in its queue only once it is written.
            self._store.write()
            self._work(self._store.now())
        except StoreError as error:
            self._later(error)

    def _work(self, now: int) -> None:
        """
        Do the first step that is due, so that other work has its turn.
        """
        current = self._current
        if current.read() or not current.ready:
            self._after(0.0)
        elif due := current.take(now, _BATCH, _BATCH_SIZE):
            self._append(due, self._deliver, lambda moved: current.done(moved[0]))
        elif current.hasFar:
            far, behind = current.takeFar(_BATCH, _BATCH_SIZE)
            self._append(far, self._parkAgain, partial(self._farDone, far, behind))
        elif now >= current.end:
            self._advance(now)
        elif now >= current.end - self._lead and not self._comes():
            self._after(0.0)
        else:
            begins = current.end if self._coming else current.end - self._lead
            self._at(begins if current.next is None else min(begins, current.next))

    def _comes(self) -> bool:
        """
        Read some of the next bucket, before its time has come.

        @return: whether all of it was read.
        """
        if self._coming is None:
            self._coming = self._wheel.bucket(self._current.number + 1)
        if not self._coming.ready:
            self._coming.read()
        return self._coming.ready

    def _advance(self, now: int) -> None:
        """
        Go on to another bucket.
        """
        current, wheel = self._current, self._wheel
        if self._store.dispatcher.position < self._store.log.written:
            # A message of this bucket may not be dispatched yet.
            self._after(_PATIENCE)
            return
        wheel.offsets[current.number % wheel.queues] = current.mark
        number = wheel.following(current.number, now)
        coming, self._coming = self._coming, None
        if coming is None or coming.number != number:
            coming = wheel.bucket(number)
        self._current = coming
        self._after(0.0)

    # --- delivering --------------------------------------------------------

    def _append(self, messages: list[Waiting], put: Put, done: Callable[[_Moved], None]) -> None:
        wheel, queueId = self._wheel, self._current.number % self._wheel.queues
        self._busy = True
        try:
            places = [wheel.place(queueId, each.queueOffset) for each in messages]
        except StoreError as error:
            self._moved((0, error), done)
            return
        moving = deliverAll(self._store, places, put)
        moving.addCallback(self._moved, done)
        moving.addErrback(self._broke)

    def _deliver(self, message: MessageExt) -> Appended:
        if timeOf(message.properties.get(PROPERTY_TIMER_OUT_MS)) > self._store.now():
            # Its entry was damaged, and had an earlier time.
            return self._parkAgain(message)
        appended = deliver(self._store, message)
        self._delivered(message.properties[PROPERTY_REAL_TOPIC], 1, appended.sizes[0])
        return appended

    def _parkAgain(self, message: MessageExt) -> Appended:
        """
        Park a message in another bucket.
        """
        when = timeOf(message.properties.get(PROPERTY_TIMER_OUT_MS))
        number = self._wheel.bucketOf(when, self._current.number)
        return appendTo(self._store, message, TIMER_TOPIC, number % self._wheel.queues)

    def _farDone(self, far: list[Waiting], behind: int, moved: _Moved) -> None:
        count = moved[0]
        self._current.farDone(behind if count == len(far) else far[count].queueOffset)

    def _moved(self, moved: _Moved, done: Callable[[_Moved], None]) -> None:
        self._busy = False
        done(moved)
        error = moved[1]
        if error is not None:
            self._later(error)
            return
        self._failing = False
        self._after(0.0)

    def _broke(self, failure: Failure) -> None:
        # An unexpected error: the next look() tries again.
        self._busy = False
        self._current.done(0)
        self._log.failure("Delivering messages at their times failed", failure)

    def _later(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            self._log.error(
                "Messages of timers are late, the broker tries again every {seconds} s: {error}",
                seconds=_PATIENCE,
                error=error,
            )
        self._after(_PATIENCE)
