# SPDX-License-Identifier: Apache-2.0
"""
The consumer of a run: it counts messages and their latencies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from txrocket.bench.counters import ReceiveCounter
from txrocket.bench.plan import Plan
from txrocket.bench.timestamp import NO_RUN, readStamp
from txrocket.message import MessageExt

__all__ = ["ConsumerLoad"]


class ConsumerLoad:
    """
    Counts the messages that a run receives.

    @ivar received: the counters.
    @ivar last: the time of the last message, in seconds.
    """

    def __init__(self, plan: Plan, clock: Any, run: bytes, over: Callable[[], None]) -> None:
        """
        @param run: the id of this run, which its messages carry.
        @param over: called after C{plan.count} messages, if this run sends none itself.
        """
        self._plan = plan
        self._clock = clock
        self._run = run
        self._over = over
        self._openers: set[tuple[str, int]] = set()
        self._opened: Deferred[None] | None = None
        self._wanted = 0
        self._reached: Deferred[None] | None = None
        self.received = ReceiveCounter()
        self.last = 0.0

    def listen(self, message: MessageExt) -> None:
        """
        Count a message.
        """
        stamp = readStamp(message.body)
        mine = stamp is not None and stamp.run == self._run
        if self._opened is not None:
            # Until all queues have delivered a message, none is counted.
            if mine:
                self._openers.discard((message.brokerName, message.queueId))
            if not self._openers:
                opened, self._opened = self._opened, None
                opened.callback(None)
            return
        received = self.received
        if not mine and (self._plan.produces or (stamp is not None and stamp.run == NO_RUN)):
            received.others += 1
            return
        if self._spent():
            return
        received.messages += 1
        received.bytes += len(message.body)
        sent = message.bornTimestamp * 1000 if stamp is None else stamp.when
        self.last = self._clock.seconds()
        received.latency.record(int(self.last * 1e6) - sent)
        if self._spent():
            self._over()
        if self._reached is not None and received.messages >= self._wanted:
            reached, self._reached = self._reached, None
            reached.callback(None)

    def whenOpen(self, queues: set[tuple[str, int]], within: float) -> Deferred[None]:
        """
        Wait until each queue has delivered a message of this run.

        @param queues: broker names and queue ids.
        @return: a Deferred that fails with a L{twisted.internet.defer.TimeoutError}.
        """
        self._openers = set(queues)
        self._opened = Deferred()
        return self._opened.addTimeout(within, self._clock)

    @property
    def closed(self) -> int:
        """
        The number of queues that have not delivered a message yet.
        """
        return len(self._openers)

    def whenReached(self, messages: int, within: float) -> Deferred[Any]:
        """
        Wait until C{messages} messages are received, or C{within} seconds are over.
        """
        reached: Deferred[None] = Deferred()
        if self.received.messages >= messages:
            reached.callback(None)
            return reached
        self._wanted, self._reached = messages, reached
        return reached.addTimeout(within, self._clock).addErrback(lambda late: None)

    def _spent(self) -> bool:
        plan = self._plan
        return not plan.produces and plan.count is not None and self.received.messages >= plan.count
