# SPDX-License-Identifier: Apache-2.0
"""
What a cluster in this process shows: who is where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from txrocket.broker.service import Broker
from txrocket.nameserver.service import NameServer

__all__ = ["Cluster"]


class Cluster(ABC):
    """
    Servers by their addresses.

    @ivar nameServers: the addresses of the name servers, as C{host:port}.
    @ivar brokers: the addresses of the brokers.
    """

    def __init__(self) -> None:
        self.nameServers: list[str] = []
        self.brokers: list[str] = []

    @abstractmethod
    def service(self, address: str) -> NameServer | Broker:
        """
        The server at an address.

        @raise KeyError: if there is none.
        """

    def nameServer(self, address: str | None = None) -> NameServer:
        """
        A name server itself; the first one if no address is given.
        """
        found = self.service(address or self.nameServers[0])
        assert isinstance(found, NameServer), f"{address} is a broker's"
        return found

    def broker(self, address: str | None = None) -> Broker:
        """
        A broker itself; the first one if no address is given.
        """
        found = self.service(address or self.brokers[0])
        assert isinstance(found, Broker), f"{address} is a name server's"
        return found
