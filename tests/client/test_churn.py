# SPDX-License-Identifier: Apache-2.0
"""
Push consumers that come and go at random while messages flow, over real sockets, with
both servers in a process of their own.

Of what flowed::

    in any order    each message was handled, once or more
    in order        the same, and of each key none before the one before it

How many came twice is printed.  A member may go as it should, and then only what it
could not finish comes again; or as one that is killed, and then all comes again since
it last told the broker how far it had come.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from twisted.internet import reactor as anyReactor
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import RemoteOffsets
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.testing import ChildCluster

reactor: Any = anyReactor

MESSAGES = int(os.environ.get("TXROCKET_CHURN", "100000"))
SEED = int(os.environ.get("TXROCKET_SEED") or Random().randrange(10**6))

MEMBERS = 3
TOPIC = "Churn"
QUEUES = 8
KEYS = 64

# Messages of one request.
BATCH = 100

# How long a member stays, and stays away, in seconds.
STAY = 0.1, 1.2

# Every so many messages one takes up to so many seconds: a while, so that listeners are
# always about with something; and so long that another member would get a queue
# meanwhile, if the broker let it.
SLOW = (8009, 2.5), (251, 0.05)

# For how many seconds nothing may be handled before the rest is taken for lost.
PATIENCE = 240.0


class Mortal(RemoteOffsets):
    """
    The offsets of a member that may be killed: nothing that it does after that counts.
    """

    killed = False

    def persist(self, queues: Any = None) -> Deferred[None]:
        return succeed(None) if self.killed else super().persist(queues)


class ChurnTests(TestCase):
    """
    Three members of a group.

    @ivar handled: how often each message was, by its number.
    @ivar last: the place of the last message of each key that was handled.
    @ivar faults: what must not happen.
    """

    timeout = 850

    def setUp(self) -> None:
        # What is reached here is not measured: that would take twice as long, and other
        # tests reach it, too.
        self.addCleanup(sys.settrace, sys.gettrace())
        sys.settrace(None)
        self.servers = ChildCluster()
        self.servers.start()
        self.addCleanup(self.servers.stop)
        self.chance = Random(SEED)
        self.handled = bytearray(MESSAGES)
        self.left = MESSAGES
        self.calls = self.joined = self.killed = 0
        self.last = [-1] * KEYS
        self.working: set[int] = set()
        self.slow: list[Deferred[None]] = []
        self.faults: list[str] = []
        self.changed = time.monotonic()

    # --- messages --------------------------------------------------------

    def cluster(self) -> Cluster:
        """
        A client of its own.
        """
        cluster = Cluster(self.servers.nameServers, reactor)
        self.addCleanup(cluster.stop)
        return cluster

    def batches(self) -> Iterator[tuple[int, list[Message]]]:
        """
        All messages, each batch with the id of its queue: message C{n} is the
        C{n // KEYS}th of key C{n % KEYS}, and all of a key are in one queue.
        """
        waiting: list[list[Message]] = [[] for _ in range(QUEUES)]
        for number in range(MESSAGES):
            own = waiting[number % KEYS % QUEUES]
            own.append(Message(TOPIC, b"%d" % number))
            if len(own) == BATCH:
                yield number % KEYS % QUEUES, own[:]
                own.clear()
        yield from ((queueId, own) for queueId, own in enumerate(waiting) if own)

    async def send(self) -> None:
        """
        Send all messages, so that they flow about as long as members come and go.
        """
        await self.producer.send(Message(f"{TOPIC}Other", b"the first is slow"))
        (name,) = self.producer.cluster.routes.brokers
        for queueId, batch in self.batches():
            await self.producer.sendBatch(batch, MessageQueue(TOPIC, name, queueId))

    # --- members ---------------------------------------------------------

    def handle(self, offsets: Mortal, message: MessageExt) -> Deferred[None] | None:
        """
        A message in any order.
        """
        number = int(message.body)

        def finish(none: None) -> None:
            if not offsets.killed:
                self.count(number)

        return self.soon(number, finish)

    def handleInOrder(self, offsets: Mortal, message: MessageExt) -> Deferred[None] | None:
        """
        A message in order: no other member may have its queue, and its predecessor must
        have been consumed.
        """
        number = int(message.body)
        place, key = divmod(number, KEYS)
        if message.queueId in self.working:
            self.faults.append(f"two are about with queue {message.queueId}")
        if place > self.last[key] + 1:
            self.faults.append(f"{place} of key {key} comes after {self.last[key]}")

        def finish(none: None) -> None:
            self.working.discard(message.queueId)
            self.last[key] = max(self.last[key], place)
            self.count(number)

        self.working.add(message.queueId)
        return self.soon(number, finish)

    def soon(self, number: int, finish: Callable[[None], Any]) -> Deferred[None] | None:
        """
        Finish a message: most at once, and some after a while.
        """
        for every, most in SLOW:
            if not number % every:
                done = deferLater(reactor, most * self.chance.random()).addCallback(finish)
                self.slow.append(done)
                return done
        finish(None)
        return None

    def count(self, number: int) -> None:
        """
        A message was handled.
        """
        self.calls += 1
        if not self.handled[number]:
            self.left -= 1
            self.changed = time.monotonic()
        self.handled[number] = min(255, self.handled[number] + 1)

    async def member(self, *, orderly: bool) -> None:
        """
        One that comes and goes until all is handled.
        """
        while self.left and not self.faults:
            cluster = self.cluster()
            offsets = Mortal(GroupCalls(cluster, "churn"))
            consumer = PushConsumer(
                cluster,
                "churn",
                partial(self.handleInOrder if orderly else self.handle, offsets),
                orderly=orderly,
                offsets=offsets,
                consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            consumer.subscribe(TOPIC)
            await consumer.start()
            self.joined += 1
            await self.wait()
            # The lock of one that is killed would keep the others away for a minute.
            offsets.killed = not orderly and self.chance.random() < 0.3
            self.killed += offsets.killed
            await consumer.stop(0.0 if offsets.killed else 10.0)
            await cluster.stop()
            await self.wait()

    async def wait(self) -> None:
        """
        Wait for a while, or until all is handled.
        """
        end = time.monotonic() + self.chance.uniform(*STAY)
        while self.left and not self.faults and time.monotonic() < end:
            if time.monotonic() - self.changed > PATIENCE:
                self.faults.append(f"{self.left} of {MESSAGES} messages do not come")
            await deferLater(reactor, 0.02)

    async def churn(self, *, orderly: bool) -> None:
        """
        Messages flow, and members come and go.
        """
        began = time.monotonic()
        self.producer = Producer(
            self.cluster(), timeout=30.0, retries=0, defaultTopicQueueNums=QUEUES
        )
        await self.producer.start()
        self.addCleanup(self.producer.stop)
        sending = Deferred.fromCoroutine(self.send())
        members = [Deferred.fromCoroutine(self.member(orderly=orderly)) for _ in range(MEMBERS)]
        for each in (sending, *members):
            await each
        # One that is killed leaves its listener behind.
        await DeferredList(self.slow)
        twice = self.calls - (MESSAGES - self.left)
        print(
            f"\n    {'in order' if orderly else 'in any order'}: {MESSAGES} messages handled in"
            f" {time.monotonic() - began:.0f} s by {self.joined} members that came and went,"
            f" {self.killed} of them killed; {twice} came twice; seed {SEED}"
        )
        self.assertEqual(self.faults, [])
        self.assertEqual(self.handled.count(0), 0)

    def test_concurrentGroupConsumesEachMessage(self) -> Deferred[None]:
        """
        Whichever members come and go, each message is consumed at least once.
        """
        return Deferred.fromCoroutine(self.churn(orderly=False))

    def test_orderlyGroupKeepsOrder(self) -> Deferred[None]:
        """
        In order, no message of a key is consumed before its predecessor, and no two members
        consume a queue at the same time.
        """
        return Deferred.fromCoroutine(self.churn(orderly=True))
