# SPDX-License-Identifier: Apache-2.0
"""
The values of the name server's tables about one broker: its identity, its
registration, and its state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs

from txrocket.model import MASTER_ID, DataVersion, TopicConfig

__all__ = ["BrokerEntry", "BrokerLiveInfo", "Channel", "Master", "Registration"]


@attrs.frozen
class BrokerEntry:
    """
    The identity of a broker.

    @ivar brokerName: the name that a master and its slaves share.
    @ivar brokerId: L{MASTER_ID<txrocket.model.MASTER_ID>}, or a slave's number.
    @ivar brokerAddr: its address for clients, C{host:port}.
    """

    clusterName: str
    brokerName: str
    brokerId: int
    brokerAddr: str

    def __str__(self) -> str:
        role = "master" if self.brokerId == MASTER_ID else f"slave {self.brokerId}"
        return f"{role} of {self.brokerName} in {self.clusterName} at {self.brokerAddr}"

    def samePlace(self, other: BrokerEntry) -> bool:
        """
        Whether another broker has the same name and id.
        """
        return (self.brokerName, self.brokerId) == (other.brokerName, other.brokerId)


@attrs.frozen
class Registration:
    """
    The content of a broker's registration.

    @ivar haServerAddr: its address for slaves.
    @ivar dataVersion: the version of its topics.
    @ivar topics: all its topics, or only the changed ones.
    @ivar filterServerList: its filter servers; L{None} if the registration does not
        mention them, and then the registered ones stay.
    """

    haServerAddr: str
    dataVersion: DataVersion
    topics: Collection[TopicConfig] = ()
    filterServerList: tuple[str, ...] | None = None


class Channel(Protocol):
    """
    The connection of a broker.
    """

    def close(self) -> None:
        """
        Close the connection.
        """


@attrs.frozen
class BrokerLiveInfo:
    """
    A registered broker.

    @ivar channel: the connection of its last registration.
    @ivar lastUpdateTimestamp: the time of its last registration or version query.
    """

    broker: BrokerEntry
    haServerAddr: str
    dataVersion: DataVersion
    channel: Channel
    lastUpdateTimestamp: int


@attrs.frozen
class Master:
    """
    The addresses of a slave's master.
    """

    masterAddr: str
    haServerAddr: str
