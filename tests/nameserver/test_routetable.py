# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.routetable}: the rules of RocketMQ's C{RouteInfoManager},
and our deviations from it.
"""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import SystemBusy
from txrocket.model import BrokerData, DataVersion, QueueData, TopicConfig, TopicRouteData
from txrocket.nameserver.brokerinfo import BrokerEntry, Master, Registration
from txrocket.nameserver.routetable import EXPIRED_TIME, RouteTable
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.fastjson import finish

MASTER = BrokerEntry("east", "broker-a", 0, "192.0.2.1:10911")
SLAVE = BrokerEntry("east", "broker-a", 1, "192.0.2.2:10911")
OTHER = BrokerEntry("east", "broker-b", 0, "192.0.2.3:10911")


class Channel:
    """
    A connection.
    """

    def close(self) -> None:
        """
        The route table closes no connection.
        """
        raise AssertionError


def registration(
    *topics: str | TopicConfig, version: int = 1, servers: tuple[str, ...] | None = ()
) -> Registration:
    """
    The registration of a broker with some topics.
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
        self, broker: BrokerEntry, told: Registration | None = None, now: int = 0
    ) -> Master | None:
        """
        Register a broker through its own connection.
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
        Assert that all tables are empty.
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
    Registrations of brokers.
    """

    def test_routeHasQueuesAndAddresses(self) -> None:
        """
        A topic's route has the queues of each of its brokers, and all addresses of those
        brokers.
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

    def test_slaveGetsMaster(self) -> None:
        """
        A slave gets the addresses of its master; a master, and a slave without a master,
        get none.
        """
        self.assertIsNone(self.register(SLAVE))
        self.assertIsNone(self.register(MASTER))
        self.assertEqual(self.register(SLAVE), Master("192.0.2.1:10911", "192.0.2.1:10912"))
        self.assertIsNone(self.register(attrs.evolve(OTHER, brokerId=3)))

    def test_knownVersionKeepsTopics(self) -> None:
        """
        Topics of a known version are ignored, so that an operator's changes stay.
        """
        self.register(MASTER, registration("T"))
        self.routes.wipeWritePerm("broker-a")
        self.register(MASTER, registration("T", "U"))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.assertIsNone(self.routes.route("U"))

    def test_newVersionUpdatesTopics(self) -> None:
        """
        Topics of a new version are updated. Other topics stay, because a broker whose
        topic changes registers that topic only.
        """
        self.register(MASTER, registration("T", "U"))
        self.register(MASTER, registration(TopicConfig("T", perm=4), version=2))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.assertEqual(self.perms("U"), {"broker-a": 6})

    def test_slaveTopicsAreIgnoredWithMaster(self) -> None:
        """
        While a master is registered, a slave's topics are ignored.
        """
        self.register(MASTER, registration("T"))
        self.register(SLAVE, registration(TopicConfig("T", perm=2), "U", version=7))
        self.assertEqual(self.perms("T"), {"broker-a": 6})
        self.assertIsNone(self.routes.route("U"))

    def test_slaveTopicsAreReadOnlyWithoutMaster(self) -> None:
        """
        Without a master, a slave's topics are added without write permission; those of a
        later master replace them.
        """
        self.register(SLAVE, registration("T"))
        self.assertEqual(self.perms("T"), {"broker-a": 4})
        self.register(MASTER, registration("T"))
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_topicsStayReadableFromSlave(self) -> None:
        """
        When the master is removed, its topics can still be read from the slave.
        """
        self.register(MASTER, registration("T"))
        self.register(SLAVE)
        self.routes.unregister(MASTER)
        route = self.routes.route("T")
        assert route is not None
        self.assertEqual(route.brokerDatas[0].brokerAddrs, {1: SLAVE.brokerAddr})

    def test_slaveThatBecomesMasterUpdatesTopics(self) -> None:
        """
        An address that registers with another id loses the old one. As a master, its
        topics are updated although their version is known.
        """
        self.register(SLAVE, registration("T"))
        promoted = attrs.evolve(SLAVE, brokerId=0)
        self.register(promoted, registration("T"))
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {0: SLAVE.brokerAddr})
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_topicsOfMasterThatBecomesSlaveStay(self) -> None:
        """
        The topics of a master that becomes a slave stay.
        """
        self.register(MASTER, registration("T"))
        self.register(attrs.evolve(MASTER, brokerId=1), registration())
        self.assertEqual(self.perms("T"), {"broker-a": 6})

    def test_newAddressReplacesOldOne(self) -> None:
        """
        A broker that registers from a new address replaces the old one, whose lost
        connection then has no effect.
        """
        self.register(MASTER, registration("T", servers=("f:1",)))
        moved = attrs.evolve(MASTER, brokerAddr="192.0.2.9:10911")
        self.register(moved, registration("T"))
        self.assertEqual(list(self.routes.brokerLiveTable), [moved.brokerAddr])
        self.assertEqual(self.routes.filterServerTable, {})
        self.assertFalse(self.routes.unregister(MASTER))
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [])
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {0: moved.brokerAddr})

    def test_newNameLeavesOldName(self) -> None:
        """
        An address that registers under a new name leaves the old name, which is removed
        with its topics if that was its only address.
        """
        self.register(MASTER, registration("T", "U"))
        self.register(attrs.evolve(MASTER, brokerName="broker-z"), registration("T"))
        self.assertEqual(list(self.routes.brokerAddrTable), ["broker-z"])
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-z"}})
        self.assertEqual(list(self.routes.topicQueueTable), ["T"])

    def test_nameIsInOneCluster(self) -> None:
        """
        A name is in one cluster only, that of its last registration.
        """
        self.register(MASTER)
        self.register(OTHER)
        self.register(attrs.evolve(MASTER, clusterName="west"))
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-b"}, "west": {"broker-a"}})
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].cluster, "west")
        self.register(attrs.evolve(OTHER, clusterName="west"))
        self.assertEqual(self.routes.clusterAddrTable, {"west": {"broker-a", "broker-b"}})

    def test_routeHasFilterServers(self) -> None:
        """
        A route has the filter servers of its brokers. An empty list removes them, and a
        missing list leaves them.
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

    def test_equalQueuesShareOneValue(self) -> None:
        """
        Equal queues of a broker are one value, so 100,000 topics need no more memory.
        """
        self.register(MASTER, registration("T", "U"))
        table = self.routes.topicQueueTable
        self.assertIs(table["T"]["broker-a"], table["U"]["broker-a"])
        self.routes.wipeWritePerm("broker-a")
        self.assertIs(table["T"]["broker-a"], table["U"]["broker-a"])


