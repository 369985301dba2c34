# SPDX-License-Identifier: Apache-2.0
"""
Telling the name servers of the broker and its topics.

Each name server is told by itself: they do not know each other, and one that is
down delays no other.  It is told at start, after ten seconds, every half minute,
and at once when a topic changes, and told goodbye at the stop.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Sequence
from typing import Any

import attrs
from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from txrocket.broker.settings import AnnounceSettings
from txrocket.broker.topics import Topics
from txrocket.errors import RocketError, responseError
from txrocket.model import MASTER_ID, PERM_READ, PERM_WRITE, DataVersion
from txrocket.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocket.protocol.registration import encodeRegisterBroker
from txrocket.remoting.peers import Peers

__all__ = ["Announcement", "Identity"]

_BOTH = PERM_READ | PERM_WRITE

# When all are told for the second time, in seconds: a name server that was started
# together with the broker may have missed the first.
_AGAIN = 10.0

# How long a name server has to take the goodbye, in seconds.
_GOODBYE = 3.0


@attrs.frozen
class Identity:
    """
    Who a broker is to others.

    @ivar address: C{host:port}, where clients reach it.
    @ivar haAddress: where slaves would.
    """

    cluster: str
    name: str
    address: str
    haAddress: str
    brokerId: int = MASTER_ID


class Announcement:
    """
    What is told to the name servers.

    @ivar identity: who is announced.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        peers: Peers,
        identity: Identity,
        settings: AnnounceSettings,
        topics: Topics,
        addresses: Sequence[str],
    ) -> None:
        """
        @param addresses: the name servers.
        """
        self._clock = clock
        self._peers = peers
        self.identity = identity
        self._settings = settings
        self._topics = topics
        self._addresses = addresses
        self._permission = _BOTH
        self._running = False
        self._again: IDelayedCall | None = None
        self._soon: IDelayedCall | None = None
        self._waiting: list[Deferred[None]] = []
        self._failing: set[str] = set()
        self._loop = LoopingCall(self.announce, force=settings.forceRegister)
        self._loop.clock = clock

    def start(self) -> Deferred[None]:
        """
        Tell all name servers, and go on doing so.

        @return: a Deferred that fires once each has heard of it or failed to.
        """
        self._topics.follow(self.announceSoon)
        self._running = True
        self._again = self._clock.callLater(_AGAIN, self._repeat)
        return self.announce(force=True)

    def _repeat(self) -> None:
        # Java's bounds: less is a burden, more and the name servers forget us.
        period = max(10_000, min(self._settings.registerNameServerPeriod, 60_000)) / 1000
        self._loop.start(period).addErrback(
            lambda failure: self._log.failure("The name servers are no longer told", failure)
        )

    def announceSoon(self) -> None:
        """
        Something has changed.  Many changes of one turn are told once.
        """
        if self._soon is None and self._running:
            self._soon = self._clock.callLater(0, self._announceNow)

    def _announceNow(self) -> None:
        self._soon = None
        waiting, self._waiting = self._waiting, []
        self.announce(force=True).addCallback(lambda none: _tellAll(waiting))

    def whenTold(self) -> Deferred[None]:
        """
        A Deferred that fires once all name servers have heard of what changed in
        this turn, or failed to.
        """
        if self._soon is None:
            return succeed(None)
        told: Deferred[None] = Deferred()
        self._waiting.append(told)
        return told

    def permit(self, permission: int) -> None:
        """
        Say of all topics what may be done with them.

        @param permission: C{brokerPermission}: 4 to read, 2 to write, 6 for both.
        """
        changed = permission != self._permission
        self._permission = permission
        # Before the start the topics may not have been loaded.
        if changed and self._running:
            self._topics.renew()

    def announce(self, force: bool) -> Deferred[None]:
        """
        Tell all name servers.

        @param force: whether to tell everything without asking first whether it
            is known already.
        """
        version, body = self._topics.version, self._body()
        # Once: it may be that of several megabytes.
        crc = zlib.crc32(body) & 0x7FFFFFFF
        telling = [
            self._tell(each, version, body, crc, force).addErrback(
                lambda failure: self._log.failure("Telling a name server failed", failure)
            )
            for each in self._addresses
        ]
        return DeferredList(telling).addCallback(lambda results: None)

    def stop(self) -> Deferred[None]:
        """
        Say goodbye to all name servers.
        """
        self._running = False
        for call in (self._soon, self._again):
            if call is not None and call.active():
                call.cancel()
        self._soon = None
        if self._loop.running:
            self._loop.stop()
        waiting, self._waiting = self._waiting, []
        _tellAll(waiting)
        who = self.identity
        header = UnRegisterBrokerRequestHeader(who.name, who.address, who.cluster, who.brokerId)
        leaving = [
            self._ask(each, requestCommand(RequestCode.UNREGISTER_BROKER, header), _GOODBYE)
            for each in self._addresses
        ]
        # One that does not hear it finds out by itself, when the connection closes.
        return DeferredList(leaving, consumeErrors=True).addCallback(lambda results: None)

    def _body(self) -> bytes:
        """
        What is told, encoded.
        """
        if self._settings.compressedRegister:
            return encodeRegisterBroker(RegisterBrokerBody(self._wrapper()), compressed=True)
        free = self._permission & _BOTH == _BOTH
        # Joined of what was encoded before: there may be 20,000 topics.
        return self._topics.encoded(
            None if free else self._permission,
            b'{"filterServerList":[],"topicConfigSerializeWrapper":',
            b"}",
        )

    def _wrapper(self) -> TopicConfigSerializeWrapper:
        wrapper = self._topics.wrapper()
        if self._permission & _BOTH == _BOTH:
            return wrapper
        return TopicConfigSerializeWrapper(
            {
                name: replace(config, perm=self._permission)
                for name, config in wrapper.topicConfigTable.items()
            },
            wrapper.dataVersion,
        )

    @inlineCallbacks
    def _tell(
        self, address: str, version: DataVersion, body: bytes, crc: int, force: bool
    ) -> Generator[Deferred[Any], Any, None]:
        try:
            if force or (yield self._isNews(address, version)):
                answer = yield self._register(address, body, crc)
                if answer.body:
                    self._topics.order(frozenset(decodeBody(KVTable, answer.body).table))
        except RocketError as error:
            self._failed(address, error)
        else:
            if address in self._failing:
                self._failing.remove(address)
                self._log.info("Name server {address} is there again", address=address)

    def _isNews(self, address: str, version: DataVersion) -> Deferred[bool]:
        who = self.identity
        header = QueryDataVersionRequestHeader(who.name, who.address, who.cluster, who.brokerId)
        body = encodeBody(version)
        return self._ask(
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
        return self._ask(address, request, self._timeout)

    @property
    def _timeout(self) -> float:
        return self._settings.registerBrokerTimeoutMills / 1000

    def _ask(
        self, address: str, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        def check(answer: RemotingCommand) -> RemotingCommand:
            if answer.code:
                raise responseError(answer.code, answer.remark or "", address)
            return answer

        return self._peers.request(address, request, timeout).addCallback(check)

    def _failed(self, address: str, error: RocketError) -> None:
        # Once, and not every half minute.
        if address not in self._failing:
            self._failing.add(address)
            self._log.error(
                "Name server {address} cannot be told of this broker, so its clients do not"
                " find it; trying again: {error}",
                address=address,
                error=error,
            )


def _tellAll(waiting: list[Deferred[None]]) -> None:
    for each in waiting:
        each.callback(None)
