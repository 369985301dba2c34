# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.messagestore}: put, get and look up.
"""

from __future__ import annotations

import os
from unittest.mock import patch

from twisted.logger import capturedLogs

from tests.store.support import AROUND, HOST, QUEUE_ENTRIES, START, Held, StoreCase, abandon
from txrocket.bulk import SentMessage
from txrocket.errors import InvalidMessage, MalformedRecord, StoreError
from txrocket.message import Message, MessageExt
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import (
    MESSAGE_MAGIC_CODE,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
    decodeRecords,
    encodeHost,
)
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.files import SyncFailed
from txrocket.store.messagestore import MessageStore
from txrocket.store.read import entryreader
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus

NOW = START * 1000
EVER = 1 << 60


class PutTests(StoreCase):
    """
    Tests for L{MessageStore.put} and L{MessageStore.appendBatch}.
    """

    def test_recordHoldsAllFields(self) -> None:
        """
        A record has all that was given, the store's address and time, and where
        it is.
        """
        store = self.start()
        self.put(store, b"first", queueId=2)
        self.clock.advance(1.5)
        appended = store.put(
            "T",
            2,
            b"body",
            b"TAGS\x01a",
            bornTimestamp=123,
            bornHost=encodeHost("10.0.0.1", 5),
            flag=7,
            sysFlag=1,
            reconsumeTimes=3,
            preparedTransactionOffset=9,
        )
        store.write()
        got = store.get("T", 2, 1, 32)
        record = decodeRecord(got.data, checkCrc=True)
        self.assertEqual(
            (b"body", 7, b"TAGS\x01a", 2, 1, 97, 1, 123, NOW + 1500, 3, 9),
            (
                record.body,
                record.flag,
                record.propertiesData,
                record.queueId,
                record.queueOffset,
                record.commitLogOffset,
                record.sysFlag,
                record.bornTimestamp,
                record.storeTimestamp,
                record.reconsumeTimes,
                record.preparedTransactionOffset,
            ),
        )
        self.assertEqual(("10.0.0.1", 5), record.bornHost)
        self.assertEqual(HOST, record.storeHostData)
        self.assertEqual(
            (97, 1, NOW + 1500, 97 + len(got.data)),
            (appended.offset, appended.queueOffset, appended.storeTimestamp, appended.end),
        )
        store.stop()

    def test_queuesCountFromZero(self) -> None:
        """
        Each queue counts for itself, from 0, without gaps, in the order of
        putting, also before anything is written.
        """
        store = self.start()
        puts = [("A", 0), ("A", 1), ("A", 0), ("B", 0), ("A", 0)]
        offsets = [self.gather(store, topic=topic, queueId=q).queueOffset for topic, q in puts]
        self.assertEqual([0, 0, 1, 0, 2], offsets)
        self.assertEqual(0, store.maxOffset("A", 0))
        self.clock.advance(0)
        self.assertEqual(
            [(0, 3), (0, 1), (0, 1), (0, 0)],
            [
                (store.minOffset(topic, q), store.maxOffset(topic, q))
                for topic, q in (("A", 0), ("A", 1), ("B", 0), ("C", 0))
            ],
        )
        store.stop()

    def test_halvesCountInNoQueue(self) -> None:
        """
        The first half of a transaction and a rollback count in no queue; a
        commit does.
        """
        store = self.start()
        offsets = [
            self.put(store, sysFlag=each).queueOffset
            for each in (
                0,
                TRANSACTION_PREPARED_TYPE,
                TRANSACTION_COMMIT_TYPE,
                TRANSACTION_ROLLBACK_TYPE,
                0,
            )
        ]
        self.assertEqual([0, 0, 1, 0, 2], offsets)
        self.assertEqual(3, store.maxOffset("T", 0))
        self.assertEqual([0, 1, 2], [each.queueOffset for each in self.all(store)])
        self.assertEqual([0, 1, 2], [each[2] for each in self.arrived])
        store.stop()

    def test_clockSetBack(self) -> None:
        """
        Store times never go back, though the clock does, even over a restart.
        """
        store = self.start()
        self.clock.advance(10)
        self.put(store)
        self.shift -= 5
        self.assertEqual(NOW + 10_000, self.put(store).storeTimestamp)
        for end in (abandon, MessageStore.stop):
            end(store)
            self.shift -= 5
            store = self.start()
            self.assertEqual(NOW + 10_000, self.put(store).storeTimestamp)
        store.stop()

    def test_setBackByMoreThanADayIsFollowed(self) -> None:
        """
        A clock that was more than a day ahead and is set right is followed, lest the
        times of the log stand still for long; a warning is logged.
        """
        store = self.start()
        self.shift += 365 * 86_400
        ahead = self.put(store).storeTimestamp
        store.write()
        self.shift -= 365 * 86_400
        with capturedLogs() as logged:
            self.clock.advance(1)
            self.assertEqual(ahead - 365 * 86_400_000 + 1000, self.put(store).storeTimestamp)
        self.assertEqual(["8760"], [f"{each['hours']:.0f}" for each in logged if "hours" in each])
        store.write()
        self.clock.advance(1)
        self.assertEqual(NOW + 2000, self.put(store).storeTimestamp)
        self.assertEqual([0, 1, 2], [each.queueOffset for each in self.all(store)])
        store.stop()

    def test_clockIsSetAndFlushesGoOn(self) -> None:
        """
        The log and the queues are synced as often as ever, however the time of day is
        set.
        """
        store = self.start()
        for step in (-3600, 3600, 365 * 86_400, -365 * 86_400):
            self.shift += step
            end = self.put(store).end
            store.write()
            for _ in range(140):
                self.clock.advance(0.5)
            self.assertEqual(end, store.flusher.flushed.offset)
            self.assertEqual(end, store.checkpointer.last.offset)
        store.stop()

    def test_invalidMessageRefused(self) -> None:
        """
        A message that breaks the format is refused, and leaves nothing behind.
        """
        store = self.start()
        for call in (
            lambda: self.put(store, topic="x" * 128),
            lambda: self.put(store, queueId=1 << 40),
            lambda: store.put("T", 0, b"", b"", bornTimestamp=1, bornHost=b"x"),
        ):
            self.assertRaises(InvalidMessage, call)
        self.assertRaises(
            MalformedRecord,
            store.appendBatch,
            SentMessage(None, ("T", 0), b"no batch", b"", 1),
            HOST,
        )
        appended = self.put(store)
        self.assertEqual((0, 0), (appended.offset, appended.queueOffset))
        store.stop()

    def test_messagesOfTurnShareWrite(self) -> None:
        """
        All that is put in one turn of the reactor is written at once, and told
        of then, in order.
        """
        store = self.start()
        writes: list[int] = []
        write = self.disk.pwrite

        def pwrite(handle: int, data: bytes, offset: int) -> None:
            if "commitlog" in self.disk.opened[handle]:
                writes.append(len(data))
            write(handle, data, offset)

        self.patch(self.disk, "pwrite", pwrite)
        first, second = self.gather(store, b"a", TAGS="x"), self.gather(store, b"b")
        stored = store.stored(first.end)
        self.assertNoResult(stored)
        self.assertEqual([], self.arrived)
        self.clock.advance(0)
        self.successResultOf(stored)
        self.assertEqual([second.end], writes)
        self.assertEqual([("T", 0, 0, tagsCode("x")), ("T", 0, 1, 0)], self.arrived)
        store.stop()

    def test_placeOfMessageIsFound(self) -> None:
        """
        Where in the log a message of a queue lies, or the first that is left.
        """
        store = self.start()
        placed = [self.put(store, b"x" * 1900).offset for _ in range(4)]
        found = [store.placeOf("T", 0, at) for at in range(5)]
        self.assertEqual([*placed, None], found)
        self.assertIsNone(store.placeOf("U", 0, 0))
        store.log.segments.removeFirst()
        store.retention.follow()
        self.assertEqual(placed[2], store.placeOf("T", 0, 0))
        store.stop()

    def test_senderMayHaveIPv6Address(self) -> None:
        """
        A sender's IPv6 address is kept.
        """
        store = self.start()
        host = encodeHost("2001:db8::1", 9)
        store.put("T", 0, b"x", b"", bornTimestamp=1, bornHost=host)
        store.write()
        self.assertEqual(("2001:db8::1", 9), self.all(store)[0].bornHost)
        self.assertEqual(NOW, store.storeTimestamp("T", 0, 0))
        store.stop()


class GetTests(StoreCase):
    """
    Tests for L{MessageStore.get}; statuses and next offsets are those of Java's
    C{DefaultMessageStore.getMessage} of a master.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()

    def tearDown(self) -> None:
        self.store.stop()

    def fill(self, count: int) -> None:
        """
        Put messages of 100 bytes into one queue.
        """
        size = 100 - AROUND - 1
        for _ in range(count):
            self.gather(self.store, b"x" * size)
        self.store.write()

    def check(self, offset: int, status: GetMessageStatus, nextOffset: int) -> GetMessageResult:
        """
        Get, and look at what became of it.
        """
        got = self.store.get("T", 0, offset, 32)
        self.assertEqual((status, nextOffset), (got.status, got.nextOffset))
        return got

    def test_missingQueueBeginsAtZero(self) -> None:
        """
        A queue that is not there: begin at 0.
        """
        self.check(7, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)

    def test_emptyQueueBeginsAtZero(self) -> None:
        """
        A queue that has never had a message: begin at 0.
        """
        self.store.queues._make("T", 0)
        self.check(7, GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)

    def test_smallOffsetIsCorrected(self) -> None:
        """
        An offset before the first message: go on at the first.
        """
        self.fill(3)
        got = self.check(-1, GetMessageStatus.OFFSET_TOO_SMALL, 0)
        self.assertEqual((0, 3), (got.minOffset, got.maxOffset))

    def test_largeOffsetIsCorrected(self) -> None:
        """
        The offset of the next message: stay; an offset past that: go back to it.
        """
        self.fill(3)
        self.check(3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3)
        self.check(4, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3)
        self.check(99, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3)

    def test_messagesMoveOffsetOn(self) -> None:
        """
        Messages: go on behind the last one looked at.
        """
        self.fill(3)
        got = self.check(1, GetMessageStatus.FOUND, 3)
        self.assertEqual((2, 0, 3), (got.count, got.minOffset, got.maxOffset))
        self.assertEqual([1, 2], [each.queueOffset for each in decodeRecords(got.data)])

    def test_oneFileAtATime(self) -> None:
        """
        A get ends with the queue's file, as in Java.
        """
        self.fill(QUEUE_ENTRIES + 3)
        self.store.queues.write()
        self.check(2, GetMessageStatus.FOUND, QUEUE_ENTRIES)
        self.check(QUEUE_ENTRIES, GetMessageStatus.FOUND, QUEUE_ENTRIES + 3)

    def test_missingQueueFileIsPassedOver(self) -> None:
        """
        A queue whose file is missing: go on with the next file.
        """
        self.fill(QUEUE_ENTRIES + 3)
        self.store.queues.write()
        queue = self.store.queues.get("T", 0)
        assert queue is not None
        queue.segments.removeFirst()
        self.check(2, GetMessageStatus.OFFSET_FOUND_NULL, QUEUE_ENTRIES)

    def test_deletedMessagesArePassedOver(self) -> None:
        """
        Messages whose log is gone while the queue still has them are passed
        over; nothing wrong is served.
        """
        self.fill(60)
        self.store.queues.write()
        self.store.log.segments.removeFirst()
        self.check(0, GetMessageStatus.MESSAGE_WAS_REMOVING, QUEUE_ENTRIES)
        # The log's first file has 40 of them, and the rest of 96 bytes.
        got = self.check(35, GetMessageStatus.MESSAGE_WAS_REMOVING, 40)
        self.assertEqual(b"", got.data)
        got = self.check(40, GetMessageStatus.FOUND, 50)
        self.assertEqual(list(range(40, 50)), [e.queueOffset for e in decodeRecords(got.data)])

    def test_entryBeyondLogIsPassedOver(self) -> None:
        """
        An entry that points past the log's end is passed over.
        """
        self.fill(2)
        self.store.queues.put("T", 0, 2, 5000, 100, 0)
        self.store.queues.write()
        self.assertEqual(2, self.check(0, GetMessageStatus.FOUND, 3).count)
        self.check(2, GetMessageStatus.MESSAGE_WAS_REMOVING, 3)

    def test_fillersArePassedOver(self) -> None:
        """
        Entries that fill a gap are passed over, also in a log that is so long that
        it has room for a record of their size.
        """
        self.fill(2)
        self.store.appender.nexts["T", 0] = 4
        self.fill(1)
        self.store.queues.write()
        self.store.log.written = 1 << 40
        self.assertEqual(2, self.check(0, GetMessageStatus.FOUND, 2).count)
        self.assertEqual(1, self.check(2, GetMessageStatus.FOUND, 5).count)
        found = self.store.entries("T", 0, 0, 10)
        messages = self.store.messages([(at, size) for at, size, _ in found])
        self.assertEqual([0, 1, None, None, 4], [each and each.queueOffset for each in messages])

    def test_tagHashSelectsMessages(self) -> None:
        """
        A message is matched by the hash of its tag; what does not match is
        passed over, also if nothing does.
        """
        for tag in ("a", "b", "a", "c"):
            self.put(self.store, tag.encode(), TAGS=tag)
        self.put(self.store, b"none")
        got = self.store.get("T", 0, 0, 32, matches=lambda hashed: hashed == tagsCode("a"))
        self.assertEqual((GetMessageStatus.FOUND, 5, 2), (got.status, got.nextOffset, got.count))
        self.assertEqual([0, 2], [each.queueOffset for each in decodeRecords(got.data)])
        got = self.store.get("T", 0, 1, 32, matches=lambda hashed: hashed == tagsCode("z"))
        self.assertEqual((GetMessageStatus.NO_MATCHED_MESSAGE, 5), (got.status, got.nextOffset))
        got = self.store.get("T", 0, 0, 32, matches=lambda hashed: hashed == 0)
        self.assertEqual([b"none"], [each.body for each in decodeRecords(got.data)])

    def test_hashOfTag(self) -> None:
        """
        The queue holds Java's hash of the tag: "TagA" has 2598919.
        """
        self.put(self.store, TAGS="TagA")
        queue = self.store.queues.get("T", 0)
        assert queue is not None
        # ((84 * 31 + 97) * 31 + 103) * 31 + 65
        self.assertEqual((0, 102, 2598919), queue.entry(0))

    def test_propertiesSelectMessages(self) -> None:
        """
        A message may be judged by its properties, without its body.
        """
        for number in range(4):
            self.put(self.store, b"body", number=str(number))
        seen: list[MessageExt] = []

        def odd(record: MessageExt) -> bool:
            seen.append(record)
            return record.properties["number"] in "13"

        got = self.store.get("T", 0, 0, 32, accepts=odd)
        self.assertEqual([1, 3], [each.queueOffset for each in decodeRecords(got.data)])
        self.assertEqual([b""] * 4, [each.body for each in seen])
        got = self.store.get("T", 0, 0, 32, accepts=lambda record: False)
        self.assertEqual((GetMessageStatus.NO_MATCHED_MESSAGE, 4), (got.status, got.nextOffset))

    def logReads(self) -> list[tuple[int, int]]:
        """
        Offset and size of the log's reads.
        """
        return [(at, size) for path, at, size in self.disk.preads if "commitlog" in path]

    def test_neighboursAreReadAtOnce(self) -> None:
        """
        Messages that lie one behind the other are read at once.
        """
        self.fill(8)
        self.store.queues.write()
        del self.disk.preads[:]
        self.assertEqual(8, self.store.get("T", 0, 0, 32).count)
        self.assertEqual([(0, 800)], self.logReads())
        self.assertEqual(2, len(self.disk.preads))

    def test_nearMessagesAreReadAtOnce(self) -> None:
        """
        Messages that others lie between are read with those, if they are few,
        and one by one if they are many; others are not given.
        """
        for _ in range(3):
            self.fill(2)
            self.put(self.store, b"y" * 8, topic="U")
        for gap, reads in ((100, [(0, 800)]), (99, [(0, 200), (300, 200), (600, 200)])):
            self.patch(entryreader, "_GAP", gap)
            del self.disk.preads[:]
            got = self.store.get("T", 0, 0, 32)
            self.assertEqual(reads, self.logReads())
            self.assertEqual(list(range(6)), [each.queueOffset for each in decodeRecords(got.data)])

    def test_eachFileIsReadOnce(self) -> None:
        """
        Messages in two files of the log are two reads.
        """
        for _ in range(5):
            self.put(self.store, b"x" * 1500)
        del self.disk.preads[:]
        got = self.store.get("T", 0, 0, 32)
        self.assertEqual([(0, 3184), (0, 3184), (0, 1592)], self.logReads())
        self.assertEqual(5, len(decodeRecords(got.data)))

    def test_countBoundsMessages(self) -> None:
        """
        No more come than were asked for, but one comes always.
        """
        self.fill(5)
        self.assertEqual([1, 1, 2], [self.store.get("T", 0, 0, most).count for most in (0, 1, 2)])


