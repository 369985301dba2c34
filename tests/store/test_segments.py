# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.files.segments}.
"""

from __future__ import annotations

import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk
from txrocket.errors import StoreCorrupt, StoreError
from txrocket.store.files.handles import Handles
from txrocket.store.files.segments import Segments
from txrocket.store.files.syncjob import SyncJob


class _Case(SynchronousTestCase):
    """
    Pieces of 100 bytes.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.folder = self.mktemp()
        self.handles = Handles(self.disk)
        self.addCleanup(self.handles.close)
        self.segments = self.make()

    def make(self) -> Segments:
        """
        Look at the folder with new eyes.
        """
        return Segments(self.handles, self.folder, 100, self.disk.truncate)

    def lay(self, name: str, size: int = 100) -> None:
        """
        Put a file into the folder.
        """
        self.disk.makeFolder(self.folder)
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(b"x" * size)

    def state(self) -> tuple[int, set[str], set[str]]:
        """
        The end, and what is to be synced.
        """
        return self.segments.end, self.segments.dirtyPaths, self.segments.dirtyFolders


class SegmentsTests(_Case):
    """
    Tests for L{Segments}.
    """

    def test_nameIsFirstOffset(self) -> None:
        """
        A piece is named by the 20 digits of its first offset, as in Java.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.assertEqual(
            ["00000000000000000000", "00000000000000000100"], self.disk.names(self.folder)
        )
        self.assertEqual(200, self.segments.end)

    def test_noPiecesAreEmpty(self) -> None:
        """
        Without pieces everything is empty, and nothing is made by looking.
        """
        self.segments.load()
        self.assertEqual(0, self.segments.end)
        self.assertEqual(b"", self.segments.read(0, 10))
        self.segments.clearFrom(0)
        self.assertFalse(os.path.exists(self.folder))

    def test_readAndWrite(self) -> None:
        """
        Offsets are those of the long file; a read ends where its piece ends,
        and what was never written is zeros.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.segments.write(98, b"ab")
        self.segments.write(100, b"cd")
        self.assertEqual(b"\0ab", self.segments.read(97, 50))
        self.assertEqual(b"cd\0", self.segments.read(100, 3))
        self.assertEqual(b"", self.segments.read(200, 3))

    def test_writeAcrossPiecesIsRefused(self) -> None:
        """
        Nothing is written across the end of a piece.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.assertRaises(AssertionError, self.segments.write, 99, b"ab")
        self.assertRaises(AssertionError, self.segments.write, 200, b"a")

    def test_piecesAreFoundInOrder(self) -> None:
        """
        The pieces are found in order, the first of which may be any; files of
        other names are ignored.
        """
        for name in ("00000000000000000300", "00000000000000000200", "notes", "x" * 20):
            self.lay(name)
        self.segments.load()
        self.assertEqual([200, 300], self.segments.bases)
        self.assertIsNone(self.segments.baseOf(199))
        self.assertEqual(200, self.segments.baseOf(299))
        self.assertIsNone(self.segments.baseOf(400))

    def test_pieceMissingIsRestored(self) -> None:
        """
        A piece that is missing between others is made anew, empty, and reported.
        """
        self.lay("00000000000000000000")
        self.lay("00000000000000000200")
        self.assertEqual([(100, 200)], self.segments.load())
        self.assertEqual([0, 100, 200], self.segments.bases)
        self.assertEqual(bytes(100), self.segments.read(100, 100))
        self.assertEqual([], self.make().load())

    def test_pieceFarAwayRefused(self) -> None:
        """
        A piece so far away that its folder cannot have lost all between is an error that
        names it and asks about the size.
        """
        self.lay("00000000000000000000")
        self.lay("90000000000000000000")
        error = self.assertRaises(StoreCorrupt, self.segments.load)
        self.assertIn("90000000000000000000 of 100 bytes does not fit", str(error))
        self.assertIn("files of 100 bytes", str(error))

    def test_oddBaseIsRefused(self) -> None:
        """
        A piece begins at a multiple of its size.
        """
        self.lay("00000000000000000050")
        self.assertRaises(StoreCorrupt, self.segments.load)

    def test_shortPieceIsExtended(self) -> None:
        """
        A piece that is short is brought to its size, and its missing bytes are
        reported; one that is too long is an error.
        """
        self.lay("00000000000000000000")
        self.lay("00000000000000000100", 30)
        self.assertEqual([(130, 200)], self.segments.load())
        self.assertEqual(b"x" * 30 + b"\0" * 70, self.segments.read(100, 100))
        self.lay("00000000000000000100", 101)
        error = self.assertRaises(StoreCorrupt, self.make().load)
        self.assertIn("00000000000000000100 of 101 bytes does not fit", str(error))
        self.lay("00000000000000000100")
        self.lay("00000000000000000000", 99)
        self.assertEqual([(99, 100)], self.make().load())

    def test_failedPieceIsNotThere(self) -> None:
        """
        A piece that gets no room is not there, and can be made later.
        """
        self.disk.failing["truncate"] = OSError(errno.ENOSPC, "full")
        self.assertRaises(OSError, self.segments.create, 0)
        self.assertEqual([], self.disk.names(self.folder))
        self.assertEqual([], self.segments.bases)
        self.assertEqual(0, len(self.handles))
        self.disk.failing.clear()
        self.segments.create(0)
        self.assertEqual([0], self.segments.bases)

    def test_clearedBytesReadAsZeros(self) -> None:
        """
        Cut bytes read as zeros, pieces behind them are gone, and bytes before them stay.
        """
        for base in (0, 100, 200):
            self.segments.create(base)
            self.segments.write(base, b"x" * 100)
        self.segments.clearFrom(150)
        self.assertEqual([0, 100], self.segments.bases)
        self.assertEqual(b"x" * 50 + b"\0" * 50, self.segments.read(100, 100))
        self.assertEqual(b"x" * 100, self.segments.read(0, 100))
        self.segments.clearFrom(100)
        self.assertEqual([0], self.segments.bases)
        self.segments.clearFrom(0)
        self.assertEqual([0], self.segments.bases)
        self.assertEqual(b"\0" * 100, self.segments.read(0, 100))

    def test_removeFirstWhileRead(self) -> None:
        """
        A piece that is deleted while a thread holds its handle can still be
        read by it.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.segments.write(0, b"old")
        path = self.segments.pathOf(0)
        handle = self.handles.pin(path)
        self.segments.removeFirst()
        self.assertEqual([100], self.segments.bases)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(b"old", self.disk.pread(handle, 3, 0))
        self.handles.unpin(path)
        self.assertNotIn(handle, self.disk.opened)

    def test_removedPieceNeedsNoSync(self) -> None:
        """
        The newest piece goes, and needs no sync.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.segments.removeLast()
        self.assertEqual([0], self.segments.bases)
        self.assertEqual({self.segments.pathOf(0)}, self.segments.dirtyPaths)

    def test_removeAllDeletesFolder(self) -> None:
        """
        Everything goes, with the folder.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.segments.removeAll()
        self.assertEqual((0, set(), set()), self.state())
        self.assertFalse(os.path.exists(self.folder))

    def test_abandonedPiecesAreLeftAlone(self) -> None:
        """
        Abandoned pieces are let go of, and their files are not touched.
        """
        self.segments.create(0)
        self.segments.create(100)
        self.disk.synced.clear()
        self.segments.abandon()
        self.assertEqual((0, set(), set()), self.state())
        self.assertEqual([], self.disk.synced)
        self.assertEqual(2, len(os.listdir(self.folder)))

    def test_unsafePiecesAreSynced(self) -> None:
        """
        After a crash, all pieces that reach past what is safe are synced again,
        whether or not they were written to since, and then their names; nothing
        is owed after that, not even before the next piece is made.
        """
        for base in (0, 100, 200):
            self.segments.create(base)
        for offset, first in ((99, 0), (100, 100), (199, 100), (200, 200)):
            self.segments = self.make()
            self.segments.load()
            self.segments.write(250, b"x")
            del self.disk.synced[:]
            self.segments.syncFrom(offset)
            self.assertEqual(
                [*map(self.segments.pathOf, range(first, 300, 100)), self.folder],
                self.disk.synced,
            )
            self.assertEqual((300, set(), set()), self.state())
        del self.disk.synced[:]
        self.segments.create(300)
        self.assertEqual([self.segments.pathOf(300), self.folder], self.disk.synced)

    def test_failedReadNamesFile(self) -> None:
        """
        A disk that does not give what is there makes an error that says where.
        """
        self.segments.create(0)
        self.handles.forget(self.segments.pathOf(0))
        self.disk.failing["open"] = OSError(errno.EIO, "broken")
        error = self.assertRaises(StoreError, self.segments.read, 10, 10)
        self.assertEqual(f"reading {self.segments.pathOf(0)} failed: [Errno 5] broken", str(error))
        self.assertEqual(b"", self.segments.read(100, 10))

    def test_lastWriteIsAge(self) -> None:
        """
        A piece's age is that of its last write.
        """
        self.segments.create(0)
        os.utime(self.segments.pathOf(0), (1000, 2000))
        self.assertEqual(2000, self.segments.modified(0))


