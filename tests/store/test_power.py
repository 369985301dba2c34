# SPDX-License-Identifier: Apache-2.0
"""
Power loss: whatever of the unsynced writes reached the disk, nothing that was
acknowledged with SYNC_FLUSH is lost.

A store works on a L{Disk} that keeps synced and unsynced bytes apart.  At many
moments, between any two operations on the disk, disks are made as a power loss at
that moment may leave them, and a store is started on each::

    workload --op--op--op--op--op--> goes on
                    |     |
                    +- crash, start, check, put, crash again, start, check ...

Now and then a sync fails, and the store is started anew on what the system shows then.

The same is done with disks that leave out one kind of sync: the test must then
find a broken promise, or it would not find one in the store either.
"""

from __future__ import annotations

import json
import os
from random import Random
from typing import ClassVar

from twisted.internet.task import Clock

from tests.store.disk import Disk, File, ioError
from tests.store.ledger import (
    ROOT,
    SMALL,
    START,
    HeldThreads,
    Ledger,
    SweepTestCase,
    Violation,
    opened,
)
from txrocket.errors import MalformedBody, StoreError
from txrocket.store.files.segments import Segments
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore

# make test-long asks for many more.
STATES = int(os.environ.get("TXROCKET_POWER_STATES", "600"))

# A control is expected to be caught within as many.
CONTROL_STATES = 1500

_TABLE = f"{ROOT}/config/topics.json"


