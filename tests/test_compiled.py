# SPDX-License-Identifier: Apache-2.0
"""
Tests for the compiled helper: what it does is what the functions in Python do, whose
own tests say what that is.  They are skipped where it was not built.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.compiled import speed
from txrocket.errors import RocketError
from txrocket.protocol import batch as batchModule
from txrocket.protocol.batch import batchRecords
from txrocket.protocol.record import encodeTopic
from txrocket.store import index as indexModule
from txrocket.store.files import Files, Handles
from txrocket.store.follow import filed, filePlainly, queueEntriesPlainly
from txrocket.store.index import Index
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


PUTS = st.lists(
    st.tuples(TOPICS, st.integers(0, 2), st.integers(91, 2**31 - 1), PROPERTIES, st.booleans()),
    max_size=30,
)


def putsOf(made: list[tuple[str, int, int, bytes, bool]]) -> list[Any]:
    """
    Messages as the store puts them, queue by queue without a gap.
    """
    numbers: dict[tuple[str, int], int] = {}
    puts: list[Any] = []
    offset = 1 << 40
    for topic, queueId, size, properties, known in made:
        key = topic, queueId
        number = numbers.get(key, 5)
        numbers[key] = number + 1
        filing = filed(properties) if known else None
        puts.append((key, number, offset, size, properties, filing))
        offset += size
    return puts


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

    @given(PUTS)
    def test_file(self, made: list[tuple[str, int, int, bytes, bool]]) -> None:
        """
        What messages are filed by, and the entries of their queues.
        """
        assert speed is not None
        puts = putsOf(made)
        hashes, entries = filePlainly(puts)
        self.assertEqual(speed.file(puts), (hashes, entries))
        self.assertEqual(speed.queueEntries(puts, hashes), queueEntriesPlainly(puts, hashes))

    def test_due(self) -> None:
        """
        Times of delivery, which are longer than hashes, stand in entries as well.
        """
        assert speed is not None
        puts = putsOf([("T", 0, 100, b"", False)])
        hashes = [1_700_000_000_123]
        self.assertEqual(speed.queueEntries(puts, hashes), queueEntriesPlainly(puts, hashes))

    def test_gap(self) -> None:
        """
        Messages of a queue that do not follow each other are none of a turn's.
        """
        assert speed is not None
        puts = [(("T", 0), number, number, 100, b"", None) for number in (1, 3)]
        self.assertRaises(ValueError, speed.queueEntries, puts, [0, 0])

    def test_notMessages(self) -> None:
        """
        What is no list is refused.
        """
        assert speed is not None
        self.assertRaises(TypeError, speed.file, ())
        self.assertRaises(TypeError, speed.queueEntries, (), ())
        self.assertRaises(TypeError, speed.batchRecords, 1)
        self.assertRaises(
            ValueError, speed.indexEntries, [(1, 1)], 1, 50, 0, {}, {}, bytearray(100)
        )

    def indexed(self, entries: list[list[int]]) -> tuple[list[bytes], list[Any]]:
        """
        What is in the files of an index, and found in it.
        """
        self.patch(indexModule, "_READS", 0)
        folder = self.mktemp()
        handles = Handles(Files())
        index = Index(handles, folder, 13, 40, lambda: 1_000_000)
        offset = 0
        seen = []
        for number, hashes in enumerate(entries):
            index.add([(each, offset + place) for place, each in enumerate(hashes)], number * 900)
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
            with patch.object(indexModule, "speed", None):
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
