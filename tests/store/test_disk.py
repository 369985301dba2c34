# SPDX-License-Identifier: Apache-2.0
"""
Disks that fail or fill up: no message is answered as stored that is not, reads go
on, and what was acknowledged is there after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import attrs
from twisted.internet.task import Clock

from tests.store.disk import Disk, full, ioError
from tests.store.ledger import ROOT, SMALL, START, HeldThreads, Ledger, Sent, SweepTestCase, opened
from txrocket.errors import DiskFull, MalformedBody, StoreError, StoreFailed
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import FlushDiskType

# What takes room on a disk.
_TAKES_ROOM = frozenset({"create", "allocate", "truncate", "pwrite", "makeFolder"})

_ASYNC = attrs.evolve(SMALL, flushDiskType=FlushDiskType.ASYNC_FLUSH)


class Faults:
    """
    Lets operations on a disk fail.

    @ivar at: the number of the operation from which on they fail.
    @ivar until: the number from which on they succeed again.
    @ivar count: how many there were.
    @ivar struck: whether one has failed.
    """

    def __init__(
        self,
        disk: Disk,
        concerns: Callable[[str, str], bool],
        error: Callable[[], OSError],
        at: int,
        until: int | None = None,
    ) -> None:
        self._concerns = concerns
        self._error = error
        self.at = at
        self.until = at + 1 if until is None else until
        self.count = 0
        self.struck = False
        disk.before = self

    def __call__(self, operation: str, path: str) -> None:
        if self._concerns(operation, path):
            self.count += 1
            if self.at <= self.count < self.until:
                self.struck = True
                raise self._error()


class Work:
    """
    A store with senders that wait, on a disk that works at first.
    """

    def __init__(self, asynchronous: bool = False) -> None:
        self.disk = Disk()
        self.ledger = Ledger()
        self.clock = Clock()
        self.clock.advance(START)
        self.threads = HeldThreads()
        self.settings = _ASYNC if asynchronous else SMALL
        self.store: MessageStore = opened(
            self.disk, self.clock, self.threads, settings=self.settings
        )
        self.refused: list[StoreError] = []
        self._number = 0

    def put(self) -> Sent | None:
        """
        Put a message; L{None} if that is refused at once.
        """
        self._number += 1
        number = self._number
        try:
            if number % 5 == 0:
                return self.ledger.appendBatch(self.store, "TopicB", 0, [b"a" * 90, b"b"])[0]
            body = bytes([number % 256]) * (number * 97 % 900)
            return self.ledger.put(
                self.store, "TopicA", number % 2, body, keys=(f"k{number % 20}",)
            )
        except StoreError as error:
            self.refused.append(error)
            return None

    def turn(self, seconds: float = 0.0) -> None:
        """
        Let the reactor turn, and threads finish what they do.
        """
        self.clock.advance(seconds)
        while self.threads.turn():
            pass

    def run(self, steps: int, stopIf: Callable[[], bool] = lambda: False) -> None:
        """
        Put messages, several at a time, and let time pass.
        """
        for step in range(steps):
            self.put()
            if step % 3 == 2:
                self.turn()
            if step % 10 == 9:
                self.turn(1.1)
                self.store.checkpointer.checkpoint().addErrback(_known)
                self.turn()
            if stopIf():
                break


def _known(failure: object) -> None:
    failure.trap(StoreError, OSError)  # type: ignore[attr-defined]


def _isSync(operation: str, path: str) -> bool:
    return operation in ("sync", "syncFolder")


class SyncTests(SweepTestCase):
    """
    A sync that fails.
    """

    def test_failedSyncAnswersNoSend(self) -> None:
        """
        Once a sync has failed, at whichever call, no send is answered as stored,
        even if later syncs succeed; the waiters get the error; further puts are
        refused with the reason; reads go on; and after a restart all that was
        acknowledged is there, whatever the disk has kept of the rest.
        """
        for number in range(1, 201):
            work = Work()
            faults = Faults(work.disk, _isSync, ioError, number)
            work.run(400, lambda faults=faults: faults.struck)  # type: ignore[misc]
            self.assertTrue(faults.struck, number)
            self._failed(work, number)

    def test_startedAnewAfterFailedSync(self) -> None:
        """
        After a failed sync, the messages that a start keeps are on the disk before any
        answer: a power loss after further messages loses none of them.
        """
        for number in range(1, 40):
            work = Work()
            faults = Faults(work.disk, _isSync, ioError, number)
            work.run(400, lambda faults=faults: faults.struck)  # type: ignore[misc]
            self.assertTrue(faults.struck, number)
            work.disk.before = lambda operation, path: None
            work.disk.kill()
            again = opened(work.disk)
            for _ in range(5):
                sent = work.ledger.put(again, "TopicA", 0, b"again")
                again.write()
                self.assertTrue(sent.stored)
            served = len(work.ledger.check(again))
            self.successResultOf(again.checkpointer.checkpoint())
            lost = opened(work.disk.crash(Random(number)))
            self.assertEqual(served, len(work.ledger.check(lost)))

    def test_everySyncUnforced(self) -> None:
        """
        With ASYNC_FLUSH too: what was not written before a sync failed is not
        answered as stored after it.
        """
        for number in range(1, 41):
            work = Work(asynchronous=True)
            faults = Faults(work.disk, _isSync, ioError, number)
            work.run(400, lambda faults=faults: faults.struck)  # type: ignore[misc]
            self.assertTrue(faults.struck, number)
            self._refuses(work, number)

    def _refuses(self, work: Work, number: int) -> None:
        stored = len(work.ledger.stored)
        work.turn(1.1)
        self.assertIsNone(work.put(), number)
        self.assertIsInstance(work.refused[-1], StoreFailed)
        self.assertIn("Input/output error", str(work.refused[-1]))
        self.assertIn("Input/output error", str(work.store.failure))
        self.assertEqual(len(work.ledger.stored), stored, number)

    def _failed(self, work: Work, number: int) -> None:
        self._refuses(work, number)
        waiting = [each for each in work.ledger.sent if not each.stored]
        for each in waiting:
            self.assertIsInstance(each.failure, StoreFailed, number)
        work.ledger.check(work.store)
        work.store.stop()
        work.turn()
        self.assertIn("abort", work.disk.names(ROOT))
        again = opened(work.disk.crash(Random(number)))
        work.ledger.check(again, gaps=True)
        sent = work.ledger.put(again, "TopicA", 0, b"again")
        again.write()
        self.assertTrue(sent.stored)
        work.ledger.check(again, gaps=True)

    def test_retryInErrback(self) -> None:
        """
        A sender that tries again as soon as it hears of the failure is refused.
        """
        work = Work()
        work.run(3)
        work.turn()
        Faults(work.disk, _isSync, ioError, 1)
        sent = work.put()
        assert sent is not None
        again: list[object] = []
        work.store.write()
        work.store.stored(sent.offset + sent.size).addErrback(
            lambda failure: again.append(work.put())
        )
        work.turn()
        self.assertEqual(again, [None])
        self.assertIsInstance(work.refused[0], StoreFailed)


class FullTests(SweepTestCase):
    """
    A disk without room.
    """

    def sweep(self, concerns: Callable[[str, str], bool], most: int, asynchronous: bool) -> None:
        """
        From each operation on, the disk is full for a while.
        """
        for number in range(1, most + 1):
            for lasting in (1, 7, 1000):
                work = Work(asynchronous)
                faults = Faults(work.disk, concerns, full, number, number + lasting)
                work.run(60)
                if not faults.struck:
                    return
                self._duringAndAfter(work, faults, (number, lasting))

    def _duringAndAfter(self, work: Work, faults: Faults, case: object) -> None:
        for error in work.refused:
            self._isFull(error, work)
        for each in work.ledger.sent:
            if not each.stored and each.failure is not None:
                self._isFull(each.failure, work)
        self.assertIsNone(work.store.failure, case)
        faults.until = 0
        # By itself, within a second.
        work.turn(1.1)
        acknowledged = [work.put() for _ in range(6)]
        work.turn()
        work.turn(1.1)
        self.assertTrue(all(each is not None and each.stored for each in acknowledged), case)
        self.assertEqual(work.store.dispatcher.position, work.store.log.written, case)
        work.ledger.check(work.store)
        self._restarts(work, case)

    def _restarts(self, work: Work, case: object) -> None:
        crashed = work.disk.crash(Random(1)) if work.settings is SMALL else work.disk.copy()
        work.ledger.check(opened(crashed))
        work.store.stop()
        work.turn()
        self.assertNotIn("abort", work.disk.names(ROOT), case)
        work.ledger.check(opened(work.disk))

    def _isFull(self, error: BaseException, work: Work) -> None:
        self.assertIsInstance(error, DiskFull)
        self.assertRegex(str(error), rf"{work.disk.free} bytes are free")

    def test_fullDiskLosesNothing(self) -> None:
        """
        Whatever needs room first finds none, for one operation, for several or
        for long: puts are refused with the bytes that are free, reads go on,
        nothing acknowledged is lost, and writes and queues go on by themselves.
        """
        self.sweep(lambda operation, path: operation in _TAKES_ROOM, 150, False)

    def test_failedAllocationLosesNothing(self) -> None:
        """
        The same where only new files find no room.
        """
        self.sweep(
            lambda operation, path: operation in ("create", "allocate", "truncate"), 60, False
        )

    def test_fullPartLosesNothing(self) -> None:
        """
        The same for each kind of file alone.
        """
        for part in ("commitlog", "consumequeue", "index", "checkpoint"):
            self.sweep(
                lambda operation, path, part=part: (  # type: ignore[misc]
                    operation in _TAKES_ROOM and f"/{part}" in path
                ),
                40,
                True,
            )

    def test_fullDiskRefusesStart(self) -> None:
        """
        A store that finds no room when it starts says so, and starts once there
        is some, with everything there.
        """
        work = Work()
        work.run(30)
        work.turn()
        for number in range(1, 60):
            disk = work.disk.copy()
            faults = Faults(
                disk, lambda operation, path: operation in _TAKES_ROOM, full, number, 1 << 30
            )
            try:
                opened(disk)
            except DiskFull as error:
                self._isFull(error, work)
                faults.until = 0
                disk.kill()
                work.ledger.check(opened(disk))
            else:
                self.assertGreater(number, 3)
                break
        else:
            self.fail("the store never starts")

    def test_fullDiskKeepsOldTable(self) -> None:
        """
        A table that finds no room, or a disk that fails, leaves the old one; and
        is taken once it can be.
        """
        for error, kind in ((full, DiskFull), (ioError, StoreFailed)):
            for number in range(1, 20):
                disk = Disk()
                disk.makeFolder(ROOT)
                table = Table(disk, f"{ROOT}/config/topics.json")
                table.save(b"{}")
                faults = Faults(disk, lambda operation, path: True, error, number)
                try:
                    table.save(b'{"new":1}')
                except StoreError as raised:
                    self.assertIsInstance(raised, kind)
                if not faults.struck:
                    break
                disk.before = lambda operation, path: None
                loaded = Table(disk, table.path).load(_table)
                self.assertIn(loaded, (b"{}", b'{"new":1}'))
                table.save(b'{"new":2}')
                self.assertEqual(Table(disk, table.path).load(_table), b'{"new":2}')

    def test_crowdedDiskRefusesMessages(self) -> None:
        """
        Above 90 % no message is accepted, which the error states with the bytes
        free; reads go on; below it messages are accepted by themselves.
        """
        work = Work()
        work.run(9)
        work.turn()
        work.disk.free = work.disk.total // 20
        work.turn(10)
        self.assertIsNone(work.put())
        self._isFull(work.refused[-1], work)
        self.assertTrue(re.search(r"95% full", str(work.refused[-1])))
        work.ledger.check(work.store, first=work.store.log.first)
        work.disk.free = work.disk.total // 2
        work.turn(10)
        sent = work.put()
        work.turn()
        self.assertTrue(sent is not None and sent.stored)


def _table(data: bytes) -> bytes:
    if not data.endswith(b"}"):
        raise MalformedBody("no table")
    return data


class ErrorTests(SweepTestCase):
    """
    A disk that fails to write or to read.
    """

    def test_brokenWriteLosesNothing(self) -> None:
        """
        A log that cannot be written to takes no more; queues and index that
        cannot catch up; no acknowledged message is lost in either case.
        """
        for part in ("commitlog", "consumequeue", "index", "checkpoint"):
            for number in range(1, 15):
                work = Work()
                faults = Faults(
                    work.disk,
                    lambda operation, path, part=part: (  # type: ignore[misc]
                        operation == "pwrite" and f"/{part}" in path
                    ),
                    ioError,
                    number,
                )
                work.run(60)
                work.turn(1.1)
                self.assertEqual(work.store.failure is not None, part == "commitlog")
                if part == "commitlog":
                    self.assertTrue(faults.struck)
                    self.assertIsNone(work.put())
                    self.assertIsInstance(work.refused[-1], StoreFailed)
                work.ledger.check(work.store)
                work.ledger.check(opened(work.disk.crash(Random(number))))

    def test_brokenReadIsPassing(self) -> None:
        """
        A failed read is an error of its own kind and hurts nothing: the
        next attempt may succeed, messages are taken, queues catch up.
        """
        for number in range(1, 60):
            work = Work()
            faults = Faults(
                work.disk, lambda operation, path: operation == "pread", ioError, number
            )
            for _ in range(6):
                work.run(7)
                work.turn()
                try:
                    work.store.get("TopicA", 0, 0, 32)
                    work.store.query("TopicA", "k1", 0, 1 << 62, 64)
                    work.store.offsetByTime("TopicA", 0, 0)
                except StoreError as error:
                    self.assertIn("Input/output error", str(error))
            self.assertTrue(faults.struck)
            work.turn(1.1)
            self.assertIsNone(work.store.failure)
            work.ledger.check(work.store)
            work.ledger.check(opened(work.disk.crash(Random(number))))

    def test_brokenDiskRefusesStart(self) -> None:
        """
        A store that cannot read or write when it starts says so, and lets go of
        the folder.
        """
        work = Work()
        work.run(30)
        for number in range(1, 500):
            disk = work.disk.copy()
            faults = Faults(disk, lambda operation, path: True, ioError, number)
            try:
                opened(disk)
            except StoreError as error:
                self.assertIn("Input/output error", str(error))
                work.ledger.check(opened(disk))
            if not faults.struck:
                break
        else:
            self.fail("the store never starts")
