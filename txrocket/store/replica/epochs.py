# SPDX-License-Identifier: Apache-2.0
"""
The epochs of a log: which master has written which bytes of it.

Each master begins an epoch where its predecessor's log ends for it.  Two logs that have the
same epoch with the same start agree up to there, and as far as both have bytes of that epoch::

    mine     |--- 1 ---|--- 2 -------|          (1, 0) (2, 500)
    theirs   |--- 1 ---|- 2 -|--- 3 ------|     (1, 0) (2, 500) (3, 700)
                             ^ commonEnd: here mine is cut

So no byte may be in a log under the epoch of another master.  A slave keeps to this order, each
step being on the disk before the next one:

 1. it cuts its log at L{commonEnd}, or L{sets it aside<txrocket.store.replica.ReplicaLog.beginAt>}
    and forgets all epochs;
 2. it forgets the epochs that start at the end of its log or behind it (L{EpochFile.cutAt}), even
    if nothing was cut: a power loss may have taken their bytes;
 3. it takes the epoch of the master that the next byte belongs to (L{EpochFile.append}), and then
    the byte.

A broker that finds damaged records when it starts, and whose log has copies, ends its log before
them: filling their place would change bytes that the copies have.

A broker that begins to lead takes an epoch that none has had before, at the end of its log.

The file C{epochFileCheckpoint} is that of RocketMQ 5 (C{CheckpointFile}, C{EpochFileCache})::

    2             how many there are
    773307083     CRC-32 of what follows, without its highest bit; 0 is not checked
    7-7000        epoch and start
    8-8000

Its copy C{.bak} has the same epochs, where RocketMQ keeps the last version there: a log whose
newest epoch is forgotten would be taken for one with other bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

from twisted.logger import Logger

from txrocket.errors import DiskFull, StoreCorrupt, StoreError, StoreFailed
from txrocket.store.files import FULL, Files

__all__ = ["EPOCH_FILE", "Epoch", "EpochFile", "commonEnd", "decodeEpochs", "encodeEpochs"]

#: The file's name in the folder of the store.
EPOCH_FILE: Final = "epochFileCheckpoint"

_LINE = re.compile(r"(\d{1,10})-(\d{1,19})")
_INT_MAX = 0x7FFFFFFF
_LONG_MAX = (1 << 63) - 1


class Epoch(NamedTuple):
    """
    The number of an epoch, and the offset of the log at which it starts.
    """

    epoch: int
    start: int


def commonEnd(
    mine: Sequence[Epoch], mineEnd: int, theirs: Sequence[Epoch], theirsEnd: int
) -> int | None:
    """
    Up to where two logs have the same bytes.

    @param mineEnd: where the one log ends.  Epochs that start behind it have no bytes.
    @param theirsEnd: where the other one ends.
    @return: L{None} if no epoch is common.
    """
    held = _ends(mine, mineEnd)
    others = _ends(theirs, theirsEnd)
    for each in reversed(list(held)):
        if each in others:
            return min(held[each], others[each])
    return None


def _ends(epochs: Sequence[Epoch], end: int) -> dict[Epoch, int]:
    """
    Where each epoch of a log ends.
    """
    held = [each for each in epochs if each.start <= end]
    starts = [*(each.start for each in held), end]
    return dict(zip(held, starts[1:], strict=True))


def encodeEpochs(epochs: Sequence[Epoch]) -> bytes:
    """
    The text of the file.
    """
    lines = "".join(f"{each.epoch}-{each.start}\n" for each in epochs).encode("ascii")
    return b"%d\n%d\n%s" % (len(epochs), crc32(lines) & _INT_MAX, lines)


def decodeEpochs(data: bytes) -> list[Epoch]:
    """
    Read the text of the file.

    @raise ValueError: if it is not valid, with the reason.
    """
    head = data.split(b"\n", 2)
    if len(head) < 3 or not head[0].isdigit() or not head[1].isdigit():
        raise ValueError("it does not begin with a count and a checksum")
    # Java ends lines as its system does.
    lines = head[2].decode("ascii", "replace").splitlines()
    if int(head[1]) not in (0, crc32(head[2]) & _INT_MAX):
        raise ValueError("it does not match its checksum")
    epochs = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not an epoch and an offset")
        epochs.append(Epoch(int(match[1]), int(match[2])))
    if len(epochs) != int(head[0]):
        raise ValueError(f"{int(head[0])} epochs were expected, and there are {len(epochs)}")
    for earlier, later in pairwise(epochs):
        if later.epoch <= earlier.epoch or later.start <= earlier.start:
            raise ValueError(f"epoch {later} does not follow on {earlier}")
    if any(each.epoch > _INT_MAX or each.start > _LONG_MAX for each in epochs):
        raise ValueError("a number is too large")
    return epochs


class EpochFile:
    """
    The epochs of the log of a store.  Every change is on the disk when its call returns.
    """

    _log = Logger()

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._entries: tuple[Epoch, ...] = ()

    @property
    def entries(self) -> Sequence[Epoch]:
        """
        The epochs, the oldest first.
        """
        return self._entries

    @property
    def last(self) -> Epoch | None:
        """
        The newest epoch, if there is one.
        """
        return self._entries[-1] if self._entries else None

    def load(self) -> None:
        """
        Read the file, or its copy if it is damaged or missing.

        @raise StoreCorrupt: if both are damaged.
        @raise StoreFailed: if the disk fails.
        """
        problems: list[str] = []
        found: list[Epoch] | None = None
        for path in (self.path, f"{self.path}.bak"):
            data = self._read(path)
            if data is None:
                continue
            try:
                found = decodeEpochs(data)
                break
            except ValueError as error:
                problems.append(f"{path} is damaged: {error}")
        if found is None and problems:
            raise StoreCorrupt(
                f"{'; '.join(problems)}.  Restore one of them; or, if this broker is a slave, "
                "remove both: then its log is compared with nothing, and copied anew from its "
                "master"
            )
        self._entries = tuple(found or ())
        if problems:
            self._log.error(
                "{problems}; its copy is used", problems="; ".join(problems), path=self.path
            )
            self._save(self._entries)
        elif found is not None:
            self._syncName()

    def append(self, epoch: int, start: int) -> None:
        """
        Begin an epoch at the end of the log.  Epochs that start there, or behind it, have no
        bytes and are forgotten.

        @raise StoreError: if the epoch is not higher than the last one.
        @raise DiskFull: if there is no room.
        @raise StoreFailed: if the disk fails.
        """
        last = self.last
        if last == (epoch, start):
            return
        if not 0 <= epoch <= _INT_MAX or not 0 <= start <= _LONG_MAX:
            raise StoreError(f"epoch {epoch} at {start} is not valid")
        if last is not None and epoch <= last.epoch:
            raise StoreError(f"epoch {epoch} at {start} does not follow on {tuple(last)}")
        kept = [each for each in self._entries if each.start < start]
        self._save((*kept, Epoch(epoch, start)))

    def cutAt(self, offset: int) -> None:
        """
        Forget the epochs that start at an offset or behind it, because the log ends there.

        @raise DiskFull: if there is no room.
        @raise StoreFailed: if the disk fails.
        """
        kept = tuple(each for each in self._entries if each.start < offset)
        if kept != self._entries:
            self._save(kept)

    def _save(self, entries: tuple[Epoch, ...]) -> None:
        data = encodeEpochs(entries)
        try:
            self._files.makeFolder(os.path.dirname(self.path))
            # The copy last: if the power goes in between, the file is whole.
            self._replace(self.path, data)
            self._replace(f"{self.path}.bak", data)
        except OSError as error:
            if error.errno in FULL:
                raise DiskFull(f"{self.path}: no room for {len(data)} bytes") from error
            raise StoreFailed(f"writing {self.path} failed: {error}") from error
        self._entries = entries

    def _replace(self, path: str, data: bytes) -> None:
        handle = self._files.open(f"{path}.tmp")
        try:
            self._files.truncate(handle, 0)
            self._files.pwrite(handle, data, 0)
            self._files.sync(handle)
        finally:
            self._files.close(handle)
        self._files.rename(f"{path}.tmp", path)
        self._files.syncFolder(os.path.dirname(path))

    def _syncName(self) -> None:
        """
        Make sure that a power loss does not bring back the file before: a process that was
        killed may have renamed this one, and not synced.
        """
        try:
            self._files.syncFolder(os.path.dirname(self.path))
        except OSError as error:
            raise StoreFailed(f"syncing {self.path} failed: {error}") from error

    def _read(self, path: str) -> bytes | None:
        size = self._files.size(path)
        if size is None:
            return None
        handle = self._files.open(path)
        try:
            return self._files.pread(handle, size, 0)
        finally:
            self._files.close(handle)