class LimitTests(RouteTableTests):
    """
    The limits of the tables.
    """

    def setUp(self) -> None:
        super().setUp()
        self.routes = RouteTable(brokers=2, topics=3)

    def test_brokerOverLimitIsRefused(self) -> None:
        """
        A broker over the limit is refused; a registered one is not.
        """
        self.register(MASTER)
        self.register(SLAVE)
        error = self.assertRaises(SystemBusy, self.register, OTHER)
        self.assertEqual(error.remark, "the limit of 2 registered brokers is reached")
        self.assertEqual(set(self.routes.brokerAddrTable), {"broker-a"})
        self.register(SLAVE, registration(version=2))

    def test_topicsOverLimitAreRefused(self) -> None:
        """
        A registration with one topic over the limit is refused as a whole. Known or
        ignored topics do not count.
        """
        self.register(MASTER, registration("T", "U"))
        error = self.assertRaises(SystemBusy, self.register, OTHER, registration("T", "V", "W"))
        self.assertIn("broker-b adds 2 topics to the 2 registered ones", error.remark)
        self.assertEqual(set(self.routes.topicQueueTable), {"T", "U"})
        self.assertEqual(set(self.routes.brokerLiveTable), {MASTER.brokerAddr})
        self.register(SLAVE, registration("V", "W"))
        self.register(MASTER, registration("T", "U", "V", version=2))
        self.register(MASTER, registration("W", version=2))


