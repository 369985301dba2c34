# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.query}.
"""

from __future__ import annotations

import os
import time
from typing import Any
from unittest.mock import patch

from tests.processors.admincase import BROKER, NOW, AdminCase
from txrocket.model import MessageQueue
from txrocket.processors.messages.query import QueryProcessor
from txrocket.protocol.bodies import (
    ConsumeQueueData,
    GroupList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryMessageRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewMessageRequestHeader,
)
from txrocket.protocol.javahash import javaHash
from txrocket.protocol.record import decodeRecord, decodeRecords

EVER = 2**63 - 1


class MessageTests(AdminCase):
    """
    Looking messages up.
    """

    def query(
        self, key: str, most: int = 32, unique: str | None = None, topic: str = "T"
    ) -> RemotingCommand:
        """
        Look for a key.
        """
        command = requestCommand(
            RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(topic, key, most, 0, EVER)
        )
        if unique is not None:
            command.extFields["_UNIQUE_KEY_QUERY"] = unique
        return self.answerTo(command.encode())

    def found(self, answer: RemotingCommand) -> list[bytes]:
        """
        The messages of an answer.
        """
        self.assertEqual(ResponseCode.SUCCESS, answer.code)
        return [each.body for each in decodeRecords(answer.body)]

    def test_messageIsFoundByKey(self) -> None:
        """
        A message is found by each of its keys and by its unique id; the answer
        says how far the index reaches.
        """
        self.put(self.store, b"a", KEYS="k1 k2", UNIQ_KEY="U1")
        self.clock.advance(1)
        last = self.put(self.store, b"b", KEYS="k2", UNIQ_KEY="U2")
        self.assertEqual([b"a"], self.found(self.query("k1")))
        self.assertEqual([b"b", b"a"], self.found(self.query("k2")))
        answer = self.query("U2", unique="true")
        self.assertEqual([b"b"], self.found(answer))
        self.assertEqual(
            {
                "indexLastUpdateTimestamp": str(NOW + 1000),
                "indexLastUpdatePhyoffset": str(last.offset),
            },
            answer.extFields,
        )

    def test_missingMessageStillReportsIndex(self) -> None:
        """
        An answer without messages says how far the index reaches, too.
        """
        answer = self.query("k")
        self.assertEqual(ResponseCode.QUERY_NOT_FOUND, answer.code)
        self.assertEqual(
            {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}, answer.extFields
        )

    def test_sameHash(self) -> None:
        """
        Messages whose keys only share a hash with what is looked for are not
        given, nor those of another topic.
        """
        self.assertEqual(javaHash("T#Aa"), javaHash("T#BB"))
        self.put(self.store, b"a", KEYS="Aa")
        self.assertEqual(ResponseCode.QUERY_NOT_FOUND, self.query("BB").code)
        self.assertEqual(javaHash("Aa#k"), javaHash("BB#k"))
        self.put(self.store, b"a", topic="Aa", KEYS="k")
        self.assertEqual(ResponseCode.QUERY_NOT_FOUND, self.query("k", topic="BB").code)

    def test_resultsAreBounded(self) -> None:
        """
        As many are given as were asked for; of a unique id 32, as many as may have
        it by being sent again.
        """
        for _ in range(40):
            self.put(self.store, b"a", KEYS="k")
        self.assertEqual(3, len(self.found(self.query("k", 3, "false"))))
        self.assertEqual(32, len(self.found(self.query("k", 3, "true"))))
        self.assertEqual(ResponseCode.QUERY_NOT_FOUND, self.query("k", -1).code)

    def test_byId(self) -> None:
        """
        A message is found by the offset in its id, and nothing elsewhere.
        """
        self.put(self.store, b"a")
        appended = self.put(self.store, b"b")
        header = ViewMessageRequestHeader(appended.offset)
        answer = self.succeed(RequestCode.VIEW_MESSAGE_BY_ID, header)
        self.assertEqual(b"b", decodeRecord(answer.body).body)
        for offset in (-1, appended.offset + 1, appended.end, EVER):
            header = ViewMessageRequestHeader(offset)
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.VIEW_MESSAGE_BY_ID, header)


class QueueTests(AdminCase):
    """
    QUERY_CONSUME_QUEUE.
    """

    OPTIONS = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2000 * 20}

    def entries(
        self, index: int, count: int, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """
        Entries of a queue.
        """
        header = QueryConsumeQueueRequestHeader("T", 0, index, count, group)
        answer = self.succeed(RequestCode.QUERY_CONSUME_QUEUE, header)
        return decodeBody(QueryConsumeQueueResponseBody, answer.body)

    def test_entriesAreListed(self) -> None:
        """
        Entries tell where records are, how long, and the hashes of their tags.
        """
        self.fill(2, TAGS="a")
        appended = self.put(self.store, b"x", TAGS="b")
        body = self.entries(1, 5)
        self.assertEqual((0, 3), (body.minQueueIndex, body.maxQueueIndex))
        assert body.queueData is not None
        self.assertEqual(2, len(body.queueData))
        self.assertEqual(
            ConsumeQueueData(appended.offset, appended.sizes[0], 98), body.queueData[-1]
        )
        self.assertEqual((None, None), (body.subscriptionData, body.filterData))

    def test_entriesAreBounded(self) -> None:
        """
        However many are asked for, no more than 1024 are given, and never less
        than none.
        """
        for _ in range(1100):
            self.gather(self.store)
        self.store.write()
        self.assertEqual(1024, len(self.entries(0, 2**31 - 1).queueData or ()))
        self.assertEqual((), self.entries(0, -1).queueData)

    def test_groupsSubscriptionIsShown(self) -> None:
        """
        With a group comes what it subscribes to, and that its filter is none; or
        that it is not there.
        """
        self.fill(1)
        self.assertIn("G", self.entries(0, 1, "G").filterData or "")
        self.join("G", "T")
        body = self.entries(0, 1, "G")
        assert body.subscriptionData is not None
        self.assertEqual(("T", "*"), (body.subscriptionData.topic, body.subscriptionData.subString))
        self.assertEqual("null", body.filterData)

    def test_noEntry(self) -> None:
        """
        Where there is no entry Java answers with success and nothing but a remark.
        """
        self.fill(1)
        for index in (-1, 1):
            header = QueryConsumeQueueRequestHeader("T", 0, index, 1)
            answer = self.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
            self.assertEqual((ResponseCode.SUCCESS, b""), (answer.code, answer.body))
            self.assertIn(str(index), answer.remark or "")

    def test_noQueue(self) -> None:
        """
        A queue that is not there is an error.
        """
        for header in (
            QueryConsumeQueueRequestHeader("T", 0, 0, 1),
            QueryConsumeQueueRequestHeader(),
        ):
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.QUERY_CONSUME_QUEUE, header)


class QueueFilterTests(QueueTests):
    """
    QUERY_CONSUME_QUEUE at a broker that keeps the filters of groups.
    """

    def codes(self) -> dict[int, Any]:
        own = QueryProcessor(self.store, self.consumers, lambda group, topic: f"{group}@{topic}")
        return {**super().codes(), **own.codes()}

    def test_groupsSubscriptionIsShown(self) -> None:
        """
        With a group that is there comes what is kept of its filter.
        """
        self.fill(1)
        self.assertIn("connected", self.entries(0, 1, "G").filterData or "")
        self.join("G", "T")
        self.assertEqual("G@T", self.entries(0, 1, "G").filterData)


class ConsumptionTests(AdminCase):
    """
    Who consumes a topic, and how far they are.
    """

    def setUp(self) -> None:
        super().setUp()
        zone = patch.dict(os.environ, TZ="UTC")
        zone.start()
        time.tzset()
        self.addCleanup(time.tzset)
        self.addCleanup(zone.stop)

    def times(self, group: str) -> tuple[QueueTimeSpan, ...]:
        """
        A group's place in the queues.
        """
        header = QueryConsumeTimeSpanRequestHeader("T", group)
        answer = self.succeed(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        return decodeBody(QueryConsumeTimeSpanBody, answer.body).consumeTimeSpanSet

    def test_progressIsShownAsTimes(self) -> None:
        """
        The times of the first message, the last, and the last consumed one, as
        numbers and as Java writes them; and how long the next has waited.
        """
        self.topic(queues=3)
        self.fill(5)
        self.fill(2, queueId=1)
        self.commit("G", "T", 3, 2)
        first, second, third = self.times("G")
        self.assertEqual(
            QueueTimeSpan(
                MessageQueue("T", BROKER, 0),
                NOW,
                NOW + 4000,
                NOW + 2000,
                4000,
                "2023-11-14#22:13:20:000",
                "2023-11-14#22:13:24:000",
                "2023-11-14#22:13:22:000",
            ),
            first,
        )
        # All consumed.
        self.assertEqual((NOW + 6000, 0), (second.consumeTimeStamp, second.delayTime))
        # Nothing there: no time is -1.
        self.assertEqual(
            (-1, -1, -1), (third.minTimeStamp, third.maxTimeStamp, third.consumeTimeStamp)
        )
        self.assertEqual(0, third.delayTime)
        self.assertEqual("1969-12-31#23:59:59:999", third.minTimeStampStr)

    def test_newGroup(self) -> None:
        """
        For a group without an offset the first message has waited.
        """
        self.topic(queues=1)
        self.fill(5)
        (span,) = self.times("G")
        self.assertEqual((NOW, 5000), (span.consumeTimeStamp, span.delayTime))

    def test_noTopic(self) -> None:
        """
        There must be the topic.
        """
        header = QueryConsumeTimeSpanRequestHeader("T", "G")
        self.refused(ResponseCode.TOPIC_NOT_EXIST, RequestCode.QUERY_CONSUME_TIME_SPAN, header)

    def test_groupsOfTopicAreListed(self) -> None:
        """
        The groups of a topic are those that subscribe to it, and those that have
        offsets in it.
        """
        self.join("G", "T", "U")
        self.join("H", "U")
        self.commit("I", "T", 1)
        self.commit("J", "U", 1)
        header = QueryTopicConsumeByWhoRequestHeader("T")
        answer = self.succeed(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        self.assertEqual({"G", "I"}, decodeBody(GroupList, answer.body).groupList)
