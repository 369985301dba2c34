# SPDX-License-Identifier: Apache-2.0
"""
Tests for what the store does quickly for ordinary messages: the plain way, which all
else goes, gives the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import HOST, START, Disk, StoreCase, filesOf
from txrocket.compiled import speed
from txrocket.errors import InvalidMessage
from txrocket.message import MessageExt, splitProperties
from txrocket.protocol.javahash import tagsCode
from txrocket.store import follow as followModule
from txrocket.store import index as indexModule
from txrocket.store import messages as messagesModule
from txrocket.store.files import Handles
from txrocket.store.follow import SCHEDULE_TOPIC, TIMER_TOPIC, filed
from txrocket.store.index import Index, idHash, keyHash
from txrocket.store.messages import MessageStore
from txrocket.store.reading import Got
from txrocket.store.segments import SyncJob
from txrocket.store.settings import StoreSettings

ID = b"7F0000010B251B89B4AC4E0EAA800205"

# What properties are made of, so that most are nearly right.
PIECES = st.sampled_from(
    [
        *(b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"MY_", b"\x01", b"\x02"),
        *(b"\xff", b"\xc3\xa9", b"a b", b"x", ID, b"n" * 300),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=12).map(b"".join)


class FiledTests(SynchronousTestCase):
    """
    L{filed}.
    """

    @given(PROPERTIES)
    @example(b"UNIQ_KEY\x01" + ID + b"\x02TAGS\x01a\x02KEYS\x01k l\x02CLUSTER\x01c")
    @example(b"TAGS\x01a\x02UNIQ_KEY\x01" + ID)
    @example(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b")
    @example(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02")
    @example(b"MY_UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02TAGS\x01t")
    @example(b"A\x01UNIQ_KEY\x01b")
    def test_asSplit(self, properties: bytes) -> None:
        """
        It finds tag, unique id and keys where splitting all properties does.
        """
        split = splitProperties(str(properties, "utf-8", "replace"))
        hashed, unique, keys = filed(properties)
        self.assertEqual(
            (tagsCode(split.get("TAGS")), split.get("UNIQ_KEY", ""), split.get("KEYS", "")),
            (hashed, str(unique, "utf-8", "replace"), keys),
        )


class IdHashTests(SynchronousTestCase):
    """
    L{idHash}.
    """

    @given(
        st.text(max_size=20), st.binary(max_size=80) | st.text("0123456789ABCDEF").map(str.encode)
    )
    @example("T", ID)
    def test_asKey(self, topic: str, key: bytes) -> None:
        """
        It is the hash of the key.
        """
        self.assertEqual(keyHash(topic, str(key, "utf-8", "replace")), idHash(topic, key))

    def test_least(self) -> None:
        """
        -2^31, which has no absolute value in Java, is 0.
        """
        key = leastKey("T")
        self.assertEqual(0, keyHash("T", key.decode()))
        self.assertEqual(0, idHash("T", key))


def leastKey(topic: str) -> bytes:
    """
    A key whose hash with its topic is -2^31.
    """
    begun = 0
    for character in f"{topic}#k":
        begun = begun * 31 + ord(character) & 0xFFFFFFFF
    # What the last 8 characters have to add, each of them from 48 to 78.
    wanted = 0x80000000 - begun * 31**8 & 0xFFFFFFFF
    lowest = sum(48 * 31**place for place in range(8))
    rest = wanted - lowest & 0xFFFFFFFF
    digits = [rest // 31**place % 31 for place in range(7, -1, -1)]
    return b"k" + bytes(48 + each for each in digits)


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["T", "U", SCHEDULE_TOPIC, TIMER_TOPIC]),
        st.integers(0, 2),
        st.sampled_from([b"", b"body", b"b" * 1000]),
        PROPERTIES.filter(lambda each: len(each) < 2000),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=40,
)


class TakeTests(SynchronousTestCase):
    """
    L{Follow.take<txrocket.store.follow.Follow.take>}.
    """

    def outcome(
        self, messages: list[tuple[str, int, bytes, bytes, bool, int]], *, plain: bool = False
    ) -> Any:
        """
        Put messages, in stretches, and tell what became of them.
        """
        root = tempfile.mkdtemp()
        try:
            clock = Clock()
            clock.advance(START)
            told: list[tuple[str, int, int, int, MessageExt]] = []
            store = MessageStore(
                StoreSettings(
                    root,
                    mappedFileSizeCommitLog=4096,
                    mappedFileSizeConsumeQueue=200,
                    maxHashSlotNum=8,
                    maxIndexNum=40,
                ),
                clock,
                maybeDeferred,
                HOST,
                lambda *each: told.append(each),
            )
            if plain:
                store.follow.take = (  # type: ignore[method-assign]
                    lambda offset, data, puts, timestamp: store.follow.feed(offset, data)
                )
            store.start()
            for topic, queueId, body, properties, last, batch in messages:
                if batch:
                    one = struct.pack(">5i", 22 + len(body) + len(properties), 0, 0, 0, len(body))
                    one += body + len(properties).to_bytes(2, "big") + properties
                    with contextlib.suppress(InvalidMessage):
                        store.putBatch(
                            topic, queueId, one * batch, b"n\x01v", bornTimestamp=1, bornHost=HOST
                        )
                else:
                    store.put(topic, queueId, body, properties, bornTimestamp=1, bornHost=HOST)
                if last:
                    clock.advance(0.7)
            store.stop()
            return told, store.follow.timestamp, filesOf(root)
        finally:
            shutil.rmtree(root)

    @settings(max_examples=40, deadline=None)
    @given(MESSAGES)
    def test_asRead(self, messages: list[tuple[str, int, bytes, bytes, bool, int]]) -> None:
        """
        Queues, index and those who wait for messages learn the same as if the
        records had been read.
        """
        compiled = self.outcome(messages)
        with patch.object(followModule, "speed", None), patch.object(messagesModule, "speed", None):
            read = self.outcome(messages, plain=True)
            taken = self.outcome(messages)
        self.assertEqual(read, taken)
        self.assertEqual(read, compiled)


LIMITS = st.sampled_from([1, 3, 32])
SIZES = st.sampled_from([300, 1000, 1 << 20])


class StretchTests(StoreCase):
    """
    Messages that lie one behind the other.
    """

    def filled(self, topics: str, **options: Any) -> MessageStore:
        """
        A store in which messages of the named topics follow each other, over files
        of five or six.
        """
        store = self.start(mappedFileSizeCommitLog=1000, mappedFileSizeConsumeQueue=400, **options)
        for number, topic in enumerate(topics):
            self.gather(store, b"%d" % number * (number % 3), topic=topic, TAGS=str(number % 2))
        store.write()
        return store

    def check(self, store: MessageStore) -> None:
        """
        Whatever is asked for, the answer is that of a look at each message.
        """
        asked = [
            (topic, offset, most)
            for topic in "TU"
            for offset in range(25)
            for most in (-1, 0, 1, 2, 5, 32, 1000)
        ]
        filters = (None, lambda hashed: hashed == tagsCode("1"))

        def answers() -> list[Got]:
            return [store.get(t, 0, at, most, each) for t, at, most in asked for each in filters]

        self.patch(store, "_direct", speed is not None)
        compiled = answers()
        self.patch(store, "_direct", False)
        quickly = answers()
        self.patch(store, "_stretch", lambda *given: None)
        slowly = answers()
        self.assertEqual(slowly, quickly)
        self.assertEqual(slowly, compiled)

    @settings(max_examples=25, deadline=None)
    @given(st.text("TTTU", max_size=24), LIMITS, SIZES, LIMITS, st.sampled_from([0, 40, 100]))
    def test_asCollected(self, topics: str, count: int, size: int, onDisk: int, ratio: int) -> None:
        """
        They are given as any others are, within all limits.
        """
        store = self.filled(
            topics,
            memory=2000,
            maxTransferCountOnMessageInMemory=count,
            maxTransferBytesOnMessageInMemory=size,
            maxTransferCountOnMessageInDisk=onDisk,
            accessMessageInMemoryMaxRatio=ratio,
        )
        self.check(store)
        store.stop()
        shutil.rmtree(self.root)

    def test_deleted(self) -> None:
        """
        Also when the log has lost its first file, and the queue has not heard of it.
        """
        store = self.filled("T" * 20)
        store.log.segments.removeFirst()
        self.check(store)
        store.retention.follow()
        self.check(store)
        store.stop()

    def test_gap(self) -> None:
        """
        Also where the queue has entries that stand for nothing.
        """
        store = self.filled("TTT")
        store._next["T", 0] = 6
        for _ in range(3):
            self.put(store)
        self.check(store)
        store.stop()

    def test_reads(self) -> None:
        """
        It takes two reads, of the entries, with those that will be asked for next, and of
        the records; the next takes one.
        """
        store = self.filled("TTTTT")
        store.queues.write()
        self.disk.preads.clear()
        got = store.get("T", 0, 1, 3)
        self.assertEqual((3, 4), (got.count, got.nextOffset))
        self.assertEqual([80, len(got.data)], [size for _, _, size in self.disk.preads])
        got = store.get("T", 0, 4, 3)
        self.assertEqual((1, 5), (got.count, got.nextOffset))
        self.assertEqual([len(got.data)], [size for _, _, size in self.disk.preads[2:]])
        store.stop()


class AwaitedTests(StoreCase):
    """
    Who hears of messages.
    """

    def test_awaited(self) -> None:
        """
        Only what comes to queues that somebody waits for is told, if the store
        knows which these are.
        """
        awaited = {("T", 1)}
        told: list[Any] = []
        store = MessageStore(
            StoreSettings(self.root, mappedFileSizeCommitLog=4096),
            self.clock,
            maybeDeferred,
            HOST,
            lambda *each: told.append(each),
            awaited=awaited,
        )
        store.start()
        self.put(store, b"a", queueId=0, TAGS="t")
        self.put(store, b"b", queueId=1, TAGS="t")
        awaited.clear()
        self.put(store, b"c", queueId=1, TAGS="t")
        store.stop()
        self.assertEqual([("T", 1, 0, tagsCode("t"))], [each[:4] for each in told])
        self.assertEqual(("T", {"TAGS": "t"}), (told[0][4].topic, told[0][4].properties))

    def test_batchToldUntilNobodyWaits(self) -> None:
        """
        Of a batch only those messages are told that come while somebody waits for them.
        """
        awaited = {("T", 0)}
        told: list[int] = []

        def arrived(topic: str, queueId: int, offset: int, hashed: int, record: object) -> None:
            told.append(offset)
            if offset == 1:
                awaited.clear()

        store = MessageStore(
            StoreSettings(self.root, mappedFileSizeCommitLog=4096),
            self.clock,
            maybeDeferred,
            HOST,
            arrived,
            awaited=awaited,
        )
        store.start()
        self.putBatch(store, b"a", b"b", b"c", b"d")
        store.stop()
        self.assertEqual(told, [0, 1])


class TableTests(SynchronousTestCase):
    """
    Slots that are kept in memory.
    """

    def make(self, reads: int) -> tuple[Index, Disk, Handles, str]:
        """
        An index that keeps its slots after so many reads.
        """
        self.patch(indexModule, "_FEW", reads)
        disk = Disk()
        handles = Handles(disk)
        self.addCleanup(handles.close)
        folder = self.mktemp()
        return Index(handles, folder, 50, 200, lambda: START * 1000), disk, handles, folder

    def bytesOf(self, disk: Disk, folder: str) -> list[bytes]:
        """
        What is in the files.
        """
        found = []
        for name in disk.names(folder):
            with open(os.path.join(folder, name), "rb") as file:
                found.append(file.read())
        return found

    def work(self, reads: int) -> list[Any]:
        """
        Add keys, with checkpoints in between, and look at the files each time.
        """
        self.patch(indexModule, "_RUN", 4)
        index, disk, handles, folder = self.make(reads)
        seen: list[Any] = []
        for number in range(600):
            index.put("T", [f"k{number * 7 % 150}"], number, START * 1000 + number)
            if number % 40 == 19:
                index.seal(SyncJob(handles))
                seen.append(self.bytesOf(disk, folder))
            if number % 40 == 29:
                index.settle(SyncJob(handles))
                seen.append(self.bytesOf(disk, folder))
                seen.append(index.query("T", "k7", 0, 1 << 60, 100))
        return seen

    def test_sameFiles(self) -> None:
        """
        The files are the same at every checkpoint, whether all slots are in memory
        at once, after some time, or never; so is what is found.
        """
        never = self.work(1 << 30)
        self.assertEqual(never, self.work(0))
        self.assertEqual(never, self.work(25))

    def test_reads(self) -> None:
        """
        Once all slots are in memory, none is read any more.
        """
        index, disk, handles, folder = self.make(3)
        for number in range(60):
            index.put("T", [f"k{number}"], number, START * 1000)
            index.seal(SyncJob(handles))
            index.settle(SyncJob(handles))
        path = os.path.join(folder, disk.names(folder)[0])
        self.assertEqual(
            [(path, 4), (path, 4), (path, 4), (path, 200)],
            [(each, size) for each, _, size in disk.preads],
        )

    def test_full(self) -> None:
        """
        The slots of a file that is full need not be in memory any longer, once they are
        in the file.
        """
        index, _, handles, _ = self.make(0)
        for number in range(250):
            index.put("T", [f"k{number % 90}"], number, START * 1000)
        first, second = index._indexFiles
        index.seal(SyncJob(handles))
        self.assertIsNotNone(first._table)
        index.settle(SyncJob(handles))
        self.assertIsNone(first._table)
        self.assertIsNotNone(second._table)
        self.assertEqual([187, 97, 7], index.query("T", "k7", 0, 1 << 60, 9).offsets)

    def test_straightened(self) -> None:
        """
        What is put right in the file is read anew.
        """
        index, _, handles, _ = self.make(0)
        index.put("T", ["a"], 1, START * 1000)
        index.put("T", ["a"], 2, START * 1000)
        index.seal(SyncJob(handles))
        index.settle(SyncJob(handles))
        index.cut(2, lambda offset: START * 1000)
        self.assertEqual([1], index.query("T", "a", 0, 1 << 60, 9).offsets)
        index.put("T", ["a"], 3, START * 1000)
        index.seal(SyncJob(handles))
        index.settle(SyncJob(handles))
        self.assertEqual([3, 1], index.query("T", "a", 0, 1 << 60, 9).offsets)
        again = Index(handles, index._folder, 50, 200, lambda: 0)
        again.load()
        self.assertEqual([3, 1], again.query("T", "a", 0, 1 << 60, 9).offsets)
