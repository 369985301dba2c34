# SPDX-License-Identifier: Apache-2.0
"""
The end of the entries in the files of a queue::

    |--- entries of records before the bound ---|--- anything, after a crash ---|
                                                ^ sureEnd

A search by halves finds the end in few reads.  After a crash entries may be torn, so the log
must confirm the entry that the search found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from txrocket.store.files.segments import Segments
from txrocket.store.queue.entry import (
    ENTRY_SIZE,
    FILLER_SIZE,
    FILLER_SIZES,
    entries,
    unpackEntry,
)

__all__ = ["Confirm", "countWhile", "sureEnd"]

# Whether a queue offset, an offset in the log, a size and a hash are the entry of a record.
Confirm: TypeAlias = Callable[[int, int, int, int], bool]


def sureEnd(segments: Segments, bound: int, confirm: Confirm) -> tuple[int, int]:
    """
    Find the end of the entries for records before an offset of the log.

    After a crash, the entries before C{bound} are whole.  The bytes behind them may look like
    entries for records before C{bound}.  So the log confirms the entry that a search by halves
    finds; if it does not, all entries are read one after the other.

    @param bound: the offset of the log.
    @param confirm: whether the log agrees with an entry.
    @return: the end as a queue offset, and the end that the search found before the log was
        asked.
    """

    def before(offset: int, size: int) -> bool:
        return size > 0 and offset < bound

    searched = 0
    for base in reversed(segments.bases):
        count = countWhile(segments, base, before)
        if count:
            searched = max(searched, base // ENTRY_SIZE + count)
        if not _confirmed(segments, base, count, confirm):
            count = _walk(segments, base, before)
            while not _confirmed(segments, base, count, confirm):
                count -= 1
        if count or base == segments.bases[0]:
            return base // ENTRY_SIZE + count, searched
    return 0, searched


def countWhile(segments: Segments, base: int, holds: Callable[[int, int], bool]) -> int:
    """
    Count the entries at the beginning of a file that satisfy a condition, by halves.

    @param holds: the condition on an offset and a size.  It holds for all entries up to one,
        and for no entry behind it.
    """
    low, high = 0, segments.size // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        offset, size, _ = unpackEntry(segments.read(base + middle * ENTRY_SIZE, ENTRY_SIZE))
        if holds(offset, size):
            low = middle + 1
        else:
            high = middle
    return low


def _confirmed(segments: Segments, base: int, count: int, confirm: Confirm) -> bool:
    """
    Whether the last of the first entries of a file is the entry of a record.
    """
    if not count:
        return True
    at = base + (count - 1) * ENTRY_SIZE
    offset, size, hashed = unpackEntry(segments.read(at, ENTRY_SIZE))
    if size >= FILLER_SIZE:
        return size in FILLER_SIZES
    if count > 1:
        before, sizeBefore, _ = unpackEntry(segments.read(at - ENTRY_SIZE, ENTRY_SIZE))
        # The fillers of a gap have the offset of the entry behind the gap.
        if before >= offset and sizeBefore < FILLER_SIZE:
            return False
    return confirm(at // ENTRY_SIZE, offset, size, hashed)


def _walk(segments: Segments, base: int, holds: Callable[[int, int], bool]) -> int:
    """
    Count the entries at the beginning of a file that satisfy a condition and are in order,
    one by one.
    """
    count, last = 0, -1
    for offset, size, _ in entries(segments.read(base, segments.size)):
        filler = size >= FILLER_SIZE
        if not holds(offset, size) or (offset <= last and not filler):
            break
        count, last = count + 1, -1 if filler else offset
    return count
