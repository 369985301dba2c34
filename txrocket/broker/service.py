# SPDX-License-Identifier: Apache-2.0
"""
A broker's life: starting, what is done every so often, stopping.

Starting::

    tables read --> store opened --> ports listen --> name servers told

Stopping, so that nothing that was acknowledged is lost and nobody waits in vain::

    name servers told goodbye --> held pulls answered --> sends on the disk
        --> tables written --> ports and connections closed --> store closed
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from txrocket.broker.announce import Announcement
from txrocket.broker.consumerfilters import ConsumerFilters
from txrocket.broker.groups import Groups
from txrocket.broker.longpoll import LongPoll
from txrocket.broker.names import RETRY_PREFIX
from txrocket.broker.offsets import Offsets
from txrocket.broker.topics import Topics
from txrocket.errors import ServiceNotAvailable, StoreError
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.addresses import addressOf
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.node import Remoting
from txrocket.remoting.peers import Peers
from txrocket.remoting.server import RemotingServerFactory
from txrocket.store.messages import MessageStore

__all__ = ["Broker", "Chore", "Clockwork"]


@attrs.frozen
class Chore:
    """
    What is done every so often.
    """

    name: str
    seconds: float
    run: Callable[[], object]


class Clockwork(Protocol):
    """
    What does something with messages when their time has come.
    """

    def load(self) -> None:
        """
        Read its table, before the store is opened.
        """

    def start(self) -> None:
        """
        Begin: the store is open.
        """

    def stop(self) -> None:
        """
        Do nothing more.
        """

    def save(self) -> Deferred[None]:
        """
        Write its table; the Deferred fires once nothing is being written.
        """


@implementer(IHook)
class _Stopping:
    """
    Refuses requests, so that clients turn to other brokers.
    """

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        raise ServiceNotAvailable("this broker is being stopped")

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        pass


@attrs.define(slots=False, eq=False)
class Broker(Service):
    """
    A broker.

    @ivar remoting: who serves which request.
    @ivar endpoints: where to listen.
    @ivar peers: the connections to the name servers.
    @ivar clockworks: what delivers messages late.
    @ivar before: called first when the broker starts.
    @ivar after: called last when it has stopped.
    """

    _log = Logger()

    remoting: Remoting
    factory: RemotingServerFactory
    endpoints: Sequence[IStreamServerEndpoint]
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    filters: ConsumerFilters
    longPoll: LongPoll
    announcement: Announcement
    peers: Peers
    clockworks: Sequence[Clockwork]
    chores: Sequence[Chore]
    before: Callable[[], None]
    after: Callable[[], None]

    def __attrs_post_init__(self) -> None:
        self._ports: list[IListeningPort] = []
        self._loops: list[LoopingCall] = []
        self._told: Deferred[None] | None = None

    def startService(self) -> None:
        """
        Open the store and listen.

        @raise StoreError: if the store cannot be opened.
        @raise CannotListenError: if a port is taken.
        """
        self.before()
        try:
            self.topics.load()
            self.groups.load()
            self.offsets.load()
            for clockwork in self.clockworks:
                clockwork.load()
            self.filters.load()
            self.store.start()
            self._completeTables()
            for endpoint in self.endpoints:
                self._listen(endpoint)
        except BaseException:
            self._abandon()
            raise
        Service.startService(self)
        for clockwork in self.clockworks:
            clockwork.start()
        for chore in self.chores:
            self._begin(chore)
        who = self.announcement.identity
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
        self._told = self.announcement.start()

    def whenAnnounced(self) -> Deferred[None]:
        """
        A Deferred that fires once every name server knows the broker, or could
        not be told.
        """
        assert self._told is not None
        told: Deferred[None] = Deferred()
        self._told.addCallback(lambda none: told.callback(None))
        return told

    def _listen(self, endpoint: IStreamServerEndpoint) -> None:
        failures: list[Any] = []
        listening = endpoint.listen(self.factory)
        listening.addCallbacks(self._ports.append, failures.append)
        if failures:
            failures[0].raiseException()

    def _begin(self, chore: Chore) -> None:
        loop = LoopingCall(chore.run)
        loop.clock = self.remoting.clock
        loop.start(chore.seconds, now=False).addErrback(
            lambda failure: self._log.failure("{chore} has ended", failure, chore=chore.name)
        )
        self._loops.append(loop)

    def _completeTables(self) -> None:
        """
        Let damaged tables have what the store and the other tables know.
        """
        queues: dict[str, int] = {}
        for topic, queueId, _ in self.store.queues:
            queues[topic] = max(queues.get(topic, 0), queueId + 1)
        self.topics.complete(queues)
        retries = [
            each.removeprefix(RETRY_PREFIX) for each in queues if each.startswith(RETRY_PREFIX)
        ]
        self.groups.complete([*self.offsets.groups(), *retries])

    def _abandon(self) -> None:
        """
        Undo half a start.
        """
        for port in self._ports:
            port.stopListening()
        # First, because without threads the store is closed at once.
        self.after()
        self.store.stop()

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop gracefully.

        @return: a Deferred that fires once all is on the disk.
        """
        Service.stopService(self)
        for loop in self._loops:
            if loop.running:
                loop.stop()
        for clockwork in self.clockworks:
            clockwork.stop()
        yield self.announcement.stop()
        self.remoting.hooks.insert(0, _Stopping())
        self.longPoll.stop()
        # What failed was answered so; the store says the rest when it is closed.
        yield maybeDeferred(self.store.flushed).addErrback(lambda failure: failure.trap(StoreError))
        # A message to a new topic waits for that as well.
        yield self._tablesWritten()
        gone = [each.whenLost() for each in self.factory.connections]
        yield DeferredList([maybeDeferred(each.stopListening) for each in self._ports])
        yield DeferredList(gone)
        # What was being done for those that are gone now has perhaps changed them.
        yield self._tablesWritten()
        yield self.store.stop()
        yield self.peers.stop()
        self.after()
        self._log.info("Broker {name} has stopped", name=self.announcement.identity.name)

    @inlineCallbacks
    def _tablesWritten(self) -> Generator[Deferred[Any], Any, None]:
        yield self.topics.stop()
        yield self.groups.stop()
        yield self.offsets.save()
        for clockwork in self.clockworks:
            yield clockwork.save()
        yield self.filters.save()
