# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.damage.holes} and L{txrocket.store.damage.queueorder}: starts on
damaged logs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from tests.store.support import LOG_SIZE, StoreCase, abandon
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    decodeRecords,
)
from txrocket.store.log.commitlog import HOLE_TOPIC
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.read.getresult import GetMessageStatus

_STOPS: tuple[Callable[[MessageStore], Any], ...] = (MessageStore.stop, abandon)


class DamageCase(StoreCase):
    """
    A store of two topics and several files, to be damaged.
    """

    def setUp(self) -> None:
        """
        Fill the store.
        """
        super().setUp()
        self.errors: list[str] = []
        self.begin()

    def begin(self, count: int = 25) -> None:
        """
        Begin with a new folder.
        """
        self.root = self.mktemp()
        self.sent: list[Appended] = []
        self.store = self.start()
        for _ in range(count):
            self.send()

    def send(self) -> Appended:
        """
        Put one more message.
        """
        number = len(self.sent)
        sent = self.put(self.store, self.body(number), topic="TU"[number % 2], KEYS=f"k{number}")
        self.sent.append(sent)
        return sent

    @staticmethod
    def body(number: int) -> bytes:
        """
        The body of a message.
        """
        return b"%03d" % number * 100

    def damage(self, at: int, data: bytes) -> None:
        """
        Write over bytes of the log.
        """
        base = at - at % LOG_SIZE
        with open(self.path("commitlog", f"{base:020d}"), "r+b") as file:
            file.seek(at - base)
            file.write(data)

    def flip(self, at: int, bit: int = 1) -> None:
        """
        Change one bit of the log.
        """
        base = at - at % LOG_SIZE
        before = self.bytesOf("commitlog", f"{base:020d}")[at - base]
        self.damage(at, bytes([before ^ bit]))

    def again(self) -> None:
        """
        Start anew, twice: the second start finds what the first one has left.
        """
        for end in (abandon, MessageStore.stop):
            self.store = self.make()
            self.store.session.recovery._losses._log = self  # type: ignore[assignment]
            self.store.start()
            end(self.store)
        self.store = self.start()
        self.addCleanup(lambda: self.store.stop())

    def error(self, text: str, **values: Any) -> None:
        """
        Take what the start tells the operator.
        """
        self.errors.append(text.format(**values))

    def info(self, text: str, **values: Any) -> None:
        """
        Leave aside what is no error.
        """

    warn = info

    def found(self) -> dict[int, bytes]:
        """
        The messages that the queues serve, by their number.
        """
        found: dict[int, bytes] = {}
        for start, topic in enumerate("TU"):
            offset = self.store.minOffset(topic, 0)
            while offset < self.store.maxOffset(topic, 0):
                got = self.store.get(topic, 0, offset, 32)
                self.assertGreater(got.nextOffset, offset)
                for each in decodeRecords(got.data, checkCrc=True):
                    found[2 * each.queueOffset + start] = each.body
                    self.assertEqual(topic, each.topic)
                offset = got.nextOffset
        return found

    def checkAllBut(self, *lost: int) -> None:
        """
        All messages but some are served, by queue and by key.
        """
        kept = [number for number in range(len(self.sent)) if number not in lost]
        self.assertEqual({number: self.body(number) for number in kept}, self.found())
        for number in kept:
            records = self.store.query("TU"[number % 2], f"k{number}", 0, 1 << 60, 9)[0]
            self.assertEqual([self.body(number)], [decodeRecord(each).body for each in records])

    def checkNext(self) -> None:
        """
        No offset is given a second time, in the log or in a queue.
        """
        end = self.sent[-1].end
        for topic in "TU":
            taken = max(each.queueOffset for each in self.sent["TU".index(topic) :: 2])
            new = self.put(self.store, b"new", topic=topic)
            self.assertGreater(new.queueOffset, taken)
            self.assertGreaterEqual(new.offset, end)


