# SPDX-License-Identifier: Apache-2.0
"""
Receiving messages, and how long they took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from txrocket.bench.marks import NO_RUN, readMark
from txrocket.bench.plan import Plan
from txrocket.bench.tally import Received
from txrocket.message import MessageExt

__all__ = ["Intake"]


class Intake:
    """
    Messages that are received.

    @ivar received: what they were.
    @ivar last: when the last of them came, in seconds.
    """

    def __init__(self, plan: Plan, clock: Any, run: bytes, over: Callable[[], None]) -> None:
        """
        @param run: by which messages of this run are known.
        @param over: called once C{plan.count} messages came, if this run sends none.
        """
        self._plan = plan
        self._clock = clock
        self._run = run
        self._over = over
        self._openers: set[tuple[str, int]] = set()
        self._opened: Deferred[None] | None = None
        self._wanted = 0
        self._reached: Deferred[None] | None = None
        self.received = Received()
        self.last = 0.0

    def listen(self, message: MessageExt) -> None:
        """
        Take a message.
        """
        mark = readMark(message.body)
        mine = mark is not None and mark.run == self._run
        if self._opened is not None:
            # Nothing counts yet.
            if mine:
                self._openers.discard((message.brokerName, message.queueId))
            if not self._openers:
                opened, self._opened = self._opened, None
                opened.callback(None)
            return
        received = self.received
        if not mine and (self._plan.produces or (mark is not None and mark.run == NO_RUN)):
            received.others += 1
            return
        if self._spent():
            return
        received.messages += 1
        received.bytes += len(message.body)
        sent = message.bornTimestamp * 1000 if mark is None else mark.when
        self.last = self._clock.seconds()
        received.latency.record(int(self.last * 1e6) - sent)
        if self._spent():
            self._over()
        if self._reached is not None and received.messages >= self._wanted:
            reached, self._reached = self._reached, None
            reached.callback(None)

    def whenOpen(self, queues: set[tuple[str, int]], within: float) -> Deferred[None]:
        """
        Wait until a message of this run has come from each queue.

        @param queues: by broker and id.
        @return: a Deferred that fails with a L{twisted.internet.defer.TimeoutError}.
        """
        self._openers = set(queues)
        self._opened = Deferred()
        return self._opened.addTimeout(within, self._clock)

    @property
    def closed(self) -> int:
        """
        How many queues brought nothing yet.
        """
        return len(self._openers)

    def whenReached(self, messages: int, within: float) -> Deferred[Any]:
        """
        Wait for messages that were sent, or until time is over.
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
