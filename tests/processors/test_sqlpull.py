# SPDX-License-Identifier: Apache-2.0
"""
Tests for pulls by SQL92: of messages that are there, and of retried ones.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.broker.peers import Connected, consumer
from tests.processors.support import BROUGHT, BrokerTests, pullHeader
from txrocket.broker.settings import PullSettings
from txrocket.filters.sql92 import SQL92, sql92Filter
from txrocket.filters.tags import tagSubscription
from txrocket.model import SubscriptionData, TopicConfig
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import PullMessageResponseHeader
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.record.fields import encodeProperties

RETRY = "%RETRY%G"


class SqlPullTests(BrokerTests):
    """
    A broker that evaluates SQL92, and C{self.client}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.expressions.register(SQL92, sql92Filter)
        self.set(enablePropertyFilter=True)
        for topic in ("T", RETRY):
            self.successResultOf(self.topics.put(TopicConfig(topic)))

    def set(self, **settings: Any) -> None:
        """
        Change the settings of pulls.
        """
        self.pullSettings.now = PullSettings(**settings)
        self.configuration.live(PullSettings).now = self.pullSettings.now

    def put(self, topic: str, body: bytes, **properties: str) -> None:
        """
        A message comes.
        """
        self.store.put(topic, 0, body, encodeProperties(properties), 1, b"\x7f\0\0\1\0\0\0\1")
        self.clock.advance(0)

    def ask(self, **changes: Any) -> RemotingCommand:
        """
        The answer to a pull.
        """
        header = pullHeader(**changes)
        self.client.write(self.client.request(RequestCode.PULL_MESSAGE, header))
        self.clock.advance(0)
        [answer] = self.client.answers()
        return answer

    def given(self, **changes: Any) -> list[bytes]:
        """
        What a pull gives.
        """
        answer = self.ask(**changes)
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)
        return [each.body for each in decodeRecords(answer.body)]

    def brought(self, expression: str) -> dict[str, Any]:
        """
        A pull that brings an expression along.
        """
        return {"sysFlag": BROUGHT, "subscription": expression, "expressionType": SQL92}

    def again(self) -> list[bytes]:
        """
        What a pull of G's retried messages gives.
        """
        return self.given(topic=RETRY, sysFlag=0, subscription=None)

    def subscribe(self, *subscriptions: SubscriptionData) -> None:
        """
        G's consumer tells of itself.
        """
        subscribed = frozenset({tagSubscription(RETRY, "*"), *subscriptions})
        data = replace(consumer("G"), subscriptionDataSet=subscribed)
        self.consumers.register(data, Connected().client("c"), 0)

    def test_expressionOfPullFilters(self) -> None:
        """
        Only what an expression is true for is given, and the next pull goes on behind
        what it is not true for.
        """
        self.put("T", b"a", price="1")
        self.put("T", b"b", price="7")
        self.put("T", b"c", price="x")
        self.put("T", b"d")
        self.assertEqual(self.given(**self.brought("price > 5")), [b"b"])
        self.assertEqual(self.given(**self.brought("price IS NULL")), [b"d"])
        answer = self.ask(**self.brought("price > 50"))
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertEqual(answer.decodeHeader(PullMessageResponseHeader).nextBeginOffset, 4)

    def test_invalidExpressionIsRefused(self) -> None:
        """
        One that is none is refused with its place.
        """
        answer = self.ask(**self.brought("price >"))
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        self.assertIn("line 1, column 8", answer.remark or "")

    def test_notEnabled(self) -> None:
        """
        None is evaluated without C{enablePropertyFilter}.
        """
        self.set()
        answer = self.ask(**self.brought("price > 5"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)

    def test_expressionOfHeartbeatFilters(self) -> None:
        """
        A heartbeat's expression does the same.
        """
        self.subscribe(SubscriptionData("T", "price > 5", expressionType=SQL92))
        self.put("T", b"a", price="1")
        self.put("T", b"b", price="7")
        self.assertEqual(self.given(sysFlag=0, subscription=None), [b"b"])

    def test_retriedMessageIsFilteredOnRequest(self) -> None:
        """
        A retried message that its group does not want any more is given to it all the
        same, unless C{filterSupportRetry} says otherwise.
        """
        self.subscribe(SubscriptionData("T", "price > 5", expressionType=SQL92))
        self.put(RETRY, b"a", price="1", RETRY_TOPIC="T")
        self.put(RETRY, b"b", price="7", RETRY_TOPIC="T")
        self.put(RETRY, b"c", price="1", RETRY_TOPIC="U")
        self.assertEqual(self.again(), [b"a", b"b", b"c"])
        self.set(enablePropertyFilter=True, filterSupportRetry=True)
        self.assertEqual(self.again(), [b"b", b"c"])