class HoleTests(DamageCase):
    """
    A record that cannot be read, and sound ones behind it.
    """

    def test_bitFlippedKeepsWhatFollows(self) -> None:
        """
        After a crash a damaged record costs itself alone, wherever the bit is.
        """
        for at in (0, 2, 5, 9, 30, 84, 100, 388, 391):
            self.begin()
            abandon(self.store)
            self.flip(self.sent[7].offset + at)
            self.again()
            self.checkAllBut(7)
            self.checkNext()

    def test_holeIsLoggedAndCopied(self) -> None:
        """
        The start tells offset and bytes of what cannot be read, and keeps a copy of them.
        """
        abandon(self.store)
        damaged = self.sent[7]
        self.flip(damaged.offset + 100)
        name = f"{damaged.offset:020d}-{damaged.sizes[0]}"
        base = damaged.offset - damaged.offset % LOG_SIZE
        before = self.bytesOf("commitlog", f"{base:020d}")[damaged.offset - base :]
        self.again()
        self.assertEqual(1, len(self.errors))
        self.assertIn(f"from {damaged.offset} to {damaged.end}, ", self.errors[0])
        self.assertIn(f" {damaged.sizes[0]} bytes", self.errors[0])
        self.assertIn(self.path("damaged", name), self.errors[0])
        self.assertEqual(before[: damaged.sizes[0]], self.bytesOf("damaged", name))

    def test_holePassedOver(self) -> None:
        """
        A record of no queue takes the place of what cannot be read, so that a broker that
        reads on from record to record, as Java's does, finds all behind it.
        """
        abandon(self.store)
        self.flip(self.sent[7].offset + 4)
        self.again()
        scanned = list(self.store.log.records(0, strict=True))
        self.assertEqual([each.offset for each in self.sent], [each.offset for each in scanned])
        filler = scanned[7].record
        self.assertEqual((HOLE_TOPIC, TRANSACTION_ROLLBACK_TYPE), (filler.topic, filler.sysFlag))

    def test_zeroedSectorCostsItsRecords(self) -> None:
        """
        Sectors that read as zeros cost the records that they were part of.
        """
        for start in range(0, self.sent[-1].offset - 2048, 1536):
            self.begin()
            abandon(self.store)
            self.damage(start - start % 512, bytes(512))
            lost = [
                number
                for number, each in enumerate(self.sent)
                if each.offset < start - start % 512 + 512 and each.end > start - start % 512
            ]
            self.again()
            self.checkAllBut(*lost)
            self.checkNext()

    def test_damagedBlankCostsNothing(self) -> None:
        """
        A damaged blank costs nothing.
        """
        for at in (1, 5):
            self.begin()
            abandon(self.store)
            last = max(each.end for each in self.sent if each.end < LOG_SIZE)
            magic = self.bytesOf("commitlog", f"{0:020d}")[last + 4 : last + 8]
            self.assertEqual(struct.pack(">i", BLANK_MAGIC_CODE), magic)
            self.flip(last + at)
            self.again()
            self.checkAllBut()
            self.checkNext()

    def test_lastOfItsQueueDamaged(self) -> None:
        """
        The number of a damaged record is not given again, though no other record of its
        queue follows: be its header whole, damaged, or gone with others.
        """
        for at, data in ((100, b"!"), (5, b"!"), (84, b"\x7f"), (0, bytes(90)), (0, b"\xff" * 380)):
            self.begin()
            self.put(self.store, b"other", topic="V")
            abandon(self.store)
            self.damage(self.sent[24].offset + at, data)
            self.again()
            self.checkAllBut(24)
            self.checkNext()
            self.assertEqual(b"other", self.bodies(self.store, "V")[0])

    def test_lastOfTheLogDamaged(self) -> None:
        """
        The log's last record is damaged and not torn if no sector of it is missing: its
        places are not given again.
        """
        for at in (0, 5, 30, 100, 300):
            self.begin()
            abandon(self.store)
            self.flip(self.sent[24].offset + at)
            self.again()
            self.checkAllBut(24)
            self.checkNext()

    def test_recordInBodyNotTaken(self) -> None:
        """
        Bytes that look like a record within the body of a damaged record are not served.
        """
        forged = bytearray(self.store.log.read(self.sent[0].offset, self.sent[0].sizes[0]))
        outer = self.put(self.store, bytes(forged), topic="V")
        body = outer.offset + self.store.log.read(outer.offset, outer.sizes[0]).find(forged)
        struct.pack_into(">q", forged, 28, body)
        self.put(self.store, b"x", topic="V")
        abandon(self.store)
        self.damage(body, bytes(forged))
        self.again()
        self.checkAllBut()
        self.assertEqual([b"x"], self.bodies(self.store, "V"))

    def test_wholeFileZeroed(self) -> None:
        """
        Files behind one that was lost stay, and the start after it, too.
        """
        abandon(self.store)
        self.damage(LOG_SIZE, bytes(LOG_SIZE))
        lost = [n for n, each in enumerate(self.sent) if each.offset // LOG_SIZE == 1]
        self.again()
        self.checkAllBut(*lost)
        self.checkNext()
        self.assertNotIn("damaged", os.listdir(self.root))

    def test_longZerosNotRead(self) -> None:
        """
        A start reads little of a last file that was never written to, and finds what lies
        behind more zeros than a record is long.
        """
        sizes = {"mappedFileSizeCommitLog": 64 << 20, "maxMessageSize": 1000}
        self.patch(self.disk, "nextData", lambda handle, offset: offset)
        self.root = self.mktemp()
        store = self.start(**sizes)
        first = self.put(store, b"a" * 900)
        abandon(store)
        del self.disk.preads[:]
        store = self.start(**sizes)
        read = sum(size for path, _, size in self.disk.preads if "commitlog" in path)
        self.assertLess(read, 8 << 20)
        for _ in range(2000):
            self.gather(store, b"b" * 900)
        last = self.put(store, b"c")
        abandon(store)
        with open(self.path("commitlog", "0" * 20), "r+b") as file:
            file.seek(first.end)
            file.write(bytes(900_000))
        store = self.start(**sizes)
        self.assertEqual(last.queueOffset + 1, store.maxOffset("T", 0))
        self.assertEqual(1, store.get("T", 0, last.queueOffset, 1).count)
        store.stop()

    def test_failedWriteLeavesNothing(self) -> None:
        """
        Records of a write that failed are not found behind the next one.
        """
        end = self.store.log.end
        pwrite = self.disk.pwrite

        def half(handle: int, data: bytes, offset: int) -> None:
            pwrite(handle, data, offset)
            raise OSError(28, "full")

        self.patch(self.disk, "pwrite", half)
        for _ in range(3):
            self.gather(self.store, b"failed", topic="V")
        self.clock.advance(0)
        self.assertEqual(end, self.store.log.end)
        self.disk.pwrite = pwrite  # type: ignore[method-assign]
        self.put(self.store, b"a", topic="V")
        abandon(self.store)
        self.again()
        self.assertEqual([b"a"], self.bodies(self.store, "V"))


class CutTests(DamageCase):
    """
    Files that are too short, or missing.
    """

    def between(self, start: int, end: int) -> list[int]:
        """
        The messages that lie in a stretch, be it in part.
        """
        return [n for n, each in enumerate(self.sent) if each.offset < end and each.end > start]

    def test_lastFileCut(self) -> None:
        """
        After a clean stop a last file that is too short costs what it had: log and queues
        go on where they were, and the start tells what is gone.
        """
        for size in (0, 3, 700, 1900):
            self.begin()
            self.store.stop()
            end = self.sent[-1].end
            base = end - end % LOG_SIZE
            os.truncate(self.path("commitlog", f"{base:020d}"), size)
            self.errors.clear()
            self.again()
            lost = self.between(base + size, end)
            self.assertTrue(lost)
            self.checkAllBut(*lost)
            self.assertEqual(end, self.store.log.written)
            first = self.sent[lost[0]].offset
            self.assertIn(f"from {first} to {end}, {end - first} bytes", self.errors[0])
            self.checkNext()

    def test_removedMessagesSkipped(self) -> None:
        """
        A pull of what is gone says so, and leads past it.
        """
        self.store.stop()
        end = self.sent[-1].end
        os.truncate(self.path("commitlog", f"{end - end % LOG_SIZE:020d}"), 0)
        self.again()
        got = self.store.get("T", 0, 12, 32)
        self.assertEqual((GetMessageStatus.MESSAGE_WAS_REMOVING, 13), (got.status, got.nextOffset))

    def test_unusedPartCut(self) -> None:
        """
        A file that lost nothing but what was never written to costs nothing.
        """
        for stop in _STOPS:
            self.begin()
            stop(self.store)
            end = self.sent[-1].end
            path = self.path("commitlog", f"{end - end % LOG_SIZE:020d}")
            os.truncate(path, end % LOG_SIZE + 10)
            self.again()
            self.checkAllBut()
            self.assertEqual(end, self.store.log.written)
            self.assertEqual(13, self.put(self.store).queueOffset)

    def test_cutAfterCrash(self) -> None:
        """
        After a crash, too, no offset is given again that a lost record may have had.
        """
        for checkpoint in (False, True):
            self.begin()
            if checkpoint:
                self.successResultOf(self.store.checkpointer.checkpoint())
                self.send()
                self.send()
            abandon(self.store)
            end = self.sent[-1].end
            base = end - end % LOG_SIZE
            os.truncate(self.path("commitlog", f"{base:020d}"), 700)
            self.again()
            self.checkAllBut(*self.between(base + 700, end))
            self.checkNext()

    def test_middleFileCutOrGone(self) -> None:
        """
        A middle file that is too short or missing costs what it had.
        """
        for stop in _STOPS:
            for size in (None, 0, 1000):
                self.begin()
                stop(self.store)
                path = self.path("commitlog", f"{LOG_SIZE:020d}")
                if size is None:
                    os.remove(path)
                else:
                    os.truncate(path, size)
                self.again()
                self.checkAllBut(*self.between(LOG_SIZE + (size or 0), 2 * LOG_SIZE))
                self.checkNext()

    def test_queueFilesCut(self) -> None:
        """
        Queue files that are too short or missing are made anew from the log, after a clean
        stop and after a crash.
        """
        for stop in _STOPS:
            for file, size in ((0, 0), (0, 110), (200, None), (200, 30)):
                self.begin(30)
                self.successResultOf(self.store.checkpointer.checkpoint())
                stop(self.store)
                path = self.path("consumequeue", "T", "0", f"{file:020d}")
                if size is None:
                    os.remove(path)
                else:
                    os.truncate(path, size)
                self.again()
                self.checkAllBut()
                self.checkNext()

    def test_indexFilesCut(self) -> None:
        """
        Index files that are too short, and the newest if it is missing, are made anew.
        """
        for stop in _STOPS:
            for number, size in ((0, 0), (0, 100), (1, 100), (1, None)):
                self.begin(60)
                self.clock.advance(1)
                stop(self.store)
                names = sorted(os.listdir(self.path("index")))
                self.assertEqual(2, len(names))
                path = self.path("index", names[number])
                if size is None:
                    os.remove(path)
                else:
                    os.truncate(path, size)
                self.again()
                self.checkAllBut()

    def test_damagedCheckpointLosesNothing(self) -> None:
        """
        A damaged checkpoint loses no message.
        """
        random = Random(17)
        for stop in _STOPS:
            for _ in range(12):
                self.begin()
                self.successResultOf(self.store.checkpointer.checkpoint())
                self.send()
                stop(self.store)
                path = self.path("checkpoint")
                if random.random() < 0.3:
                    os.truncate(path, random.randrange(128))
                else:
                    with open(path, "r+b") as file:
                        file.seek(random.randrange(125))
                        byte = os.pread(file.fileno(), 1, file.tell())[0]
                        file.write(bytes([byte ^ 1 << random.randrange(8)]))
                self.again()
                self.checkAllBut()
                self.checkNext()

    def test_abortFileGone(self) -> None:
        """
        If an operator removes the abort file after a crash, the log is checked all the same.
        """
        self.successResultOf(self.store.checkpointer.checkpoint())
        self.send()
        abandon(self.store)
        os.remove(self.path("abort"))
        self.flip(self.sent[-1].offset + 100)
        self.again()
        self.checkAllBut(len(self.sent) - 1)
        self.checkNext()


class OrderTests(DamageCase):
    """
    Records whose headers lie.
    """

    def test_damagedNumberCostsOneRecord(self) -> None:
        """
        A record that says another number than its place in the queue tells costs itself
        alone, and no number is given again.
        """
        for number in (6, 23, 24):
            for byte, bit in ((7, 1), (7, 2), (7, 16), (5, 1), (1, 1)):
                self.begin()
                abandon(self.store)
                self.flip(self.sent[number].offset + QUEUE_OFFSET_POSITION + byte, bit)
                self.again()
                kept = {n: self.body(n) for n in range(25) if n != number}
                self.assertLessEqual(kept.items(), self.found().items())
                self.checkNext()

    def test_damagedQueueIdCostsOneRecord(self) -> None:
        """
        A record that says another queue than it was put to costs itself alone.
        """
        for number in (6, 7):
            self.begin()
            for each in range(6):
                self.put(self.store, b"other%d" % each, topic="T", queueId=1)
            abandon(self.store)
            self.flip(self.sent[number].offset + QUEUE_ID_POSITION + 3)
            self.again()
            self.checkAllBut(number)
            others = self.bodies(self.store, "T", 1)
            self.assertEqual([b"other%d" % each for each in range(6)], others)

    def test_gapOfFollowersKept(self) -> None:
        """
        A gap that the next records confirm is a gap.
        """
        self.store.appender.nexts["T", 0] = 15
        later = [self.put(self.store, b"later%d" % each) for each in range(3)]
        self.assertEqual([15, 16, 17], [each.queueOffset for each in later])
        abandon(self.store)
        self.again()
        got = self.store.get("T", 0, 13, 32)
        self.assertEqual(
            [b"later0", b"later1", b"later2"], [each.body for each in decodeRecords(got.data)]
        )
        self.assertEqual(18, self.store.maxOffset("T", 0))

    def test_magicIsRecords(self) -> None:
        """
        A hole is filled with a record that every reader accepts.
        """
        abandon(self.store)
        self.flip(self.sent[3].offset + 200)
        self.again()
        head = self.store.log.read(self.sent[3].offset, 8)
        self.assertEqual((self.sent[3].sizes[0], MESSAGE_MAGIC_CODE), struct.unpack(">2i", head))