class Loss:
    """
    A workload on a disk, and the power losses in it.

    @ivar states: how many were looked at.
    @ivar violation: the first promise that was found broken.
    """

    def __init__(self, seed: int, limit: int, disk: Disk) -> None:
        self._random = Random(seed)
        self._limit = limit
        # Often, or seldom so that many things happen before.
        self._chance = self._random.choice((0.25, 0.1, 0.05, 0.02))
        self.states = 0
        self.violation: Violation | None = None
        self._disk = disk
        self._disk.before = self._moment
        self._ledger = Ledger()
        self._tableOld: bytes | None = None
        self._tableNew: bytes | None = None
        self._first = 0
        self._store: MessageStore | None = None
        self._seconds = START
        self._failing = False
        self._open()

    # --- the workload ----------------------------------------------------

    def run(self, steps: int) -> None:
        """
        Do something to the store, many times.
        """
        random = self._random
        actions = [self._put] * 8 + [self._appendBatch] * 2 + [self._pass] * 4 + [self._turn] * 8
        actions += [self._checkpoint, self._saveTable, self._turnAll] + [self._pass] * 2
        rare = [self._restart, self._kill, self._retain, self._failSync, self._failSync]
        for _ in range(steps):
            if self.violation is not None or self.states >= self._limit:
                break
            action = random.choice(rare if random.random() < 0.03 else actions)
            try:
                action()
            except StoreError:
                if self._store is not None and self._store.failure is None:
                    raise
            if self._store is None or self._store.failure is not None:
                # No write is accepted any more.
                self._kill()

    def _open(self) -> None:
        self._clock = Clock()
        self._clock.advance(self._seconds)
        self._threads = HeldThreads()
        self._disk.now = self._seconds
        self._store = None
        self._store = opened(self._disk, self._clock, self._threads)
        self._table = Table(self._disk, _TABLE)
        self._table.load(_decode)
        self._first = self._store.log.first
        self._owe()

    def _owe(self) -> None:
        """
        The messages that a store serves after its start are on the disk, and must stay.
        """
        assert self._store is not None
        try:
            served = self._ledger.check(self._store, first=self._first, gaps=True)
        except Violation as violation:
            self.violation = violation
            return
        records = {each.commitLogOffset: each for each in served}
        for sent in self._ledger.sent:
            record = records.get(sent.offset)
            if record is not None and sent.isIn(record):
                sent.stored = True

    def _put(self) -> None:
        random = self._random
        assert self._store is not None
        self._ledger.put(
            self._store,
            f"Topic{random.randrange(3)}",
            random.randrange(2),
            random.randbytes(random.choice((0, 5, 60, 60, 300, 700, 1500))),
            tag=random.choice(("", "red", "green")),
            keys=(f"k{random.randrange(50)}",)[: random.randrange(2)],
        )

    def _appendBatch(self) -> None:
        random = self._random
        assert self._store is not None
        bodies = [random.randbytes(random.randrange(1, 200)) for _ in range(random.randrange(1, 6))]
        self._ledger.appendBatch(self._store, f"Topic{random.randrange(3)}", 0, bodies, tag="b")

    def _pass(self) -> None:
        seconds = self._random.choice((0.0, 0.0, 0.0, 0.001, 0.3, 1.1))
        self._seconds += seconds
        self._disk.now = self._seconds
        self._clock.advance(seconds)

    def _turn(self) -> None:
        self._threads.turn()

    def _turnAll(self) -> None:
        while self._threads.turn():
            pass

    def _checkpoint(self) -> None:
        assert self._store is not None
        self._store.write()
        self._store.checkpointer.checkpoint().addErrback(lambda failure: None)

    def _saveTable(self) -> None:
        self._tableNew = json.dumps(
            {"number": self._random.randrange(10**9), "text": "x" * self._random.randrange(1500)}
        ).encode()
        self._table.save(self._tableNew)
        self._tableOld = self._tableNew

    def _retain(self) -> None:
        assert self._store is not None
        self._disk.free = self._disk.total // 8
        # From here on any of the old messages may be gone.
        before = self._store.log.segments.bases[-1:] or [0]
        self._first = max(self._first, before[0])
        self._store.retention.clean()
        self._disk.free = self._disk.total // 2
        self._first = self._store.log.first
        self._store.retention.clean()

    def _restart(self) -> None:
        assert self._store is not None
        stopped = self._store.stop()
        while not stopped.called:
            if not self._threads.turn():
                raise Violation("the store does not stop")
        self._open()

    def _kill(self) -> None:
        """
        The process ends, the system goes on.
        """
        self._disk.kill()
        self._open()

    def _failSync(self) -> None:
        """
        The next sync of a file of the store fails.
        """
        self._failing = True

    # --- the losses ------------------------------------------------------

    def _moment(self, operation: str, path: str) -> None:
        self._lookNowAndThen(operation)
        if self._failing and operation == "sync" and "/config/" not in path:
            self._failing = False
            raise ioError()

    def _lookNowAndThen(self, operation: str) -> None:
        if operation == "pread" or self._random.random() > self._chance:
            return
        for _ in range(self._random.choice((1, 2, 3))):
            if self.violation is not None or self.states >= self._limit:
                return
            self.states += 1
            try:
                self._look()
            except Violation as violation:
                # Not through the store, which would take it for its own.
                self.violation = violation

    def _look(self) -> None:
        ledger = Ledger.of(self._ledger)
        random = self._random
        # Now and then only the process ends here, and the power goes later.
        killed = random.random() < 0.15
        disk = self._disk.fork() if killed else self._disk.crash(Random(random.getrandbits(64)))
        self._checkTable(disk)
        store = self._start(disk)
        ledger.check(store, first=self._first, gaps=True)
        self._goOn(store, ledger)
        # And once more: power again, or only the process, or a clean stop.
        fate = 0.0 if killed else random.random()
        first = store.log.first
        if fate < 0.5:
            disk = disk.crash(Random(random.getrandbits(64)))
        elif fate < 0.7:
            disk.kill()
        else:
            store.stop()
            if "abort" in disk.names(ROOT):
                raise Violation("the store was not stopped cleanly")
        store = self._start(disk)
        ledger.check(store, first=first, gaps=True)

    def _start(self, disk: Disk) -> MessageStore:
        clock = Clock()
        clock.advance(self._seconds)
        try:
            return opened(disk, clock)
        except (StoreError, OSError, AssertionError, KeyError, IndexError) as error:
            raise Violation(f"the store does not start: {error!r}") from error

    def _goOn(self, store: MessageStore, ledger: Ledger) -> None:
        sent = [
            ledger.put(store, "Topic0", 0, b"after the loss" * 9, keys=("after",)),
            ledger.put(store, "Topic1", 1, b"", tag="red"),
        ]
        store.write()
        if not all(each.stored for each in sent):
            raise Violation("what is put after the loss is not stored")
        if self._random.random() < 0.3:
            store.checkpointer.checkpoint()
        ledger.check(store, first=store.log.first, gaps=True)

    def _checkTable(self, disk: Disk) -> None:
        try:
            value = Table(disk, _TABLE).load(_decode)
        except StoreError as error:
            raise Violation(f"the table is gone: {error}") from error
        if value not in (self._tableOld, self._tableNew):
            raise Violation("the table is neither the old nor the new one")


