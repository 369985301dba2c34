# SPDX-License-Identifier: Apache-2.0
"""
The checkpoint: up to where everything is on the disk.  4096 bytes, of which Java
uses 24 and we use more::

      0                8                16               24 ... 64
      +----------------+----------------+----------------+ - - +
      | log's time     | queues' time   | index's time   |     |
      +----------------+----------------+----------------+ - - +
     64               72       80          88        96           113     117   121
      +----------------+--------+-----------+---------+------------+-------+-----+
      | "txrocket"     | offset | timestamp | entries | index file | count | CRC |
      +----------------+--------+-----------+---------+------------+-------+-----+

The times are store times of messages, in milliseconds.  Java finds the file of the
log to begin with by them.  An offset is more exact: a start reads only records that were
not safe yet, however long the log is.  Java leaves our part alone, and if it
has worked on the folder meanwhile, our offset is merely early.

All of it lies in one sector, which a disk writes whole or not at all.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

import attrs

from txrocket.store.files.handles import Handles
from txrocket.store.index import IndexMark

__all__ = ["Checkpoint", "CheckpointFile"]

_FILE_SIZE = 4096
_TIMES = Struct(">3q")
_OWN = Struct(">8s3q17si")
_OWN_AT = 64
_MAGIC = b"txrocket"

# Java subtracts this before it believes a time.
_DOUBT = 3000


@attrs.frozen
class Checkpoint:
    """
    The part of the store that is known to be safe.

    @ivar offset: everything before this offset is, in log, queues and index;
        L{None} if only Java has written the checkpoint.
    @ivar index: up to where the newest index file is.
    @ivar timestamp: the store time of the last record before that offset.
    @ivar entries: how many entries the queues have had, all together.
    """

    logTimestamp: int = 0
    queueTimestamp: int = 0
    indexTimestamp: int = 0
    offset: int | None = None
    index: IndexMark | None = None
    timestamp: int = 0
    entries: int = 0

    @property
    def ours(self) -> bool:
        """
        Whether Java has not written to it since we have.
        """
        times = {self.logTimestamp, self.queueTimestamp, self.indexTimestamp}
        return self.offset is not None and times == {self.timestamp}

    @property
    def safeTimestamp(self) -> int:
        """
        Records stored up to this time are in log and queues.
        """
        return max(min(self.logTimestamp, self.queueTimestamp) - _DOUBT, 0)


class CheckpointFile:
    """
    The file C{checkpoint}.
    """

    def __init__(self, handles: Handles, path: str) -> None:
        self._handles = handles
        self.path = path

    def read(self) -> Checkpoint:
        """
        The last checkpoint; an empty one if none was written.
        """
        data = self._handles.files.pread(self._handles.get(self.path), _FILE_SIZE, 0)
        data = data.ljust(_FILE_SIZE, b"\0")
        log, queues, index = _TIMES.unpack_from(data)
        magic, offset, timestamp, entries, name, count = _OWN.unpack_from(data, _OWN_AT)
        end = _OWN_AT + _OWN.size
        crc = int.from_bytes(data[end : end + 4], "big")
        if magic != _MAGIC or crc != crc32(data[_OWN_AT:end]):
            return Checkpoint(log, queues, index)
        mark = IndexMark(name.rstrip(b"\0").decode("ascii", "replace"), count)
        return Checkpoint(
            log, queues, index, offset, mark if mark.name else None, timestamp, entries
        )

    def write(self, checkpoint: Checkpoint) -> None:
        """
        Put a checkpoint into the place of the last one.
        """
        times = _TIMES.pack(
            checkpoint.logTimestamp, checkpoint.queueTimestamp, checkpoint.indexTimestamp
        )
        data = times.ljust(_OWN_AT, b"\0") + self._own(checkpoint)
        handle = self._handles.get(self.path)
        if self._handles.files.size(self.path) != _FILE_SIZE:
            self._handles.files.truncate(handle, _FILE_SIZE)
        self._handles.files.pwrite(handle, data, 0)

    def sync(self) -> None:
        """
        Wait until it is on the disk.  Blocks.
        """
        self._handles.files.sync(self._handles.get(self.path))

    @staticmethod
    def _own(checkpoint: Checkpoint) -> bytes:
        if checkpoint.offset is None:
            return bytes(_OWN.size + 4)
        index = checkpoint.index or IndexMark("", 0)
        own = _OWN.pack(
            _MAGIC,
            checkpoint.offset,
            checkpoint.timestamp,
            checkpoint.entries,
            index.name.encode("ascii"),
            index.count,
        )
        return own + crc32(own).to_bytes(4, "big")
