# SPDX-License-Identifier: Apache-2.0
"""
Requests of brokers to a name server: here I am, am I known, I go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from txrocket.errors import MalformedField, RemoteSystemError
from txrocket.model import DataVersion
from txrocket.nameserver.brokers import Broker, Registration
from txrocket.nameserver.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from txrocket.nameserver.routes import RouteTable
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocket.protocol.registration import decodeRegisterBroker
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["RegistrationRequests"]

# Java's ordinal of V3_0_11: brokers before it send their topics and nothing else.
_FILTER_SERVERS_SINCE: Final = 37

_BrokerHeader = (
    RegisterBrokerRequestHeader | UnRegisterBrokerRequestHeader | QueryDataVersionRequestHeader
)


class RegistrationRequests:
    """
    Brokers come, stay and go.
    """

    _log = Logger()

    def __init__(self, routes: RouteTable, kvConfig: KVConfig, now: Callable[[], int]) -> None:
        """
        @param now: tells the time in milliseconds.
        """
        self._routes = routes
        self._kvConfig = kvConfig
        self._now = now
        self._watched: set[RemotingProtocol] = set()

    def codes(self) -> dict[int, Process]:
        """
        Who serves which request code.
        """
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.QUERY_DATA_VERSION: self.queryDataVersion,
        }

    def register(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        REGISTER_BROKER: a broker is dropped when the connection is lost on which it
        registered last.
        """
        header = request.decodeHeader(RegisterBrokerRequestHeader)
        if header.bodyCrc32 and header.bodyCrc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            raise RemoteSystemError("the body does not match its bodyCrc32")
        broker = _broker(header)
        known = self._routes.brokerLiveTable.get(broker.brokerAddr)
        master = self._routes.register(
            broker, self._registration(header, broker, request), peer, self._now()
        )
        self._watch(peer)
        if known is None or known.broker != broker:
            self._log.info("{broker} has registered", broker=broker)
        orders = self._kvConfig.namespace(ORDER_TOPIC_CONFIG)
        return responseCommand(
            header=RegisterBrokerResponseHeader()
            if master is None
            else RegisterBrokerResponseHeader(master.haServerAddr, master.masterAddr),
            body=b"" if orders is None else encodeBody(orders),
        )

    def unregister(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        UNREGISTER_BROKER: SUCCESS also for a broker that is not known.
        """
        broker = _broker(request.decodeHeader(UnRegisterBrokerRequestHeader))
        if self._routes.unregister(broker):
            self._log.info(
                "{broker} has unregistered, by a request of {peer}",
                broker=broker,
                peer=peer.address,
            )
        return responseCommand()

    def queryDataVersion(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        QUERY_DATA_VERSION.
        """
        broker = _broker(request.decodeHeader(QueryDataVersionRequestHeader))
        version = decodeBody(DataVersion, request.body)
        changed, known = self._routes.queryDataVersion(broker, version, self._now())
        return responseCommand(
            header=QueryDataVersionResponseHeader(changed),
            body=b"" if known is None else encodeBody(known),
        )

    def _registration(
        self, header: RegisterBrokerRequestHeader, broker: Broker, request: RemotingCommand
    ) -> Registration:
        if request.version < _FILTER_SERVERS_SINCE:
            wrapper = TopicConfigSerializeWrapper()
            if request.body:
                wrapper = decodeBody(TopicConfigSerializeWrapper, request.body)
            filterServers = None
        else:
            body = RegisterBrokerBody()
            if request.body:
                body = decodeRegisterBroker(
                    request.body,
                    header.compressed,
                    lambda version: self._routes.wants(broker, version),
                )
            wrapper, filterServers = body.topicConfigSerializeWrapper, body.filterServerList
        return Registration(
            header.haServerAddr,
            wrapper.dataVersion,
            wrapper.topicConfigTable.values(),
            filterServers,
        )

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


def _broker(header: _BrokerHeader) -> Broker:
    """
    Who asks.

    @raise MalformedField: if a name or the address is empty, which Java would put
        into its routes.
    """
    for name in ("clusterName", "brokerName", "brokerAddr"):
        if not getattr(header, name):
            raise MalformedField(type(header).__name__, name, "is empty")
    return Broker(header.clusterName, header.brokerName, header.brokerId, header.brokerAddr)
