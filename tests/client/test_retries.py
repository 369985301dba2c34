# SPDX-License-Identifier: Apache-2.0
"""
Listeners that fail, with whole brokers in memory: when a message comes again, and
what becomes of it at last.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageModel
from txrocket.protocol.record import decodeRecords
from txrocket.testing.trial import memoryCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

# Seconds of RocketMQ's delay levels from the third on: 10s 30s 1m 2m ... 2h.
LEVELS = [10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


class RetryCase(SynchronousTestCase):
    """
    The base: brokers, a producer, and consumers whose listeners do what a test says.

    @ivar got: the body, the times before and the second of each call of a listener.
    """

    settings: dict[str, Any] = {}
    brokers = 1

    def setUp(self) -> None:
        self.servers = memoryCluster(self, brokers=self.brokers, settings=self.settings)
        self.start = self.servers.clock.seconds()
        self.got: list[tuple[bytes, int, float]] = []
        self.messages: list[MessageExt] = []
        cluster = self.client()
        self.producer = Producer(cluster)
        self.producer.startService()
        self.addCleanup(self.end, self.producer)

    def client(self) -> Cluster:
        """
        A client in a process of its own.
        """
        servers = self.servers
        return Cluster(servers.nameServers, servers.clock, connect=servers.connect)

    def end(self, member: Producer | PushConsumer) -> None:
        """
        Have a client stop.
        """
        self.servers.resultOf(member.stop())
        self.servers.resultOf(member.cluster.stop())

    def consumer(
        self, does: Callable[[MessageExt], Any], group: str = "G", **options: Any
    ) -> PushConsumer:
        """
        A consumer of T.
        """

        def listen(message: MessageExt) -> Any:
            since = self.servers.clock.seconds() - self.start
            self.got.append((message.body, message.reconsumeTimes, since))
            self.messages.append(message)
            return does(message)

        consumer = PushConsumer(self.client(), group, listen, consumeFromWhere=FIRST, **options)
        consumer.subscribe("T")
        self.addCleanup(self.end, consumer)
        consumer.startService()
        self.servers.advance(1)
        return consumer

    def send(self, *bodies: bytes, **options: Any) -> None:
        """
        Have messages, all in one queue.
        """
        sending = [self.producer.send(Message("T", each, **options), key="one") for each in bodies]
        self.servers.resultOf(gatherResults(sending))

    def broker(self, index: int = 0) -> Broker:
        """
        A broker.
        """
        service = self.servers.service(self.servers.brokers[index])
        assert isinstance(service, Broker)
        return service

    def stored(self, topic: str, index: int = 0) -> list[MessageExt]:
        """
        The messages in the first queue of a topic.
        """
        return decodeRecords(self.broker(index).store.get(topic, 0, 0, 32).data)

    def times(self) -> list[int]:
        """
        How often each message that a listener was given had been tried before.
        """
        return [times for _, times, _ in self.got]


def later(message: MessageExt) -> ConsumeLater:
    """
    Deals with nothing.
    """
    return ConsumeLater()


class RetryTests(RetryCase):
    """
    One broker, RocketMQ's delay levels.
    """

    def test_failedMessageBecomesDeadLetter(self) -> None:
        """
        A message comes again after 10 s, 30 s, 1 m and so on up to 2 h.  After 16 times it
        is a dead letter with its origin, which no member of the group gets.
        """
        self.send(b"x", tags="a", keys="k")
        self.consumer(later)
        self.servers.advance(sum(LEVELS) + 8000)
        self.assertEqual(self.times(), list(range(17)))
        came = [when for _, _, when in self.got]
        self.assertEqual([b - a for a, b in pairwise(came)], LEVELS)
        self.assertEqual({each.topic for each in self.messages}, {"T"})
        [dead] = self.stored("%DLQ%G")
        self.assertEqual((dead.body, dead.reconsumeTimes, dead.tags), (b"x", 17, "a"))
        first = self.messages[0]
        self.assertEqual(dead.properties["RETRY_TOPIC"], "T")
        self.assertEqual(dead.properties["ORIGIN_MESSAGE_ID"], first.offsetMsgId)
        self.assertEqual(dead.properties["UNIQ_KEY"], first.msgId)
        self.assertEqual(dead.bornTimestamp, first.bornTimestamp)

    def test_consumedMessageComesOnce(self) -> None:
        """
        A consumed message does not come again, and later ones did not wait for it.
        """

        def third(message: MessageExt) -> ConsumeLater | None:
            return None if message.body == b"y" or message.reconsumeTimes == 2 else ConsumeLater()

        self.send(b"x", b"y")
        self.consumer(third)
        self.servers.advance(3600)
        self.assertEqual(self.got, [(b"x", 0, 0), (b"y", 0, 0), (b"x", 1, 10), (b"x", 2, 40)])
        self.assertIsNone(self.broker().tables.topics.get("%DLQ%G"))

    def test_raisingListenerRedelivers(self) -> None:
        """
        If a listener raises anything, its message comes again.
        """

        def fails(message: MessageExt) -> None:
            raise ValueError("no")

        self.send(b"x")
        self.consumer(fails, maxReconsumeTimes=1)
        self.servers.advance(60)
        self.assertEqual(self.times(), [0, 1])
        self.assertEqual(len(self.stored("%DLQ%G")), 1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_consumersLimitCounts(self) -> None:
        """
        A consumer says how often it tries, also not at all.
        """
        self.send(b"x")
        self.consumer(later, maxReconsumeTimes=2)
        self.servers.advance(3600)
        self.assertEqual(self.times(), [0, 1, 2])
        self.got.clear()
        self.consumer(later, "H", maxReconsumeTimes=0)
        self.servers.advance(3600)
        self.assertEqual(self.times(), [0])
        self.assertEqual([len(self.stored(each)) for each in ("%DLQ%G", "%DLQ%H")], [1, 1])

    def test_minusOneIsSixteen(self) -> None:
        """
        -1 means 16 times, as with Java.
        """
        self.send(b"x")
        self.consumer(later, maxReconsumeTimes=-1)
        self.servers.advance(41)
        self.assertEqual(self.times(), [0, 1, 2])
        self.assertIsNone(self.broker().tables.topics.get("%DLQ%G"))

    def test_listenersLevelCounts(self) -> None:
        """
        A listener may say when a message comes again, or that it gives it up.
        """
        levels = iter([1, 5, -1])
        self.send(b"x")
        self.consumer(lambda message: ConsumeLater(delayLevel=next(levels)))
        self.servers.advance(3600)
        self.assertEqual(self.got, [(b"x", 0, 0), (b"x", 1, 1), (b"x", 2, 61)])
        self.assertEqual(len(self.stored("%DLQ%G")), 1)

    def test_retryIsOfOneGroup(self) -> None:
        """
        Messages that one group tries again do not come again to others.
        """
        self.send(b"x")
        self.consumer(later, maxReconsumeTimes=3)
        calm = self.consumer(lambda message: None, "H")
        self.servers.advance(3600)
        self.assertEqual(len(self.got), 5)
        self.assertEqual(set(calm.topics()), {"T", "%RETRY%H"})

    def test_deadLettersCanBeRead(self) -> None:
        """
        Dead letters can be subscribed to as any topic.
        """
        self.send(b"x")
        self.consumer(later, maxReconsumeTimes=0)
        found: list[bytes] = []
        reader = PushConsumer(
            self.client(), "R", lambda each: found.append(each.body), consumeFromWhere=FIRST
        )
        reader.subscribe("%DLQ%G")
        self.addCleanup(self.end, reader)
        reader.startService()
        self.servers.advance(60)
        self.assertEqual(found, [b"x"])

    def test_broadcastDropsUnconsumed(self) -> None:
        """
        A broadcast consumer cannot send back: an unconsumed message is dropped, as with
        Java.
        """
        self.send(b"x", b"y")
        self.consumer(later, messageModel=MessageModel.BROADCASTING)
        self.servers.advance(600)
        self.assertEqual(self.got, [(b"x", 0, 0), (b"y", 0, 0)])
        self.assertEqual(self.stored("SCHEDULE_TOPIC_XXXX"), [])

    def test_lateMessageComesAgain(self) -> None:
        """
        A message that a listener takes too long for comes again after the first level.
        """
        self.send(b"x")
        self.consumer(
            lambda message: None if message.reconsumeTimes else Deferred(), consumeTimeout=60
        )
        # It is looked for every minute.
        self.servers.advance(140)
        self.assertEqual(self.got, [(b"x", 0, 0), (b"x", 1, 130)])


class OrderlyTests(RetryCase):
    """
    Consumers in order.
    """

    def test_exhaustedMessageLetsQueueGoOn(self) -> None:
        """
        A failing message suspends its queue up to its last time.  Then it is a dead letter
        at once, and the queue goes on in order.
        """
        self.send(b"x", b"y", b"z")
        self.consumer(
            lambda message: ConsumeLater() if message.body == b"x" else None,
            orderly=True,
            maxReconsumeTimes=3,
            suspend=2.0,
        )
        self.servers.advance(20)
        bodies = [body for body, _, _ in self.got]
        self.assertEqual(bodies, [b"x", b"x", b"x", b"x", b"y", b"z"])
        self.assertEqual(self.times(), [0, 1, 2, 3, 0, 0])
        came = [when for _, _, when in self.got]
        self.assertEqual([each - came[0] for each in came], [0, 2, 4, 6, 6, 6])
        [dead] = self.stored("%DLQ%G")
        self.assertEqual((dead.body, dead.reconsumeTimes), (b"x", 3))
        self.assertEqual(dead.properties["RETRY_TOPIC"], "T")
        self.assertEqual(dead.properties["ORIGIN_MESSAGE_ID"], self.messages[0].msgId)
        self.assertNotIn("DELAY", dead.properties)

    def test_unlimitedMessageIsTriedForEver(self) -> None:
        """
        Without a limit it is tried for ever.
        """
        self.send(b"x", b"y")
        self.consumer(later, orderly=True, maxReconsumeTimes=-1)
        self.servers.advance(100)
        self.assertEqual({body for body, _, _ in self.got}, {b"x"})
        self.assertEqual(self.times(), list(range(len(self.got))))
        self.assertGreater(len(self.got), 90)

    def test_unsentDeadLetterDelaysQueue(self) -> None:
        """
        While no broker takes the dead letter, the queue waits: nothing is lost and nothing
        overtakes.
        """
        promise: Deferred[Any] = Deferred()
        given = iter([promise])

        def fails(message: MessageExt) -> Any:
            return None if message.body == b"y" else next(given, ConsumeLater())

        self.send(b"x", b"y")
        self.consumer(fails, orderly=True, maxReconsumeTimes=0)
        broker = self.servers.brokers[0]
        self.servers.crash(broker)
        promise.callback(ConsumeLater())
        self.servers.advance(10)
        self.assertNotIn(b"y", [body for body, _, _ in self.got])
        self.servers.start(broker)
        self.servers.advance(120)
        bodies = [body for body, _, _ in self.got]
        self.assertEqual(bodies, [b"x"] * (len(bodies) - 1) + [b"y"])
        self.assertEqual([each.body for each in self.stored("%DLQ%G")], [b"x"])


class ShortLevelsTests(RetryCase):
    """
    An operator's own levels.
    """

    settings = {"messageDelayLevel": "1s 2s 3s 4s"}

    def test_lastLevelServesAllLaterTimes(self) -> None:
        """
        The third level is still the first one used, and the last level serves all later
        times.
        """
        self.send(b"x")
        self.consumer(later, maxReconsumeTimes=5)
        self.servers.advance(60)
        self.assertEqual([when for _, _, when in self.got], [0, 3, 7, 11, 15, 19])
        self.assertEqual(len(self.stored("%DLQ%G")), 1)


class TwoBrokersTests(RetryCase):
    """
    A broker that leaves while its message is consumed.
    """

    brokers = 2

    def test_otherBrokerTakesMessage(self) -> None:
        """
        If the broker of a message does not take it back, another does.
        """
        promises: list[Deferred[Any]] = []

        def waits(message: MessageExt) -> Deferred[Any] | None:
            if message.reconsumeTimes:
                return None
            promises.append(Deferred())
            return promises[-1]

        self.consumer(lambda message: None)
        self.send(b"make the topic")
        self.servers.advance(60)
        self.got.clear()
        self.consumer(waits, "H")
        self.servers.advance(60)
        self.got.clear()
        self.messages.clear()
        self.send(b"x")
        self.servers.advance(1)
        [name] = {each.brokerName for each in self.messages if each.body == b"x"}
        index = int(name[-1])
        self.servers.crash(self.servers.brokers[index])
        for each in promises:
            each.callback(ConsumeLater())
        self.servers.advance(60)
        again = [each for each in self.messages if each.body == b"x" and each.reconsumeTimes]
        self.assertEqual([each.reconsumeTimes for each in again], [1])
        self.assertEqual({each.brokerName for each in again}, {f"broker-{1 - index}"})
        self.assertEqual(again[0].topic, "T")
