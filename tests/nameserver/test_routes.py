# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.routes}: what RocketMQ's C{RouteInfoManager} does,
and where we do otherwise, what that is for.
"""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import SystemBusy
from txrocket.model import BrokerData, DataVersion, QueueData, TopicConfig, TopicRouteData
from txrocket.nameserver.brokers import Broker, Master, Registration
from txrocket.nameserver.routes import EXPIRED_TIME, RouteTable
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.javajson import finish

MASTER = Broker("east", "broker-a", 0, "192.0.2.1:10911")
SLAVE = Broker("east", "broker-a", 1, "192.0.2.2:10911")
OTHER = Broker("east", "broker-b", 0, "192.0.2.3:10911")


class Channel:
    """
    A connection.
    """

    def close(self) -> None:
        """
        Rules close nothing.
        """
        raise AssertionError


def registration(
    *topics: str | TopicConfig, version: int = 1, servers: tuple[str, ...] | None = ()
) -> Registration:
    """
    What a broker with some topics tells.
    """
    configs = [TopicConfig(each) if isinstance(each, str) else each for each in topics]
    return Registration("192.0.2.1:10912", DataVersion(0, version), configs, servers)


class RouteTableTests(SynchronousTestCase):
    """
    The base: a table, and a connection for each broker.
    """

    def setUp(self) -> None:
        self.routes = RouteTable()
        self.channels: dict[str, Channel] = {}

    def register(
        self, broker: Broker, told: Registration | None = None, now: int = 0
    ) -> Master | None:
        """
        A broker registers, on a connection of its own.
        """
        channel = self.channels.setdefault(broker.brokerAddr, Channel())
        return self.routes.register(broker, told or registration(), channel, now)

    def perms(self, topic: str) -> dict[str, int]:
        """
        The permissions of a topic, by broker.
        """
        return {name: each.perm for name, each in self.routes.topicQueueTable[topic].items()}

    def assertEmpty(self) -> None:
        """
        Nothing is left in any table.
        """
        routes = self.routes
        self.assertEqual(
            [
                routes.topicQueueTable,
                routes.brokerAddrTable,
                routes.clusterAddrTable,
                routes.brokerLiveTable,
                routes.filterServerTable,
            ],
            [{}, {}, {}, {}, {}],
        )


class RegisterTests(RouteTableTests):
    """
    Brokers come.
    """

    def test_route(self) -> None:
        """
        A topic's route has the queues of each broker that has it, and all
        addresses of those brokers.
        """
        self.register(MASTER, registration(TopicConfig("T", 4, 8, 6, topicSysFlag=2)))
        self.register(SLAVE)
        self.register(OTHER, registration("T", "U"))
        self.assertEqual(
            self.routes.route("T"),
            TopicRouteData(
                None,
                (QueueData("broker-a", 4, 8, 6, 2), QueueData("broker-b", 16, 16, 6, 0)),
                (
                    BrokerData("east", "broker-a", {0: MASTER.brokerAddr, 1: SLAVE.brokerAddr}),
                    BrokerData("east", "broker-b", {0: OTHER.brokerAddr}),
                ),
                {},
            ),
        )
        self.assertIsNone(self.routes.route("V"))

    def test_master(self) -> None:
        """
        A slave is told where its master is and where that serves its slaves; a
        master, and a slave without a master, are told nothing.
        """
        self.assertIsNone(self.register(SLAVE))
        self.assertIsNone(self.register(MASTER))
        self.assertEqual(self.register(SLAVE), Master("192.0.2.1:10911", "192.0.2.1:10912"))
        self.assertIsNone(self.register(attrs.evolve(OTHER, brokerId=3)))

    def test_sameVersion(self) -> None:
        """
        Topics of a version that is known are passed over, so that what an operator
        changed stays.
        """
        self.register(MASTER, registration("T"))
        self.routes.wipeWritePerm("broker-a")
        self.register(MASTER, registration("T", "U"))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.assertIsNone(self.routes.route("U"))

    def test_newVersion(self) -> None:
        """
        Topics of a new version are taken.  Those that are not among them stay: a
        broker whose topic changes tells of that topic only.
        """
        self.register(MASTER, registration("T", "U"))
        self.register(MASTER, registration(TopicConfig("T", perm=4), version=2))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.assertEqual(self.perms("U"), {"broker-a": 6})

    def test_slaveTopics(self) -> None:
        """
        While there is a master, what a slave tells of topics does not count.
        """
        self.register(MASTER, registration("T"))
        self.register(SLAVE, registration(TopicConfig("T", perm=2), "U", version=7))
        self.assertEqual(self.perms("T"), {"broker-a": 6})
        self.assertIsNone(self.routes.route("U"))

    def test_slaveAlone(self) -> None:
        """
        A slave's topics are taken where there is no master, but not to be written
        to; those of a master that comes take their place.
        """
        self.register(SLAVE, registration("T"))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.register(MASTER, registration("T"))
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_slaveStays(self) -> None:
        """
        When the master goes, its topics can still be read from the slave.
        """
        self.register(MASTER, registration("T"))
        self.register(SLAVE)
        self.routes.unregister(MASTER)
        route = self.routes.route("T")
        assert route is not None
        self.assertEqual(route.brokerDatas[0].brokerAddrs, {1: SLAVE.brokerAddr})

    def test_becomesMaster(self) -> None:
        """
        An address that registers with another id is no longer what it was, and as a
        master its topics are taken though their version is known.
        """
        self.register(SLAVE, registration("T"))
        promoted = attrs.evolve(SLAVE, brokerId=0)
        self.register(promoted, registration("T"))
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {0: SLAVE.brokerAddr})
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_becomesSlave(self) -> None:
        """
        The topics of a master that becomes a slave stay.
        """
        self.register(MASTER, registration("T"))
        self.register(attrs.evolve(MASTER, brokerId=1), registration())
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_newAddress(self) -> None:
        """
        A broker that registers from a new address takes the place of the old one,
        whose end then matters to nobody.
        """
        self.register(MASTER, registration("T", servers=("f:1",)))
        moved = attrs.evolve(MASTER, brokerAddr="192.0.2.9:10911")
        self.register(moved, registration("T"))
        self.assertEqual(list(self.routes.brokerLiveTable), [moved.brokerAddr])
        self.assertEqual(self.routes.filterServerTable, {})
        self.assertFalse(self.routes.unregister(MASTER))
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [])
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {0: moved.brokerAddr})

    def test_newName(self) -> None:
        """
        An address that registers under a new name has left the old one, which is
        gone with its topics if that was its only address.
        """
        self.register(MASTER, registration("T", "U"))
        self.register(attrs.evolve(MASTER, brokerName="broker-z"), registration("T"))
        self.assertEqual(list(self.routes.brokerAddrTable), ["broker-z"])
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-z"}})
        self.assertEqual(list(self.routes.topicQueueTable), ["T"])

    def test_newCluster(self) -> None:
        """
        A name is in one cluster only, that of its latest broker.
        """
        self.register(MASTER)
        self.register(OTHER)
        self.register(attrs.evolve(MASTER, clusterName="west"))
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-b"}, "west": {"broker-a"}})
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].cluster, "west")
        self.register(attrs.evolve(OTHER, clusterName="west"))
        self.assertEqual(self.routes.clusterAddrTable, {"west": {"broker-a", "broker-b"}})

    def test_filterServers(self) -> None:
        """
        A route has the filter servers of its brokers; a list without any takes them
        away, and no list at all leaves them.
        """
        self.register(MASTER, registration("T", servers=("f:1", "f:2")))
        self.register(OTHER, registration("T", servers=("g:1",)))
        self.register(MASTER, registration("T", servers=None))
        route = self.routes.route("T")
        assert route is not None
        self.assertEqual(
            route.filterServerTable,
            {MASTER.brokerAddr: ("f:1", "f:2"), OTHER.brokerAddr: ("g:1",)},
        )
        self.register(MASTER, registration("T", servers=()))
        route = self.routes.route("T")
        assert route is not None
        self.assertEqual(route.filterServerTable, {OTHER.brokerAddr: ("g:1",)})

    def test_shared(self) -> None:
        """
        Equal queues of a broker are one value: 100,000 topics cost no more.
        """
        self.register(MASTER, registration("T", "U"))
        table = self.routes.topicQueueTable
        self.assertIs(table["T"]["broker-a"], table["U"]["broker-a"])
        self.routes.wipeWritePerm("broker-a")
        self.assertIs(table["T"]["broker-a"], table["U"]["broker-a"])


class LimitTests(RouteTableTests):
    """
    How large the tables become.
    """

    def setUp(self) -> None:
        super().setUp()
        self.routes = RouteTable(brokers=2, topics=3)

    def test_brokers(self) -> None:
        """
        One broker too many is refused; one that is known is not.
        """
        self.register(MASTER)
        self.register(SLAVE)
        error = self.assertRaises(SystemBusy, self.register, OTHER)
        self.assertEqual(error.remark, "2 brokers are registered, which is the limit")
        self.assertEqual(set(self.routes.brokerAddrTable), {"broker-a"})
        self.register(SLAVE, registration(version=2))

    def test_topics(self) -> None:
        """
        A registration with one topic too many is refused as a whole.  Topics that
        are known, or do not matter, take no room.
        """
        self.register(MASTER, registration("T", "U"))
        error = self.assertRaises(SystemBusy, self.register, OTHER, registration("T", "V", "W"))
        self.assertIn("broker-b has 2 more topics, and with the 2 that are known", error.remark)
        self.assertEqual(set(self.routes.topicQueueTable), {"T", "U"})
        self.assertEqual(set(self.routes.brokerLiveTable), {MASTER.brokerAddr})
        self.register(SLAVE, registration("V", "W"))
        self.register(MASTER, registration("T", "U", "V", version=2))
        self.register(MASTER, registration("W", version=2))


class QueryDataVersionTests(RouteTableTests):
    """
    A broker asks whether it has to register.
    """

    def test_unknown(self) -> None:
        """
        A broker that is not known has to, and asking does not make it known.
        """
        self.assertEqual(self.routes.queryDataVersion(MASTER, DataVersion(), 0), (True, None))
        self.assertEmpty()

    def test_same(self) -> None:
        """
        A broker whose version is known need not, and was heard of.
        """
        self.register(MASTER, now=1000)
        self.assertEqual(
            self.routes.queryDataVersion(MASTER, DataVersion(0, 1), 2000),
            (False, DataVersion(0, 1)),
        )
        self.assertEqual(self.routes.expire(2000 + EXPIRED_TIME), [])

    def test_other(self) -> None:
        """
        A broker with another version has to register, and asking does not count as
        being heard of.
        """
        self.register(MASTER, now=1000)
        for version in (DataVersion(0, 2), DataVersion(1, 1)):
            self.assertEqual(
                self.routes.queryDataVersion(MASTER, version, 2000), (True, DataVersion(0, 1))
            )
        self.assertEqual(len(self.routes.expire(1001 + EXPIRED_TIME)), 1)

    def test_asOther(self) -> None:
        """
        A broker that has become something else has to register, though its version
        is known.
        """
        self.register(SLAVE)
        promoted = attrs.evolve(SLAVE, brokerId=0)
        self.assertEqual(
            self.routes.queryDataVersion(promoted, DataVersion(0, 1), 0),
            (True, DataVersion(0, 1)),
        )


class GoneTests(RouteTableTests):
    """
    Brokers go.
    """

    def setUp(self) -> None:
        super().setUp()
        self.register(MASTER, registration("T", "U", servers=("f:1",)), 1000)
        self.register(SLAVE, now=2000)

    def test_unregister(self) -> None:
        """
        When the last broker of a name goes, nothing of it is left.
        """
        self.assertTrue(self.routes.unregister(MASTER))
        self.assertFalse(self.routes.unregister(MASTER))
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {1: SLAVE.brokerAddr})
        self.assertTrue(self.routes.unregister(SLAVE))
        self.assertEmpty()

    def test_unregisterOther(self) -> None:
        """
        Who says to be something else is not believed to be gone; the cluster does
        not matter.
        """
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerId=1)))
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerName="broker-z")))
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerAddr="192.0.2.9:1")))
        self.assertEqual(len(self.routes.brokerLiveTable), 2)
        self.assertTrue(self.routes.unregister(attrs.evolve(MASTER, clusterName="west")))

    def test_othersStay(self) -> None:
        """
        Other brokers keep their topics, and a topic that nobody has any more is
        gone.
        """
        self.register(OTHER, registration("T"))
        self.routes.unregister(MASTER)
        self.routes.unregister(SLAVE)
        self.assertEqual(list(self.routes.topicQueueTable), ["T"])
        self.assertEqual(self.perms("T"), {"broker-b": 6})
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-b"}})

    def test_lost(self) -> None:
        """
        With a connection go all brokers that registered on it.
        """
        channel = self.channels[SLAVE.brokerAddr]
        self.routes.register(OTHER, registration(), channel, 0)
        self.assertEqual(self.routes.lost(channel), [SLAVE, OTHER])
        self.assertEqual(self.routes.lost(channel), [])
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [MASTER])
        self.assertEmpty()

    def test_lostBefore(self) -> None:
        """
        A broker that has registered on a new connection stays when the old one is
        lost.
        """
        self.routes.register(MASTER, registration("T", "U"), Channel(), 0)
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [])
        self.assertIn(MASTER.brokerAddr, self.routes.brokerLiveTable)

    def test_expire(self) -> None:
        """
        A broker that was silent for more than 120 seconds is dropped, and its
        channel given back.
        """
        self.assertEqual(self.routes.expire(121_000), [])
        (gone,) = self.routes.expire(121_001)
        self.assertEqual(gone.broker, MASTER)
        self.assertIs(gone.channel, self.channels[MASTER.brokerAddr])
        self.assertEqual(len(self.routes.expire(122_001)), 1)
        self.assertEmpty()

    def test_registersAgain(self) -> None:
        """
        Each registration counts as being heard of.
        """
        self.register(MASTER, registration("T", "U"), 50_000)
        self.assertEqual([each.broker for each in self.routes.expire(140_000)], [SLAVE])


class OperatorTests(RouteTableTests):
    """
    What an operator may change.
    """

    def setUp(self) -> None:
        super().setUp()
        self.register(MASTER, registration("T", TopicConfig("TBW102", perm=7)))
        self.register(OTHER, registration("T"))
        self.register(
            attrs.evolve(
                OTHER, clusterName="west", brokerName="broker-w", brokerAddr="192.0.2.5:1"
            ),
            registration("T", "W"),
        )

    def test_wipe(self) -> None:
        """
        A broker's topics are not to be written to, those of others are.  The number
        is that of its topics.
        """
        self.assertEqual(self.routes.wipeWritePerm("broker-a"), 2)
        self.assertEqual(self.perms("T"), {"broker-a": 4, "broker-b": 6, "broker-w": 6})
        self.assertEqual(self.perms("TBW102"), {"broker-a": 5})
        self.assertEqual(self.routes.wipeWritePerm("broker-z"), 0)

    def test_add(self) -> None:
        """
        What was wiped comes back, and whether others inherit from the topic is not
        forgotten.
        """
        self.routes.wipeWritePerm("broker-a")
        self.assertEqual(self.routes.addWritePerm("broker-a"), 2)
        self.assertEqual(self.perms("T"), {"broker-a": 6, "broker-b": 6, "broker-w": 6})
        self.assertEqual(self.perms("TBW102"), {"broker-a": 7})
        self.assertEqual(self.routes.addWritePerm("broker-z"), 0)

    def test_delete(self) -> None:
        """
        A topic is forgotten, whether it is known or not.
        """
        self.routes.deleteTopic("T")
        self.routes.deleteTopic("T")
        self.assertEqual(set(self.routes.topicQueueTable), {"TBW102", "W"})

    def test_deleteInCluster(self) -> None:
        """
        With a cluster, only its brokers lose the topic; a cluster or topic that is
        not known changes nothing.
        """
        self.routes.deleteTopic("T", "north")
        self.routes.deleteTopic("V", "east")
        self.routes.deleteTopic("T", "east")
        self.assertEqual(self.perms("T"), {"broker-w": 6})
        self.routes.deleteTopic("T", "west")
        self.assertEqual(set(self.routes.topicQueueTable), {"TBW102", "W"})


class ListTests(RouteTableTests):
    """
    What is there.
    """

    def test_nothing(self) -> None:
        """
        An empty name server has empty lists.
        """
        routes = self.routes
        self.assertEqual(routes.clusterInfo(), ClusterInfo())
        for each in (
            routes.allTopics(),
            finish(routes.topicsOfCluster("east")),
            routes.systemTopics(),
            finish(routes.unitTopics()),
            finish(routes.unitSubTopics()),
            finish(routes.unitSubTopicsOfNoUnit()),
        ):
            self.assertEqual(each, TopicList())

    def test_brokers(self) -> None:
        """
        Clusters with their brokers, and what of that are names of topics.
        """
        self.register(MASTER, registration("T"))
        self.register(SLAVE)
        self.register(attrs.evolve(OTHER, clusterName="west"), registration("T", "U"))
        info = self.routes.clusterInfo()
        self.assertEqual(
            info,
            ClusterInfo(
                {
                    "broker-a": BrokerData(
                        "east", "broker-a", {0: MASTER.brokerAddr, 1: SLAVE.brokerAddr}
                    ),
                    "broker-b": BrokerData("west", "broker-b", {0: OTHER.brokerAddr}),
                },
                {"east": frozenset({"broker-a"}), "west": frozenset({"broker-b"})},
            ),
        )
        self.assertEqual(
            self.routes.systemTopics(),
            TopicList(frozenset({"east", "west", "broker-a", "broker-b"}), MASTER.brokerAddr),
        )
        self.assertEqual(self.routes.allTopics(), TopicList(frozenset({"T", "U"})))
        self.assertEqual(finish(self.routes.topicsOfCluster("east")), TopicList(frozenset({"T"})))
        self.assertEqual(
            finish(self.routes.topicsOfCluster("west")), TopicList(frozenset({"T", "U"}))
        )
        self.routes.unregister(MASTER)
        self.assertEqual(len(info.brokerAddrTable["broker-a"].brokerAddrs), 2)

    def test_units(self) -> None:
        """
        Flag 1 is a unit's topic, flag 2 one with subscribers in a unit.
        """
        topics = [TopicConfig(f"T{flag}", topicSysFlag=flag) for flag in range(4)]
        self.register(MASTER, registration(*topics))
        self.assertEqual(finish(self.routes.unitTopics()).topicList, {"T1", "T3"})
        self.assertEqual(finish(self.routes.unitSubTopics()).topicList, {"T2", "T3"})
        self.assertEqual(finish(self.routes.unitSubTopicsOfNoUnit()).topicList, {"T2"})


class BrokerTests(SynchronousTestCase):
    """
    A broker in words.
    """

    def test_str(self) -> None:
        """
        A log line says who it is.
        """
        self.assertEqual(str(MASTER), "master of broker-a in east at 192.0.2.1:10911")
        self.assertEqual(str(SLAVE), "slave 1 of broker-a in east at 192.0.2.2:10911")
