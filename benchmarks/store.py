# SPDX-License-Identifier: Apache-2.0
"""
What the store costs, with bodies of 1 KiB:

  - appending, single messages and batches of 32, beside the least that can be done
    with the same bytes: C{struct.pack_into}, C{crc32}, a copy;
  - getting 32 messages, that lie one behind the other in the log, and that lie
    between those of 31 other topics;
  - starting, with more and more entries in the queues;
  - SYNC_FLUSH with 1, 64 and 512 senders that wait, beside bare C{fdatasync}.

C{python -m benchmarks.store --long} adds a start with 50 million entries.  All
files are made in the current folder, so that the disk is a real one.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from txrocket.bulk import SentMessage
from txrocket.message import Message
from txrocket.protocol.record import (
    MESSAGE_MAGIC_CODE,
    encodeBlank,
    encodeHost,
    encodeProperties,
    encodeRecord,
    encodeTopic,
)
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import FlushDiskType, StoreSettings

HOST = encodeHost("127.0.0.1", 10911)
TIME = 1_700_000_000_000
BODY = bytes(range(256)) * 4
PROPERTIES = encodeProperties({"UNIQ_KEY": "7F0000010B1F18B4AAC2A4E13AB30001", "TAGS": "TagA"})
BATCH = encodeBatch([Message("TopicTest", BODY, tags="TagA")] * 32)
ROUNDS = 7
MESSAGES = 4096
# So many messages come with one read from the network, and are written at once.
GATHERED = 32
SECONDS = 2.0
WAITING = (1, 64, 512)

_PER_FILE = 300_000
_GIB = 1 << 30


def _open(folder: str, **settings: Any) -> tuple[MessageStore, Clock]:
    clock = Clock()
    clock.advance(TIME / 1000)
    store = MessageStore(StoreSettings(folder, **settings), clock, maybeDeferred, HOST)
    store.start()
    return store, clock


def _best(run: Callable[[], object], count: int) -> float:
    """
    CPU microseconds for each of C{count}: the best round, since all noise adds.
    """
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        rounds.append(time.process_time() - start)
    return min(rounds) / count * 1e6


def _floor() -> Callable[[], None]:
    tail = BODY + encodeTopic("TopicTest") + struct.pack(">h", len(PROPERTIES)) + PROPERTIES
    pack = struct.Struct(">5i2qiq8sq8siqi").pack_into
    size = 88 + len(tail)
    buffer = bytearray(size)

    def run() -> None:
        for _ in range(MESSAGES):
            crc = crc32(BODY) & 0x7FFFFFFF
            pack(
                buffer, 0, size, MESSAGE_MAGIC_CODE, crc, 3, 0, 42, 1 << 20, 0,
                TIME, HOST, TIME, HOST, 0, 0, len(BODY),
            )  # fmt: skip
            buffer[88:] = tail

    return run


def _line(what: str, figure: str, more: str = "") -> None:
    print(f"{what:50} {figure:>14}  {more}")


def appends(folder: str) -> None:
    """
    Measure C{put} and C{appendBatch}, with what they cause when the reactor turns.
    """
    store, clock = _open(folder)

    def single() -> None:
        for number in range(MESSAGES):
            store.put("TopicTest", 3, BODY, PROPERTIES, bornTimestamp=TIME, bornHost=HOST)
            if number % GATHERED == GATHERED - 1:
                clock.advance(0)

    sent = SentMessage(None, ("TopicTest", 3), BATCH, b"", TIME)

    def batches() -> None:
        for _ in range(MESSAGES // 32):
            store.appendBatch(sent, HOST)
            clock.advance(0)

    floor = _best(_floor(), MESSAGES)
    filed = _best(single, MESSAGES), _best(batches, MESSAGES)
    # The log alone, as the aim has it: what follows the log is for its readers.
    store.log._wrote = lambda offset, data: None
    bare = _best(single, MESSAGES), _best(batches, MESSAGES)
    store.stop()
    _line("floor: pack_into, crc32, copy", f"{floor:.2f} us")
    for what, cost in (
        ("append, one by one", bare[0]),
        ("append, in batches of 32", bare[1]),
        ("  with queue and index, one by one", filed[0]),
        ("  with queue and index, in batches of 32", filed[1]),
    ):
        aim = "" if what.startswith(" ") else " (aim 3)"
        _line(what, f"{cost:.2f} us", f"{cost / floor:.2f} x floor{aim}")


def gets(folder: str) -> None:
    """
    Measure C{get}.
    """
    store, clock = _open(folder)
    topics = [f"Topic{number}" for number in range(32)]
    for topic in ["Alone"] * MESSAGES + topics * (MESSAGES // 32):
        store.put(topic, 0, BODY, PROPERTIES, bornTimestamp=TIME, bornHost=HOST)
    clock.advance(0)

    def of(names: list[str], count: int) -> Callable[[], None]:
        def run() -> None:
            for name in names:
                for offset in range(0, count, 32):
                    if store.get(name, 0, offset, 32).status is not GetMessageStatus.FOUND:
                        raise AssertionError("the benchmark reads what is not there")

        return run

    # 32 records of 1 KiB and more stay below what one pull may transfer.
    pulls = MESSAGES // 32
    contiguous = _best(of(["Alone"], MESSAGES), pulls)
    interleaved = _best(of(topics, MESSAGES // 32), pulls)
    store.stop()
    _line("get of 32, contiguous", f"{contiguous:.1f} us")
    ratio = f"{interleaved / contiguous:.2f} x contiguous"
    _line("get of 32, between 31 other topics", f"{interleaved:.1f} us", ratio)


def _prepare(folder: str, entries: int) -> None:
    """
    Write the files of a store that was closed: full queues, and a log that has
    only the last record of each, between holes, and two more files after that.
    """
    queue = struct.Struct(">qiq")
    step = _GIB // _PER_FILE
    full = b"".join([queue.pack(number * step, step, 0) for number in range(_PER_FILE)])
    lasts: list[bytes] = []
    offset = _GIB

    def record(topic: str, queueId: int, queueOffset: int, at: int) -> bytes:
        field = encodeTopic(topic)
        return encodeRecord(
            field, BODY, b"", queueId, 0, queueOffset, at, 0, TIME, HOST, TIME, HOST
        )

    def put(topic: str, number: int, data: bytes) -> None:
        path = os.path.join(folder, "consumequeue", topic, str(number))
        os.makedirs(path)
        with open(os.path.join(path, "0" * 20), "wb") as file:
            file.write(data)
            file.truncate(len(full))

    for number, start in enumerate(range(0, entries, _PER_FILE)):
        count = min(entries - start, _PER_FILE)
        lasts.append(record("Full", number, count - 1, offset))
        size = len(lasts[-1])
        put("Full", number, full[: (count - 1) * 20] + queue.pack(offset, size, 0))
        offset += size
    two = [record("Last", 0, 0, 2 * _GIB), record("Last", 0, 1, 3 * _GIB)]
    put("Last", 0, b"".join([queue.pack((n + 2) * _GIB, len(two[n]), 0) for n in (0, 1)]))
    os.mkdir(os.path.join(folder, "commitlog"))
    for number, data in enumerate((b"", b"".join(lasts), *two)):
        path = os.path.join(folder, "commitlog", f"{number * _GIB:020d}")
        with open(path, "wb") as file:
            file.write(data)
            if number < 3:
                file.write(encodeBlank(_GIB - len(data)))
            file.truncate(_GIB)


def starts(folder: str, millions: list[int]) -> None:
    """
    Measure C{start} after a clean stop.
    """
    for million in millions:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            _prepare(root, million * 1_000_000)
            # The start syncs a folder, and would wait for all of this as well.
            os.sync()
            start = time.perf_counter()
            store, _ = _open(root)
            elapsed = time.perf_counter() - start
            if store.maxOffset("Full", 0) != _PER_FILE or store.maxOffset("Last", 0) != 2:
                raise AssertionError("the benchmark's files are not as the store wants them")
            store.stop()
            _line(f"start with {million} million queue entries", f"{elapsed * 1e3:.1f} ms")


def raw(folder: str) -> float:
    """
    How many times a second 1 KiB can be written and synced.
    """
    handle = os.open(os.path.join(folder, "raw"), os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(handle, 0, 64 << 20)
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS / 4:
        os.pwrite(handle, BODY, count * len(BODY))
        os.fdatasync(handle)
        count += 1
    os.close(handle)
    return count / (time.perf_counter() - start)


def waiting(folder: str, senders: int) -> None:
    """
    Have senders wait for the disk, each sending its next message once the one
    before is safe, with the real reactor and a real thread.  It is run in a
    process of its own, since a reactor runs only once, and prints messages a
    second.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.threads import deferToThreadPool
    from twisted.python.threadpool import ThreadPool

    reactor: Any = anyReactor
    pool = ThreadPool(1, 1)
    settings = StoreSettings(folder, flushDiskType=FlushDiskType.SYNC_FLUSH)
    store = MessageStore(settings, reactor, lambda job: deferToThreadPool(reactor, pool, job), HOST)
    count = 0
    ending = False

    def send(_: object = None) -> None:
        nonlocal count
        count += 1
        if not ending:
            placed = store.put("TopicTest", 0, BODY, b"", bornTimestamp=TIME, bornHost=HOST)
            store.stored(placed.end).addCallback(send)

    def end() -> None:
        nonlocal ending
        ending = True
        print(json.dumps((count - senders) / (time.perf_counter() - began)), flush=True)
        store.stop().addBoth(close)

    def close(_: object) -> None:
        pool.stop()
        reactor.stop()

    pool.start()
    store.start()
    began = time.perf_counter()
    for _ in range(senders):
        reactor.callWhenRunning(send)
    reactor.callLater(SECONDS, end)
    reactor.run()


def flushes(folder: str) -> None:
    """
    Measure SYNC_FLUSH.
    """
    # The best of three, since a neighbour's write may stop the disk for long.
    bare = max(raw(folder) for _ in range(3))
    _line("1 KiB and fdatasync, bare", f"{bare:,.0f} /s")
    one = 0.0
    for senders in WAITING:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            program = [sys.executable, "-m", "benchmarks.store", "waiting", root, str(senders)]
            rate = float(subprocess.check_output(program))
        one = one or rate
        aim = " (aim 20)" if senders == 64 else ""
        more = f"{rate / bare:.2f} x bare, {rate / one:.1f} x one{aim}"
        _line(f"SYNC_FLUSH, {senders} waiting", f"{rate:,.0f} /s", more)


def main(*, long: bool = False) -> None:
    """
    Measure, and print one line for each.
    """
    print("store, bodies of 1 KiB; CPU of the process, or messages a second")
    for measure in (appends, gets, flushes):
        with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
            measure(folder)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        starts(folder, [1, 10, 50] if long else [1, 10])


if __name__ == "__main__":
    if sys.argv[1:2] == ["waiting"]:
        waiting(sys.argv[2], int(sys.argv[3]))
    else:
        main(long="--long" in sys.argv[1:])
