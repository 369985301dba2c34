# SPDX-License-Identifier: Apache-2.0
"""
Checking index files beside the log.

A key is found only if the slot of its hash leads to its entry, so the slots and
the links between entries are made again and compared.

The header also counts the slots in use.  After a crash some are counted twice, so only a
number that cannot be right is reported.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from txrocket.bulk import keyHash
from txrocket.errors import StoreError
from txrocket.message import PROPERTY_UNIQ_KEY
from txrocket.store.files.handles import Handles
from txrocket.store.index import Index
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.verify.readonly import Note

__all__ = ["IndexCheck"]

_HEADER = Struct(">4q2i")
_ENTRY = Struct(">iqii")
_CHUNK = 4096 * _ENTRY.size
_END = 1 << 63
_INT_MAX = 0x7FFFFFFF
# No clock is that late: the year 2248, in milliseconds.
_LATEST = 1 << 43


class _Header(NamedTuple):
    beginTimestamp: int
    endTimestamp: int
    beginOffset: int
    endOffset: int
    slotCount: int
    entryCount: int


class _Entry(NamedTuple):
    path: str
    number: int
    hashed: int
    offset: int
    seconds: int
    header: _Header


class IndexCheck(Index):
    """
    An index that compares the keys of records with its entries.
    """

    def __init__(
        self, handles: Handles, folder: str, slots: int, log: CommitLog, note: Note, tidy: bool
    ) -> None:
        """
        @param tidy: whether the files are as we have closed them.
        @raise StoreError: if the number of slots does not fit any file.
        """
        super().__init__(handles, folder, slots, 0, lambda: 0)
        self._root = folder
        self._slotCount = slots
        self._log = log
        self._note = note
        self._tidy = tidy
        names = handles.files.names(folder)
        self._paths = [
            os.path.join(folder, each) for each in names if each.isascii() and each.isdigit()
        ]
        self._counts = {path: count for path in self._paths if (count := self._count(path))}
        if self._paths and not self._counts and self._sameSize():
            raise StoreError(
                f"{folder}: its files have not {slots} slots; give their maxHashSlotNum"
            )
        self._sizes()
        self._entryCount = 0
        self._entries = self._read()
        self._current = next(self._entries, None)

    def put(self, topic: str, keys: Iterable[str], offset: int, timestamp: int) -> None:
        """
        There is a record: its keys must be there.
        """
        # Without files the index was switched off; a file that cannot be read is reported
        # already.
        if not self._paths or len(self._counts) < len(self._paths):
            return
        expected = {keyHash(topic, each): each for each in keys if each}
        self._take(offset, expected, timestamp)
        # One entry that points beyond where it should must not hide the others.
        while expected and self._current is not None and not self._points(self._current):
            self._nowhere(self._current)
            self._current = next(self._entries, None)
            self._take(offset, expected, timestamp)
        for key in expected.values():
            self._note(self._root, "missing key", f"{key!r} of the record at {offset}")

    def finish(self) -> None:
        """
        All records have been put.
        """
        self._take(_END, {}, 0)

    def counts(self) -> tuple[int, int]:
        """
        How many files and entries there are.
        """
        return len(self._paths), self._entryCount

    def marks(self) -> dict[str, int]:
        """
        The count in the header of each file, by the file's name.
        """
        return {os.path.basename(path): count for path, count in self._counts.items()}

    def _take(self, offset: int, expected: dict[int, str], timestamp: int) -> None:
        """
        Go on up to the entries of later records, and strike off the keys that are found.
        """
        while self._current is not None and self._current.offset <= offset:
            if self._current.offset == offset:
                expected.pop(self._current.hashed, None)
                self._times(self._current, timestamp)
            # Java, after a crash, may index a record a second time.
            elif not self._points(self._current):
                self._nowhere(self._current)
            self._current = next(self._entries, None)

    def _times(self, entry: _Entry, timestamp: int) -> None:
        """
        Compare the time of a record with the times of its entry and its file.
        """
        header = entry.header
        expected = min(max((timestamp - header.beginTimestamp) // 1000, 0), _INT_MAX)
        # Java counts the first from the end of the file before.
        if entry.number > 1 and entry.seconds != expected:
            self._wrong(entry.path, f"entry {entry.number}: {entry.seconds} s, not {expected}")
        if entry.number == 1 and header.beginTimestamp != timestamp:
            self._wrong(entry.path, f"it begins at {header.beginTimestamp}, not {timestamp}")
        if entry.number == header.entryCount - 1 and header.endTimestamp != timestamp:
            self._wrong(entry.path, f"it ends at {header.endTimestamp}, not {timestamp}")

    def _wrong(self, path: str, detail: str) -> None:
        self._note(path, "wrong time", detail)

    def _points(self, entry: _Entry) -> bool:
        if entry.offset < self._log.first:
            # Its record has been deleted.
            return True
        found = self._log.recordAt(entry.offset)
        if found is None:
            return False
        record = found[1]
        keys = [record.properties.get(PROPERTY_UNIQ_KEY, ""), *record.keys]
        return entry.hashed in [keyHash(record.topic, each) for each in keys if each]

    def _nowhere(self, entry: _Entry) -> None:
        self._note(
            entry.path,
            "entry points nowhere",
            f"{entry.number} to {entry.offset}, where no record with such a key is",
        )

    def _sizes(self) -> None:
        sizes = Counter(os.path.getsize(each) for each in self._counts)
        for path in self._counts:
            usual, size = sizes.most_common(1)[0][0], os.path.getsize(path)
            if size != usual:
                self._note(path, "wrong size", f"{size} bytes, other index files have {usual}")

    def _sameSize(self) -> bool:
        return len({os.path.getsize(each) for each in self._paths}) == 1

    def _count(self, path: str) -> int:
        """
        The count in the header of a file, one more than its entries; 0 if it is no index file.
        """
        size = os.path.getsize(path)
        room = size - _HEADER.size - self._slotCount * 4
        if room < _ENTRY.size or room % _ENTRY.size:
            self._note(
                path,
                "wrong size",
                f"{size} bytes are not those of an index file with {self._slotCount} slots",
            )
            return 0
        header = self._handles.files.pread(self._handles.get(path), _HEADER.size, 0)
        count: int = max(_HEADER.unpack(header)[5], 1)
        if count > room // _ENTRY.size:
            self._note(path, "wrong count", f"{count}, there is room for {room // _ENTRY.size}")
            return 0
        return count

    def _read(self) -> Iterator[_Entry]:
        for path, count in self._counts.items():
            yield from self._entriesOf(path, count)

    def _entriesOf(self, path: str, count: int) -> Iterator[_Entry]:
        header = _Header(*_HEADER.unpack(self._pread(path, _HEADER.size, 0)))
        start = _HEADER.size + self._slotCount * 4
        first = last = 0
        newest = array("i", bytes(self._slotCount * 4))
        number = 0
        while number < count:
            # Chunk by chunk: an index file has 400 MB of them.
            at = start + number * _ENTRY.size
            size = min(_CHUNK, (count - number) * _ENTRY.size)
            data = self._pread(path, size, at)
            for hashed, offset, seconds, before in _ENTRY.iter_unpack(data):
                # The first entry is never used.
                if number:
                    slot = hashed % self._slotCount
                    if before != newest[slot]:
                        self._note(
                            path,
                            "broken chain",
                            f"entry {number} leads to {before}, not {newest[slot]}",
                        )
                    newest[slot] = number
                    self._entryCount += 1
                    first, last = (offset if number == 1 else first), offset
                    yield _Entry(path, number, hashed, offset, seconds, header)
                elif self._tidy and any(data[: _ENTRY.size]):
                    self._note(path, "data where there is none", "in the first entry")
                number += 1
        self._slotsOf(path, newest, count)
        used = sum(map(bool, newest))
        self._header(path, header, (first, last, used))
        if self._tidy:
            self._behind(path, start + count * _ENTRY.size)

    def _header(self, path: str, header: _Header, entries: tuple[int, int, int]) -> None:
        first, last, used = entries
        # Java lets a file without entries begin where the one before ends.
        if header.entryCount > 1 and (header.beginOffset, header.endOffset) != (first, last):
            self._note(
                path,
                "wrong offset",
                f"its header says from {header.beginOffset} to {header.endOffset}, its entries"
                f" from {first} to {last}",
            )
        if not used <= header.slotCount <= self._slotCount and self._tidy:
            self._note(path, "wrong count", f"{header.slotCount} slots, {used} are in use")
        if header.entryCount > 1 and not 0 < header.beginTimestamp < _LATEST:
            self._wrong(path, f"it begins at {header.beginTimestamp}")
        if header.entryCount > 1 and not 0 < header.endTimestamp < _LATEST:
            self._wrong(path, f"it ends at {header.endTimestamp}")

    def _behind(self, path: str, at: int) -> None:
        """
        Check that nothing is behind the last entry.  After a crash there may be whole
        entries, of records that were lost.
        """
        base = _HEADER.size + self._slotCount * 4
        while data := self._pread(path, _CHUNK, at):
            if data.strip(b"\0"):
                start = (at - base) // _ENTRY.size
                for number, entry in enumerate(_ENTRY.iter_unpack(data), start):
                    if any(entry) and not (entry[0] and entry[1]):
                        self._note(path, "data behind the last entry", f"entry {number}")
            at += len(data)

    def _pread(self, path: str, size: int, at: int) -> bytes:
        return self._handles.files.pread(self._handles.get(path), size, at)

    def _slotsOf(self, path: str, newest: array[int], count: int) -> None:
        there = array("i", self._pread(path, self._slotCount * 4, _HEADER.size))
        if sys.byteorder == "little":
            there.byteswap()
        if not self._tidy and max(there) >= count:
            # A crash may leave slots that point to entries that do not count.
            there = array("i", [n if s >= count else s for s, n in zip(there, newest, strict=True)])
        if there != newest:
            wrong = [each for each in range(self._slotCount) if there[each] != newest[each]]
            self._note(
                path,
                "slot without its newest entry",
                f"{len(wrong)} of them, the first is {wrong[0]}: "
                f"{there[wrong[0]]}, not {newest[wrong[0]]}",
            )
