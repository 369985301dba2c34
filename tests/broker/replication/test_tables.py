# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.tables}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.delivery.timerbucket import BucketState
from txrocket.broker.delivery.timers import TimerProgress
from txrocket.broker.replication.tables.sink import TableSink
from txrocket.broker.replication.tables.source import SharedTables, TableSource
from txrocket.broker.settings import BrokerRole
from txrocket.errors import MalformedBody
from txrocket.model import SubscriptionGroupConfig, TopicConfig
from txrocket.testing.memory.cluster import MemoryCluster


class Log:
    """
    A log that grows when a test says so.
    """

    def __init__(self) -> None:
        self.end = 0
        self._waiting: list[tuple[int, Deferred[None]]] = []

    def whenGrown(self, offset: int) -> Deferred[None]:
        """
        See L{txrocket.store.replica.ReplicaLog}.
        """
        waiter: Deferred[None] = Deferred(lambda cancelled: None)
        self._waiting.append((offset, waiter))
        return waiter

    def grow(self, end: int) -> None:
        """
        The log ends there.
        """
        self.end = end
        ready = [each for each in self._waiting if each[0] < end]
        self._waiting = [each for each in self._waiting if each[0] >= end]
        for _, waiter in ready:
            if not waiter.called:
                waiter.callback(None)


