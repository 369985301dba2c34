# SPDX-License-Identifier: Apache-2.0
"""
A client's view of a cluster: name servers, routes, connections, heartbeats; what
Java keeps in C{MQClientInstance}.

Producers and consumers are given one and share it::

    cluster = Cluster("127.0.0.1:9876", reactor)
    producer = Producer(cluster, "orders")

There is no table of clusters behind it: two in one process never meet.

Like its members it is a context and a service.  Under twistd it is the parent of its
members, so that they are stopped while there are connections still::

    cluster.setServiceParent(application)
    producer.setServiceParent(cluster)
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Generator, Iterable, Sequence
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from twisted.application.service import MultiService, Service
from twisted.internet.defer import (
    Deferred,
    DeferredList,
    inlineCallbacks,
    maybeDeferred,
    succeed,
)
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.brokerrequests import ClientRequests
from txrocket.client.heartbeats import Heartbeats
from txrocket.client.members import ConsumerMember, Member, ProducerMember
from txrocket.client.routes import Routes
from txrocket.errors import ConfigError, RocketError, responseError
from txrocket.protocol.addresses import nameServerAddresses
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import UnregisterClientRequestHeader
from txrocket.protocol.messageid import UniqueIds, monthStart
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.nameservers import NameServers
from txrocket.remoting.peers import Connect, Peers, endpoints
from txrocket.remoting.remoting import FunctionProcessor, Limits, Remoting
from txrocket.remoting.timebase import steady, wallOf
from txrocket.remoting.tls import ClientTLS

__all__ = ["Cluster"]

_Member = TypeVar("_Member", bound=Member)

# How often routes are asked for and heartbeats sent, in seconds (pollNameServerInterval,
# heartbeatBrokerInterval).
_ROUTE_INTERVAL: Final = 30.0
_HEARTBEAT_INTERVAL: Final = 30.0

# Time limits, in seconds (mqClientApiTimeout).
_TIMEOUT: Final = 3.0


def _localIp(nameServer: str) -> str:
    """
    The address of this machine, as a name server sees it.
    """
    host = nameServer.rpartition(":")[0].strip("[]")
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        # A name, and to look it up would block the reactor.  The interface that faces the
        # world will do: this address of RFC 5737 is beyond it.
        family, host = socket.AF_INET, "192.0.2.1"
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the system only chooses the interface that it would use.
            probe.connect((host, 9))
            ip: str = probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"
    return ip


def _uniqueIds(ip: str, choose: Callable[[int], int], now: Callable[[], int]) -> UniqueIds:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return UniqueIds(socket.inet_pton(family, ip), os.getpid(), choose(2**32), now, monthStart)


class Cluster(MultiService):
    """
    A cluster, as a client sees it.

    @ivar clientId: brokers know this client by it.
    @ivar peers: the connections.
    @ivar routes: where topics live.
    @ivar uniqueId: makes an id for a message.
    @ivar wall: the time of day in seconds.
    """

    _log = Logger()

    def __init__(
        self,
        nameServers: str | Sequence[str] | None = None,
        reactor: Any = None,
        *,
        clientId: str | None = None,
        tls: ClientTLS | None = None,
        hooks: Sequence[IHook] = (),
        limits: Limits | None = None,
        connect: Connect | None = None,
        choose: Callable[[int], int] = random.randrange,
        timeout: float = _TIMEOUT,
        wall: Callable[[], float] | None = None,
        steadyTimers: bool = True,
    ) -> None:
        """
        @param nameServers: C{host:port;host:port}, or a list; NAMESRV_ADDR of the
            environment if not given.
        @param clientId: unique by default: address, process and a random part.
        @param hooks: are shown every request and answer.
        @param connect: dials an address, in place of TCP.
        @param choose: picks a number below its argument.
        @param timeout: of requests other than sends and pulls, in seconds.
        @param wall: the time of day in seconds, for what is sent and shown; the machine's,
            or that of the clock which is given in place of a reactor.
        @param steadyTimers: whether the timers of the reactor follow a monotonic clock
            from now on, all of them.  If not, a machine's clock that is set back stops
            heartbeats, time-outs and commits until it has caught up.
        @raise ConfigError: if there is no name server, or an address is not valid.
        """
        MultiService.__init__(self)
        if reactor is None:
            from twisted.internet import reactor
        addresses = nameServerAddresses(nameServers, os.environ.get("NAMESRV_ADDR", ""))
        if steadyTimers:
            steady(reactor)
        self.reactor = reactor
        self.wall = wall or wallOf(reactor)
        self._version = 0
        self.choose = choose
        self.timeout = timeout
        ip = _localIp(addresses[0])
        self.clientId = clientId or f"{ip}@{os.getpid()}#{choose(2**48):012x}"
        self.remoting = Remoting(reactor, limits)
        for hook in hooks:
            self.remoting.registerHook(hook)
        self.peers = Peers(self.remoting, connect or endpoints(reactor, tls))
        self.nameServers = NameServers(self.peers, addresses, choose)
        self.routes = Routes(
            self.nameServers, timeout, lambda address: self.peers.up(address) is not None
        )
        self.routes.follow(lambda route: self._heartbeats.soon())
        self.uniqueId = _uniqueIds(ip, choose, self.now)
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.requests = ClientRequests(self.producers, self.consumers, self.now)
        for code, function in self.requests.codes().items():
            self.remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
        self._loops = [self._loop(self.refreshRoutes), self._loop(self.heartbeat)]
        self._heartbeats = Heartbeats(self, self.producers, self.consumers)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def now(self) -> int:
        """
        The time of day in milliseconds.
        """
        return int(self.wall() * 1000)

    def version(self) -> int:
        """
        A version for a new subscription.  It is the time of day, as in Java, but it does
        not go back with the clock, because a broker would take the new one for old.
        """
        now = self.now()
        self._version = now if now >= self._version else self._version + 1
        return self._version

    def timeOf(self, seconds: float) -> int:
        """
        The time of day in milliseconds at which the reactor's clock showed a time.  It is
        for display only.

        @param seconds: of the reactor's clock.
        """
        ago: float = self.reactor.seconds() - seconds
        return round((self.wall() - ago) * 1000)

    # --- members ---------------------------------------------------------

    def addProducer(self, member: ProducerMember) -> None:
        """
        A producer starts.

        @raise ConfigError: if there is one of its group already: brokers tell
            the producers of a client apart by their groups.
        """
        self._add(self.producers, member, "producer")

    def addConsumer(self, member: ConsumerMember) -> None:
        """
        A consumer starts.

        @raise ConfigError: if there is one of its group already.
        """
        self._add(self.consumers, member, "consumer")

    def _add(self, members: dict[str, _Member], member: _Member, kind: str) -> None:
        if member.group in members:
            raise ConfigError(
                f"there is a {kind} of group {member.group} on this cluster already: share it,"
                " or make another Cluster"
            )
        members[member.group] = member
        for loop, interval in zip(self._loops, (_ROUTE_INTERVAL, _HEARTBEAT_INTERVAL), strict=True):
            if not loop.running:
                self._run(loop, interval)
        self._heartbeats.soon()

    def removeProducer(self, member: ProducerMember) -> Deferred[None]:
        """
        A producer stops: brokers are told.
        """
        return self._remove(self.producers, member, producerGroup=member.group)

    def removeConsumer(self, member: ConsumerMember) -> Deferred[None]:
        """
        A consumer stops: brokers are told.
        """
        return self._remove(self.consumers, member, consumerGroup=member.group)

    def _remove(
        self, members: dict[str, _Member], member: _Member, **groups: str
    ) -> Deferred[None]:
        if members.get(member.group) is not member:
            return succeed(None)
        del members[member.group]
        header = UnregisterClientRequestHeader(self.clientId, **groups)
        leaving = [self._leave(address, header) for address in self._heartbeats.heard]
        return DeferredList(leaving).addCallback(lambda results: None)

    def _leave(self, address: str, header: UnregisterClientRequestHeader) -> Deferred[Any]:
        def answered(none: None) -> Deferred[Any]:
            # A broker that is not there forgets this client by itself.
            if address not in self._heartbeats.heard:
                return succeed(None)
            request = requestCommand(RequestCode.UNREGISTER_CLIENT, header)
            return self.ask(address, request).addErrback(
                lambda failure: failure.trap(RocketError) and None
            )

        # Not while a heartbeat is in flight: Java's broker serves the two in threads of
        # their own, and the heartbeat may bring back the member that was just removed.
        return self._heartbeats.answered(address).addCallback(answered)

    def stop(self) -> Deferred[None]:
        """
        Close all connections.  Producers and consumers are stopped before.
        """
        for loop in self._loops:
            if loop.running:
                loop.stop()
        self._heartbeats.stop()
        return self.peers.stop()

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop the services whose parent this is, one after the other and the last
        first, and then as L{stop} does: consumers may need a producer until they are
        stopped, and both need the connections.
        """
        Service.stopService(self)
        for service in reversed(list(self)):
            try:
                yield maybeDeferred(service.stopService)
            except Exception:
                self._log.failure("A member of the cluster did not stop as it should")
        yield self.stop()

    # --- requests --------------------------------------------------------

    def ask(
        self, address: str, request: RemotingCommand, timeout: float | None = None
    ) -> Deferred[RemotingCommand]:
        """
        Send a request to a broker.

        @param timeout: in seconds.
        @return: a Deferred of the answer; it fails with a L{ResponseError} if the
            answer tells of one, and with a L{RemotingError} if there is none.
        """

        def check(answer: RemotingCommand) -> RemotingCommand:
            if answer.code:
                raise responseError(answer.code, answer.remark or "", address)
            return answer

        limit = self.timeout if timeout is None else timeout
        return self.peers.request(address, request, limit).addCallback(check)

    # --- routes ----------------------------------------------------------

    def _members(self) -> Iterable[Member]:
        return [*self.producers.values(), *self.consumers.values()]

    def refreshRoutes(self) -> Deferred[None]:
        """
        Ask for all routes that members need, and forget brokers that have left.
        """
        topics = {topic for member in self._members() for topic in member.topics()}
        return self.routes.refreshAll(topics).addCallback(lambda none: self._forget())

    def _forget(self) -> None:
        there = {
            address for addresses in self.routes.brokers.values() for address in addresses.values()
        }
        for gone in self._heartbeats.forget(there):
            self.peers.forget(gone)

    # --- heartbeats ------------------------------------------------------

    def heartbeat(self) -> Deferred[None]:
        """
        Tell all brokers of this client's members.  Slaves need to know consumers only.

        @return: a Deferred that fires once all have answered, or failed to.
        """
        return self._heartbeats.send()

    # --- loops -----------------------------------------------------------

    def _loop(self, function: Callable[[], Deferred[None]]) -> LoopingCall:
        # The next round does not wait for a slow one: one broker would delay the others.
        loop = LoopingCall(lambda: function() and None)
        loop.clock = self.reactor
        return loop

    def _run(self, loop: LoopingCall, interval: float) -> None:
        def ended(failure: Failure) -> None:
            self._log.failure("Routes or heartbeats have stopped", failure)

        loop.start(interval, now=False).addErrback(ended)