def _decode(data: bytes) -> bytes:
    try:
        json.loads(data)
    except ValueError as error:
        raise MalformedBody(str(error)) from None
    return data


def losses(kind: type[Disk], states: int) -> int:
    """
    Look at a number of states.

    @return: how many they were.
    @raise Violation: naming the seed.
    """
    seen = seed = 0
    while seen < states:
        loss = Loss(seed, min(100, states - seen), kind())
        loss.run(400)
        seen += loss.states
        if loss.violation is not None:
            raise Violation(f"seed {seed}, state {seen}: {loss.violation}") from loss.violation
        seed += 1
    return seen


class LazyLog(Disk):
    """
    Leaves out the sync of the log.
    """

    def sync(self, handle: int) -> None:
        if "/commitlog/" not in self._handles[handle][0]:
            super().sync(handle)


class LazyFolder(Disk):
    """
    Leaves out the sync of the names of the log's files.
    """

    def syncFolder(self, path: str) -> None:
        if not path.endswith("/commitlog"):
            super().syncFolder(path)


class LazyEntries(Disk):
    """
    Leaves out the sync of the index's entries that comes before that of slots.
    """

    _entries: ClassVar[int] = 40 + 4 * SMALL.maxHashSlotNum

    def syncPath(self, path: str) -> None:
        node = self._find(path)
        if "/index/" in path and isinstance(node, File):
            onlyEntries = all(data is None or at >= self._entries for at, data in node.pending)
            if onlyEntries:
                return
        super().syncPath(path)


class LazyQueues(Disk):
    """
    Leaves out the sync of the queues before a checkpoint.
    """

    def syncPath(self, path: str) -> None:
        if "/consumequeue/" not in path:
            super().syncPath(path)


class LazyTables(Disk):
    """
    Leaves out the sync of a table before it is renamed.
    """

    def sync(self, handle: int) -> None:
        if "/config/" not in self._handles[handle][0]:
            super().sync(handle)


class PowerTests(SweepTestCase):
    """
    Losing power.
    """

    def test_powerLossLosesNothingAcknowledged(self) -> None:
        """
        After a power loss at any moment the store starts, serves all that was
        acknowledged by queue, offset and key as it was, serves nothing that was
        not put, has tables that are old or new, and takes messages again.
        """
        self.assertGreaterEqual(losses(Disk, STATES), STATES)

    def test_missingSyncIsNoticed(self) -> None:
        """
        Without one of the store's syncs, this test finds what is lost.
        """
        for kind in (LazyLog, LazyFolder, LazyEntries, LazyQueues, LazyTables):
            self.assertRaises(Violation, losses, kind, CONTROL_STATES)

    def test_missingRewriteIsNoticed(self) -> None:
        """
        If a start after a failed sync does not write again what it keeps, this test finds
        what is lost.
        """
        self.patch(Segments, "rewrite", lambda segments, start, end: None)
        self.assertRaises(Violation, losses, Disk, CONTROL_STATES)