class SyncJobTests(_Case):
    """
    Tests for L{SyncJob}.
    """

    def test_filesAreSyncedBeforeFolder(self) -> None:
        """
        A job syncs files before the folder that names them, and what it has
        taken over is not taken twice.
        """
        self.segments.create(0)
        self.segments.write(0, b"x")
        job = SyncJob(self.handles)
        job.add(self.segments)
        job.addPath("other")
        job.addFolder("elsewhere")
        self.assertEqual((100, set(), set()), self.state())
        del self.disk.synced[:]
        job.run()
        self.assertEqual(
            sorted([self.segments.pathOf(0), "other"]) + sorted([self.folder, "elsewhere"]),
            self.disk.synced,
        )

    def test_jobKeepsHandlesOpen(self) -> None:
        """
        A job may hold the handles that were written to until it ends, though
        they are asked for again.
        """
        self.handles = Handles(self.disk, 1)
        self.segments = self.make()
        self.segments.create(0)
        job = SyncJob(self.handles)
        job.add(self.segments, keepOpen=True)
        self.segments.write(0, b"x")
        job.add(self.segments, keepOpen=True)
        self.handles.get(os.path.join(self.folder, "other"))
        self.assertIn(self.segments.pathOf(0), self.disk.opened.values())
        del self.disk.synced[:]
        job.run()
        self.assertEqual([self.segments.pathOf(0), self.folder], self.disk.synced)
        job.end()
        self.assertEqual(1, len(self.handles))
        self.handles.close()
