# SPDX-License-Identifier: Apache-2.0
"""
Where topics live, as a client knows it; the routes of Java's C{MQClientInstance}.

A route is asked for when it is first needed, kept, and asked for again every half
minute and when a broker fails.  Callers that need a route at a time share one request.
Followers are told when a route changes, because queues must be divided anew.

A route that is known stays until a better one is: a name server that was restarted
knows no topic until the brokers register, and the brokers are well.  That the topic
does not exist is believed once each broker of its route has said so or is out of
reach::

                               name servers: no such topic
    ( known ) --broker fails--> ( doubted ) ---------> dropped
        ^                           |
        +------- any route ---------+

L{txrocket.client.sansio.topicroute} has what one route means, and is here under its own
name as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.sansio.topicroute import DEFAULT_TOPIC, Route, limited, readQueues, writeQueues
from txrocket.errors import RocketError, TopicNotExist, responseError
from txrocket.model import MASTER_ID, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import GetRouteInfoRequestHeader
from txrocket.remoting.nameservers import NameServers

__all__ = ["DEFAULT_TOPIC", "Route", "Routes", "readQueues", "writeQueues"]


def _sorted(data: TopicRouteData) -> TopicRouteData:
    # Name servers have sets of brokers, and each its own order of them.
    return replace(
        data,
        queueDatas=tuple(sorted(data.queueDatas, key=lambda each: each.brokerName)),
        brokerDatas=tuple(sorted(data.brokerDatas, key=lambda each: each.brokerName)),
    )


def _knowsRoute(answer: RemotingCommand) -> bool:
    return answer.code != ResponseCode.TOPIC_NOT_EXIST


class Routes:
    """
    The routes that a client knows.

    @ivar version: changes whenever a route or an address does, for caches of what follows
        from them.
    """

    _log = Logger()

    def __init__(
        self,
        nameServers: NameServers,
        timeout: float,
        connected: Callable[[str], bool] = lambda address: False,
    ) -> None:
        """
        @param timeout: of a request to a name server, in seconds.
        @param connected: whether the connection to an address is up.
        """
        self._nameServers = nameServers
        self._timeout = timeout
        self._routes: dict[str, Route] = {}
        self._asking: dict[str, list[Deferred[Route]]] = {}
        self._followers: list[Callable[[Route], None]] = []
        self._addresses: dict[str, dict[int, str]] = {}
        self._connected = connected
        # Of known routes, the brokers that have failed since: whether each of them has
        # said that the topic does not exist.
        self._doubts: dict[str, dict[str, bool]] = {}
        # Topics of known routes of which no name server knows.
        self._unlisted: set[str] = set()
        self.version = 0

    def follow(self, changed: Callable[[Route], None]) -> Callable[[], None]:
        """
        Have a function called with every route that is new or has changed.

        @return: a function that ends it.
        """
        self._followers.append(changed)
        return lambda: self._followers.remove(changed)

    def get(self, topic: str) -> Route | None:
        """
        A route that is known.
        """
        return self._routes.get(topic)

    def find(self, topic: str) -> Deferred[Route]:
        """
        A route, asked for if it is not known.

        @return: a Deferred that fails with L{TopicNotExist}, or with a
            L{RemotingError} if no name server answers.
        """
        known = self._routes.get(topic)
        if known is not None:
            found: Deferred[Route] = Deferred()
            found.callback(known)
            return found
        return self.refresh(topic)

    def refresh(self, topic: str) -> Deferred[Route]:
        """
        Ask for a route again.

        @return: a Deferred of the route, which is the one that is known if no name
            server has one.  It fails with L{TopicNotExist} if none is known, or the
            brokers of the known one do not have the topic, and with a L{RemotingError}
            if no name server answers.
        """
        waiter: Deferred[Route] = Deferred()
        waiting = self._asking.get(topic)
        if waiting is not None:
            waiting.append(waiter)
            return waiter
        self._asking[topic] = [waiter]
        asked = self._ask(topic).addCallback(lambda data: self._take(topic, data, inherited=False))
        asked.addErrback(self._missing, topic)
        asked.addBoth(self._asked, topic)
        return waiter

    def doubt(self, topic: str, brokerName: str, *, denied: bool) -> None:
        """
        A broker has not served a request about a topic: its route may have changed, so
        it is asked for again.

        @param denied: whether the broker said that the topic does not exist, or else
            said nothing.
        """
        known = self._routes.get(topic)
        if known is not None and brokerName in known.brokers:
            self._doubts.setdefault(topic, {})[brokerName] = denied
        elif denied:
            return
        # A failure leaves things as they were.
        self.refresh(topic).addErrback(lambda failure: failure.trap(RocketError))

    def inherit(self, topic: str, queues: int) -> Deferred[Route]:
        """
        The route that a topic which does not exist yet will have once something
        is sent to it.

        @param queues: how many queues it is to have at each broker.
        """

        def take(parent: Route) -> Route:
            known = self._routes.get(topic)
            # It may have come into being meanwhile.
            if known is not None:
                return known
            return self._take(topic, limited(parent.data, queues), inherited=True)

        return self.find(DEFAULT_TOPIC).addCallback(take)

    def refreshAll(self, topics: Iterable[str]) -> Deferred[None]:
        """
        Ask for the routes of topics again, and forget all others.
        """
        wanted = set(topics)
        for topic in self._routes.keys() - wanted:
            self._drop(topic)
        refreshed = [self.refresh(topic).addErrback(self._failed, topic) for topic in wanted]
        return DeferredList(refreshed).addCallback(lambda results: self._collect())

    def address(self, brokerName: str, brokerId: int = MASTER_ID) -> str | None:
        """
        Where a broker is.
        """
        return self._addresses.get(brokerName, {}).get(brokerId)

    def anyAddress(self, brokerName: str, brokerId: int = MASTER_ID) -> tuple[str, int] | None:
        """
        Where to pull from: the broker of an id, or else another of the same name.

        @return: the address and the id.
        """
        addresses = self._addresses.get(brokerName)
        if not addresses:
            return None
        if brokerId not in addresses:
            brokerId = min(addresses)
        return addresses[brokerId], brokerId

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """
        The addresses of all brokers in the routes, by name and id.
        """
        return self._addresses

    def _ask(self, topic: str) -> Deferred[TopicRouteData]:
        def decode(answer: RemotingCommand) -> TopicRouteData:
            if answer.code:
                raise responseError(
                    answer.code, answer.remark or "", self._nameServers.current or ""
                )
            return _sorted(decodeBody(TopicRouteData, answer.body))

        header = GetRouteInfoRequestHeader(topic, True)
        request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        asked = self._nameServers.request(request, self._timeout, _knowsRoute)
        return asked.addCallback(decode)

    def _take(self, topic: str, data: TopicRouteData, *, inherited: bool) -> Route:
        known = self._routes.get(topic)
        if not data.brokerDatas and known is not None and known.brokers:
            raise TopicNotExist(f"the route of topic {topic} has no broker")
        self._trust(topic)
        # The newest is the last, because later routes overrule earlier ones' addresses.
        self._routes.pop(topic, None)
        if known is not None and known.data == data and known.inherited == inherited:
            self._routes[topic] = known
            if any(self._addresses.get(name) != ids for name, ids in known.brokers.items()):
                # Another route has told something else meanwhile.
                self._addresses.update(known.brokers)
                self.version += 1
            return known
        route = self._routes[topic] = Route(topic, data, inherited=inherited)
        self.version += 1
        self._collect()
        for changed in tuple(self._followers):
            changed(route)
        return route

    def _drop(self, topic: str) -> None:
        del self._routes[topic]
        self._trust(topic)
        self.version += 1

    def _trust(self, topic: str) -> None:
        self._doubts.pop(topic, None)
        self._unlisted.discard(topic)

    def _collect(self) -> None:
        """
        The brokers of all routes; one that is in none is gone.
        """
        addresses: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            addresses.update(route.brokers)
        if addresses != self._addresses:
            self._addresses = addresses
            self.version += 1

    def _missing(self, failure: Failure, topic: str) -> Failure | Route:
        known = self._routes.get(topic)
        # What is not there yet is served by what it will inherit from.
        if not failure.check(TopicNotExist) or known is None or known.inherited:
            return failure
        if self._isGone(known):
            self._drop(topic)
            return failure
        # Once, and not every half minute.
        if topic not in self._unlisted:
            self._unlisted.add(topic)
            self._log.warn(
                "No name server has a route of {topic}; the last one counts until its brokers"
                " fail: {error}",
                topic=topic,
                error=failure.value,
            )
        return known

    def _isGone(self, known: Route) -> bool:
        """
        Whether each broker of a route has said that the topic does not exist, or has not
        answered and is not connected.
        """
        doubts = self._doubts.get(known.topic, {})
        return all(
            doubts.get(name, False)
            or (name in doubts and not any(map(self._connected, addresses.values())))
            for name, addresses in known.brokers.items()
        )

    def _asked(self, result: Route | Failure, topic: str) -> None:
        for waiter in self._asking.pop(topic):
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(result)

    def _failed(self, failure: Failure, topic: str) -> None:
        failure.trap(RocketError)
        if not failure.check(TopicNotExist):
            self._log.warn(
                "The route of {topic} stays as it was: {error}", topic=topic, error=failure.value
            )
