# SPDX-License-Identifier: Apache-2.0
"""
The life of a broker: start, periodic tasks, stop.

Start::

    tables read --> store opened --> ports listen --> role taken --> name servers told

Stop, so that no acknowledged message is lost and every held request is answered::

    unregistered from name servers --> held pulls answered --> sends on the disk
        --> tables written --> slaves have all --> ports and connections closed
        --> store closed
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.broker.names import RETRY_PREFIX
from txrocket.broker.parts import BrokerParts, Tables
from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.member.service import Replication
from txrocket.broker.replication.member.steps import DelayedDelivery
from txrocket.errors import ServiceNotAvailable, StoreError
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.addresses import addressOf
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.store.messagestore import MessageStore

__all__ = ["Broker", "Listener", "PeriodicTask"]


@attrs.frozen
class PeriodicTask:
    """
    A function that the broker calls periodically.
    """

    name: str
    seconds: float
    run: Callable[[], object]


@implementer(IHook)
class _Stopping:
    """
    A hook that refuses all requests, so that clients turn to other brokers.
    """

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        raise ServiceNotAvailable("this broker is being stopped")

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        pass


@attrs.frozen
class Listener:
    """
    Where a broker listens.

    @ivar factory: makes the protocol of each accepted connection.
    @ivar slaves: makes the protocol of each connection of a slave.
    @ivar slavesEndpoint: where slaves connect.
    """

    factory: RemotingServerFactory
    endpoints: Sequence[IStreamServerEndpoint]
    slaves: IProtocolFactory
    slavesEndpoint: IStreamServerEndpoint


@attrs.define(slots=False, eq=False)
class Broker(Service):
    """
    A broker as a service.

    @ivar before: called first when the broker starts.
    @ivar after: called last when it has stopped.
    """

    _log = Logger()

    parts: BrokerParts
    replication: Replication
    listener: Listener
    tasks: Sequence[PeriodicTask]
    before: Callable[[], None]
    after: Callable[[], None]

    def __attrs_post_init__(self) -> None:
        self._ports: list[IListeningPort] = []
        self._loops: list[LoopingCall] = []
        self._told: Deferred[None] | None = None

    @property
    def registration(self) -> NameServerRegistration:
        """
        The registration with the name servers.
        """
        return self.replication.registration

    @property
    def deliveries(self) -> Sequence[DelayedDelivery]:
        """
        The parts that deliver later.
        """
        return self.replication.steps.deliveries

    @property
    def remoting(self) -> Remoting:
        """
        The table of processors.
        """
        return self.parts.core.remoting

    @property
    def store(self) -> MessageStore:
        """
        The store of messages.
        """
        return self.parts.core.store

    @property
    def tables(self) -> Tables:
        """
        Topics, groups, offsets and filters.
        """
        return self.parts.tables

    def startService(self) -> None:
        """
        Open the store and listen.

        @raise StoreError: if the store cannot be opened.
        @raise CannotListenError: if a port is taken.
        """
        self.before()
        try:
            self.tables.topics.load()
            self.tables.groups.load()
            self.tables.offsets.load()
            for delivery in self.deliveries:
                delivery.load()
            self.tables.filters.load()
            self.replication.load()
            self.store.start()
            self._completeTables()
            listener = self.listener
            for endpoint in listener.endpoints:
                self._listen(endpoint, listener.factory)
            self._listen(listener.slavesEndpoint, listener.slaves)
            self._logStart()
            self._told = self._takeRole()
        except BaseException:
            self._abandon()
            raise
        Service.startService(self)
        for task in self.tasks:
            self._begin(task)

    def _logStart(self) -> None:
        who = self.registration.identity
        listening = ", ".join(addressOf(each.getHost()) for each in self._ports)
        self._log.info(
            "Broker {name} of {cluster} listens on {listening}, is reached at {address}"
            " and keeps its messages in {path}",
            name=who.name,
            cluster=who.cluster,
            listening=listening,
            address=who.address,
            path=self.store.settings.storePathRootDir,
        )

    def _takeRole(self) -> Deferred[None]:
        """
        Have the broker lead or follow.

        @raise RocketError: if it may do neither, and that is known at once.
        """
        told = self.replication.start()
        failures: list[Failure] = []
        told.addErrback(failures.append)
        if failures:
            failures[0].raiseException()
        return told.addCallback(lambda none: failures[0] if failures else None)

    def whenAnnounced(self) -> Deferred[None]:
        """
        A Deferred that fires once the broker has a role and has registered with every name
        server, or failed to.  It fails with L{ConfigError<txrocket.errors.ConfigError>} if the
        broker may take no role.
        """
        assert self._told is not None
        told: Deferred[None] = Deferred()
        self._told.addBoth(lambda result: told.callback(result))
        return told

    def _listen(self, endpoint: IStreamServerEndpoint, factory: IProtocolFactory) -> None:
        failures: list[Any] = []
        listening = endpoint.listen(factory)
        listening.addCallbacks(self._ports.append, failures.append)
        if failures:
            failures[0].raiseException()

    def _begin(self, task: PeriodicTask) -> None:
        loop = LoopingCall(task.run)
        loop.clock = self.remoting.clock
        loop.start(task.seconds, now=False).addErrback(
            lambda failure: self._log.failure("{task} has ended", failure, task=task.name)
        )
        self._loops.append(loop)

    def _completeTables(self) -> None:
        """
        Add to damaged tables what the store and the other tables know.
        """
        queues: dict[str, int] = {}
        for topic, queueId, _ in self.store.queues:
            queues[topic] = max(queues.get(topic, 0), queueId + 1)
        self.tables.topics.complete(queues)
        retries = [
            each.removeprefix(RETRY_PREFIX) for each in queues if each.startswith(RETRY_PREFIX)
        ]
        self.tables.groups.complete([*self.tables.offsets.groups(), *retries])

    def _abandon(self) -> None:
        """
        Undo a start that failed.
        """
        for port in self._ports:
            port.stopListening()
        # First, because without threads the store closes at once.
        self.after()
        self.store.stop()

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop gracefully.

        @return: a Deferred that fires once all messages and tables are on the disk.
        """
        Service.stopService(self)
        for loop in self._loops:
            if loop.running:
                loop.stop()
        yield self.replication.stop()
        self.remoting.hooks.insert(0, _Stopping())
        self.parts.core.longPoll.stop()
        # A send that failed was answered with its error; the store logs the rest.
        yield maybeDeferred(self.store.flushed).addErrback(lambda failure: failure.trap(StoreError))
        # A send to a new topic waits for the table as well.
        yield self._tablesWritten()
        yield self.replication.finish()
        gone = [each.whenLost() for each in self.listener.factory.connections]
        yield DeferredList([maybeDeferred(each.stopListening) for each in self._ports])
        yield DeferredList(gone)
        # Requests of the connections that have ended may have changed the tables.
        yield self._tablesWritten()
        yield self.store.stop()
        yield self.registration.close()
        self.after()
        self._log.info("Broker {name} has stopped", name=self.registration.identity.name)

    @inlineCallbacks
    def _tablesWritten(self) -> Generator[Deferred[Any], Any, None]:
        yield self.tables.topics.flush()
        yield self.tables.groups.flush()
        yield self.tables.offsets.save()
        for delivery in self.deliveries:
            yield delivery.save()
        yield self.tables.filters.save()
