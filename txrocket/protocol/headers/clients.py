# SPDX-License-Identifier: Apache-2.0
"""
Headers of requests that clients make beside messages: their registration, the
members of their group, and the offsets of their queues.
"""

from __future__ import annotations

from txrocket.model import Int32, Int64
from txrocket.protocol.headers.fields import Header

__all__ = [
    "GetConsumerListByGroupRequestHeader",
    "GetEarliestMsgStoretimeRequestHeader",
    "GetEarliestMsgStoretimeResponseHeader",
    "GetMaxOffsetRequestHeader",
    "GetMaxOffsetResponseHeader",
    "GetMinOffsetRequestHeader",
    "GetMinOffsetResponseHeader",
    "NotifyConsumerIdsChangedRequestHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryConsumerOffsetResponseHeader",
    "SearchOffsetRequestHeader",
    "SearchOffsetResponseHeader",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
]


class UnregisterClientRequestHeader(Header):
    """
    UNREGISTER_CLIENT.
    """

    clientID: str
    producerGroup: str | None = None
    consumerGroup: str | None = None


class GetConsumerListByGroupRequestHeader(Header):
    """
    GET_CONSUMER_LIST_BY_GROUP.
    """

    consumerGroup: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    """
    NOTIFY_CONSUMER_IDS_CHANGED: the broker tells a group's members to rebalance.
    """

    consumerGroup: str


class QueryConsumerOffsetRequestHeader(Header):
    """
    QUERY_CONSUMER_OFFSET.
    """

    consumerGroup: str
    topic: str
    queueId: Int32
    bname: str | None = None


class QueryConsumerOffsetResponseHeader(Header):
    """
    The response to QUERY_CONSUMER_OFFSET: the group's committed offset.
    """

    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header):
    """
    UPDATE_CONSUMER_OFFSET.
    """

    consumerGroup: str
    topic: str
    queueId: Int32
    commitOffset: Int64
    bname: str | None = None


class SearchOffsetRequestHeader(Header):
    """
    SEARCH_OFFSET_BY_TIMESTAMP.
    """

    topic: str
    queueId: Int32
    timestamp: Int64
    bname: str | None = None


class SearchOffsetResponseHeader(Header):
    """
    The response to SEARCH_OFFSET_BY_TIMESTAMP.
    """

    offset: Int64


class GetMaxOffsetRequestHeader(Header):
    """
    GET_MAX_OFFSET.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetMaxOffsetResponseHeader(Header):
    """
    The response to GET_MAX_OFFSET: one past the offset of the queue's last message.
    """

    offset: Int64


class GetMinOffsetRequestHeader(Header):
    """
    GET_MIN_OFFSET.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetMinOffsetResponseHeader(Header):
    """
    The response to GET_MIN_OFFSET: the offset of the queue's first message.
    """

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header):
    """
    GET_EARLIEST_MSG_STORETIME.
    """

    topic: str
    queueId: Int32
    bname: str | None = None


class GetEarliestMsgStoretimeResponseHeader(Header):
    """
    The response to GET_EARLIEST_MSG_STORETIME: when the queue's first message was
    stored, in milliseconds.
    """

    timestamp: Int64
