# SPDX-License-Identifier: Apache-2.0
"""
Readers of one group that come and go, with brokers that are stopped and started, on a
cluster in memory.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import SendFailed
from txrocket.message import Message
from txrocket.model import ConsumeFromWhere
from txrocket.testing.memory.cluster import MemoryCluster

_STEPS = 40
_MEMBERS = 3


class Flow:
    """
    A group, its members, and what they have read.

    @ivar sent: the numbers of the messages that a broker has.
    @ivar read: how often each was read.
    """

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.servers = MemoryCluster(brokers=2)
        self.servers.start()
        self.producer = Producer(self._client("sender"))
        self.producer.startService()
        self.number = 0
        self.sent: set[int] = set()
        self.read: Counter[int] = Counter()
        self.members: list[LitePullConsumer] = []
        self.stopped: str | None = None

    def _client(self, name: str) -> Cluster:
        return Cluster(
            self.servers.nameServers,
            self.servers.clock,
            clientId=name,
            connect=self.servers.connect,
            choose=self.chance.randrange,
        )

    def send(self) -> None:
        """
        Some messages are sent.
        """

        def note(result: object, number: int) -> None:
            self.sent.add(number)

        sending = []
        for _ in range(self.chance.randrange(1, 20)):
            self.number += 1
            one = self.producer.send(Message("Flow", b"%d" % self.number), timeout=30.0)
            one.addCallback(note, self.number)
            # Whether it is there nobody knows: both will do.
            sending.append(one.addErrback(lambda failure: failure.trap(SendFailed)))
        self.servers.resultOf(gatherResults(sending))

    def join(self) -> None:
        """
        A member comes.
        """
        member = LitePullConsumer(
            self._client(f"member-{self.number}-{self.chance.random()}"),
            "readers",
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        member.subscribe("Flow")
        member.startService()
        self.members.append(member)

    def leave(self) -> None:
        """
        A member goes.
        """
        member = self.members.pop(self.chance.randrange(len(self.members)))
        self.servers.resultOf(member.stop())
        self.servers.resultOf(member.cluster.stop())

    def poll(self) -> None:
        """
        Each member reads a little.
        """
        for member in self.members:
            polled = self.servers.resultOf(member.poll(0.1, self.chance.randrange(1, 10)))
            self.read.update(int(each.body) for each in polled)

    def restart(self) -> None:
        """
        A broker is stopped, or started again.
        """
        if self.stopped is None:
            self.stopped = self.chance.choice(self.servers.brokers)
            self.servers.stop(self.stopped)
        else:
            self.servers.start(self.stopped)
            self.stopped = None

    def finish(self) -> None:
        """
        All that is there is read.
        """
        if self.stopped is not None:
            self.restart()
        if not self.members:
            self.join()
        quiet = 0
        # What a broker has forgotten of a group comes back within half a minute.
        while quiet < 40:
            before = self.read.total()
            self.poll()
            self.servers.advance(1.0)
            quiet = quiet + 1 if self.read.total() == before else 0

    def close(self) -> None:
        """
        Stop it all.
        """
        while self.members:
            self.leave()
        stopping: list[Deferred[None]] = [self.producer.stop(), self.producer.cluster.stop()]
        self.servers.resultOf(gatherResults(stopping))
        self.servers.stop()


class ComingAndGoingTests(SynchronousTestCase):
    """
    A group as a whole.
    """

    @given(st.integers(0, 2**32))
    @settings(max_examples=8, deadline=None)
    def test_everyMessageIsRead(self, seed: int) -> None:
        """
        Whichever members come and go, every sent message is read at least once.
        """
        flow = Flow(seed)
        for _ in range(_STEPS):
            step = flow.chance.random()
            if step < 0.35:
                flow.send()
            elif step < 0.75:
                flow.poll()
            elif step < 0.85 and len(flow.members) < _MEMBERS:
                flow.join()
            elif step < 0.93 and flow.members:
                flow.leave()
            elif step > 0.97:
                flow.restart()
            flow.servers.advance(flow.chance.random() * 3)
        flow.finish()
        flow.close()
        self.assertEqual(flow.sent - set(flow.read), set())
        self.assertEqual(set(flow.read) - set(range(1, flow.number + 1)), set())
