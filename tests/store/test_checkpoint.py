# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.flush.checkpoint}.
"""

from __future__ import annotations

import os
import zlib

from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import Checkpoint, CheckpointFile
from txrocket.store.index import IndexMark

# What Java's StoreCheckpoint writes.
JAVAS = bytes.fromhex(
    "0000018bcfe56801"  # store time of the last record of the log
    "0000018bcfe56802"  # of the queues
    "0000018bcfe56803"  # of the index
)
OWN = bytes.fromhex(
    "7478726f636b6574"  # "txrocket"
    "0000000000012345"  # offset
    "0000018bcfe56804"  # store time of the last record before it
    "0000000000000678"  # entries of all queues
    "3230323331313134323231333230303037"  # "20231114221320007"
    "00000009"  # count
)
WHOLE = Checkpoint(
    0x18BCFE56801,
    0x18BCFE56802,
    0x18BCFE56803,
    0x12345,
    IndexMark("20231114221320007", 9),
    0x18BCFE56804,
    0x678,
)


class CheckpointTests(SynchronousTestCase):
    """
    Tests for L{CheckpointFile}.
    """

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.handles = Handles(Disk())
        self.addCleanup(self.handles.close)
        self.file = CheckpointFile(self.handles, self.path)

    def test_fileHasLayoutOfJava(self) -> None:
        """
        Java's three times come first, our part follows at 64 with its CRC, and
        the file has the page that Java maps.
        """
        self.file.write(WHOLE)
        with open(self.path, "rb") as file:
            data = file.read()
        expected = JAVAS.ljust(64, b"\0") + OWN + zlib.crc32(OWN).to_bytes(4, "big")
        self.assertEqual(expected.ljust(4096, b"\0"), data)
        self.assertEqual(WHOLE, self.file.read())

    def test_missingFileKnowsNothing(self) -> None:
        """
        A file that is not there, or empty, knows nothing.
        """
        self.assertEqual(Checkpoint(), self.file.read())

    def test_checkpointOfJavaHasNoOffset(self) -> None:
        """
        A checkpoint of Java's has its times and no offset.
        """
        with open(self.path, "wb") as file:
            file.write(JAVAS.ljust(4096, b"\0"))
        read = self.file.read()
        self.assertEqual(
            (WHOLE.logTimestamp, WHOLE.queueTimestamp, WHOLE.indexTimestamp, None, None),
            (read.logTimestamp, read.queueTimestamp, read.indexTimestamp, read.offset, read.index),
        )

    def test_flippedBitMakesOffsetUnknown(self) -> None:
        """
        A flipped bit anywhere in our part makes it unknown, and leaves the times.
        """
        self.file.write(WHOLE)
        with open(self.path, "rb") as file:
            data = bytearray(file.read())
        for at in range(64, 64 + len(OWN) + 4):
            data[at] ^= 1
            with open(self.path, "r+b") as file:
                file.write(data)
            read = self.file.read()
            self.assertIsNone(read.offset)
            self.assertEqual(WHOLE.logTimestamp, read.logTimestamp)
            data[at] ^= 1

    def test_missingIndexIsRead(self) -> None:
        """
        A checkpoint without an index file is read as such.
        """
        checkpoint = Checkpoint(5, 5, 5, 7, None, 5, 1)
        self.file.write(checkpoint)
        self.assertEqual(checkpoint, self.file.read())

    def test_newCheckpointReplacesOld(self) -> None:
        """
        A checkpoint takes the place of the last, and nothing of that remains.
        """
        self.file.write(WHOLE)
        self.file.write(Checkpoint(1, 2, 3, 4))
        self.assertEqual(Checkpoint(1, 2, 3, 4), self.file.read())
        self.assertEqual(4096, os.stat(self.path).st_size)

    def test_changedTimeMakesForeign(self) -> None:
        """
        A checkpoint is ours while all three times are the one that we wrote
        with the offset: whatever Java writes, it writes times.
        """
        self.assertTrue(Checkpoint(5, 5, 5, 7, None, 5).ours)
        self.assertTrue(Checkpoint(0, 0, 0, 0).ours)
        for times in ((6, 5, 5), (5, 6, 5), (5, 5, 6), (6, 6, 6), (5, 5, 0)):
            self.assertFalse(Checkpoint(*times, 7, None, 5).ours)
        self.assertFalse(Checkpoint(5, 5, 5, None, None, 5).ours)
        self.assertFalse(Checkpoint().ours)

    def test_earlierTimeIsSafe(self) -> None:
        """
        The earlier of the log's and the queues' time counts, less Java's three
        seconds, and is never negative.
        """
        self.assertEqual(7000, Checkpoint(10_000, 11_000).safeTimestamp)
        self.assertEqual(6000, Checkpoint(10_000, 9_000).safeTimestamp)
        self.assertEqual(0, Checkpoint(2_000, 9_000).safeTimestamp)
