# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.nameserver.routes}.
"""

from __future__ import annotations

import json

from twisted.logger import LogLevel

from tests.processors.namesrvcase import NameServerTests
from txrocket.model import TopicConfig, TopicRouteData
from txrocket.protocol.bodies import ClusterInfo, TopicList
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)


class RouteTests(NameServerTests):
    """
    GET_ROUTEINFO_BY_TOPIC.
    """

    # What 4.9.7 answers: the map's keys are numbers for those before V4_9_4.
    FORM = (
        b'{"brokerDatas":[{"brokerAddrs":{%b:"192.0.2.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"east"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
        b'"perm":6,"readQueueNums":16,"topicSysFlag":0,"writeQueueNums":16}]}'
    )
    STANDARD = FORM % b'"0"'
    OLD = FORM % b"0"

    def route(self, topic: str = "T", accept: bool | None = None, version: int = 401) -> bytes:
        """
        The route that a client gets.
        """
        header = GetRouteInfoRequestHeader(topic, accept)
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version)
        self.assertEqual((answer.code, answer.remark, answer.extFields), (0, None, {}))
        return answer.body

    def test_newPeersGetStandardJson(self) -> None:
        """
        Peers from V4_9_4 on, and those that ask for it, get standard JSON.
        """
        self.register("T")
        for _ in range(2):
            self.assertEqual(self.route(version=401), self.STANDARD)
            self.assertEqual(self.route(version=400), self.OLD)
            self.assertEqual(self.route(version=63, accept=True), self.STANDARD)
            self.assertEqual(self.route(version=63, accept=False), self.OLD)

    def test_changedRouteIsEncodedAnew(self) -> None:
        """
        A route is what is known now, though its bytes are kept.
        """
        self.register("T")
        self.assertEqual(self.route(), self.STANDARD)
        self.register(TopicConfig("T", perm=4), version=2)
        self.assertEqual(self.route(), self.STANDARD.replace(b'"perm":6', b'"perm":4'))
        self.register(brokerId=1, address="h:1")
        self.assertIn(b'"1":"h:1"', self.route())
        self.register(servers=("f:1",), version=2)
        self.assertIn(b'"filterServerTable":{"192.0.2.1:10911":["f:1"]}', self.route())

    def test_unknownTopicIsRefused(self) -> None:
        """
        A topic that no broker has is TOPIC_NOT_EXIST.
        """
        header = GetRouteInfoRequestHeader("T")
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        self.assertEqual((answer.code, answer.body), (ResponseCode.TOPIC_NOT_EXIST, b""))
        self.assertIn("no broker that is registered here has topic T", answer.remark or "")

    def test_orderFollowsSetting(self) -> None:
        """
        The order of a topic is told while orderMessageEnable says so.
        """
        self.register("T", "U")
        header = PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:8")
        self.ask(RequestCode.PUT_KV_CONFIG, header)
        self.assertEqual(self.route(), self.STANDARD)
        self.configuration.update({"orderMessageEnable": "true"}, 0)
        ordered = decodeBody(TopicRouteData, self.route())
        self.assertEqual(ordered.orderTopicConf, "broker-a:8")
        self.assertEqual(self.route("U"), self.STANDARD)
        self.configuration.update({"orderMessageEnable": "false"}, 0)
        self.assertEqual(self.route(), self.STANDARD)


class OperatorTests(NameServerTests):
    """
    Permissions, and topics that are to be forgotten.
    """

    def setUp(self) -> None:
        super().setUp()
        self.register("T", "U")
        self.events.clear()

    def perms(self) -> list[int]:
        """
        The permissions of all topics.
        """
        return [each["broker-a"].perm for each in self.routes.topicQueueTable.values()]

    def test_wipedTopicsAreCountedAndLogged(self) -> None:
        """
        The response has the number of topics, and the log names the peer.
        """
        answer = self.ask(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader("broker-a")
        )
        self.assertEqual((answer.code, answer.extFields), (0, {"wipeTopicCount": "2"}))
        self.assertEqual(self.perms(), [4, 4])
        answer = self.ask(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader("broker-a")
        )
        self.assertEqual((answer.code, answer.extFields), (0, {"addTopicCount": "2"}))
        self.assertEqual(self.perms(), [6, 6])
        self.assertEqual(
            self.logged(LogLevel.warn),
            [
                "192.0.2.7:10911 has 2 topics of 'broker-a' not written to",
                "192.0.2.7:10911 has 2 topics of 'broker-a' written to again",
            ],
        )

    def test_topicIsDeletedInCluster(self) -> None:
        """
        A topic is deleted in a cluster, or everywhere if none is named.
        """
        for topic, cluster, left in (
            ("T", "west", {"T", "U"}),
            ("T", "east", {"U"}),
            ("U", "", set()),
            ("U", None, set()),
        ):
            header = DeleteTopicFromNamesrvRequestHeader(topic, cluster)
            answer = self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))
            self.assertEqual(set(self.routes.topicQueueTable), left)
        self.assertEqual(
            self.logged(LogLevel.warn)[1:3],
            [
                "192.0.2.7:10911 had topic 'T' deleted here, cluster: east",
                "192.0.2.7:10911 had topic 'U' deleted here, cluster: any",
            ],
        )


class ListTests(NameServerTests):
    """
    What is there.
    """

    def setUp(self) -> None:
        super().setUp()
        self.register(*(TopicConfig(f"T{flag}", topicSysFlag=flag) for flag in range(4)))

    def test_clustersAreListedAsJava(self) -> None:
        """
        Clusters and brokers, as 4.9.7 writes them.
        """
        answer = self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertEqual(
            answer.body,
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"192.0.2.1:10911"},'
            b'"brokerName":"broker-a","cluster":"east"}},"clusterAddrTable":{"east":["broker-a"]}}',
        )
        self.assertEqual(decodeBody(ClusterInfo, answer.body), self.routes.clusterInfo())

    def test_topicListsHaveTheirCodes(self) -> None:
        """
        Each list has its code.
        """
        every = {"T0", "T1", "T2", "T3"}
        for code, topics in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, every),
            (RequestCode.GET_UNIT_TOPIC_LIST, {"T1", "T3"}),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {"T2", "T3"}),
            (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {"T2"}),
        ):
            answer = self.ask(code)
            self.assertEqual((answer.code, answer.extFields), (0, {}))
            self.assertEqual(json.loads(answer.body), {"topicList": sorted(topics)})

    def test_systemTopics(self) -> None:
        """
        The list of system topics comes with a broker's address.
        """
        answer = self.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        self.assertEqual(
            decodeBody(TopicList, answer.body),
            TopicList(frozenset({"east", "broker-a"}), "192.0.2.1:10911"),
        )

    def test_topicsOfClusterAreListed(self) -> None:
        """
        A cluster's topics; a cluster that is not known has none.
        """
        for cluster, count in (("east", 4), ("west", 0)):
            header = GetTopicsByClusterRequestHeader(cluster)
            answer = self.ask(RequestCode.GET_TOPICS_BY_CLUSTER, header)
            self.assertEqual(answer.code, 0)
            self.assertEqual(len(decodeBody(TopicList, answer.body).topicList), count)