class QueryDataVersionTests(RouteTableTests):
    """
    Version queries of brokers.
    """

    def test_unknownBrokerHasToRegister(self) -> None:
        """
        An unknown broker has to register, and its query does not add it.
        """
        self.assertEqual(self.routes.queryDataVersion(MASTER, DataVersion(), 0), (True, None))
        self.assertEmpty()

    def test_knownVersionCountsAsRegistration(self) -> None:
        """
        A broker with the known version need not register, and its query counts as a
        registration.
        """
        self.register(MASTER, now=1000)
        self.assertEqual(
            self.routes.queryDataVersion(MASTER, DataVersion(0, 1), 2000),
            (False, DataVersion(0, 1)),
        )
        self.assertEqual(self.routes.expire(2000 + EXPIRED_TIME), [])

    def test_otherVersionDoesNotCountAsRegistration(self) -> None:
        """
        A broker with another version has to register, and its query does not count as a
        registration.
        """
        self.register(MASTER, now=1000)
        for version in (DataVersion(0, 2), DataVersion(1, 1)):
            self.assertEqual(
                self.routes.queryDataVersion(MASTER, version, 2000), (True, DataVersion(0, 1))
            )
        self.assertEqual(len(self.routes.expire(1001 + EXPIRED_TIME)), 1)

    def test_changedIdentityHasToRegister(self) -> None:
        """
        A broker with a changed identity has to register, although its version is known.
        """
        self.register(SLAVE)
        promoted = attrs.evolve(SLAVE, brokerId=0)
        self.assertEqual(
            self.routes.queryDataVersion(promoted, DataVersion(0, 1), 0),
            (True, DataVersion(0, 1)),
        )


