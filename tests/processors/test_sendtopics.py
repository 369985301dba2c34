# SPDX-License-Identifier: Apache-2.0
"""
Tests for messages to topics that are not there: which are made, and that nobody is
told of a message before its topic is on the disk.
"""

from __future__ import annotations

import errno
import gc
import os

from tests.processors.support import BrokerTests, sendHeader
from tests.store.support import Held, atOnce
from txrocket.broker.names import NOT_SENT_TO
from txrocket.broker.settings import TopicSettings
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.topics import Topics
from txrocket.config import Live
from txrocket.model import PERM_READ, PERM_WRITE, TopicConfig
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand

FULL = OSError(errno.ENOSPC, "full")


class MakeTests(BrokerTests):
    """
    Which topics are made.
    """

    def test_delayedTooLong(self) -> None:
        """
        A message that could not be stored in its topic does not wait for that: it is
        refused.
        """
        group = "g" * 200
        self.topics.ensureRetryTopic(group, 1, False)
        answer = self.sent(topic=f"%RETRY%{group}", properties="DELAY\x011")
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("topic of 207 bytes", answer.remark or "")

    def test_inherits(self) -> None:
        """
        A topic that is not there is made after TBW102, with as many queues as the
        sender wants, and is there when it is answered.
        """
        self.client.write(self.message(sendHeader("new", defaultTopicQueueNums=3)))
        self.clock.advance(0)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        expected = TopicConfig("new", 3, 3, PERM_READ | PERM_WRITE)
        self.assertEqual(self.topics.get("new"), expected)
        topics = Topics(
            TableFile(self.table("topics.json"), atOnce),
            ("c", "b"),
            Live(TopicSettings()),
            lambda: 0,
        )
        topics.load()
        self.assertEqual(topics.get("new"), expected)

    def test_atMost(self) -> None:
        """
        It has no more queues than TBW102, and the message may ask for none beyond.
        """
        answer = self.sent(topic="new", defaultTopicQueueNums=100, queueId=8)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("queue 8 is not one of topic new", answer.remark or "")
        config = self.topics.get("new")
        assert config is not None
        self.assertEqual(config.writeQueueNums, 8)

    def test_unit(self) -> None:
        """
        The topic of a unit is marked, a retry topic's subscription is.
        """
        for name, flag in (("new", 1), ("%RETRY%G", 2)):
            self.answered(name, unitMode=True)
            config = self.topics.get(name)
            assert config is not None
            self.assertEqual(config.topicSysFlag, flag)

    def answered(self, topic: str, **changes: object) -> RemotingCommand:
        """
        The answer to a message, when the reactor has turned.
        """
        self.client.write(self.message(sendHeader(topic, **changes)))
        self.clock.advance(0)
        [answer] = self.client.answers()
        return answer

    def test_notMade(self) -> None:
        """
        Where topics do not come into being by themselves, the answer is
        TOPIC_NOT_EXIST, and nothing is stored.
        """
        self.change(autoCreateTopicEnable="false")
        answer = self.sent(topic="new")
        self.assertEqual(answer.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertIsNone(self.topics.get("new"))
        self.assertEqual(self.store.log.end, 0)

    def test_retry(self) -> None:
        """
        A retry topic is made all the same, with one queue.
        """
        self.change(autoCreateTopicEnable="false")
        self.assertEqual(self.answered("%RETRY%G").code, ResponseCode.SUCCESS)
        config = self.topics.get("%RETRY%G")
        assert config is not None
        self.assertEqual((config.writeQueueNums, config.readQueueNums), (1, 1))

    def test_badNames(self) -> None:
        """
        A name that could lead out of the store's folder, or that is none, is
        refused, and nothing is made anywhere.
        """
        for name in (
            *("..", ".", "../x", "a/b", "a\\b", "/etc", "a\0b", "a.b", " ", "ü", "a\n"),
            *("x" * 128, "\ufffd"),
        ):
            answer = self.sent(topic=name)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR, name)
            self.assertIsNone(self.topics.get(name))
        self.assertEqual(self.answered("x" * 127).code, ResponseCode.SUCCESS)
        self.store.queues.write()
        self.assertEqual(os.listdir(os.path.join(self.root, "consumequeue")), ["x" * 127])

    def test_reserved(self) -> None:
        """
        Nobody sends to a topic that only the broker writes to, and none of them is
        made by trying.
        """
        for name in sorted(NOT_SENT_TO):
            before = self.topics.get(name)
            answer = self.sent(topic=name)
            self.assertEqual(answer.code, ResponseCode.NO_PERMISSION, name)
            self.assertEqual(self.topics.get(name), before)
        self.assertEqual(self.topics.unsaved, set())