class TransferTests(StoreCase):
    """
    How much one get transfers.
    """

    def fill(self, store: MessageStore, count: int, size: int) -> None:
        """
        Put messages whose records have a size.
        """
        for _ in range(count):
            self.gather(store, b"x" * (size - AROUND - 1))
        store.write()

    def large(self, memory: int | None = None) -> MessageStore:
        """
        A store with large files, on a machine with so much memory.
        """
        return self.start(
            memory=memory,
            mappedFileSizeCommitLog=1 << 22,
            mappedFileSizeConsumeQueue=20_000,
        )

    def test_messageCountIsBounded(self) -> None:
        """
        32 messages at most.
        """
        store = self.large()
        self.fill(store, 40, 100)
        got = store.get("T", 0, 0, 100)
        self.assertEqual((32, 32, False), (got.count, got.nextOffset, got.fromDisk))
        store.stop()

    def test_byteCountIsBounded(self) -> None:
        """
        256 KiB at most, but one message however large.
        """
        store = self.large()
        self.fill(store, 5, 65536)
        self.fill(store, 1, 300_000)
        self.assertEqual(4, store.get("T", 0, 0, 32).count)
        self.assertEqual(1, store.get("T", 0, 4, 32).count)
        got = store.get("T", 0, 5, 32)
        self.assertEqual((1, 300_000), (got.count, len(got.data)))
        store.stop()

    def test_countFromDisk(self) -> None:
        """
        Of messages that are further back than 40 % of the memory, 8 at most.
        """
        store = self.large(memory=10_000)
        self.fill(store, 60, 100)
        got = store.get("T", 0, 0, 32)
        self.assertEqual((8, 8, True), (got.count, got.nextOffset, got.fromDisk))
        # 4,000 bytes before the end is near.  As in Java the entry decides that
        # was looked at last, which is the one behind the last message.
        self.assertTrue(store.get("T", 0, 18, 1).fromDisk)
        self.assertFalse(store.get("T", 0, 19, 1).fromDisk)
        self.assertEqual(32, store.get("T", 0, 20, 32).count)
        store.stop()

    def test_bytesFromDisk(self) -> None:
        """
        Of such messages, 64 KiB at most.
        """
        store = self.large(memory=10_000)
        self.fill(store, 6, 20_000)
        self.fill(store, 6, 20_000)
        self.assertEqual(3, store.get("T", 0, 0, 32).count)
        store.stop()

    def test_entryCountIsBounded(self) -> None:
        """
        At most 800 entries are looked at, or as many as were asked for.
        """
        store = self.start(mappedFileSizeCommitLog=1 << 22, mappedFileSizeConsumeQueue=20_000)
        self.fill(store, 950, 100)
        self.assertEqual(800, store.get("T", 0, 0, 32, matches=lambda _: False).nextOffset)
        self.assertEqual(900, store.get("T", 0, 0, 900, matches=lambda _: False).nextOffset)
        store.stop()


