# SPDX-License-Identifier: Apache-2.0
"""
Tests for pulls that are served together: the outcome is the same as if each were served
alone.
"""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processors.support import BROUGHT, COMMIT, BrokerTests, binary, pullHeader, sendHeader
from tests.store.support import filesOf
from txrocket.broker.settings import BrokerSettings, PullSettings
from txrocket.model import PERM_WRITE, SubscriptionGroupConfig, TopicConfig
from txrocket.processors.messages.pull import pulltogether
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import PullMessageRequestHeader
from txrocket.protocol.record import decodeRecords

SUSPEND = 2


class ManyPullsCase(BrokerTests):
    """
    The base: a topic with two queues that hold messages, and a broker that serves
    pulls together.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic("T", 2)
        for number in range(8):
            tags = "ab"[number % 2]
            self.sent(b"%d" % number, queueId=int(number % 3 == 0), properties=f"TAGS\x01{tags}")
        self.taken = 0
        self.stats.puts.clear()

    def build(self) -> None:
        """
        Have the helper read the log.
        """
        self.disk.direct = True
        super().build()

    def pulls(self, *headers: PullMessageRequestHeader) -> list[RemotingCommand]:
        """
        The answers to pulls that come together.
        """
        requests = [self.client.request(RequestCode.PULL_MESSAGE, each) for each in headers]
        self.client.write(*requests)
        self.clock.advance(0)
        answers = self.client.answers()
        self.assertEqual(
            [each.opaque for each in answers], [each.opaque for each in requests][: len(answers)]
        )
        return answers


def bodies(answer: RemotingCommand) -> list[bytes]:
    """
    What the messages in an answer say.
    """
    return [each.body for each in decodeRecords(answer.body, checkCrc=True)]


class ManyPullsTests(ManyPullsCase):
    """
    Pulls that come together.
    """

    def test_found(self) -> None:
        """
        Each is answered, in turn, with what it asked for.
        """
        answers = self.pulls(
            pullHeader(), pullHeader(queueId=1), pullHeader(queueOffset=2, maxMsgNums=1)
        )
        self.assertEqual(self.taken, 1)
        self.assertEqual(
            [bodies(each) for each in answers],
            [[b"1", b"2", b"4", b"5", b"7"], [b"0", b"3", b"6"], [b"4"]],
        )
        self.assertEqual([each.remark for each in answers], ["FOUND"] * 3)
        self.assertEqual(answers[2].extFields["nextBeginOffset"], "3")

    def test_tags(self) -> None:
        """
        Only what is wanted is given.
        """
        [answer] = self.pulls(pullHeader(subscription="b"))
        self.assertEqual((self.taken, bodies(answer)), (1, [b"1", b"5", b"7"]))

    def test_commits(self) -> None:
        """
        An offset that a pull brings is kept.
        """
        self.pulls(pullHeader(sysFlag=BROUGHT | COMMIT, commitOffset=2, queueOffset=2))
        self.assertEqual((self.taken, self.offsets.query("G", "T", 0)), (1, 2))

    def test_beyondMaximumIsIgnored(self) -> None:
        """
        One that the queue has not come to is not kept, and the pull is answered.
        """
        self.pulls(pullHeader(sysFlag=BROUGHT | COMMIT, commitOffset=6))
        self.assertEqual((self.taken, self.offsets.query("G", "T", 0)), (1, -1))

    def test_others(self) -> None:
        """
        What finds nothing, may not be or is of another kind goes the long way, with all
        that is behind it.
        """
        for header, code in (
            (pullHeader(queueOffset=5), ResponseCode.PULL_NOT_FOUND),
            (pullHeader(queueOffset=9), ResponseCode.PULL_OFFSET_MOVED),
            (pullHeader(queueId=2), ResponseCode.SYSTEM_ERROR),
            (pullHeader(queueId=-1), ResponseCode.SYSTEM_ERROR),
            (pullHeader("none"), ResponseCode.TOPIC_NOT_EXIST),
            (pullHeader(sysFlag=0), ResponseCode.SUBSCRIPTION_NOT_EXIST),
            (pullHeader(subscription="ä"), ResponseCode.PULL_RETRY_IMMEDIATELY),
        ):
            first, second, third = self.pulls(pullHeader(), header, pullHeader(queueOffset=1))
            self.assertEqual((first.code, second.code, third.code), (0, code, 0))
            self.assertEqual((len(bodies(first)), len(bodies(third))), (5, 4))

    def test_binary(self) -> None:
        """
        A header in the other form goes the long way.
        """
        request = binary(self.client.request(RequestCode.PULL_MESSAGE, pullHeader()))
        self.client.write(request)
        [answer] = self.client.answers()
        self.assertEqual((self.taken, len(bodies(answer))), (0, 5))

    def test_held(self) -> None:
        """
        Who may be held is, until there is something.
        """
        header = pullHeader(sysFlag=BROUGHT | SUSPEND, queueOffset=5)
        self.assertEqual(self.pulls(header), [])
        self.client.write(self.message(sendHeader(), b"new"))
        self.clock.advance(0)
        self.assertIn([b"new"], [bodies(each) for each in self.client.answers()])

    def test_changes(self) -> None:
        """
        What is changed counts from the next read on.
        """
        self.assertEqual([each.code for each in self.pulls(pullHeader())], [0])
        self.pullSettings.now = PullSettings(slaveReadEnable=True)
        self.groups.put(SubscriptionGroupConfig("G", brokerId=3))
        [answer] = self.pulls(pullHeader())
        self.assertEqual((answer.extFields["suggestWhichBrokerId"], self.taken), ("3", 2))
        self.topics.put(TopicConfig("T", perm=PERM_WRITE))
        self.assertEqual(
            [each.code for each in self.pulls(pullHeader())], [ResponseCode.NO_PERMISSION]
        )
        self.brokerSettings.now = BrokerSettings(brokerPermission=PERM_WRITE)
        self.assertEqual(
            [each.code for each in self.pulls(pullHeader())], [ResponseCode.NO_PERMISSION]
        )
        self.assertEqual(self.taken, 2)

    def test_fails(self) -> None:
        """
        A disk that fails is told of.
        """
        self.store.queues.write()

        def broken(*given: Any) -> bytes:
            raise OSError(errno.EIO, "broken")

        self.patch(self.disk, "pread", broken)
        [answer] = self.pulls(pullHeader())
        self.assertEqual((answer.code, self.taken), (ResponseCode.SYSTEM_ERROR, 0))

    def test_large(self) -> None:
        """
        Answers are written when there are many, and nothing is taken from a peer that
        does not read them.
        """
        self.patch(pulltogether, "_AT_ONCE", 100)
        self.assertEqual([len(bodies(each)) for each in self.pulls(*[pullHeader()] * 3)], [5] * 3)
        self.assertEqual(self.taken, 1)
        self.client.wire.capacity = 10
        self.client.wire.writes.clear()
        requests = [self.client.request(RequestCode.PULL_MESSAGE, pullHeader()) for _ in range(4)]
        self.client.write(*requests)
        self.assertEqual(len(self.client.wire.writes), 1)
        self.assertEqual([len(self.client.answers()) for _ in range(5)], [1, 1, 1, 1, 0])

    def test_tooLong(self) -> None:
        """
        An answer that would be too long for a frame is not made here.
        """
        self.pullTogether._frameLimit = 400
        self.assertEqual(len(bodies(self.pulls(pullHeader())[0])), 5)
        self.assertEqual(self.taken, 0)

    def test_longIsNotKept(self) -> None:
        """
        Of a pull with a long subscription nothing is kept.
        """
        self.pulls(pullHeader(subscription="x" * 100))
        self.pulls(pullHeader(subscription="x" * 5000))
        self.assertEqual(
            [each.subscription for each in self.pullTogether._headers.values()], ["x" * 100]
        )

    def test_forgets(self) -> None:
        """
        No more consumers are known than there is room for.
        """
        self.patch(pulltogether, "_KNOWN", 2)
        for number in range(5):
            self.pulls(pullHeader(subVersion=number))
            self.assertLessEqual(len(self.pullTogether._headers), 2)
        self.assertEqual(self.taken, 5)


headers = st.builds(
    pullHeader,
    topic=st.sampled_from("TTTU"),
    queueId=st.sampled_from([0, 0, 1, 2]),
    queueOffset=st.integers(-1, 7),
    maxMsgNums=st.integers(-1, 9),
    sysFlag=st.sampled_from([BROUGHT, BROUGHT, BROUGHT | COMMIT, 0]),
    commitOffset=st.integers(0, 12),
    subscription=st.sampled_from(["*", "*", "a", "b || a", "é", None]),
    expressionType=st.sampled_from(["TAG", "TAG", None, "SQL92"]),
)


class SamePullsTests(ManyPullsCase):
    """
    Whatever is asked, in whatever pieces.
    """

    def outcome(
        self, given: list[PullMessageRequestHeader], cuts: list[int], together: bool
    ) -> tuple[Any, ...]:
        """
        What comes of pulls: the answers as they are on the wire, offsets and statistics.
        """
        self.together = together
        self.setUp()
        requests = [self.client.request(RequestCode.PULL_MESSAGE, each) for each in given]
        data = b"".join(each.encode() for each in requests)
        places = sorted({0, len(data), *(each % (len(data) + 1) for each in cuts)})
        for start, stop in pairwise(places):
            self.client.peer.dataReceived(data[start:stop])
            self.clock.advance(0)
        answers = b"".join(each.encode() for each in self.client.answers())
        offsets = [dict(self.offsets.of("G", topic)) for topic in "TU"]
        stats = vars(self.stats).copy()
        self.client.lose()
        return answers, offsets, stats, len(filesOf(self.root))

    @settings(deadline=None)
    @given(st.lists(headers, min_size=1, max_size=5), st.lists(st.integers(0, 5000), max_size=3))
    def test_same(self, given: list[PullMessageRequestHeader], cuts: list[int]) -> None:
        """
        The answers are the same, byte for byte, and so is what is noted.
        """
        self.assertEqual(self.outcome(given, cuts, True), self.outcome(given, cuts, False))
