# SPDX-License-Identifier: Apache-2.0
"""
The costs of records: microseconds for each of the hot operations, and their ratio to the
bare minimum in the same run: C{struct.pack_into}, C{zlib.crc32} and a copy of the same
bytes.  Run it with C{python -m benchmarks.record}.
"""

from __future__ import annotations

import struct
import timeit
import zlib
from collections.abc import Callable

from txrocket.bulk import BatchRecords, batchRecords
from txrocket.message import Message
from txrocket.protocol.javahash import javaHash, tagsCode
from txrocket.protocol.messageid import UniqueIds, encodeMessageId
from txrocket.protocol.record import (
    MESSAGE_MAGIC_CODE,
    decodeRecord,
    decodeRecords,
    encodeHost,
    encodeProperties,
    encodeRecord,
    encodeTopic,
)
from txrocket.protocol.record.batch import encodeBatch

TIME = 1700000000123
HOST = encodeHost("127.0.0.1", 10911)
TOPIC = encodeTopic("TopicTest")
KEY = "7F0000010B1F18B4AAC2A4E13AB30001"
PROPERTIES = encodeProperties(
    {
        "UNIQ_KEY": KEY,
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TAGS": "TagA",
        "TRACE_ON": "true",
    }
)
BODY = bytes(range(256)) * 4
COUNT = 100


def _append() -> bytes:
    return encodeRecord(TOPIC, BODY, PROPERTIES, 3, 0, 42, 1 << 30, 0, TIME, HOST, TIME, HOST, 0, 0)


def _minimum(record: bytes, body: bytes) -> Callable[[], None]:
    """
    The floor: pack the head into a buffer, checksum the body, copy the rest.
    """
    packInto = struct.Struct(">5i2qiq8sq8siqi").pack_into
    buffer = bytearray(len(record))
    tail = record[88:]

    def run() -> None:
        crc = zlib.crc32(body) & 0x7FFFFFFF
        packInto(
            buffer, 0, len(record), MESSAGE_MAGIC_CODE, crc, 3, 0, 42, 1 << 30, 0,
            TIME, HOST, TIME, HOST, 0, 0, len(body),
        )  # fmt: skip
        buffer[88:] = tail

    return run


def _time(run: Callable[[], object], number: int) -> float:
    """
    Microseconds for one call: the best of several rounds, because noise only adds time.
    """
    return min(timeit.repeat(run, number=number, repeat=9)) / number * 1e6


def main() -> None:
    """
    Measure, and print one line for each.
    """
    record = _append()
    pulled = record * 32
    small = BODY[:100]
    batch = encodeBatch(
        [Message("TopicTest", small, tags="TagA", properties={"UNIQ_KEY": KEY})] * COUNT
    )

    def append() -> BatchRecords:
        return batchRecords(
            batch, TOPIC, b"CLUSTER\x01c", 3, 42, 1 << 30, 0, TIME, HOST, TIME, HOST
        )

    floor = _time(_minimum(record, BODY), 20000)
    smallFloor = _time(_minimum(bytes(append()[1][0]), small), 20000)
    ids = UniqueIds(bytes(4), 1, 1, lambda: TIME, lambda time: time - 1000)

    def line(what: str, cost: float, against: float = 0.0) -> None:
        ratio = f"{cost / against:5.2f} x floor" if against else ""
        print(f"{what:44} {cost:7.3f} us  {ratio}")

    line("floor: pack_into, crc32, copy, 1 KiB", floor)
    line("append: encodeRecord, 1 KiB", _time(_append, 20000), floor)
    line("floor, 100 B", smallFloor)
    line("batch of 100 x 100 B, per message", _time(append, 200) / COUNT, smallFloor)
    lazy = _time(lambda: decodeRecords(pulled), 500) / 32
    line("pull of 32 x 1 KiB, lazy, per message", lazy, floor)
    full = _time(lambda: [m.properties for m in decodeRecords(pulled)], 500) / 32
    line("the same with properties split", full, floor)
    checked = _time(lambda: decodeRecords(pulled, checkCrc=True), 500) / 32
    line("the same with CRC, lazy", checked, floor)
    line("one record without body", _time(lambda: decodeRecord(record, readBody=False), 20000))
    line("javaHash, 42 characters", _time(lambda: javaHash("TopicTest#" + KEY), 20000))
    line("javaHash, 32 characters after a prefix", _time(lambda: javaHash(KEY, 12345), 20000))
    line("tagsCode, known tag", _time(lambda: tagsCode("TagA"), 20000))
    line("encodeMessageId", _time(lambda: encodeMessageId(HOST, 1 << 30), 20000))
    line("UniqueIds", _time(ids, 20000))


if __name__ == "__main__":
    main()