class QueryTests(StoreCase):
    """
    Tests for L{MessageStore.query} and L{MessageStore.messageAt}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()

    def tearDown(self) -> None:
        self.store.stop()

    def find(self, key: str, begin: int = 0, end: int = EVER, most: int = 32) -> list[bytes]:
        """
        The bodies of what is found.
        """
        records, _, _ = self.store.query("T", key, begin, end, most)
        return [decodeRecord(each).body for each in records]

    def test_keysFindMessages(self) -> None:
        """
        A message is found by each of its keys and by its unique id, the newest
        first, bounded in number, and none of another topic.
        """
        self.put(self.store, b"a", KEYS="k1 k2", UNIQ_KEY="U1")
        self.put(self.store, b"b", KEYS="k2", UNIQ_KEY="U2")
        self.put(self.store, b"c", topic="O", KEYS="k2")
        self.assertEqual([b"a"], self.find("k1"))
        self.assertEqual([b"b", b"a"], self.find("k2"))
        self.assertEqual([b"b"], self.find("k2", most=1))
        self.assertEqual([b"a"], self.find("U1"))
        self.assertEqual([], self.find("k3"))

    def test_queryStatesReachOfIndex(self) -> None:
        """
        With what is found comes how far the index reaches.
        """
        self.put(self.store, b"a", KEYS="k")
        self.clock.advance(1)
        last = self.put(self.store, b"b", KEYS="other")
        _, timestamp, offset = self.store.query("T", "k", 0, EVER, 1)
        self.assertEqual((NOW + 1000, last.offset), (timestamp, offset))

    def test_timesBoundQuery(self) -> None:
        """
        Messages are of a range of store times.
        """
        for number in range(5):
            self.put(self.store, str(number).encode(), KEYS="k")
            self.clock.advance(1)
        self.assertEqual([b"3", b"2"], self.find("k", NOW + 2000, NOW + 3999))

    def test_settingBoundsQuery(self) -> None:
        """
        However many are asked for, maxMsgsNumBatch bounds them.
        """
        for _ in range(70):
            self.put(self.store, KEYS="k")
        self.assertEqual(64, len(self.find("k", most=100)))

    def test_frameBoundsQuery(self) -> None:
        """
        Nor is there more than a frame can carry, but always one message.
        """
        self.store.stop()
        self.disk.removeFolder(self.root)
        size = 16 * 1024 * 1024
        self.store = self.start(mappedFileSizeCommitLog=2 * size, maxMessageSize=size)
        for count in (3, 3, 3, 12):
            self.put(self.store, bytes(count * 1024 * 1024), KEYS="k")
        self.assertEqual([12 * 1024 * 1024], [len(each) for each in self.find("k")])
        self.put(self.store, b"small", KEYS="k")
        self.assertEqual([b"small"], self.find("k"))
        self.put(self.store, b"", KEYS="l")
        for _ in range(3):
            self.put(self.store, bytes(3 * 1024 * 1024), KEYS="l")
        self.assertEqual(2, len(self.find("l")))

    def test_repeatedKeyIsFoundOnce(self) -> None:
        """
        A message that has a key twice, or as its unique id too, is found once,
        and does not take another's place.
        """
        self.put(self.store, b"a", KEYS="k")
        self.put(self.store, b"b", KEYS="k k", UNIQ_KEY="k")
        self.assertEqual([b"b", b"a"], self.find("k", most=2))

    def test_halfIsFoundByKey(self) -> None:
        """
        The first half of a transaction is found by its key, a rollback is not.
        """
        self.put(self.store, b"half", sysFlag=TRANSACTION_PREPARED_TYPE, KEYS="k")
        self.put(self.store, b"back", sysFlag=TRANSACTION_ROLLBACK_TYPE, KEYS="k")
        self.put(self.store, b"done", sysFlag=TRANSACTION_COMMIT_TYPE, KEYS="k")
        self.assertEqual([b"done", b"half"], self.find("k"))

    def test_deletedMessagesAreNotFound(self) -> None:
        """
        Messages that are no longer in the log are not found.
        """
        self.put(self.store, b"a" * 3000, KEYS="k")
        self.put(self.store, b"b" * 3000, KEYS="k")
        self.store.log.segments.removeFirst()
        self.assertEqual([b"b" * 3000], self.find("k"))

    def test_storeWithoutIndexWorks(self) -> None:
        """
        A store without an index finds nothing, makes no files, and works.
        """
        self.store.stop()
        self.store = self.start(messageIndexEnable=False)
        self.put(self.store, b"a", KEYS="k")
        self.assertEqual(([], 0, 0), self.store.query("T", "k", 0, EVER, 10))
        self.assertEqual([b"a"], self.bodies(self.store))
        abandon(self.store)
        self.store = self.start(messageIndexEnable=False)
        self.assertEqual([b"a"], self.bodies(self.store))
        self.assertFalse(os.path.exists(self.path("index")))

    def test_recordIsFoundAtItsOffset(self) -> None:
        """
        A record is found at its offset and nowhere else.
        """
        self.put(self.store, b"a")
        second = self.put(self.store, b"b")
        found = self.store.messageAt(second.offset)
        assert found is not None
        self.assertEqual(b"b", decodeRecord(found).body)
        for offset in (-1, 1, 50, second.offset - 1, second.end, 1 << 40):
            self.assertIsNone(self.store.messageAt(offset))

    def test_messageAtNothing(self) -> None:
        """
        An invented offset costs no more than a look, though the bytes there may claim any
        size.
        """
        claim = (2**30).to_bytes(4, "big")
        for body in (claim, claim + MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)):
            appended = self.put(self.store, body)
            at = appended.offset + self.bytesOf("commitlog", self.logFiles()[0])[
                appended.offset :
            ].index(body)
            self.disk.preads.clear()
            self.assertIsNone(self.store.messageAt(at))
            self.assertEqual([8], [size for _, _, size in self.disk.preads])
        self.assertIsNone(self.store.messageAt(self.store.log.written - 3))

    def test_firstTimestampKnownWhileThereIsAMessage(self) -> None:
        """
        The first message's time is known while there is one.
        """
        self.assertIsNone(self.store.firstTimestamp())
        self.put(self.store)
        self.clock.advance(1)
        self.put(self.store)
        self.assertEqual(NOW, self.store.firstTimestamp())

    def test_messageBeyondMemoryIsOld(self) -> None:
        """
        A message is old once as much was stored since as the machine keeps in
        memory; one that is not there is not.
        """
        self.store.stop()
        self.store = self.start(memory=5000)
        self.put(self.store, b"a" * 1000)
        self.assertFalse(self.store.isOld("T", 0, 0))
        self.put(self.store, b"b" * 1000)
        self.assertTrue(self.store.isOld("T", 0, 0))
        self.assertFalse(self.store.isOld("T", 0, 1))
        for queueId, offset in ((0, 2), (0, -1), (1, 0)):
            self.assertFalse(self.store.isOld("T", queueId, offset))

    def test_spaceOfDisksIsKnown(self) -> None:
        """
        The store knows how much room its disks have.
        """
        self.disk.used = 0.4
        self.assertEqual(((1000, 600), (1000, 600)), self.store.space())


class TimeTests(StoreCase):
    """
    Tests for L{MessageStore.offsetByTime}, by the rule of Java's
    C{ConsumeQueue.getOffsetInQueueByTime}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start()
        for _ in range(25):
            self.put(self.store, b"x" * 300)
            self.clock.advance(1)

    def tearDown(self) -> None:
        self.store.stop()

    def at(self, milliseconds: int) -> int:
        """
        The offset by a time after the first message's.
        """
        return self.store.offsetByTime("T", 0, NOW + milliseconds)

    def test_equalTimeFindsFirstMessage(self) -> None:
        """
        A message's own time gives that message, the first of several.
        """
        self.assertEqual(list(range(25)), [self.at(1000 * each) for each in range(25)])
        self.clock.advance(100)
        for _ in range(5):
            self.put(self.store)
        self.assertEqual(25, self.at(125_000))

    def test_otherTimeFindsNearestMessage(self) -> None:
        """
        Another time gives the nearest message, and the earlier of two that are
        equally near.
        """
        self.assertEqual([3, 3, 4], [self.at(each) for each in (3499, 3500, 3501)])

    def test_outerTimeFindsOuterMessage(self) -> None:
        """
        A time before all gives the first message, one after all the last.
        """
        self.assertEqual([0, 24, 24], [self.at(each) for each in (-1, 24_001, 10**9)])

    def test_emptyQueueGivesZero(self) -> None:
        """
        A queue without messages gives 0.
        """
        self.assertEqual(0, self.store.offsetByTime("U", 0, NOW))
        self.assertEqual(0, self.store.offsetByTime("T", 7, NOW))
        self.assertIsNone(self.store.earliestTimestamp("U", 0))

    def test_deletedMessagesDoNotCount(self) -> None:
        """
        Of a queue whose first messages are gone, only those that are left
        count, whether the queue knows of it yet or not.
        """
        self.store.log.segments.removeFirst()
        # A file of the log holds 10 of them.
        self.assertEqual([10, 10, 12], [self.at(each) for each in (-1, 9000, 12_000)])
        self.store.retention.follow()
        self.assertEqual(10, self.store.minOffset("T", 0))
        self.assertEqual([10, 10, 12], [self.at(each) for each in (-1, 9000, 12_000)])
        self.assertEqual(NOW + 10_000, self.store.earliestTimestamp("T", 0))
        self.assertIsNone(self.store.storeTimestamp("T", 0, 9))

    def test_deletedQueueGivesZero(self) -> None:
        """
        A queue all of whose messages are gone gives 0, and goes on counting.
        """
        for _ in range(4):
            self.put(self.store, b"y" * 3000, topic="U")
        for _ in range(3):
            self.store.log.segments.removeFirst()
        self.store.retention.follow()
        self.assertEqual((25, 25), (self.store.minOffset("T", 0), self.store.maxOffset("T", 0)))
        self.assertEqual(0, self.at(5000))
        self.assertEqual(GetMessageStatus.OFFSET_OVERFLOW_ONE, self.store.get("T", 0, 25, 1).status)
        self.assertEqual(25, self.put(self.store).queueOffset)

    def test_damagedEntryHasNoTime(self) -> None:
        """
        An entry that leads to no record has no time.
        """
        self.store.queues.put("T", 0, 25, 5, 100, 0)
        self.store.queues.write()
        self.assertIsNone(self.store.storeTimestamp("T", 0, 25))


