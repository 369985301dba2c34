# SPDX-License-Identifier: Apache-2.0
"""
Torn and damaged files: whatever byte at the end of a file is wrong, the store
starts, serves everything before it, and nothing that is wrong.

Each case is the folder of a store that crashed, or stopped, with one byte changed
or everything from one byte on zeroed, and there is a case for every byte of::

    the last two records of the log     for several kinds of records
    the last entries of the queues      those that no checkpoint vouches for, and
                                        after a clean stop the very last ones
    the index's header
    the checkpoint                      Java's times and our own part
    each table
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import attrs
from twisted.internet.task import Clock

from tests.store.disk import Disk
from tests.store.ledger import HOST_V6, ROOT, SMALL, START, Ledger, Sent, SweepTestCase, opened
from txrocket.errors import MalformedBody
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecord
from txrocket.store.jsontable import TABLES, Table, sealed
from txrocket.store.messagestore import MessageStore

# Whether each byte is damaged in all ways.
ALL = bool(os.environ.get("TXROCKET_ALL_DAMAGES"))

SETTINGS = attrs.evolve(SMALL, mappedFileSizeCommitLog=2048)

Put = Callable[[Ledger, MessageStore], object]

# The last two of each log.
TAILS: dict[str, Put] = {
    "tags and keys": lambda ledger, store: (
        ledger.put(store, "TopicA", 0, b"first" * 5, tag="red", keys=("k1", "k2")),
        ledger.put(store, "TopicB", 1, b"second" * 5, tag="green", keys=("k1",)),
    ),
    "a batch": lambda ledger, store: ledger.appendBatch(
        store, "TopicA", 0, [b"one", b""], tag="red"
    ),
    "IPv6 and an empty body": lambda ledger, store: (
        ledger.put(store, "TopicB", 0, b"six" * 9, bornHost=HOST_V6, keys=("k6",)),
        ledger.put(store, "TopicA", 1, b"", bornHost=HOST_V6),
    ),
    "a large body": lambda ledger, store: (
        ledger.put(store, "TopicA", 0, bytes(range(256)) * 3, keys=("large",)),
        ledger.put(store, "TopicA", 0, b"x", keys=("small",)),
    ),
}


def _fill(ledger: Ledger, store: MessageStore) -> None:
    """
    Put records of all kinds, over several segments.
    """
    for number in range(2):
        ledger.put(store, "TopicA", 0, b"%d" % number * 100, tag="red", keys=("k1",))
        ledger.put(store, "TopicB", 1, b"", tag="green")
        ledger.put(store, "TopicB", 0, b"v6" * 30, bornHost=HOST_V6, keys=("k6",))
        ledger.appendBatch(store, "TopicA", 1, [b"in", b"a", b"batch"])
        ledger.put(store, "TopicA", 0, bytes(1200), keys=("zeros", "k1"))
        store.write()


def _store(disk: Disk) -> tuple[MessageStore, Clock]:
    clock = Clock()
    clock.advance(START)
    disk.now = START
    return opened(disk, clock, settings=SETTINGS), clock


def crashed(tail: Put) -> tuple[Disk, Ledger]:
    """
    A folder whose store ended without a word, the tail after the last
    checkpoint.
    """
    disk, ledger = Disk(), Ledger()
    store, clock = _store(disk)
    _fill(ledger, store)
    clock.advance(7)
    store.checkpointer.checkpoint()
    tail(ledger, store)
    store.write()
    disk.kill()
    return disk.copy(), ledger


def stopped(tail: Put) -> tuple[Disk, Ledger]:
    """
    A folder whose store was stopped.
    """
    disk, ledger = Disk(), Ledger()
    store, _ = _store(disk)
    _fill(ledger, store)
    tail(ledger, store)
    store.stop()
    assert "abort" not in disk.names(ROOT)
    return disk.copy(), ledger


def damages(disk: Disk, path: str, begin: int, end: int) -> Iterator[tuple[int, str, Disk]]:
    """
    A disk for every byte of a stretch of a file: the byte is another one, by one
    bit or by all, or it and all that follow are zero.  The three take turns, unless
    L{ALL} are wanted.
    """
    whole = bytes(disk.file(path).data)
    for at in range(begin, end):
        cases = (
            ("one bit", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]),
            ("all bits", whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]),
            ("cut", whole[:at] + bytes(len(whole) - at)),
        )
        for what, data in cases if ALL else (cases[at % len(cases)],):
            if data != whole:
                damaged = disk.copy()
                damaged.file(path).data[:] = data
                yield at, f"{path}, byte {at}, {what}", damaged


class CrashTests(SweepTestCase):
    """
    Damage to the ends of files.
    """

    def goesOn(self, disk: Disk, ledger: Ledger, damaged: tuple[Sent, ...] = ()) -> None:
        """
        A store on a damaged disk serves what it must, takes messages, and serves
        all of it after another crash and after a stop.

        @param damaged: the messages that may be gone.
        """
        log = b"".join(bytes(disk.file(path).data) for path in disk.paths(f"{ROOT}/commitlog"))
        later = Ledger.of(ledger)
        gone = {each.offset for each in damaged}
        later.sent = [each for each in later.sent if each.offset not in gone]
        store = _store(disk)[0]
        self.onDisk(later.check(store, others=True), log)
        for topic, queueId in (("TopicA", 0), ("TopicB", 1)):
            sent = later.put(store, topic, queueId, b"later", keys=("k1", "later"))
            store.write()
            self.assertTrue(sent.stored)
        disk.kill()
        store = _store(disk)[0]
        later.check(store, others=True)
        store.stop()
        later.check(_store(disk)[0], others=True)

    def onDisk(self, served: Iterable[MessageExt], log: bytes) -> None:
        """
        What is served of damaged records, if anything, is what the disk holds:
        a record whose lengths, magic code, place and body's CRC are right.  The
        format has no checksum over the rest of its fields, its topic and its
        properties, so that a change there cannot be told from another message.
        """
        for record in served:
            place = record.commitLogOffset
            data = log[place : place + record.storeSize]
            self.assertEqual(record, decodeRecord(data, checkCrc=True))

    def lastTwo(self, name: str) -> None:
        disk, ledger = crashed(TAILS[name])
        last = tuple(ledger.sent[-2:])
        path = disk.paths(f"{ROOT}/commitlog")[-1]
        base = int(path[-20:])
        self.assertGreaterEqual(last[0].offset, base)
        end = last[1].offset + last[1].size - base
        for at, what, damaged in damages(disk, path, last[0].offset - base, end):
            hit = last if at + base < last[1].offset else last[1:]
            with self.saying(what):
                self.goesOn(damaged, ledger, hit)

    @contextmanager
    def saying(self, what: str) -> Iterator[None]:
        """
        Name the case that fails.
        """
        try:
            yield
        except Exception as error:
            raise self.failureException(f"{what}: {error!r}") from error

    def test_tagsAndKeys(self) -> None:
        """
        The last two records of the log: with tags and keys.
        """
        self.lastTwo("tags and keys")

    def test_damagedBatchLosesNothingElse(self) -> None:
        """
        The last two records of the log: a batch.
        """
        self.lastTwo("a batch")

    def test_damagedV6RecordLosesNothingElse(self) -> None:
        """
        The last two records of the log: IPv6 addresses, one with an empty body.
        """
        self.lastTwo("IPv6 and an empty body")

    def test_damagedLargeRecordLosesNothingElse(self) -> None:
        """
        The last two records of the log: a body over several sectors.
        """
        self.lastTwo("a large body")

    def test_damagedEntriesAreMadeAgain(self) -> None:
        """
        After a crash, entries that were written since the last checkpoint are
        made from the log again, whatever they look like.
        """
        disk, ledger = crashed(TAILS["tags and keys"])
        for sent in ledger.sent[-2:]:
            path = f"{ROOT}/consumequeue/{sent.topic}/{sent.queueId}/{0:020d}"
            begin = sent.queueOffset * 20
            for _, what, damaged in damages(disk, path, begin, begin + 20):
                with self.saying(what):
                    self.goesOn(damaged, ledger)

    def test_queuesAfterStop(self) -> None:
        """
        After a clean stop, a queue's last entry that was cut or does not agree
        with the log is made anew.
        """
        disk, ledger = stopped(TAILS["tags and keys"])
        for path in disk.paths(f"{ROOT}/consumequeue"):
            # Without its tag's hash an entry may end in zeros, but none is empty.
            end = -(-len(bytes(disk.file(path).data).rstrip(b"\0")) // 20) * 20
            for _, what, damaged in damages(disk, path, end - 20, end):
                with self.saying(what):
                    self.goesOn(damaged, ledger)

    def test_damagedIndexHeaderIsIgnored(self) -> None:
        """
        The index's header is not needed, after a crash or a stop: all keys are
        found whatever it says.
        """
        for disk, ledger in (crashed(TAILS["a batch"]), stopped(TAILS["a batch"])):
            path = disk.paths(f"{ROOT}/index")[-1]
            for _, what, damaged in damages(disk, path, 0, 40):
                if what.endswith("cut"):
                    # A cut that reaches the slots is no damage of the header.
                    data = damaged.file(path).data
                    data[40:] = disk.file(path).data[40:]
                with self.saying(what):
                    self.goesOn(damaged, ledger)

    def test_damagedCheckpointIsNotTrusted(self) -> None:
        """
        Neither Java's times nor our own part of the checkpoint is trusted alone.
        """
        for disk, ledger in (crashed(TAILS["a batch"]), stopped(TAILS["a batch"])):
            path = f"{ROOT}/checkpoint"
            for _, what, damaged in damages(disk, path, 0, 128):
                with self.saying(what):
                    self.goesOn(damaged, ledger)

    def test_damagedTableIsReplaced(self) -> None:
        """
        A table that is damaged anywhere is replaced by the one before, unless the damage
        is one bit of its checksum.
        """
        old, new = b'{"number":1,"topics":{}}', b'{"number":2,"topics":{"TopicA":{"perm":6}}}'
        for name in TABLES:
            disk = Disk()
            path = f"{ROOT}/config/{name}"
            Table(disk, path).save(old)
            table = Table(disk, path)
            table.load(_decode)
            table.save(new)
            for _, what, damaged in damages(disk.copy(), path, 0, len(sealed(new))):
                with self.saying(what):
                    self._checkTable(damaged, path, old, new)

    def _checkTable(self, disk: Disk, path: str, old: bytes, new: bytes) -> None:
        data = bytes(disk.file(path).data)
        whole = sealed(new)
        differing = [at for at in range(len(whole)) if data[at] != whole[at]]
        self.assertNotEqual([], differing)
        # The name of the checksum, and its digits.
        own = {*range(len(new) + 1, len(new) + 14), *range(len(new) + 17, len(new) + 25)}
        spared = (
            len(differing) == 1
            and differing[0] in own
            and (data[differing[0]] ^ whole[differing[0]]) == 1
        )
        self.assertEqual(Table(disk, path).load(_decode), new if spared else old)
        table = Table(disk, path)
        table.load(_decode)
        table.save(new)
        self.assertEqual(Table(disk, path).load(_decode), new)


def _decode(data: bytes) -> bytes:
    try:
        json.loads(data)
    except ValueError as error:
        raise MalformedBody(str(error)) from None
    return data
