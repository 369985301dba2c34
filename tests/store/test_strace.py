# SPDX-License-Identifier: Apache-2.0
"""
A sync that fails in a real process, by C{strace}: what the next start writes again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from twisted.trial.unittest import SkipTest, SynchronousTestCase

_PROGRAM = """
import sys
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import FlushDiskType, StoreSettings

settings = StoreSettings(
    sys.argv[1],
    mappedFileSizeCommitLog=1 << 20,
    mappedFileSizeConsumeQueue=6000,
    maxHashSlotNum=8,
    maxIndexNum=40,
    flushDiskType=FlushDiskType.SYNC_FLUSH,
)
clock = Clock()
clock.advance(1_700_000_000)
store = MessageStore(settings, clock, maybeDeferred, bytes([127, 0, 0, 1, 0, 0, 42, 159]))
store.start()
for number in range(int(sys.argv[2])):
    put = store.put("T", 0, b"body" * 50, b"", 1, bytes([127, 0, 0, 1, 0, 0, 0, 1]))
    told = []
    store.stored(put.end).addCallbacks(lambda none: told.append("stored"), told.append)
    store.write()
    print(put.offset, put.end, "stored" if told == ["stored"] else "failed", flush=True)
"""

_WRITE = re.compile(r"pwrite64\(\d+<([^>]*)>, .*, (\d+), (\d+)\) += (\d+)")


class FailedSyncTests(SynchronousTestCase):
    """
    C{fdatasync} says EIO once.
    """

    def setUp(self) -> None:
        """
        Skip where C{strace} is missing or must not trace.
        """
        path = shutil.which("strace")
        if path is None:
            raise SkipTest("strace is not installed")
        self.strace = path
        self.root = self.mktemp()
        tried = subprocess.run([path, "-o", "/dev/null", "true"], check=False, capture_output=True)
        if tried.returncode:
            raise SkipTest("strace may not trace processes here")

    def run_(self, count: int, *options: str) -> tuple[list[list[str]], str]:
        """
        Run a store that stores messages.

        @return: of each message its offset, its end and its fate; and what strace saw.
        """
        trace = self.mktemp()
        command = [self.strace, "-f", "-y", "-s", "8", "-o", trace, *options]
        command += [sys.executable, "-c", _PROGRAM, self.root, str(count)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        with open(trace, encoding="utf-8", errors="replace") as file:
            return [line.split() for line in done.stdout.splitlines()], file.read()

    def test_keptRecordIsWrittenAgain(self) -> None:
        """
        The start after a failed sync writes the record again that it keeps, and syncs the
        log only then.
        """
        calls = "trace=pwrite64,fdatasync"
        log = os.path.join("commitlog", "0" * 20)
        _, seen = self.run_(3, "-e", calls)
        # Which of the process's syncs is the last one of the log.
        syncs = [line for line in seen.splitlines() if "fdatasync(" in line]
        number = max(n for n, line in enumerate(syncs, 1) if log in line)
        shutil.rmtree(self.root)
        told, _ = self.run_(3, "-e", calls, "-e", f"inject=fdatasync:error=EIO:when={number}")
        self.assertEqual(["stored", "stored", "failed"], [fate for _, _, fate in told])
        start, end = map(int, told[2][:2])
        told, seen = self.run_(1, "-e", calls)
        self.assertEqual([[str(end), str(2 * end - start), "stored"]], told)
        before = seen[: next(each.start() for each in re.finditer("fdatasync.*" + log, seen))]
        written = [
            (int(offset), int(offset) + int(size))
            for path, _, offset, size in _WRITE.findall(before)
            if path.endswith(log)
        ]
        self.assertTrue(any(first <= start and end <= last for first, last in written), written)
