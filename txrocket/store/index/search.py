# SPDX-License-Identifier: Apache-2.0
"""
A search in the index: the reactor thread makes it, another thread runs it, and the reactor
thread ends it::

    key --> hash --> slot of each file --> IndexChain: newest entry, entry before it, ...
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import attrs

from txrocket.store.files import Files

__all__ = ["ENTRY", "IndexChain", "IndexSearch", "Queried"]

#: Hash, offset in the log, seconds, entry before.
ENTRY: Final = Struct(">iqii")


class Queried(NamedTuple):
    """
    Offsets in the log whose records may have a key, newest first, and how far
    the index reaches.
    """

    offsets: list[int]
    lastTimestamp: int
    lastOffset: int


@attrs.frozen
class IndexChain:
    """
    The entries of one hash in one file, from the newest on, as they were at some
    moment.  To follow them takes a read for each, and a key that many messages
    have has many: a thread does that.

    @ivar handle: the file's, pinned.
    @ivar first: the newest entry; 0 if the chain is empty.
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
            return ENTRY.unpack_from(self.gathered, (at - self.written) * ENTRY.size)
        data = self.files.pread(self.handle, ENTRY.size, self.base + at * ENTRY.size)
        return ENTRY.unpack(data) if len(data) == ENTRY.size else (0, 0, 0, 0)


class IndexSearch:
    """
    A search for a key: made in the reactor thread, run in any, ended in the
    reactor thread.
    """

    def __init__(self, chains: list[IndexChain], begin: int, end: int, most: int) -> None:
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
