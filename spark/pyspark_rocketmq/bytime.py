# SPDX-License-Identifier: Apache-2.0
"""
Finding the first message that was stored at a time or later.

A broker tells of the message that was stored nearest to a time, of several with one time
any of them, and the last one for a time that is yet to come.  That is near, and here it is
made exact, by looking at the times of a few messages: messages that were sent together
have one time, and there may be thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["firstAt"]


def firstAt(when: int, low: int, high: int, near: int, timeAt: Callable[[int], int | None]) -> int:
    """
    The offset of the first message that was stored at a time or later.

    @param when: the time.
    @param low: the offset of the first message.
    @param high: the offset behind the last one.
    @param near: where to begin to look.
    @param timeAt: when the message at an offset was stored; L{None} if it is not there
        any more, which is to say that it is older than all that are.
    @return: C{high} if there is none.
    """

    def before(offset: int) -> bool:
        time = timeAt(offset)
        return time is None or time < when

    if low >= high:
        return high
    near = min(max(near, low), high - 1)
    # Away from there by steps that double, until what is looked for is between two.
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
