# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.dispatch}.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import struct
import tempfile
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.bulk.support import PROPERTIES
from tests.store.support import HOST, START, StoreCase, abandon, filesOf
from txrocket.bulk import ReadRecords, SentMessage, compiled, python
from txrocket.errors import InvalidMessage
from txrocket.message import MessageExt
from txrocket.protocol.javahash import tagsCode
from txrocket.store import dispatch as dispatchModule
from txrocket.store.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocket.store.messagestore import MessageStore
from txrocket.store.queue import consumequeues
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import StoreSettings

NOW = START * 1000


class HashTests(StoreCase):
    """
    The hash, or the time, in the entry of a queue.
    """

    def hashOf(self, topic: str, **properties: Any) -> int:
        """
        The hash in a message's entry.
        """
        store = self.start()
        self.put(store, topic=topic, **properties)
        store.stop()
        self.assertEqual(1, len(self.arrived))
        return self.arrived.pop()[3]

    def test_delayedMessageHasDeliveryTime(self) -> None:
        """
        For a delayed message it is the time of delivery, of the last level for
        one past it.
        """
        for level, milliseconds in (
            ("1", 1000),
            ("3", 10_000),
            ("18", 7_200_000),
            ("99", 7_200_000),
        ):
            self.assertEqual(NOW + milliseconds, self.hashOf(SCHEDULE_TOPIC, DELAY=level, TAGS="a"))

    def test_undelayedMessageHasTagHash(self) -> None:
        """
        A level of 0 or less, another topic, or no level: the hash of the tag.
        """
        for topic, properties in (
            (SCHEDULE_TOPIC, {"DELAY": "0"}),
            (SCHEDULE_TOPIC, {"DELAY": "-1"}),
            (SCHEDULE_TOPIC, {}),
            ("T", {"DELAY": "3"}),
        ):
            self.assertEqual(tagsCode("a"), self.hashOf(topic, TAGS="a", **properties))

    def test_impossibleDelayHasTagHash(self) -> None:
        """
        A level that is no number keeps neither the message nor those after it
        from their queues, nor the store from starting.
        """
        store = self.start()
        self.put(store, b"a", topic=SCHEDULE_TOPIC, DELAY="soon", TAGS="a")
        self.put(store, b"b", topic=SCHEDULE_TOPIC)
        self.assertEqual(tagsCode("a"), self.arrived[0][3])
        self.assertEqual([b"a", b"b"], self.bodies(store, SCHEDULE_TOPIC))
        abandon(store)
        store = self.start()
        self.assertEqual([b"a", b"b"], self.bodies(store, SCHEDULE_TOPIC))
        store.stop()

    def test_timerMessageHashedByItsTime(self) -> None:
        """
        For a message that waits for a time of its own it is that time, whatever its tag
        is; 0 if it says none.
        """
        for properties, expected in (
            ({"TIMER_OUT_MS": "1700000000123"}, 1700000000123),
            ({"TIMER_OUT_MS": "9" * 18}, 10**18 - 1),
            ({"TIMER_OUT_MS": "9" * 19}, 0),
            ({"TIMER_OUT_MS": "-1"}, 0),
            ({"TIMER_OUT_MS": "1_0"}, 0),
            ({"TIMER_OUT_MS": "soon"}, 0),
            ({}, 0),
        ):
            self.assertEqual(expected, self.hashOf(TIMER_TOPIC, TAGS="a", **properties))
        self.assertEqual(tagsCode("a"), self.hashOf("T", TAGS="a", TIMER_OUT_MS="1700000000123"))


class TimedTests(StoreCase):
    """
    Messages that wait for their time.
    """

    def test_timedEntriesAreWrittenAtOnce(self) -> None:
        """
        Their entries are in the files at once; those of others wait.
        """
        store = self.start()
        self.put(store, b"a")
        self.put(store, b"b", topic=SCHEDULE_TOPIC, DELAY="1")
        self.put(store, b"c", topic=TIMER_TOPIC, TIMER_OUT_MS="1700000000123")
        unwritten = {topic: queue.unwritten for topic, _, queue in store.queues}
        self.assertEqual({"T": 20, SCHEDULE_TOPIC: 0, TIMER_TOPIC: 0}, unwritten)
        store.stop()


