# SPDX-License-Identifier: Apache-2.0
"""
Where the messages of a topic can go: its queues, with the address of each one's broker, the
template of its requests' headers, and the connection; C{TopicPublishInfo} of Java's
producers::

    Routes --> T: [ queue 0 at a | queue 1 at a | queue 0 at b ]
               U: [ ... ]                  all dropped when a route changes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.producer.newtopics import NewTopics
from txrocket.client.producer.options import ProducerOptions
from txrocket.client.producer.pendingsend import PendingSend
from txrocket.client.routes import Route
from txrocket.client.sansio.queueselector import inTurn
from txrocket.client.sansio.sendrequest import headTemplate
from txrocket.errors import RequestTimedOut, RocketError, TopicNotExist
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["SendTarget", "SendTargets"]


class SendTarget:
    """
    A queue, and how the messages of a topic get there.

    @ivar address: the broker's; empty if no route has the broker.
    @ivar template: the header of the requests.
    @ivar inherited: whether the topic is still to be created by its first message.
    @ivar protocol: the connection, as of the last look.
    """

    __slots__ = ("address", "inherited", "protocol", "queue", "template")

    def __init__(
        self, queue: MessageQueue, address: str, template: bytes, *, inherited: bool
    ) -> None:
        self.queue = queue
        self.address = address
        self.template = template
        self.inherited = inherited
        self.protocol: RemotingProtocol | None = None


class SendTargets:
    """
    The targets of a producer.

    @ivar topics: the topics whose routes the producer needs.
    @ivar byTopic: the targets of each topic, in the order of its queues.
    @ivar turn: says which queue had its turn last.
    @ivar newTopics: the topics that messages have created.
    @ivar version: the version of the routes that C{byTopic} follows from.
    """

    def __init__(self, cluster: Cluster, group: str, options: ProducerOptions) -> None:
        self._routes = cluster.routes
        self._clock = cluster.reactor
        self._group = group
        self._queues = options.defaultTopicQueueNums
        self._faults = options.faults
        self.turn = cluster.choose(2**31)
        self.topics: dict[str, None] = {}
        self.byTopic: dict[str, list[SendTarget]] = {}
        self.version = -1
        self.newTopics = NewTopics(cluster.routes, cluster.reactor)

    def of(self, route: Route) -> list[SendTarget]:
        """
        The targets of a topic; none if it has no queue that can be written to.
        """
        if self.version != self._routes.version:
            self.byTopic.clear()
            self.version = self._routes.version
        targets = self.byTopic.get(route.topic)
        if targets is None:
            targets = [self._make(route.topic, each, route) for each in route.writeQueues]
            if targets:
                self.byTopic[route.topic] = targets
        return targets

    def choose(self, sending: PendingSend, targets: list[SendTarget]) -> SendTarget:
        """
        The target of an attempt.

        @param targets: the topic's.
        @raise TopicNotExist: if there is none to choose from.
        @raise Exception: as the caller's selector does.
        """
        queues = [each.queue for each in targets]
        queue = sending.queue or self._queue(sending, queues)
        if queue in queues:
            return targets[queues.index(queue)]
        # The caller's, and not in the route.
        return self._make(sending.topic, queue, self._routes.get(sending.topic))

    def _queue(self, sending: PendingSend, queues: Sequence[MessageQueue]) -> MessageQueue:
        if not queues:
            raise TopicNotExist(f"topic {sending.topic} has no queue that can be written to")
        if sending.selector is not None:
            assert isinstance(sending.message, Message)
            return sending.selector(queues, sending.message, sending.key)
        self.turn += 1
        if self._faults is not None:
            return self._faults.select(queues, self.turn, int(self._clock.seconds() * 1000))
        failed = None if sending.target is None else sending.target.queue.brokerName
        queue = inTurn(queues, self.turn, failed)
        # Count on over the queues that were skipped: all after them get their share.
        self.turn += (queues.index(queue) - self.turn) % len(queues)
        return queue

    def _make(self, topic: str, queue: MessageQueue, route: Route | None) -> SendTarget:
        return SendTarget(
            queue,
            self._routes.address(queue.brokerName) or "",
            headTemplate(self._group, topic, self._queues, queue),
            inherited=route is not None and route.inherited,
        )

    def route(self, sending: PendingSend) -> Deferred[Route]:
        """
        The route of a send's topic.  A topic that does not exist inherits one, and the
        broker creates the topic.
        """
        topic = sending.topic
        self.topics[topic] = None
        known = self._routes.get(topic)
        if known is not None and known.writeQueues:
            return succeed(known)

        def inherit(failure: Failure) -> Deferred[Route]:
            failure.trap(TopicNotExist)

            def missing(inherited: Failure) -> Failure:
                return failure if inherited.check(TopicNotExist) else inherited

            return self._routes.inherit(topic, self._queues).addErrback(missing)

        # A known route without queues may be out of date.
        return self._inTime(self._routes.refresh(topic).addErrback(inherit), sending)

    def seek(self, sending: PendingSend) -> Deferred[Route | None]:
        """
        Ask for the route of a send's topic again.

        @return: a Deferred of L{None} if there is no answer.
        """

        def notFound(failure: Failure) -> None:
            failure.trap(RocketError)

        found = self._inTime(self._routes.refresh(sending.topic), sending)
        return found.addErrback(notFound)

    def _inTime(self, found: Deferred[Route], sending: PendingSend) -> Deferred[Route]:
        """
        A route, if it comes before the send's time is over.
        """

        def late(result: Any, after: float) -> Failure:
            said = f"no name server told the route of {sending.topic} within {after:g} s"
            return Failure(RequestTimedOut("", said))

        left = max(0.0, sending.deadline - self._clock.seconds())
        return found.addTimeout(left, self._clock, onTimeoutCancel=late)
