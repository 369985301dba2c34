# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.kept}.
"""

from __future__ import annotations

import errno
import os

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, Held
from txrocket.broker.kept import Kept
from txrocket.errors import DiskFull
from txrocket.store.tables import Table


class KeptTests(SynchronousTestCase):
    """
    A table in memory, here a text, and its file.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "topics.json")
        self.thread = Held()
        self.text = b"one"
        self.encoded = 0
        self.kept = Kept(Table(self.disk, self.path), self.encode, self.thread)

    def encode(self) -> bytes:
        """
        The table as it is now.
        """
        self.encoded += 1
        return self.text

    def written(self) -> bytes:
        """
        What is in the file.
        """
        with open(self.path, "rb") as file:
            return file.read()

    def test_load(self) -> None:
        """
        What was saved is loaded; without a file there is nothing.
        """
        self.assertIsNone(self.kept.load(bytes))
        self.kept.save()
        self.thread.work()
        self.assertEqual(b"one", Kept(Table(self.disk, self.path), bytes, self.thread).load(bytes))

    def test_save(self) -> None:
        """
        Who saves is told once the table is in the file, and not before.
        """
        saved = self.kept.save()
        self.assertNoResult(saved)
        self.thread.work()
        self.successResultOf(saved)
        self.assertEqual(b"one", self.written())

    def test_gathered(self) -> None:
        """
        All that changes during a write is written by one more, and all who asked
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

    def test_fails(self) -> None:
        """
        Who asked is told that it failed; the next one may succeed.
        """
        first, second = self.kept.save(), self.kept.save()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.thread.work()
        self.failureResultOf(first, DiskFull)
        del self.disk.failing["pwrite"]
        self.thread.work()
        self.successResultOf(second)
        self.assertEqual(b"one", self.written())

    def test_failed(self) -> None:
        """
        Where nobody is there to be told, a failure is logged with the file.
        """
        saved = self.kept.save().addErrback(self.kept.failed)
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        with capturedLogs() as events:
            self.thread.work()
        self.successResultOf(saved)
        self.assertEqual([self.path], [each["path"] for each in events])

    def test_idle(self) -> None:
        """
        It is idle at once if nothing is being written, else when all is.
        """
        self.successResultOf(self.kept.idle())
        self.assertEqual(0, self.encoded)
        self.kept.save()
        self.text = b"two"
        idle = self.kept.idle()
        self.thread.work()
        self.assertNoResult(idle)
        self.thread.work()
        self.successResultOf(idle)
        self.assertEqual(b"two", self.written())
        self.successResultOf(self.kept.idle())
        self.assertEqual([], self.thread.jobs)

    def test_idleAfterFailure(self) -> None:
        """
        What could not be written is tried once more before it is called idle: a
        stop is the last chance.
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
