# SPDX-License-Identifier: Apache-2.0
"""
One file of the index, and the entries that are not in it yet::

    entries   gathered in memory, written by seal
    slots     changed in memory, written by settle, once the entries they point to are on
              the disk
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from txrocket.bulk import PAIR, indexEntries
from txrocket.store.files.handles import Handles
from txrocket.store.index.search import ENTRY, IndexChain

__all__ = ["IndexFile", "TimeOf"]

_HEADER: Final = Struct(">4q2i")
_SLOT: Final = Struct(">i")
_INT_MAX: Final = 0x7FFFFFFF

# After this many entries all slots are read and kept: 20 MB for 5,000,000 of them.  To read
# or write one alone costs a third of a message's way through a broker.
_FEW = 10_000

# Slots that are then written together, a page of 4 KiB.
_RUN = 1024

# How many entries are read at once to find slots: 20 MB.
_MOST_READ = 1_000_000

#: The store time of the record at an offset of the log, if there is one.
TimeOf: TypeAlias = Callable[[int], int | None]


def _slotAt(slot: int) -> int:
    """
    Where a slot is in a file.
    """
    return _HEADER.size + slot * _SLOT.size


class IndexFile:
    """
    One file, and the entries that are not in it yet.
    """

    def __init__(self, handles: Handles, path: str, slots: int, capacity: int) -> None:
        self._handles = handles
        self._files = handles.files
        self.path = path
        self._slots = slots
        self._capacity = capacity
        self.beginTimestamp = self.endTimestamp = 0
        self.beginOffset = self.endOffset = 0
        self.slotCount = 0
        self.count = 1
        self.named = True  # whether its name is on the disk
        self._written = 1
        self._gathered = bytearray()
        self.unsealed = False
        self._puts = 0
        # Slots that are not in the file as they are now: each, or, once there are many,
        # all slots, and which runs of them to write.
        self._changed: dict[int, int] = {}
        self._table: bytearray | None = None
        self._dirty = bytearray()
        # Slots to write once the entries are on the disk: the first, and the bytes from it on.
        self._sealed: list[tuple[int, bytes]] = []

    @property
    def size(self) -> int:
        return _HEADER.size + self._slots * _SLOT.size + self._capacity * ENTRY.size

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def room(self) -> int:
        return self._capacity - self.count

    def create(self) -> None:
        self.named = False
        self._files.truncate(self._handles.get(self.path), self.size)

    def load(self) -> None:
        header = self._files.pread(self._handles.get(self.path), _HEADER.size, 0)
        (
            self.beginTimestamp,
            self.endTimestamp,
            self.beginOffset,
            self.endOffset,
            self.slotCount,
            count,
        ) = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        # Java counts from 1, and says 0 before the first entry.
        self.count = self._written = min(max(count, 1), self._capacity)
        self.slotCount = min(max(self.slotCount, 0), self._slots)

    def put(self, pairs: bytes, timestamp: int) -> None:
        """
        Add L{pairs<PAIR>} of records of one time.  There must be room for them.
        """
        self._puts += len(pairs) // PAIR.size
        if self._table is None and self._puts > _FEW:
            self._keepSlots()
        _, offset = PAIR.unpack_from(pairs)
        if self.count <= 1:
            self.beginOffset, self.beginTimestamp = offset, timestamp
        seconds = min(max((timestamp - self.beginTimestamp) // 1000, 0), _INT_MAX)
        self.unsealed = True
        if self._table is None:
            self._putFew(pairs, seconds)
        else:
            data, first = indexEntries(
                pairs, self.count, self._slots, seconds, self._table, self._dirty, _RUN
            )
            self._gathered += data
            self.slotCount += first
            self.count += len(pairs) // PAIR.size
        _, self.endOffset = PAIR.unpack_from(pairs, len(pairs) - PAIR.size)
        self.endTimestamp = timestamp

    def _putFew(self, pairs: bytes, seconds: int) -> None:
        slots = [hashed % self._slots for hashed, _ in PAIR.iter_unpack(pairs)]
        # The disk may fail to tell a slot: before anything is changed.
        known = {slot: self._slot(slot) for slot in slots}
        for slot, (hashed, offset) in zip(slots, PAIR.iter_unpack(pairs), strict=True):
            before = known[slot]
            self.slotCount += not before
            self._gathered += ENTRY.pack(hashed, offset, seconds, before)
            known[slot] = self._changed[slot] = self.count
            self.count += 1

    def search(self, hashed: int) -> IndexChain:
        """
        The entries of a hash, as they are now.
        """
        return IndexChain(
            self._files,
            self._handles.pin(self.path),
            self.path,
            hashed,
            self._slot(hashed % self._slots),
            self.beginTimestamp,
            self._entryAt(0),
            self._written,
            bytes(self._gathered),
        )

    def covers(self, begin: int, end: int) -> bool:
        return begin <= self.endTimestamp and end >= self.beginTimestamp

    def writeEntries(self) -> None:
        if self._gathered:
            data = bytes(self._gathered)
            self._files.pwrite(self._handles.get(self.path), data, self._entryAt(self._written))
            self._gathered.clear()
            self._written = self.count

    def seal(self) -> bytes:
        self.writeEntries()
        self.unsealed = False
        if self._table is None:
            self._sealed += [(slot, _SLOT.pack(value)) for slot, value in self._changed.items()]
        else:
            self._sealRuns(self._table)
        return self._header()

    def _sealRuns(self, table: bytearray) -> None:
        """
        Copy the runs that have changed, neighbours at once.
        """
        size, start, view = _RUN * _SLOT.size, 0, memoryview(table)
        while (start := self._dirty.find(1, start)) >= 0:
            stop = self._dirty.find(0, start)
            stop = len(self._dirty) if stop < 0 else stop
            self._sealed.append((start * _RUN, bytes(view[start * size : stop * size])))
            start = stop
        self._dirty[:] = bytes(len(self._dirty))

    def settle(self, header: bytes) -> None:
        handle = self._handles.get(self.path)
        for slot, data in self._sealed:
            self._files.pwrite(handle, data, _slotAt(slot))
            # Unless it has changed again.
            if self._changed.get(slot) == _SLOT.unpack_from(data)[0]:
                del self._changed[slot]
        self._sealed.clear()
        self._files.pwrite(handle, header, 0)
        if self.room <= 0 and not self.unsealed:
            # Full, and all of it is in the file.
            self._table = None

    def rewind(self, count: int, timeOf: TimeOf) -> None:
        """
        Only the entries below C{count} are sure.  The header may be anything.
        """
        self.count = self._written = count
        if count <= 1:
            self.beginTimestamp = self.beginOffset = 0
            self.endTimestamp = self.endOffset = self.slotCount = 0
            return
        _, self.beginOffset, _, _ = self._entry(1)
        _, self.endOffset, seconds, _ = self._entry(count - 1)
        begin, end = timeOf(self.beginOffset), timeOf(self.endOffset)
        if begin is not None:
            self.beginTimestamp = begin
        # Entries have full seconds only.
        self.endTimestamp = self.beginTimestamp + seconds * 1000 + 999 if end is None else end

    def straighten(self) -> None:
        """
        After a crash: let slots that point past the entries that count point to
        the last ones that do.  That must be on the disk before the entries that
        lead back are written over.
        """
        self._table = None
        handle = self._handles.get(self.path)
        values = array("i", self._files.pread(handle, self._slots * _SLOT.size, _HEADER.size))
        if sys.byteorder == "little":
            values.byteswap()
        last = max(values, default=0)
        if last < self.count:
            return
        before = self._entriesBefore(last)
        for start in range(0, self._slots, _RUN):
            run = values[start : start + _RUN]
            # Most runs have no such slot, and a look at each slot takes long.
            if max(run) >= self.count:
                self._files.pwrite(handle, self._straightened(run, before), _slotAt(start))
        self._files.sync(handle)

    def _straightened(self, run: array[int], before: Callable[[int], int]) -> bytes:
        for slot, value in enumerate(run):
            while value >= self.count:
                earlier = before(value)
                value = run[slot] = earlier if 0 < earlier < value else 0
        if sys.byteorder == "little":
            run.byteswap()
        return run.tobytes()

    def _entriesBefore(self, last: int) -> Callable[[int], int]:
        """
        Find the entry before another one in its chain, for all from the count on to the last.
        """
        first = self.count
        if last - first >= _MOST_READ:
            return lambda at: self._entry(at)[3]
        size = (last + 1 - first) * ENTRY.size
        data = self._files.pread(self._handles.get(self.path), size, self._entryAt(first))
        # An entry is five numbers, of which this is the last.
        numbers = array("i", data.ljust(size, b"\0"))[4::5]
        if sys.byteorder == "little":
            numbers.byteswap()
        return lambda at: numbers[at - first]

    def cut(self, end: int, timeOf: TimeOf) -> None:
        """
        Forget the entries for records from an offset of the log on.
        """
        count = self.count
        while count > 1 and self._entry(count - 1)[1] >= end:
            count -= 1
        if count < self.count:
            self.rewind(count, timeOf)
            self.straighten()

    def countBefore(self, end: int) -> int:
        """
        The count that the file had when the log ended at an offset.
        """
        # Entries are in the order of the log.
        numbers = range(1, self.count)
        return 1 + bisect_left(numbers, end, key=lambda at: self._entry(at)[1])

    def _header(self) -> bytes:
        return _HEADER.pack(
            self.beginTimestamp,
            self.endTimestamp,
            self.beginOffset,
            self.endOffset,
            self.slotCount,
            self.count,
        )

    def _slot(self, slot: int) -> int:
        value = self._changed.get(slot)
        if value is None and self._table is not None:
            value = _SLOT.unpack_from(self._table, slot * _SLOT.size)[0]
        if value is None:
            handle = self._handles.get(self.path)
            data = self._files.pread(handle, _SLOT.size, _slotAt(slot))
            value = _SLOT.unpack(data)[0] if len(data) == _SLOT.size else 0
        return value if 0 < value < self.count else 0

    def _keepSlots(self) -> None:
        """
        Have all slots in memory from now on.
        """
        size = self._slots * _SLOT.size
        data = self._files.pread(self._handles.get(self.path), size, _slotAt(0))
        self._table = bytearray(data.ljust(size, b"\0"))
        self._dirty = bytearray(-(-self._slots // _RUN))
        for slot, value in self._changed.items():
            _SLOT.pack_into(self._table, slot * _SLOT.size, value)
            self._dirty[slot // _RUN] = 1
        self._changed.clear()

    def _entry(self, at: int) -> tuple[int, int, int, int]:
        if at >= self._written:
            gathered = (at - self._written) * ENTRY.size
            if gathered < len(self._gathered):
                return ENTRY.unpack_from(self._gathered, gathered)
        data = self._files.pread(self._handles.get(self.path), ENTRY.size, self._entryAt(at))
        return ENTRY.unpack(data) if len(data) == ENTRY.size else (0, 0, 0, 0)

    def _entryAt(self, at: int) -> int:
        return _HEADER.size + self._slots * _SLOT.size + at * ENTRY.size
