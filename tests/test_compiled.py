# SPDX-License-Identifier: Apache-2.0
"""
Tests for the compiled helper: what it does is what the functions in Python do, whose
own tests say what that is.  They are skipped where it was not built.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from typing import Any
from unittest.mock import patch

import attrs
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.compiled import speed
from txrocket.errors import MalformedRecord, RocketError
from txrocket.processors.sendanswers import batchIdsPlainly
from txrocket.protocol import batch as batchModule
from txrocket.protocol.batch import batchRecords, encodeItem
from txrocket.protocol.record import (
    TRANSACTION_PREPARED_TYPE,
    decodeRecord,
    encodeBlank,
    encodeRecord,
    encodeTopic,
)
from txrocket.store import index as indexModule
from txrocket.store.commitlog import torn
from txrocket.store.consumequeue import packEntry
from txrocket.store.files import Files, Handles, SyncFailed
from txrocket.store.follow import SCHEDULE_TOPIC, TIMER_TOPIC, file, queueEntries
from txrocket.store.index import PAIR, Index, entriesPlainly
from txrocket.store.messages import suspectPlainly
from txrocket.store.segments import SyncJob

V4, V6 = bytes(range(8)), bytes(range(20))

# Properties that are nearly right, in several alphabets.
PIECES = st.sampled_from(
    [
        *(b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"MY_", b"\x01", b"\x02", b" ", b"  "),
        *(b"\xff", b"\xc3\xa9", b"\xe3\x81", "中文".encode(), "🚀".encode(), b"a b", b"x"),
        *(b"7F0000010B251B89B4AC4E0EAA800205", b"n" * 70),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=14).map(b"".join)
TOPICS = st.sampled_from(["T", "topic-of-some-length", "Ü", "主题🚀"])


def item(body: bytes, properties: bytes) -> bytes:
    """
    A message in a batch, in the client's form.
    """
    size = 22 + len(body) + len(properties)
    head = struct.pack(">5i", size, 0, 0, 7, len(body))
    return head + body + len(properties).to_bytes(2, "big") + properties


def outcome(*arguments: Any) -> Any:
    """
    What L{batchRecords} gives, or says.
    """
    try:
        return batchRecords(*arguments)
    except RocketError as error:
        return type(error), str(error)


RECORDS = st.lists(
    st.tuples(TOPICS, st.integers(0, 2), st.binary(max_size=40), PROPERTIES), max_size=30
)
START = 1 << 40
TIME = 1_700_000_000_123
LIMIT = 1 << 20


@attrs.define
class Queue:
    """
    What is looked at of a queue.
    """

    filed: int = 5
    tail: bytearray = attrs.field(factory=bytearray)


class Queues(dict[tuple[str, int], Queue]):
    """
    Queues that are made when they are asked for.
    """

    def find(self, key: tuple[str, int]) -> Queue:
        """
        One of them.
        """
        self[key] = Queue()
        return self[key]


def record(
    topic: str = "T",
    queueId: int = 0,
    body: bytes = b"x",
    properties: bytes = b"",
    queueOffset: int = 5,
    offset: int = START,
    sysFlag: int = 0,
    time: int = TIME,
    bornHost: bytes = V4,
    storeHost: bytes = V4,
) -> bytes:
    """
    A message as it is in the log.
    """
    return encodeRecord(
        *(encodeTopic(topic), body, properties, queueId, 0, queueOffset, offset, sysFlag),
        *(0, bornHost, time, storeHost),
    )


def recordsOf(
    made: list[tuple[str, int, bytes, bytes]], bornHost: bytes, storeHost: bytes
) -> tuple[bytes, list[Any]]:
    """
    Records that follow each other in the log, queue by queue without a gap; and the same
    as the store puts them.
    """
    numbers: dict[tuple[str, int], int] = {}
    puts: list[Any] = []
    data = b""
    for topic, queueId, body, properties in made:
        key = topic, queueId
        number = numbers.get(key, 5)
        numbers[key] = number + 1
        offset = START + len(data)
        one = record(
            *(topic, queueId, body, properties, number, offset),
            bornHost=bornHost,
            storeHost=storeHost,
        )
        puts.append((key, number, offset, len(one), properties, None))
        data += one
    return data, puts


def walk(data: bytes) -> Iterator[int]:
    """
    Where records begin.
    """
    at = 0
    while at < len(data):
        yield at
        at += int.from_bytes(data[at : at + 4], "big")


class CompiledTests(SynchronousTestCase):
    """
    Both ways give the same.
    """

    if speed is None:
        skip = "the compiled helper was not built"

    @given(
        st.lists(st.builds(item, st.binary(max_size=300), PROPERTIES), max_size=6).map(b"".join),
        st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)),
        PROPERTIES,
        st.sampled_from([V4, V6, V4[:5]]),
        st.sampled_from([V4, V6]),
        st.sampled_from([0, -1, 2**31 - 1, 2**31, 2**63, -(2**63)]),
        st.sampled_from([0, 0x3F, -1, 2**31]),
    )
    def test_batchRecords(
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
        compiled = outcome(*given)
        with patch.object(batchModule, "speed", None):
            self.assertEqual(outcome(*given), compiled)

    @given(st.lists(st.binary(max_size=20) | st.binary(min_size=1000, max_size=1010), min_size=1))
    def test_crc(self, bodies: list[bytes]) -> None:
        """
        The checksums of bodies of any length.
        """
        data = b"".join(item(body, b"") for body in bodies)
        given = (data, encodeTopic("T"), b"", 0, 0, 0, 0, 0, V4, 0, V4)
        compiled = outcome(*given)
        with patch.object(batchModule, "speed", None):
            self.assertEqual(outcome(*given), compiled)

    @given(st.lists(st.sampled_from([b"x", b"\0", bytes(7), bytes(15), bytes(16), b"ab"])))
    @example([b"x", bytes(15), b"x"])
    @example([b"x" * 9, bytes(16), b"x"])
    def test_suspect(self, pieces: list[bytes]) -> None:
        """
        Records with many zeros, or with one at their end.
        """
        assert speed is not None
        data, sizes = b"".join(pieces), [len(each) for each in pieces]
        self.assertEqual(speed.suspect(data, sizes), suspectPlainly(data, sizes))
        self.assertEqual(speed.suspect(data, []), suspectPlainly(data, []))
        self.assertRaises(TypeError, speed.suspect, data, ("x",))
        self.assertRaises(TypeError, speed.suspect, data, ["x"])
        self.assertRaises(ValueError, speed.suspect, b"x" * len(data), [*sizes, 1])

    @given(RECORDS, st.sampled_from([V4, V6]), st.sampled_from([V4, V6]))
    def test_file(
        self, made: list[tuple[str, int, bytes, bytes]], bornHost: bytes, storeHost: bytes
    ) -> None:
        """
        What messages are filed by: the entries of their queues, and what the index gets.
        """
        assert speed is not None
        data, puts = recordsOf(made, bornHost, storeHost)
        hashes, pairs = file(puts)
        time = TIME if made else 0
        told = [
            (each[2], each[0], each[1], hashed) for each, hashed in zip(puts, hashes, strict=True)
        ]
        for awaited in (None, set(), {("T", 1)}):
            queues = Queues()
            filed = speed.fileRecords(data, START, queues, queues.find, awaited)
            wanted = [each for each in told if awaited is None or each[1] in awaited]
            self.assertEqual(filed, (len(data), len(made), pairs, time, wanted))
            entries = {key: bytes(run) for key, (_, run) in queueEntries(puts, hashes).items()}
            self.assertEqual({key: bytes(each.tail) for key, each in queues.items()}, entries)

    @given(RECORDS, st.data())
    def test_fileDamaged(self, made: list[tuple[str, int, bytes, bytes]], choice: Any) -> None:
        """
        Whatever bytes there are, they are filed as what they say, or not at all.
        """
        assert speed is not None
        data = bytearray(recordsOf(made, V4, V4)[0])
        for _ in range(choice.draw(st.integers(1, 4))):
            if data:
                at = choice.draw(st.integers(0, min(len(data) - 1, 120)))
                data[at] = choice.draw(st.integers(0, 255))
        cut = choice.draw(st.integers(0, len(data)))
        for each in (bytes(data), bytes(data[:cut])):
            queues = Queues()
            end, count, *_ = speed.fileRecords(each, START, queues, queues.find, ())
            self.assertEqual(count, sum(len(queue.tail) for queue in queues.values()) // 20)
            self.assertEqual(count, len(list(walk(each[:end]))))

    @given(RECORDS, st.data())
    def test_sound(self, made: list[tuple[str, int, bytes, bytes]], choice: Any) -> None:
        """
        No record is called sound that a look at each by itself would not let pass; and
        all are that nothing has happened to.
        """
        assert speed is not None
        data = bytearray(recordsOf(made, V4, V4)[0])
        self.assertEqual(speed.soundRecords(bytes(data), 0, START, LIMIT), len(data))
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
        sound = speed.soundRecords(log, 0, START, LIMIT)
        # A topic that is no text is found out when the records are filed.
        queues = Queues()
        sound = speed.fileRecords(log[:sound], START, queues, queues.find, ())[0]
        self.assertIn(sound, ends)

    def test_soundEnds(self) -> None:
        """
        Before records of another time or kind, too long ones, and where the bytes end.
        """
        assert speed is not None
        one = record()
        size = len(one)
        for other in (
            record(offset=START + size, queueOffset=6, time=TIME + 1),
            record(offset=START + size, sysFlag=TRANSACTION_PREPARED_TYPE),
            record(offset=START + size, properties=b"a\x01b\0c\x02"),
            record(offset=START + size, body=b"x" * 200),
            record(offset=START + size)[:-1],
            encodeBlank(200) + bytes(192),
            b"",
        ):
            self.assertEqual(speed.soundRecords(one + other, 0, START, 150), size)
        self.assertEqual(speed.soundRecords(one + one, size, START, LIMIT), 2 * size)
        self.assertEqual(speed.soundRecords(one, 0, START, size - 1), 0)
        for position in (-1, size + 1):
            self.assertRaises(ValueError, speed.soundRecords, one, position, START, LIMIT)
        self.assertRaises(TypeError, speed.soundRecords, one)

    def test_notOrdinary(self) -> None:
        """
        Halves, messages that wait for their time, blanks, gaps in a queue, and records
        of another place or time are left to others.
        """
        assert speed is not None
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
            queues = Queues()
            filed = speed.fileRecords(ordinary + other, START, queues, queues.find, ())
            self.assertEqual(filed, (len(ordinary), 1, b"", TIME, []), other)
            self.assertEqual(bytes(queues["T", 0].tail), packEntry(START, len(ordinary), 0))

    def test_notFiled(self) -> None:
        """
        What is wrong with queues is told.
        """
        assert speed is not None
        self.assertRaises(TypeError, speed.fileRecords, 1)
        queues = Queues()
        for found in (1 / 2, Queue(filed=None), Queue(tail=None)):  # type: ignore[arg-type]
            self.assertRaises(
                (AttributeError, TypeError),
                *(speed.fileRecords, record(), START, {}, lambda key, found=found: found, ()),
            )
        self.assertRaises(TypeError, speed.fileRecords, record(), START, queues, queues.find, 1)
        self.assertRaises(TypeError, speed.batchRecords, 1)

    @given(st.integers(0, 2**62), st.lists(st.integers(91, 2**31 - 1), max_size=9))
    def test_batchIds(self, offset: int, sizes: list[int]) -> None:
        """
        The ids that the sender of a batch is told.
        """
        assert speed is not None
        self.assertEqual(
            speed.batchIds("7F00", offset, tuple(sizes)),
            batchIdsPlainly("7F00", offset, tuple(sizes)),
        )
        self.assertRaises(TypeError, speed.batchIds, "7F00", offset, sizes)
        self.assertRaises(TypeError, speed.batchIds, "7F00", offset, ("x",))

    def test_crcOfEverySize(self) -> None:
        """
        The checksum of a body is right, however long the body is.
        """
        assert speed is not None
        body = random.Random(7).randbytes(70_000)
        for size in (*range(400), 1023, 1024, 4095, 16_384, 70_000):
            item = encodeItem(body[:size], b"")
            numbers = (0, 0, 0, 0, 0, bytes(8), 0, bytes(8))
            records, _, _ = speed.batchRecords(item, encodeTopic("T"), b"", *numbers)
            self.assertEqual(
                int.from_bytes(records[8:12], "big"), zlib.crc32(body[:size]) & 0x7FFFFFFF
            )

    def collectable(self, count: int, apart: int = 0) -> tuple[bytes, bytes]:
        """
        Records of queue 3 of topic T that are C{apart} bytes from each other, and their
        entries.
        """
        data, listed = b"", b""
        for number in range(count):
            numbers = (3, 0, number, len(data), 0, 1, bytes(8), 1, bytes(8))
            record = encodeRecord(encodeTopic("T"), b"body%d" % number, b"", *numbers)
            listed += packEntry(len(data), len(record), 7)
            data += record + bytes(apart)
        return data, listed

    def collect(self, listed: bytes, source: Any, **changed: Any) -> Any:
        """
        Collect records of queue 3 of topic T.
        """
        assert speed is not None
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
        return speed.collect(listed, source, *(values | changed).values())

    def test_collectFails(self) -> None:
        """
        What a filter raises is raised; what the disk does not give is left to others.
        """
        assert speed is not None
        data, entry = self.collectable(1)
        with self.assertRaises(ZeroDivisionError):
            self.collect(entry, data, matches=lambda hashed: 1 / 0)
        self.assertEqual((data, 1, 1), self.collect(entry, data))
        self.assertIsNone(self.collect(entry, data, matches=lambda hashed: hashed != 7))
        self.assertIsNone(self.collect(entry, data[:-1]))
        self.assertIsNone(self.collect(entry, data, near=1))
        self.assertIsNone(self.collect(entry, data, written=len(data) - 1))
        self.assertIsNone(self.collect(entry, data, largest=len(data) - 1))
        self.assertRaises(TypeError, speed.collect, 1)

    def test_collectEntryNearTheLastNumberDeclines(self) -> None:
        """
        An entry whose offset and size add up to more than a number holds is declined, and
        no byte is read.
        """
        data, listed = self.collectable(1)
        for offset in (2**63 - 1, 2**63 - 100, -1, -(2**63)):
            for size in (91, 100, 0, -1, 0x3FFFFFFE):
                self.assertIsNone(self.collect(listed + packEntry(offset, size, 0), data))

    def test_collectMisfitDeclines(self) -> None:
        """
        A record that is not the one of its entry is declined, whichever bit is wrong in
        what says so; a wrong bit that nothing tells of is not.
        """
        data, listed = self.collectable(2)
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

    def test_collectTrustsBodies(self) -> None:
        """
        The bodies of records from an offset on are not compared with their CRC.
        """
        data, listed = self.collectable(2)
        damaged = data.replace(b"body1", b"bodY1")
        self.assertIsNone(self.collect(listed, damaged))
        self.assertIsNone(self.collect(listed, damaged, checkBelow=len(data) // 2 + 1))
        self.assertEqual((damaged, 2, 2), self.collect(listed, damaged, checkBelow=len(data) // 2))

    def test_collectFromHandle(self) -> None:
        """
        A file that is not mapped gives the same records; one that is too short, or closed,
        none.
        """
        data, listed = self.collectable(300, apart=5)
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

    def test_collectTruncated(self) -> None:
        """
        A mapped file that has become shorter meanwhile, as one whose disk fails: what is
        gone is left to others, as often as it happens, and the process goes on.
        """
        assert speed is not None
        speed.guardBus()
        self.addCleanup(speed.releaseBus)
        data, listed = self.collectable(100)
        with open(self.mktemp(), "w+b") as opened:
            opened.write(data)
            opened.flush()
            mapped = mmap(opened.fileno(), len(data), access=ACCESS_READ)
            self.addCleanup(mapped.close)
            self.assertEqual((data, 100, 100), self.collect(listed, mapped))
            opened.truncate(4096)
            for _ in range(3):
                self.assertIsNone(self.collect(listed, mapped))
                self.assertEqual(1, self.collect(listed[:20], mapped)[1])

    def bus(self, *lines: str) -> subprocess.CompletedProcess[bytes]:
        """
        Run a program in which C{gone()} reads what is not in its file any more.
        """
        program = (
            "import faulthandler, mmap, os, signal, tempfile",
            "from txrocket.compiled import speed",
            "file = tempfile.TemporaryFile()",
            "file.truncate(4096)",
            "mapped = mmap.mmap(file.fileno(), 4096)",
            "file.truncate(0)",
            "gone = lambda: mapped[0]",
            "listed = bytes(8) + (100).to_bytes(4, 'big') + bytes(8)",
            (
                "collect = lambda: speed.collect("
                "listed, mapped, 0, 999, 999, 9, 999, None, b'T', 0, 0, 999, 0)"
            ),
            *lines,
        )
        return subprocess.run(
            [sys.executable, "-c", "\n".join(program)],
            check=False,
            capture_output=True,
            timeout=60,
        )

    def test_busElsewhere(self) -> None:
        """
        Whoever else reads what is gone ends as ever, with the guard and without it.
        """
        guarded = ("speed.guardBus()", "assert collect() is None")
        for lines in (("assert not speed.isGuarded()",), guarded):
            ended = self.bus(*lines, "gone()")
            self.assertEqual(-signal.SIGBUS, ended.returncode, ended.stderr)

    def test_busWithFaulthandler(self) -> None:
        """
        A program that has faulthandler tell of faults, from before or after the guard, is
        told once, and ends.
        """
        enable = "faulthandler.enable()"
        guard, pull = "speed.guardBus()", "assert collect() is None"
        for lines in ((enable, guard, pull), (guard, enable, pull), (guard, pull, enable, pull)):
            ended = self.bus(*lines, "gone()")
            self.assertEqual(-signal.SIGBUS, ended.returncode, ended.stderr)
            told = ended.stderr.count(b"Fatal Python error: Bus error")
            self.assertIn(told, (1, 2, 3), ended.stderr)

    def test_busSentEndsAsEver(self) -> None:
        """
        A SIGBUS that another process sends is not lost: it ends a process that has no
        handler, and reaches one that has.
        """
        sent = "os.kill(os.getpid(), signal.SIGBUS)"
        ended = self.bus("speed.guardBus()", sent, "print('still here')")
        self.assertEqual((-signal.SIGBUS, b""), (ended.returncode, ended.stdout))
        ended = self.bus(
            "signal.signal(signal.SIGBUS, lambda *told: print('heard'))",
            "speed.guardBus()",
            sent,
        )
        self.assertEqual((0, b"heard\n"), (ended.returncode, ended.stdout))

    def test_busReleased(self) -> None:
        """
        The handler that the guard found is back once it is released, unless another was
        set since then.
        """
        state = "print(signal.getsignal(signal.SIGBUS) is own, speed.isGuarded())"
        ended = self.bus(
            "own = lambda *told: print('heard')",
            "signal.signal(signal.SIGBUS, own)",
            "speed.guardBus(); speed.guardBus(); speed.releaseBus(); speed.releaseBus()",
            state,
            "os.kill(os.getpid(), signal.SIGBUS)",
        )
        self.assertEqual((0, b"True False\nheard\n"), (ended.returncode, ended.stdout))

    def test_readableRecords(self) -> None:
        """
        Records are counted up to the first that is damaged, whose body does not match its
        CRC, or that is not there as a whole.
        """
        assert speed is not None
        data, _listed = self.collectable(3)
        size = len(data) // 3
        self.assertEqual(len(data), speed.readableRecords(data))
        self.assertEqual(0, speed.readableRecords(b""))
        for cut in range(size):
            self.assertEqual(2 * size, speed.readableRecords(data[: 2 * size + cut]))
        self.assertEqual(size, speed.readableRecords(data.replace(b"body1", b"bodY1")))
        self.assertEqual(size, speed.readableRecords(data[:size] + bytes(size) + data[-size:]))

    def test_collectScattered(self) -> None:
        """
        So many records that lie apart from each other are left to others.
        """
        for count, expected in ((256, 256), (257, None)):
            data, listed = self.collectable(count, apart=1)
            found = self.collect(listed, data)
            self.assertEqual(expected, found and found[1])
        # One behind the other there may be more.
        data, listed = self.collectable(900)
        self.assertEqual((data, 900, 900), self.collect(listed, data))
        self.assertEqual(300, self.collect(listed, data, most=300)[1])

    def test_sync(self) -> None:
        """
        Files are synced, and those that are gone are left out; an error is told.
        """
        assert speed is not None
        path = self.mktemp()
        with open(path, "wb"):
            pass
        self.assertEqual(0, speed.syncPaths([path, path + "-gone"]))
        os.mkfifo(path + "-pipe")
        self.assertEqual(errno.EINVAL, speed.syncPaths([path, path + "-pipe"]))
        self.assertRaises(OSError, speed.syncPaths, [path, os.path.dirname(path)])
        self.assertRaises(TypeError, speed.syncPaths, 1)
        self.assertRaises(TypeError, speed.syncPaths, [1])
        Files().syncPaths([path])
        self.assertRaises(SyncFailed, Files().syncPaths, [path + "-pipe"])

    def test_slotMissing(self) -> None:
        """
        A table that is too short for its slots is refused.
        """
        assert speed is not None
        pair = PAIR.pack(1, 1)
        for slots, table, dirty in ((50, 100, 50), (50, 200, 4), (0, 200, 50)):
            self.assertRaises(
                ValueError,
                *(speed.indexEntries, pair, 1, slots, 0),
                *(bytearray(table), bytearray(dirty), 10),
            )

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
    def test_index(self, entries: list[list[int]]) -> None:
        """
        The files of an index, slot by slot.
        """
        entries = [each for each in entries if each]
        if entries:
            compiled = self.indexed(entries)
            with patch.object(indexModule, "_entries", entriesPlainly):
                self.assertEqual(self.indexed(entries), compiled)


class ChoiceTests(SynchronousTestCase):
    """
    Whether the compiled helper is used.
    """

    def test_pure(self) -> None:
        """
        An environment may forbid it.
        """
        asked = "from txrocket.compiled import speed; print(speed)"
        said = subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "TXROCKET_PURE": "1"},
            capture_output=True,
            check=True,
        )
        self.assertEqual(said.stdout.strip(), b"None")
