# SPDX-License-Identifier: Apache-2.0
"""
The index: where the records of a key are.  Hash files, Java's C{IndexFile}::

    index/YYYYMMDDhhmmssSSS, named by the time it was made

    0   begin timestamp:8   end timestamp:8    of the first and last record
    16  begin offset:8      end offset:8
    32  slots used:4        count:4            count is one more than the entries
    40  slots, 5,000,000 x 4: the last entry whose hash falls into the slot, or 0
        entries, 20,000,000 x 20, the first of which is never used:
          hash:4  offset in log:8  seconds since begin timestamp:4  entry before:4

A key is C{topic#key}; each of a message's keys has an entry, and its unique id
too.  The hash is the absolute value of Java's C{hashCode}.  Entries that fall into
one slot are chained from the newest to the oldest.

Entries are only added, but slots change in place, and a change that reaches the
disk before what it points to would cut the chain.  So slots change in memory, and
are written to the file only after the entries they point to are on the disk
(L{Index.seal}, L{Index.settle}).  What a crash may leave are slots that point past
the entries that count; the chain leads back from there, and they are put right
before the entries behind are written again (L{Index.rewind}).
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

import attrs

from txrocket.compiled import speed
from txrocket.protocol.javahash import javaHash
from txrocket.store.files import Files, Handles
from txrocket.store.segments import SyncJob

__all__ = ["PAIR", "Index", "IndexMark", "Queried"]

_HEADER = Struct(">4q2i")
_SLOT = Struct(">i")
_ENTRY = Struct(">iqii")
_INT_MAX = 0x7FFFFFFF

# After this many entries all slots are read and kept: 20 MB for 5,000,000 of them.  To
# read one alone takes 0.9 us, a third of a message's way through a broker, and so does
# to write one alone.
_FEW = 10_000

# Slots that are then written together, a page of 4 KiB.
_RUN = 1024

# What is to be filed: the hash of a key, and the offset of the record that has it.
PAIR = Struct(">iq")

# The store time of the record at an offset of the log, if there is one.
TimeOf: TypeAlias = Callable[[int], int | None]


def keyHash(topic: str, key: str) -> int:
    """
    The hash of a key, never negative.
    """
    found = abs(javaHash(f"{topic}#{key}"))
    return found if found <= _INT_MAX else 0


# A client's ids begin alike for 65 seconds: address, process, and half of the time.
_begun = lru_cache(1024)(lambda topic, start: javaHash(f"{topic}#{start}") * 31**8)


def idHash(topic: str, key: bytes) -> int:
    """
    L{keyHash} of a key in UTF-8, made for unique ids.  The hash of how it begins is
    remembered, and only its last 8 characters are hashed: 0.6 us in place of 1.7.
    """
    if not 8 < len(key) <= 64 or not key.isascii():
        return keyHash(topic, str(key, "utf-8", "replace"))
    a, b, c, d, e, f, g, h = key[-8:]
    end = ((((((a * 31 + b) * 31 + c) * 31 + d) * 31 + e) * 31 + f) * 31 + g) * 31 + h
    found: int = _begun(topic, key[:-8].decode()) + end & 0xFFFFFFFF
    # As abs of an int in Java, and -2^31, which has none, is 0.
    return found if found <= _INT_MAX else -found & _INT_MAX


@attrs.frozen
class IndexMark:
    """
    Up to where the newest index file is known to be whole.
    """

    name: str
    count: int


class Queried(NamedTuple):
    """
    Offsets in the log whose records may have a key, newest first, and how far
    the index reaches.
    """

    offsets: list[int]
    lastTimestamp: int
    lastOffset: int


@attrs.frozen
class _Chain:
    """
    The entries of one hash in one file, from the newest on, as they were at some
    moment.  To follow them takes a read for each, and a key that many messages
    have has many: a thread does that.

    @ivar handle: the file's, pinned.
    @ivar first: the newest entry, 0 if there is none.
    @ivar base: where entry 0 is in the file.
    @ivar written: entries from here on are in C{gathered}.
    """

    files: Files
    handle: int
    path: str
    hashed: int
    first: int
    beginTimestamp: int
    base: int
    written: int
    gathered: bytes

    def follow(self, begin: int, end: int, most: int, found: list[int]) -> None:
        at = self.first
        while at and len(found) < most:
            entryHash, offset, seconds, before = self._entry(at)
            timestamp = self.beginTimestamp + seconds * 1000
            # A key may stand twice in a record, whose entries then follow each other.
            if entryHash == self.hashed and begin <= timestamp <= end and offset not in found[-1:]:
                found.append(offset)
            # An entry points to an older one, or the file is damaged.
            if timestamp < begin or not 0 < before < at:
                break
            at = before

    def _entry(self, at: int) -> tuple[int, int, int, int]:
        if at >= self.written:
            return _ENTRY.unpack_from(self.gathered, (at - self.written) * _ENTRY.size)
        data = self.files.pread(self.handle, _ENTRY.size, self.base + at * _ENTRY.size)
        return _ENTRY.unpack(data) if len(data) == _ENTRY.size else (0, 0, 0, 0)


def _slotAt(slot: int) -> int:
    """
    Where a slot is in a file.
    """
    return _HEADER.size + slot * _SLOT.size


def entriesPlainly(
    pairs: bytes, count: int, slots: int, seconds: int, table: bytearray, dirty: bytearray, run: int
) -> tuple[bytes, int]:
    """
    New entries of a file whose slots are kept, and how many slots they are the first in.
    The slots are changed, and their runs marked.
    """
    data, first = bytearray(), 0
    for hashed, offset in PAIR.iter_unpack(pairs):
        slot = hashed % slots
        before = _SLOT.unpack_from(table, slot * _SLOT.size)[0]
        if not 0 < before < count:
            before = 0
            first += 1
        data += _ENTRY.pack(hashed, offset, seconds, before)
        _SLOT.pack_into(table, slot * _SLOT.size, count)
        dirty[slot // run] = 1
        count += 1
    return bytes(data), first


_entries: Callable[[bytes, int, int, int, bytearray, bytearray, int], tuple[bytes, int]] = (
    entriesPlainly if speed is None else speed.indexEntries
)


class Search:
    """
    A search for a key: made in the reactor thread, run in any, ended in the
    reactor thread.
    """

    def __init__(self, chains: list[_Chain], begin: int, end: int, most: int) -> None:
        self.chains = chains
        self._begin = begin
        self._end = end
        self._most = most
        self.offsets: list[int] = []

    def run(self) -> None:
        """
        Find where the records may be, the newest first.

        @raise OSError: if the disk does not tell.
        """
        for chain in self.chains:
            chain.follow(self._begin, self._end, self._most, self.offsets)


class _IndexFile:
    """
    One file, and what is not in it yet.
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
        # What to write once the entries are on the disk: the first slot, and it and more.
        self._sealed: list[tuple[int, bytes]] = []

    @property
    def size(self) -> int:
        return _HEADER.size + self._slots * _SLOT.size + self._capacity * _ENTRY.size

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
            data, first = _entries(
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
            self._gathered += _ENTRY.pack(hashed, offset, seconds, before)
            known[slot] = self._changed[slot] = self.count
            self.count += 1

    def search(self, hashed: int) -> _Chain:
        """
        The entries of a hash, as they are now.
        """
        return _Chain(
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
        Copy the runs that have changed, those that lie side by side together.
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
        if max(values, default=0) < self.count:
            return
        for slot, value in enumerate(values):
            if value >= self.count:
                while value >= self.count:
                    before = self._entry(value)[3]
                    value = before if 0 < before < value else 0
                self._files.pwrite(handle, _SLOT.pack(value), _slotAt(slot))
        self._files.sync(handle)

    def cut(self, end: int, timeOf: TimeOf) -> None:
        """
        Forget the last entries, those of records from an offset on.
        """
        count = self.count
        while count > 1 and self._entry(count - 1)[1] >= end:
            count -= 1
        if count < self.count:
            self.rewind(count, timeOf)
            self.straighten()

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
            gathered = (at - self._written) * _ENTRY.size
            if gathered < len(self._gathered):
                return _ENTRY.unpack_from(self._gathered, gathered)
        data = self._files.pread(self._handles.get(self.path), _ENTRY.size, self._entryAt(at))
        return _ENTRY.unpack(data) if len(data) == _ENTRY.size else (0, 0, 0, 0)

    def _entryAt(self, at: int) -> int:
        return _HEADER.size + self._slots * _SLOT.size + at * _ENTRY.size


class Index:
    """
    All index files.
    """

    def __init__(
        self,
        handles: Handles,
        folder: str,
        slots: int,
        capacity: int,
        now: Callable[[], int],
    ) -> None:
        """
        @param now: the time in milliseconds, which names new files.
        """
        self._handles = handles
        self._folder = folder
        self._slots = slots
        self._capacity = capacity
        self._now = now
        self._indexFiles: list[_IndexFile] = []
        self._unsettled: list[tuple[_IndexFile, bytes]] = []

    def load(self) -> None:
        """
        Find the files.
        """
        damaged = False
        for name in self._handles.files.names(self._folder):
            if name.isascii() and name.isdigit():
                indexFile = self._file(name)
                if damaged or self._handles.files.size(indexFile.path) != indexFile.size:
                    # Those behind it go, too: all is made anew from there on.
                    damaged = True
                    self._remove(indexFile)
                    continue
                indexFile.load()
                self._indexFiles.append(indexFile)

    def rewind(self, mark: IndexMark | None, timeOf: TimeOf, *, doubt: bool) -> bool:
        """
        Go back to what was whole at a checkpoint.

        @param mark: the newest file then; L{None} if there was none.
        @param timeOf: the store time of the record at an offset.
        @param doubt: whether slots may point to entries after that.
        @return: whether that is possible.
        """
        if mark is not None:
            counts = {each.name: each.count for each in self._indexFiles}
            # The header had that count before the checkpoint spoke of it; with less
            # it is another file, made since, that happens to have the name.
            if not 0 < mark.count <= counts.get(mark.name, 0):
                return False
        while self._indexFiles and (mark is None or self._indexFiles[-1].name != mark.name):
            self._remove(self._indexFiles.pop())
        if mark is not None:
            self._indexFiles[-1].rewind(mark.count, timeOf)
            if doubt:
                self._indexFiles[-1].straighten()
        return True

    def distrust(self, timestamp: int) -> int:
        """
        After a crash of which no more is known than a time up to which the index
        is whole: files that reach further go, as in Java.

        @return: the offset of the last record that the index knows of then.
        """
        while self._indexFiles:
            last = self._indexFiles[-1]
            if last.count > 1 and last.endTimestamp < timestamp:
                return last.endOffset
            self._remove(self._indexFiles.pop())
        return 0

    def put(self, topic: str, keys: Iterable[str], offset: int, timestamp: int) -> None:
        """
        Add a record's keys.  Those of records that are in it are left as they are.
        """
        pairs = [PAIR.pack(keyHash(topic, key), offset) for key in keys if key]
        self.add(b"".join(pairs), timestamp)

    def add(self, pairs: bytes, timestamp: int) -> None:
        """
        Add L{pairs<PAIR>} of records that follow each other in the log and are of one
        time.
        """
        start = 0
        if self._indexFiles and pairs:
            last = self._indexFiles[-1].endOffset
            while start < len(pairs) and PAIR.unpack_from(pairs, start)[1] < last:
                start += PAIR.size
        while start < len(pairs):
            indexFile = self._room()
            stop = start + indexFile.room * PAIR.size
            indexFile.put(pairs[start:stop], timestamp)
            start = stop

    def search(self, topic: str, key: str, begin: int, end: int, most: int) -> Search:
        """
        A search for the records that may have a key, within store times.  It must
        be given to L{ended}.
        """
        hashed = keyHash(topic, key)
        chains = []
        for indexFile in reversed(self._indexFiles):
            if indexFile.covers(begin, end):
                chains.append(indexFile.search(hashed))
            if indexFile.beginTimestamp < begin:
                break
        return Search(chains, begin, end, most)

    def ended(self, search: Search) -> Queried:
        """
        A search has been run, or failed.
        """
        for chain in search.chains:
            self._handles.unpin(chain.path)
        if not self._indexFiles:
            return Queried(search.offsets, 0, 0)
        last = self._indexFiles[-1]
        return Queried(search.offsets, last.endTimestamp, last.endOffset)

    def query(self, topic: str, key: str, begin: int, end: int, most: int) -> Queried:
        """
        Search at once.

        @raise OSError: if the disk does not tell.
        """
        search = self.search(topic, key, begin, end, most)
        try:
            search.run()
        finally:
            queried = self.ended(search)
        return queried

    def seal(self, job: SyncJob) -> IndexMark | None:
        """
        Write all entries, to be synced before L{settle} is called.

        @return: what will be sure then.
        """
        if not self._indexFiles:
            return None
        for indexFile in self._indexFiles:
            if indexFile.unsealed:
                self._unsettled.append((indexFile, indexFile.seal()))
        for indexFile, _ in self._unsettled:
            job.addPath(indexFile.path)
            if not indexFile.named:
                job.addFolder(self._folder)
        last = self._indexFiles[-1]
        return IndexMark(last.name, last.count)

    def settle(self, job: SyncJob) -> None:
        """
        Write the slots of what was sealed.
        """
        for indexFile, header in self._unsettled:
            if indexFile in self._indexFiles:
                indexFile.settle(header)
                indexFile.named = True
                job.addPath(indexFile.path)
        self._unsettled.clear()

    def follow(self, first: int) -> None:
        """
        The log begins at C{first} now: delete the files that end before it.
        """
        while len(self._indexFiles) > 1 and self._indexFiles[0].endOffset < first:
            self._remove(self._indexFiles.pop(0))

    def cut(self, end: int, timeOf: TimeOf) -> None:
        """
        The log ends at C{end}: forget what lies behind it.
        """
        while self._indexFiles and self._indexFiles[-1].beginOffset >= end:
            self._remove(self._indexFiles.pop())
        if self._indexFiles:
            self._indexFiles[-1].cut(end, timeOf)

    def clear(self) -> None:
        """
        Forget everything.
        """
        while self._indexFiles:
            self._remove(self._indexFiles.pop())

    def _room(self) -> _IndexFile:
        """
        The file that takes the next entry.
        """
        if self._indexFiles and self._indexFiles[-1].room > 0:
            return self._indexFiles[-1]
        now = self._now()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
        if self._indexFiles and name <= self._indexFiles[-1].name:
            # The clock was set back.  A start sorts the files by their names, so the next
            # number has to do, be it a time of day or not: Java reads it as a number too.
            name = f"{int(self._indexFiles[-1].name) + 1:017d}"
        self._handles.files.makeFolder(self._folder)
        indexFile = self._file(name)
        try:
            indexFile.create()
        except OSError:
            self._remove(indexFile)
            raise
        self._indexFiles.append(indexFile)
        return indexFile

    def _file(self, name: str) -> _IndexFile:
        path = os.path.join(self._folder, name)
        return _IndexFile(self._handles, path, self._slots, self._capacity)

    def _remove(self, indexFile: _IndexFile) -> None:
        self._handles.forget(indexFile.path)
        self._handles.files.remove(indexFile.path)
