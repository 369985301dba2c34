# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.model}.
"""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import (
    BrokerData,
    ConsumeFromWhere,
    ConsumeType,
    DataVersion,
    MessageModel,
    MessageQueue,
    PlainAccessConfig,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicFilterType,
    TopicRouteData,
)

VALUES: tuple[type[msgspec.Struct], ...] = (
    BrokerData,
    DataVersion,
    MessageQueue,
    PlainAccessConfig,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
)


class MessageQueueTests(SynchronousTestCase):
    """
    Tests for L{MessageQueue}.
    """

    def test_queuesAreOrderedAsInJava(self) -> None:
        """
        Queues are ordered by topic, then broker name, then queue id as a number.
        """
        ordered = [
            MessageQueue("A", "b", 10),
            MessageQueue("T", "a", 2),
            MessageQueue("T", "a", 10),
            MessageQueue("T", "b", 0),
            MessageQueue("a", "a", 0),
        ]
        shuffled = [ordered[at] for at in (3, 0, 4, 2, 1)]
        self.assertEqual(sorted(shuffled), ordered)

    def test_equalQueuesAreOneKey(self) -> None:
        """
        Equal queues are one key, different ones are not.
        """
        table = {MessageQueue("t", "b", 1): 1, MessageQueue("t", "b", 2): 2}
        self.assertEqual(table[MessageQueue("t", "b", 2)], 2)
        self.assertEqual(len({*table, MessageQueue("t", "b", 1)}), 2)


class DefaultTests(SynchronousTestCase):
    """
    The defaults are those of Java's classes.
    """

    def test_topicConfigHasJavasDefaults(self) -> None:
        """
        A topic has 16 queues to read and to write, and both permissions.
        """
        topic = TopicConfig("t")
        self.assertEqual((topic.readQueueNums, topic.writeQueueNums, topic.perm), (16, 16, 6))
        self.assertIs(topic.topicFilterType, TopicFilterType.SINGLE_TAG)
        self.assertEqual((topic.topicSysFlag, topic.order), (0, False))

    def test_groupConfigHasJavasDefaults(self) -> None:
        """
        A group has all permissions, retries 16 times in one queue, and pulls from broker
        1 when it is slow.
        """
        group = SubscriptionGroupConfig("g")
        self.assertTrue(group.consumeEnable)
        self.assertTrue(group.consumeFromMinEnable)
        self.assertTrue(group.consumeBroadcastEnable)
        self.assertTrue(group.notifyConsumerIdsChangedEnable)
        self.assertEqual((group.retryQueueNums, group.retryMaxTimes), (1, 16))
        self.assertEqual((group.brokerId, group.whichBrokerWhenConsumeSlowly), (0, 1))

    def test_subscriptionMatchesAllByDefault(self) -> None:
        """
        A subscription matches all tags.
        """
        subscription = SubscriptionData("t")
        self.assertEqual((subscription.subString, subscription.expressionType), ("*", "TAG"))
        self.assertEqual((subscription.tagsSet, subscription.codeSet), (frozenset(), frozenset()))

    def test_timesAreZeroByDefault(self) -> None:
        """
        No value reads a clock.
        """
        self.assertEqual(DataVersion(), DataVersion(timestamp=0, counter=0))
        self.assertEqual(SubscriptionData("t").subVersion, 0)


class ShapeTests(SynchronousTestCase):
    """
    Properties of all values.
    """

    def test_valuesAreFrozen(self) -> None:
        """
        No value can be changed in place.
        """
        for value in VALUES:
            self.assertTrue(value.__struct_config__.frozen, value)

    def test_subscriptionIsHashable(self) -> None:
        """
        Subscriptions can be in sets, and are equal with the same tags in any order.
        """
        one = SubscriptionData("t", "A||B", tagsSet=frozenset("AB"))
        other = SubscriptionData("t", "A||B", tagsSet=frozenset("BA"))
        self.assertEqual(len({one, other}), 1)

    def test_enumsHaveJavasOrder(self) -> None:
        """
        Enum members have Java's order, because some clients send ordinals.
        """
        self.assertEqual(
            [each.name for each in ConsumeType], ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY"]
        )
        self.assertEqual([each.name for each in MessageModel], ["BROADCASTING", "CLUSTERING"])
        self.assertEqual(
            [each.name for each in ConsumeFromWhere],
            [
                "CONSUME_FROM_LAST_OFFSET",
                "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
                "CONSUME_FROM_MIN_OFFSET",
                "CONSUME_FROM_MAX_OFFSET",
                "CONSUME_FROM_FIRST_OFFSET",
                "CONSUME_FROM_TIMESTAMP",
            ],
        )
        self.assertEqual([each.name for each in TopicFilterType], ["SINGLE_TAG", "MULTI_TAG"])
