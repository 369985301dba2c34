# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.recovery}, and for the start and stop of a store.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import Any

import attrs

from tests.store.support import LOG_SIZE, StoreCase, abandon, filesOf
from txrocket.bulk import python
from txrocket.errors import StoreCorrupt, StoreFailed, StoreInUse
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE, decodeRecords
from txrocket.store import dispatch
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import CheckpointFile
from txrocket.store.log import commitlog
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.queue import consumequeues
from txrocket.store.queue.entry import packEntry
from txrocket.store.read.getresult import GetMessageStatus

EVER = 1 << 60

SECOND = """
import sys
from twisted.internet.task import Clock
from twisted.internet.defer import maybeDeferred
from txrocket.errors import StoreInUse
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings
store = MessageStore(StoreSettings(*sys.argv[1:]), Clock(), maybeDeferred, bytes(8))
try:
    store.start()
except StoreInUse as error:
    print(error)
"""


class LifeTests(StoreCase):
    """
    Start and stop.
    """

    def test_secondStoreIsRefused(self) -> None:
        """
        A second store on the same folder is refused, in another process and in
        the same, and the first one goes on.
        """
        store = self.start()
        error = self.assertRaises(StoreInUse, self.make().start)
        self.assertIn(f"{self.root} is in use by another process", str(error))
        said = subprocess.run(
            [sys.executable, "-c", SECOND, self.root], capture_output=True, text=True, check=True
        ).stdout
        self.assertIn(f"{self.root} is in use by another process", said)
        self.put(store, b"a")
        store.stop()
        store = self.start()
        self.assertEqual([b"a"], self.bodies(store))
        store.stop()

    def test_entriesBeforeNothingMadeAnew(self) -> None:
        """
        Entries that name places before 0 are not taken for those of deleted records: the
        queue is made anew from the log.
        """
        store = self.start()
        for number in range(3):
            self.put(store, b"%d" % number)
        self.successResultOf(store.stop())
        path = self.path("consumequeue", "T", "0", f"{0:020d}")
        with open(path, "r+b") as file:
            file.write(b"".join(packEntry(-9 + each, 120, 0) for each in range(5)))
        store = self.start()
        self.assertEqual((0, 3), (store.minOffset("T", 0), store.maxOffset("T", 0)))
        self.assertEqual([b"0", b"1", b"2"], self.bodies(store))
        store.stop()

    def test_logInUse(self) -> None:
        """
        A second store with a root of its own and the same folder for the log is refused,
        in another process and in the same, by whatever path, and the first one goes on.
        """
        log = self.path("log")
        store = self.start(storePathCommitLog=log)
        os.symlink("log", self.path("link"))
        self.put(store, b"a")
        root, self.root = self.root, self.mktemp()
        for path in (log, os.path.join(root, "link")):
            error = self.assertRaises(StoreInUse, self.make(storePathCommitLog=path).start)
            self.assertEqual(f"{path} is in use by another process", str(error))
            command = [sys.executable, "-c", SECOND, self.root, path]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertEqual(f"{path} is in use by another process\n", said)
        self.assertNotIn("abort", os.listdir(self.root))
        # Nothing of the second one is left behind.
        self.start().stop()
        self.root = root
        self.put(store, b"b")
        self.assertEqual([b"a", b"b"], self.bodies(store))
        store.stop()
        store = self.start(storePathCommitLog=log)
        self.assertEqual([b"a", b"b"], self.bodies(store))
        store.stop()
        self.assertEqual(["0" * 20], os.listdir(log))

    def test_folderCannotBeLocked(self) -> None:
        """
        On a file system that locks no folders the store starts, and says what to heed.
        """
        self.patch(self.disk, "lockFolder", lambda path: None)
        store = self.make(storePathCommitLog=self.path("log"))
        said: list[str] = []

        class Heard:
            """
            Takes warnings.
            """

            def warn(self, text: str, **values: Any) -> None:
                said.append(text.format(**values))

        self.patch(store.folder, "_log", Heard())
        store.start()
        self.put(store, b"a")
        store.stop()
        self.assertEqual(1, len(said))
        self.assertIn(f"{self.path('log')} cannot be locked", said[0])

    def test_abortFileMarksRunningStore(self) -> None:
        """
        The abort file is there while a store runs, and after a crash.
        """
        store = self.start()
        self.assertEqual(0, self.disk.size(self.path("abort")))
        abandon(store)
        self.assertEqual(0, self.disk.size(self.path("abort")))
        store = self.start()
        self.successResultOf(store.stop())
        self.assertIsNone(self.disk.size(self.path("abort")))

    def test_emptyFolderOpensAgain(self) -> None:
        """
        An empty folder can be opened again and again, and then be used.
        """
        for end in (MessageStore.stop, MessageStore.stop, abandon, abandon):
            end(self.start())
        self.assertEqual([], os.listdir(self.path("commitlog")))
        store = self.start()
        self.assertEqual(0, self.put(store, b"a").queueOffset)
        self.assertEqual([b"a"], self.bodies(store))
        store.stop()

    def test_closedStoreRefusesMessages(self) -> None:
        """
        A store that is closed, or about to be, takes nothing.
        """
        store = self.start()
        store.stop()
        error = self.assertRaises(StoreFailed, self.put, store)
        self.assertIn("is closed", str(error))
        self.assertEqual([], os.listdir(self.path("commitlog")))

    def test_secondStopDoesNothing(self) -> None:
        """
        A second stop does not touch the folder, which may be another store's by
        then; nor does the stop of a store that never ran.
        """
        first = self.start()
        self.successResultOf(first.stop())
        second = self.start()
        self.successResultOf(first.stop())
        self.successResultOf(self.make().stop())
        self.assertEqual(0, self.disk.size(self.path("abort")))
        second.stop()

    def test_stopClosesAll(self) -> None:
        """
        A stop leaves no file open and no call pending.
        """
        store = self.start()
        self.gather(store, KEYS="k")
        store.stop()
        self.assertEqual([], self.clock.getDelayedCalls())
        self.disk.opened = {
            handle: path for handle, path in self.disk.opened.items() if "lock" not in path
        }
        self.assertEqual({}, self.disk.opened)

    def test_stopAfterFailure(self) -> None:
        """
        After a failed sync a stop leaves the abort file, so that the next start
        checks everything.
        """
        store = self.start()
        self.put(store, b"a" * 2000)
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.clock.advance(60)
        self.assertIsNotNone(store.failure)
        self.disk.failing.clear()
        self.successResultOf(store.stop())
        self.assertEqual(0, self.disk.size(self.path("abort")))
        store = self.start()
        self.assertEqual([b"a" * 2000], self.bodies(store))
        self.put(store, b"b")
        store.stop()

    def test_stopAfterTask(self) -> None:
        """
        A task that an unexpected error has ended is logged, and does not keep the store from
        stopping.
        """
        store = self.start()

        def clean() -> int:
            raise ZeroDivisionError

        store.tasks.loop(1000, clean)
        self.clock.advance(1)
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.successResultOf(store.stop())
        self.assertIsNone(self.disk.size(self.path("abort")))

    def test_failedStartFreesFolder(self) -> None:
        """
        A start that fails lets go of the folder.
        """
        store = self.start()
        self.put(store)
        store.stop()
        self.assertRaises(StoreCorrupt, self.make(mappedFileSizeCommitLog=2048).start)
        store = self.start()
        self.assertEqual(1, len(self.all(store)))
        store.stop()