class BehindTests(StoreCase):
    """
    Queues that cannot be written, and of which none may be kept in memory.
    """

    def setUp(self) -> None:
        super().setUp()
        self.patch(consumequeues, "TAILS", 0)

    def behind(self, store: MessageStore) -> None:
        """
        Let the queues stay behind by three messages, of which the first is in memory.
        """
        self.put(store, b"a", KEYS="k")
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.disk.only = "consumequeue"
        for body in (b"b", b"c", b"d"):
            appended = self.gather(store, body, KEYS="k")
            stored = store.stored(appended.end)
            self.clock.advance(0)
            # They are in the log, which is all that was promised.
            self.successResultOf(stored)
        self.flushLoggedErrors()

    def test_undispatchedMessageIsUnseen(self) -> None:
        """
        Messages that are in the log and not in their queue are not there yet: no consumer
        is sent past them, and none is woken by them.
        """
        store = self.start()
        self.behind(store)
        self.assertEqual(2, store.maxOffset("T", 0))
        self.assertEqual([b"a", b"b"], self.bodies(store))
        for offset, status in (
            (2, GetMessageStatus.OFFSET_OVERFLOW_ONE),
            (3, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
            (4, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
        ):
            got = store.get("T", 0, offset, 32)
            self.assertEqual((status, 2), (got.status, got.nextOffset))
        self.assertEqual(1, len(self.arrived))
        abandon(store)

    def test_freeDiskLetsQueuesCatchUp(self) -> None:
        """
        Once there is room, the queues get the missing entries, in order and once, and the
        waiting consumers are woken.
        """
        store = self.start()
        self.behind(store)
        self.clock.advance(1)
        self.assertEqual([b"a", b"b", b"c", b"d"], self.bodies(store))
        self.assertEqual(1, len(self.arrived))
        self.disk.failing.clear()
        self.assertEqual(4, self.put(store, b"e", KEYS="k").queueOffset)
        self.assertEqual([b"a", b"b", b"c", b"d"], self.bodies(store))
        self.clock.advance(1)
        self.assertEqual([b"a", b"b", b"c", b"d", b"e"], self.bodies(store))
        self.assertEqual([0, 1, 2, 3, 4], [each[2] for each in self.arrived])
        self.assertEqual(5, len(store.query("T", "k", 0, 1 << 60, 32)[0]))
        self.put(store, b"f")
        self.assertEqual(b"f", self.bodies(store)[-1])
        store.stop()

    def test_stopBehindLogIsNotClean(self) -> None:
        """
        A store that is stopped with its queues behind is not clean, and the
        next start files what they miss.
        """
        store = self.start()
        self.behind(store)
        self.successResultOf(store.stop())
        self.disk.failing.clear()
        self.assertTrue(self.disk.size(self.path("abort")) is not None)
        store = self.start()
        self.assertEqual([b"a", b"b", b"c", b"d"], self.bodies(store))
        store.stop()

    def test_longBacklogIsDispatchedInSteps(self) -> None:
        """
        Catching up goes in steps, over files and blanks.
        """
        store = self.start()
        self.put(store, b"a")
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.disk.only = "consumequeue"
        for number in range(1500):
            self.gather(store, str(number).encode())
        store.write()
        self.disk.failing.clear()
        self.clock.advance(1)
        self.assertEqual([b"a"] + [str(each).encode() for each in range(1500)], self.bodies(store))
        store.stop()

    def test_behindWhatIsGone(self) -> None:
        """
        If the log loses its first file meanwhile, the queues go on with what is
        left.
        """
        store = self.start()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.disk.only = "consumequeue"
        for _ in range(4):
            self.put(store, b"x" * 1500)
        store.log.segments.removeFirst()
        self.disk.failing.clear()
        self.clock.advance(1)
        store.retention.follow()
        self.assertEqual((2, 4), (store.minOffset("T", 0), store.maxOffset("T", 0)))
        self.assertEqual(2, len(self.all(store)))
        store.stop()

    def test_fullIndexCatchesUp(self) -> None:
        """
        An index that cannot be made keeps nothing from the log, and is caught
        up as well.
        """
        store = self.start()
        self.disk.failing["truncate"] = OSError(errno.ENOSPC, "full")
        self.disk.only = "index"
        self.put(store, b"a", KEYS="k")
        self.put(store, b"b", KEYS="k")
        self.disk.failing.clear()
        self.clock.advance(1)
        self.assertEqual([b"a", b"b"], self.bodies(store))
        self.assertEqual(2, len(store.query("T", "k", 0, 1 << 60, 32)[0]))
        store.stop()


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


class DispatchTests(SynchronousTestCase):
    """
    Many records at a time.
    """

    def outcome(self, messages: list[tuple[str, int, bytes, bytes, bool, int]]) -> Any:
        """
        Append messages, in stretches, and tell what became of them.
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
            store.start()
            for topic, queueId, body, properties, last, batch in messages:
                if batch:
                    one = struct.pack(">5i", 22 + len(body) + len(properties), 0, 0, 0, len(body))
                    one += body + len(properties).to_bytes(2, "big") + properties
                    with contextlib.suppress(InvalidMessage):
                        store.appendBatch(
                            SentMessage(None, (topic, queueId), one * batch, b"n\x01v", 1), HOST
                        )
                else:
                    store.put(topic, queueId, body, properties, bornTimestamp=1, bornHost=HOST)
                if last:
                    clock.advance(0.7)
            store.stop()
            return told, store.dispatcher.timestamp, filesOf(root)
        finally:
            shutil.rmtree(root)

    @settings(max_examples=40, deadline=None)
    @given(MESSAGES)
    def test_asOneByOne(self, messages: list[tuple[str, int, bytes, bytes, bool, int]]) -> None:
        """
        Queues, index and the consumers that wait for messages learn the same as if each
        record was read by itself.
        """
        nothing = ReadRecords(0, 0, b"", 0, [])
        one = lambda data, position, *given: nothing._replace(end=position)  # noqa: E731
        with patch.object(dispatchModule, "readRecords", one):
            expected = self.outcome(messages)
        ways: list[Any] = [python.readRecords]
        if compiled is not None:
            ways.append(compiled.readRecords)
        for way in ways:
            with patch.object(dispatchModule, "readRecords", way):
                self.assertEqual(expected, self.outcome(messages))


class AwaitedTests(StoreCase):
    """
    The messages that wake consumers.
    """

    def test_onlyAwaitedAreTold(self) -> None:
        """
        Only messages of queues that a consumer waits for are passed on, if the store knows
        these queues.
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
        Of a batch only the messages that come while a consumer waits are passed on.
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
        self.appendBatch(store, b"a", b"b", b"c", b"d")
        store.stop()
        self.assertEqual(told, [0, 1])
