# SPDX-License-Identifier: Apache-2.0
"""
What a process measures of itself.
"""

from __future__ import annotations

import time

__all__ = ["WARM_UP", "Meter"]

# So many messages go through before anything is measured.
WARM_UP = 2000


class Meter:
    """
    CPU time of all threads, and time; it may be run several times.
    """

    def __init__(self) -> None:
        self._cpu = self._elapsed = 0.0
        self._count = 0
        self._began = 0.0, 0.0

    def begin(self) -> None:
        """
        From now on it counts.
        """
        self._began = time.process_time(), time.perf_counter()

    def end(self, count: int) -> None:
        """
        It does not count any more.

        @param count: how many messages went through.
        """
        cpu, elapsed = self._began
        self._cpu += time.process_time() - cpu
        self._elapsed += time.perf_counter() - elapsed
        self._count += count

    def tell(self, name: str) -> None:
        """
        Print the CPU microseconds of a message, and how many there were in a second.

        @param name: of what was measured, without blanks.
        """
        print(name, 1e6 * self._cpu / self._count, self._count / self._elapsed, flush=True)