class TopicTests(StoreCase):
    """
    Tests for L{MessageStore.removeTopic}.
    """

    def test_removedTopicKeepsRecords(self) -> None:
        """
        A topic that is removed has no queues and no files; its records stay in
        the log.
        """
        store = self.start()
        appended = self.put(store, b"a")
        self.put(store, b"b", topic="U")
        store.queues.write()
        self.successResultOf(store.removeTopic("T"))
        self.successResultOf(store.removeTopic("never"))
        self.assertEqual(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, store.get("T", 0, 0, 1).status)
        self.assertEqual(["U"], os.listdir(self.path("consumequeue")))
        self.assertIsNotNone(store.messageAt(appended.offset))
        self.assertEqual([b"b"], self.bodies(store, "U"))
        store.stop()

    def test_filesAreDeletedInThread(self) -> None:
        """
        A topic may have a thousand queues: it is gone at once, and may be made
        again, while its files are deleted in a thread.
        """
        held = Held()
        store = self.start(held)
        self.put(store, b"a")
        store.queues.write()
        self.disk.synced.clear()
        first = store.removeTopic("T")
        self.assertEqual([], self.disk.synced)
        self.assertEqual([], store.queues.topics())
        self.put(store, b"b")
        store.queues.write()
        second = store.removeTopic("T")
        self.put(store, b"c")
        store.queues.write()
        self.assertEqual([".gone-0", ".gone-1", "T"], sorted(os.listdir(self.path("consumequeue"))))
        while held.jobs:
            held.work()
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(["T"], os.listdir(self.path("consumequeue")))
        self.assertEqual([b"c"], self.bodies(store))
        abandon(store)

    def test_restartDeletesLeftovers(self) -> None:
        """
        Files that were not deleted before a crash are deleted by the next start,
        and are no topic.
        """
        store = self.start(Held())
        self.put(store, b"a")
        store.removeTopic("T")
        self.put(store, b"b", topic="U")
        abandon(store)
        store = self.start()
        self.assertIn("U", store.queues.topics())
        self.assertNotIn(".gone-0", store.queues.topics())
        self.assertNotIn(".gone-0", os.listdir(self.path("consumequeue")))
        store.stop()

    def test_failedRemovalIsError(self) -> None:
        """
        A disk that does not let a topic go is an error; one that fails to sync is
        the end of writing, as always.
        """
        store = self.start()
        self.put(store, b"a")
        store.queues.write()
        with patch.object(self.disk, "rename", side_effect=OSError("broken")):
            self.assertRaises(StoreError, store.removeTopic, "T")
        self.put(store, b"b")
        self.disk.failing["syncFolder"] = SyncFailed("broken")
        with capturedLogs() as events:
            self.successResultOf(store.removeTopic("T"))
        self.assertIn("T", [each.get("topic") for each in events])
        self.assertIsNotNone(store.failure)
        self.disk.failing.clear()
        abandon(store)

    def test_topicMadeAgainHasNewMessages(self) -> None:
        """
        A topic that is made again has what was put since, though a message put
        before its removal is written after it, and has it after a crash.
        """
        store = self.start()
        self.put(store, b"a")
        self.gather(store, b"b")
        store.removeTopic("T")
        store.write()
        self.put(store, b"c")
        self.assertEqual([b"b", b"c"], self.bodies(store))
        abandon(store)
        store = self.start()
        self.assertEqual([b"b", b"c"], self.bodies(store)[-2:])
        store.stop()

    def test_removedDuringCheckpoint(self) -> None:
        """
        A topic may go while its files are about to be synced.
        """
        held = Held()
        store = self.start(held)
        self.put(store, b"a")
        done = store.checkpointer.checkpoint()
        store.removeTopic("T")
        while held.jobs:
            held.work()
        self.successResultOf(done)
        abandon(store)


