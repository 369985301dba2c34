# SPDX-License-Identifier: Apache-2.0
"""
L{txrocket.nameserver.routetable.RouteTable} compared with a model: a table of brokers and
a table of their topics, from which all five tables follow.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import DataVersion, QueueData, TopicConfig
from txrocket.nameserver.brokerinfo import BrokerEntry, Registration
from txrocket.nameserver.routetable import RouteTable
from txrocket.protocol.fastjson import finish

TOPICS = ("T", "U", "V")
CHANNELS = ("x", "y", "z")
CLUSTERS = ("east", "west")
NAMES = ("a", "b")
ADDRESSES = ("h:1", "h:2", "h:3")

brokers = st.builds(
    BrokerEntry,
    st.sampled_from(CLUSTERS),
    st.sampled_from(NAMES),
    st.integers(0, 2),
    st.sampled_from(ADDRESSES),
)
versions = st.builds(DataVersion, st.just(0), st.integers(0, 2))
configs = st.builds(
    TopicConfig, st.sampled_from(TOPICS), st.integers(1, 2), st.just(2), st.sampled_from((4, 6, 7))
)
servers = st.none() | st.lists(st.sampled_from(("f", "g")), max_size=2).map(tuple)
passing = st.integers(0, 90_000)


class Channel:
    """
    A connection.
    """

    def close(self) -> None:
        """
        The route table closes no connection.
        """
        raise AssertionError


class Known(NamedTuple):
    """
    A registered broker in the model.
    """

    broker: BrokerEntry
    version: DataVersion
    channel: str
    servers: tuple[str, ...]
    heard: int


class RouteMachine(RuleBasedStateMachine):
    """
    All operations on the tables.

    @ivar there: address to broker.
    @ivar has: topic and broker name to queues.
    @ivar cluster: broker name to the cluster that it was last placed in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteTable()
        self.channels = {each: Channel() for each in CHANNELS}
        self.now = 0
        self.there: dict[str, Known] = {}
        self.has: dict[tuple[str, str], QueueData] = {}
        self.cluster: dict[str, str] = {}

    def master(self, name: str) -> str | None:
        """
        The address of a name's master.
        """
        for address, each in self.there.items():
            if each.broker.brokerName == name and each.broker.brokerId == 0:
                return address
        return None

    def tidy(self) -> None:
        """
        Remove the topics of names without a broker.
        """
        names = {each.broker.brokerName for each in self.there.values()}
        self.has = {key: data for key, data in self.has.items() if key[1] in names}

    @rule(
        broker=brokers,
        version=versions,
        topics=st.lists(configs, max_size=3),
        servers=servers,
        channel=st.sampled_from(CHANNELS),
        passed=passing,
    )
    def register(
        self,
        broker: BrokerEntry,
        version: DataVersion,
        topics: list[TopicConfig],
        servers: tuple[str, ...] | None,
        channel: str,
        passed: int,
    ) -> None:
        """
        A broker registers.
        """
        self.now += passed
        master = self.routes.register(
            broker,
            Registration(f"ha of {broker.brokerAddr}", version, topics, servers),
            self.channels[channel],
            self.now,
        )
        address, name = broker.brokerAddr, broker.brokerName
        before = self.there.pop(address, None)
        isNew = before is None or before.broker != broker
        hadMaster = self.master(name) is not None or (
            before is not None and before.broker.brokerName == name and before.broker.brokerId == 0
        )
        if isNew:
            self.cluster[name] = broker.clusterName
        for other, each in list(self.there.items()):
            if (each.broker.brokerName, each.broker.brokerId) == (name, broker.brokerId):
                del self.there[other]
        # Where the address keeps its name, the name keeps its topics.
        moved = before is not None and before.broker.brokerName != name
        if servers is None:
            servers = before.servers if before is not None and not moved else ()
        self.there[address] = Known(broker, version, channel, servers, self.now)
        self.tidy()
        changed = isNew or before is None or before.version != version
        if changed and (broker.brokerId == 0 or not hadMaster):
            mask = 7 if broker.brokerId == 0 else 5
            for topic in topics:
                self.has[topic.topicName, name] = QueueData(
                    name, topic.readQueueNums, topic.writeQueueNums, topic.perm & mask, 0
                )
        expected = self.master(name) if broker.brokerId != 0 else None
        assert (master.masterAddr if master else None) == expected
        assert master is None or master.haServerAddr == f"ha of {expected}"

    @rule(broker=brokers, version=versions, passed=passing)
    def query(self, broker: BrokerEntry, version: DataVersion, passed: int) -> None:
        """
        A broker asks whether it has to register.
        """
        self.now += passed
        known = self.there.get(broker.brokerAddr)
        changed = known is None or known.broker != broker or known.version != version
        answer = self.routes.queryDataVersion(broker, version, self.now)
        assert answer == (changed, known.version if known else None)
        if known and not changed:
            self.there[broker.brokerAddr] = known._replace(heard=self.now)

    @rule(broker=brokers)
    def unregister(self, broker: BrokerEntry) -> None:
        """
        A broker unregisters.
        """
        known = self.there.get(broker.brokerAddr)
        right = known is not None and (known.broker.brokerName, known.broker.brokerId) == (
            broker.brokerName,
            broker.brokerId,
        )
        assert self.routes.unregister(broker) is right
        if right:
            del self.there[broker.brokerAddr]
            self.tidy()

    @rule(channel=st.sampled_from(CHANNELS))
    def lose(self, channel: str) -> None:
        """
        A connection is lost.
        """
        gone = self.routes.lost(self.channels[channel])
        assert {each.brokerAddr for each in gone} == {
            address for address, each in self.there.items() if each.channel == channel
        }
        for each in gone:
            del self.there[each.brokerAddr]
        self.tidy()

    @rule(passed=passing)
    def expire(self, passed: int) -> None:
        """
        The scan for expired brokers runs.
        """
        self.now += passed
        gone = self.routes.expire(self.now)
        assert {each.broker.brokerAddr for each in gone} == {
            address for address, each in self.there.items() if self.now - each.heard > 120_000
        }
        for each in gone:
            del self.there[each.broker.brokerAddr]
        self.tidy()

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | st.sampled_from(CLUSTERS))
    def delete(self, topic: str, cluster: str | None) -> None:
        """
        An operator deletes a topic.
        """
        self.routes.deleteTopic(topic, cluster)
        for each, name in list(self.has):
            if each == topic and cluster in (None, self.cluster[name]):
                del self.has[each, name]

    @rule(name=st.sampled_from(NAMES), add=st.booleans())
    def permit(self, name: str, add: bool) -> None:
        """
        An operator adds or removes the write permission.
        """
        change = self.routes.addWritePerm if add else self.routes.wipeWritePerm
        mine = [key for key in self.has if key[1] == name]
        assert change(name) == len(mine)
        for key in mine:
            old = self.has[key]
            perm = old.perm | 6 if add else old.perm & 5
            self.has[key] = QueueData(name, old.readQueueNums, old.writeQueueNums, perm, 0)

    @invariant()
    def tables(self) -> None:
        """
        All five tables follow from the model: no topic points to a missing broker, no
        broker is without an address, and no entry is empty.
        """
        routes = self.routes
        addresses: dict[str, dict[int, str]] = {}
        for address, known in self.there.items():
            addresses.setdefault(known.broker.brokerName, {})[known.broker.brokerId] = address
        queues: dict[str, dict[str, QueueData]] = {}
        for (topic, name), data in self.has.items():
            queues.setdefault(topic, {})[name] = data
        clusters: dict[str, set[str]] = {}
        for name in addresses:
            clusters.setdefault(self.cluster[name], set()).add(name)
        assert routes.topicQueueTable == queues
        assert {
            name: (each.brokerName, each.cluster, each.brokerAddrs)
            for name, each in routes.brokerAddrTable.items()
        } == {name: (name, self.cluster[name], each) for name, each in addresses.items()}
        assert routes.clusterAddrTable == clusters
        assert {
            address: (each.broker, each.dataVersion, each.channel, each.lastUpdateTimestamp)
            for address, each in routes.brokerLiveTable.items()
        } == {
            address: (each.broker, each.version, self.channels[each.channel], each.heard)
            for address, each in self.there.items()
        }
        assert routes.filterServerTable == {
            address: each.servers for address, each in self.there.items() if each.servers
        }

    @invariant()
    def lists(self) -> None:
        """
        Routes and lists agree with the tables.
        """
        routes = self.routes
        for topic in TOPICS:
            names = {name for each, name in self.has if each == topic}
            route = routes.route(topic)
            if route is None:
                assert not names
                continue
            assert {each.brokerName for each in route.queueDatas} == names
            assert {each.brokerName for each in route.brokerDatas} == names
            assert all(each.brokerAddrs for each in route.brokerDatas)
        for cluster in CLUSTERS:
            assert finish(routes.topicsOfCluster(cluster)).topicList == {
                topic for topic, name in self.has if self.cluster[name] == cluster
            }
        assert routes.allTopics().topicList == {topic for topic, name in self.has}


class ModelTests(SynchronousTestCase):
    """
    The state machine.
    """

    def test_tablesAgreeWithModel(self) -> None:
        """
        After any operations in any order, the tables agree with the model.
        """
        run_state_machine_as_test(
            RouteMachine,
            settings=settings(max_examples=200, stateful_step_count=30, deadline=None),
        )
