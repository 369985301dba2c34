# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.pull}: what a pull is answered.
"""

from __future__ import annotations

import errno
from typing import Any

import attrs
from twisted.logger import LogLevel

from tests.processors.support import BROUGHT, COMMIT, BrokerTests, binary, pullHeader
from tests.store.support import HOST, QUEUE_ENTRIES
from txrocket.broker.settings import PullSettings
from txrocket.model import (
    PERM_READ,
    PERM_WRITE,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
)
from txrocket.protocol.bodies import OffsetMovedEvent
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import PullMessageResponseHeader
from txrocket.protocol.record import decodeRecords


class PullTests(BrokerTests):
    """
    The base: a topic with a queue that holds C{count} messages.
    """

    count = 3

    def setUp(self) -> None:
        super().setUp()
        self.topic()
        for index in range(self.count):
            self.sent(b"%d" % index, properties=f"TAGS\x01{'ab'[index % 2]}")

    def assertStands(
        self, answer: RemotingCommand, code: int, remark: str, *where: int, broker: int = 0
    ) -> None:
        """
        An answer has a code and tells of a queue: the next offset, the first, and
        the one past the last.
        """
        self.assertEqual((answer.code, answer.remark), (code, remark))
        self.assertEqual(
            set(answer.extFields),
            {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"},
        )
        header = answer.decodeHeader(PullMessageResponseHeader)
        self.assertEqual((header.nextBeginOffset, header.minOffset, header.maxOffset), where)
        self.assertEqual(header.suggestWhichBrokerId, broker)


class FoundTests(PullTests):
    """
    Pulls that find messages.
    """

    def test_found(self) -> None:
        """
        The body is the log's own bytes.
        """
        answer = self.pulled()
        self.assertStands(answer, ResponseCode.SUCCESS, "FOUND", 3, 0, 3)
        self.assertEqual(answer.body, self.store.log.read(0, self.store.log.end))
        bodies = [each.body for each in decodeRecords(answer.body, checkCrc=True)]
        self.assertEqual(bodies, [b"0", b"1", b"2"])

    def test_some(self) -> None:
        """
        From an offset on, and no more than are wanted.
        """
        answer = self.pulled(queueOffset=1, maxMsgNums=1)
        self.assertStands(answer, ResponseCode.SUCCESS, "FOUND", 2, 0, 3)
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"1"])

    def test_binary(self) -> None:
        """
        A binary header is answered by one, with the same in it.
        """
        request = binary(self.client.request(RequestCode.PULL_MESSAGE, pullHeader()))
        answer = self.answerTo(request)
        self.assertEqual(answer.serializeType, 1)
        self.assertStands(answer, ResponseCode.SUCCESS, "FOUND", 3, 0, 3)

    def test_tags(self) -> None:
        """
        Only messages with a tag that is wanted, and the next offset is behind all
        that were looked at.
        """
        answer = self.pulled(subscription="b")
        self.assertStands(answer, ResponseCode.SUCCESS, "FOUND", 3, 0, 3)
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"1"])

    def test_counted(self) -> None:
        """
        What a group gets is counted, and nothing is where it gets nothing.
        """
        answer = self.pulled()
        self.pulled(queueOffset=3)
        self.assertEqual(self.stats.gots, [("G", "T", 3, len(answer.body))])


class NothingTests(PullTests):
    """
    Pulls that find nothing, with Java's codes, remarks and offsets.
    """

    def test_noMatch(self) -> None:
        """
        Where no message matches: go on behind them, at once.
        """
        answer = self.pulled(subscription="c")
        self.assertStands(
            answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 3, 0, 3
        )

    def test_end(self) -> None:
        """
        At the end: try there again.
        """
        answer = self.pulled(queueOffset=3)
        self.assertStands(answer, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3, 0, 3)

    def test_beyond(self) -> None:
        """
        Beyond the end: go back to it.
        """
        answer = self.pulled(queueOffset=5)
        self.assertStands(answer, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3)

    def test_before(self) -> None:
        """
        Before the first: go on at it.
        """
        answer = self.pulled(queueOffset=-1)
        self.assertStands(answer, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, 0, 3)

    def test_noQueue(self) -> None:
        """
        Where nothing was ever sent: wait at 0, from where else go there.
        """
        answer = self.pulled(queueId=1)
        self.assertStands(answer, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
        answer = self.pulled(queueId=1, queueOffset=7)
        self.assertStands(answer, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)

    def test_removing(self) -> None:
        """
        Messages that have just been deleted: go on behind them, at once.
        """
        for _ in range(3):
            self.sent(b"x" * 3000)
        self.store.log.segments.removeFirst()
        answer = self.pulled(maxMsgNums=1)
        self.assertStands(answer, ResponseCode.SUCCESS, "FOUND", 5, 0, 6)
        self.store.log.segments.removeFirst()
        self.store.log.segments.removeFirst()
        answer = self.pulled(queueOffset=1)
        self.assertStands(
            answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING", 6, 0, 6
        )

    def test_missing(self) -> None:
        """
        A queue of which a file is missing: go on at the next.
        """
        for _ in range(QUEUE_ENTRIES):
            self.sent()
        self.store.queues.write()
        queue = self.store.queues.get("T", 0)
        assert queue is not None
        queue.segments.removeFirst()
        answer = self.pulled(queueOffset=1)
        self.assertStands(
            answer,
            ResponseCode.PULL_NOT_FOUND,
            "OFFSET_FOUND_NULL",
            QUEUE_ENTRIES,
            0,
            QUEUE_ENTRIES + 3,
        )

    def test_disk(self) -> None:
        """
        A disk that does not give the messages is told of.
        """
        self.patch(self.disk, "pread", _broken)
        self.store._handles.close()
        answer = self.pulled()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("broken", answer.remark or "")


def _broken(*args: object) -> Any:
    raise OSError(errno.EIO, "broken")


class EmptyQueueTests(PullTests):
    """
    A queue whose files are there and empty.
    """

    count = 0

    def test_empty(self) -> None:
        """
        Wait at 0; from elsewhere, go there.
        """
        self.store.queues._make("T", 0)
        answer = self.pulled()
        self.assertStands(answer, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        answer = self.pulled(queueOffset=1)
        self.assertStands(answer, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


class RefusedTests(PullTests):
    """
    Pulls that are not served.
    """

    def assertRefused(self, answer: RemotingCommand, code: int, words: str) -> None:
        """
        A pull was refused, and the consumer is told why.
        """
        self.assertEqual(answer.code, code)
        self.assertIn(words, answer.remark or "")
        self.assertEqual(answer.extFields, {})
        self.assertEqual(answer.body, b"")

    def test_broker(self) -> None:
        """
        From a broker that may not be read from nothing is pulled.
        """
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, brokerPermission=PERM_WRITE)
        self.assertRefused(self.pulled(), ResponseCode.NO_PERMISSION, "brokerPermission forbids")

    def test_group(self) -> None:
        """
        A group that does not exist, and is not made, gets nothing; nor does one
        that may not consume.
        """
        self.change(autoCreateSubscriptionGroup="false")
        answer = self.pulled()
        self.assertRefused(answer, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "group G does not")
        self.successResultOf(self.groups.put(SubscriptionGroupConfig("G", consumeEnable=False)))
        answer = self.pulled()
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "consumeEnable is false")
        self.successResultOf(self.groups.put(SubscriptionGroupConfig("G")))
        self.assertEqual(self.pulled().code, ResponseCode.SUCCESS)

    def test_groupMade(self) -> None:
        """
        A group is made by its first pull, if its name can be one.
        """
        self.pulled(consumerGroup="new")
        self.assertIn("new", self.groups.table)
        answer = self.pulled(consumerGroup="../x")
        self.assertRefused(answer, ResponseCode.SYSTEM_ERROR, "letters, digits")
        self.assertNotIn("../x", self.groups.table)

    def test_topic(self) -> None:
        """
        A topic that does not exist is not made by a pull, and the operator hears of
        it.
        """
        answer = self.pulled(topic="none")
        self.assertRefused(answer, ResponseCode.TOPIC_NOT_EXIST, "topic none does not exist")
        self.assertIsNone(self.topics.get("none"))
        self.assertEqual(
            self.logged(LogLevel.warn),
            ["192.0.2.7:50001 pulls from topic none, which does not exist"],
        )

    def test_topicNotReadable(self) -> None:
        """
        A topic that may not be read from is not.
        """
        self.topic("W", perm=PERM_WRITE)
        answer = self.pulled(topic="W")
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "topic W may not be read from")
        self.topic("W", perm=PERM_READ)
        self.assertEqual(self.pulled(topic="W").code, ResponseCode.PULL_NOT_FOUND)

    def test_queue(self) -> None:
        """
        A queue must be one that is read from.
        """
        self.successResultOf(self.topics.put(TopicConfig("S", 2, 6)))
        for queueId in (-1, 2):
            answer = self.pulled(topic="S", queueId=queueId)
            self.assertRefused(answer, ResponseCode.SYSTEM_ERROR, f"queue {queueId} is not one")
        self.assertEqual(self.pulled(topic="S", queueId=1).code, ResponseCode.PULL_NOT_FOUND)

    def test_nothingCommitted(self) -> None:
        """
        A pull that is refused commits nothing.
        """
        self.pulled(topic="none", sysFlag=COMMIT | BROUGHT, commitOffset=2)
        self.assertEqual(self.offsets.query("G", "none", 0), -1)


class CommitTests(PullTests):
    """
    Pulls that tell how far their group has come.
    """

    def test_commit(self) -> None:
        """
        With the flag the offset is committed, whatever the pull finds.
        """
        for offset, commit in ((0, 1), (3, 2), (9, 3)):
            self.pulled(queueOffset=offset, commitOffset=commit, sysFlag=COMMIT | BROUGHT)
            self.assertEqual(self.offsets.query("G", "T", 0), commit)

    def test_beyondMaximumIsIgnored(self) -> None:
        """
        An offset that the queue has not come to is not committed, the operator hears of it
        once, and the pull is answered.
        """
        for offset in (0, 3, 9):
            for commit in (4, 1_048_627):
                answer = self.pulled(
                    queueOffset=offset, commitOffset=commit, sysFlag=COMMIT | BROUGHT
                )
                self.assertNotEqual(answer.code, ResponseCode.SYSTEM_ERROR)
                self.assertEqual(self.offsets.query("G", "T", 0), -1)
        said = [each for each in self.logged(LogLevel.warn) if "refused" in each]
        self.assertEqual(len(said), 1)
        self.assertIn("commits offset 4 for group G in queue 0 of T", said[0])

    def test_noFlag(self) -> None:
        """
        Without it the offset that is there counts for nothing.
        """
        self.pulled(commitOffset=2)
        self.assertEqual(self.offsets.query("G", "T", 0), -1)

    def test_back(self) -> None:
        """
        A group may go back, and the operator hears who took it there.
        """
        self.pulled(commitOffset=2, sysFlag=COMMIT | BROUGHT)
        self.pulled(commitOffset=1, sysFlag=COMMIT | BROUGHT)
        self.assertEqual(self.offsets.query("G", "T", 0), 1)
        [said] = self.logged(LogLevel.warn)
        self.assertIn("192.0.2.7:50001 takes group G back", said)


class SuggestedTests(PullTests):
    """
    Which broker to pull from next.
    """

    def setUp(self) -> None:
        super().setUp()
        self.successResultOf(
            self.groups.put(
                SubscriptionGroupConfig("G", brokerId=2, whichBrokerWhenConsumeSlowly=3)
            )
        )

    def suggested(self) -> int:
        """
        What a pull is told.
        """
        return self.pulled().decodeHeader(PullMessageResponseHeader).suggestWhichBrokerId

    def test_master(self) -> None:
        """
        The master, unless slaves may be read from.
        """
        self.assertEqual(self.suggested(), 0)

    def test_slaves(self) -> None:
        """
        If they may, the broker that the group is configured for, and another while
        what it pulls is old.
        """
        self.pullSettings.now = PullSettings(slaveReadEnable=True)
        self.assertEqual(self.suggested(), 2)
        self.store.reader.messages.near = 1
        self.assertEqual(self.suggested(), 3)


class MovedTests(PullTests):
    """
    Pulls from offsets that are not there leave a message for whoever watches.
    """

    def test_event(self) -> None:
        """
        It has the group, the queue, the offset that was wanted and the one that
        was given, and can be found by the group.
        """
        self.pulled(queueOffset=9)
        self.clock.advance(0)
        [record] = self.stored("OFFSET_MOVED_EVENT")
        self.assertEqual(
            decodeBody(OffsetMovedEvent, record.body),
            OffsetMovedEvent("G", MessageQueue("T", "b", 0), 9, 3),
        )
        self.assertEqual((record.tags, record.keys), ("G", ["G"]))
        self.assertEqual(record.bornTimestamp, self.now())
        self.assertEqual(record.bornHostData, HOST)
        [said] = self.logged(LogLevel.warn)
        self.assertEqual(
            said,
            "Group G asked for offset 9 in queue 0 of T, which has 0 to 3, and goes on at 3",
        )

    def test_each(self) -> None:
        """
        One for every offset that is moved, and none for others.
        """
        for offset, queueId in ((-1, 0), (4, 0), (1, 1), (3, 0), (0, 1), (0, 0)):
            self.pulled(queueOffset=offset, queueId=queueId)
        self.clock.advance(0)
        self.assertEqual(len(self.stored("OFFSET_MOVED_EVENT")), 3)

    def test_full(self) -> None:
        """
        If it cannot be stored, the pull is answered all the same.
        """
        self.disk.used = 0.95
        self.store.retention.clean()
        answer = self.pulled(queueOffset=9)
        self.assertStands(answer, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3)
        self.assertIn("could not be noted in OFFSET_MOVED_EVENT", self.logged(LogLevel.error)[-1])

    def test_withSends(self) -> None:
        """
        It does not upset the messages that come in the same read.
        """
        pull = self.client.request(RequestCode.PULL_MESSAGE, pullHeader(queueOffset=9))
        self.client.write(self.message(body=b"a"), pull, self.message(body=b"b"))
        self.clock.advance(0)
        self.assertEqual(
            [each.code for each in self.client.answers()], [0, ResponseCode.PULL_OFFSET_MOVED, 0]
        )
        self.assertEqual(self.bodies()[3:], [b"a", b"b"])
