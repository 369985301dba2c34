# SPDX-License-Identifier: Apache-2.0
"""
Messages that are tried again, by consumers that come and go, at brokers that are
killed: nothing is lost, nothing comes early, and nothing is dead that had times left.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.service import Broker
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere
from txrocket.protocol.record import decodeRecords
from txrocket.testing.memory.cluster import MemoryCluster

_LEVELS = (1, 1, 2, 3, 5, 8)
_TIMES = 3

steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, _TIMES + 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 20.0])),
    st.tuples(st.sampled_from(["crash", "stop"]), st.sampled_from([0.0, 1.0, 4.0, 12.0])),
    st.tuples(st.just("consumer"), st.booleans()),
)


class Trial:
    """
    A broker, a producer and a consumer.

    @ivar needs: of each message, how often it must have been tried before it is consumed.
    @ivar sent: those that the broker has for sure.
    @ivar done: those that were consumed.
    """

    def __init__(self) -> None:
        self.servers = MemoryCluster(
            settings={"messageDelayLevel": " ".join(f"{each}s" for each in _LEVELS)}
        )
        self.servers.start()
        self.producer = Producer(self._client("producer"))
        self.producer.startService()
        self.needs: dict[bytes, int] = {}
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        self.consumer: PushConsumer | None = None
        self.begin()

    def _client(self, name: str) -> Cluster:
        servers = self.servers
        # As if a consumer that is gone had never been: it says no goodbye.
        return Cluster(
            servers.nameServers,
            servers.clock,
            clientId=f"{name}-{servers.clock.seconds()}",
            connect=servers.connect,
            choose=lambda below: 0,
        )

    def _listen(self, message: MessageExt) -> ConsumeLater | None:
        if message.reconsumeTimes < self.needs[message.body]:
            return ConsumeLater()
        self.done.add(message.body)
        return None

    def begin(self) -> None:
        """
        A consumer comes.
        """
        self.consumer = PushConsumer(
            self._client("consumer"),
            "G",
            self._listen,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            maxReconsumeTimes=_TIMES,
        )
        self.consumer.subscribe("T")
        self.consumer.startService()

    def end(self) -> None:
        """
        The consumer goes.
        """
        assert self.consumer is not None
        self.servers.resultOf(self.consumer.stop())
        self.servers.resultOf(self.consumer.cluster.stop())
        self.consumer = None

    def step(self, what: str, how: Any) -> None:
        """
        Something happens.
        """
        broker = self.servers.brokers[0]
        if what == "send":
            body = b"%d" % len(self.needs)
            self.needs[body] = how
            sending = self.producer.send(Message("T", body))
            sending.addCallback(lambda result: self.sent.add(body))
            sending.addErrback(lambda failure: failure.trap(SendFailed))
        elif what == "wait":
            self.servers.advance(how)
        elif what == "crash":
            self.servers.crash(broker)
            self.servers.advance(how)
            self.servers.start(broker)
        elif what == "stop":
            self.servers.stop(broker)
            self.servers.advance(how)
            self.servers.start(broker)
        elif self.consumer is not None:
            self.end()
            if how:
                self.begin()
        else:
            self.begin()

    def finish(self) -> None:
        """
        All comes that is to come.
        """
        if self.consumer is None:
            self.begin()
        # A broker that was killed knows the group within half a minute, and each time
        # may be lost with it once.
        self.servers.advance(240)

    def stored(self, topic: str, queueId: int = 0) -> list[MessageExt]:
        """
        The messages in a queue.
        """
        service = self.servers.service(self.servers.brokers[0])
        assert isinstance(service, Broker)
        found: list[MessageExt] = []
        offset = 0
        while offset < service.store.maxOffset(topic, queueId):
            got = service.store.get(topic, queueId, offset, 32)
            found += decodeRecords(got.data)
            offset = got.nextOffset
        return found

    def close(self) -> None:
        """
        Stop it all.
        """
        self.end()
        stopping: list[Deferred[None]] = [self.producer.stop(), self.producer.cluster.stop()]
        self.servers.resultOf(gatherResults(stopping))
        self.servers.stop()


class RetryModelTests(SynchronousTestCase):
    """
    Trials.
    """

    @given(st.lists(steps, max_size=25))
    @settings(max_examples=60, deadline=None)
    @example([("send", 5), ("wait", 2.0), ("crash", 4.0), ("wait", 3.0), ("crash", 12.0)])
    @example([("send", 1), ("send", 4), ("wait", 0.5), ("stop", 0.0), ("wait", 2.0)])
    def test_retriesMatchModel(self, given: list[tuple[str, Any]]) -> None:
        """
        Every message is consumed or dead at last; only exhausted messages are dead; and
        none comes again before its level's delay.
        """
        trial = Trial()
        for what, how in given:
            trial.step(what, how)
        trial.finish()
        dead = {each.body for each in trial.stored("%DLQ%G")}
        waited = {
            (each.body, each.reconsumeTimes): each.storeTimestamp + seconds * 1000
            for level, seconds in reversed(list(enumerate(_LEVELS)))
            for each in reversed(trial.stored("SCHEDULE_TOPIC_XXXX", level))
        }
        came = trial.stored("%RETRY%G")
        trial.close()
        self.assertEqual(trial.sent - trial.done - dead, set())
        for body in dead:
            self.assertGreater(trial.needs[body], _TIMES)
        for each in came:
            due = waited[each.body, each.reconsumeTimes]
            self.assertGreaterEqual(each.storeTimestamp, due)
