# SPDX-License-Identifier: Apache-2.0
"""
One run: the clients get ready, the run measures, the messages in flight arrive::

    topic created, route known --> queues assigned, each has delivered a message
        --> measured: until time, count or Ctrl-C --> messages in flight arrive
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import LoopingCall, deferLater

from txrocket.bench.consumer import ConsumerLoad
from txrocket.bench.counters import ReceiveCounter, SendCounter
from txrocket.bench.plan import Plan
from txrocket.bench.producer import ProducerLoad
from txrocket.bench.timestamp import NO_RUN, writeStamp
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.client.routes import Route
from txrocket.errors import RocketError, TopicNotExist
from txrocket.message import Message
from txrocket.model import ConsumeFromWhere, MessageQueue

__all__ = ["Bench", "BenchFailed", "Outcome"]

# The most seconds until name servers know a new topic, until its queues are assigned, and
# until all sent messages are received.
_MAKING: Final = 10.0
_OPENING: Final = 15.0
_DRAINING: Final = 5.0

_LOOK: Final = 0.2

# The consumer begins this many seconds before the run, because the brokers' clocks may
# differ.
_CLOCKS: Final = 60.0

# Bodies are uniform, and compression would shrink them to nothing, so it is off.
_NEVER: Final = 2**31


class BenchFailed(Exception):
    """
    The run could not measure anything; the text says why.
    """


@attrs.frozen
class Outcome:
    """
    The result of a run.

    @ivar reason: the reason for its end: C{seconds}, C{count} or C{interrupted}.
    @ivar seconds: the duration of sending, or of receiving if nothing was sent.
    @ivar consumed: the duration of receiving.
    """

    plan: Plan
    reason: str
    seconds: float
    consumed: float
    sent: SendCounter | None
    received: ReceiveCounter | None

    @property
    def messages(self) -> int:
        """
        The number of messages sent, or received if that is more.
        """
        return max(each.messages for each in (self.sent, self.received) if each is not None)


class Bench:
    """
    One run of the benchmark.

    @ivar measuring: whether the measurement has begun and not ended.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        run: bytes,
        show: Callable[[float, SendCounter | None, ReceiveCounter | None], None],
    ) -> None:
        """
        @param run: the 4-byte id of the run, which its messages carry.
        @param show: called each second with the seconds so far and the counters.
        """
        self._plan = plan
        self._cluster = cluster
        self._clock = cluster.reactor
        self._run = run
        self._show = show
        self._over: Deferred[str] = Deferred()
        self.measuring = False
        self._producer = Producer(cluster, plan.group, compressOver=_NEVER)
        self._producerLoad = ProducerLoad(
            plan, self._producer, self._clock, run, lambda: self.end("count")
        )
        self._consumerLoad = ConsumerLoad(plan, self._clock, run, lambda: self.end("count"))
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if plan.produces:
            where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        elif plan.fromFirst:
            where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        self._consumer = PushConsumer(
            cluster,
            plan.group,
            self._consumerLoad.listen,
            consumeFromWhere=where,
            consumeTimestamp=cluster.wall() - _CLOCKS,
        )

    def end(self, reason: str) -> None:
        """
        End the measurement.
        """
        if self.measuring:
            self.measuring = False
            self._over.callback(reason)

    async def run(self) -> Outcome:
        """
        Get ready, measure, and stop.

        @raise BenchFailed: if the measurement cannot begin.
        """
        try:
            try:
                await self._open()
            except RocketError as error:
                raise BenchFailed(str(error)) from None
            return await self._measure()
        finally:
            self._producerLoad.end()
            await self._producer.stop()
            await self._consumer.stop()

    async def _measure(self) -> Outcome:
        plan, clock = self._plan, self._clock
        sent = self._producerLoad.sent if plan.produces else None
        received = self._consumerLoad.received if plan.consumes else None
        started = clock.seconds()
        self.measuring = True
        looks = LoopingCall(lambda: self._show(clock.seconds() - started, sent, received))
        looks.clock = clock
        looks.start(1.0, now=False)
        limit = None
        if plan.seconds is not None:
            limit = clock.callLater(plan.seconds, self.end, "seconds")
        try:
            if plan.produces:
                self._producerLoad.start()
            reason = await self._over
        finally:
            looks.stop()
            if limit is not None and limit.active():
                limit.cancel()
        self._producerLoad.end()
        await self._producer.stop()
        seconds = consumed = clock.seconds() - started
        if sent is not None and received is not None:
            await self._consumerLoad.whenReached(sent.messages, _DRAINING)
            consumed = max(self._consumerLoad.last - started, 0.0)
        return Outcome(plan, reason, seconds, consumed, sent, received)

    # --- making ready ----------------------------------------------------

    async def _open(self) -> None:
        plan = self._plan
        if plan.produces:
            await self._producer.start()
            route = await self._make()
        else:
            route = await self._cluster.routes.find(plan.topic)
        if not plan.consumes:
            return
        self._consumer.subscribe(plan.topic, plan.tags or "*")
        if plan.produces:
            await self._openQueues(sorted({*route.readQueues} & {*route.writeQueues}))
        else:
            await self._consumer.start()

    async def _make(self) -> Route:
        """
        Create the topic, if it does not exist, at all brokers of the default topic.
        """
        topic, routes = self._plan.topic, self._cluster.routes
        await self._producer.send(self._opener(NO_RUN))
        brokers: dict[str, MessageQueue] = {}
        known = routes.get(topic)
        if known is not None and known.inherited:
            # The first message has created it at one broker only.
            brokers = {each.brokerName: each for each in known.writeQueues}
            for queue in brokers.values():
                await self._producer.send(self._opener(NO_RUN), queue)
        end = self._clock.seconds() + _MAKING
        while True:
            try:
                route = await routes.refresh(topic)
                missing = brokers.keys() - {each.brokerName for each in route.writeQueues}
                if not missing:
                    return route
                why = f"{', '.join(sorted(missing))} did not create topic {topic}"
            except TopicNotExist as error:
                why = str(error)
            if self._clock.seconds() >= end:
                raise BenchFailed(f"{why} within {_MAKING:g} s")
            await deferLater(self._clock, _LOOK)

    async def _openQueues(self, queues: list[MessageQueue]) -> None:
        """
        Wait until every queue delivers messages.  A message sent before that would count
        as slow.
        """
        opened = self._consumerLoad.whenOpen(
            {(each.brokerName, each.queueId) for each in queues}, _OPENING
        )
        try:
            await self._consumer.start()
            for queue in queues:
                await self._producer.send(self._opener(self._run), queue)
        except BaseException:
            opened.addErrback(lambda failure: None)
            opened.cancel()
            raise
        try:
            await opened
        except TimeoutError:
            raise BenchFailed(
                f"{self._consumerLoad.closed} of {len(queues)} queues of topic {self._plan.topic}"
                f" delivered no message within {_OPENING:g} s: has group {self._plan.group}"
                " another member?"
            ) from None

    def _opener(self, run: bytes) -> Message:
        """
        A message that is sent before the measurement.
        """
        stamp = writeStamp(run, int(self._clock.seconds() * 1e6))
        body = stamp.ljust(self._plan.size, b"x")
        return Message(self._plan.topic, body, self._plan.tags)
