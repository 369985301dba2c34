# SPDX-License-Identifier: Apache-2.0
"""
A store against a model in memory: whatever is done to it, and however it ends, it
holds what the model holds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import HOST, START, Disk, abandon
from txrocket.bulk import SentMessage
from txrocket.errors import MessageTooLarge
from txrocket.message import Message
from txrocket.protocol.javahash import javaHash, tagsCode
from txrocket.protocol.record import decodeRecord, decodeRecords, encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import FlushDiskType, StoreSettings

LOG_SIZE = 2048
EVER = 1 << 60
LIMIT = 600

topics = st.sampled_from(["A", "B"])
queueIds = st.integers(0, 1)
tags = st.sampled_from(["", "a", "b", "BB", "Aa"])
keys = st.lists(st.sampled_from(["k1", "k2", "BB", "Aa"]), max_size=2)
batches = st.lists(st.tuples(st.binary(max_size=90), tags), min_size=1, max_size=4)
asked = st.sampled_from(["k1", "k2", "Aa", "U", "none"])
bodies = st.one_of(st.binary(max_size=60), st.integers(200, LIMIT).map(lambda size: b"x" * size))


class Row:
    """
    A message in the model.
    """

    def __init__(self, offset: int, size: int, time: int, body: bytes, tag: str, found: set[str]):
        self.offset = offset
        self.size = size
        self.time = time
        self.body = body
        self.tag = tag
        self.found = found


class StoreMachine(RuleBasedStateMachine):
    """
    Everything that can be done to a store.

    The model has the rows of each queue in order, those before C{first} being
    gone with the log's first files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.clock = Clock()
        self.clock.advance(START)
        self.disk = Disk()
        self.rows: dict[tuple[str, int], list[Row]] = {}
        self.first = 0
        self.store: MessageStore

    @initialize(sync=st.booleans())
    def begin(self, sync: bool) -> None:
        """
        Open the folder.
        """
        self.flush = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
        self.open()

    def open(self) -> None:
        """
        Start a store.
        """
        self.disk.opened.clear()
        self.store = MessageStore(
            StoreSettings(
                self.root,
                mappedFileSizeCommitLog=LOG_SIZE,
                mappedFileSizeConsumeQueue=100,
                maxHashSlotNum=4,
                maxIndexNum=12,
                maxMessageSize=LIMIT,
                maxMsgsNumBatch=1000,
                flushDiskType=self.flush,
                openFiles=4,
            ),
            self.clock,
            maybeDeferred,
            HOST,
            files=self.disk,
        )
        self.store.start()

    def teardown(self) -> None:
        """
        Leave nothing behind.
        """
        if hasattr(self, "store"):
            self.store.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    # --- what is done ----------------------------------------------------

    def live(self, topic: str, queueId: int) -> list[tuple[int, Row]]:
        """
        The messages of a queue that are not gone, with their queue offsets.
        """
        rows = self.rows.get((topic, queueId), [])
        return [(n, row) for n, row in enumerate(rows) if row.offset >= self.first]

    @rule(topic=topics, queueId=queueIds, body=bodies, tag=tags, key=keys, unique=st.booleans())
    def put(
        self, topic: str, queueId: int, body: bytes, tag: str, key: list[str], unique: bool
    ) -> None:
        """
        A message gets the next queue offset, and is stored after this turn.
        """
        properties = {"TAGS": tag, "KEYS": " ".join(key)}
        found = {*key}
        if unique:
            properties["UNIQ_KEY"] = "U"
            found.add("U")
        rows = self.rows.setdefault((topic, queueId), [])
        appended = self.store.put(
            topic,
            queueId,
            body,
            encodeProperties({name: value for name, value in properties.items() if value}),
            bornTimestamp=1,
            bornHost=HOST,
        )
        assert appended.queueOffset == len(rows)
        stored = self.store.stored(appended.end)
        self.clock.advance(0)
        assert stored.called
        time = appended.storeTimestamp
        rows.append(Row(appended.offset, appended.sizes[0], time, body, tag, found))

    @rule(
        topic=topics,
        parts=st.lists(st.tuples(st.binary(max_size=90), tags), min_size=1, max_size=4),
    )
    def appendBatch(self, topic: str, parts: list[tuple[bytes, str]]) -> None:
        """
        A batch is as many messages.
        """
        batch = encodeBatch(
            [Message(topic, body, properties={"TAGS": tag} if tag else {}) for body, tag in parts]
        )
        rows = self.rows.setdefault((topic, 0), [])
        try:
            appended = self.store.appendBatch(SentMessage(None, (topic, 0), batch, b"", 1), HOST)
        except MessageTooLarge:
            assert len(batch) > LIMIT
            return
        self.clock.advance(0)
        assert appended.queueOffset == len(rows)
        offset = appended.offset
        for (body, tag), size in zip(parts, appended.sizes, strict=True):
            rows.append(Row(offset, size, appended.storeTimestamp, body, tag, set()))
            offset += size

    @rule(topic=topics, body=bodies)
    def gatherOnly(self, topic: str, body: bytes) -> None:
        """
        Unwritten messages are gone after a crash: no sender got an answer.
        """
        self.store.put(topic, 0, body, b"", bornTimestamp=1, bornHost=HOST)
        written = self.store.log.written
        self.crash()
        assert self.store.log.written <= written

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 10, 61]))
    def wait(self, seconds: float) -> None:
        """
        Flushes, checkpoints and clean-ups happen, and change nothing.
        """
        self.disk.used = 0.1
        self.clock.advance(seconds)

    @rule()
    def checkpoint(self) -> None:
        """
        A checkpoint changes nothing.
        """
        self.store.checkpointer.checkpoint()

    @rule()
    def deleteOldest(self) -> None:
        """
        The oldest file goes, and with it its messages.
        """
        segments = self.store.log.segments
        if segments.bases:
            os.utime(segments.pathOf(segments.bases[0]), (1, 1))
            for base in segments.bases[1:]:
                now = self.clock.seconds()
                os.utime(segments.pathOf(base), (now, now))
        deleted = self.store.retention.clean(asked=True)
        assert deleted <= 1
        self.first += deleted * LOG_SIZE

    @rule()
    def restart(self) -> None:
        """
        After a clean stop everything is there.
        """
        self.store.stop()
        assert not os.path.exists(os.path.join(self.root, "abort"))
        self.open()
        self.everything()

    @rule()
    def crash(self) -> None:
        """
        After a crash of the process everything is there.
        """
        abandon(self.store)
        self.open()
        self.everything()

    # --- what must be so -------------------------------------------------

    def everything(self) -> None:
        """
        Every message is there, equal.
        """
        for (topic, queueId), rows in self.rows.items():
            live = self.live(topic, queueId)
            offset = live[0][0] if live else len(rows)
            found: list[Any] = []
            while offset < len(rows):
                got = self.store.get(topic, queueId, offset, 32)
                assert got.status is GetMessageStatus.FOUND, got
                found += decodeRecords(got.data, checkCrc=True)
                offset = got.nextOffset
            assert [(each.queueOffset, each.commitLogOffset, each.body) for each in found] == [
                (number, row.offset, row.body) for number, row in live
            ]
            assert all((each.topic, each.queueId) == (topic, queueId) for each in found)

    @invariant()
    def bounds(self) -> None:
        """
        Queues begin and end where the model's do.
        """
        if not hasattr(self, "store"):
            return
        for (topic, queueId), rows in self.rows.items():
            live = self.live(topic, queueId)
            if rows:
                assert self.store.maxOffset(topic, queueId) == len(rows)
                low = live[0][0] if live else len(rows)
                assert self.store.minOffset(topic, queueId) == low
        assert len(self.store._handles) <= 5

    @rule(topic=topics, queueId=queueIds, tag=tags.filter(bool), data=st.data())
    def getByTag(self, topic: str, queueId: int, tag: str, data: st.DataObject) -> None:
        """
        A get with a tag gives those of that hash, up to its next offset.
        """
        live = self.live(topic, queueId)
        if not live:
            return
        offset = data.draw(st.sampled_from([number for number, _ in live]))
        hashed = tagsCode(tag)
        got = self.store.get(topic, queueId, offset, 3, matches=lambda each: each == hashed)
        expected = [
            number
            for number, row in live
            if offset <= number < got.nextOffset and tagsCode(row.tag) == hashed
        ]
        found = [each.queueOffset for each in decodeRecords(got.data)]
        assert found == expected
        assert got.nextOffset > offset
        assert got.status is (
            GetMessageStatus.FOUND if found else GetMessageStatus.NO_MATCHED_MESSAGE
        )

    @rule(topic=topics, queueId=queueIds, shift=st.integers(-3, 3), data=st.data())
    def searchByTime(self, topic: str, queueId: int, shift: int, data: st.DataObject) -> None:
        """
        A time gives the first message of that time, or the nearest.
        """
        live = self.live(topic, queueId)
        if not live:
            assert self.store.offsetByTime(topic, queueId, START) == 0
            return
        times = [row.time for _, row in live]
        wanted = data.draw(st.sampled_from(times)) + shift
        at = bisect_left(times, wanted)
        past = at == len(times)
        if past or (at and times[at] != wanted and wanted - times[at - 1] <= times[at] - wanted):
            at -= 1
        assert self.store.offsetByTime(topic, queueId, wanted) == live[at][0]

    @rule(
        topic=topics, key=st.sampled_from(["k1", "k2", "Aa", "U", "none"]), most=st.integers(1, 40)
    )
    def query(self, topic: str, key: str, most: int) -> None:
        """
        A key gives the newest messages that have it, or one of the same hash.
        """
        hashed = javaHash(f"{topic}#{key}")
        expected = [
            row.offset
            for (each, _), rows in self.rows.items()
            for row in rows
            if each == topic and any(javaHash(f"{topic}#{one}") == hashed for one in row.found)
        ]
        expected = sorted(expected, reverse=True)[:most]
        records, _, _ = self.store.query(topic, key, 0, EVER, most)
        found = [decodeRecord(each).commitLogOffset for each in records]
        # The index may still know of those that are gone.
        assert found == [each for each in expected if each >= self.first]


class ModelTests(SynchronousTestCase):
    """
    The store against the model.
    """

    def test_storeHoldsWhatModelHolds(self) -> None:
        """
        After any operations a store holds the messages of the model.
        """
        run_state_machine_as_test(
            StoreMachine,
            settings=settings(
                max_examples=400,
                stateful_step_count=40,
                suppress_health_check=list(HealthCheck),
            ),
        )