class SavedTests(BrokerTests):
    """
    Topics that are not on the disk yet.
    """

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()

    def write(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """
        Send requests; what is answered when the reactor has turned.
        """
        self.client.write(*requests)
        self.clock.advance(0)
        return self.client.answers()

    def worked(self) -> list[int]:
        """
        Let threads do all that they were asked for; what is answered.
        """
        while self.held.jobs:
            self.held.work()
            self.clock.advance(0)
        return [each.code for each in self.client.answers()]

    def test_waits(self) -> None:
        """
        The first message to a topic is answered once the topic is on the disk, and
        those that come meanwhile as well; later ones at once.
        """
        self.assertEqual(self.write(self.message(), self.message()), [])
        self.assertEqual(self.write(self.message()), [])
        self.assertEqual(len(self.bodies()), 3)
        self.assertFalse(os.path.exists(os.path.join(self.root, "config", "topics.json")))
        self.assertEqual(self.worked(), [0, 0, 0])
        self.assertTrue(os.path.exists(os.path.join(self.root, "config", "topics.json")))
        self.assertEqual([each.code for each in self.write(self.message())], [0])
        self.assertEqual(self.held.jobs, [])

    def test_oneway(self) -> None:
        """
        Who wants no answer waits for nothing; the topic is saved all the same.
        """
        self.assertEqual(self.write(self.oneway()), [])
        self.assertEqual(len(self.client.peer._promised), 0)
        self.assertEqual(self.worked(), [])
        self.assertEqual(self.topics.unsaved, set())

    def test_notSaved(self) -> None:
        """
        If the topic cannot be saved, nobody is told that the message is stored.
        """
        self.write(self.message())
        self.disk.failing["pwrite"] = FULL
        self.disk.only = "topics.json"
        self.assertEqual(self.worked(), [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.assertEqual(self.write(self.message()), [])
        self.assertEqual(self.worked(), [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.disk.failing.clear()
        self.assertEqual(self.write(self.message()), [])
        self.assertEqual(self.worked(), [ResponseCode.SUCCESS])

    def assertNothingUnhandled(self) -> None:
        """
        No Deferred has failed without anybody to look at it.
        """
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_refusedAndNotSaved(self) -> None:
        """
        That a topic is not saved whose message was refused concerns nobody.
        """
        [answer] = self.write(self.message(sendHeader(queueId=100)))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.disk.failing["pwrite"] = FULL
        self.assertEqual(self.worked(), [])
        self.disk.failing.clear()
        self.assertNothingUnhandled()

    def test_lostAndNotSaved(self) -> None:
        """
        Nor if the message was not written.
        """
        self.disk.failing["pwrite"] = FULL
        [answer] = self.write(self.message())
        self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.worked(), [])
        self.disk.failing.clear()
        self.assertNothingUnhandled()

    def test_gone(self) -> None:
        """
        A client that goes away while its topic is saved concerns nobody else.
        """
        self.write(self.message())
        other = self.connect()
        other.write(self.message())
        self.clock.advance(0)
        self.client.lose()
        self.worked()
        self.assertEqual([each.code for each in other.answers()], [0])
        self.assertEqual(self.topics.unsaved, set())
        self.assertNothingUnhandled()

    def test_brokenMeanwhile(self) -> None:
        """
        When the disk fails in the middle of a read, who waits elsewhere is told
        first; that must not have the others told that theirs are stored.
        """
        self.topic()
        self.worked()
        other = self.connect()
        self.remoting.turn.driven = True
        other.write(self.message(sendHeader("new")))
        self.disk.failing["pwrite"] = OSError(errno.EIO, "broken")
        self.disk.only = "commitlog"
        self.client.write(self.message(body=b"a" * 3000), self.message(body=b"b" * 3000))
        self.turns()
        self.disk.failing.clear()
        for client, count in ((other, 1), (self.client, 2)):
            codes = [each.code for each in client.answers()]
            self.assertEqual(codes, [ResponseCode.SERVICE_NOT_AVAILABLE] * count)
        self.worked()

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()


class SavedAtOnceTests(SavedTests):
    """
    The same where nothing is gathered.
    """

    together = False
