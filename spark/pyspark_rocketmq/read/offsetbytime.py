# SPDX-License-Identifier: Apache-2.0
"""
The offset of the first message that was stored at a time or later.

SEARCH_OFFSET_BY_TIMESTAMP only comes near it.  A broker answers with the message stored
nearest to the time, with any of several that have the same time, and with the last one for
a time in the future.  Thousands of messages that were sent together may have one time, so
the exact offset is found by reading the times of a few messages.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["firstAt"]


def firstAt(when: int, low: int, high: int, near: int, timeAt: Callable[[int], int | None]) -> int:
    """
    Find the offset of the first message that was stored at a time or later.

    @param when: the time.
    @param low: the offset of the first message.
    @param high: the offset behind the last one.
    @param near: the offset at which the search begins.
    @param timeAt: the store time of the message at an offset; L{None} if retention has
        removed the message, so that it is older than all others.
    @return: the offset; C{high} if all messages are older.
    """

    def before(offset: int) -> bool:
        time = timeAt(offset)
        return time is None or time < when

    if low >= high:
        return high
    near = min(max(near, low), high - 1)
    # Double the step until the offset lies between two that were looked at.
    step = 1
    if before(near):
        low = near + 1
        while low + step <= high and before(low + step - 1):
            low += step
            step *= 2
        high = min(high, low + step - 1)
    else:
        high = near
        while high - step >= low and not before(high - step):
            high -= step
            step *= 2
        low = max(low, high - step + 1)
    while low < high:
        middle = (low + high) // 2
        if before(middle):
            low = middle + 1
        else:
            high = middle
    return low
