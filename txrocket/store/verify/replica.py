# SPDX-License-Identifier: Apache-2.0
"""
Checking what replication leaves in a folder::

    epochFileCheckpoint, .bak    which master has written which bytes of the log
    cut/*.log                    records that were cut off the log
    aside/*                      logs that were set aside: counted, and not looked into
"""

from __future__ import annotations

import os
from typing import NamedTuple

from txrocket.errors import MalformedRecord
from txrocket.protocol.record.recordfile import readRecordFile
from txrocket.store.replica.aside import ASIDE_FOLDER
from txrocket.store.replica.cut import CUT_FOLDER
from txrocket.store.replica.epochs import EPOCH_FILE, decodeEpochs
from txrocket.store.verify.readonly import Note

__all__ = ["ReplicaCheck", "ReplicaCounts"]


class ReplicaCounts(NamedTuple):
    """
    How much there is.
    """

    epochs: int = 0
    cutFiles: int = 0
    cutRecords: int = 0
    asides: int = 0


class ReplicaCheck:
    """
    The files of replication in a folder.
    """

    def __init__(self, root: str, end: int, closed: bool, note: Note) -> None:
        """
        @param end: where the log ends.
        @param closed: whether the last process has closed the folder.
        """
        self._root = root
        self._end = end
        self._closed = closed
        self._note = note

    def run(self) -> ReplicaCounts:
        """
        Check all.
        """
        folder = os.path.join(self._root, CUT_FOLDER)
        cuts = [each for each in _names(folder) if each.endswith(".log")]
        records = sum(self._cut(os.path.join(folder, each)) for each in cuts)
        asides = len(_names(os.path.join(self._root, ASIDE_FOLDER)))
        return ReplicaCounts(self._epochs(), len(cuts), records, asides)

    def _epochs(self) -> int:
        found = 0
        for name in (f"{EPOCH_FILE}.bak", EPOCH_FILE):
            path = os.path.join(self._root, name)
            if not os.path.exists(path):
                continue
            with open(path, "rb") as file:
                data = file.read()
            try:
                epochs = decodeEpochs(data)
            except ValueError as error:
                self._note(path, "does not parse", str(error))
                continue
            found = len(epochs)
            if self._closed and epochs and epochs[-1].start > self._end:
                self._note(
                    path,
                    "wrong content",
                    f"epoch {epochs[-1].epoch} starts at {epochs[-1].start}, behind the end of "
                    f"the log at {self._end}",
                )
        return found

    def _cut(self, path: str) -> int:
        count = 0
        with open(path, "rb") as file:
            try:
                for _ in readRecordFile(file.read):
                    count += 1
            except MalformedRecord as error:
                self._note(path, "bad record", str(error))
        return count


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
