# SPDX-License-Identifier: Apache-2.0
"""
The bodies of txrocket's own request codes,
L{InspectCode<txrocket.protocol.codes.InspectCode>}, and one body of RocketMQ with an
additional member::

    INSPECT_LOCKS          --> LockList
    INSPECT_HALVES         --> HalfList
    INSPECT_SUBSCRIPTIONS  --> DifferingGroupList

All are JSON.  Times are milliseconds.  The length of each list is limited; C{more}
holds the number of entries that did not fit.
"""

from __future__ import annotations

import msgspec

from txrocket.model import Int32, Int64, MessageQueue
from txrocket.protocol.bodies.clients import ConsumerConnection
from txrocket.protocol.headers.fields import Header

__all__ = [
    "DifferingConsumerConnection",
    "DifferingGroup",
    "DifferingGroupList",
    "HalfList",
    "HeldLock",
    "InspectHalvesRequestHeader",
    "InspectRequestHeader",
    "LockList",
    "PendingHalf",
    "SubscriptionDifference",
    "SubscriptionView",
]


class InspectRequestHeader(Header):
    """
    INSPECT_LOCKS and INSPECT_SUBSCRIPTIONS.

    @ivar group: a consumer group; L{None} for all groups.
    """

    group: str | None = None


class InspectHalvesRequestHeader(Header):
    """
    INSPECT_HALVES.

    @ivar offset: where in the queue of half messages to begin.  To continue after a
        response, give one past the offset of its last half message.
    """

    offset: Int64 = 0


class HeldLock(msgspec.Struct, frozen=True):
    """
    A queue that a consumer has locked.

    @ivar held: time since the consumer got the lock.
    @ivar silent: time since the consumer last renewed the lock; at 60,000 it expires.
    """

    group: str
    queue: MessageQueue
    clientId: str
    held: Int64
    silent: Int64


class LockList(msgspec.Struct, frozen=True):
    """
    The response to INSPECT_LOCKS.
    """

    locks: tuple[HeldLock, ...] = ()
    more: Int32 = 0


class PendingHalf(msgspec.Struct, frozen=True):
    """
    A half message that is neither committed nor rolled back.

    @ivar queueOffset: its offset in the queue of half messages.
    @ivar msgId: the message id that its producer gave.
    @ivar offsetMsgId: the message id that the broker gave, for VIEW_MESSAGE_BY_ID.
    @ivar topic: the topic to which it is delivered if it is committed.
    @ivar group: the producer group that the broker asks for its state.
    @ivar checks: the number of checks so far.
    @ivar age: time since its C{bornTimestamp}.
    """

    queueOffset: Int64
    msgId: str
    offsetMsgId: str
    topic: str
    group: str
    bornTimestamp: Int64
    checks: Int32
    age: Int64


class HalfList(msgspec.Struct, frozen=True):
    """
    The response to INSPECT_HALVES.

    @ivar more: whether there may be more half messages.
    """

    halves: tuple[PendingHalf, ...] = ()
    more: bool = False


class SubscriptionView(msgspec.Struct, frozen=True):
    """
    A subscription to a topic that some members of a group share.

    @ivar expression: the filter expression, possibly truncated; absent if these members
        do not subscribe to the topic.
    @ivar expressionType: C{TAG} or C{SQL92}.
    @ivar members: the number of these members.
    @ivar clientIds: the ids of the first of them.
    """

    expression: str | None = None
    expressionType: str | None = None
    members: Int32 = 0
    clientIds: tuple[str, ...] = ()


class SubscriptionDifference(msgspec.Struct, frozen=True):
    """
    A topic for which the members of a group have different subscriptions.
    """

    topic: str
    views: tuple[SubscriptionView, ...] = ()


class DifferingGroup(msgspec.Struct, frozen=True):
    """
    A consumer group whose members have different subscriptions.

    @ivar since: when the broker first noticed the difference.
    @ivar members: the number of members.
    @ivar more: the number of topics that did not fit.
    """

    group: str
    since: Int64
    members: Int32
    differences: tuple[SubscriptionDifference, ...] = ()
    more: Int32 = 0


class DifferingGroupList(msgspec.Struct, frozen=True):
    """
    The response to INSPECT_SUBSCRIPTIONS.
    """

    groups: tuple[DifferingGroup, ...] = ()
    more: Int32 = 0


class DifferingConsumerConnection(ConsumerConnection, frozen=True):
    """
    The response to GET_CONSUMER_CONNECTION_LIST for a group whose members have different
    subscriptions.  Java's tools ignore the additional member.

    @ivar differences: the topics for which the members' subscriptions differ.
    """

    differences: tuple[SubscriptionDifference, ...] = ()