class RestartTests(StoreCase):
    """
    The state that a start finds.
    """

    def fill(self, store: MessageStore, count: int = 12) -> None:
        """
        Put messages into two topics and several files.
        """
        for number in range(count):
            self.put(
                store,
                bytes([number]) * 900,
                topic="TU"[number % 2],
                KEYS=f"k{number} all",
                TAGS="a",
            )
            self.clock.advance(0.01)

    def check(self, store: MessageStore, count: int = 12) -> None:
        """
        Everything is there.
        """
        for start, topic in enumerate("TU"):
            expected = [bytes([number]) * 900 for number in range(start, count, 2)]
            self.assertEqual(expected, self.bodies(store, topic))
            self.assertEqual(len(expected), len(store.query(topic, "all", 0, EVER, 64)[0]))
        for number in range(count):
            topic = "TU"[number % 2]
            self.assertEqual(1, len(store.query(topic, f"k{number}", 0, EVER, 64)[0]))

    def served(self, store: MessageStore, topic: str) -> dict[int, bytes]:
        """
        The bodies of a queue by their queue offsets, where some may be missing.
        """
        found: dict[int, bytes] = {}
        offset = store.minOffset(topic, 0)
        while offset < store.maxOffset(topic, 0):
            got = store.get(topic, 0, offset, 32)
            for each in decodeRecords(got.data, checkCrc=True):
                found[each.queueOffset] = each.body
            offset = got.nextOffset
        return found

    def test_cleanStopNeedsNoScan(self) -> None:
        """
        After a clean stop everything is there, and the log is not read.
        """
        store = self.start()
        self.fill(store)
        store.stop()
        del self.disk.preads[:]
        store = self.start()
        reads = [size for path, _, size in self.disk.preads if "commitlog" in path]
        self.assertLess(sum(reads), 2 * LOG_SIZE)
        self.check(store)
        self.assertEqual(store.log.written, store.flusher.flushed.offset)
        store.stop()

    def begun(self) -> int:
        """
        The earliest offset of the log from which the last start read on.
        """
        return min(
            int(os.path.basename(path)) + offset
            for path, offset, size in self.disk.preads
            if "commitlog" in path and size > 8 and offset + size == LOG_SIZE
        )

    def syncedLog(self) -> list[str]:
        """
        The part of the log that the last start has synced.
        """
        return [
            os.path.relpath(path, self.path("commitlog"))
            for path in self.disk.synced
            if "commitlog" in path
        ]

    def restart(self, **options: Any) -> MessageStore:
        """
        Start, and remember only what that does to the disk.
        """
        del self.disk.preads[:], self.disk.synced[:]
        return self.start(**options)

    def test_crashKeepsWrittenMessages(self) -> None:
        """
        After a crash everything that was written is there, and what is not
        known to be on the disk is synced before anything else happens.
        """
        store = self.start()
        self.fill(store)
        end = store.log.written
        abandon(store)
        store = self.restart()
        self.assertEqual([*self.logFiles(), "."], self.syncedLog())
        self.assertEqual((end, end), (store.log.written, store.flusher.flushed.offset))
        self.check(store)
        store.stop()

    def test_crashSyncFails(self) -> None:
        """
        If what a crash left cannot be synced, the store does not start.
        """
        store = self.start()
        self.fill(store)
        abandon(store)
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.disk.only = "commitlog"
        error = self.assertRaises(StoreFailed, self.start)
        self.assertIn(f"opening {self.root} failed", str(error))
        self.disk.failing.clear()
        store = self.start()
        self.check(store)
        store.stop()

    def test_crashAfterCheckpoint(self) -> None:
        """
        After a crash the log is read, and synced, from the last checkpoint on,
        and not before it.
        """
        store = self.start()
        self.fill(store)
        self.clock.advance(10)
        self.put(store)
        self.successResultOf(store.checkpointer.checkpoint())
        at = store.log.written
        self.put(store, b"x", KEYS="late")
        end = store.log.written
        abandon(store)
        store = self.restart()
        self.assertEqual(at, self.begun())
        self.assertEqual([f"{at - at % LOG_SIZE:020d}", "."], self.syncedLog())
        self.assertEqual(end, store.flusher.flushed.offset)
        # Of files before the last two only single records, to confirm what the
        # queues say.
        sizes = [
            size
            for path, _, size in self.disk.preads
            if "commitlog" in path and int(os.path.basename(path)) < at - 2 * LOG_SIZE
        ]
        self.assertEqual([], [each for each in sizes if each > 1100])
        self.assertEqual(b"x", self.bodies(store)[-1])
        self.assertEqual(1, len(store.query("T", "late", 0, EVER, 1)[0]))
        store.stop()

    def test_crashAfterTopicRemoved(self) -> None:
        """
        Queues that were removed do not count as lost: a second later a start after a crash
        reads no more of the log than without.
        """
        store = self.start()
        self.fill(store)
        self.successResultOf(store.checkpointer.checkpoint())
        self.successResultOf(store.removeTopic("T"))
        self.clock.advance(1)
        at = store.log.written
        abandon(store)
        store = self.restart()
        self.assertEqual(at, self.begun())
        self.assertIsNone(store.queues.get("T", 0))
        self.assertEqual(6, len(self.all(store, "U")))
        store.stop()

    def test_checkpointAtBlank(self) -> None:
        """
        A checkpoint is believed if the log went on with a blank, and then with
        nothing.
        """
        store = self.start()
        self.fill(store, 3)
        self.successResultOf(store.checkpointer.checkpoint())
        at = store.log.written
        self.gather(store, b"x" * 3000)
        abandon(store)
        store = self.start()
        self.assertEqual(at, store.flusher.flushed.offset)
        self.check(store, 3)
        self.put(store, b"x")
        self.assertEqual(b"x", self.bodies(store)[-1])
        store.stop()

    def test_crashLosesUnwrittenMessages(self) -> None:
        """
        Unwritten messages are gone after a crash, and their place is free.
        """
        store = self.start()
        self.put(store, b"a")
        lost = self.gather(store, b"b")
        abandon(store)
        store = self.start()
        self.assertEqual([b"a"], self.bodies(store))
        again = self.put(store, b"c")
        self.assertEqual((lost.offset, lost.queueOffset), (again.offset, again.queueOffset))
        store.stop()

    def test_tornTailIsCut(self) -> None:
        """
        A torn record with nothing sound behind it is cut, with its queue entry, and what
        is behind does not rise again.
        """
        store = self.start()
        self.put(store, b"a" * 100)
        torn = self.put(store, b"b" * 100, KEYS="torn")
        rest = self.put(store, b"c" * 100)
        store.log.segments.write(torn.offset, bytes(150))
        store.log.segments.write(rest.offset, bytes(100))
        abandon(store)
        store = self.start()
        self.assertEqual([b"a" * 100], self.bodies(store))
        self.assertEqual((torn.offset, 1), (store.log.written, store.maxOffset("T", 0)))
        self.assertEqual([], store.query("T", "torn", 0, EVER, 1)[0])
        # The third would be whole again behind a second of the same size.
        self.put(store, b"d" * 100, KEYS="torn")
        abandon(store)
        store = self.start()
        self.assertEqual([b"a" * 100, b"d" * 100], self.bodies(store))
        store.stop()

    def test_uncheckedBodiesAreBelieved(self) -> None:
        """
        checkCRCOnRecover=false believes bodies.
        """
        store = self.start()
        torn = self.put(store, b"b" * 100)
        store.log.segments.write(torn.offset + 150, b"X")
        abandon(store)
        store = self.start(checkCRCOnRecover=False)
        self.assertEqual(1, store.maxOffset("T", 0))
        abandon(store)

    def test_deletedQueuesAreMadeAgain(self) -> None:
        """
        Deleted queues are made again from the log, after a clean
        stop too.
        """
        for end in (MessageStore.stop, abandon):
            self.root = self.mktemp()
            store = self.start()
            self.fill(store)
            store.queues.write()
            end(store)
            shutil.rmtree(self.path("consumequeue"))
            store = self.start()
            self.check(store)
            store.stop()

    def test_queuesDeletedLaterLog(self) -> None:
        """
        Where the log's first files are gone too, they begin with Java's fillers.
        """
        store = self.start()
        self.fill(store)
        store.log.segments.removeFirst()
        store.retention.follow()
        store.stop()
        shutil.rmtree(self.path("consumequeue"))
        for _ in range(2):
            store = self.start()
            self.assertEqual((2, 6), (store.minOffset("T", 0), store.maxOffset("T", 0)))
            self.assertEqual(4, len(self.all(store)))
            self.assertEqual(
                bytes.fromhex("00000000000000007fffffff0000000000000000") * 2,
                self.bytesOf("consumequeue", "T", "0", "00000000000000000000")[:40],
            )
            store.stop()

    def test_fillersAtLogStart(self) -> None:
        """
        Fillers are not served, though the log begins at 0 as they do.
        """
        store = self.start()
        self.fill(store, 4)
        store.queues.put("V", 0, 3, 0, 992, 0)
        store.queues.write()
        store.stop()
        store = self.start()
        self.assertEqual(3, store.minOffset("V", 0))
        self.assertEqual(GetMessageStatus.OFFSET_TOO_SMALL, store.get("V", 0, 1, 1).status)
        self.assertIsNone(store.storeTimestamp("V", 0, 1))
        store.stop()

    def test_deletedIndexIsMadeAgain(self) -> None:
        """
        A deleted index is made again after a crash.
        """
        store = self.start()
        self.fill(store)
        abandon(store)
        shutil.rmtree(self.path("index"))
        store = self.start()
        self.check(store)
        store.stop()

    def test_deletedLogEmptiesStore(self) -> None:
        """
        Without a log there are no queues and no index.
        """
        store = self.start()
        self.fill(store)
        store.stop()
        shutil.rmtree(self.path("commitlog"))
        store = self.start()
        self.assertEqual([], list(store.queues))
        self.assertEqual([], os.listdir(self.path("index")))
        self.assertEqual(0, self.put(store, b"a").queueOffset)
        store.stop()
        shutil.rmtree(self.path("commitlog"))
        store = self.start(messageIndexEnable=False)
        self.assertEqual([], list(store.queues))
        store.stop()

    def forgetOwn(self) -> None:
        """
        Leave of the checkpoint what Java would have written.
        """
        with open(self.path("checkpoint"), "r+b") as file:
            file.seek(64)
            file.write(bytes(64))

    def test_checkpointOfJavaChoosesFile(self) -> None:
        """
        With a checkpoint of Java's a start after a crash begins with the last
        file whose first record is older than the checkpoint's time less three
        seconds.
        """
        records = self.crashed()
        self.forgetOwn()
        store = self.restart(maxIndexNum=10)
        # The queues reach up to the blank before it, which leads there.
        self.assertEqual(records[7].end, self.begun())
        self.assertEqual(2 * LOG_SIZE, records[8].offset)
        self.assertEqual([*self.logFiles()[2:], "."], self.syncedLog())
        self.check(store)
        store.stop()

    def crashed(self) -> list[Appended]:
        """
        A crash after a checkpoint.  Four records a file of the log: those of 0,
        4 and 8 seconds are first ones, and the checkpoint's 11 less 3 is 8.
        Nine entries a file of the index, two a record: the files end with the
        first key of the record of 4 seconds, with 8 seconds, and with 11.
        """
        self.root = self.mktemp()
        store = self.start(maxIndexNum=10)
        records = []
        for number in range(12):
            records.append(
                self.put(
                    store, bytes([number]) * 900, topic="TU"[number % 2], KEYS=f"k{number} all"
                )
            )
            self.clock.advance(1)
        self.successResultOf(store.checkpointer.checkpoint())
        abandon(store)
        return records

    def rewrite(self, **values: Any) -> None:
        """
        Change something of the checkpoint.
        """
        handles = Handles(self.disk)
        checkpointFile = CheckpointFile(handles, self.path("checkpoint"))
        checkpointFile.write(attrs.evolve(checkpointFile.read(), **values))
        handles.close()

    def test_olderIndexIsReadFurtherBack(self) -> None:
        """
        If the index's time is earlier, the log is read from where the index is
        known to be whole, however far back that is.
        """
        for after, begun in ((8, LOG_SIZE), (4, 0), (0, 0)):
            begin = int(self.clock.seconds())
            self.crashed()
            self.rewrite(offset=None, index=None, indexTimestamp=(begin + after) * 1000)
            store = self.restart(maxIndexNum=10)
            self.assertEqual(begun, self.begun())
            self.check(store)
            store.stop()

    def test_javaBetweenKeepsCheckpoint(self) -> None:
        """
        If Java has worked on the folder since our checkpoint, its offset holds
        if the log can go on there: with a record, a blank, or nothing.
        """
        for number, past in ((5, False), (7, True), (11, True)):
            record = self.crashed()[number]
            own = record.end if past else record.offset
            self.rewrite(offset=own, timestamp=1)
            store = self.restart(maxIndexNum=10)
            self.assertEqual(own, self.begun())
            self.assertEqual([*self.logFiles()[own // LOG_SIZE :], "."], self.syncedLog())
            self.check(store)
            store.stop()

    def test_javaSinceCut(self) -> None:
        """
        If the log cannot go on there, Java has cut it meanwhile, and its times
        hold.
        """
        for own in (1010, LOG_SIZE + 20, 3 * LOG_SIZE + 1, 100 * LOG_SIZE):
            self.crashed()
            self.rewrite(offset=own, timestamp=1)
            store = self.restart(maxIndexNum=10)
            self.assertEqual([*self.logFiles()[2:], "."], self.syncedLog())
            self.check(store)
            store.stop()

    def test_checkpointTakenBack(self) -> None:
        """
        While queues are made anew from before the checkpoint, there is no checkpoint: a crash
        right then loses nothing.
        """
        store = self.start()
        self.fill(store)
        store.stop()
        shutil.rmtree(self.path("consumequeue"))
        abandon(self.start())
        handles = Handles(self.disk)
        self.addCleanup(handles.close)
        read = CheckpointFile(handles, self.path("checkpoint")).read()
        self.assertIsNone(read.offset)
        shutil.rmtree(self.path("consumequeue"))
        store = self.start()
        self.check(store)
        store.stop()

    def test_missingCheckpointReadsAll(self) -> None:
        """
        Without a checkpoint everything is read, though a file's first record
        cannot be.
        """
        store = self.start()
        self.fill(store)
        self.successResultOf(store.checkpointer.checkpoint())
        abandon(store)
        os.remove(self.path("checkpoint"))
        store = self.restart()
        self.check(store)
        self.assertEqual(0, self.begun())
        self.assertEqual([*self.logFiles(), "."], self.syncedLog())
        abandon(store)
        with open(self.path("commitlog", f"{2 * LOG_SIZE:020d}"), "r+b") as file:
            file.write(bytes(100))
        os.remove(self.path("checkpoint"))
        store = self.start()
        expected = {number: bytes([2 * number]) * 900 for number in range(6) if number != 4}
        self.assertEqual(expected, self.served(store, "T"))
        self.assertEqual(6, len(self.all(store, "U")))
        store.stop()

    def test_cleanStopOfJavaReadsThreeFiles(self) -> None:
        """
        After a clean stop of Java's the last three files are read.
        """
        store = self.start()
        self.fill(store, 20)
        store.stop()
        self.forgetOwn()
        del self.disk.preads[:]
        store = self.start()
        first = min(
            path for path, offset, size in self.disk.preads if "commitlog" in path and size > 992
        )
        self.assertTrue(first.endswith(f"{2 * LOG_SIZE:020d}"))
        self.check(store, 20)
        store.stop()

    def test_checkpointPastLog(self) -> None:
        """
        If the last files of the log are gone, the rest is served, and the log and the
        queues go on where the checkpoint says that they were.
        """
        store = self.start()
        self.fill(store)
        end = store.log.written
        store.stop()
        for name in self.logFiles()[1:]:
            os.remove(self.path("commitlog", name))
        for _ in range(2):
            store = self.start()
            self.assertEqual({0: bytes(900), 1: b"\2" * 900}, self.served(store, "T"))
            self.assertEqual({0: b"\1" * 900, 1: b"\3" * 900}, self.served(store, "U"))
            self.assertEqual(end, store.log.written)
            self.assertEqual((6, 6), (store.maxOffset("T", 0), store.maxOffset("U", 0)))
            store.stop()

    def test_halfIsFoundAfterRestart(self) -> None:
        """
        The first half of a transaction is in no queue, and is found by its key
        after every restart, once.
        """
        store = self.start()
        self.put(store, b"a")
        self.put(store, b"half", sysFlag=TRANSACTION_PREPARED_TYPE, KEYS="k")
        for end in (MessageStore.stop, abandon, MessageStore.stop):
            end(store)
            store = self.start()
            self.assertEqual([b"a"], self.bodies(store))
            self.assertEqual(1, len(store.query("T", "k", 0, EVER, 10)[0]))
        store.stop()

    def test_emptyLastFile(self) -> None:
        """
        A last file that was made and not written to is no obstacle.
        """
        for end in (MessageStore.stop, abandon):
            self.root = self.mktemp()
            store = self.start()
            self.fill(store)
            store.log.segments.create(store.log.segments.end)
            end(store)
            store = self.start()
            self.check(store)
            self.put(store, b"x" * 3000)
            self.assertEqual(b"x" * 3000, self.bodies(store)[-1])
            store.stop()

    def test_entriesPastLog(self) -> None:
        """
        Entries of records that the log does not have are cut after a clean stop
        as well.
        """
        store = self.start()
        self.fill(store, 4)
        store.queues.put("T", 0, 2, store.log.written + 5000, 100, 0)
        store.queues.write()
        store.stop()
        store = self.start()
        self.check(store, 4)
        self.assertEqual(2, store.maxOffset("T", 0))
        store.stop()

    def test_damagedRecordCostsItself(self) -> None:
        """
        A damaged record costs itself alone, after a clean stop of Java's too: what is
        behind it is served by queue and key.
        """
        store = self.start()
        self.fill(store)
        end = store.log.written
        store.stop()
        self.forgetOwn()
        with open(self.path("commitlog", f"{LOG_SIZE:020d}"), "r+b") as file:
            file.write(bytes(100))
        for _ in range(2):
            store = self.start()
            expected = {number: bytes([2 * number]) * 900 for number in range(6) if number != 2}
            self.assertEqual(expected, self.served(store, "T"))
            self.assertEqual(6, len(self.all(store, "U")))
            self.assertEqual(end, store.log.written)
            self.assertEqual(5, len(store.query("T", "all", 0, EVER, 64)[0]))
            store.stop()
        store = self.start()
        self.assertEqual(6, self.put(store, b"x", KEYS="all").queueOffset)
        self.assertEqual(b"x", self.served(store, "T")[6])
        self.assertEqual(6, len(store.query("T", "all", 0, EVER, 64)[0]))
        store.stop()

    def test_compiledAndPythonMakeSameBytes(self) -> None:
        """
        Queues and index are made anew as the compiled module or Python makes them, with
        the same bytes.
        """
        store = self.start(mappedFileSizeCommitLog=1 << 14, maxIndexNum=1000)
        for number in range(300):
            body = b"%d" % number
            kind = number % 10
            if kind == 3:
                self.put(store, body, sysFlag=TRANSACTION_PREPARED_TYPE)
            elif kind == 5:
                self.put(store, body, SCHEDULE_TOPIC, 2, DELAY="3")
            elif kind == 7:
                self.clock.advance(0.7)
                self.appendBatch(store, *[body] * kind, topic="U")
            else:
                self.put(store, body, queueId=kind % 3, KEYS=f"k{number} all", TAGS="x")
        store.write()
        abandon(store)
        left = self.root
        made = []
        for pure in (False, True):
            self.root = self.mktemp()
            shutil.copytree(left, self.root)
            shutil.rmtree(self.path("consumequeue"))
            if pure:
                self.patch(commitlog, "checkRecords", python.checkRecords)
                self.patch(dispatch, "readRecords", python.readRecords)
            self.start(mappedFileSizeCommitLog=1 << 14, maxIndexNum=1000).stop()
            made.append(filesOf(self.root))
        self.assertEqual(*made)

    def test_longLogBoundsMemory(self) -> None:
        """
        Of a long log not all entries are held in memory at once.
        """
        sizes = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 5000 * 20}
        store = self.start(**sizes)
        for _ in range(50):
            self.appendBatch(store, *[b"x"] * 90)
        store.queues.write()
        abandon(store)
        shutil.rmtree(self.path("consumequeue"))
        written: list[int] = []
        pwrite = self.disk.pwrite

        def counted(handle: int, data: bytes, offset: int) -> None:
            if "consumequeue" in self.disk.opened[handle]:
                written.append(len(data))
            pwrite(handle, data, offset)

        self.patch(self.disk, "pwrite", counted)
        self.patch(consumequeues, "TAILS", 0)
        self.patch(commitlog, "_CHUNK", 1 << 16)
        store = self.start(**sizes)
        self.assertEqual(4500 * 20, sum(written))
        self.assertLessEqual(max(written), 1024 * 20)
        self.assertEqual(4500, store.maxOffset("T", 0))
        store.stop()

    def test_tornEntryIsIgnored(self) -> None:
        """
        An entry of which the first half never reached the disk leads nowhere,
        least of all the log's end.
        """
        store = self.start()
        for number in range(6):
            self.put(store, bytes(100 + number))
        self.successResultOf(store.checkpointer.checkpoint())
        self.put(store, b"last")
        queue = store.queues.get("T", 0)
        assert queue is not None
        for size in (150, 96, 192):
            queue.segments.write(6 * 20, bytes(8) + size.to_bytes(4, "big") + bytes(8))
            abandon(store)
            store = self.start()
            expected = [bytes(100 + number) for number in range(6)] + [b"last"]
            self.assertEqual(expected, self.bodies(store))
            queue = store.queues.get("T", 0)
            assert queue is not None
        store.stop()

    def test_entryBehindGap(self) -> None:
        """
        A queue's last entry stays though there is a gap before it, after a clean
        stop, which does not read the log for that, and after a crash.
        """
        store = self.start()
        self.fill(store)
        store.appender.nexts["T", 0] = 9
        gapped = self.put(store, b"gapped")
        self.put(store, b"other", topic="U")
        self.successResultOf(store.checkpointer.checkpoint())
        for end in (abandon, MessageStore.stop):
            end(store)
            store = self.restart()
            self.assertLess(gapped.offset, self.begun())
            self.assertEqual(10, store.maxOffset("T", 0))
            self.assertEqual(gapped.storeTimestamp, store.storeTimestamp("T", 0, 9))
        store.stop()

    def test_damagedIndexHeader(self) -> None:
        """
        Nor does the header of an index file that is damaged.
        """
        store = self.start()
        self.fill(store, 20)
        self.clock.advance(10)
        self.put(store, b"x" * 3000, topic="V")
        self.successResultOf(store.checkpointer.checkpoint())
        abandon(store)
        self.forgetOwn()
        names = sorted(os.listdir(self.path("index")))
        self.assertEqual(2, len(names))
        for name in names:
            with open(self.path("index", name), "r+b") as file:
                file.seek(24)
                file.write((500).to_bytes(8, "big"))
        store = self.restart()
        # Where the file begins that holds it, not in the middle of a record.
        self.assertEqual(0, self.begun())
        self.assertEqual(10, len(self.all(store)))
        self.assertEqual(10, len(self.all(store, "U")))
        store.stop()

    def test_foreignEntriesAreMadeAnew(self) -> None:
        """
        After a crash, entries that lead to records of other queues are cut and
        made anew.
        """
        store = self.start()
        self.fill(store)
        self.successResultOf(store.checkpointer.checkpoint())
        queue = store.queues.get("T", 0)
        assert queue is not None
        # Behind what is safe: they look as if they belonged before it.
        for at in (6, 7, 8):
            queue.segments.write(at * 20, queue.segments.read(20, 20))
        abandon(store)
        store = self.start()
        self.check(store)
        store.stop()
