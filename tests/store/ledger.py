# SPDX-License-Identifier: Apache-2.0
"""
What was put into a store and what was said about it, to hold the store to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from functools import partial

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.disk import Disk
from txrocket.bulk import SentMessage
from txrocket.errors import MalformedRecord
from txrocket.message import Message, MessageExt
from txrocket.protocol.record import decodeRecord, decodeRecords, encodeHost, encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import FlushDiskType, StoreSettings

__all__ = [
    "EVER",
    "HOST",
    "HOST_V6",
    "ROOT",
    "SMALL",
    "START",
    "HeldThreads",
    "Ledger",
    "Sent",
    "SweepTestCase",
    "Violation",
    "opened",
]

ROOT = "/store"
HOST = encodeHost("127.0.0.1", 10911)
HOST_V6 = encodeHost("2001:db8::7", 10911)
START = 1_700_000_000.0
EVER = 1 << 62

# So small that a few messages fill segments, queue files and index files, and so
# large that each but the first queue file spans several sectors.
SMALL = StoreSettings(
    ROOT,
    mappedFileSizeCommitLog=4096,
    mappedFileSizeConsumeQueue=20 * 32,
    maxHashSlotNum=20,
    maxIndexNum=40,
    maxMessageSize=3000,
    flushDiskType=FlushDiskType.SYNC_FLUSH,
)


class SweepTestCase(SynchronousTestCase):
    """
    Tests of thousands of cases each.  What they reach is not measured: that
    would take three times as long, and other tests reach it, too.
    """

    def setUp(self) -> None:
        """
        Stop measuring for the time of a test.
        """
        self.addCleanup(sys.settrace, sys.gettrace())
        sys.settrace(None)


class Violation(AssertionError):
    """
    The store broke a promise.
    """


def opened(
    disk: Disk,
    clock: Clock | None = None,
    inThread: Callable[[Callable[[], None]], Deferred[None]] = maybeDeferred,
    settings: StoreSettings = SMALL,
    host: bytes = HOST,
) -> MessageStore:
    """
    Start a store on a disk.
    """
    if clock is None:
        clock = Clock()
        clock.advance(START)
    store = MessageStore(settings, clock, inThread, host, files=disk, memory=1 << 40)
    store.start()
    return store


@attrs.define(eq=False)
class Sent:
    """
    A message that was put.

    @ivar stored: whether its sender was told that it is stored.
    """

    topic: str
    queueId: int
    body: bytes
    named: dict[str, str]
    keys: tuple[str, ...]
    offset: int = -1
    size: int = 0
    queueOffset: int = -1
    stored: bool = False
    failure: BaseException | None = None

    properties: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.properties = encodeProperties(self.named)

    def isIn(self, record: MessageExt) -> bool:
        """
        Whether a record is this message where it was put.
        """
        return (
            record.topic == self.topic
            and record.queueId == self.queueId
            and record.body == self.body
            and record.propertiesData == self.properties
            and record.queueOffset == self.queueOffset
            and record.commitLogOffset == self.offset
        )


class Ledger:
    """
    All that was put.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._number = 0

    @classmethod
    def of(cls, other: Ledger) -> Ledger:
        """
        A ledger that goes on from another one as it is now.
        """
        result = cls()
        result.sent = [attrs.evolve(each) for each in other.sent]
        result._number = other._number
        return result

    @property
    def stored(self) -> list[Sent]:
        """
        The messages that were acknowledged.
        """
        return [each for each in self.sent if each.stored]

    def put(
        self,
        store: MessageStore,
        topic: str,
        queueId: int,
        body: bytes = b"",
        *,
        tag: str = "",
        keys: tuple[str, ...] = (),
        bornHost: bytes = HOST,
        acknowledged: Callable[[Sent], None] = lambda sent: None,
    ) -> Sent:
        """
        Put a message.
        """
        sent = self._message(topic, queueId, body, tag, keys)
        appended = store.put(
            topic, queueId, body, sent.properties, bornTimestamp=1, bornHost=bornHost
        )
        self._await(store, [sent], appended, acknowledged)
        return sent

    def appendBatch(
        self,
        store: MessageStore,
        topic: str,
        queueId: int,
        bodies: Iterable[bytes],
        *,
        tag: str = "",
        acknowledged: Callable[[Sent], None] = lambda sent: None,
    ) -> list[Sent]:
        """
        Put several messages at once.
        """
        batch = [self._message(topic, queueId, body, tag, ()) for body in bodies]
        data = encodeBatch(
            [Message(each.topic, each.body, properties=each.named) for each in batch]
        )
        appended = store.appendBatch(SentMessage(None, (topic, queueId), data, b"", 1), HOST)
        self._await(store, batch, appended, acknowledged)
        return batch

    def _message(
        self, topic: str, queueId: int, body: bytes, tag: str, keys: tuple[str, ...]
    ) -> Sent:
        self._number += 1
        unique = f"U{self._number:06d}"
        properties = {"UNIQ_KEY": unique}
        if tag:
            properties["TAGS"] = tag
        if keys:
            properties["KEYS"] = " ".join(keys)
        return Sent(topic, queueId, body, properties, (unique, *keys))

    def _await(
        self,
        store: MessageStore,
        batch: list[Sent],
        appended: Appended,
        acknowledged: Callable[[Sent], None],
    ) -> None:
        offset = appended.offset
        for number, (each, size) in enumerate(zip(batch, appended.sizes, strict=True)):
            each.offset, each.size = offset, size
            each.queueOffset = appended.queueOffset + number
            offset += size
        self.sent += batch
        # A message that was forgotten again gives its place to another.

        def done(result: object) -> None:
            for each in batch:
                each.stored = True
                acknowledged(each)

        def failed(failure: object) -> None:
            for each in batch:
                each.failure = getattr(failure, "value", None)

        store.stored(appended.end).addCallbacks(done, failed)

    def check(
        self, store: MessageStore, *, first: int = 0, others: bool = False, gaps: bool = False
    ) -> Collection[MessageExt]:
        """
        Hold a store to what was said.

        @param first: where the log began when it was last open; what is before
            may be gone.
        @param others: whether there may be messages that this ledger does not
            know of, and places in queues without a message.
        @param gaps: whether there may be places in queues without a message.
        @return: all messages that are in queues.
        @raise Violation: if it serves something that was not put, or does not
            serve something that was acknowledged.
        """
        served = self._served(store, others, others or gaps)
        byKey: dict[tuple[str, str], set[bytes]] = {}
        for each in self.sent:
            if each.stored and each.offset >= first:
                data = self._checkOne(store, each, served)
                for key in each.keys:
                    found = byKey.get((each.topic, key))
                    if found is None:
                        found = set(store.query(each.topic, key, 0, EVER, 64)[0])
                        byKey[each.topic, key] = found
                    if data not in found:
                        raise Violation(f"by key {key}: {each} is missing")
        return served.values()

    def _served(
        self, store: MessageStore, others: bool, gaps: bool
    ) -> dict[tuple[str, int, int], MessageExt]:
        byPlace: dict[int, list[Sent]] = {}
        for each in self.sent:
            byPlace.setdefault(each.offset, []).append(each)
        served: dict[tuple[str, int, int], MessageExt] = {}
        for topic, queueId, queue in store.queues:
            offset = queue.minOffset
            while offset < queue.maxOffset:
                records, following = self._get(store, topic, queueId, offset, gaps)
                for record in records:
                    place = f"{topic}-{queueId} at {offset}"
                    if record.queueOffset != offset:
                        raise Violation(f"{place}: {record}")
                    known = byPlace.get(record.commitLogOffset, [])
                    if not any(each.isIn(record) for each in known) and (known or not others):
                        raise Violation(f"{place} was not put: {record}")
                    served[topic, queueId, offset] = record
                    offset += 1
                if offset != following and (records or not gaps):
                    raise Violation(f"{topic}-{queueId}: {offset} is not {following}")
                offset = following
        return served

    def _get(
        self, store: MessageStore, topic: str, queueId: int, offset: int, gaps: bool
    ) -> tuple[list[MessageExt], int]:
        got = store.get(topic, queueId, offset, 32)
        if got.status is not GetMessageStatus.FOUND:
            if gaps and got.nextOffset > offset:
                return [], got.nextOffset
            raise Violation(f"{topic}-{queueId} at {offset}: {got}")
        try:
            records = decodeRecords(got.data, checkCrc=True, inflate=False)
        except MalformedRecord as error:
            raise Violation(f"{topic}-{queueId} at {offset}: {error}") from error
        if gaps and got.nextOffset - offset > len(records):
            # Places without a message are passed over: go to the first that has one.
            if records[0].queueOffset > offset:
                return [], records[0].queueOffset
            return records[:1], offset + 1
        return records, got.nextOffset

    def _checkOne(
        self,
        store: MessageStore,
        sent: Sent,
        served: dict[tuple[str, int, int], MessageExt],
    ) -> bytes:
        record = served.get((sent.topic, sent.queueId, sent.queueOffset))
        if record is None or not sent.isIn(record):
            raise Violation(f"by queue: {record} is not {sent}")
        data = store.messageAt(sent.offset)
        if data is None or not sent.isIn(decodeRecord(data, checkCrc=True)):
            raise Violation(f"by offset: {data!r} is not {sent}")
        return data


class HeldThreads:
    """
    Runs blocking functions when the test wants it, one at a time.
    """

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def __call__(self, function: Callable[[], None]) -> Deferred[None]:
        result: Deferred[None] = Deferred()
        self.jobs.append(partial(self._run, function, result))
        return result

    @staticmethod
    def _run(function: Callable[[], None], result: Deferred[None]) -> None:
        try:
            function()
        except OSError as error:
            result.errback(error)
        else:
            result.callback(None)

    def turn(self) -> bool:
        """
        Run the next one, if there is one.
        """
        if not self.jobs:
            return False
        self.jobs.pop(0)()
        return True
