# SPDX-License-Identifier: Apache-2.0
"""
What the store's tests have in common: a store of small files in a temporary
folder, on a L{Clock}, on a disk that fails when the test wants it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.bulk import SentMessage
from txrocket.message import Message, MessageExt
from txrocket.protocol.record import decodeRecords, encodeHost, encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.files import NO_HANDLES, Files, SyncFailed
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import StoreSettings

HOST = encodeHost("127.0.0.1", 10911)

# What a test's clock shows first, in seconds: 14 November 2023.
START = 1_700_000_000

# A file of the log, of a queue, and of the index.
LOG_SIZE = 4096
QUEUE_ENTRIES = 10
SLOTS = 8
INDEX_ENTRIES = 40

# What a record has beside body, topic and properties (4.9.7's calMsgLength, IPv4).
AROUND = 91


class Disk(Files):
    """
    A disk that can be told to fail, and that says what was done to it.

    @ivar failing: by the name of an operation, what it raises.
    @ivar only: a text that must be in the path of what fails.
    @ivar preads: the path, offset and size of each read.
    @ivar synced: the path of each sync, of files and folders.
    @ivar used: how much of the disk is in use, where a test says so.
    """

    direct = False

    def __init__(self) -> None:
        self.failing: dict[str, Exception] = {}
        self.only = ""
        self.preads: list[tuple[str, int, int]] = []
        self.synced: list[str] = []
        self.opened: dict[int, str] = {}
        self.most = 0
        self.used: float | None = 0.1

    def open(self, path: str) -> int:
        self._check("open", path)
        handle = super().open(path)
        self.opened[handle] = path
        self.most = max(self.most, len(self.opened))
        return handle

    def close(self, handle: int) -> None:
        del self.opened[handle]
        super().close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.preads.append((self.opened[handle], offset, size))
        return super().pread(handle, size, offset)

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        self._check("pwrite", self.opened[handle])
        super().pwrite(handle, data, offset)

    def allocate(self, handle: int, size: int) -> None:
        self._check("allocate", self.opened[handle])
        super().allocate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        self._check("truncate", self.opened[handle])
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        path = self.opened.get(handle, "")
        self._check("sync", path)
        self.synced.append(path)

    def syncPath(self, path: str) -> None:
        self._check("syncPath", path)
        self.synced.append(path)

    def syncFolder(self, path: str) -> None:
        self._check("syncFolder", path)
        self.synced.append(path)

    def makeFolder(self, path: str, *, synced: bool = True) -> None:
        self._check("makeFolder", path)
        super().makeFolder(path, synced=synced)

    def space(self, path: str) -> tuple[int, int]:
        if self.used is None or not os.path.isdir(path):
            return super().space(path)
        return 1000, round(1000 * (1 - self.used))

    def _check(self, operation: str, path: str) -> None:
        if operation in self.failing and self.only in path:
            error = self.failing[operation]
            # A file that cannot be opened is no sync that failed.
            opened = not isinstance(error, OSError) or error.errno in NO_HANDLES
            if operation.startswith("sync") and not opened:
                raise SyncFailed(*error.args)
            raise error


class Held:
    """
    A thread that does its work when a test says so.
    """

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

    def __call__(self, job: Callable[[], None]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.jobs.append((job, done))
        return done

    def work(self) -> None:
        """
        Do what was first asked for.
        """
        job, done = self.jobs.pop(0)
        maybeDeferred(job).chainDeferred(done)


def atOnce(job: Callable[[], None]) -> Deferred[None]:
    """
    A thread that needs no time.
    """
    return maybeDeferred(job)


def abandon(store: MessageStore) -> None:
    """
    End a store as a crash of its process does: nothing more is written.
    """
    store.tasks.stop()
    store.session.release()


def filesOf(root: str) -> dict[str, bytes]:
    """
    The contents of all files below a folder.
    """
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


class StoreCase(SynchronousTestCase):
    """
    A test of a whole store.
    """

    def setUp(self) -> None:
        self.root = self.mktemp()
        self.clock = Clock()
        self.clock.advance(START)
        # By how much the time of day was set, in seconds.
        self.shift = 0.0
        self.disk = Disk()
        self.arrived: list[tuple[str, int, int, int]] = []

    def wall(self) -> float:
        """
        The time of day.
        """
        return self.clock.seconds() + self.shift

    def make(
        self, inThread: Any = atOnce, memory: int | None = None, **options: Any
    ) -> MessageStore:
        """
        Build a store that is not started.
        """
        values: dict[str, Any] = {
            "mappedFileSizeCommitLog": LOG_SIZE,
            "mappedFileSizeConsumeQueue": QUEUE_ENTRIES * 20,
            "maxHashSlotNum": SLOTS,
            "maxIndexNum": INDEX_ENTRIES,
        }
        store = MessageStore(
            StoreSettings(self.root, **values | options),
            self.clock,
            inThread,
            HOST,
            lambda *told: self.arrived.append(told[:4]),
            files=self.disk,
            memory=memory,
            wall=self.wall,
        )
        # No collector closes the handles of files and locks.
        self.addCleanup(abandon, store)
        return store

    def start(
        self, inThread: Any = atOnce, memory: int | None = None, **options: Any
    ) -> MessageStore:
        """
        Build a store and start it.
        """
        store = self.make(inThread, memory, **options)
        store.start()
        return store

    def put(
        self,
        store: MessageStore,
        body: bytes = b"x",
        topic: str = "T",
        queueId: int = 0,
        sysFlag: int = 0,
        **properties: str,
    ) -> Appended:
        """
        Put a message, and have it written.
        """
        appended = self.gather(store, body, topic, queueId, sysFlag, **properties)
        store.write()
        return appended

    def gather(
        self,
        store: MessageStore,
        body: bytes = b"x",
        topic: str = "T",
        queueId: int = 0,
        sysFlag: int = 0,
        **properties: str,
    ) -> Appended:
        """
        Put a message, to be written later.
        """
        return store.put(
            topic,
            queueId,
            body,
            encodeProperties(properties),
            bornTimestamp=1,
            bornHost=HOST,
            sysFlag=sysFlag,
        )

    def appendBatch(self, store: MessageStore, *bodies: bytes, topic: str = "T") -> Appended:
        """
        Put several messages at once, and have them written.
        """
        batch = encodeBatch([Message(topic, body) for body in bodies])
        appended = store.appendBatch(SentMessage(None, (topic, 0), batch, b"", 1), HOST)
        store.write()
        return appended

    def all(self, store: MessageStore, topic: str = "T", queueId: int = 0) -> list[MessageExt]:
        """
        All messages of a queue, got as a consumer gets them.
        """
        found: list[MessageExt] = []
        offset = store.minOffset(topic, queueId)
        while offset < store.maxOffset(topic, queueId):
            got = store.get(topic, queueId, offset, 32)
            self.assertEqual(GetMessageStatus.FOUND, got.status)
            found += decodeRecords(got.data, checkCrc=True)
            offset = got.nextOffset
        return found

    def bodies(self, store: MessageStore, topic: str = "T", queueId: int = 0) -> list[bytes]:
        """
        The bodies of all messages of a queue.
        """
        return [each.body for each in self.all(store, topic, queueId)]

    def path(self, *names: str) -> str:
        """
        A path in the store's folder.
        """
        return os.path.join(self.root, *names)

    def bytesOf(self, *names: str) -> bytes:
        """
        The contents of a file in the store's folder.
        """
        with open(self.path(*names), "rb") as file:
            return file.read()

    def logFiles(self) -> list[str]:
        """
        The names of the log's files.
        """
        return sorted(os.listdir(self.path("commitlog")))
