# SPDX-License-Identifier: Apache-2.0
"""
Requests of clients and tools to a name server: where is a topic, which brokers and
topics are there; and what an operator may change of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from twisted.logger import Logger

from txrocket.config import Live
from txrocket.errors import TopicNotExist
from txrocket.nameserver.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from txrocket.nameserver.routecache import RouteCache
from txrocket.nameserver.routetable import RouteTable
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.bodies import TopicList
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["RouteRequests"]

# Java's ordinal of V4_9_4: peers since then read standard JSON.
_STANDARD_SINCE: Final = 401

# Brokers whose route is encoded in one slice.
_BROKERS: Final = 128


class RouteRequests:
    """
    Routes, lists of brokers and topics, permissions.
    """

    _log = Logger()

    def __init__(
        self,
        routes: RouteTable,
        kvConfig: KVConfig,
        settings: Live[NamesrvSettings],
        slices: Slices,
    ) -> None:
        self._slices = slices
        self._routes = routes
        self._kvConfig = kvConfig
        self._settings = settings
        self._encode = RouteCache()

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        routes = self._routes
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusterInfo,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipeWritePerm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.addWritePerm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.deleteTopic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topicsOfCluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._telling(routes.allTopics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._telling(routes.systemTopics),
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(routes.unitTopics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(routes.unitSubTopics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(
                routes.unitSubTopicsOfNoUnit
            ),
        }

    def route(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_ROUTEINFO_BY_TOPIC.
        """
        header = request.decodeHeader(GetRouteInfoRequestHeader)
        topic = header.topic
        route = self._routes.route(topic)
        if route is None:
            raise TopicNotExist(
                f"no broker that is registered here has topic {topic}: create it, or see "
                "whether its brokers run and have this name server in namesrvAddr"
            )
        if self._settings.now.orderMessageEnable:
            order = self._kvConfig.get(ORDER_TOPIC_CONFIG, topic)
            route = replace(route, orderTopicConf=order)
        standard = request.version >= _STANDARD_SINCE or bool(header.acceptStandardJsonOnly)
        if len(route.brokerDatas) > _BROKERS:
            return promptly(self._slices, telling(route, standard))
        return responseCommand(body=self._encode(topic, route, standard))

    def clusterInfo(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_BROKER_CLUSTER_INFO.
        """
        return promptly(self._slices, telling(self._routes.clusterInfo()))

    def wipeWritePerm(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        WIPE_WRITE_PERM_OF_BROKER.
        """
        header = request.decodeHeader(WipeWritePermOfBrokerRequestHeader)
        count = self._routes.wipeWritePerm(header.brokerName)
        self._log.warn(
            "{peer} has {count} topics of {broker!r} not written to",
            peer=peer.address,
            count=count,
            broker=header.brokerName,
        )
        return responseCommand(header=WipeWritePermOfBrokerResponseHeader(count))

    def addWritePerm(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        ADD_WRITE_PERM_OF_BROKER.
        """
        header = request.decodeHeader(AddWritePermOfBrokerRequestHeader)
        count = self._routes.addWritePerm(header.brokerName)
        self._log.warn(
            "{peer} has {count} topics of {broker!r} written to again",
            peer=peer.address,
            count=count,
            broker=header.brokerName,
        )
        return responseCommand(header=AddWritePermOfBrokerResponseHeader(count))

    def deleteTopic(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        DELETE_TOPIC_IN_NAMESRV: SUCCESS also for a topic that is not known.
        """
        header = request.decodeHeader(DeleteTopicFromNamesrvRequestHeader)
        self._routes.deleteTopic(header.topic, header.clusterName or None)
        self._log.warn(
            "{peer} had topic {topic!r} deleted here, cluster: {cluster}",
            peer=peer.address,
            topic=header.topic,
            cluster=header.clusterName or "any",
        )
        return responseCommand()

    def topicsOfCluster(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_TOPICS_BY_CLUSTER.
        """
        header = request.decodeHeader(GetTopicsByClusterRequestHeader)
        return promptly(self._slices, _listing(self._routes.topicsOfCluster(header.cluster)))

    def _telling(self, topics: Callable[[], TopicList]) -> Process:
        """
        A function that answers with a list of topics.
        """
        return lambda request, peer: promptly(self._slices, telling(topics()))

    def _listing(self, topics: Callable[[], Gradual[TopicList]]) -> Process:
        """
        A function that answers with a list of topics that are looked for.
        """
        return lambda request, peer: promptly(self._slices, _listing(topics()))


def _listing(topics: Gradual[TopicList]) -> Gradual[RemotingCommand]:
    found = yield from topics
    return (yield from telling(found))
