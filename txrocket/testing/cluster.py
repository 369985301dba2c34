# SPDX-License-Identifier: Apache-2.0
"""
The servers of a cluster in this process, by address.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from txrocket.broker.service import Broker
from txrocket.nameserver.service import NameServer

__all__ = ["ClusterView"]


class ClusterView(ABC):
    """
    A cluster whose servers a test can reach as objects.

    @ivar nameServers: the addresses of the name servers, as C{host:port}.
    @ivar brokers: the addresses of the brokers that are masters when they start.
    @ivar slaves: the addresses of the slaves, those of the first broker first.
    """

    def __init__(self) -> None:
        self.nameServers: list[str] = []
        self.brokers: list[str] = []
        self.slaves: list[str] = []

    @abstractmethod
    def service(self, address: str) -> NameServer | Broker:
        """
        The server at an address.

        @raise KeyError: if there is no server.
        """

    def nameServer(self, address: str | None = None) -> NameServer:
        """
        A name server by address; by default the first one.
        """
        found = self.service(address or self.nameServers[0])
        assert isinstance(found, NameServer), f"{address} is a broker's"
        return found

    def broker(self, address: str | None = None) -> Broker:
        """
        A broker by address; by default the first one.
        """
        found = self.service(address or self.brokers[0])
        assert isinstance(found, Broker), f"{address} is a name server's"
        return found
