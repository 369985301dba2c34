# SPDX-License-Identifier: Apache-2.0
"""
Tests for those who put many messages and ask once: what is written, what was lost,
how many wait for the disk.
"""

from __future__ import annotations

import errno
import os

import attrs

from tests.store.support import HOST, LOG_SIZE, Held, StoreCase, abandon, atOnce
from txrocket.errors import DiskFull, FlushDiskTimeout, StoreError, StoreFailed
from txrocket.store.getresult import GetMessageStatus
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")
BROKEN = OSError(errno.EIO, "broken")


class SettleTests(StoreCase):
    """
    L{MessageStore.settle}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()

    def tearDown(self) -> None:
        abandon(self.store)

    def test_written(self) -> None:
        """
        What was put is in the files and in its queue, and the turn's end has
        nothing left to do.
        """
        before = len(self.clock.getDelayedCalls())
        for body in (b"a", b"b"):
            self.gather(self.store, body)
        self.assertEqual(self.bodies(self.store), [])
        self.assertIsNone(self.store.settle(0))
        self.assertEqual(self.bodies(self.store), [b"a", b"b"])
        self.assertEqual(len(self.clock.getDelayedCalls()), before)

    def test_nothingAppendedLosesNothing(self) -> None:
        """
        Where nothing was put, nothing was lost.
        """
        self.assertIsNone(self.store.settle(0))

    def test_fullDiskLosesMessagesOnce(self) -> None:
        """
        What a full disk does not take is lost, once: what is put afterwards and
        taken is not, and gets the numbers of what was lost.
        """
        self.gather(self.store, b"lost")
        self.disk.failing["pwrite"] = FULL
        self.assertIsInstance(self.store.settle(0), DiskFull)
        self.disk.failing.clear()
        self.assertEqual(self.store.losses, 1)
        self.assertEqual(self.gather(self.store, b"kept").queueOffset, 0)
        self.assertIsNone(self.store.settle(1))
        self.assertEqual(self.bodies(self.store), [b"kept"])

    def test_broken(self) -> None:
        """
        A disk that fails ends all writing, and says so each time.
        """
        self.gather(self.store)
        self.disk.failing["pwrite"] = BROKEN
        self.assertIsInstance(self.store.settle(0), StoreFailed)
        self.disk.failing.clear()
        self.assertRaises(StoreFailed, self.gather, self.store)

    def test_syncFails(self) -> None:
        """
        What was put before the news of a sync that failed, and not written, is
        lost.
        """
        self.put(self.store)
        self.gather(self.store)
        self.disk.failing["sync"] = BROKEN
        self.failureResultOf(self.store.flusher.flush(), StoreFailed)
        self.disk.failing.clear()
        self.assertIsInstance(self.store.settle(0), StoreFailed)
        self.assertEqual(len(self.bodies(self.store)), 1)

    def loseFirst(self) -> None:
        """
        Lose a message because the file that it is in must be ended, and cannot be.
        """
        self.gather(self.store, b"a" * 3000)
        self.disk.failing["pwrite"] = FULL
        self.assertRaises(DiskFull, self.gather, self.store, b"b" * 3000)
        self.disk.failing.clear()

    def test_lostInBetween(self) -> None:
        """
        What was lost when a new file was to be begun is not forgotten over what
        was put and written afterwards.
        """
        self.loseFirst()
        self.gather(self.store, b"c")
        self.assertIsInstance(self.store.settle(0), DiskFull)
        # What could be kept is, when the reactor turns.
        self.clock.advance(0)
        self.assertEqual(self.bodies(self.store), [b"c"])

    def test_lostBeforeOthersAreTold(self) -> None:
        """
        Nobody is told of messages before those who lost theirs can be: what is
        told on the way must not speak of success.
        """
        self.loseFirst()
        self.gather(self.store, b"c")
        self.arrived.clear()
        self.store.settle(0)
        self.assertEqual(self.arrived, [])

    def test_lostAndWrittenAgain(self) -> None:
        """
        What was lost stays lost when others have put and written since.
        """
        self.loseFirst()
        self.gather(self.store, b"c")
        self.store.write()
        self.gather(self.store, b"d")
        self.assertIsInstance(self.store.settle(0), DiskFull)

    def answering(self, *bodies: bytes, topic: str = "U") -> None:
        """
        Have a store in which each message to T is answered by another, as long as
        there are bodies for it.
        """
        left = list(bodies)

        def arrived(*told: object) -> None:
            if left and told[0] == "T":
                self.gather(self.store, left.pop(0), topic=topic)

        abandon(self.store)
        self.store = MessageStore(self.store.settings, self.clock, atOnce, HOST, arrived, self.disk)
        self.store.start()

    def test_settledAtARoll(self) -> None:
        """
        A message for which a new file is begun is written when the turn ends, also
        if who was told of those before it had them written.
        """

        def arrived(*told: object) -> None:
            self.store.settle(self.store.losses)

        abandon(self.store)
        self.store = MessageStore(self.store.settings, self.clock, atOnce, HOST, arrived, self.disk)
        self.store.start()
        size = LOG_SIZE // 2
        self.gather(self.store, b"a" * size)
        self.gather(self.store, b"b" * size)
        stored = self.store.stored(self.store.log.end)
        self.assertNoResult(stored)
        self.clock.advance(0)
        self.successResultOf(stored)

    def assertHolds(self, **expected: list[bytes]) -> None:
        """
        Each queue holds its messages, numbered in order, also after a crash.
        """
        self.store.settle(self.store.losses)
        self.clock.advance(0)
        for _ in range(2):
            for topic, bodies in expected.items():
                found = self.all(self.store, topic)
                self.assertEqual([each.body[:4] for each in found], bodies)
                self.assertEqual([each.queueOffset for each in found], list(range(len(bodies))))
            abandon(self.store)
            self.store = self.start()

    def test_putWhileTold(self) -> None:
        """
        Who is told of a message may put another: it is written in its turn, and
        no offset is given twice.
        """
        self.answering(b"one", b"two")
        for body in (b"a", b"b"):
            self.gather(self.store, body)
        self.assertIsNone(self.store.settle(0))
        self.assertEqual(self.bodies(self.store, "U"), [])
        self.assertHolds(T=[b"a", b"b"], U=[b"one", b"two"])

    def test_putWhileRolled(self) -> None:
        """
        Also if it is told because a message did not fit into the log's file.
        """
        self.answering(b"one", b"two")
        self.gather(self.store, b"aaaa" * 800)
        self.gather(self.store, b"bbbb" * 800)
        self.assertHolds(T=[b"aaaa", b"bbbb"], U=[b"one", b"two"])

    def test_filledWhileRolled(self) -> None:
        """
        And if what it puts fills the new file.
        """
        self.answering(b"fill" * 800)
        self.gather(self.store, b"aaaa" * 800)
        self.gather(self.store, b"bbbb" * 800)
        self.assertHolds(T=[b"aaaa", b"bbbb"], U=[b"fill"])

    def test_numberedWhileRolled(self) -> None:
        """
        And if it puts it into the same queue, before a batch.
        """
        self.answering(b"told", topic="T")
        self.gather(self.store, b"aaaa" * 800)
        appended = self.putBatch(self.store, b"bbbb" * 400, b"cccc" * 400)
        self.assertEqual(appended.queueOffset, 2)
        self.assertHolds(T=[b"aaaa", b"told", b"bbbb", b"cccc"])


class WaitingTests(StoreCase):
    """
    L{MessageStore.waiting} and L{MessageStore.flushed}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held = Held()
        self.store = self.start(self.held, flushDiskType=FlushDiskType.SYNC_FLUSH)

    def tearDown(self) -> None:
        abandon(self.store)

    def test_waiting(self) -> None:
        """
        How many wait for the disk, and how long the first of them has.
        """
        self.assertEqual(self.store.waiting, (0, 0.0))
        sent = [self.store.stored(self.gather(self.store).end) for _ in range(3)]
        self.clock.advance(0)
        self.clock.advance(2)
        sent.append(self.store.stored(self.gather(self.store).end))
        # Four senders, and the sync itself.
        self.assertEqual(self.store.waiting, (5, 2.0))
        self.held.work()
        for each in sent[:3]:
            self.successResultOf(each)
        self.assertEqual(self.store.waiting, (1, 0.0))
        self.clock.advance(0)
        self.held.work()
        self.successResultOf(sent[3])
        self.assertEqual(self.store.waiting, (0, 0.0))

    def test_late(self) -> None:
        """
        Who was told that it takes too long no longer counts as the first.
        """
        late = self.store.stored(self.gather(self.store).end)
        self.clock.advance(0)
        self.clock.advance(4)
        other = self.store.stored(self.gather(self.store).end)
        self.clock.advance(1)
        self.failureResultOf(late, FlushDiskTimeout)
        self.assertEqual(self.store.waiting[1], 1.0)
        other.addErrback(lambda failure: None)

    def test_nobodyWaits(self) -> None:
        """
        A sync that nobody's message waits for makes nobody wait.
        """
        self.put(self.store)
        self.store.flusher.flush()
        self.assertEqual(self.store.waiting, (1, 0.0))

    def test_flushed(self) -> None:
        """
        All that was put is on the disk once it fires: what was being synced, and
        what was not even written.
        """
        self.put(self.store)
        self.store.flusher.flush()
        self.gather(self.store)
        flushed = self.store.flushed()
        self.held.work()
        self.assertNoResult(flushed)
        self.held.work()
        self.successResultOf(flushed)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.end)

    def test_flushedNothing(self) -> None:
        """
        Where nothing was put, nothing is waited for.
        """
        self.successResultOf(self.store.flushed())

    def test_notFlushed(self) -> None:
        """
        It says so if something cannot be written, or not be synced.
        """
        self.gather(self.store)
        self.disk.failing["pwrite"] = FULL
        self.assertRaises(DiskFull, self.store.flushed)
        self.disk.failing.clear()
        self.gather(self.store)
        flushed = self.store.flushed()
        self.disk.failing["sync"] = BROKEN
        self.held.work()
        self.failureResultOf(flushed, StoreFailed)
        self.disk.failing.clear()


