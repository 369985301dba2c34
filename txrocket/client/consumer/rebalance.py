# SPDX-License-Identifier: Apache-2.0
"""
Which queues of its topics a member of a consumer group has; Java's
C{RebalanceImpl} and C{RebalanceService}.

No server divides the queues: each member asks the brokers for the ids of
all members, sorts ids and queues, and applies the same function to them as all
the others, so that each finds its own part::

    every 20 s, group or route changed
        |
        +--> queues of the topic, sorted --+
        |                                  +--> strategy --> mine --> added, removed
        +--> ids of the group, sorted -----+

For a while two members may see different lists, and both have a queue: what they
both consume comes twice.  If no broker answers, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.allocate import Assign, averagely
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.routes import Route
from txrocket.errors import ResponseError, RocketError, TopicNotExist
from txrocket.model import MessageQueue
from txrocket.protocol.names import RETRY_PREFIX

__all__ = ["Changed", "Rebalance"]

# In seconds (rocketmq.client.rebalance.waitInterval).
_INTERVAL: Final = 20.0


#: Is told of the queues of a topic that a member gets, and of those that it loses.
Changed: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]


class Rebalance:
    """
    Keeps up with which queues a member has.

    @ivar queues: the queues that it has now, by topic.
    @ivar started: whether it does.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Callable[[], Iterable[str]],
        changed: Changed,
        *,
        strategy: Assign = averagely,
        broadcast: bool = False,
    ) -> None:
        """
        @param topics: gives the topics that the member subscribes to.
        @param changed: is called with a topic and the queues of it that are added
            and removed, sorted.
        @param broadcast: whether each member has all queues.
        """
        self._cluster = cluster
        self._group = group
        self._requests = GroupCalls(cluster, group)
        self._topics = topics
        self._changed = changed
        self._strategy = strategy
        self._broadcast = broadcast
        self.queues: dict[str, frozenset[MessageQueue]] = {}
        self._loop = LoopingCall(self.soon)
        self._loop.clock = cluster.reactor
        self.started = False
        self._unfollow: Callable[[], None] | None = None
        self._due: IDelayedCall | None = None
        self._dividing = False
        self._again = False
        self._finding: set[str] = set()
        self._failing: set[str] = set()

    # --- when ------------------------------------------------------------

    def start(self) -> None:
        """
        Divide the queues now, and from now on.
        """
        self.started = True
        self.queues.clear()
        self._unfollow = self._cluster.routes.follow(self._routeChanged)
        # It only ever schedules, which does not fail.
        self._loop.start(_INTERVAL)

    def stop(self) -> None:
        """
        Leave things as they are.
        """
        self.started = False
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        if self._loop.running:
            self._loop.stop()
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def soon(self) -> None:
        """
        Divide the queues as soon as possible: the group has changed.
        """
        if not self.started:
            return
        if self._dividing:
            self._again = True
        elif self._due is None:
            self._due = self._cluster.reactor.callLater(0, self._divideAll)

    def _routeChanged(self, route: Route) -> None:
        if route.topic in self._topics() and route.topic not in self._finding:
            self.soon()

    # --- what ------------------------------------------------------------

    def _divideAll(self) -> None:
        self._due = None
        topics = list(self._topics())
        for topic in self.queues.keys() - set(topics):
            self._take(topic, ())
            del self.queues[topic]
        # Each by itself, lest a broker that does not answer delay the others.
        divided = [self._divide(topic).addErrback(self._broke, topic) for topic in topics]
        self._dividing = True
        DeferredList(divided).addCallback(self._divided)

    def _divided(self, results: object) -> None:
        self._dividing = False
        if self._again:
            self._again = False
            self.soon()

    @inlineCallbacks
    def _divide(self, topic: str) -> Any:
        try:
            route = yield self._find(topic)
            ids = () if self._broadcast else (yield self._ids(topic))
        except RocketError as error:
            self._failed(topic, error)
            return
        self._failing.discard(topic)
        # What does not exist yet has no queues to pull from, and a group without
        # members is one that the broker has not heard of.
        if route.inherited or not (ids or self._broadcast):
            return
        mine: Sequence[MessageQueue] = route.readQueues
        if mine and not self._broadcast:
            mine = self._strategy(self._group, self._cluster.clientId, mine, ids)
        if self.started and topic in self._topics():
            self._take(topic, mine)

    def _find(self, topic: str) -> Deferred[Route]:
        def found(result: Route | Failure) -> Route | Failure:
            self._finding.discard(topic)
            return result

        # One that is new is no reason to divide the queues once more.
        self._finding.add(topic)
        return self._cluster.routes.find(topic).addBoth(found)

    @inlineCallbacks
    def _ids(self, topic: str) -> Any:
        try:
            ids = yield self._requests.consumerIds(topic)
        except ResponseError:
            # No broker knows of any member.
            ids = ()
        if self._cluster.clientId not in ids:
            # Brokers have not heard of this member yet, or have forgotten it.  To believe
            # them would be to give up all queues until the next time.
            yield self._cluster.heartbeat()
            ids = yield self._requests.consumerIds(topic)
        return ids

    def _take(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        had = self.queues.get(topic, frozenset())
        mine = self.queues[topic] = frozenset(queues)
        if mine != had:
            self._log.info(
                "Group {group} has {count} queues of {topic} now, {added} more and {removed} less",
                group=self._group,
                count=len(mine),
                topic=topic,
                added=len(mine - had),
                removed=len(had - mine),
            )
            self._changed(topic, sorted(mine - had), sorted(had - mine))

    def _broke(self, failure: Failure, topic: str) -> None:
        self._log.failure(
            "Group {group} could not divide the queues of {topic}",
            failure,
            group=self._group,
            topic=topic,
        )

    def _failed(self, topic: str, error: RocketError) -> None:
        # A retry topic comes into being with the group's first heartbeat.
        young = topic.startswith(RETRY_PREFIX) and isinstance(error, TopicNotExist)
        # Once, and not every 20 s.
        if self.started and not young and topic not in self._failing:
            self._failing.add(topic)
            self._log.warn(
                "Group {group} keeps its queues of {topic}: {error}",
                group=self._group,
                topic=topic,
                error=error,
            )
