# SPDX-License-Identifier: Apache-2.0
"""
What the tests of replicas have in common: a master's store and a slave's, each on a disk in
memory, and the bytes that go from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.disk import Disk
from tests.store.ledger import HOST, ROOT, SMALL, START
from tests.store.support import atOnce
from txrocket.protocol.record import decodeRecords, encodeProperties
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import StoreSettings

__all__ = ["ReplicaTestCase", "bodies", "copy", "logOf", "put"]


def put(
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
    text = encodeProperties(properties)
    appended = store.put(topic, queueId, body, text, 1, HOST, sysFlag=sysFlag)
    store.write()
    return appended


def copy(
    master: MessageStore,
    slave: MessageStore,
    most: int | Iterable[int] = 1 << 20,
    until: int = 1 << 62,
) -> None:
    """
    Let a slave take what it misses of its master's log.

    @param most: how many bytes a piece has, or each of the pieces.
    @param until: where in the log to end.
    """
    sizes = iter(most if not isinstance(most, int) else ())
    source, target = master.replica, slave.replica
    while target.end < min(until, source.end):
        size = most if isinstance(most, int) else next(sizes)
        target.append(target.end, source.read(target.end, min(size, until - target.end)))


def logOf(store: MessageStore, start: int | None = None) -> bytes:
    """
    All bytes of a log.
    """
    log = store.replica
    at = log.first if start is None else start
    pieces = []
    while piece := log.read(at, 1 << 20):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def bodies(store: MessageStore, topic: str = "T", queueId: int = 0) -> list[bytes]:
    """
    The bodies of all messages of a queue, got as a consumer gets them.
    """
    found: list[bytes] = []
    offset = store.minOffset(topic, queueId)
    while offset < store.maxOffset(topic, queueId):
        got = store.get(topic, queueId, offset, 32)
        assert got.status is GetMessageStatus.FOUND, got.status
        found += [each.body for each in decodeRecords(got.data, checkCrc=True)]
        offset = got.nextOffset
    return found


class ReplicaTestCase(SynchronousTestCase):
    """
    A test of a master's store and of a slave's.

    @ivar arrived: topic, queue and queue offset of each message that a slave has told of.
    """

    def setUp(self) -> None:
        """
        Start both.
        """
        self.clock = Clock()
        self.clock.advance(START)
        self.masterDisk, self.slaveDisk = Disk(), Disk()
        self.arrived: list[tuple[str, int, int]] = []
        self.master = self.start(self.masterDisk)
        self.slave = self.startSlave()

    def start(
        self,
        disk: Disk,
        follow: bool = False,
        inThread: Callable[..., Any] = atOnce,
        settings: StoreSettings = SMALL,
    ) -> MessageStore:
        """
        Start a store.
        """
        store = MessageStore(
            settings,
            self.clock,
            inThread,
            HOST,
            lambda topic, queueId, queueOffset, *_: self.arrived.append(
                (topic, queueId, queueOffset)
            ),
            files=disk,
            memory=1 << 40,
        )
        if follow:
            store.replica.follow()
        store.start()
        return store

    def startSlave(self, **options: Any) -> MessageStore:
        """
        Start the slave's store.
        """
        return self.start(self.slaveDisk, follow=True, **options)

    def killSlave(self) -> None:
        """
        End the slave's process, and start another one.
        """
        self.slave.tasks.stop()
        self.slaveDisk.kill()
        self.slave = self.startSlave()

    def stopSlave(self) -> None:
        """
        Stop the slave, and start it again.
        """
        self.successResultOf(self.slave.stop())
        self.slave = self.startSlave()

    def assertEqualLogs(self) -> None:
        """
        The files of the slave's log have the bytes of the master's.
        """
        names = self.masterDisk.names(f"{ROOT}/commitlog")
        self.assertEqual(names, self.slaveDisk.names(f"{ROOT}/commitlog"))
        for name in names:
            path = f"{ROOT}/commitlog/{name}"
            self.assertEqual(self.masterDisk.file(path).data, self.slaveDisk.file(path).data, name)
