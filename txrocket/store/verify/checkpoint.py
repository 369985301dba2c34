# SPDX-License-Identifier: Apache-2.0
"""
Checking the checkpoint against the log, the queues and the index.

Its times are store times of records, so a record must have each of them, unless it
was deleted as old.  Our part has a CRC; that alone does not tell whether it belongs to
this folder.
"""

from __future__ import annotations

import os

from txrocket.message import MessageExt
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.verify.readonly import Note

__all__ = ["CheckpointCheck"]

_SIZE = 4096
# Java's part, and ours.
_JAVA = slice(0, 24)
_OWN = slice(64, 121)


class CheckpointCheck:
    """
    Compares a checkpoint with all records.

    @ivar there: the checkpoint.
    @ivar tidy: whether the folder is as we have closed it.
    """

    def __init__(self, handles: Handles, root: str, closed: bool, note: Note) -> None:
        self._path = os.path.join(root, "checkpoint")
        self._note = note
        self._closed = closed
        self.there = Checkpoint()
        self._data = b""
        self._present = os.path.exists(self._path)
        if self._present:
            self.there = CheckpointFile(handles, self._path).read()
            self._data = handles.files.pread(handles.get(self._path), 2 * _SIZE, 0)
        self.tidy = closed and self.there.ours
        self._wanted = {
            self.there.logTimestamp,
            self.there.queueTimestamp,
            self.there.indexTimestamp,
            self.there.timestamp,
        } - {0}
        self._times = set(self._wanted)
        self._first: int | None = None
        self._boundary = False

    def see(self, record: MessageExt) -> None:
        """
        There is a record.
        """
        if self._first is None:
            self._first = record.storeTimestamp
        self._wanted.discard(record.storeTimestamp)
        offset = self.there.offset
        if offset in (record.commitLogOffset, record.commitLogOffset + record.storeSize):
            self._boundary = True

    def finish(
        self, first: int, end: int, logEnd: int, entries: int, index: dict[str, int]
    ) -> None:
        """
        All records have been seen.

        @param first: where the log begins.
        @param end: where the last record ends.
        @param logEnd: where the log's last file ends.
        @param entries: how many entries the queues have had.
        @param index: the counts of index files by name, in order.
        """
        if not self._present:
            if end > first and self._closed:
                self._tell("no file", "there is a log that was closed, and no checkpoint")
            return
        self._shape()
        offset = self.there.offset
        nothingSince = self._closed and offset is not None and offset >= end
        if nothingSince:
            wrong = self._times - {self.there.timestamp}
        else:
            # One of a record that was deleted may be earlier than all.
            wrong = {each for each in self._wanted if each >= (self._first or 0)}
        for time in sorted(wrong):
            self._tell("wrong time", f"{time}, which is not that of a record")
        if offset is None:
            return
        if offset > logEnd or (offset > end and not self._atFile(offset, end, logEnd)):
            self._tell("ahead of the log", f"{offset}, the log ends at {end}")
        elif first < offset < end and not self._boundary:
            self._tell("wrong offset", f"{offset}, where no record begins or ends")
        if self.tidy:
            self._last(offset, end, entries, index)

    def _last(self, offset: int, end: int, entries: int, index: dict[str, int]) -> None:
        """
        Nothing has happened since: all must be as it says.
        """
        if offset < end:
            self._tell("behind the log", f"{offset}, the log was closed and ends at {end}")
            return
        if self.there.entries != entries:
            self._tell("wrong number of entries", f"{self.there.entries}, queues have {entries}")
        mark = self.there.index
        # Index files may be deleted, all together.
        if mark is not None and index and index.get(mark.name) != mark.count:
            self._tell(
                "wrong index",
                f"{mark.name} with a count of {mark.count}, which has {index.get(mark.name)}",
            )

    @staticmethod
    def _atFile(offset: int, end: int, logEnd: int) -> bool:
        """
        Whether a new file was begun behind the last record, and nothing is in it.
        """
        return end < offset <= logEnd

    def _shape(self) -> None:
        data = self._data
        # A store that was killed before its first checkpoint has an empty one.
        if len(data) != _SIZE and (data or self._closed):
            self._tell("wrong size", f"{os.path.getsize(self._path)} bytes, not {_SIZE}")
        if any(data[_OWN]) and self.there.offset is None:
            self._tell("wrong checksum", "txrocket's part does not match its CRC")
        if any(data[_JAVA.stop : _OWN.start]) or any(data[_OWN.stop :]):
            self._tell("data where there is none", "behind the times, or behind txrocket's part")
        if not any(data) and self._first is not None and self._closed:
            self._tell("empty", "it tells of nothing, and there are records")

    def _tell(self, kind: str, detail: str) -> None:
        self._note(self._path, kind, detail)
