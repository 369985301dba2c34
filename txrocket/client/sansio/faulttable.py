# SPDX-License-Identifier: Apache-2.0
"""
Which brokers are slow, and for how long a producer avoids them; Java's
C{LatencyFaultToleranceImpl} and C{MQFaultStrategy}::

    answer after 600 ms --> avoided for 30 s      no answer --> avoided for 10 min
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txrocket.model import MessageQueue

__all__ = ["FaultTable"]


class FaultTable:
    """
    The latency of each broker, as of the last send (C{sendLatencyFaultEnable}).
    """

    # Latency in milliseconds, and for how many milliseconds it has a broker avoided.
    STEPS: Final = (
        (15_000, 600_000),
        (3_000, 180_000),
        (2_000, 120_000),
        (1_000, 60_000),
        (550, 30_000),
    )
    # The latency of a broker that gives no answer.
    FAILED: Final = 30_000

    def __init__(self) -> None:
        # Broker name: its latency, and until when it is avoided.
        self._table: dict[str, tuple[int, int]] = {}
        self._worst = 0

    def add(self, brokerName: str, latency: int, now: int, *, failed: bool) -> None:
        """
        A broker has answered, or has failed to.

        @param latency: in milliseconds.
        @param now: the time of a monotonic clock, in milliseconds.
        """
        counted = self.FAILED if failed else latency
        rest = next((rest for least, rest in self.STEPS if counted >= least), 0)
        self._table[brokerName] = latency, now + rest

    def isAvailable(self, brokerName: str, now: int) -> bool:
        """
        Whether a broker is not avoided now.
        """
        return self._table.get(brokerName, (0, 0))[1] <= now

    def select(self, queues: Sequence[MessageQueue], turn: int, now: int) -> MessageQueue:
        """
        The next queue in turn whose broker is not avoided.  If all are, a queue of one of
        the faster half of the brokers.
        """
        count = len(queues)
        for offset in range(count):
            queue = queues[(turn + offset) % count]
            if self.isAvailable(queue.brokerName, now):
                return queue
        there = {each.brokerName for each in queues}
        ranked = sorted(there, key=lambda name: self._table[name])
        self._worst += 1
        chosen = ranked[self._worst % max(1, len(ranked) // 2)]
        own = [each for each in queues if each.brokerName == chosen]
        return own[turn % len(own)]
