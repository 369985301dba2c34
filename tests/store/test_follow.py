# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.follow}.
"""

from __future__ import annotations

import errno
from typing import Any

from tests.store.support import START, StoreCase, abandon
from txrocket.protocol.javahash import tagsCode
from txrocket.store import consumequeue
from txrocket.store.follow import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocket.store.messages import MessageStore
from txrocket.store.reading import GetStatus

NOW = START * 1000


class HashTests(StoreCase):
    """
    What a queue's entry holds beside the record's place.
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

    def test_delay(self) -> None:
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

    def test_noDelay(self) -> None:
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

    def test_oddDelay(self) -> None:
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

    def test_time(self) -> None:
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

    def test_written(self) -> None:
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
        self.patch(consumequeue, "TAILS", 0)

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

    def test_unseen(self) -> None:
        """
        Messages that are in the log and not in their queue are not there yet: nobody
        is sent past them.  Nobody is told of those that a queue has in memory either.
        """
        store = self.start()
        self.behind(store)
        self.assertEqual(2, store.maxOffset("T", 0))
        self.assertEqual([b"a", b"b"], self.bodies(store))
        for offset, status in (
            (2, GetStatus.OFFSET_OVERFLOW_ONE),
            (3, GetStatus.OFFSET_OVERFLOW_BADLY),
            (4, GetStatus.OFFSET_OVERFLOW_BADLY),
        ):
            got = store.get("T", 0, offset, 32)
            self.assertEqual((status, 2), (got.status, got.nextOffset))
        self.assertEqual(1, len(self.arrived))
        abandon(store)

    def test_catchesUp(self) -> None:
        """
        Once there is room, the queues get what they miss, in order and once,
        and so does who waits for messages.
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

    def test_notClean(self) -> None:
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

    def test_manyBehind(self) -> None:
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

    def test_indexFull(self) -> None:
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
