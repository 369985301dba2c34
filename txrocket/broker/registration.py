# SPDX-License-Identifier: Apache-2.0
"""
Registration of the broker and its topics with the name servers; C{registerBrokerAll} of
Java's C{BrokerController}.

Name servers do not know one another, so the broker registers with each, and one that is
down delays no other.  It registers at start, after ten seconds, every half minute, at once
when a topic changes, and at once when a name server is back
(L{txrocket.broker.nameserverlink}).  It unregisters when it stops.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import attrs
from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.nameserverlink import NameServerLink, shortBackoff
from txrocket.broker.settings import RegistrationSettings
from txrocket.broker.tables.topics import Topics
from txrocket.errors import ConfigError, RocketError, responseError
from txrocket.model import MASTER_ID, PERM_READ, PERM_WRITE, DataVersion
from txrocket.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.bodies.registerbroker import encodingRegisterBroker
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.fastjson import Gradual, finish
from txrocket.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocket.remoting.addresses import parseAddresses
from txrocket.remoting.peers import Backoff, Peers

__all__ = ["Identity", "NameServerRegistration"]

_BOTH = PERM_READ | PERM_WRITE

# Seconds until the second registration: a name server that was started together with the
# broker may have missed the first.
_AGAIN = 10.0

# How long a name server has to answer when the broker unregisters, in seconds.
_GOODBYE = 3.0


@attrs.frozen
class Identity:
    """
    The name and the addresses of a broker.

    @ivar address: C{host:port}, where clients reach it.
    @ivar haAddress: where slaves connect; empty if nothing listens there.
    """

    cluster: str
    name: str
    address: str
    haAddress: str
    brokerId: int = MASTER_ID


class NameServerRegistration:
    """
    Registers one broker with all name servers.

    @ivar identity: the broker, in its present role.
    @ivar addresses: the name servers.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        peers: Peers,
        identity: Identity,
        settings: RegistrationSettings,
        topics: Topics,
        backoff: Backoff | None = None,
        gradually: Callable[[Gradual[bytes]], Deferred[bytes]] = lambda work: succeed(finish(work)),
    ) -> None:
        """
        @param backoff: how many seconds to pause after a number of failures in a row.
        @param gradually: does work that takes long, such as encoding 20,000 topics.
        @raise ConfigError: if C{namesrvAddr} cannot be parsed.
        """
        self._gradually = gradually
        self._clock = clock
        self._peers = peers
        self.identity = identity
        self._settings = settings
        self._topics = topics
        self.addresses = addresses = _nameServers(settings.namesrvAddr or "")
        self._masterFound: Callable[[str, str], None] = lambda address, haAddress: None
        self._permission = _BOTH
        self._running = False
        self._again: IDelayedCall | None = None
        self._soon: IDelayedCall | None = None
        self._stale = False
        self._waiting: list[Deferred[None]] = []
        self._failing: set[str] = set()
        backoff = backoff or shortBackoff(random.randrange)
        self._links = {
            each: NameServerLink(clock, peers, each, partial(self._announceTo, [each]), backoff)
            for each in addresses
        }
        self._loop = LoopingCall(self.announce, force=settings.forceRegister)
        self._loop.clock = clock

    def follow(self, masterFound: Callable[[str, str], None]) -> None:
        """
        Have a function called with the addresses of the master, for clients and for slaves,
        when a name server tells a slave of it.
        """
        self._masterFound = masterFound

    def become(self, brokerId: int, haAddress: str) -> Deferred[None]:
        """
        Register with another number, or for the first time.  Name servers forget the former
        number of an address.

        @return: a Deferred that fires once each has answered or failed.
        """
        self.identity = attrs.evolve(self.identity, brokerId=brokerId, haAddress=haAddress)
        return self.announce(force=True) if self._running else self.start()

    def start(self) -> Deferred[None]:
        """
        Register with all name servers, now and periodically.

        @return: a Deferred that fires once each has answered or failed.
        """
        self._topics.follow(self.announceSoon)
        self._running = True
        for link in self._links.values():
            link.start()
        self._again = self._clock.callLater(_AGAIN, self._repeat)
        return self.announce(force=True)

    def _repeat(self) -> None:
        # Java's bounds: less is a burden, more and the name servers forget us.
        period = max(10_000, min(self._settings.registerNameServerPeriod, 60_000)) / 1000
        self._loop.start(period).addErrback(
            lambda failure: self._log.failure("The broker does not register any more", failure)
        )

    def announceSoon(self) -> None:
        """
        Register again, because a topic has changed.  All changes of one turn make one
        registration, and so do all that come while the last one is being encoded.
        """
        if self._running:
            self._stale = True
            if self._soon is None:
                self._soon = self._clock.callLater(0, self._announceNow)

    def _announceNow(self) -> None:
        self._stale = False
        waiting, self._waiting = self._waiting, []
        version = self._topics.version
        self._written().addBoth(self._mayRepeat).addCallback(
            self._tellEach, self.addresses, version, force=True
        ).addErrback(self._notTold).addCallback(lambda none: _tellAll(waiting))

    def _mayRepeat(self, result: Any) -> Any:
        self._soon = None
        if self._stale:
            self.announceSoon()
        return result

    def whenTold(self) -> Deferred[None]:
        """
        A Deferred that fires once all name servers know of the changes of this turn, or
        have failed.
        """
        if not self._stale:
            return succeed(None)
        told: Deferred[None] = Deferred()
        self._waiting.append(told)
        return told

    def permit(self, permission: int) -> None:
        """
        Register all topics with a permission.

        @param permission: C{brokerPermission}: 4 to read, 2 to write, 6 for both.
        """
        changed = permission != self._permission
        self._permission = permission
        # Before the start the topics may not be loaded yet.
        if changed and self._running:
            self._topics.renew()

    def announce(self, force: bool) -> Deferred[None]:
        """
        Register with all name servers.

        @param force: whether to register without asking first whether the name server
            has this version already.
        """
        return self._announceTo(self.addresses, force=force)

    def _announceTo(self, addresses: Sequence[str], force: bool = True) -> Deferred[None]:
        version = self._topics.version
        told = self._written().addCallback(self._tellEach, addresses, version, force=force)
        return told.addErrback(self._notTold)

    def _written(self) -> Deferred[bytes]:
        """
        What is told, encoded.
        """
        if self._settings.compressedRegister:
            return self._gradually(
                encodingRegisterBroker(RegisterBrokerBody(self._wrapper()), True)
            )
        free = self._permission & _BOTH == _BOTH
        # Joined of what was encoded before: there may be 20,000 topics.
        body = self._topics.encoded(
            None if free else self._permission,
            b'{"filterServerList":[],"topicConfigSerializeWrapper":',
            b"}",
        )
        return succeed(body)

    def _tellEach(
        self, body: bytes, addresses: Sequence[str], version: DataVersion, *, force: bool
    ) -> Deferred[None]:
        if not self._running:
            # It has unregistered meanwhile.
            return succeed(None)
        # Computed once, because the body may have several megabytes.
        crc = zlib.crc32(body) & 0x7FFFFFFF
        # A slave needs to hear of its master.
        force = force or self.identity.brokerId != MASTER_ID
        rest = version, body, crc, force, list[str]()
        telling = [self._tell(each, *rest).addErrback(self._notTold) for each in addresses]
        return DeferredList(telling).addCallback(lambda results: None)

    def _notTold(self, failure: Failure) -> None:
        self._log.failure("Registering with a name server failed", failure)

    def stop(self) -> Deferred[None]:
        """
        Unregister from all name servers.  If this broker has not registered, they would forget
        another one with its name and number.
        """
        if not self._running:
            return succeed(None)
        self._running = False
        for link in self._links.values():
            link.stop()
        for call in (self._soon, self._again):
            if call is not None and call.active():
                call.cancel()
        self._soon = None
        self._stale = False
        if self._loop.running:
            self._loop.stop()
        waiting, self._waiting = self._waiting, []
        _tellAll(waiting)
        who = self.identity
        header = UnRegisterBrokerRequestHeader(who.name, who.address, who.cluster, who.brokerId)
        leaving = [
            self.ask(each, requestCommand(RequestCode.UNREGISTER_BROKER, header), _GOODBYE)
            for each in self.addresses
        ]
        # A name server that does not get it notices that the connection closes.
        return DeferredList(leaving, consumeErrors=True).addCallback(lambda results: None)

    def close(self) -> Deferred[None]:
        """
        Close the connections to the name servers, after L{stop}.
        """
        return self._peers.stop()

    def _wrapper(self) -> TopicConfigSerializeWrapper:
        wrapper: TopicConfigSerializeWrapper = self._topics.wrapper()
        if self._permission & _BOTH == _BOTH:
            # Topics may change while the copy is encoded.
            return replace(wrapper, topicConfigTable=dict(wrapper.topicConfigTable))
        return TopicConfigSerializeWrapper(
            {
                name: replace(config, perm=self._permission)
                for name, config in wrapper.topicConfigTable.items()
            },
            wrapper.dataVersion,
        )

    @inlineCallbacks
    def _tell(
        self,
        address: str,
        version: DataVersion,
        body: bytes,
        crc: int,
        force: bool,
        found: list[str],
    ) -> Generator[Deferred[Any], Any, None]:
        try:
            if force or (yield self._isNews(address, version)):
                answer = yield self._register(address, body, crc)
                self._hear(answer.decodeHeader(RegisterBrokerResponseHeader), found)
                if answer.body:
                    self._topics.order(frozenset(decodeBody(KVTable, answer.body).table))
        except RocketError as error:
            self._failed(address, error)
            self._links[address].failed()
        else:
            self._links[address].registered()
            if address in self._failing:
                self._failing.remove(address)
                self._log.info("Name server {address} is back", address=address)

    def _hear(self, header: RegisterBrokerResponseHeader, found: list[str]) -> None:
        """
        Tell of the master: the first name server of a round that knows one decides.
        """
        if header.masterAddr and not found and self._running:
            found.append(header.masterAddr)
            self._masterFound(header.masterAddr, header.haServerAddr or "")

    def _isNews(self, address: str, version: DataVersion) -> Deferred[bool]:
        who = self.identity
        header = QueryDataVersionRequestHeader(who.name, who.address, who.cluster, who.brokerId)
        body = encodeBody(version)
        return self.ask(
            address, requestCommand(RequestCode.QUERY_DATA_VERSION, header, body), self._timeout
        ).addCallback(lambda answer: answer.decodeHeader(QueryDataVersionResponseHeader).changed)

    def _register(self, address: str, body: bytes, crc: int) -> Deferred[RemotingCommand]:
        who = self.identity
        header = RegisterBrokerRequestHeader(
            who.name,
            who.address,
            who.cluster,
            who.haAddress,
            who.brokerId,
            self._settings.compressedRegister,
            crc,
        )
        request = requestCommand(RequestCode.REGISTER_BROKER, header, body)
        return self.ask(address, request, self._timeout)

    @property
    def _timeout(self) -> float:
        return self._settings.registerBrokerTimeoutMills / 1000

    def ask(
        self, address: str, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        """
        Ask a name server, or another broker.  If it refuses, the Deferred fails as well.
        """

        def check(answer: RemotingCommand) -> RemotingCommand:
            if answer.code:
                raise responseError(answer.code, answer.remark or "", address)
            return answer

        return self._peers.request(address, request, timeout).addCallback(check)

    def _failed(self, address: str, error: RocketError) -> None:
        # Log it once, and not every half minute.
        if address not in self._failing:
            self._failing.add(address)
            self._log.error(
                "This broker cannot register with name server {address}, so clients do not"
                " find it there; it tries again: {error}",
                address=address,
                error=error,
            )


def _nameServers(text: str) -> Sequence[str]:
    try:
        return parseAddresses(text)
    except ValueError as error:
        raise ConfigError(f"namesrvAddr={text}: {error}") from None


def _tellAll(waiting: list[Deferred[None]]) -> None:
    for each in waiting:
        each.callback(None)