class RefusedTests(StoreCase):
    """
    Messages that are refused.
    """

    def test_topicsThatLeadAway(self) -> None:
        """
        A topic that would lead out of the folder of its queues is refused.
        """
        store = self.start()
        for topic in ("", ".", "..", "a/b", "../a", "a\0b"):
            self.assertRaises(InvalidMessage, self.put, store, b"x", topic=topic)
        self.assertEqual([], store.queues.topics())

    def test_tornLookingMessageIsRefused(self) -> None:
        """
        A message that a start after a crash would take for torn, and cut, is refused; other
        NULs are taken.
        """
        store = self.start()
        for properties in (b"a\x01b\0", b"a\x01" + bytes(16) + b"b"):
            self.assertRaises(
                InvalidMessage,
                store.put,
                "T",
                0,
                b"x",
                properties,
                bornTimestamp=1,
                bornHost=HOST,
            )
            batch = encodeBatch([Message("T", bytes(40))])
            own = batch[:-2] + len(properties).to_bytes(2, "big") + properties
            own = len(own).to_bytes(4, "big") + own[4:]
            self.assertRaises(
                InvalidMessage,
                store.appendBatch,
                SentMessage(None, ("T", 0), own, b"", 1),
                HOST,
            )
            store.appendBatch(SentMessage(None, ("T", 0), batch, b"", 1), HOST)
        store.put("T", 0, b"x", b"a\x01\0b", bornTimestamp=1, bornHost=HOST)
        self.clock.advance(0)
        self.assertEqual(3, store.maxOffset("T", 0))

    def test_queueBelowZero(self) -> None:
        """
        There is no queue below 0.
        """
        store = self.start()
        self.assertRaises(InvalidMessage, self.put, store, b"x", queueId=-1)
        batch = encodeBatch([Message("T", b"x", tags="t")])
        self.assertRaises(
            InvalidMessage, store.appendBatch, SentMessage(None, ("T", -1), batch, b"", 1), HOST
        )