class TablesTests(SynchronousTestCase):
    """
    A master's tables and a slave's.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster(brokers=2, nameServers=0)
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        master, slave = (self.cluster.broker(each) for each in self.cluster.brokers)
        self.master, self.slave = master.parts, slave.parts
        self.role = BrokerRole.SYNC_MASTER
        self.masterLog, self.slaveLog = Log(), Log()
        shared = SharedTables(
            self.master.tables,
            self.master.delivery,
            lambda: self.role,
            lambda: self.masterLog.end,
        )
        self.source = TableSource(self.cluster.clock, shared)
        self.removed: list[str] = []
        self.roles: list[BrokerRole] = []
        self.sink = TableSink(
            self.slave.tables,
            self.slave.delivery,
            self.slaveLog,
            self.removed.append,
            self.roles.append,
        )
        for table in (self.slave.tables.topics, self.slave.tables.groups):
            table.isCopy = True
        # The names of the two brokers are topics as well.
        self.master.tables.topics.put(TopicConfig("broker-1", 1, 1))

    def move(self, cursor: Any, most: int = 32768) -> int:
        """
        Give the slave all that is dirty.

        @return: how many payloads there were.
        """
        count = 0
        while (payload := cursor.next(most)) is not None:
            self.sink.apply(payload)
            count += 1
        self.assertFalse(cursor.dirty)
        return count

    def opened(self) -> Any:
        """
        A cursor of a slave that has got all tables.
        """
        cursor = self.source.cursor()
        self.addCleanup(cursor.close)
        self.move(cursor)
        return cursor

    def topics(self, parts: Any) -> dict[str, TopicConfig]:
        """
        The topics of a broker.
        """
        return dict(parts.tables.topics.table)

    def test_aNewSlaveGetsWholeTables(self) -> None:
        """
        A slave that connects has the master's topics and groups afterwards, and no others.
        """
        self.master.tables.topics.put(TopicConfig("T", 3, 3))
        self.master.tables.groups.put(SubscriptionGroupConfig("G", retryMaxTimes=7))
        self.slave.tables.topics.put(TopicConfig("foreign"))
        self.opened()
        self.assertEqual(self.topics(self.master), self.topics(self.slave))
        self.assertEqual(self.master.tables.groups.table, self.slave.tables.groups.table)
        self.assertEqual(self.master.tables.topics.version, self.slave.tables.topics.version)
        self.assertEqual(["foreign"], self.removed)
        self.assertEqual([BrokerRole.SYNC_MASTER], self.roles)

    def test_smallPayloadsMakeTheSameTables(self) -> None:
        """
        However small the payloads are, the tables are the same, and none is removed between
        the first payload and the last.
        """
        for index in range(200):
            self.master.tables.topics.put(TopicConfig(f"T{index}", index + 1, 1))
            self.master.tables.offsets.commit("G", f"T{index}", 0, index, "here")
        cursor = self.source.cursor()
        self.addCleanup(cursor.close)
        self.assertGreater(self.move(cursor, 200), 100)
        self.assertEqual(self.topics(self.master), self.topics(self.slave))
        self.assertEqual(199, self.slave.tables.offsets.query("G", "T199", 0))
        self.assertEqual([], self.removed)

    def test_aPayloadIsNotLargerThanAsked(self) -> None:
        """
        A payload with more than one member keeps to the size that is asked for.
        """
        for index in range(100):
            self.master.tables.topics.put(TopicConfig(f"T{index}"))
        cursor = self.source.cursor()
        self.addCleanup(cursor.close)
        sizes = []
        while (payload := cursor.next(1000)) is not None:
            sizes.append(len(payload))
        self.assertLess(max(sizes), 1200)

    def test_aChangedTopicIsToldAtOnce(self) -> None:
        """
        A topic that is created, changed or removed makes the cursor dirty in the same turn,
        and only it is sent.
        """
        cursor = self.opened()
        told: list[bool] = []
        cursor.onDirty = lambda: told.append(cursor.dirty)
        self.master.tables.topics.put(TopicConfig("T", 3, 3))
        self.assertEqual([True], told)
        self.assertEqual(1, self.move(cursor))
        self.assertEqual(3, self.topics(self.slave)["T"].readQueueNums)
        self.master.tables.topics.remove("T")
        self.assertEqual([True, True], told)
        self.move(cursor)
        self.assertNotIn("T", self.topics(self.slave))
        self.assertEqual(["T"], self.removed)

    def test_offsetsAreToldEverySecond(self) -> None:
        """
        Offsets, which change all the time, are told once a second, each once.
        """
        cursor = self.opened()
        for offset in range(100):
            self.master.tables.offsets.commit("G", "T", 0, offset, "here")
        self.assertFalse(cursor.dirty)
        self.cluster.advance(1.0)
        self.assertEqual(1, self.move(cursor))
        self.assertEqual(99, self.slave.tables.offsets.query("G", "T", 0))

    def test_anOffsetThatIsSetBackIsFollowed(self) -> None:
        """
        If the master's offset goes back while the slave is connected, so does the slave's.
        """
        cursor = self.opened()
        for offset in (50, 20):
            self.master.tables.offsets.commit("G", "T", 0, offset, "here")
            self.cluster.advance(1.0)
            self.move(cursor)
            self.assertEqual(offset, self.slave.tables.offsets.query("G", "T", 0))

    def test_aSlavesCommitsAreNotTakenBack(self) -> None:
        """
        A master that comes back with older offsets does not take those of the slave back, which
        served the consumers meanwhile.
        """
        self.master.tables.offsets.commit("G", "T", 0, 5, "here")
        self.master.tables.offsets.commit("G", "T", 1, 5, "here")
        self.slave.tables.offsets.commit("G", "T", 0, 9, "here")
        self.slave.tables.offsets.commit("H", "T", 0, 3, "here")
        self.opened()
        self.assertEqual({0: 9, 1: 5}, self.slave.tables.offsets.of("G", "T"))
        self.assertEqual(3, self.slave.tables.offsets.query("H", "T", 0))

    def test_progressWaitsForTheLog(self) -> None:
        """
        How far the master has delivered and consumers have consumed counts on a slave only
        once its log has come as far as the master's was.
        """
        self.masterLog.grow(1000)
        self.master.delivery.delayLevels.adopt({3: 17})
        progress = TimerProgress(12, BucketState(), {1: 2})
        self.master.delivery.timers.adopt(progress)
        self.master.tables.offsets.commit("G", "T", 0, 5, "here")
        cursor = self.opened()
        self.assertEqual(-1, self.slave.tables.offsets.query("G", "T", 0))
        self.assertEqual({}, self.slave.delivery.delayLevels.offsets)
        self.slaveLog.grow(999)
        self.assertEqual({}, self.slave.delivery.delayLevels.offsets)
        self.slaveLog.grow(1000)
        self.assertEqual({3: 17}, self.slave.delivery.delayLevels.offsets)
        self.assertEqual(progress, self.slave.delivery.timers.progress())
        self.assertEqual(5, self.slave.tables.offsets.query("G", "T", 0))
        self.assertFalse(cursor.dirty)

    def test_onlyTheLatestProgressWaits(self) -> None:
        """
        A slave that is far behind keeps one state of each table and not each change.
        """
        self.masterLog.grow(10)
        cursor = self.opened()
        for count in range(1, 50):
            self.masterLog.grow(10 + count)
            self.master.delivery.delayLevels.adopt({1: count})
            self.master.tables.offsets.commit("G", "T", 0, count, "here")
            self.cluster.advance(1.0)
            self.move(cursor)
        self.assertLessEqual(len(self.sink._offsets), 2)
        self.assertLessEqual(len(self.sink._values), 2)
        self.slaveLog.grow(59)
        self.assertEqual({1: 49}, self.slave.delivery.delayLevels.offsets)
        self.assertEqual(49, self.slave.tables.offsets.query("G", "T", 0))

    def test_progressOfAnOlderConnectionIsForgotten(self) -> None:
        """
        What waits for the log is forgotten with its connection: the next one tells it anew.
        """
        self.masterLog.grow(1000)
        self.master.delivery.delayLevels.adopt({3: 17})
        self.opened()
        self.masterLog.grow(500)
        self.master.delivery.delayLevels.adopt({3: 12})
        self.opened()
        self.slaveLog.grow(500)
        self.assertEqual({3: 12}, self.slave.delivery.delayLevels.offsets)
        self.slaveLog.grow(1000)
        self.assertEqual({3: 12}, self.slave.delivery.delayLevels.offsets)

    def test_changesOfTopicsAndGroupsAreCounted(self) -> None:
        """
        Each change of a topic or group is counted, and no commit of an offset.
        """
        before = self.source.changes
        self.master.tables.topics.put(TopicConfig("T"))
        self.master.tables.groups.put(SubscriptionGroupConfig("G"))
        self.master.tables.offsets.commit("G", "T", 0, 5, "here")
        self.assertEqual(before + 2, self.source.changes)

    def test_aClosedCursorCostsNothing(self) -> None:
        """
        Changes are not noted for a slave that is gone, and without slaves no timer runs.
        """
        self.source.cursor().close()
        cursor = self.source.cursor()
        cursor.close()
        self.move(cursor)
        self.master.tables.topics.put(TopicConfig("T"))
        self.cluster.advance(5.0)
        self.assertFalse(cursor.dirty)

    def test_aSlaveCreatesNothingItself(self) -> None:
        """
        A slave serves a group that its master does not know yet, and its tables stay the
        master's.
        """
        self.opened()
        before = self.topics(self.slave)
        self.assertEqual("N", getattr(self.slave.tables.groups.find("N"), "groupName", None))
        self.slave.tables.topics.ensureRetryTopic("N", 1, False)
        self.assertEqual(before, self.topics(self.slave))
        self.assertNotIn("N", self.slave.tables.groups.table)

    def test_malformedPayloadsAreRefused(self) -> None:
        """
        Bytes that are no payload are refused with an error that says so; a table that is not
        known here is passed over.
        """
        for payload in (b"", b"[]", b'{"table":"topics","put":7}'):
            self.assertRaises(MalformedBody, self.sink.apply, payload)
        self.assertIsNone(self.sink.apply(b'{"table":"later","put":{}}'))
