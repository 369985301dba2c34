# SPDX-License-Identifier: Apache-2.0
"""
What our brokers tell beyond RocketMQ: the bodies of the codes of
L{InspectCode<txrocket.protocol.codes.InspectCode>}, and what is added to one of
RocketMQ's::

    INSPECT_LOCKS          --> LockList
    INSPECT_HALVES         --> HalfList
    INSPECT_SUBSCRIPTIONS  --> DifferingGroupList

All are JSON.  Times are milliseconds.  A list holds so much and no more; C{more} says
how much was left off.
"""

from __future__ import annotations

import msgspec

from txrocket.model import Int32, Int64, MessageQueue
from txrocket.protocol.bodies import ConsumerConnection
from txrocket.protocol.fields import Header

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

    @ivar group: the one consumer group that is meant, if not all are.
    """

    group: str | None = None


class InspectHalvesRequestHeader(Header):
    """
    INSPECT_HALVES.

    @ivar offset: where in the queue of the halves to begin: one past the last of an
        answer has the answer go on.
    """

    offset: Int64 = 0


class HeldLock(msgspec.Struct, frozen=True):
    """
    A queue that a consumer has for itself.

    @ivar held: for how long it has had the lock.
    @ivar silent: for how long it has not asked for it again; at 60,000 it has it no
        more.
    """

    group: str
    queue: MessageQueue
    clientId: str
    held: Int64
    silent: Int64


class LockList(msgspec.Struct, frozen=True):
    """
    The answer to INSPECT_LOCKS.
    """

    locks: tuple[HeldLock, ...] = ()
    more: Int32 = 0


class PendingHalf(msgspec.Struct, frozen=True):
    """
    Half of a transaction that is not decided.

    @ivar queueOffset: in the queue of the halves.
    @ivar msgId: its producer's id of it.
    @ivar offsetMsgId: the broker's, by which it can be looked up.
    @ivar topic: where it goes if it is committed.
    @ivar group: whose producers are asked about it.
    @ivar checks: how often they were.
    @ivar age: since it was born.
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
    The answer to INSPECT_HALVES.

    @ivar more: whether there may be others.
    """

    halves: tuple[PendingHalf, ...] = ()
    more: bool = False


class SubscriptionView(msgspec.Struct, frozen=True):
    """
    What some members of a group want of a topic.

    @ivar expression: as they said it, or its beginning; absent if they do not
        subscribe to the topic.
    @ivar expressionType: C{TAG} or C{SQL92}.
    @ivar members: how many they are.
    @ivar clientIds: the first of them.
    """

    expression: str | None = None
    expressionType: str | None = None
    members: Int32 = 0
    clientIds: tuple[str, ...] = ()


class SubscriptionDifference(msgspec.Struct, frozen=True):
    """
    A topic that the members of a group do not agree about.
    """

    topic: str
    views: tuple[SubscriptionView, ...] = ()


class DifferingGroup(msgspec.Struct, frozen=True):
    """
    A consumer group whose members have different subscriptions.

    @ivar since: when that was noticed.
    @ivar members: how many there are.
    @ivar more: how many topics were left off.
    """

    group: str
    since: Int64
    members: Int32
    differences: tuple[SubscriptionDifference, ...] = ()
    more: Int32 = 0


class DifferingGroupList(msgspec.Struct, frozen=True):
    """
    The answer to INSPECT_SUBSCRIPTIONS.
    """

    groups: tuple[DifferingGroup, ...] = ()
    more: Int32 = 0


class DifferingConsumerConnection(ConsumerConnection, frozen=True):
    """
    What GET_CONSUMER_CONNECTION_LIST tells of such a group; Java's tools pass over what
    they do not know.

    @ivar differences: what its members do not agree about.
    """

    differences: tuple[SubscriptionDifference, ...] = ()
