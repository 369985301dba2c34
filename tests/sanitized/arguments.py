# SPDX-License-Identifier: Apache-2.0
"""
Valid arguments for every function of the compiled module, by chance.

L{ARGUMENTS} has a maker for each, by its name.  A maker takes the chance and gives a list.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from mmap import mmap
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import Any, Final

from tests.bulk.support import START, TIME, V4, V6, Queue, Queues, item, record
from tests.sanitized.mutation import damaged
from txrocket.bulk import PAIR, SentMessage
from txrocket.protocol.record import encodeTopic
from txrocket.store.queue.entry import packEntry

TOPICS: Final = ("T", "topic-of-some-length", "Ü", "主题🚀")
_NAMES: Final = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"k", b"DELAY")
_VALUES: Final = (b"a", b"a b  c", b"true", "中文".encode(), b"\xff", b"7F00" * 8, b"")
_SYNCED = NamedTemporaryFile(prefix="txrocket-fuzz-")  # noqa: SIM115
# A file of the log, which begins at an offset.
_BASE: Final = 4096
_LOG_SIZE: Final = 64 * 1024
_OPENED = TemporaryFile()  # noqa: SIM115
_OPENED.truncate(_LOG_SIZE)
_LOG: Final = mmap(_OPENED.fileno(), _LOG_SIZE)


def properties(chance: random.Random) -> bytes:
    """
    Properties of a message.
    """
    pairs = range(chance.randrange(5))
    text = b"\x02".join(chance.choice(_NAMES) + b"\x01" + chance.choice(_VALUES) for _ in pairs)
    return text + chance.choice((b"", b"\x02"))


def _host(chance: random.Random) -> bytes:
    return chance.choice((V4, V4, V6))


def _records(chance: random.Random) -> bytes:
    data, numbers = b"", dict[tuple[str, int], int]()
    for _ in range(chance.randrange(1, 8)):
        key = chance.choice(TOPICS), chance.randrange(3)
        numbers[key] = numbers.get(key, 4) + 1
        data += record(
            *(*key, chance.randbytes(chance.randrange(90)), properties(chance)),
            *(numbers[key], START + len(data), chance.choice((0, 0, 0, 1, 4, 8)), TIME),
            *(_host(chance), _host(chance)),
        )
    return data


def _batchRecords(chance: random.Random) -> list[Any]:
    items = [
        item(chance.randbytes(chance.randrange(200)), properties(chance))
        for _ in range(chance.randrange(6))
    ]
    numbers = [chance.randrange(4), 5, START, 0, TIME]
    return [
        *(b"".join(items), encodeTopic(chance.choice(TOPICS)), properties(chance), *numbers),
        *(_host(chance), TIME, _host(chance), 3),
    ]


def _suspect(chance: random.Random) -> list[Any]:
    pieces = [chance.choice((b"x", b"\0", bytes(15), bytes(16), b"ab")) for _ in range(6)]
    return [b"".join(pieces), [len(each) for each in pieces]]


def _checkRecords(chance: random.Random) -> list[Any]:
    return [_records(chance), 0, START, 1 << 20]


def _readRecords(chance: random.Random) -> list[Any]:
    queues = Queues()

    def held(key: tuple[str, int]) -> Queue:
        found = queues.find(key)
        # Its tail cannot grow while somebody looks at it.
        queues["held", 0] = memoryview(found.tail)  # type: ignore[assignment]
        return found

    def emptied(key: tuple[str, int]) -> Queue:
        queues.clear()
        return Queue()

    def failing(key: tuple[str, int]) -> Queue:
        raise KeyError(key)

    find = chance.choice((queues.find, queues.find, queues.find, held, emptied, failing))
    return [_records(chance), 0, START, queues, find, chance.choice((None, (), {("T", 1)}))]


def _indexEntries(chance: random.Random) -> list[Any]:
    pairs = [PAIR.pack(chance.randrange(2**31), chance.randrange(2**63)) for _ in range(9)]
    table = bytearray(chance.randbytes(4 * 16))
    return [b"".join(pairs), chance.randrange(1, 60), 16, 7, table, bytearray(4), 4]


def _log(chance: random.Random) -> tuple[bytes, bytes]:
    """
    Records of one queue among others, and its entries.
    """
    data, entries, number = b"", b"", 4
    for _ in range(chance.choice((1, 3, 9, 40))):
        offset = _BASE + len(data)
        if chance.randrange(4) == 0:
            data += record("other", 0, b"x" * chance.randrange(40), offset=offset)
            continue
        number += 1
        body = chance.randbytes(chance.randrange(90))
        one = record("T", 1, body, properties(chance), number, offset, bornHost=_host(chance))
        entries += packEntry(offset, len(one), chance.randrange(3))
        data += one
    return data, entries


def _collectRecords(chance: random.Random) -> list[Any]:
    data, entries = _log(chance)
    if chance.randrange(3) == 0:
        data = damaged(data, chance)
    _LOG[: len(data)] = data
    source = chance.choice((_LOG, _LOG, _OPENED.fileno(), data))
    matches = chance.choice((None, None, lambda hashed: hashed != 1, lambda hashed: 1 // hashed))
    written = _BASE + len(data)
    most, mostBytes = chance.choice((1, 32, 1000)), chance.choice((90, 9000))
    return [
        *(entries, source, _BASE, written, chance.choice((500, _LOG_SIZE)), most, mostBytes),
        *(matches, b"T", 1, 5, 4 << 20, chance.choice((0, written))),
    ]


def _readableRecords(chance: random.Random) -> list[Any]:
    return [_records(chance)]


def _nothing(chance: random.Random) -> list[Any]:
    return []


def _syncPaths(chance: random.Random) -> list[Any]:
    return [[_SYNCED.name, _SYNCED.name + "-gone"][: chance.randrange(3)]]


def _messageIds(chance: random.Random) -> list[Any]:
    return ["7F0000010000", START, tuple(chance.randrange(91, 2**31) for _ in range(5))]


def _header(code: int, fields: dict[str, str], chance: random.Random) -> bytes:
    head = {
        "code": code,
        "extFields": fields,
        "flag": chance.choice((0, 0, 2)),
        "language": "JAVA",
        "opaque": chance.randrange(-(2**31), 2**31),
        "serializeTypeCurrentRPC": "JSON",
        "version": 401,
    }
    ascii = chance.random() < 0.5
    return json.dumps(head, separators=(",", ":"), ensure_ascii=ascii).encode()


def _binary(code: int, fields: dict[str, str], chance: random.Random) -> bytes:
    data = b"".join(
        struct.pack(">H", len(name)) + name.encode() + struct.pack(">i", len(text.encode()))
        + text.encode()
        for name, text in fields.items()
    )  # fmt: skip
    return struct.pack(">hbhiiii", code, 0, 401, chance.randrange(2**31), 0, 0, len(data)) + data


def _frame(header: bytes, body: bytes, binary: bool) -> bytes:
    return (
        struct.pack(">iI", 4 + len(header) + len(body), binary << 24 | len(header)) + header + body
    )


def _sends(chance: random.Random, code: int, binary: bool) -> bytes:
    frames = b""
    for _ in range(chance.randrange(1, 5)):
        text = properties(chance).decode("utf-8", "replace")
        values = ("P", chance.choice(TOPICS[:2]), "TBW", "4", str(chance.randrange(4)), "0", "7")
        fields = dict(zip("abcdefg", values, strict=True)) | {"h": "0", "i": text, "j": "0"}
        fields |= {"k": "false", "l": "0", "m": "false"}
        fields = {name: value for name, value in fields.items() if value}
        make = _binary if binary else _header
        body = item(b"one", b"") + item(b"other", b"") if code == 320 else chance.randbytes(20)
        frames += _frame(make(code, fields, chance), body, binary)
    return frames


def _decodeSends(chance: random.Random) -> list[Any]:
    batch, binary = chance.random() < 0.3, chance.random() < 0.4
    known = {each.encode(): tuple((each, queue) for queue in range(4)) for each in TOPICS}
    data = _sends(chance, 320 if batch else 310, binary)
    before = chance.choice((b"", b"other"))
    calls = [(None, _host(chance), before + data, len(before), len(before) + len(data))]
    if chance.random() < 0.5:
        more = _sends(chance, 320 if batch else 310, chance.random() < 0.5)
        calls.append((None, _host(chance), more, 0, len(more)))
    return [calls, known, b"CLUSTER\x01c", batch]


def _decodePulls(chance: random.Random) -> list[Any]:
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "7",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "subVersion": "9",
        "suspendTimeoutMillis": "15000",
        "subscription": "a || b",
        "expressionType": "TAG",
    }
    data = b"".join(_frame(_header(11, fields, chance), b"", False) for _ in range(3))
    return [data, 0, len(data)]


def _sent(chance: random.Random) -> tuple[Any, ...]:
    key = chance.choice(TOPICS), chance.randrange(3)
    opaque = chance.choice((None, 1, -1, 2**31 - 1))
    text = properties(chance)
    return opaque, key, chance.randbytes(chance.randrange(99)), text, TIME, 1, 0, 0, 99


def _encodeRecords(chance: random.Random) -> list[Any]:
    sends = [_sent(chance) for _ in range(chance.randrange(6))]
    fields = {each: encodeTopic(each) for each in TOPICS}
    nexts = {("T", 0): 5, ("Ü", 1): 2**62}
    hosts = [_host(chance) for _ in sends]
    return [sends, fields, nexts, START, START + 600, 80, TIME, hosts, _host(chance)]


def _splitFrames(chance: random.Random) -> list[Any]:
    data = _sends(chance, 310, False) + _sends(chance, 320, True) + chance.randbytes(7)
    return [data, chance.choice((1 << 22, 300)), chance.choice((1 << 22, 200))]


def _encodeSendResponses(chance: random.Random) -> list[Any]:
    sends = [SentMessage(*_sent(chance)) for _ in range(chance.randrange(6))]
    puts = [(each[1], 5, START, 91) for each in sends[: chance.randrange(7)]]
    owners: list[tuple[int, int]] = []
    left = len(sends)
    while left:
        owners.append((len(owners), chance.randint(1, left)))
        left -= owners[-1][1]
    head, tail = b'{"code":0,"extFields":{"msgId":"7F', b',"version":401}'
    return [sends, puts, owners, head, tail, chance.random() < 0.5]


def _encodeHeads(chance: random.Random) -> list[Any]:
    count = chance.randrange(5)
    values = (0, -1, 2**63 - 1, -(2**63), "", "7F00,7F01", "ü" * chance.randrange(99))
    pieces = tuple(chance.randbytes(chance.randrange(9)) for _ in range(count + 1))
    rows = [
        (*(chance.choice(values) for _ in range(count)), chance.choice((0, 1, 2**24)))
        for _ in range(chance.randrange(6))
    ]
    return [pieces, rows]


ARGUMENTS: Final[dict[str, Callable[[random.Random], list[Any]]]] = {
    "batchRecords": _batchRecords,
    "suspect": _suspect,
    "checkRecords": _checkRecords,
    "readRecords": _readRecords,
    "indexEntries": _indexEntries,
    "collectRecords": _collectRecords,
    "readableRecords": _readableRecords,
    "guardBus": _nothing,
    "isGuarded": _nothing,
    "releaseBus": _nothing,
    "syncPaths": _syncPaths,
    "messageIds": _messageIds,
    "decodeSends": _decodeSends,
    "decodePulls": _decodePulls,
    "encodeRecords": _encodeRecords,
    "encodeHeads": _encodeHeads,
    "encodeSendResponses": _encodeSendResponses,
    "splitFrames": _splitFrames,
}
