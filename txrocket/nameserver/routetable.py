# SPDX-License-Identifier: Apache-2.0
"""
The registered brokers and their topics: Java's C{RouteInfoManager}.

Five tables, by their names in RocketMQ::

    topicQueueTable     topic         -> broker name -> QueueData
    brokerAddrTable     broker name   -> BrokerData (cluster, broker id -> address)
    clusterAddrTable    cluster       -> broker names
    brokerLiveTable     address       -> BrokerLiveInfo (entry, version, channel, time)
    filterServerTable   address       -> filter servers

Java's tables may disagree with each other.  These agree after each call:

    - an address is in brokerLiveTable exactly if it is in brokerAddrTable, there
      once, under the name and id of its last registration;
    - a name is in brokerAddrTable exactly if it has an address, and is in
      clusterAddrTable exactly once, in its own cluster;
    - a topic has at least one broker, and all its brokers are in brokerAddrTable;
    - an address in filterServerTable is in brokerLiveTable.

So a removed broker is in none of the tables, and no route leads to a broker without an
address.

The class has no clock and no connections: C{now} is an argument in milliseconds, and
channels are only compared.  Values in the tables are frozen and are replaced, so a
caller may keep a value that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
from msgspec.structs import replace

from txrocket.errors import SystemBusy
from txrocket.model import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    DataVersion,
    QueueData,
    TopicRouteData,
)
from txrocket.nameserver.brokerinfo import (
    BrokerEntry,
    BrokerLiveInfo,
    Channel,
    Master,
    Registration,
)
from txrocket.nameserver.topicqueues import TopicQueueTable, queuesOf
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.fastjson import Gradual, finish

__all__ = ["EXPIRED_TIME", "RouteTable"]

#: A broker expires after this time without a registration, in milliseconds: Java's
#: C{BROKER_CHANNEL_EXPIRED_TIME}.
EXPIRED_TIME: Final = 120_000

# Bits of topicSysFlag: Java's TopicSysFlag.
_UNIT = 1
_UNIT_SUB = 2


class RouteTable:
    """
    The tables of a name server.
    """

    def __init__(self, brokers: int = 10_000, topics: int = 1_000_000) -> None:
        """
        @param brokers: the maximum number of broker addresses.
        @param topics: the maximum number of topics.
        """
        self._brokers = brokers
        self._topics = topics
        self.topicQueueTable = TopicQueueTable()
        self.brokerAddrTable: dict[str, BrokerData] = {}
        self.clusterAddrTable: dict[str, set[str]] = {}
        self.brokerLiveTable: dict[str, BrokerLiveInfo] = {}
        self.filterServerTable: dict[str, tuple[str, ...]] = {}

    # --- brokers come and go ---------------------------------------------

    def changed(self, broker: BrokerEntry, version: DataVersion) -> bool:
        """
        Whether a broker's entry or the version of its topics differs from the tables.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        return live is None or live.broker != broker or live.dataVersion != version

    def wants(self, broker: BrokerEntry, version: DataVersion) -> bool:
        """
        Whether the tables need the topics of a registration.  They need new topics of a
        master, and those of a slave while no master is registered.
        """
        return self.changed(broker, version) and (
            broker.brokerId == MASTER_ID or self._masterAddr(broker.brokerName) is None
        )

    def register(
        self,
        broker: BrokerEntry,
        registration: Registration,
        channel: Channel,
        now: int,
        queues: Mapping[str, QueueData] | None = None,
    ) -> Master | None:
        """
        Add or update a broker.

        Known topics that are not in the registration stay, because a broker whose topic
        changes registers that topic only.

        Topics that only a slave registers can be read but not written to.  Java ignores
        them, so a consumer cannot read from a slave whose master was already gone when
        the name server started.

        @param channel: the broker is removed when this connection is lost.
        @param queues: the result of L{queuesOf} for the registration's topics, if the
            caller already has it.
        @return: for a slave, its master, if one is registered.
        @raise SystemBusy: if a table would exceed its limit; then the tables do not
            change.
        """
        address = broker.brokerAddr
        wanted = self.wants(broker, registration.dataVersion)
        if queues is None:
            queues = finish(queuesOf(broker, registration.topics))
        self._checkRoom(broker, queues if wanted else {})
        live = self.brokerLiveTable.get(address)
        if live is None or live.broker != broker:
            self._place(broker)
        if wanted:
            self.topicQueueTable.setQueues(broker.brokerName, queues)
        self.brokerLiveTable[address] = BrokerLiveInfo(
            broker, registration.haServerAddr, registration.dataVersion, channel, now
        )
        if registration.filterServerList:
            self.filterServerTable[address] = registration.filterServerList
        elif registration.filterServerList is not None:
            self.filterServerTable.pop(address, None)
        return self._master(broker)

    def queryDataVersion(
        self, broker: BrokerEntry, version: DataVersion, now: int
    ) -> tuple[bool, DataVersion | None]:
        """
        Tell a broker whether it has to register.  If not, this counts as a registration.

        @return: whether it has to, and the version in the tables.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        changed = self.changed(broker, version)
        if live is not None and not changed:
            self.brokerLiveTable[broker.brokerAddr] = attrs.evolve(live, lastUpdateTimestamp=now)
        return changed, live.dataVersion if live is not None else None

    def unregister(self, broker: BrokerEntry) -> bool:
        """
        Remove a broker at its own request.

        Java removes any address that has this name and id, even the address of a broker
        that has since replaced it.

        @return: whether the broker was registered under this name, id and address.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        if live is None or not live.broker.samePlace(broker):
            return False
        self._drop(broker.brokerAddr)
        return True

    def lost(self, channel: Channel) -> list[BrokerEntry]:
        """
        Remove the brokers whose last registration came through a lost connection.

        @return: the removed brokers.
        """
        gone = [each.broker for each in self.brokerLiveTable.values() if each.channel is channel]
        self._drop(*(broker.brokerAddr for broker in gone))
        return gone

    def expire(self, now: int) -> list[BrokerLiveInfo]:
        """
        Remove the brokers that have not registered for longer than L{EXPIRED_TIME}.

        @return: the removed brokers, whose channels the caller should close.
        """
        silent = [
            each
            for each in self.brokerLiveTable.values()
            if each.lastUpdateTimestamp + EXPIRED_TIME < now
        ]
        self._drop(*(each.broker.brokerAddr for each in silent))
        return silent

    def _checkRoom(self, broker: BrokerEntry, topics: Mapping[str, QueueData]) -> None:
        isNew = broker.brokerAddr not in self.brokerLiveTable
        if isNew and len(self.brokerLiveTable) >= self._brokers:
            raise SystemBusy(f"the limit of {self._brokers} registered brokers is reached")
        more = len(topics.keys() - self.topicQueueTable.keys())
        if len(self.topicQueueTable) + more > self._topics:
            raise SystemBusy(
                f"{broker.brokerName} adds {more} topics to the {len(self.topicQueueTable)}"
                f" registered ones, and the limit is {self._topics}"
            )

    def _place(self, broker: BrokerEntry) -> None:
        """
        Add an address under its name and id, and remove it from any other place.  The
        address that had this name and id before is removed.
        """
        name, address = broker.brokerName, broker.brokerAddr
        live = self.brokerLiveTable.get(address)
        if live is not None and live.broker.brokerName != name:
            self._drop(address)
        data = self.brokerAddrTable.get(name)
        addresses: dict[int, str] = {}
        if data is not None:
            addresses = {id_: each for id_, each in data.brokerAddrs.items() if each != address}
            if data.cluster != broker.clusterName:
                self._leaveCluster(data.cluster, name)
        replaced = addresses.get(broker.brokerId)
        if replaced is not None:
            del self.brokerLiveTable[replaced]
            self.filterServerTable.pop(replaced, None)
        addresses[broker.brokerId] = address
        self.brokerAddrTable[name] = BrokerData(broker.clusterName, name, addresses)
        self.clusterAddrTable.setdefault(broker.clusterName, set()).add(name)

    def _masterAddr(self, brokerName: str) -> str | None:
        data = self.brokerAddrTable.get(brokerName)
        return data.brokerAddrs.get(MASTER_ID) if data is not None else None

    def _master(self, broker: BrokerEntry) -> Master | None:
        address = self._masterAddr(broker.brokerName)
        if address is None or broker.brokerId == MASTER_ID:
            return None
        return Master(address, self.brokerLiveTable[address].haServerAddr)

    def _drop(self, *addresses: str) -> None:
        """
        Remove brokers, with one pass over the topics for all of them.
        """
        names = set(filter(None, map(self._dropAddress, addresses)))
        if names:
            self.topicQueueTable.removeBrokers(names)

    def _dropAddress(self, address: str) -> str | None:
        """
        Remove an address.

        @return: the broker's name, if it has no other address.
        """
        broker = self.brokerLiveTable.pop(address).broker
        self.filterServerTable.pop(address, None)
        name = broker.brokerName
        data = self.brokerAddrTable[name]
        addresses = {id_: each for id_, each in data.brokerAddrs.items() if each != address}
        if addresses:
            self.brokerAddrTable[name] = replace(data, brokerAddrs=addresses)
            return None
        del self.brokerAddrTable[name]
        self._leaveCluster(data.cluster, name)
        return name

    def _leaveCluster(self, cluster: str, brokerName: str) -> None:
        names = self.clusterAddrTable[cluster]
        names.remove(brokerName)
        if not names:
            del self.clusterAddrTable[cluster]

    # --- topics -----------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """
        The route of a topic; L{None} if no broker has registered the topic.
        """
        queues = self.topicQueueTable.get(topic)
        if queues is None:
            return None
        brokers = tuple([self.brokerAddrTable[name] for name in queues])
        filterServers: dict[str, tuple[str, ...]] = {}
        if self.filterServerTable:
            filterServers = {
                address: self.filterServerTable[address]
                for each in brokers
                for address in each.brokerAddrs.values()
                if address in self.filterServerTable
            }
        return TopicRouteData(None, tuple(queues.values()), brokers, filterServers)

    def deleteTopic(self, topic: str, clusterName: str | None = None) -> None:
        """
        Remove a topic.

        @param clusterName: remove it only from the brokers of this cluster.
        """
        if clusterName is None:
            self.topicQueueTable.pop(topic, None)
        elif topic in self.topicQueueTable:
            self.topicQueueTable.removeBrokers(
                self.clusterAddrTable.get(clusterName, set()), (topic,)
            )

    def wipeWritePerm(self, brokerName: str) -> int:
        """
        Remove the write permission from all topics of a broker, so that producers avoid
        it.  This lasts until the broker registers a new version of its topics.

        @return: the number of the broker's topics.
        """
        return self.topicQueueTable.changePerm(brokerName, lambda perm: perm & ~PERM_WRITE)

    def addWritePerm(self, brokerName: str) -> int:
        """
        Add the read and write permissions to all topics of a broker.

        @return: the number of the broker's topics.
        """
        return self.topicQueueTable.changePerm(
            brokerName, lambda perm: perm | PERM_READ | PERM_WRITE
        )

    # --- lists --------------------------------------------------------------

    def clusterInfo(self) -> ClusterInfo:
        """
        All brokers, by cluster.
        """
        return ClusterInfo(
            dict(self.brokerAddrTable),
            {cluster: frozenset(names) for cluster, names in self.clusterAddrTable.items()},
        )

    def allTopics(self) -> TopicList:
        """
        The names of all topics.
        """
        return TopicList(frozenset(self.topicQueueTable))

    def topicsOfCluster(self, cluster: str) -> Gradual[TopicList]:
        """
        The names of the topics of a cluster's brokers; empty if the cluster does not
        exist.
        """
        names = self.clusterAddrTable.get(cluster, set())
        return self._chosen(lambda queues: not names.isdisjoint(queues))

    def systemTopics(self) -> TopicList:
        """
        The names of clusters and brokers, each of which has a topic of its name, and the
        address of a broker, which can tell the other system topics.
        """
        address = next(iter(self.brokerLiveTable), None)
        return TopicList(frozenset((*self.clusterAddrTable, *self.brokerAddrTable)), address)

    def unitTopics(self) -> Gradual[TopicList]:
        """
        The names of the topics that belong to a unit.
        """
        return self._flagged(lambda flag: flag & _UNIT != 0)

    def unitSubTopics(self) -> Gradual[TopicList]:
        """
        The names of the topics that have subscribers in a unit.
        """
        return self._flagged(lambda flag: flag & _UNIT_SUB != 0)

    def unitSubTopicsOfNoUnit(self) -> Gradual[TopicList]:
        """
        The names of the topics that have subscribers in a unit but belong to no unit.
        """
        return self._flagged(lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)

    def _flagged(self, matches: Callable[[int], bool]) -> Gradual[TopicList]:
        return self._chosen(
            lambda queues: any(matches(each.topicSysFlag) for each in queues.values())
        )

    def _chosen(self, wanted: Callable[[dict[str, QueueData]], bool]) -> Gradual[TopicList]:
        return TopicList((yield from self.topicQueueTable.topicsWhere(wanted)))
