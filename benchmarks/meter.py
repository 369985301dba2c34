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
    CPU time of all threads, and time.
    """

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._time = time.perf_counter()

    def tell(self, count: int) -> None:
        """
        Print the CPU microseconds of each of so many messages, and how many there
        were in a second.
        """
        cpu = time.process_time() - self._cpu
        elapsed = time.perf_counter() - self._time
        print(1e6 * cpu / count, count / elapsed, flush=True)
