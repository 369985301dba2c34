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

Entries are only added, but slots change in place.  A slot that reaches the disk before the
entry it points to would cut the chain.  So slots change in memory, and are written to the
file only after their entries are on the disk (L{Index.seal}, L{Index.settle}).  A crash may
leave slots that point past the entries that count.  The chain leads back from there, and
L{Index.rewind} corrects such slots before entries are written again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import attrs

from txrocket.bulk import PAIR, keyHash
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.index.file import IndexFile, TimeOf
from txrocket.store.index.search import IndexSearch, Queried

__all__ = ["Index", "IndexMark", "Queried"]


@attrs.frozen
class IndexMark:
    """
    Up to where the newest index file is known to be whole.
    """

    name: str
    count: int


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
        self._indexFiles: list[IndexFile] = []
        self._unsettled: list[tuple[IndexFile, bytes]] = []

    def load(self) -> None:
        """
        Find the files.
        """
        damaged = False
        for name in self._handles.files.names(self._folder):
            if name.isascii() and name.isdigit():
                indexFile = self._file(name)
                if damaged or self._handles.files.size(indexFile.path) != indexFile.size:
                    # Later files go, too: the log makes all entries anew from there on.
                    damaged = True
                    self._remove(indexFile)
                    continue
                indexFile.load()
                self._indexFiles.append(indexFile)

    def rewind(self, mark: IndexMark | None, timeOf: TimeOf, *, doubt: bool) -> bool:
        """
        Go back to the entries of a checkpoint.

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
        Add the keys of a record.  A record that is in the index already is left as it is.
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

    def search(self, topic: str, key: str, begin: int, end: int, most: int) -> IndexSearch:
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
        return IndexSearch(chains, begin, end, most)

    def ended(self, search: IndexSearch) -> Queried:
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

        @return: how far the index is safe then.
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
        Write the slots of the sealed entries.
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
        The log ends at C{end}: forget the entries for records behind it.
        """
        while self._indexFiles and self._indexFiles[-1].beginOffset >= end:
            self._remove(self._indexFiles.pop())
        if self._indexFiles:
            self._indexFiles[-1].cut(end, timeOf)

    def markAt(self, end: int) -> IndexMark | None:
        """
        What the index had when the log ended at an offset.
        """
        for indexFile in reversed(self._indexFiles):
            count = indexFile.countBefore(end)
            if count > 1:
                return IndexMark(indexFile.name, count)
        return None

    def forget(self) -> None:
        """
        Let go of all files, and of the entries and slots that are in none.
        """
        for indexFile in self._indexFiles:
            self._handles.forget(indexFile.path)
        self._indexFiles.clear()
        self._unsettled.clear()

    def clear(self) -> None:
        """
        Forget everything.
        """
        while self._indexFiles:
            self._remove(self._indexFiles.pop())

    def _room(self) -> IndexFile:
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

    def _file(self, name: str) -> IndexFile:
        path = os.path.join(self._folder, name)
        return IndexFile(self._handles, path, self._slots, self._capacity)

    def _remove(self, indexFile: IndexFile) -> None:
        self._handles.forget(indexFile.path)
        self._handles.files.remove(indexFile.path)
