# SPDX-License-Identifier: Apache-2.0
"""
Both implementations of L{Bulk<txrocket.bulk.interface.Bulk>} give the same, argument by
argument, and raise the same errors.  What is right is said by the tests of the callers.

Without the compiled module, only Python's is run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.bulk.support import (
    PROPERTIES,
    RECORDS,
    START,
    TIME,
    TOPICS,
    V4,
    V6,
    Queues,
    item,
    record,
    recordsOf,
    sent,
)
from txrocket.bulk import PAIR, Bulk, compiled, keyHash, python
from txrocket.bulk.python.dispatch import readProperties, uniqueKeyHash
from txrocket.errors import InvalidMessage, MalformedRecord, RocketError
from txrocket.message import splitProperties
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import (
    TRANSACTION_PREPARED_TYPE,
    decodeRecord,
    encodeBlank,
    encodeRecord,
    encodeTopic,
)
from txrocket.protocol.record.batch import encodeItem
from txrocket.store.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocket.store.files import Files
from txrocket.store.files.handles import Handles
from txrocket.store.files.syncjob import SyncJob
from txrocket.store.index import Index
from txrocket.store.index import file as indexModule
from txrocket.store.log.commitlog import torn
from txrocket.store.queue.entry import packEntry

LIMIT = 1 << 20
ID = b"7F0000010B251B89B4AC4E0EAA800205"
FIELDS = {each: encodeTopic(each) for each in ("T", "topic-of-some-length", "Ü", "主题🚀")}

BOTH: list[Bulk] = [python] if compiled is None else [python, compiled]

NUMBERS = st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63)])


def outcome(call: Callable[[Bulk], Any], bulk: Bulk) -> Any:
    """
    The result of a call, or its error.
    """
    try:
        return call(bulk)
    except RocketError as error:
        return type(error), str(error)


class BulkCase(SynchronousTestCase):
    """
    A test of both implementations.
    """

    def same(self, call: Callable[[Bulk], Any]) -> Any:
        """
        The result of both.
        """
        first, *others = [outcome(call, each) for each in BOTH]
        for each in others:
            self.assertEqual(first, each)
        return first


class AppendTests(BulkCase):
    """
    Making records.
    """

    @given(
        st.lists(st.builds(item, st.binary(max_size=300), PROPERTIES), max_size=6).map(b"".join),
        st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)),
        PROPERTIES,
        st.sampled_from([V4, V6, V4[:5]]),
        st.sampled_from([V4, V6]),
        st.sampled_from([0, -1, 2**31 - 1, 2**31, 2**63, -(2**63)]),
        st.sampled_from([0, 0x3F, -1, 2**31]),
    )
    def test_batchGivesSameRecords(
        self,
        data: bytes,
        damage: tuple[int, int] | None,
        properties: bytes,
        bornHost: bytes,
        storeHost: bytes,
        number: int,
        sysFlag: int,
    ) -> None:
        """
        Records of batches, whole and damaged, with numbers that fit and others.
        """
        if damage is not None and data:
            changed = bytearray(data)
            changed[damage[0] % len(data)] = damage[1]
            data = bytes(changed)
        places = (number, number, abs(number) % 2**62, sysFlag, number, bornHost, number)
        given = (data, encodeTopic("T"), properties, *places, storeHost, 3)
        self.same(lambda bulk: bulk.batchRecords(*given))

    @given(st.lists(st.binary(max_size=20) | st.binary(min_size=1000, max_size=1010), min_size=1))
    def test_bodiesGiveSameChecksums(self, bodies: list[bytes]) -> None:
        """
        The checksums of bodies of any length.
        """
        data = b"".join(item(body, b"") for body in bodies)
        self.same(lambda bulk: bulk.batchRecords(data, FIELDS["T"], b"", 0, 0, 0, 0, 0, V4, 0, V4))

    def test_everySizeHasItsChecksum(self) -> None:
        """
        The checksum of a body is right, however long the body is.
        """
        body = random.Random(7).randbytes(70_000)
        for size in (*range(400), 1023, 1024, 4095, 16_384, 70_000):
            one = encodeItem(body[:size], b"")
            numbers = (0, 0, 0, 0, 0, bytes(8), 0, bytes(8))
            for bulk in BOTH:
                records, _ = bulk.batchRecords(one, FIELDS["T"], b"", *numbers)
                crc = int.from_bytes(records[8:12], "big")
                self.assertEqual(crc, zlib.crc32(body[:size]) & 0x7FFFFFFF)

    def test_batchTooLongRefused(self) -> None:
        """
        A batch of more than 14,000 messages is refused by both, in the same words.
        """
        whole = item(b"", b"") * 14_000
        numbers = (0, 0, 0, 0, 0, V4, 0, V4)
        made = self.same(lambda bulk: bulk.batchRecords(whole, FIELDS["T"], b"", *numbers))
        self.assertEqual(len(made.sizes), 14_000)
        whole += item(b"", b"")
        refused = self.same(lambda bulk: bulk.batchRecords(whole, FIELDS["T"], b"", *numbers))
        self.assertIs(refused[0], InvalidMessage)

    @given(
        st.lists(
            st.tuples(
                *(TOPICS, st.integers(-1, 2), st.binary(max_size=60), PROPERTIES),
                *(st.sampled_from([0, 1, 4, 8, 0x30, -1]), st.sampled_from([V4, V6, V4[:3]])),
            ),
            max_size=8,
        ),
        NUMBERS,
        st.sampled_from([0, 300, 5000]),
        st.sampled_from([V4, V6]),
    )
    def test_messagesGiveSameRecords(
        self,
        made: list[tuple[str, int, bytes, bytes, int, bytes]],
        number: int,
        room: int,
        storeHost: bytes,
    ) -> None:
        """
        Records of messages, as many as there is room for, with numbers that fit and others;
        and the next queue offsets.
        """
        times = number if abs(number) < 2**31 else 0
        messages = [
            (None, (topic, queueId), body, text, number, times, sysFlag, times, 7, number)
            for topic, queueId, body, text, sysFlag, _ in made
        ]
        hosts = [each[-1] for each in made]

        def call(bulk: Bulk) -> Any:
            nexts = {("T", 0): 7, ("Ü", 1): 1 << 40}
            try:
                found = bulk.encodeRecords(
                    *(messages, FIELDS, nexts, START, START + room, 50),  # type: ignore[arg-type]
                    *(TIME, hosts, storeHost),
                )
            except RocketError as error:
                self.assertEqual(nexts, {("T", 0): 7, ("Ü", 1): 1 << 40})
                return type(error), str(error)
            return found, nexts

        self.same(call)

    def test_halfGetsNoQueueOffset(self) -> None:
        """
        The half of a transaction has the queue offset 0, and its queue goes on where it was.
        """
        half, prepared = sent(sysFlag=TRANSACTION_PREPARED_TYPE), (*sent(), 1234)
        nexts: dict[tuple[str, int], int] = {}

        def call(bulk: Bulk) -> Any:
            nexts.clear()
            nexts["T", 0] = 5
            given = [sent(), half, prepared]
            return bulk.encodeRecords(given, FIELDS, nexts, 0, 5000, 50, TIME, [V4] * 3, V4)

        made = self.same(call)
        self.assertEqual([each[1] for each in made.appended], [5, 0, 6])
        self.assertEqual(nexts, {("T", 0): 7})
        last = decodeRecord(made.records, made.appended[2][2])
        self.assertEqual(last.preparedTransactionOffset, 1234)

    def test_propertiesTooLongRefused(self) -> None:
        """
        Properties of more than 32,767 bytes are refused by both.
        """
        long = [sent(properties=bytes(32_768))]
        refused = self.same(
            lambda bulk: bulk.encodeRecords(long, FIELDS, {}, 0, 1 << 20, 50, TIME, [V4], V4)
        )
        self.assertIs(refused[0], InvalidMessage)

    @given(st.lists(st.sampled_from([b"x", b"\0", bytes(7), bytes(15), bytes(16), b"ab"])))
    @example([b"x", bytes(15), b"x"])
    @example([b"x" * 9, bytes(16), b"x"])
    def test_zerosAreSuspect(self, pieces: list[bytes]) -> None:
        """
        Records with many zeros, or with one at their end.
        """
        data, sizes = b"".join(pieces), [len(each) for each in pieces]
        self.same(lambda bulk: bulk.suspect(data, sizes))
        self.same(lambda bulk: bulk.suspect(data, []))

    @given(st.integers(0, 2**62), st.lists(st.integers(91, 2**31 - 1), max_size=9))
    def test_sizesGiveSameIds(self, offset: int, sizes: list[int]) -> None:
        """
        The ids that the producer of a batch gets.
        """
        self.same(lambda bulk: bulk.messageIds("7F00", offset, tuple(sizes)))


class DispatchTests(BulkCase):
    """
    Reading what queues and index need.
    """

    def read(self, data: bytes, awaited: Any = (), position: int = 0, offset: int = START) -> Any:
        """
        What is read of a stretch, and the entries that queues get.
        """

        def call(bulk: Bulk) -> Any:
            queues = Queues()
            found = bulk.readRecords(data, position, offset, queues, queues.find, awaited)
            return found, {key: bytes(each.tail) for key, each in queues.items()}

        return self.same(call)

    @given(RECORDS, st.sampled_from([V4, V6]), st.sampled_from([V4, V6]))
    def test_messagesGiveSameEntries(
        self, made: list[tuple[str, int, bytes, bytes]], bornHost: bytes, storeHost: bytes
    ) -> None:
        """
        All messages are entered in their queues, and their keys in the index.
        """
        data = recordsOf(made, bornHost, storeHost)
        for awaited in (None, (), {("T", 1)}):
            found, queues = self.read(data, awaited)
            self.assertEqual((found.end, found.number), (len(data), len(made)))
            self.assertEqual(sum(map(len, queues.values())), 20 * len(made))
            if awaited is None:
                self.assertEqual(len(found.awaited), len(made))

    @given(RECORDS, st.data())
    def test_damagedGiveSameEntries(
        self, made: list[tuple[str, int, bytes, bytes]], choice: Any
    ) -> None:
        """
        Whatever bytes there are, both read the same of them.
        """
        data = bytearray(recordsOf(made, V4, V4))
        for _ in range(choice.draw(st.integers(1, 4))):
            if data:
                at = choice.draw(st.integers(0, min(len(data) - 1, 120)))
                data[at] = choice.draw(st.integers(0, 255))
        cut = choice.draw(st.integers(0, len(data)))
        for each in (bytes(data), bytes(data[:cut])):
            found, queues = self.read(each, None)
            self.assertEqual(20 * found.number, sum(map(len, queues.values())))

    def test_notOrdinaryEndsReading(self) -> None:
        """
        Halves, messages that wait for their time, blanks, gaps in a queue, and records
        of another place or time are left to the caller.
        """
        ordinary = record()
        place = START + len(ordinary)
        for other in (
            record(offset=place, queueOffset=6, sysFlag=TRANSACTION_PREPARED_TYPE),
            record(SCHEDULE_TOPIC, offset=place),
            record(TIMER_TOPIC, offset=place),
            record(offset=place + 1, queueOffset=6),
            encodeBlank(200) + bytes(192),
            record(offset=place, queueOffset=6)[:-1],
            record(offset=place, queueOffset=7),
            record(offset=place, queueOffset=5),
            record(offset=place, queueOffset=6, time=TIME + 1),
            record("é", offset=place).replace("é".encode(), b"\xc3\x28"),
            b"",
        ):
            found, queues = self.read(ordinary + other)
            self.assertEqual(found, (len(ordinary), 1, b"", TIME, []), other)
            self.assertEqual(queues["T", 0], packEntry(START, len(ordinary), 0))
        found, _ = self.read(b"xyz" + ordinary, position=3)
        self.assertEqual(found.end, 3 + len(ordinary))

    def test_emptyTopicHashed(self) -> None:
        """
        The key of a record whose topic is empty is hashed as everywhere: "#" and the key.
        """
        found, _ = self.read(record("", properties=b"KEYS\x01k"))
        self.assertEqual(found.pairs, PAIR.pack(keyHash("", "k"), START))

    def test_lastOffsetsEndReading(self) -> None:
        """
        A record whose end does not fit 64 bits, or with a negative offset, is not read.
        """
        for offset in (2**63 - 1, 2**63 - 50, -1, -(2**63)):
            one = record(offset=offset)
            found, _ = self.read(one, offset=offset)
            self.assertEqual(found[:2], (0, 0))
            end = self.same(lambda bulk: bulk.checkRecords(one, 0, offset, LIMIT))  # noqa: B023
            self.assertEqual(end, 0)

    @given(PROPERTIES)
    @example(b"UNIQ_KEY\x01" + ID + b"\x02TAGS\x01a\x02KEYS\x01k l\x02CLUSTER\x01c")
    @example(b"TAGS\x01a\x02UNIQ_KEY\x01" + ID)
    @example(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b")
    @example(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02")
    @example(b"MY_UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02TAGS\x01t")
    @example(b"A\x01UNIQ_KEY\x01b")
    def test_propertiesReadAsSplit(self, properties: bytes) -> None:
        """
        Tag, unique id and keys are found where splitting all properties finds them.
        """
        split = splitProperties(str(properties, "utf-8", "replace"))
        hashed, unique, keys = readProperties(properties)
        self.assertEqual(
            (tagsCode(split.get("TAGS")), split.get("UNIQ_KEY", ""), split.get("KEYS", "")),
            (hashed, str(unique, "utf-8", "replace"), keys),
        )

    @given(
        st.text(max_size=20), st.binary(max_size=80) | st.text("0123456789ABCDEF").map(str.encode)
    )
    @example("T", ID)
    def test_uniqueIdHashedAsKey(self, topic: str, key: bytes) -> None:
        """
        The hash of a unique id is that of a key.
        """
        self.assertEqual(keyHash(topic, str(key, "utf-8", "replace")), uniqueKeyHash(topic, key))

    def test_leastHashIsZero(self) -> None:
        """
        -2^31, which has no absolute value in Java, is 0.
        """
        key = leastKey("T")
        self.assertEqual(0, keyHash("T", key.decode()))
        self.assertEqual(0, uniqueKeyHash("T", key))
        found, _ = self.read(record(properties=b"UNIQ_KEY\x01" + key))
        self.assertEqual(found.pairs, PAIR.pack(0, START))

    def indexed(self, entries: list[list[int]]) -> tuple[list[bytes], list[Any]]:
        """
        What is in the files of an index, and found in it.
        """
        self.patch(indexModule, "_FEW", 0)
        folder = self.mktemp()
        handles = Handles(Files())
        index = Index(handles, folder, 13, 40, lambda: 1_000_000)
        offset = 0
        seen = []
        for number, hashes in enumerate(entries):
            pairs = [PAIR.pack(each, offset + place) for place, each in enumerate(hashes)]
            index.add(b"".join(pairs), number * 900)
            offset += len(hashes)
            if number % 3 == 1:
                index.seal(SyncJob(handles))
            if number % 3 == 2:
                index.settle(SyncJob(handles))
            seen.append(index.query("T", "k", 0, 1 << 60, 100))
        index.seal(SyncJob(handles))
        index.settle(SyncJob(handles))
        handles.close()
        found = []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                found.append(file.read())
        return found, seen

    @given(st.lists(st.lists(st.integers(0, 60) | st.integers(0, 2**31 - 1), max_size=9)))
    def test_pairsGiveSameIndex(self, entries: list[list[int]]) -> None:
        """
        The files of an index, slot by slot.
        """
        entries = [each for each in entries if each]

        def call(bulk: Bulk) -> Any:
            with patch.object(indexModule, "indexEntries", bulk.indexEntries):
                return self.indexed(entries)

        if entries:
            self.same(call)


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


class CheckTests(BulkCase):
    """
    Which records are sound.
    """

    @given(RECORDS, st.data())
    def test_soundIsWhatPassesACloserLook(
        self, made: list[tuple[str, int, bytes, bytes]], choice: Any
    ) -> None:
        """
        No record is called sound that a look at each by itself would not let pass; and
        all with topics in ASCII are that nothing has happened to.
        """
        data = bytearray(recordsOf(made, V4, V4))
        whole = bytes(data)
        end = self.same(lambda bulk: bulk.checkRecords(whole, 0, START, LIMIT))
        if all(each[0].isascii() for each in made):
            self.assertEqual(end, len(whole))
        for _ in range(choice.draw(st.integers(1, 4))):
            if data:
                at = choice.draw(st.integers(0, len(data) - 1))
                size = choice.draw(st.sampled_from([1, 1, 4, 600]))
                data[at : at + size] = bytes([choice.draw(st.sampled_from([0, 0, 1, 47, 255]))])
        log = bytes(data)
        ends = [0]
        with contextlib.suppress(MalformedRecord):
            while ends[-1] < len(log):
                each = decodeRecord(log, ends[-1], readBody=False, checkCrc=True)
                offset = START + ends[-1]
                if each.commitLogOffset != offset or torn(each, offset):
                    break
                ends.append(ends[-1] + each.storeSize)
        self.assertIn(self.same(lambda bulk: bulk.checkRecords(log, 0, START, LIMIT)), ends)

    def test_otherKindsEndCheck(self) -> None:
        """
        Before records of another time or kind, too long ones, and where the bytes end.
        """
        one = record()
        size = len(one)
        for other in (
            record(offset=START + size, queueOffset=6, time=TIME + 1),
            record(offset=START + size, sysFlag=TRANSACTION_PREPARED_TYPE),
            record(offset=START + size, properties=b"a\x01b\0c\x02"),
            record(offset=START + size, body=b"x" * 200),
            record("é", offset=START + size),
            record(offset=START + size)[:-1],
            encodeBlank(200) + bytes(192),
            b"",
        ):
            whole = one + other
            end = self.same(lambda bulk: bulk.checkRecords(whole, 0, START, 150))  # noqa: B023
            self.assertEqual(end, size)
        for bulk in BOTH:
            self.assertEqual(bulk.checkRecords(one + one, size, START, LIMIT), 2 * size)
            self.assertEqual(bulk.checkRecords(one, 0, START, size - 1), 0)
            for position in (-1, size + 1):
                self.assertRaises(ValueError, bulk.checkRecords, one, position, START, LIMIT)
                given: Any = (position, START, {}, Queues().find, ())
                self.assertRaises(ValueError, bulk.readRecords, one, *given)

    def test_damagedEndsReadable(self) -> None:
        """
        Records are counted up to the first that is damaged, whose body does not match its
        CRC, or that is not there as a whole.
        """
        data, _ = collectable(3)
        size = len(data) // 3
        for bulk in BOTH:
            self.assertEqual(len(data), bulk.readableRecords(data))
            self.assertEqual(0, bulk.readableRecords(b""))
            for cut in range(size):
                self.assertEqual(2 * size, bulk.readableRecords(data[: 2 * size + cut]))
            self.assertEqual(size, bulk.readableRecords(data.replace(b"body1", b"bodY1")))
            self.assertEqual(size, bulk.readableRecords(data[:size] + bytes(size) + data[-size:]))

    @given(RECORDS, st.data())
    def test_bytesGiveSameReadable(
        self, made: list[tuple[str, int, bytes, bytes]], choice: Any
    ) -> None:
        """
        Whatever bytes there are, both take the same for readable.
        """
        data = bytearray(recordsOf(made, V6, V4))
        for _ in range(choice.draw(st.integers(0, 3))):
            if data:
                data[choice.draw(st.integers(0, len(data) - 1))] = choice.draw(st.integers(0, 255))
        self.same(lambda bulk: bulk.readableRecords(bytes(data)))


def collectable(count: int, apart: int = 0) -> tuple[bytes, bytes]:
    """
    Records of queue 3 of topic T that are C{apart} bytes from each other, and their
    entries.
    """
    data, listed = b"", b""
    for number in range(count):
        numbers = (3, 0, number, len(data), 0, 1, bytes(8), 1, bytes(8))
        one = encodeRecord(encodeTopic("T"), b"body%d" % number, b"", *numbers)
        listed += packEntry(len(data), len(one), number % 3)
        data += one + bytes(apart)
    return data, listed


class CollectTests(BulkCase):
    """
    The records of a pull.
    """

    def collect(self, listed: bytes, source: Any, **changed: Any) -> Any:
        """
        Collect records of queue 3 of topic T.
        """
        values: dict[str, Any] = {
            "base": 0,
            "written": 1 << 20,
            "near": 1 << 20,
            "most": 1000,
            "mostBytes": 1 << 20,
            "matches": None,
            "topic": b"T",
            "queueId": 3,
            "queueOffset": 0,
            "largest": 1 << 20,
            "checkBelow": 1 << 40,
        }
        given = (values | changed).values()
        return self.same(lambda bulk: bulk.collectRecords(listed, source, *given))

    def test_notCollectableDeclines(self) -> None:
        """
        An error of a filter is raised; records that the file does not have are declined.
        """
        data, entry = collectable(1)
        with self.assertRaises(ZeroDivisionError):
            self.collect(entry, data, matches=lambda hashed: 1 / 0)
        self.assertEqual((data, 1, 1), self.collect(entry, data))
        self.assertIsNone(self.collect(entry, data, matches=lambda hashed: hashed != 0))
        self.assertIsNone(self.collect(entry, data[:-1]))
        self.assertIsNone(self.collect(entry, data, near=1))
        self.assertIsNone(self.collect(entry, data, written=len(data) - 1))
        self.assertIsNone(self.collect(entry, data, largest=len(data) - 1))

    def test_entryNearTheLastNumberDeclines(self) -> None:
        """
        An entry whose offset and size add up to more than a number holds is declined, and
        no byte is read.
        """
        data, listed = collectable(1)
        for offset in (2**63 - 1, 2**63 - 100, -1, -(2**63)):
            for size in (91, 100, 0, -1, 0x3FFFFFFE):
                self.assertIsNone(self.collect(listed + packEntry(offset, size, 0), data))

    def test_misfitDeclines(self) -> None:
        """
        A record that is not the one of its entry is declined, whichever bit is wrong in
        what says so; a wrong bit that nothing tells of is not.
        """
        data, listed = collectable(2)
        first = len(data) // 2
        # Size, magic, CRC, queue id, queue offset and place; then flag, sysFlag and all else.
        told = {*range(16), *range(20, 36), *range(84, first)}
        for position in range(first):
            for bit in (1, 128):
                damaged = bytearray(data)
                damaged[position] ^= bit
                found = self.collect(listed, bytes(damaged))
                if position in told:
                    self.assertIsNone(found, position)
                elif position not in range(36, 40):
                    self.assertEqual((bytes(damaged), 2, 2), found)
        for changed in ({"topic": b"U"}, {"queueId": 2}, {"queueOffset": 1}):
            self.assertIsNone(self.collect(listed, data, **changed))

    def test_newBodiesTrusted(self) -> None:
        """
        The bodies of records from an offset on are not compared with their CRC.
        """
        data, listed = collectable(2)
        damaged = data.replace(b"body1", b"bodY1")
        self.assertIsNone(self.collect(listed, damaged))
        self.assertIsNone(self.collect(listed, damaged, checkBelow=len(data) // 2 + 1))
        self.assertEqual((damaged, 2, 2), self.collect(listed, damaged, checkBelow=len(data) // 2))

    def test_handleGivesSameRecords(self) -> None:
        """
        A file that is not mapped gives the same records; one that is too short, or closed,
        none.
        """
        data, listed = collectable(300, apart=5)
        listed = listed[: 256 * 20]
        with open(self.mktemp(), "w+b") as opened:
            opened.write(data)
            opened.flush()
            handle = opened.fileno()
            expected = self.collect(listed, data)
            self.assertEqual(256, expected[1])
            self.assertEqual(expected, self.collect(listed, handle))
            opened.truncate(5000)
            self.assertIsNone(self.collect(listed, handle))
        self.assertIsNone(self.collect(listed, handle))
        self.assertRaises(OverflowError, self.collect, listed, 1 << 70)

    def test_scatteredDeclines(self) -> None:
        """
        More than 256 records that lie apart from each other are declined.
        """
        for count, expected in ((256, 256), (257, None)):
            data, listed = collectable(count, apart=1)
            found = self.collect(listed, data)
            self.assertEqual(expected, found and found[1])
        # One behind the other there may be more.
        data, listed = collectable(900)
        self.assertEqual((data, 900, 900), self.collect(listed, data))
        self.assertEqual(300, self.collect(listed, data, most=300)[1])

    @given(
        st.integers(1, 30),
        st.integers(0, 2),
        st.sampled_from([-1, 0, 1, 2, 5, 32]),
        st.sampled_from([0, 100, 500, 5000]),
        st.integers(0, 4000),
        st.integers(0, 4000),
        st.sampled_from([None, lambda hashed: hashed == 1, lambda hashed: hashed == 9]),
    )
    def test_limitsGiveSameRecords(
        self, number: int, apart: int, most: int, size: int, written: int, near: int, matches: Any
    ) -> None:
        """
        Within all limits, both collect the same.
        """
        data, listed = collectable(number, apart)
        limits = {"most": most, "mostBytes": size, "written": written, "near": near}
        self.collect(listed, data, **limits, matches=matches)


class SyncTests(BulkCase):
    """
    Which errors of a sync are told, and how.
    """

    def path(self, name: str = "file") -> str:
        """
        A new file.
        """
        folder = self.mktemp()
        os.makedirs(folder)
        path = os.path.join(folder, name)
        with open(os.fsencode(path), "wb"):
            pass
        return path

    def test_missingFilesLeftOut(self) -> None:
        """
        Files are synced, and those that do not exist are left out; an error is told.
        """
        path = self.path()
        os.mkfifo(path + "-pipe")
        self.assertEqual(0, self.same(lambda bulk: bulk.syncPaths([path, path + "-gone"])))
        failed = self.same(lambda bulk: bulk.syncPaths([path, path + "-pipe"]))
        self.assertEqual(errno.EINVAL, failed)
        for bulk in BOTH:
            self.assertRaises(OSError, bulk.syncPaths, [path, os.path.dirname(path)])
            self.assertRaises(TypeError, bulk.syncPaths, 1)
            self.assertRaises(TypeError, bulk.syncPaths, [1])
            self.assertRaises(ValueError, bulk.syncPaths, [path + "\0x"])

    def test_pathNotUtf8Synced(self) -> None:
        """
        A path with bytes that are not UTF-8 is synced as Python opens it.
        """
        path = self.path("a\udcff")
        self.assertEqual(0, self.same(lambda bulk: bulk.syncPaths([path])))


class ChoiceTests(SynchronousTestCase):
    """
    Which implementation is used.
    """

    def chosen(self, pure: str) -> bytes:
        """
        The name of the one that a new process chooses.
        """
        asked = "from txrocket.bulk import chosen; print(chosen.__name__)"
        said = subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "TXROCKET_PURE": pure},
            capture_output=True,
            check=True,
        )
        return said.stdout.strip()

    def test_environmentForbidsCompiled(self) -> None:
        """
        An environment may forbid the compiled module.
        """
        self.assertEqual(self.chosen("1"), b"txrocket.bulk.python")

    def test_compiledPreferred(self) -> None:
        """
        The compiled module is used where it was built.
        """
        if compiled is None:
            self.skipTest("the compiled module was not built")
        self.assertEqual(self.chosen(""), b"txrocket.bulk._compiled")
