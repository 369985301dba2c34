# SPDX-License-Identifier: Apache-2.0
"""
Running schedules.
"""

from __future__ import annotations

from tests.replication.checks import check
from tests.replication.schedule import Schedule

__all__ = ["attempt"]


def attempt(seed: int) -> tuple[Schedule, Exception | None]:
    """
    Run a schedule.

    @return: it, and the promise that it found broken, or any other error.
    """
    schedule = Schedule(seed)
    try:
        schedule.run()
        check(schedule)
    except Exception as error:
        return schedule, error
    return schedule, None
