# SPDX-License-Identifier: Apache-2.0
"""
Where topics live, as a blocking client knows it.

A route is asked for when it is first needed, kept for half a minute, and asked for
again after that and when a broker fails.  If no name server answers, the one that
is known counts.

It also counts if no name server has one: a name server that was restarted knows no
topic until the brokers register.  That a topic does not exist is believed once each
broker of its route has failed or has said so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from txrocket.blocking.deadline import Deadline
from txrocket.blocking.links import Links
from txrocket.client.topicroute import DEFAULT_TOPIC, Route, limited
from txrocket.errors import RemotingError, RocketError, TopicNotExist, responseError
from txrocket.model import TopicRouteData
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.bodycodec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader

__all__ = ["Routes"]

# In seconds, as Java's pollNameServerInterval.
_MAX_AGE: Final = 30.0

# How long another name server has to answer if the one in use does not know, in seconds.
_OTHERS: Final = 1.0

_log = logging.getLogger(__name__)


class Routes:
    """
    Name servers, and the routes that they told.
    """

    def __init__(self, links: Links, nameServers: Sequence[str], first: int) -> None:
        """
        @param first: the number of the name server to begin with.
        """
        self._links = links
        self._nameServers = nameServers
        self._current = first % len(nameServers)
        # Name servers that gave no answer, and when.
        self._failed: dict[str, float] = {}
        # A route, and when it was asked for.
        self._routes: dict[str, tuple[Route, float]] = {}
        # Of known routes, the names of the brokers that have failed since.
        self._doubts: dict[str, set[str]] = {}
        # Topics whose route could not be asked for anew, which was told.
        self._stale: set[str] = set()

    def find(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route.

        @raise TopicNotExist: if there is none.
        @raise RemotingError: if no name server answers, and none is known.
        """
        known = self._routes.get(topic)
        if known is not None and time.monotonic() - known[1] < _MAX_AGE:
            return known[0]
        return self.refresh(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Route:
        """
        A topic's route, asked for anew.

        @raise TopicNotExist: if there is none, and the brokers of the one that is known
            have failed.
        @raise RemotingError: if no name server answers, and none is known.
        """
        known = self._routes.get(topic)
        try:
            route = Route(topic, self._ask(topic, deadline), inherited=False)
            if not route.brokers and known is not None and known[0].brokers:
                raise TopicNotExist(f"the route of topic {topic} has no broker")
            self._doubts.pop(topic, None)
            self._stale.discard(topic)
        except RocketError as error:
            if known is None:
                raise
            if isinstance(error, TopicNotExist) and self._isGone(known[0]):
                self.forget(topic)
                raise
            # Once, and not for each call that asks again.
            if topic not in self._stale:
                self._stale.add(topic)
                _log.warning("The route of %s stays as it was: %s", topic, error)
            route = known[0]
        self._routes[topic] = route, time.monotonic()
        return route

    def doubt(self, topic: str, brokerName: str) -> None:
        """
        A broker has not answered a request about a topic, or has said that the topic
        does not exist.
        """
        if topic in self._routes:
            self._doubts.setdefault(topic, set()).add(brokerName)

    def trust(self, topic: str, brokerName: str) -> None:
        """
        A broker has served a request about a topic.
        """
        if topic in self._doubts:
            self._doubts[topic].discard(brokerName)

    def _isGone(self, known: Route) -> bool:
        return known.brokers.keys() <= self._doubts.get(known.topic, set())

    def toSend(self, topic: str, queues: int, deadline: Deadline) -> Route:
        """
        A topic's route, for who brings it into being if it does not exist.

        @param queues: how many queues it then gets at each broker.
        @raise TopicNotExist: if there is none, nor one to inherit from.
        @raise RemotingError: if no name server answers, and none is known.
        """
        try:
            return self.find(topic, deadline)
        except TopicNotExist as error:
            try:
                parent = self._ask(DEFAULT_TOPIC, deadline)
            except TopicNotExist:
                raise error from None
        # Not kept: once something is sent to it, it has a route of its own.
        return Route(topic, limited(parent, queues), inherited=True)

    def forget(self, topic: str) -> None:
        """
        Ask for a topic's route when it is needed next.
        """
        self._routes.pop(topic, None)
        self._doubts.pop(topic, None)
        self._stale.discard(topic)

    def clusterInfo(self, deadline: Deadline) -> ClusterInfo:
        """
        All brokers.

        @raise RemotingError: if no name server answers.
        """
        answer = self._askAny(requestCommand(RequestCode.GET_BROKER_CLUSTER_INFO), deadline)
        return decodeBody(ClusterInfo, answer.body)

    def topics(self, deadline: Deadline) -> frozenset[str]:
        """
        The names of all topics.

        @raise RemotingError: if no name server answers.
        """
        request = requestCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return decodeBody(TopicList, self._askAny(request, deadline).body).topicList

    def _ask(self, topic: str, deadline: Deadline) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic, True)
        request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            answer = self._askAny(request, deadline)
        except TopicNotExist:
            better = self._askOthers(request, deadline)
            if better is None:
                raise
            answer = better
        return decodeBody(TopicRouteData, answer.body)

    def _askOthers(self, request: RemotingCommand, deadline: Deadline) -> RemotingCommand | None:
        """
        Ask the name servers that are not in use, because the one in use does not know:
        it may have been restarted.  One that knows is used from then on.
        """
        last = self._nameServers[self._current]
        for number, address in enumerate(self._nameServers):
            failed = self._failed.get(address)
            if address == last or (failed is not None and time.monotonic() - failed < _MAX_AGE):
                continue
            if deadline.over:
                break
            try:
                answer = self._links.ask(address, request, deadline.share(2).atMost(_OTHERS))
            except RemotingError as error:
                _log.warning("Name server %s gives no answer: %s", address, error)
                self._failed[address] = time.monotonic()
                continue
            if not answer.code:
                self._current = number
                return answer
        return None

    def _askAny(self, request: RemotingCommand, deadline: Deadline) -> RemotingCommand:
        """
        Ask the name server in use and, if it gives no answer, the others in turn,
        each with its share of the time.
        """
        remaining = len(self._nameServers)
        while True:
            address = self._nameServers[self._current]
            try:
                answer = self._links.ask(address, request, deadline.share(remaining))
            except RemotingError as error:
                self._failed[address] = time.monotonic()
                self._current = (self._current + 1) % len(self._nameServers)
                remaining -= 1
                if not remaining:
                    raise
                _log.warning("Asking the next name server: %s", error)
                continue
            self._failed.pop(address, None)
            if answer.code:
                raise responseError(answer.code, answer.remark, address)
            return answer
