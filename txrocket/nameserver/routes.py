# SPDX-License-Identifier: Apache-2.0
"""
Which brokers are there and what they have: Java's C{RouteInfoManager}.

Five tables, by their names in RocketMQ::

    topicQueueTable     topic         -> broker name -> QueueData
    brokerAddrTable     broker name   -> BrokerData (cluster, broker id -> address)
    clusterAddrTable    cluster       -> broker names
    brokerLiveTable     address       -> BrokerLiveInfo (as what, version, channel, when)
    filterServerTable   address       -> filter servers

They are kept so that they agree at all times, of which Java is less sure:

    - an address is in brokerLiveTable exactly if it is in brokerAddrTable, there
      once, under the name and id that it registered with last;
    - a name is in brokerAddrTable exactly if it has an address, and is in
      clusterAddrTable exactly once, in its own cluster;
    - a topic's brokers are all in brokerAddrTable, and there is at least one;
    - an address in filterServerTable is in brokerLiveTable.

So what is gone leaves nothing behind, and no route leads to a broker without an
address.

Only rules: C{now} is an argument, in milliseconds, and a channel is only told from
another one.  Values in the tables are frozen and are replaced, so
whoever was given one may keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    TopicConfig,
    TopicRouteData,
)
from txrocket.nameserver.brokers import Broker, BrokerLiveInfo, Channel, Master, Registration
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.javajson import Gradual, finish

__all__ = ["EXPIRED_TIME", "RouteTable"]

#: How long a broker may be silent: Java's C{BROKER_CHANNEL_EXPIRED_TIME}.
EXPIRED_TIME: Final = 120_000

# Bits of topicSysFlag: Java's TopicSysFlag.
_UNIT = 1
_UNIT_SUB = 2

# Topics that are looked at without a pause.
_STEP: Final = 256


class RouteTable:
    """
    What a name server knows.
    """

    def __init__(self, brokers: int = 10_000, topics: int = 1_000_000) -> None:
        """
        @param brokers: how many addresses there may be.
        @param topics: how many topics there may be.
        """
        self._brokers = brokers
        self._topics = topics
        self.topicQueueTable: dict[str, dict[str, QueueData]] = {}
        self.brokerAddrTable: dict[str, BrokerData] = {}
        self.clusterAddrTable: dict[str, set[str]] = {}
        self.brokerLiveTable: dict[str, BrokerLiveInfo] = {}
        self.filterServerTable: dict[str, tuple[str, ...]] = {}

    # --- brokers come and go ---------------------------------------------

    def changed(self, broker: Broker, version: DataVersion) -> bool:
        """
        Whether a broker is new, in whole or as what it registers, or has another
        version of its topics than is known.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        return live is None or live.broker != broker or live.dataVersion != version

    def wants(self, broker: Broker, version: DataVersion) -> bool:
        """
        Whether the topics of a registration matter: if they are new, a master's do,
        and a slave's while no master is there.
        """
        return self.changed(broker, version) and (
            broker.brokerId == MASTER_ID or self._masterAddr(broker.brokerName) is None
        )

    def register(
        self,
        broker: Broker,
        registration: Registration,
        channel: Channel,
        now: int,
        queues: Mapping[str, QueueData] | None = None,
    ) -> Master | None:
        """
        A broker is there.

        Topics that are known and are not in the registration stay, because a
        broker whose topic changes tells of that topic only.

        Topics that only a slave tells of can be read and not written to.  Java does
        not take them, so that nobody can read from a slave whose master was gone
        already when the name server started.

        @param channel: when it is lost, so is the broker.
        @param queues: what L{queuesOf} makes of the registration's topics, if that is
            known already.
        @return: for a slave, its master, if that is there.
        @raise SystemBusy: if a table would grow beyond its limit; nothing is
            changed then.
        """
        address = broker.brokerAddr
        wanted = self.wants(broker, registration.dataVersion)
        if queues is None:
            queues = finish(self.queuesOf(broker, registration.topics))
        self._checkRoom(broker, queues if wanted else {})
        live = self.brokerLiveTable.get(address)
        if live is None or live.broker != broker:
            self._place(broker)
        if wanted:
            self._update(broker, queues)
        self.brokerLiveTable[address] = BrokerLiveInfo(
            broker, registration.haServerAddr, registration.dataVersion, channel, now
        )
        if registration.filterServerList:
            self.filterServerTable[address] = registration.filterServerList
        elif registration.filterServerList is not None:
            self.filterServerTable.pop(address, None)
        return self._master(broker)

    def queryDataVersion(
        self, broker: Broker, version: DataVersion, now: int
    ) -> tuple[bool, DataVersion | None]:
        """
        A broker asks whether it has to register.  If not, it was heard of.

        @return: whether it has to, and the version that is known.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        changed = self.changed(broker, version)
        if live is not None and not changed:
            self.brokerLiveTable[broker.brokerAddr] = attrs.evolve(live, lastUpdateTimestamp=now)
        return changed, live.dataVersion if live is not None else None

    def unregister(self, broker: Broker) -> bool:
        """
        A broker goes.

        Java takes away whatever address has its name and id, also that of a
        broker that has come into its place meanwhile.

        @return: whether it was there, as what it says.
        """
        live = self.brokerLiveTable.get(broker.brokerAddr)
        if live is None or not live.broker.samePlace(broker):
            return False
        self._drop(broker.brokerAddr)
        return True

    def lost(self, channel: Channel) -> list[Broker]:
        """
        A connection is gone, and with it the brokers that registered on it last.
        """
        gone = [each.broker for each in self.brokerLiveTable.values() if each.channel is channel]
        self._drop(*(broker.brokerAddr for broker in gone))
        return gone

    def expire(self, now: int) -> list[BrokerLiveInfo]:
        """
        Drop the brokers that were silent for longer than L{EXPIRED_TIME}.

        @return: what they were; their channels are of no use any more.
        """
        silent = [
            each
            for each in self.brokerLiveTable.values()
            if each.lastUpdateTimestamp + EXPIRED_TIME < now
        ]
        self._drop(*(each.broker.brokerAddr for each in silent))
        return silent

    def _checkRoom(self, broker: Broker, topics: Mapping[str, QueueData]) -> None:
        isNew = broker.brokerAddr not in self.brokerLiveTable
        if isNew and len(self.brokerLiveTable) >= self._brokers:
            raise SystemBusy(f"{self._brokers} brokers are registered, which is the limit")
        more = len(topics.keys() - self.topicQueueTable.keys())
        if len(self.topicQueueTable) + more > self._topics:
            raise SystemBusy(
                f"{broker.brokerName} has {more} more topics, and with the "
                f"{len(self.topicQueueTable)} that are known they are more than the limit of "
                f"{self._topics}"
            )

    def _place(self, broker: Broker) -> None:
        """
        Give an address its place, and take it out of any other; who had that place
        before is not there any more.
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

    def _update(self, broker: Broker, queues: Mapping[str, QueueData]) -> None:
        name, table = broker.brokerName, self.topicQueueTable
        for topic, data in queues.items():
            brokers = table.get(topic)
            if brokers is None:
                table[topic] = {name: data}
            else:
                brokers[name] = data

    def queuesOf(
        self, broker: Broker, topics: Iterable[TopicConfig]
    ) -> Gradual[dict[str, QueueData]]:
        """
        What the routes of a broker's topics tell of it.
        """
        name = broker.brokerName
        allowed = ~0 if broker.brokerId == MASTER_ID else ~PERM_WRITE
        # Most of a broker's topics have the same queues: one value serves them all.
        shared: dict[QueueData, QueueData] = {}
        queues = {}
        for count, each in enumerate(topics, 1):
            data = QueueData(
                name,
                each.readQueueNums,
                each.writeQueueNums,
                each.perm & allowed,
                each.topicSysFlag,
            )
            queues[each.topicName] = shared.setdefault(data, data)
            if count % _STEP == 0:
                yield
        return queues

    def _masterAddr(self, brokerName: str) -> str | None:
        data = self.brokerAddrTable.get(brokerName)
        return data.brokerAddrs.get(MASTER_ID) if data is not None else None

    def _master(self, broker: Broker) -> Master | None:
        address = self._masterAddr(broker.brokerName)
        if address is None or broker.brokerId == MASTER_ID:
            return None
        return Master(address, self.brokerLiveTable[address].haServerAddr)

    def _drop(self, *addresses: str) -> None:
        """
        Forget brokers.  Their topics are looked for once, however many brokers there are.
        """
        names = set(filter(None, map(self._dropAddress, addresses)))
        if names:
            table = self.topicQueueTable
            touched = [topic for topic, queues in table.items() if not names.isdisjoint(queues)]
            self._deleteQueues(touched, names)

    def _dropAddress(self, address: str) -> str | None:
        """
        Forget an address.

        @return: its broker's name, if that has no other address.
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

    def _deleteQueues(self, topics: Iterable[str], brokerNames: set[str]) -> None:
        for topic in topics:
            queues = self.topicQueueTable[topic]
            for name in brokerNames.intersection(queues):
                del queues[name]
            if not queues:
                del self.topicQueueTable[topic]

    # --- topics -----------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """
        Where a topic lives, if it does.
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
        Forget a topic, at the brokers of one cluster if that is given.
        """
        if clusterName is None:
            self.topicQueueTable.pop(topic, None)
        elif topic in self.topicQueueTable:
            self._deleteQueues((topic,), self.clusterAddrTable.get(clusterName, set()))

    def wipeWritePerm(self, brokerName: str) -> int:
        """
        Have no new messages sent to a broker.  It lasts until the broker tells of
        a new version of its topics.

        @return: how many topics it has.
        """
        return self._permit(brokerName, lambda perm: perm & ~PERM_WRITE)

    def addWritePerm(self, brokerName: str) -> int:
        """
        Have messages sent to a broker again.

        @return: how many topics it has.
        """
        return self._permit(brokerName, lambda perm: perm | PERM_READ | PERM_WRITE)

    def _permit(self, brokerName: str, change: Callable[[int], int]) -> int:
        shared: dict[QueueData, QueueData] = {}
        count = 0
        for queues in self.topicQueueTable.values():
            data = queues.get(brokerName)
            if data is not None:
                count += 1
                new = replace(data, perm=change(data.perm))
                queues[brokerName] = shared.setdefault(new, new)
        return count

    # --- lists --------------------------------------------------------------

    def clusterInfo(self) -> ClusterInfo:
        """
        All brokers.
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
        The names of the topics that a cluster's brokers have; none if there is no
        such cluster.
        """
        names = self.clusterAddrTable.get(cluster, set())
        return self._chosen(lambda queues: not names.isdisjoint(queues))

    def systemTopics(self) -> TopicList:
        """
        The names of clusters and brokers, each of which has a topic of that name,
        and the address of a broker, whom one can ask for the others.
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
        The names of the topics that have subscribers in a unit and belong to none.
        """
        return self._flagged(lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)

    def _flagged(self, matches: Callable[[int], bool]) -> Gradual[TopicList]:
        return self._chosen(
            lambda queues: any(matches(each.topicSysFlag) for each in queues.values())
        )

    def _chosen(self, wanted: Callable[[dict[str, QueueData]], bool]) -> Gradual[TopicList]:
        found = set()
        for count, (topic, queues) in enumerate(list(self.topicQueueTable.items()), 1):
            if wanted(queues):
                found.add(topic)
            if count % _STEP == 0:
                yield
        return TopicList(frozenset(found))
