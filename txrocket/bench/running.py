# SPDX-License-Identifier: Apache-2.0
"""
One run: clients that are made ready, the time that is measured, and the end::

    topic made, route known --> queues assigned, each has brought a message
        --> measured: until time, count or Ctrl-C --> what is under way comes in
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import LoopingCall, deferLater

from txrocket.bench.consuming import Intake
from txrocket.bench.marks import NO_RUN, writeMark
from txrocket.bench.plan import Plan
from txrocket.bench.producing import Load
from txrocket.bench.tally import Received, Sent
from txrocket.client.cluster import Cluster
from txrocket.client.producer import Producer
from txrocket.client.pushconsumer import PushConsumer
from txrocket.client.routes import Route
from txrocket.errors import RocketError, TopicNotExist
from txrocket.message import Message
from txrocket.model import ConsumeFromWhere, MessageQueue

__all__ = ["Bench", "BenchFailed", "Outcome"]

# In seconds: until name servers know a topic that is new, until its queues are assigned,
# and until what was sent has been received.
_MAKING: Final = 10.0
_OPENING: Final = 15.0
_DRAINING: Final = 5.0

_LOOK: Final = 0.2

# A run may only begin with its own messages; the clocks of its brokers may differ so much.
_CLOCKS: Final = 60.0

# Bodies are alike and would vanish in compression, and with them what is measured.
_NEVER: Final = 2**31


class BenchFailed(Exception):
    """
    Nothing could be measured, for a reason that its words tell.
    """


@attrs.frozen
class Outcome:
    """
    @ivar reason: what ended it: C{seconds}, C{count} or C{interrupted}.
    @ivar seconds: how long was sent, or received if nothing was sent.
    @ivar consumed: how long was received.
    """

    plan: Plan
    reason: str
    seconds: float
    consumed: float
    sent: Sent | None
    received: Received | None

    @property
    def messages(self) -> int:
        """
        How many went through.
        """
        return max(each.messages for each in (self.sent, self.received) if each is not None)


class Bench:
    """
    A run.

    @ivar measuring: whether it has begun and not ended.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        run: bytes,
        show: Callable[[float, Sent | None, Received | None], None],
    ) -> None:
        """
        @param run: 4 bytes by which its messages are known.
        @param show: called each second with how long it runs and what was counted.
        """
        self._plan = plan
        self._cluster = cluster
        self._clock = cluster.reactor
        self._run = run
        self._show = show
        self._over: Deferred[str] = Deferred()
        self.measuring = False
        self._producer = Producer(cluster, plan.group, compressOver=_NEVER)
        self._load = Load(plan, self._producer, self._clock, run, lambda: self.end("count"))
        self._intake = Intake(plan, self._clock, run, lambda: self.end("count"))
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if plan.produces:
            where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        elif plan.fromFirst:
            where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        self._consumer = PushConsumer(
            cluster,
            plan.group,
            self._intake.listen,
            consumeFromWhere=where,
            consumeTimestamp=cluster.wall() - _CLOCKS,
        )

    def end(self, reason: str) -> None:
        """
        End what is measured.
        """
        if self.measuring:
            self.measuring = False
            self._over.callback(reason)

    async def run(self) -> Outcome:
        """
        Run.

        @raise BenchFailed: if it cannot begin.
        """
        try:
            try:
                await self._open()
            except RocketError as error:
                raise BenchFailed(str(error)) from None
            return await self._measure()
        finally:
            self._load.end()
            await self._producer.stop()
            await self._consumer.stop()

    async def _measure(self) -> Outcome:
        plan, clock = self._plan, self._clock
        sent = self._load.sent if plan.produces else None
        received = self._intake.received if plan.consumes else None
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
                self._load.start()
            reason = await self._over
        finally:
            looks.stop()
            if limit is not None and limit.active():
                limit.cancel()
        self._load.end()
        await self._producer.stop()
        seconds = consumed = clock.seconds() - started
        if sent is not None and received is not None:
            await self._intake.whenReached(sent.messages, _DRAINING)
            consumed = max(self._intake.last - started, 0.0)
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
        Make the topic, if it is not there, at all brokers that would make it.
        """
        topic, routes = self._plan.topic, self._cluster.routes
        await self._producer.send(self._opener(NO_RUN))
        brokers: dict[str, MessageQueue] = {}
        known = routes.get(topic)
        if known is not None and known.inherited:
            # The first message has made it at one of them only.
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
                why = f"{', '.join(sorted(missing))} did not make topic {topic}"
            except TopicNotExist as error:
                why = str(error)
            if self._clock.seconds() >= end:
                raise BenchFailed(f"{why} within {_MAKING:g} s")
            await deferLater(self._clock, _LOOK)

    async def _openQueues(self, queues: list[MessageQueue]) -> None:
        """
        Wait until every queue is received from: what is sent to one before would count
        as slow.
        """
        opened = self._intake.whenOpen(
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
                f"{self._intake.closed} of {len(queues)} queues of topic {self._plan.topic} brought"
                f" nothing within {_OPENING:g} s: has group {self._plan.group} another member?"
            ) from None

    def _opener(self, run: bytes) -> Message:
        """
        A message that comes before those that count.
        """
        mark = writeMark(run, int(self._clock.seconds() * 1e6))
        body = mark.ljust(self._plan.size, b"x")
        return Message(self._plan.topic, body, self._plan.tags)
