# SPDX-License-Identifier: Apache-2.0
"""
Tests for pulls that found nothing and wait: what wakes them, and what they get.
"""

from __future__ import annotations

import gc
from typing import Any

from tests.processors.support import (
    BROUGHT,
    COMMIT,
    SUSPEND,
    BrokerTests,
    Client,
    pullHeader,
    sendHeader,
)
from txrocket.broker.settings import PullSettings
from txrocket.filters.expressions import MessageFilter
from txrocket.message import MessageExt
from txrocket.model import PERM_WRITE, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import PullMessageResponseHeader
from txrocket.protocol.record import decodeRecords


class HeldTests(BrokerTests):
    """
    C{self.client} sends, and C{self.consumer} pulls.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()
        self.consumer = self.connect()
        # Made beforehand, so that nothing is gathered because it is saved.
        self.successResultOf(self.groups.put(SubscriptionGroupConfig("G")))
        self.clock.advance(0)

    def hold(self, client: Client | None = None, **changes: Any) -> None:
        """
        Pull where there is nothing.
        """
        client = client or self.consumer
        header = pullHeader(**{"sysFlag": SUSPEND | BROUGHT, **changes})
        client.write(client.request(RequestCode.PULL_MESSAGE, header))
        self.assertEqual(client.answers(), [])

    def answer(self) -> RemotingCommand:
        """
        The one answer to what was pulled.
        """
        [answer] = self.consumer.answers()
        return answer

    def assertNothingLeft(self) -> None:
        """
        Neither pulls nor promises nor timers are left.
        """
        self.assertEqual(len(self.longPoll), 0)
        self.assertEqual(len(self.consumer.peer._promised), 0)
        self.clock.advance(60)
        self.assertIsNone(self.longPoll._timer)
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_messageWakesHeldPull(self) -> None:
        """
        A message wakes the pull, which gets it before the sender is answered.
        """
        self.hold()
        self.sent(b"a")
        answer = self.answer()
        self.assertEqual((answer.code, answer.remark), (ResponseCode.SUCCESS, "FOUND"))
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"a"])
        header = answer.decodeHeader(PullMessageResponseHeader)
        self.assertEqual((header.nextBeginOffset, header.minOffset, header.maxOffset), (1, 0, 1))
        self.assertEqual(self.stats.gots, [("G", "T", 1, len(answer.body))])
        self.assertNothingLeft()

    def test_messagesOfOneReadComeTogether(self) -> None:
        """
        All messages of one read come in one answer.
        """
        self.hold()
        self.client.write(*[self.message(body=each) for each in (b"a", b"b", b"c")])
        self.clock.advance(0)
        records = decodeRecords(self.answer().body)
        self.assertEqual([each.body for each in records], [b"a", b"b", b"c"])

    def test_allPullsOfAQueueAreWoken(self) -> None:
        """
        All pulls held at a queue are woken; those at others are not.
        """
        others = [self.connect() for _ in range(3)]
        for each in others:
            self.hold(each)
        self.hold(queueId=1)
        self.sent()
        for each in others:
            self.assertEqual([answer.code for answer in each.answers()], [0])
        self.assertEqual(self.consumer.answers(), [])
        self.sent(queueId=1)
        self.assertEqual(self.answer().code, 0)

    def test_onlyMatchingTagWakes(self) -> None:
        """
        Only a message with a tag that is wanted wakes it; what it gets is that one,
        and the next offset is behind all of them.
        """
        self.hold(subscription="a || b")
        self.sent(properties="TAGS\x01c")
        self.sent()
        self.assertEqual(self.consumer.answers(), [])
        self.sent(b"wanted", properties="TAGS\x01b")
        answer = self.answer()
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"wanted"])
        self.assertEqual(answer.extFields["nextBeginOffset"], "3")

    def test_timeLimit(self) -> None:
        """
        After C{suspendTimeoutMillis} it is told that there is nothing.
        """
        self.hold(suspendTimeoutMillis=2500)
        self.clock.advance(2.4)
        self.assertEqual(self.consumer.answers(), [])
        self.clock.advance(0.1)
        answer = self.answer()
        self.assertEqual(answer.code, ResponseCode.PULL_NOT_FOUND)
        self.assertEqual(answer.extFields["nextBeginOffset"], "0")
        self.assertNothingLeft()

    def test_timeLimitUnmatched(self) -> None:
        """
        If messages came that it did not want, it goes on behind them.
        """
        self.hold(subscription="a")
        self.sent(properties="TAGS\x01c")
        self.clock.advance(15)
        answer = self.answer()
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertEqual(answer.extFields["nextBeginOffset"], "1")

    def test_noTime(self) -> None:
        """
        One that may be held for no time, or less, is answered almost at once.
        """
        for milliseconds in (0, -5):
            self.hold(suspendTimeoutMillis=milliseconds)
            self.clock.advance(0.05)
            self.assertEqual(self.answer().code, ResponseCode.PULL_NOT_FOUND)

    def test_shortPolling(self) -> None:
        """
        Without C{longPollingEnable} it is held for C{shortPollingTimeMills}.
        """
        self.pullSettings.now = PullSettings(longPollingEnable=False, shortPollingTimeMills=300)
        self.hold(suspendTimeoutMillis=15000)
        self.clock.advance(0.29)
        self.assertEqual(self.consumer.answers(), [])
        self.clock.advance(0.02)
        self.assertEqual(self.answer().code, ResponseCode.PULL_NOT_FOUND)

    def test_stopAnswersAll(self) -> None:
        """
        When the broker stops, all are answered.
        """
        self.hold()
        self.hold(queueId=1)
        self.longPoll.stop()
        self.assertEqual(
            [each.code for each in self.consumer.answers()], [ResponseCode.PULL_NOT_FOUND] * 2
        )
        self.assertNothingLeft()

    def test_lostConnectionReleasesPull(self) -> None:
        """
        With its connection it is given up, and nothing is done for it.
        """
        self.hold()
        self.consumer.lose()
        self.assertEqual(len(self.longPoll), 0)
        self.sent()
        self.assertEqual(self.stats.gots, [])
        self.assertNothingLeft()

    def test_notHeld(self) -> None:
        """
        Only what found nothing and asks for it is held: not what moved, not what
        did not match, not what did not ask.
        """
        self.sent(properties="TAGS\x01c")
        for changes, code in (
            ({"queueOffset": 5}, ResponseCode.PULL_OFFSET_MOVED),
            ({"subscription": "a"}, ResponseCode.PULL_RETRY_IMMEDIATELY),
            ({"queueOffset": 1, "sysFlag": BROUGHT}, ResponseCode.PULL_NOT_FOUND),
        ):
            answer = self.pulled(self.consumer, **{"sysFlag": SUSPEND | BROUGHT, **changes})
            self.assertEqual(answer.code, code)

    def test_everyEmptyQueue(self) -> None:
        """
        At the end of a queue, at one that is not there, at one that is missing a
        file: each is held.
        """
        self.sent()
        self.hold(queueOffset=1)
        self.hold(queueId=3)
        for _ in range(12):
            self.sent(queueId=2)
        self.store.queues.write()
        queue = self.store.queues.get("T", 2)
        assert queue is not None
        queue.segments.removeFirst()
        self.hold(queueId=2, queueOffset=1)
        self.assertEqual(len(self.longPoll), 3)

    def test_committedAtOnce(self) -> None:
        """
        What it commits it commits when it comes, once.
        """
        for _ in range(7):
            self.sent()
        self.hold(sysFlag=SUSPEND | BROUGHT | COMMIT, queueOffset=7, commitOffset=7)
        self.assertEqual(self.offsets.query("G", "T", 0), 7)
        self.offsets.commit("G", "T", 0, 8, "elsewhere")
        self.sent()
        self.answer()
        self.assertEqual(self.offsets.query("G", "T", 0), 8)

    def test_otherRules(self) -> None:
        """
        The rules that count are those of the time when it is answered.
        """
        for change, code in (
            (lambda: self.topics.put(TopicConfig("T", perm=PERM_WRITE)), 16),
            (lambda: self.topics.remove("T"), ResponseCode.TOPIC_NOT_EXIST),
        ):
            self.hold()
            self.successResultOf(change())
            self.clock.advance(15)
            self.assertEqual(self.answer().code, code)
            self.topic()

    def test_groupForbidden(self) -> None:
        """
        A group that may no longer consume gets nothing more.
        """
        self.hold()
        self.successResultOf(self.groups.put(SubscriptionGroupConfig("G", consumeEnable=False)))
        self.clock.advance(0)
        self.sent()
        self.assertEqual(self.answer().code, ResponseCode.NO_PERMISSION)

    def test_tooMany(self) -> None:
        """
        When as many are held as may be, the next is told so at once.
        """
        self.change(pullThreadPoolQueueCapacity="1")
        self.hold()
        answer = self.pulled(sysFlag=SUSPEND | BROUGHT)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.sent()
        self.assertEqual(self.answer().code, ResponseCode.SUCCESS)

    def test_pullsAgain(self) -> None:
        """
        A consumer that pulls again as soon as it is answered waits again, and
        misses nothing.
        """
        got: list[bytes] = []
        offset = 0
        self.hold()
        for index in range(5):
            self.sent(b"%d" % index)
            answer = self.answer()
            got += [each.body for each in decodeRecords(answer.body)]
            offset = int(answer.extFields["nextBeginOffset"])
            self.hold(queueOffset=offset)
        self.assertEqual(got, [b"0", b"1", b"2", b"3", b"4"])

    def test_movedWhenWoken(self) -> None:
        """
        If what it waited for is gone when it is woken, that is noted while
        messages are being written, and upsets none of them.
        """
        self.sent()
        self.hold(queueOffset=1, subscription="a")
        queue = self.store.queues.get("T", 0)
        assert queue is not None
        queue.minOffset = 2
        self.client.write(
            self.message(sendHeader(properties="TAGS\x01a")), self.message(), self.message()
        )
        self.clock.advance(0)
        self.assertEqual([each.code for each in self.client.answers()], [0, 0, 0])
        self.assertEqual(self.answer().code, ResponseCode.PULL_OFFSET_MOVED)
        self.clock.advance(0)
        self.assertEqual(len(self.stored("OFFSET_MOVED_EVENT")), 1)

    def register(self, accepts: Any) -> None:
        """
        Have expressions of a type of their own.
        """
        self.expressions.register("OWN", lambda subscription: MessageFilter(accepts=accepts))
        self.change(enablePropertyFilter="true")

    def test_ownFilter(self) -> None:
        """
        A filter of another kind is asked about each message, without its body.
        """
        asked: list[MessageExt] = []

        def accepts(message: MessageExt) -> bool:
            asked.append(message)
            return message.properties.get("n") == "2"

        self.register(accepts)
        self.hold(subscription="n = 2", expressionType="OWN")
        self.sent(properties="n\x011")
        self.assertEqual(self.consumer.answers(), [])
        self.sent(b"wanted", properties="n\x012")
        self.assertEqual([each.body for each in decodeRecords(self.answer().body)], [b"wanted"])
        self.assertEqual({each.body for each in asked}, {b""})

    def test_filterFails(self) -> None:
        """
        The error of a filter goes to its own consumer, and to no other client: not to the
        producer, and not to other held pulls.
        """
        self.register(lambda message: 1 // 0)
        other = self.connect()
        self.hold(subscription="x", expressionType="OWN")
        self.hold(other)
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)
        self.assertEqual([each.code for each in other.answers()], [0])
        self.assertEqual(self.answer().code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertNothingLeft()
