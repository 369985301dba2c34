# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.tables.savedtable}.
"""

from __future__ import annotations

import errno
import json
import os
import re

from twisted.internet.task import Clock, Cooperator
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, Held
from txrocket.broker.tables.savedtable import SavedTable, TableFile
from txrocket.broker.tables.tabletext import SLICE, TableText, Whole
from txrocket.errors import DiskFull, MalformedBody, StoreFailed
from txrocket.store.jsontable import Table, checked


class SavedTableTests(SynchronousTestCase):
    """
    A table in memory, here a text, and its file.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "topics.json")
        self.thread = Held()
        self.text = b"one"
        self.encoded = 0
        self.file = TableFile(Table(self.disk, self.path), self.thread)
        self.kept = SavedTable(self.file, Whole(self.encode))

    def encode(self) -> bytes:
        """
        The table as it is now.
        """
        self.encoded += 1
        return self.text

    def written(self) -> bytes:
        """
        The content of the file.
        """
        with open(self.path, "rb") as file:
            return file.read()

    def test_savedTableIsLoaded(self) -> None:
        """
        A saved table is loaded; without a file it is empty.
        """
        self.assertIsNone(self.kept.load(bytes))
        self.kept.save()
        self.thread.work()
        self.assertEqual(b"one", SavedTable(self.file, Whole(bytes)).load(bytes))

    def test_saveFiresOnceWritten(self) -> None:
        """
        The Deferred of save fires once the table is in the file, and not before.
        """
        saved = self.kept.save()
        self.assertNoResult(saved)
        self.thread.work()
        self.successResultOf(saved)
        self.assertEqual(b"one", self.written())

    def test_changesDuringWriteShareTheNext(self) -> None:
        """
        All that changes during a write is written by one more, and all callers that asked
        for it are told when that is done.
        """
        first = self.kept.save()
        later = []
        for number in range(100):
            self.text = b"%d" % number
            later.append(self.kept.save())
        self.assertEqual(1, len(self.thread.jobs))
        self.thread.work()
        self.successResultOf(first)
        self.assertEqual(b"one", self.written())
        for each in later:
            self.assertNoResult(each)
        self.thread.work()
        for each in later:
            self.successResultOf(each)
        self.assertEqual(b"99", self.written())
        self.assertEqual((2, []), (self.encoded, self.thread.jobs))

    def test_failedWriteIsReported(self) -> None:
        """
        The Deferred fails with the error; the next save may succeed.
        """
        first, second = self.kept.save(), self.kept.save()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.thread.work()
        self.failureResultOf(first, DiskFull)
        del self.disk.failing["pwrite"]
        self.thread.work()
        self.successResultOf(second)
        self.assertEqual(b"one", self.written())

    def test_unwatchedFailureIsLogged(self) -> None:
        """
        If no caller waits, a failure is logged with the file.
        """
        saved = self.kept.save().addErrback(self.kept.failed)
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        with capturedLogs() as events:
            self.thread.work()
        self.successResultOf(saved)
        self.assertEqual([self.path], [each["path"] for each in events])

    def test_idleWaitsForAllWrites(self) -> None:
        """
        It is idle at once if nothing is being written, else when all is.
        """
        self.successResultOf(self.kept.idle())
        self.assertEqual(0, self.encoded)
        self.kept.save()
        self.text = b"two"
        self.kept.save()
        idle = self.kept.idle()
        self.thread.work()
        self.assertNoResult(idle)
        self.thread.work()
        self.successResultOf(idle)
        self.assertEqual(b"two", self.written())
        self.successResultOf(self.kept.idle())
        self.assertEqual([], self.thread.jobs)

    def test_failedWriteIsRepeatedBeforeIdle(self) -> None:
        """
        A failed write is tried once more before the table is idle: a stop is the last
        chance.
        """
        self.kept.save().addErrback(self.kept.failed)
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.thread.work()
        del self.disk.failing["pwrite"]
        idle = self.kept.idle()
        self.assertNoResult(idle)
        self.thread.work()
        self.successResultOf(idle)
        self.assertEqual(b"one", self.written())

    def test_nothingChangedWaitsForTheSameWrite(self) -> None:
        """
        Callers that wait for changes in the current write cause no other write.
        """
        self.kept.save()
        waiting = self.kept.saved()
        self.assertNoResult(waiting)
        self.thread.work()
        self.successResultOf(waiting)
        self.successResultOf(self.kept.saved())
        self.assertEqual((1, []), (self.encoded, self.thread.jobs))

    def test_unexpectedErrorIsAStoreError(self) -> None:
        """
        Whatever fails in the thread, the caller gets an error of the store, and the next
        write is begun.
        """
        saved = self.kept.save()
        self.disk.failing["pwrite"] = RuntimeError("unforeseen")
        self.thread.work()
        failure = self.failureResultOf(saved, StoreFailed)
        self.assertIn("unforeseen", failure.getErrorMessage())
        self.disk.failing.clear()
        again = self.kept.saved()
        self.thread.work()
        self.successResultOf(again)

    def test_damagedFileIsReplaced(self) -> None:
        """
        A table that was damaged is written anew though nothing has changed.
        """
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "wb") as file:
            file.write(b"torn")

        def decode(data: bytes) -> bytes:
            raise MalformedBody("no table")

        self.assertEqual(b"mended", self.kept.load(decode, lambda older, spoiled: b"mended"))
        idle = self.kept.idle()
        self.thread.work()
        self.successResultOf(idle)
        self.assertEqual(b"one", self.written())


