# SPDX-License-Identifier: Apache-2.0
"""
A meter for the CPU time and rate of the own process.
"""

from __future__ import annotations

import time

__all__ = ["WARM_UP", "Meter"]

# The messages of the warm-up.
WARM_UP = 2000


class Meter:
    """
    Measures the CPU time of all threads, and the time, of one or more intervals.
    """

    def __init__(self) -> None:
        self._cpu = self._elapsed = 0.0
        self._count = 0
        self._began = 0.0, 0.0

    def begin(self) -> None:
        """
        Begin an interval.
        """
        self._began = time.process_time(), time.perf_counter()

    def end(self, count: int) -> None:
        """
        End the interval.

        @param count: the number of messages in it.
        """
        cpu, elapsed = self._began
        self._cpu += time.process_time() - cpu
        self._elapsed += time.perf_counter() - elapsed
        self._count += count

    def tell(self, name: str) -> None:
        """
        Print the CPU microseconds of a message, and the messages in a second.

        @param name: the name of the measurement, without blanks.
        """
        print(name, 1e6 * self._cpu / self._count, self._count / self._elapsed, flush=True)
