# SPDX-License-Identifier: Apache-2.0
"""
Consumers that choose messages by SQL92, with a broker in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import RemoteSystemError, ResponseError, SubscriptionParseFailed
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.testing.trial import memoryCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
ENABLED = {"enablePropertyFilter": True}


class SqlTests(SynchronousTestCase):
    """
    The base: a cluster, and a producer of messages with a price.
    """

    settings: dict[str, Any] = ENABLED

    def setUp(self) -> None:
        self.servers = memoryCluster(self, settings=self.settings)
        self.cluster = Cluster(
            self.servers.nameServers, self.servers.clock, connect=self.servers.connect
        )
        self.addCleanup(lambda: self.servers.resultOf(self.cluster.stop()))
        self.producer = Producer(self.cluster)
        self.producer.startService()
        self.addCleanup(lambda: self.servers.resultOf(self.producer.stop()))
        self.got: list[str] = []

    def send(self, *prices: str, **properties: str) -> None:
        """
        Messages whose body is their price, each of another tag.
        """
        sending = [
            self.producer.send(
                Message(
                    "T", price.encode(), f"tag{price}", properties={"price": price, **properties}
                )
            )
            for price in prices
        ]
        self.servers.resultOf(gatherResults(sending))

    def listen(self, message: MessageExt) -> None:
        """
        Keep the messages of a push consumer.
        """
        self.got.append(message.body.decode())

    def push(self, expression: str) -> PushConsumer:
        """
        A push consumer that has not been started.
        """
        consumer = PushConsumer(self.cluster, "G", self.listen, consumeFromWhere=FIRST)
        consumer.subscribe("T", expression, "SQL92")
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))
        return consumer

    def taken(self) -> list[str]:
        """
        The messages since the last call, sorted.
        """
        got, self.got = self.got, []
        return sorted(got)

    def failed(self, result: Any, error: type[ResponseError]) -> ResponseError:
        """
        The error of a Deferred.
        """
        failures: list[Any] = []
        result.addErrback(failures.append)
        self.servers.advance(1)
        [failure] = failures
        self.assertIsInstance(failure.value, error)
        value: ResponseError = failure.value
        return value

    @property
    def broker(self) -> Broker:
        """
        The one broker.
        """
        service = self.servers.service(self.servers.brokers[0])
        assert isinstance(service, Broker)
        return service


class PushTests(SqlTests):
    """
    A push consumer.
    """

    def test_matchingMessagesCome(self) -> None:
        """
        It gets the messages for which its expression is true and no others, whatever their
        tags, present or new.
        """
        self.send("3", "5", "7", "9", "much")
        self.servers.resultOf(self.push("price > 5 AND TAGS <> 'tag9'").start())
        self.servers.advance(1)
        self.assertEqual(self.taken(), ["7"])
        self.send("4", "8", "6", "9")
        self.servers.advance(1)
        self.assertEqual(self.taken(), ["6", "8"])

    def test_matchingMessageWakesPull(self) -> None:
        """
        A held pull is woken at once by a matching message, and by no other.
        """
        self.send("1", "1", "1", "1")
        self.servers.resultOf(self.push("price > 5").start())
        self.servers.advance(1)
        held = len(self.broker.parts.core.longPoll)
        self.assertEqual(held, 5)  # 4 queues, and one of the retry topic
        self.send("2", "3", "4", "5")
        self.servers.advance()
        self.assertEqual((self.taken(), len(self.broker.parts.core.longPoll)), ([], held))
        self.send("6")
        self.servers.advance()
        self.assertEqual(self.taken(), ["6"])

    def test_offsetPassesUnwantedMessages(self) -> None:
        """
        The group's offset passes unwanted messages.
        """
        self.send("1", "2", "3", "4")
        self.servers.resultOf(self.push("price > 5").start())
        self.servers.advance(10)
        offsets = self.broker.tables.offsets.of("G", "T")
        self.assertEqual(dict(offsets), dict.fromkeys(range(4), 1))

    def test_newExpressionCountsForNewMessages(self) -> None:
        """
        A new expression counts for the messages that come after it.
        """
        self.send("1", "1", "1", "1")
        consumer = self.push("price > 5")
        self.servers.resultOf(consumer.start())
        self.servers.advance(1)
        consumer.subscribe("T", "price < 5", "SQL92")
        # The pulls that are held go by the old one for as long as they are.
        self.servers.advance(20)
        self.send("2", "6")
        self.servers.advance(1)
        self.assertEqual(self.taken(), ["2"])

    def test_restartKeepsExpression(self) -> None:
        """
        After the broker was away the group goes on; meanwhile its expression is in
        C{consumerFilter.json}.
        """
        self.send("1", "6", "2", "7")
        self.servers.resultOf(self.push("price > 5").start())
        self.servers.advance(11)
        self.assertEqual(self.taken(), ["6", "7"])
        (address,) = self.servers.brokers
        self.servers.stop(address)
        self.servers.start(address)
        kept = self.broker.tables.filters.subscription("G", "T")
        self.assertEqual(kept and kept.subString, "price > 5")
        self.servers.advance(40)
        self.send("3", "8", "4", "9")
        self.servers.advance(40)
        self.assertEqual(self.taken(), ["8", "9"])

    def test_crashKeepsExpression(self) -> None:
        """
        The expression is there after a crash too, if that was ten seconds later.
        """
        self.send("1")
        self.servers.resultOf(self.push("price > 5").start())
        self.servers.advance(11)
        (address,) = self.servers.brokers
        self.servers.crash(address)
        self.servers.start(address)
        kept = self.broker.tables.filters.subscription("G", "T")
        self.assertEqual(kept and kept.subString, "price > 5")

    def test_badExpressionFailsStart(self) -> None:
        """
        A bad expression fails the start with its place, and nothing runs on.
        """
        self.send("1")
        consumer = self.push("price >")
        error = self.failed(consumer.start(), SubscriptionParseFailed)
        self.assertIn("line 1, column 8: the end", error.remark)
        self.assertFalse(consumer.running)
        self.assertEqual(self.cluster.consumers, {})

    def test_correctedExpressionStarts(self) -> None:
        """
        A corrected expression can be started.
        """
        self.send("1", "6")
        consumer = self.push("price >")
        self.failed(consumer.start(), SubscriptionParseFailed)
        consumer.subscribe("T", "price > 5", "SQL92")
        self.servers.resultOf(consumer.start())
        self.servers.advance(1)
        self.assertEqual(self.taken(), ["6"])


class NotEnabledTests(SqlTests):
    """
    A broker with its default settings.
    """

    settings = {}

    def test_disabledSqlFailsStart(self) -> None:
        """
        SQL92 is not enabled, and the start says so.
        """
        self.send("1")
        error = self.failed(self.push("price > 5").start(), RemoteSystemError)
        self.assertIn("enablePropertyFilter is false", error.remark)


class PullTests(SqlTests):
    """
    Consumers that pull.
    """

    def test_pullCarriesExpression(self) -> None:
        """
        A pull carries its expression.
        """
        self.send("3", "7", "9")
        consumer = PullConsumer(self.cluster, "P")
        consumer.startService()
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))
        found = []
        for queue in self.servers.resultOf(consumer.queuesOf("T")):
            result = self.servers.resultOf(
                consumer.pull(queue, 0, expression="price > 5", expressionType="SQL92")
            )
            found += [each.body for each in result.messages]
            if result.nextBeginOffset and not result.messages:
                self.assertIs(result.pullStatus, PullStatus.NO_MATCHED_MSG)
        self.assertEqual(sorted(found), [b"7", b"9"])

    def test_litePullCarriesExpression(self) -> None:
        """
        The pulls of a lite pull consumer do too.
        """
        self.send("3", "7", "9")
        consumer = LitePullConsumer(self.cluster, "L", consumeFromWhere=FIRST)
        consumer.subscribe("T", "price BETWEEN 4 AND 8", "SQL92")
        consumer.startService()
        self.addCleanup(lambda: self.servers.resultOf(consumer.stop()))
        self.servers.advance(1)
        messages = self.servers.resultOf(consumer.poll())
        self.assertEqual([each.body for each in messages], [b"7"])