class SliceTests(SynchronousTestCase):
    """
    A table whose members are encoded in slices.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.thread = Held()
        path = os.path.join(self.mktemp(), "config", "t.json")
        self.table = Table(Disk(), path)
        self.values: dict[int, int] = {}
        self.pieces = TableText(self.member, lambda: (b"{", b"}"))
        slices = Cooperator(
            lambda: lambda: True, scheduler=lambda function: self.clock.callLater(1, function)
        )
        self.kept = SavedTable(TableFile(self.table, self.thread, slices), self.pieces)

    def member(self, key: int) -> bytes | None:
        """
        A key and its value.
        """
        return b"%d:%d" % (key, self.values[key]) if key in self.values else None

    def put(self, *keys: int) -> None:
        """
        Change members.
        """
        for key in keys:
            self.values[key] = self.values.get(key, 0) + 1
        self.pieces.touch(keys)

    def test_changedMeanwhileIsWrittenToo(self) -> None:
        """
        A change during the encoding is in the same write, and its caller is told with the
        others.
        """
        self.put(*range(3 * SLICE))
        first = self.kept.save()
        self.clock.advance(1)
        self.put(0)
        second = self.kept.save()
        while not self.thread.jobs:
            self.clock.advance(1)
        self.assertNoResult(first)
        self.thread.work()
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(2, json.loads(self.text())["0"])

    def text(self) -> bytes:
        """
        The content of the file, as JSON.
        """
        with open(self.table.path, "rb") as file:
            return re.sub(rb"(\d+):", rb'"\1":', checked(file.read(), strict=True))

    def test_encodingFailsTellsTheCaller(self) -> None:
        """
        If a member cannot be encoded, the caller is told, and later changes are written.
        """
        self.put(*range(2 * SLICE))
        del self.values[SLICE + 1]
        self.values[SLICE + 1] = None  # type: ignore[assignment]
        saved = self.kept.save()
        self.clock.advance(1)
        self.clock.advance(1)
        self.failureResultOf(saved, StoreFailed)
        self.values[SLICE + 1] = 5
        again = self.kept.save()
        while not self.thread.jobs:
            self.clock.advance(1)
        self.thread.work()
        self.successResultOf(again)

    def test_changedMemberIsEncodedOnce(self) -> None:
        """
        Members come, change and go, and each is encoded once for each change.
        """
        self.put(1, 2)
        self.assertEqual(b"{1:1,2:1}", self.pieces.text()())
        self.put(2, 3)
        self.put(2)
        self.assertEqual(b"{1:1,2:3,3:1}", self.pieces.text()())
        self.assertEqual(4, self.pieces.encoded)
        del self.values[1]
        self.pieces.touch([1])
        self.assertEqual(b"{2:3,3:1}", self.pieces.text()())
        self.assertEqual(4, self.pieces.encoded)
