# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.tables.topics}.

What is expected of a new broker, of inheriting and of unit flags are the rules of
Java's C{TopicConfigManager} and C{AbstractSendMessageProcessor}.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, Held, atOnce
from txrocket.broker.settings import TopicSettings
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.topics import UNIT_FLAG, UNIT_SUB_FLAG, Topics
from txrocket.config import Live
from txrocket.errors import DiskFull, StoreFailed, TopicNotExist
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol.bodies import TopicConfigSerializeWrapper
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.store.jsontable import Table


class TopicsCase(SynchronousTestCase):
    """
    The topics of a broker that is called b, in a cluster that is called c.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "topics.json")
        self.now = 1000
        self.changes = 0
        self.topics = self.make()

    def make(self, inThread: Any = atOnce, **settings: Any) -> Topics:
        """
        The topics as they are after a start.
        """
        self.settings = Live(TopicSettings(**settings))
        file = TableFile(Table(self.disk, self.path), inThread)
        topics = Topics(file, ("c", "b"), self.settings, lambda: self.now)
        topics.load()
        topics.follow(self.changed)
        return topics

    def changed(self) -> None:
        """
        Something is to be told.
        """
        self.changes += 1

    def get(self, name: str) -> TopicConfig:
        """
        A topic that is there.
        """
        config = self.topics.get(name)
        assert config is not None, name
        return config


class OwnTests(TopicsCase):
    """
    The topics that a broker has for itself.
    """

    def test_newBrokerHasJavasTopics(self) -> None:
        """
        A new broker has Java's own topics, with Java's queues and permissions; and
        one for messages with a requested time, which no client may use.
        """
        self.assertEqual(
            {
                "SELF_TEST_TOPIC": (1, 6),
                "TBW102": (8, 7),
                "BenchmarkTest": (1024, 6),
                "c": (16, 7),
                "b": (1, 7),
                "OFFSET_MOVED_EVENT": (1, 6),
                "SCHEDULE_TOPIC_XXXX": (18, 6),
                "c_REPLY_TOPIC": (1, 6),
                "rmq_sys_timer": (144, 0),
            },
            {
                name: (each.writeQueueNums, each.perm)
                for name, each in self.topics.table.items()
                if each.readQueueNums == each.writeQueueNums
            },
        )
        self.assertEqual(set(self.topics.table), self.topics.own)

    def test_settingsChooseOwnTopics(self) -> None:
        """
        Settings take TBW102 away, add a topic for traces, and leave the topics of
        the cluster and the broker with the right to be inherited from only.
        """
        self.topics = self.make(
            autoCreateTopicEnable=False,
            clusterTopicEnable=False,
            brokerTopicEnable=False,
            traceTopicEnable=True,
            msgTraceTopicName="traces",
        )
        self.assertIsNone(self.topics.get("TBW102"))
        self.assertEqual((1, 1), (self.get("c").perm, self.get("b").perm))
        self.assertEqual((1, 6), (self.get("traces").readQueueNums, self.get("traces").perm))

    def test_changedOwnTopicOutlivesRestart(self) -> None:
        """
        An operator's change of one of them outlives a restart.
        """
        self.topics.put(replace(self.get("TBW102"), readQueueNums=4, writeQueueNums=4))
        self.topics = self.make()
        self.assertEqual(4, self.get("TBW102").writeQueueNums)


class TableTests(TopicsCase):
    """
    Making, changing and forgetting.
    """

    def test_putTopicIsOnDisk(self) -> None:
        """
        A topic exists at once, is registered, and exists after a restart; the version tells
        when and how often the table was changed.
        """
        self.now = 2000
        config = TopicConfig("T", 3, 4, 2, order=True)
        self.successResultOf(self.topics.put(config))
        self.assertEqual(config, self.topics.get("T"))
        self.assertEqual(1, self.changes)
        self.assertEqual(DataVersion(2000, 1), self.topics.version)
        self.topics = self.make()
        self.assertEqual(config, self.topics.get("T"))
        self.assertEqual(DataVersion(2000, 1), self.topics.version)
        self.topics.put(config)
        self.assertEqual(DataVersion(2000, 2), self.topics.version)

    def test_removedTopicIsGone(self) -> None:
        """
        A removed topic is gone, unregistered, and gone after a restart; so is one that
        never existed.
        """
        self.topics.put(TopicConfig("T"))
        self.successResultOf(self.topics.remove("T"))
        self.successResultOf(self.topics.remove("never"))
        self.assertIsNone(self.topics.get("T"))
        self.assertEqual(3, self.changes)
        self.assertIsNone(self.make().get("T"))

    def test_unwrittenTopicIsTold(self) -> None:
        """
        If a topic cannot be written, the caller gets the error; the topic exists all the
        same until the broker stops.
        """
        self.disk.failing["pwrite"] = OSError("broken")
        self.failureResultOf(self.topics.put(TopicConfig("T")), StoreFailed)
        self.assertIsNotNone(self.topics.get("T"))

    def test_unsavedTopicsAreNamed(self) -> None:
        """
        Topics that are not on the disk yet are known by name; one that could not be written
        is written with the next.
        """
        thread = Held()
        self.topics = self.make(thread)
        put = self.topics.put(TopicConfig("T"))
        self.topics.ensure("U", 1)
        self.assertEqual({"T", "U"}, self.topics.unsaved)
        self.disk.failing["pwrite"] = OSError("broken")
        thread.work()
        self.failureResultOf(put, StoreFailed)
        thread.work()
        self.assertEqual({"T", "U"}, self.topics.unsaved)
        del self.disk.failing["pwrite"]
        saved = self.topics.saved()
        thread.work()
        self.successResultOf(saved)
        self.assertEqual(set(), self.topics.unsaved)
        self.assertLessEqual({"T", "U"}, set(self.make().table))

    def damage(self, path: str, old: bytes, new: bytes, most: int = -1) -> None:
        """
        Change a file behind the table's back.
        """
        with open(path, "rb") as file:
            data = file.read()
        self.assertIn(old, data)
        with open(path, "wb") as file:
            file.write(data.replace(old, new, most))

    def test_damagedTakesTheTableBeforeAndNewTopics(self) -> None:
        """
        With a damaged number the table before is taken, and with it the topics that only
        the damaged one has.
        """
        self.topics.put(TopicConfig("T", 4, 4))
        self.topics.put(TopicConfig("U", 5, 5))
        self.damage(self.path, b'"readQueueNums":4', b'"readQueueNums":6')
        with capturedLogs() as events:
            again = self.make()
        self.assertEqual([LogLevel.error], [each["log_level"] for each in events])
        self.assertEqual(TopicConfig("T", 4, 4), again.get("T"))
        self.assertEqual(TopicConfig("U", 5, 5), again.get("U"))

    def test_bothDamagedKeepsWhatIsLegible(self) -> None:
        """
        Topics that can be read, and can be what they say, outlive two damaged tables.
        """
        for name in ("T", "U", "V", "W"):
            self.topics.put(TopicConfig(name))
        for path in (self.path, f"{self.path}.bak"):
            self.damage(path, b'"topicName":"U"', b'"topicName":"X"')
            self.damage(path, b"{", b"", 1)
        self.damage(self.path, b'"topicName":"V"', b'"topicName":"V","perm":99')
        again = self.make()
        self.assertEqual({"T", "V", "W"}, {"T", "U", "V", "W", "X"} & set(again.table))
        self.assertEqual(6, again.table["V"].perm)

    def test_damagedTableIsCompletedFromStore(self) -> None:
        """
        After damage, every topic and queue of the store can be reached, and that is logged;
        a sound table is left alone.
        """
        self.topics.put(TopicConfig("T", 4, 4))
        self.topics.put(TopicConfig("U", 4, 4))
        queues = {"T": 8, "lost": 3, "%RETRY%G": 1, "rmq_sys_x": 2, "no/topic": 1}
        whole = self.make()
        whole.complete(queues)
        self.assertEqual(TopicConfig("T", 4, 4), whole.get("T"))
        self.assertIsNone(whole.get("lost"))
        for path in (self.path, f"{self.path}.bak"):
            with open(path, "wb") as file:
                file.write(b"{")
        again = self.make()
        with capturedLogs() as events:
            again.complete(queues)
        self.assertEqual([LogLevel.error], [each["log_level"] for each in events])
        self.assertEqual(TopicConfig("T", 8, 8), again.get("T"))
        self.assertEqual(TopicConfig("lost", 3, 3), again.get("lost"))
        self.assertIsNotNone(again.get("%RETRY%G"))
        self.assertIsNone(again.get("rmq_sys_x"))
        self.assertIsNone(again.get("no/topic"))
        self.successResultOf(again.flush())
        self.assertEqual(set(), set(again.unsaved))
        self.assertEqual(TopicConfig("lost", 3, 3), self.make().get("lost"))

    def test_hiddenQueuesAreShown(self) -> None:
        """
        A topic of the table before may lack queues that it got later: they can be read.
        """
        self.topics.put(TopicConfig("T", 4, 4))
        self.topics.put(TopicConfig("T", 8, 8))
        self.damage(self.path, b'"readQueueNums":8', b'"readQueueNums":9')
        again = self.make()
        again.complete({"T": 8})
        self.assertEqual(TopicConfig("T", 8, 4), again.get("T"))

    def test_missingIsCompletedFromTheStore(self) -> None:
        """
        If the table is gone and the store has topics, they are made anew.
        """
        self.topics.complete({"T": 2})
        self.assertEqual(TopicConfig("T", 2, 2), self.make().get("T"))

    def test_oneTopicChangedEncodesOneTopic(self) -> None:
        """
        A new topic, a changed one and one that goes are all that a save encodes, and
        what the name servers are told is made of the same pieces.
        """
        for number in range(500):
            self.topics.put(TopicConfig(f"T{number}"))
        pieces = self.topics._text
        for change, encoded in (
            (lambda: self.topics.put(TopicConfig("new")), 1),
            (lambda: self.topics.put(TopicConfig("T7", 3, 3)), 1),
            (lambda: self.topics.remove("T8"), 0),
            (lambda: self.topics.order(frozenset({"T9", "absent"})), 1),
            (lambda: self.topics.order(frozenset({"T9"})), 0),
            (lambda: self.topics.order(frozenset()), 1),
        ):
            before = pieces.encoded
            change()
            self.topics.encoded()
            self.assertEqual(encoded, pieces.encoded - before)
        self.assertEqual(self.topics.table, self.make().table)
        self.assertEqual(
            self.topics.wrapper(),
            decodeBody(TopicConfigSerializeWrapper, self.topics.encoded()),
        )

    def test_permissionIsInRegistration(self) -> None:
        """
        The registration of a read-only broker says so for every topic, and follows its
        changes.
        """
        self.topics.put(TopicConfig("T", order=True))
        for permission in (4, 2):
            told = decodeBody(TopicConfigSerializeWrapper, self.topics.encoded(permission))
            self.assertEqual({permission}, {each.perm for each in told.topicConfigTable.values()})
            self.assertEqual(set(self.topics.table), set(told.topicConfigTable))
        self.topics.put(TopicConfig("U"))
        self.topics.remove("T")
        told = decodeBody(TopicConfigSerializeWrapper, self.topics.encoded(2))
        self.assertEqual(set(self.topics.table), set(told.topicConfigTable))

    def test_failedSaveIsRetried(self) -> None:
        """
        A topic that could not be saved stays unsaved until a later try, without a change,
        succeeds.
        """
        self.disk.failing["pwrite"] = OSError(28, "full")
        self.failureResultOf(self.topics.put(TopicConfig("T")), DiskFull)
        self.assertEqual({"T"}, set(self.topics.unsaved))
        self.disk.failing.clear()
        self.successResultOf(self.topics.flush())
        self.assertEqual(set(), set(self.topics.unsaved))
        self.assertIsNotNone(self.make().get("T"))

    def test_wrapperHasTopicsAndVersion(self) -> None:
        """
        The wrapper has all topics and the version.
        """
        self.topics.put(TopicConfig("T"))
        wrapper = self.topics.wrapper()
        self.assertEqual(self.topics.table, wrapper.topicConfigTable)
        self.assertEqual(self.topics.version, wrapper.dataVersion)

    def test_flushWaitsForWrite(self) -> None:
        """
        A stop waits for what is being written.
        """
        done: Deferred[None] = Deferred()
        self.topics = self.make(lambda job: done)
        self.successResultOf(self.topics.flush())
        self.topics.put(TopicConfig("T"))
        stopped = self.topics.flush()
        self.assertNoResult(stopped)
        done.callback(None)

    def test_renewRaisesVersion(self) -> None:
        """
        All is told anew under a new version when something else than the table
        has changed what is told.
        """
        self.topics.renew()
        self.assertEqual((1, 1), (self.topics.version.counter, self.changes))


class InheritTests(TopicsCase):
    """
    Topics that a send makes.
    """

    def inherit(self, name: str = "T", queues: int = 4, **options: Any) -> TopicConfig:
        """
        A send to a topic that is not there.
        """
        values: dict[str, Any] = {"defaultTopic": "TBW102", "unit": False, "address": "192.0.2.1:5"}
        config, saved = self.topics.inherit(name, queues=queues, **values | options)
        self.successResultOf(saved)
        return config

    def test_newTopicInheritsPermissions(self) -> None:
        """
        A new topic has as many queues as the sender wants, and TBW102's
        permissions but the one to be inherited from.
        """
        self.assertEqual(TopicConfig("T", 4, 4, 6), self.inherit())
        self.assertEqual(TopicConfig("T", 4, 4, 6), self.make().get("T"))
        self.assertEqual(1, self.changes)

    def test_queuesAreBoundedByParent(self) -> None:
        """
        It has no more queues than TBW102, and never less than none.
        """
        self.assertEqual(8, self.inherit("T", 100).writeQueueNums)
        self.assertEqual(0, self.inherit("U", -1).readQueueNums)

    def test_uninheritableTopicIsRefused(self) -> None:
        """
        No topic is made without one to inherit from, with one that does not let
        it, or where autoCreateTopicEnable was taken back.
        """
        self.topics.put(TopicConfig("closed", 1, 1, 6))
        for name in ("missing", "closed"):
            with self.assertRaises(TopicNotExist) as caught:
                self.inherit(defaultTopic=name)
            self.assertIn(name, caught.exception.remark)
        self.settings.now = TopicSettings(autoCreateTopicEnable=False)
        with self.assertRaises(TopicNotExist) as caught:
            self.inherit()
        self.assertIn("autoCreateTopicEnable", caught.exception.remark)
        self.assertIsNone(self.topics.get("T"))

    def test_retryTopicIsAlwaysCreated(self) -> None:
        """
        A group's retry topic is made even then, with one queue.
        """
        self.settings.now = TopicSettings(autoCreateTopicEnable=False)
        self.assertEqual(TopicConfig("%RETRY%G", 1, 1, 6), self.inherit("%RETRY%G"))

    def test_unitModeSetsFlag(self) -> None:
        """
        A sender in unit mode makes a unit topic; a retry topic is one with unit
        subscribers instead.
        """
        self.assertEqual(UNIT_FLAG, self.inherit(unit=True).topicSysFlag)
        self.assertEqual(UNIT_SUB_FLAG, self.inherit("%RETRY%G", unit=True).topicSysFlag)


class EnsureTests(TopicsCase):
    """
    Topics that the broker needs.
    """

    def test_missingTopicIsCreated(self) -> None:
        """
        One is made if it is not there, and left as it is if it is.
        """
        self.assertEqual(TopicConfig("T", 2, 2, 6), self.topics.ensure("T", 2))
        self.assertEqual(TopicConfig("T", 2, 2, 6), self.topics.ensure("T", 5))
        self.assertEqual(1, self.changes)
        self.assertIsNotNone(self.make().get("T"))

    def test_retryTopicHasGroupsQueues(self) -> None:
        """
        A group's retry topic has the queues of the group's configuration.
        """
        self.assertEqual(
            TopicConfig("%RETRY%G", 3, 3, 6, topicSysFlag=2),
            self.topics.ensureRetryTopic("G", 3, unit=True),
        )
        self.assertEqual(0, self.topics.ensureRetryTopic("H", 1, unit=False).topicSysFlag)

    def test_orderedTopicsAreMarked(self) -> None:
        """
        The topics that the name server has an order for are marked, and no
        others.  It is not told of what it has said itself: two name servers that
        do not agree would make a broker tell them for ever.
        """
        self.topics.put(TopicConfig("T"))
        self.topics.put(TopicConfig("U", order=True))
        before, self.changes = self.topics.version.counter, 0
        self.topics.order(frozenset({"T", "missing"}))
        self.assertEqual((True, False), (self.get("T").order, self.get("U").order))
        self.assertEqual(before + 1, self.topics.version.counter)
        self.topics.order(frozenset({"T"}))
        self.assertEqual(before + 1, self.topics.version.counter)
        self.assertEqual(0, self.changes)
        self.assertTrue(self.make().table["T"].order)
