# SPDX-License-Identifier: Apache-2.0
"""
Asks txrocket's brokers for facts that Java's brokers do not report, with the requests of
L{txrocket.protocol.bodies.inspect}::

    with Inspector() as inspector:
        for name, address in inspector.masters("127.0.0.1:9876").items():
            for lock in inspector.locks(address).locks:
                print(name, lock.group, lock.queue, lock.clientId)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.routes import BlockingRoutes
from txrocket.blocking.tls import TLS
from txrocket.errors import responseError
from txrocket.model import MASTER_ID
from txrocket.protocol.addresses import nameServerAddresses
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.inspect import (
    DifferingGroupList,
    HalfList,
    InspectHalvesRequestHeader,
    InspectRequestHeader,
    LockList,
    PendingHalf,
)
from txrocket.protocol.codes import InspectCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.protocol.headers.fields import Header

__all__ = ["Inspector"]

_Body = TypeVar("_Body")


class Inspector:
    """
    Inspects brokers.  All calls raise L{RemotingError<txrocket.errors.RemotingError>} if a
    server does not answer, and L{ResponseError<txrocket.errors.ResponseError>} if a broker
    refuses.  Java's brokers refuse with
    L{RequestCodeNotSupported<txrocket.errors.RequestCodeNotSupported>}.
    """

    def __init__(self, *, timeout: float = 3.0, tls: TLS | None = None) -> None:
        """
        @param timeout: the seconds that a call may take.
        @param tls: the TLS settings; L{None} for plain text.
        """
        self._timeout = timeout
        self._connections = BlockingConnections(tls, FRAME_LIMIT)

    def __enter__(self) -> Inspector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """
        Close all connections.
        """
        self._connections.close()

    def masters(self, nameServers: str | Sequence[str] | None = None) -> dict[str, str]:
        """
        The names and addresses of all masters.

        @param nameServers: C{host:port;host:port}, or a list of addresses;
            by default NAMESRV_ADDR of the environment.
        @raise ConfigError: if no name server is set.
        """
        addresses = nameServerAddresses(nameServers, os.environ.get("NAMESRV_ADDR", ""))
        info = BlockingRoutes(self._connections, addresses, 0).clusterInfo(Deadline(self._timeout))
        return {
            name: each.brokerAddrs[MASTER_ID]
            for name, each in sorted(info.brokerAddrTable.items())
            if MASTER_ID in each.brokerAddrs
        }

    def locks(self, address: str, group: str | None = None) -> LockList:
        """
        The queues of a broker that orderly consumers have locked.

        @param group: the consumer group; L{None} for all.
        """
        return self._ask(address, InspectCode.INSPECT_LOCKS, InspectRequestHeader(group), LockList)

    def halves(self, address: str) -> Iterator[PendingHalf]:
        """
        The undecided half messages at a broker.  The iterator requests more of them from
        the broker as it goes.
        """
        offset, more = 0, True
        while more:
            header = InspectHalvesRequestHeader(offset)
            answer = self._ask(address, InspectCode.INSPECT_HALVES, header, HalfList)
            yield from answer.halves
            more = answer.more and bool(answer.halves)
            if more:
                offset = answer.halves[-1].queueOffset + 1

    def subscriptions(self, address: str, group: str | None = None) -> DifferingGroupList:
        """
        The groups whose members have different subscriptions at a broker.

        @param group: the consumer group; L{None} for all.
        """
        code, header = InspectCode.INSPECT_SUBSCRIPTIONS, InspectRequestHeader(group)
        return self._ask(address, code, header, DifferingGroupList)

    def _ask(self, address: str, code: int, header: Header, body: type[_Body]) -> _Body:
        request = requestCommand(code, header)
        answer = self._connections.ask(address, request, Deadline(self._timeout))
        if answer.code:
            raise responseError(answer.code, answer.remark, address)
        return decodeBody(body, answer.body)
