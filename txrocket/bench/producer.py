# SPDX-License-Identifier: Apache-2.0
"""
The producer of a run: it sends as fast as possible, or at a rate.

It keeps the allowed number of requests in flight: each answer makes room for the next.  With
a rate, each message is due at a time, and its latency counts from that time.  Otherwise a
server that stops for a second would delay a thousand messages, and one latency would show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from txrocket.bench.counters import SendCounter
from txrocket.bench.plan import Plan
from txrocket.bench.timestamp import STAMP_SIZE, writeStamp
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.results import SendResult, SendStatus
from txrocket.message import Message

__all__ = ["ProducerLoad"]

# The most requests in one reactor turn.  Oneway requests end at once, so that without a
# limit the reactor would do nothing else.
_AT_ONCE: Final = 128

# The seconds that a failed request stays in flight.  Without a pause, a run whose server is
# down would do nothing but fail.
_PAUSE: Final = 0.1


class ProducerLoad:
    """
    Sends the messages of a run.

    @ivar sent: the counters.
    @ivar begun: the number of messages whose send has begun.
    """

    def __init__(
        self, plan: Plan, producer: Producer, clock: Any, run: bytes, over: Callable[[], None]
    ) -> None:
        """
        @param run: the id of this run, which its messages carry.
        @param over: called once C{plan.count} messages are begun and none is in flight.
        """
        self._plan = plan
        self._producer = producer
        self._clock = clock
        self._run = run
        self._over = over
        self._rest = b"x" * (plan.size - STAMP_SIZE)
        self.sent = SendCounter()
        self.begun = 0
        self._inFlight = 0
        self._ended = False
        self._filling = False
        self._held = False
        self._next: IDelayedCall | None = None
        self._pauses: set[IDelayedCall] = set()

    def start(self) -> None:
        """
        Begin to send.
        """
        self._started = self._clock.seconds()
        self._fill()

    def end(self) -> None:
        """
        Send no more.
        """
        self._ended = True
        for call in (self._next, *self._pauses):
            if call is not None and call.active():
                call.cancel()

    def message(self, began: float) -> Message:
        """
        The next message.

        @param began: the time at which it is sent, or was due, in seconds.
        """
        self.begun += 1
        key = f"{self._run.hex()}-{self.begun}" if self._plan.keys else ""
        body = writeStamp(self._run, int(began * 1e6)) + self._rest
        return Message(self._plan.topic, body, self._plan.tags, key)

    # --- timing ----------------------------------------------------------

    def _fill(self) -> None:
        # A request that ends at once calls this again.
        if self._filling or self._ended:
            return
        self._filling = True
        try:
            for _ in range(_AT_ONCE):
                if self._spent():
                    return
                if self._inFlight >= self._plan.inflight:
                    self._held = True
                    return
                now = self._clock.seconds()
                due = self._due(now)
                if due > now:
                    self._held = False
                    self._later(due - now)
                    return
                self._send(due if self._held else now)
        finally:
            self._filling = False
        self._later(0.0)

    def _due(self, now: float) -> float:
        return now if self._plan.rate is None else self._started + self.begun / self._plan.rate

    def _spent(self) -> bool:
        return self._plan.count is not None and self.begun >= self._plan.count

    def _later(self, seconds: float) -> None:
        if self._next is None or not self._next.active():
            self._next = self._clock.callLater(seconds, self._fill)

    # --- requests --------------------------------------------------------

    def _send(self, began: float) -> None:
        size = self._plan.batch
        if self._plan.count is not None:
            size = min(size, self._plan.count - self.begun)
        messages = [self.message(began) for _ in range(size)]
        self._inFlight += 1
        sending: Deferred[Any]
        if self._plan.oneway:
            sending = self._producer.sendOneway(messages[0])
        elif self._plan.batch > 1:
            sending = self._producer.sendBatch(messages)
        else:
            sending = self._producer.send(messages[0])
        sending.addCallbacks(self._sent, self._failed, callbackArgs=(size, began))

    def _sent(self, result: Any, size: int, began: float) -> None:
        self._inFlight -= 1
        sent = self.sent
        sent.messages += size
        sent.requests += 1
        sent.latency.record(int((self._clock.seconds() - began) * 1e6))
        results: list[SendResult] = result if isinstance(result, list) else [result]
        for each in results:
            if each is not None and each.sendStatus is not SendStatus.SEND_OK:
                sent.statuses[each.sendStatus.name] += 1
        self._goOn()

    def _failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self.sent.failed(failure.value)
        if self._ended:
            self._inFlight -= 1
            return

        def over() -> None:
            self._pauses.discard(pause)
            self._inFlight -= 1
            self._goOn()

        pause = self._clock.callLater(_PAUSE, over)
        self._pauses.add(pause)

    def _goOn(self) -> None:
        if self._spent() and not self._inFlight and not self._ended:
            self._over()
        else:
            self._fill()