class SettingsTests(StoreCase):
    """
    Settings that change while the store is open, and where the log may be.
    """

    def test_flushDiskType(self) -> None:
        """
        From the change on, senders wait for the disk, or no longer do.
        """
        held = Held()
        store = self.start(held)
        self.addCleanup(abandon, store)
        self.put(store)
        self.successResultOf(store.stored(store.log.end))
        store.apply(attrs.evolve(store.settings, flushDiskType=FlushDiskType.SYNC_FLUSH))
        stored = store.stored(store.log.end)
        self.assertNoResult(stored)
        held.work()
        self.successResultOf(stored)

    def test_pulls(self) -> None:
        """
        How much a pull is given can be changed.
        """
        store = self.start()
        self.addCleanup(abandon, store)
        for _ in range(3):
            self.put(store)
        store.apply(attrs.evolve(store.settings, maxTransferCountOnMessageInMemory=2))
        self.assertEqual(store.get("T", 0, 0, 32).count, 2)

    def test_retention(self) -> None:
        """
        How long files are kept can be changed.
        """
        store = self.start()
        self.addCleanup(abandon, store)
        for _ in range(3):
            self.put(store, b"x" * 3000)
        self.successResultOf(store.checkpointer.checkpoint())
        self.assertEqual(store.retention.clean(asked=True), 0)
        for name in self.logFiles():
            os.utime(self.path("commitlog", name), (0, self.clock.seconds() - 7200))
        self.assertEqual(store.retention.clean(asked=True), 0)
        store.apply(attrs.evolve(store.settings, fileReservedTime=1))
        self.assertEqual(store.retention.clean(asked=True), 2)

    def test_logElsewhere(self) -> None:
        """
        The log is in C{storePathCommitLog}, and the rest in C{storePathRootDir}; it
        is found again there.
        """
        elsewhere = os.path.join(self.mktemp(), "deep", "log")
        store = self.start(storePathCommitLog=elsewhere)
        self.put(store, b"far")
        self.successResultOf(store.stop())
        self.assertEqual(os.listdir(elsewhere), [f"{0:020}"])
        self.assertFalse(os.path.exists(self.path("commitlog")))
        self.assertTrue(os.path.exists(self.path("consumequeue", "T", "0")))
        store = self.start(storePathCommitLog=elsewhere)
        self.addCleanup(abandon, store)
        self.assertEqual(self.bodies(store), [b"far"])

    def test_spaceElsewhere(self) -> None:
        """
        The disk that is watched is the log's.
        """
        elsewhere = self.mktemp()
        store = self.start(storePathCommitLog=elsewhere)
        self.addCleanup(abandon, store)
        asked: list[str] = []

        def space(path: str) -> tuple[int, int]:
            asked.append(path)
            return 1000, 50

        self.patch(self.disk, "space", space)
        store.retention.clean()
        self.assertEqual(asked, [elsewhere])
        self.assertRaises(DiskFull, self.gather, store)

    def test_fullElsewhere(self) -> None:
        """
        Where there is no room for the log, it says how much there is.
        """
        store = self.start(storePathCommitLog=self.mktemp())
        self.addCleanup(abandon, store)
        self.disk.failing["allocate"] = FULL
        error = self.assertRaises(StoreError, self.gather, store, b"x")
        self.assertIn(f"no room for {LOG_SIZE} bytes", str(error))
        self.disk.failing.clear()
        self.put(store)
        self.assertEqual(store.get("T", 0, 0, 1).status, GetMessageStatus.FOUND)
