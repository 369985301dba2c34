# SPDX-License-Identifier: Apache-2.0
"""
The tables in C{config/}: small JSON files that are written as a whole.

A table is never changed in place.  The new one is written beside the old one and
synced, then renamed over it; the old one stays as C{.bak}.  Whenever the power
goes, one of the two is whole::

    topics.json.bak.tmp --sync, rename, sync folder--> topics.json.bak   the last table
    topics.json.tmp     --sync, rename, sync folder--> topics.json       the new table

JSON survives many a flipped bit, with another number or name in it.  So a table ends
with a checksum, the CRC-32 of the text without it::

    {"offsetTable":{"T@G":{0:7}},"txrocketCrc32":"1c291ca3"}

fastjson passes over members that it does not know, so Java reads such a file.  A file
that Java has written has no checksum, and none is asked for.

A damaged table is kept aside under a name with its own CRC-32, so that every start
finds the same name.  It stays in its place as well until the next save, because a
missing table would be taken for that of a new broker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

from twisted.logger import Logger

from txrocket.errors import DiskFull, MalformedBody, ProtocolError, StoreCorrupt, StoreFailed
from txrocket.store.files import FULL, Files

__all__ = ["TABLES", "Table", "checked", "sealed"]

# The tables that RocketMQ keeps.
TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
)

_Value = TypeVar("_Value")

_NAME = b"txrocketCrc32"
_CHECKSUM = re.compile(rb',?"([^"]{13})":"([^"]{8})"\}\Z')
# A member with a checksum, and some more.
_LONGEST = 64


def sealed(data: bytes) -> bytes:
    """
    The text of a table with its checksum.  A text that is no JSON object stays as it is.
    """
    if not data.endswith(b"}"):
        return data
    comma = b"" if data == b"{}" else b","
    return b'%s%s"%s":"%08x"}' % (data[:-1], comma, _NAME, crc32(data))


def checked(data: bytes, *, strict: bool = False) -> bytes:
    """
    The text of a table without its checksum, if it has one.

    A bit that flips in the text changes many bits of its CRC-32.  So where a single
    bit of the checksum is another one, the checksum was damaged, and not the text.

    @param strict: whether to tell of that too.
    @raise MalformedBody: if the checksum is another one.
    """
    found = _CHECKSUM.search(data, max(0, len(data) - _LONGEST))
    if found is None:
        return data
    text = data[: found.start()] + b"}"
    there = int.from_bytes(found[1] + found[2], "big")
    differing = (there ^ int.from_bytes(b"%s%08x" % (_NAME, crc32(text)), "big")).bit_count()
    if differing > (0 if strict else 1):
        raise MalformedBody("it does not match its checksum")
    return text


class Table:
    """
    One table.

    @ivar damaged: whether L{load} has found another table than was saved last.
    """

    _log = Logger()

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.damaged = False
        self._current: bytes | None = None

    def load(
        self,
        decode: Callable[[bytes], _Value],
        mend: Callable[[_Value | None, Sequence[bytes]], _Value | None] | None = None,
    ) -> _Value | None:
        """
        Read the table, or the one before it if it is damaged.

        @param decode: makes a value of the text; raises L{ProtocolError} if it
            is not valid.
        @param mend: makes a value of the one before, if that can be read, and of the
            damaged texts, the newest first.  Without it, the one before is taken.
        @return: the value; L{None} if there is no table.
        @raise StoreCorrupt: if both are damaged and nothing can mend them.
        """
        problems: list[str] = []
        spoiled: list[bytes] = []
        older: _Value | None = None
        for path in (self.path, f"{self.path}.bak"):
            data = self._read(path)
            if data is None:
                continue
            try:
                text = checked(data)
                if not text:
                    raise MalformedBody("it is empty")
                older = decode(text)
            except ProtocolError as error:
                why = f"is damaged: {error}" if data else "is empty"
                problems.append(f"{path} {why}{self._aside(path, data)}")
                spoiled.append(data)
                continue
            if path == self.path:
                self._current = text
                return older
            break
        if older is None and not problems:
            return None
        self.damaged = True
        if older is None and mend is None:
            raise StoreCorrupt(
                f"{'; '.join(problems)}; restore one of them, or remove both to begin anew"
            )
        self._tell(problems or [f"{self.path} is missing"], older is not None)
        return older if mend is None else mend(older, spoiled)

    def _tell(self, problems: list[str], hasOlder: bool) -> None:
        self._log.error(
            "{problems}; {used}",
            problems="; ".join(problems),
            path=f"{self.path}.bak" if hasOlder else self.path,
            used=f"the broker uses {self.path}.bak, which is older, and adds what is legible"
            if hasOlder
            else "the broker goes on with what is legible: compare it with what you expect",
        )

    def save(self, data: bytes) -> None:
        """
        Put a new table into the place of the old one.  Blocks for a moment.

        @raise DiskFull: if there is no room; the old one stays.
        @raise StoreFailed: if the disk does not take it; it may be taken anew.
        """
        if data == self._current:
            return
        folder = os.path.dirname(self.path)
        try:
            self._files.makeFolder(folder)
            if self._current is not None:
                self._replace(f"{self.path}.bak", sealed(self._current))
            self._replace(self.path, sealed(data))
        except OSError as error:
            if error.errno not in FULL:
                raise StoreFailed(f"writing {self.path} failed: {error}") from error
            free = self._files.space(os.path.dirname(folder))[1]
            raise DiskFull(f"{self.path}: no room, {free} bytes are free") from error
        self._current = data

    def _replace(self, path: str, data: bytes) -> None:
        self._write(f"{path}.tmp", data)
        self._files.rename(f"{path}.tmp", path)
        self._files.syncFolder(os.path.dirname(path))

    def _write(self, path: str, data: bytes) -> None:
        handle = self._files.open(path)
        try:
            self._files.truncate(handle, 0)
            self._files.pwrite(handle, data, 0)
            self._files.sync(handle)
        finally:
            self._files.close(handle)

    def _aside(self, path: str, data: bytes) -> str:
        """
        Keep a damaged table for its owner to look at.

        @return: where, as a part of a sentence; nothing if there is nothing to keep.
        """
        if not data:
            return ""
        aside = f"{path}.damaged-{crc32(data):08x}"
        try:
            if self._files.size(aside) != len(data):
                self._write(aside, data)
                self._files.syncFolder(os.path.dirname(path))
        except OSError as error:
            return f" (it could not be kept as {aside}: {error})"
        return f" (kept as {aside})"

    def _read(self, path: str) -> bytes | None:
        size = self._files.size(path)
        if size is None:
            return None
        handle = self._files.open(path)
        try:
            return self._files.pread(handle, size, 0)
        finally:
            self._files.close(handle)
