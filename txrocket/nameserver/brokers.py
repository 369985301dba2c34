# SPDX-License-Identifier: Apache-2.0
"""
A broker as a name server sees it: what it is, what it tells, what is known of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs

from txrocket.model import MASTER_ID, DataVersion, TopicConfig

__all__ = ["Broker", "BrokerLiveInfo", "Channel", "Master", "Registration"]


@attrs.frozen
class Broker:
    """
    Who registers, and as what.

    @ivar brokerName: the name that a master and its slaves share.
    @ivar brokerId: L{MASTER_ID<txrocket.model.MASTER_ID>}, or a slave's number.
    @ivar brokerAddr: where clients find it, C{host:port}.
    """

    clusterName: str
    brokerName: str
    brokerId: int
    brokerAddr: str

    def __str__(self) -> str:
        role = "master" if self.brokerId == MASTER_ID else f"slave {self.brokerId}"
        return f"{role} of {self.brokerName} in {self.clusterName} at {self.brokerAddr}"

    def samePlace(self, other: Broker) -> bool:
        """
        Whether two have the same name and id.
        """
        return (self.brokerName, self.brokerId) == (other.brokerName, other.brokerId)


@attrs.frozen
class Registration:
    """
    What a broker tells of itself.

    @ivar haServerAddr: where its slaves find it.
    @ivar dataVersion: the version of its topics.
    @ivar topics: its topics, or those of them that changed.
    @ivar filterServerList: its filter servers; L{None} from a broker that knows of
        none, and then what was told before stays.
    """

    haServerAddr: str
    dataVersion: DataVersion
    topics: Collection[TopicConfig] = ()
    filterServerList: tuple[str, ...] | None = None


class Channel(Protocol):
    """
    A connection, as far as it matters here.
    """

    def close(self) -> None:
        """
        Close it.
        """


@attrs.frozen
class BrokerLiveInfo:
    """
    A broker that is there.

    @ivar channel: the connection that it registered on last.
    @ivar lastUpdateTimestamp: when it was last heard of.
    """

    broker: Broker
    haServerAddr: str
    dataVersion: DataVersion
    channel: Channel
    lastUpdateTimestamp: int


@attrs.frozen
class Master:
    """
    Where a slave finds its master.
    """

    masterAddr: str
    haServerAddr: str
