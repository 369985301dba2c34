# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.admin.topics}.
"""

from __future__ import annotations

import os
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from tests.processors.admincase import BROKER, CLUSTER, NOW, AdminCase, warnings
from txrocket.broker.settings import TopicSettings
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.topics import Topics
from txrocket.model import MessageQueue, TopicConfig, TopicFilterType
from txrocket.protocol.bodies import (
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)


def create(
    topic: str = "T", read: int = 4, write: int = 4, flag: int | None = 0
) -> CreateTopicRequestHeader:
    """
    What makes a topic.
    """
    return CreateTopicRequestHeader(topic, "TBW102", read, write, 6, "SINGLE_TAG", flag, True)


class UpdateTests(AdminCase):
    """
    UPDATE_AND_CREATE_TOPIC.
    """

    def test_topicIsCreated(self) -> None:
        """
        A topic is made as the header says, but for the order, which is the name
        server's to say; it is there after a restart.
        """
        answer = self.succeed(RequestCode.UPDATE_AND_CREATE_TOPIC, create(read=3))
        self.assertEqual(({}, b""), (answer.extFields, answer.body))
        expected = TopicConfig("T", 3, 4, 6, TopicFilterType.SINGLE_TAG, 0, False)
        self.assertEqual(expected, self.topics.get("T"))
        again = Topics(
            TableFile(self.table("topics.json"), lambda job: Deferred()),
            ("c", "b"),
            self.configuration.live(TopicSettings),
            self.now,
        )
        again.load()
        self.assertEqual(expected, again.get("T"))

    def test_topicIsChanged(self) -> None:
        """
        A topic that is there is changed.
        """
        self.topic(queues=2)
        header = CreateTopicRequestHeader("T", "TBW102", 8, 8, 4, "MULTI_TAG")
        self.succeed(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        self.assertEqual(TopicConfig("T", 8, 8, 4, TopicFilterType.MULTI_TAG), self.topics.get("T"))

    def test_responseWaitsForNameServers(self) -> None:
        """
        The response waits until the name servers know, so that the administrator
        finds the topic there.
        """
        told: Deferred[None] = Deferred()
        self.told.append(told)
        command = requestCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        self.peer.dataReceived(command.encode())
        self.assertIsNotNone(self.topics.get("T"))
        self.assertIsNone(self.answer())
        told.callback(None)
        self.assertIsNotNone(self.answer())

    def test_notWritten(self) -> None:
        """
        A topic that cannot be written to the disk is no success.
        """
        self.disk.failing["pwrite"] = OSError("broken")
        self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.UPDATE_AND_CREATE_TOPIC, create())

    def test_invalidNameIsRefused(self) -> None:
        """
        The broker's own topics are left alone, and names that lead elsewhere are
        none.
        """
        before = dict(self.topics.table)
        for name in (
            *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "rmq_sys_x", CLUSTER, BROKER),
            *(f"{CLUSTER}_REPLY_TOPIC", "", "..", "../T", "a/b", "x" * 128),
        ):
            for code, header in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC, create(name)),
                (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(name)),
            ):
                self.refused(ResponseCode.SYSTEM_ERROR, code, header)
        self.assertEqual(before, self.topics.table)
        self.assertTrue(os.path.isdir(self.root))

    def test_invalidQueuesAreRefused(self) -> None:
        """
        A number of queues that cannot be meant is refused: statistics have a line
        for each.
        """
        for read, write in ((-1, 4), (4, -1), (8193, 4), (4, 2**31 - 1)):
            self.refused(
                ResponseCode.SYSTEM_ERROR,
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                create(read=read, write=write),
            )
        self.succeed(RequestCode.UPDATE_AND_CREATE_TOPIC, create(read=8192, write=0))


class DeleteTests(AdminCase):
    """
    DELETE_TOPIC_IN_BROKER.
    """

    def test_deletedTopicLosesAll(self) -> None:
        """
        With a topic go its queues, the groups' offsets in it and what was counted;
        another's stay.
        """
        for topic in ("T", "U"):
            self.topic(topic)
            self.fill(2, topic)
            self.commit("G", topic, 1)
            self.stats.put(topic, 2, 200)
        self.store.queues.write()
        self.succeed(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))
        self.assertIsNone(self.topics.get("T"))
        self.assertEqual(["U"], self.store.queues.topics())
        self.assertEqual(["U"], os.listdir(self.path("consumequeue")))
        self.assertEqual({"U"}, self.offsets.topicsOf("G"))
        self.assertIsNone(self.stats.data("TOPIC_PUT_NUMS", "T"))
        self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "U"))
        self.assertIsNotNone(self.topics.get("U"))

    def test_missingTopicIsDeleted(self) -> None:
        """
        A topic that is not there is as good as deleted.
        """
        self.succeed(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("%RETRY%G"))

    def test_failedDeletionKeepsTopic(self) -> None:
        """
        Where its queues cannot be removed the topic stays, to be deleted again.
        """
        self.topic()
        self.fill(1)
        self.store.queues.write()
        with patch.object(self.disk, "rename", side_effect=OSError("broken")):
            said = self.refused(
                ResponseCode.SYSTEM_ERROR,
                RequestCode.DELETE_TOPIC_IN_BROKER,
                DeleteTopicRequestHeader("T"),
            )
        self.assertIn("broken", said)
        self.assertIsNotNone(self.topics.get("T"))
        self.succeed(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))


class ListTests(AdminCase):
    """
    Looking at topics.
    """

    def test_allTopicsAreReturned(self) -> None:
        """
        All topics, and the version of the table.
        """
        self.topic()
        answer = self.succeed(RequestCode.GET_ALL_TOPIC_CONFIG)
        self.assertEqual(
            self.topics.wrapper(), decodeBody(TopicConfigSerializeWrapper, answer.body)
        )

    def test_systemTopicsAreListed(self) -> None:
        """
        The topics that are no user's are those of all brokers and of this one.
        """
        answer = self.succeed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        topics = decodeBody(TopicList, answer.body).topicList
        self.assertLessEqual({"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", CLUSTER, BROKER}, topics)
        self.assertNotIn("T", topics)

    def ends(self, topic: str = "T") -> dict[MessageQueue, TopicOffset]:
        """
        The ends of a topic's queues.
        """
        header = GetTopicStatsInfoRequestHeader(topic)
        answer = self.succeed(RequestCode.GET_TOPIC_STATS_INFO, header)
        return decodeBody(TopicStatsTable, answer.body).offsetTable

    def test_offsetsOfQueuesAreListed(self) -> None:
        """
        Where each queue begins and ends, and when its last message was stored; all
        is 0 of one that has had none.
        """
        self.topic()
        self.fill(3)
        self.assertEqual(
            {
                MessageQueue("T", BROKER, 0): TopicOffset(0, 3, NOW + 2000),
                MessageQueue("T", BROKER, 1): TopicOffset(0, 0, 0),
            },
            self.ends(),
        )

    def test_statsGone(self) -> None:
        """
        A last message that is no longer in the log has no time.
        """
        self.topic(queues=1)
        self.fill(3)
        with patch.object(self.store, "storeTimestamp", return_value=None):
            self.assertEqual([TopicOffset(0, 3, -1)], list(self.ends().values()))

    def test_noTopic(self) -> None:
        """
        There must be the topic.
        """
        header = GetTopicStatsInfoRequestHeader("T")
        self.refused(ResponseCode.TOPIC_NOT_EXIST, RequestCode.GET_TOPIC_STATS_INFO, header)

    def test_manyQueues(self) -> None:
        """
        A thousand queues are looked at bit by bit.
        """
        self.topic(queues=1024)
        with (
            patch.object(self.clock, "callLater", wraps=self.clock.callLater) as callLater,
            patch("time.time", side_effect=range(10_000)),
        ):
            self.assertEqual(1024, len(self.ends()))
        self.assertGreater(callLater.call_count, 1000)

    def test_connectionLost(self) -> None:
        """
        The work for a lost connection ends.
        """
        self.topic(queues=1024)
        command = requestCommand(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("T")
        )
        self.peer.dataReceived(command.encode())
        self.peer.connectionLost()
        with patch.object(self.store, "maxOffset") as maxOffset:
            self.clock.advance(0)
        self.assertEqual(0, maxOffset.call_count)


class CleaningTests(AdminCase):
    """
    What is no longer needed.
    """

    def test_emptyUnusedQueuesAreRemoved(self) -> None:
        """
        Empty queues of topics that are not there any more go, with offsets and what was
        counted; those that belong to the broker itself stay.
        """
        self.topic()
        for topic in ("T", "U", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
            self.fill(1, topic)
            self.stats.put(topic, 1, 1)
        self.commit("G", "U", 1)
        for _, _, queue in self.store.queues:
            queue.follow(1 << 40)
        self.succeed(RequestCode.CLEAN_UNUSED_TOPIC)
        self.assertEqual(
            {"T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC"},
            set(self.store.queues.topics()),
        )
        self.assertIsNone(self.stats.data("TOPIC_PUT_NUMS", "U"))
        self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "T"))
        self.assertEqual(set(), self.offsets.topicsOf("G"))

    def test_unusedButFilled(self) -> None:
        """
        Messages that the log still has stay within reach though their topic is lost,
        and the log says how to read them.
        """
        self.fill(3, "U")
        self.commit("G", "U", 1)
        with capturedLogs() as events:
            self.succeed(RequestCode.CLEAN_UNUSED_TOPIC)
        self.assertEqual(3, self.store.maxOffset("U", 0))
        self.assertEqual({"U"}, self.offsets.topicsOf("G"))
        kept, done = warnings(events)
        self.assertIn("Topic U does not exist any more, but its queues have messages", kept)
        self.assertIn(f"{self.peer.address} had the empty queues of unused topics deleted", done)

    def test_youngFiles(self) -> None:
        """
        No request deletes a file of the log that is younger than C{fileReservedTime}.
        """
        for _ in range(3):
            self.put(self.store, b"x" * 40_000)
        self.successResultOf(self.store.checkpointer.checkpoint())
        self.clock.advance(71 * 3600)
        for name in self.logFiles():
            os.utime(self.path("commitlog", name), (NOW / 1000, NOW / 1000))
        self.succeed(RequestCode.DELETE_EXPIRED_COMMITLOG)
        self.assertEqual(3, len(self.logFiles()))

    def test_cleanQueuesKeepsMessages(self) -> None:
        """
        Queues need no cleaning: their messages stay.
        """
        self.fill(1)
        self.succeed(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        self.assertEqual(1, self.store.maxOffset("T", 0))

    def test_oldFilesAreDeleted(self) -> None:
        """
        Old files of the log are deleted at once.
        """
        for _ in range(3):
            self.put(self.store, b"x" * 40_000)
        self.successResultOf(self.store.checkpointer.checkpoint())
        self.assertEqual(3, len(self.logFiles()))
        self.clock.advance(73 * 3600)
        for name in self.logFiles():
            os.utime(self.path("commitlog", name), (NOW / 1000, NOW / 1000))
        self.succeed(RequestCode.DELETE_EXPIRED_COMMITLOG)
        self.assertEqual(1, len(self.logFiles()))
        self.assertEqual(2, self.store.minOffset("T", 0))

    def test_filesFail(self) -> None:
        """
        A disk that does not let go of them is no success.
        """
        with patch.object(self.store.retention, "clean", side_effect=OSError("broken")):
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.DELETE_EXPIRED_COMMITLOG)
