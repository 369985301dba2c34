# SPDX-License-Identifier: Apache-2.0
"""
Headers of the name server's requests: registration of brokers, routes, topics and
the key-value table.
"""

from __future__ import annotations

from txrocket.model import Int32, Int64
from txrocket.protocol.headers.fields import Header

__all__ = [
    "AddWritePermOfBrokerRequestHeader",
    "AddWritePermOfBrokerResponseHeader",
    "DeleteKVConfigRequestHeader",
    "DeleteTopicFromNamesrvRequestHeader",
    "GetKVConfigRequestHeader",
    "GetKVConfigResponseHeader",
    "GetKVListByNamespaceRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "PutKVConfigRequestHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "UnRegisterBrokerRequestHeader",
    "WipeWritePermOfBrokerRequestHeader",
    "WipeWritePermOfBrokerResponseHeader",
]


class PutKVConfigRequestHeader(Header):
    """
    PUT_KV_CONFIG.
    """

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """
    GET_KV_CONFIG.
    """

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """
    The response to GET_KV_CONFIG.
    """

    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    """
    DELETE_KV_CONFIG.
    """

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header):
    """
    GET_KVLIST_BY_NAMESPACE.
    """

    namespace: str


class RegisterBrokerRequestHeader(Header):
    """
    REGISTER_BROKER.

    @ivar compressed: whether the body is in the compressed format.
    @ivar bodyCrc32: the CRC-32 of the body without its highest bit; 0 is not checked.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    haServerAddr: str
    brokerId: Int64
    compressed: bool = False
    bodyCrc32: Int32 | None = 0


class RegisterBrokerResponseHeader(Header):
    """
    The response to REGISTER_BROKER: the addresses of a slave's master.
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    """
    UNREGISTER_BROKER.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Int64


class QueryDataVersionRequestHeader(Header):
    """
    QUERY_DATA_VERSION.
    """

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: Int64


class QueryDataVersionResponseHeader(Header):
    """
    The response to QUERY_DATA_VERSION.

    @ivar changed: whether the broker's topics differ from those in the route table.
    """

    changed: bool


class GetRouteInfoRequestHeader(Header):
    """
    GET_ROUTEINFO_BY_TOPIC.

    @ivar acceptStandardJsonOnly: whether the map keys of the response's body must be
        quoted.
    """

    topic: str
    acceptStandardJsonOnly: bool | None = None


class WipeWritePermOfBrokerRequestHeader(Header):
    """
    WIPE_WRITE_PERM_OF_BROKER.
    """

    brokerName: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """
    The response to WIPE_WRITE_PERM_OF_BROKER: the number of changed topics.
    """

    wipeTopicCount: Int32


class AddWritePermOfBrokerRequestHeader(Header):
    """
    ADD_WRITE_PERM_OF_BROKER.
    """

    brokerName: str


class AddWritePermOfBrokerResponseHeader(Header):
    """
    The response to ADD_WRITE_PERM_OF_BROKER: the number of changed topics.
    """

    addTopicCount: Int32


class DeleteTopicFromNamesrvRequestHeader(Header):
    """
    DELETE_TOPIC_IN_NAMESRV.
    """

    topic: str
    clusterName: str | None = None


class GetTopicsByClusterRequestHeader(Header):
    """
    GET_TOPICS_BY_CLUSTER.
    """

    cluster: str