class GoneTests(RouteTableTests):
    """
    Removal of brokers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.register(MASTER, registration("T", "U", servers=("f:1",)), 1000)
        self.register(SLAVE, now=2000)

    def test_lastBrokerLeavesNothing(self) -> None:
        """
        When the last broker of a name unregisters, no table mentions it.
        """
        self.assertTrue(self.routes.unregister(MASTER))
        self.assertFalse(self.routes.unregister(MASTER))
        self.assertEqual(self.routes.brokerAddrTable["broker-a"].brokerAddrs, {1: SLAVE.brokerAddr})
        self.assertTrue(self.routes.unregister(SLAVE))
        self.assertEmpty()

    def test_unregisterOfOtherIdentityIsIgnored(self) -> None:
        """
        A request to unregister with another name or id is ignored; the cluster is not
        compared.
        """
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerId=1)))
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerName="broker-z")))
        self.assertFalse(self.routes.unregister(attrs.evolve(MASTER, brokerAddr="192.0.2.9:1")))
        self.assertEqual(len(self.routes.brokerLiveTable), 2)
        self.assertTrue(self.routes.unregister(attrs.evolve(MASTER, clusterName="west")))

    def test_otherBrokersKeepTopics(self) -> None:
        """
        Other brokers keep their topics, and a topic without brokers is removed.
        """
        self.register(OTHER, registration("T"))
        self.routes.unregister(MASTER)
        self.routes.unregister(SLAVE)
        self.assertEqual(list(self.routes.topicQueueTable), ["T"])
        self.assertEqual(self.perms("T"), {"broker-b": 6})
        self.assertEqual(self.routes.clusterAddrTable, {"east": {"broker-b"}})

    def test_lostConnectionRemovesItsBrokers(self) -> None:
        """
        A lost connection removes all brokers that registered through it.
        """
        channel = self.channels[SLAVE.brokerAddr]
        self.routes.register(OTHER, registration(), channel, 0)
        self.assertEqual(self.routes.lost(channel), [SLAVE, OTHER])
        self.assertEqual(self.routes.lost(channel), [])
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [MASTER])
        self.assertEmpty()

    def test_oldConnectionDoesNotRemoveBroker(self) -> None:
        """
        A broker that has registered through a new connection stays when the old one is
        lost.
        """
        self.routes.register(MASTER, registration("T", "U"), Channel(), 0)
        self.assertEqual(self.routes.lost(self.channels[MASTER.brokerAddr]), [])
        self.assertIn(MASTER.brokerAddr, self.routes.brokerLiveTable)

    def test_silentBrokerExpires(self) -> None:
        """
        A broker without a registration for more than 120 seconds is removed, and its
        channel is returned.
        """
        self.assertEqual(self.routes.expire(121_000), [])
        (gone,) = self.routes.expire(121_001)
        self.assertEqual(gone.broker, MASTER)
        self.assertIs(gone.channel, self.channels[MASTER.brokerAddr])
        self.assertEqual(len(self.routes.expire(122_001)), 1)
        self.assertEmpty()

    def test_registrationPreventsExpiry(self) -> None:
        """
        Each registration restarts the time to expiry.
        """
        self.register(MASTER, registration("T", "U"), 50_000)
        self.assertEqual([each.broker for each in self.routes.expire(140_000)], [SLAVE])


class OperatorTests(RouteTableTests):
    """
    Changes by operators.
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

    def test_wipeRemovesWritePermOfBroker(self) -> None:
        """
        A broker's topics lose the write permission, those of others keep it. The number
        is that of its topics.
        """
        self.assertEqual(self.routes.wipeWritePerm("broker-a"), 2)
        self.assertEqual(self.perms("T"), {"broker-a": 4, "broker-b": 6, "broker-w": 6})
        self.assertEqual(self.perms("TBW102"), {"broker-a": 5})
        self.assertEqual(self.routes.wipeWritePerm("broker-z"), 0)

    def test_addRestoresWritePerm(self) -> None:
        """
        The write permission is restored, and the inherit permission is unchanged.
        """
        self.routes.wipeWritePerm("broker-a")
        self.assertEqual(self.routes.addWritePerm("broker-a"), 2)
        self.assertEqual(self.perms("T"), {"broker-a": 6, "broker-b": 6, "broker-w": 6})
        self.assertEqual(self.perms("TBW102"), {"broker-a": 7})
        self.assertEqual(self.routes.addWritePerm("broker-z"), 0)

    def test_deleteRemovesTopic(self) -> None:
        """
        A topic is removed; an unknown topic is no error.
        """
        self.routes.deleteTopic("T")
        self.routes.deleteTopic("T")
        self.assertEqual(set(self.routes.topicQueueTable), {"TBW102", "W"})

    def test_deleteInClusterSparesOthers(self) -> None:
        """
        With a cluster, only its brokers lose the topic; an unknown cluster or topic
        changes nothing.
        """
        self.routes.deleteTopic("T", "north")
        self.routes.deleteTopic("V", "east")
        self.routes.deleteTopic("T", "east")
        self.assertEqual(self.perms("T"), {"broker-w": 6})
        self.routes.deleteTopic("T", "west")
        self.assertEqual(set(self.routes.topicQueueTable), {"TBW102", "W"})


class ListTests(RouteTableTests):
    """
    Lists of topics and brokers.
    """

    def test_emptyTableHasEmptyLists(self) -> None:
        """
        An empty table has empty lists.
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

    def test_listsHaveClustersBrokersAndTopics(self) -> None:
        """
        The lists have clusters with their brokers, and the names of topics.
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

    def test_sysFlagSelectsUnitTopics(self) -> None:
        """
        Flag 1 is a unit's topic, flag 2 a topic with subscribers in a unit.
        """
        topics = [TopicConfig(f"T{flag}", topicSysFlag=flag) for flag in range(4)]
        self.register(MASTER, registration(*topics))
        self.assertEqual(finish(self.routes.unitTopics()).topicList, {"T1", "T3"})
        self.assertEqual(finish(self.routes.unitSubTopics()).topicList, {"T2", "T3"})
        self.assertEqual(finish(self.routes.unitSubTopicsOfNoUnit()).topicList, {"T2"})


class BrokerTests(SynchronousTestCase):
    """
    A broker as text.
    """

    def test_strHasRoleNameClusterAddress(self) -> None:
        """
        The text for logs has role, name, cluster and address.
        """
        self.assertEqual(str(MASTER), "master of broker-a in east at 192.0.2.1:10911")
        self.assertEqual(str(SLAVE), "slave 1 of broker-a in east at 192.0.2.2:10911")
