# SPDX-License-Identifier: Apache-2.0
"""
Bodies of the name server's requests: a broker's registration, clusters, lists of
topics and tables of names and texts.
"""

from __future__ import annotations

import msgspec

from txrocket.model import BrokerData, DataVersion, TopicConfig

__all__ = [
    "ClusterInfo",
    "KVTable",
    "RegisterBrokerBody",
    "TopicConfigSerializeWrapper",
    "TopicList",
]


class ClusterInfo(msgspec.Struct, frozen=True):
    """
    All brokers that a name server knows.

    @ivar brokerAddrTable: broker name to its addresses.
    @ivar clusterAddrTable: cluster name to its broker names.
    """

    brokerAddrTable: dict[str, BrokerData] = {}
    clusterAddrTable: dict[str, frozenset[str]] = {}


class TopicList(msgspec.Struct, frozen=True):
    """
    Names of topics.

    @ivar topicList: the names.
    @ivar brokerAddr: the address of one broker; only in the list of system topics.
    """

    topicList: frozenset[str] = frozenset()
    brokerAddr: str | None = None


class KVTable(msgspec.Struct, frozen=True):
    """
    A table of texts: a namespace of the name server's key-value table, the ordered
    topics for a broker that registers, or the runtime information of a broker.

    @ivar table: name to text.
    """

    table: dict[str, str] = {}


class TopicConfigSerializeWrapper(msgspec.Struct, frozen=True):
    """
    A broker's topics.

    @ivar topicConfigTable: topic name to its configuration.
    @ivar dataVersion: the table's version.
    """

    topicConfigTable: dict[str, TopicConfig] = {}
    dataVersion: DataVersion = DataVersion()


class RegisterBrokerBody(msgspec.Struct, frozen=True):
    """
    REGISTER_BROKER: the topics of a broker.

    @ivar topicConfigSerializeWrapper: all topics of the broker; only the changed ones
        if it registers a single topic.
    @ivar filterServerList: its filter servers; no longer in use.
    """

    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filterServerList: tuple[str, ...] = ()
