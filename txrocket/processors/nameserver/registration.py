# SPDX-License-Identifier: Apache-2.0
"""
Requests of brokers to a name server: here I am, am I known, I go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from txrocket.errors import MalformedField, RemoteSystemError, SystemBusy
from txrocket.model import DataVersion
from txrocket.nameserver.brokerinfo import BrokerEntry, Registration
from txrocket.nameserver.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from txrocket.nameserver.routetable import RouteTable
from txrocket.nameserver.topicqueues import queuesOf
from txrocket.processors.cooperate import Slices, Turns
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies.codec import decodeGradually, encodeBody, encodeGradually
from txrocket.protocol.bodies.registerbroker import decodingRegisterBroker
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["RegistrationRequests"]

# Java's ordinal of V3_0_11: brokers before it send their topics and nothing else.
_FILTER_SERVERS_SINCE: Final = 37

# Bytes from which on it takes milliseconds to check and to decode a body.
_LARGE: Final = 256 * 1024

# Topics that are put into the routes in the turn in which they were read.
_AT_ONCE: Final = 1024

# How many bytes these may send: their topics are decoded without a pause.
_OLD_LIMIT: Final = 2 * 1024 * 1024

_BrokerHeader = (
    RegisterBrokerRequestHeader | UnRegisterBrokerRequestHeader | QueryDataVersionRequestHeader
)


class RegistrationRequests:
    """
    Brokers come, stay and go.
    """

    _log = Logger()

    def __init__(
        self, routes: RouteTable, kvConfig: KVConfig, now: Callable[[], int], slices: Slices
    ) -> None:
        """
        @param now: tells the time in milliseconds.
        """
        self._turns = Turns(slices)
        self._routes = routes
        self._kvConfig = kvConfig
        self._now = now
        self._watched: set[RemotingProtocol] = set()

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.QUERY_DATA_VERSION: self.queryDataVersion,
        }

    def register(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        REGISTER_BROKER: a broker is dropped when the connection is lost on which it
        registered last.
        """
        return self._turns.take(peer, self._register(request, peer))

    def _register(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Gradual[RemotingCommand]:
        header = request.decodeHeader(RegisterBrokerRequestHeader)
        if header.bodyCrc32 and header.bodyCrc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            raise RemoteSystemError("the body does not match its bodyCrc32")
        broker = _broker(header)
        if len(request.body) > _LARGE:
            yield
        told, skipped = yield from self._registration(header, broker, request)
        queues = yield from queuesOf(broker, told.topics)
        if len(queues) > _AT_ONCE:
            yield
        if skipped and self._routes.wants(broker, told.dataVersion):
            # It was known when its topics were passed over, and is not any more.
            raise SystemBusy(f"{broker} was dropped while it registered: it should do so anew")
        known = self._routes.brokerLiveTable.get(broker.brokerAddr)
        master = self._routes.register(broker, told, peer, self._now(), queues)
        self._watch(peer)
        if known is None or known.broker != broker:
            self._log.info("{broker} has registered", broker=broker)
        orders = self._kvConfig.namespace(ORDER_TOPIC_CONFIG)
        body = b""
        if orders is not None:
            body = yield from encodeGradually(orders)
        return responseCommand(
            header=RegisterBrokerResponseHeader()
            if master is None
            else RegisterBrokerResponseHeader(master.haServerAddr, master.masterAddr),
            body=body,
        )

    def unregister(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        UNREGISTER_BROKER: SUCCESS also for a broker that is not known.
        """
        return self._turns.take(peer, self._unregister(request, peer))

    def _unregister(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Gradual[RemotingCommand]:
        broker = _broker(request.decodeHeader(UnRegisterBrokerRequestHeader))
        if self._routes.unregister(broker):
            self._log.info(
                "{broker} has unregistered, by a request of {peer}",
                broker=broker,
                peer=peer.address,
            )
        return responseCommand()
        yield

    def queryDataVersion(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        QUERY_DATA_VERSION.
        """
        return self._turns.take(peer, self._queryDataVersion(request))

    def _queryDataVersion(self, request: RemotingCommand) -> Gradual[RemotingCommand]:
        broker = _broker(request.decodeHeader(QueryDataVersionRequestHeader))
        version = yield from decodeGradually(DataVersion, request.body)
        changed, known = self._routes.queryDataVersion(broker, version, self._now())
        return responseCommand(
            header=QueryDataVersionResponseHeader(changed),
            body=b"" if known is None else encodeBody(known),
        )

    def _registration(
        self, header: RegisterBrokerRequestHeader, broker: BrokerEntry, request: RemotingCommand
    ) -> Gradual[tuple[Registration, bool]]:
        """
        The registration of a broker, and whether its topics were skipped.
        """
        skipped = False

        def wants(version: DataVersion) -> bool:
            nonlocal skipped
            skipped = not self._routes.wants(broker, version)
            return not skipped

        if request.version < _FILTER_SERVERS_SINCE:
            wrapper = TopicConfigSerializeWrapper()
            if len(request.body) > _OLD_LIMIT:
                raise RemoteSystemError(
                    f"a broker of version {request.version} tells of its topics in"
                    f" {len(request.body)} bytes: the limit is {_OLD_LIMIT}"
                )
            if request.body:
                wrapper = yield from decodeGradually(TopicConfigSerializeWrapper, request.body)
            filterServers = None
        else:
            body = RegisterBrokerBody()
            if request.body:
                body = yield from decodingRegisterBroker(request.body, header.compressed, wants)
            wrapper, filterServers = body.topicConfigSerializeWrapper, body.filterServerList
        told = Registration(
            header.haServerAddr,
            wrapper.dataVersion,
            wrapper.topicConfigTable.values(),
            filterServers,
        )
        return told, skipped

    def _watch(self, peer: RemotingProtocol) -> None:
        if peer not in self._watched:
            self._watched.add(peer)
            peer.whenLost().addCallback(self._lost, peer)

    def _lost(self, reason: str, peer: RemotingProtocol) -> None:
        self._watched.remove(peer)
        for broker in self._routes.lost(peer):
            self._log.info(
                "{broker} is dropped: its connection closed: {reason}", broker=broker, reason=reason
            )


def _broker(header: _BrokerHeader) -> BrokerEntry:
    """
    The broker of a request.

    @raise MalformedField: if a name or the address is empty, which Java would put
        into its routes.
    """
    for name in ("clusterName", "brokerName", "brokerAddr"):
        if not getattr(header, name):
            raise MalformedField(type(header).__name__, name, "is empty")
    return BrokerEntry(header.clusterName, header.brokerName, header.brokerId, header.brokerAddr)
