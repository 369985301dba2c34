# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.pull.subscriptions}: what a pull wants.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.peers import Connected, consumer
from tests.processors.support import BROUGHT, pullHeader
from tests.store.support import Disk, atOnce
from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.settings import GroupSettings, PullSettings
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.savedtable import TableFile
from txrocket.config import Live
from txrocket.errors import (
    NoPermission,
    RemoteSystemError,
    ResponseError,
    SubscriptionGroupNotExist,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
)
from txrocket.filters.expressions import ExpressionTypes, MessageFilter
from txrocket.filters.tags import tagSubscription
from txrocket.message import MessageExt
from txrocket.model import MessageModel, SubscriptionData, SubscriptionGroupConfig
from txrocket.protocol.bodies import ConsumerData
from txrocket.protocol.headers import PullMessageRequestHeader
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record.fields import encodeProperties
from txrocket.store.jsontable import Table


def message(**properties: str) -> MessageExt:
    """
    A message with properties.
    """
    data = encodeProperties(properties)
    return MessageExt("T", b"", 0, data, 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0)


class SubscriptionsTests(SynchronousTestCase):
    """
    L{Subscriptions}.
    """

    def setUp(self) -> None:
        """
        Have a group of one consumer that subscribes to T.
        """
        table = Table(Disk(), f"{self.mktemp()}/config/subscriptionGroup.json")
        self.groupSettings = Live(GroupSettings())
        self.settings = Live(PullSettings())
        self.groups = Groups(TableFile(table, atOnce), self.groupSettings, lambda: 0)
        self.consumers = Consumers(Clock(), lambda group: True)
        self.compiled: list[SubscriptionData] = []
        self.types = ExpressionTypes()
        self.types.register("OWN", self.compile)
        self.former: dict[tuple[str, str], SubscriptionData] = {}
        self.subscriptions = Subscriptions(
            self.groups,
            self.consumers,
            self.types,
            self.settings,
            lambda group, topic: self.former.get((group, topic)),
        )
        self.config = SubscriptionGroupConfig("G")

    def compile(self, subscription: SubscriptionData) -> MessageFilter:
        """
        Make a filter of a type of the tests' own.
        """
        if subscription.subString == "bad":
            raise SubscriptionParseFailed("bad expression")
        self.compiled.append(subscription)
        return MessageFilter(
            accepts=lambda message: message.properties.get("a") == subscription.subString
        )

    def heartbeat(self, data: ConsumerData) -> None:
        """
        A consumer tells of itself.
        """
        self.consumers.register(data, Connected().client("c"), 0)

    def wanted(self, header: PullMessageRequestHeader) -> MessageFilter:
        """
        What a pull wants.
        """
        return self.subscriptions.wanted(header, self.config)

    def assertFails(
        self, header: PullMessageRequestHeader, error: type[ResponseError], words: str
    ) -> None:
        """
        The subscription of a pull is refused with this error.
        """
        self.assertIn(words, str(self.assertRaises(error, self.wanted, header)))

    def registered(self, **changes: Any) -> PullMessageRequestHeader:
        """
        A pull that means the subscription of its group's heartbeats.
        """
        return pullHeader(**{"sysFlag": 0, "subscription": None, "subVersion": 5, **changes})

    # --- groups ------------------------------------------------------------

    def test_firstPullCreatesGroup(self) -> None:
        """
        A group is made by its first pull, and then it is the one that is there.
        """
        made = self.subscriptions.group("new")
        self.assertEqual(made, SubscriptionGroupConfig("new"))
        self.assertIs(self.subscriptions.group("new"), made)

    def test_disabledCreationRefusesGroup(self) -> None:
        """
        A group is not created where that is disabled, except those of the broker itself.
        """
        self.groupSettings.now = GroupSettings(autoCreateSubscriptionGroup=False)
        error = self.assertRaises(SubscriptionGroupNotExist, self.subscriptions.group, "new")
        self.assertIn("autoCreateSubscriptionGroup is false", str(error))
        self.assertEqual(self.subscriptions.group("CID_RMQ_SYS_X").groupName, "CID_RMQ_SYS_X")

    def test_disabledGroupIsRefused(self) -> None:
        """
        A group that may not consume may not pull.
        """
        self.groups.put(SubscriptionGroupConfig("G", consumeEnable=False))
        error = self.assertRaises(NoPermission, self.subscriptions.group, "G")
        self.assertIn("consumeEnable is false", str(error))

    # --- subscriptions that are brought along -------------------------------

    def test_starMatchesEverything(self) -> None:
        """
        Every message is wanted by C{*}, by an empty expression and by none.
        """
        for expression in ("*", "", None):
            for kind in ("TAG", "", None):
                wanted = self.wanted(pullHeader(subscription=expression, expressionType=kind))
                self.assertEqual((wanted.matches, wanted.accepts), (None, None))

    def test_tagsAreComparedByHash(self) -> None:
        """
        Tags are compared by Java's hash.
        """
        wanted = self.wanted(pullHeader(subscription="a || bb"))
        assert wanted.matches is not None
        self.assertTrue(wanted.matches(tagsCode("a")))
        self.assertTrue(wanted.matches(tagsCode("bb")))
        self.assertFalse(wanted.matches(tagsCode("c")))
        self.assertFalse(wanted.matches(0))

    def test_invalidExpressionIsParseFailed(self) -> None:
        """
        An invalid expression is SUBSCRIPTION_PARSE_FAILED.
        """
        self.assertFails(pullHeader(subscription="||"), SubscriptionParseFailed, "has no tags")

    def test_heartbeatNotNeeded(self) -> None:
        """
        One that brings its subscription along needs no heartbeat, and a broadcast
        that is forbidden does not concern it, as in Java.
        """
        self.config = replace(self.config, consumeBroadcastEnable=False)
        self.heartbeat(replace(consumer("G"), messageModel=MessageModel.BROADCASTING))
        self.assertIsNone(self.wanted(pullHeader(sysFlag=BROUGHT)).matches)

    def test_expressionIsCompiledOnce(self) -> None:
        """
        An expression is compiled once for all pulls that bring it.
        """
        self.settings.now = PullSettings(enablePropertyFilter=True)
        header = pullHeader(subscription="x > 1", expressionType="OWN")
        first = self.wanted(header)
        self.assertIs(self.wanted(header), first)
        self.assertEqual(len(self.compiled), 1)
        self.wanted(pullHeader(subscription="x > 2", expressionType="OWN"))
        self.assertEqual([each.subString for each in self.compiled], ["x > 1", "x > 2"])

    def test_longIsNotKept(self) -> None:
        """
        An expression as long as SQL92 may be is kept compiled; what is longer is not,
        whichever field it is in, so that pulls cannot fill the memory with it.
        """
        self.settings.now = PullSettings(enablePropertyFilter=True)
        for size, compiled in ((16_000, 1), (17_000, 3)):
            for _ in range(2):
                self.wanted(pullHeader(subscription="x" * size, expressionType="OWN"))
            self.assertEqual(len(self.compiled), compiled)
        tags = frozenset({"y" * 17_000})
        subscription = SubscriptionData("T", "z", tagsSet=tags, expressionType="OWN")
        for _ in range(2):
            self.subscriptions.filterOf(subscription)
        self.assertEqual(len(self.compiled), 5)

    def test_invalidExpressionIsRefusedEachTime(self) -> None:
        """
        One that cannot be compiled is told so each time.
        """
        self.settings.now = PullSettings(enablePropertyFilter=True)
        for _ in range(2):
            header = pullHeader(subscription="bad", expressionType="OWN")
            self.assertFails(header, SubscriptionParseFailed, "bad expression")

    def test_disabledFilterIsRefused(self) -> None:
        """
        Filters other than tags must be enabled, and exist.
        """
        header = pullHeader(subscription="x > 1", expressionType="OWN")
        self.assertFails(header, RemoteSystemError, "enablePropertyFilter is false")
        self.settings.now = PullSettings(enablePropertyFilter=True)
        header = pullHeader(subscription="x > 1", expressionType="SQL92")
        self.assertFails(header, RemoteSystemError, "does not filter messages by SQL92")

    # --- subscriptions of heartbeats ----------------------------------------

    def test_heartbeatsSubscriptionCounts(self) -> None:
        """
        The subscription of the group's heartbeats counts, whatever the pull says
        it is.
        """
        data = consumer("G")
        subscribed = frozenset({tagSubscription("T", "a", 5)})
        self.heartbeat(replace(data, subscriptionDataSet=subscribed))
        wanted = self.wanted(self.registered(subscription="b"))
        assert wanted.matches is not None
        self.assertTrue(wanted.matches(tagsCode("a")))
        self.assertFalse(wanted.matches(tagsCode("b")))

    def test_missingHeartbeatIsRefused(self) -> None:
        """
        Without a heartbeat the group's subscription is not known.
        """
        self.assertFails(self.registered(), SubscriptionNotExist, "before its first heartbeat")

    def test_unsubscribedTopicIsRefused(self) -> None:
        """
        A group that does not subscribe to the topic is refused.
        """
        self.heartbeat(consumer("G", "U"))
        self.assertFails(self.registered(), SubscriptionNotExist, "does not subscribe to T")

    def test_olderHeartbeatIsRefused(self) -> None:
        """
        A heartbeat that is older than the pull's subscription does not tell what
        it wants; one that is as old or newer does.
        """
        self.heartbeat(consumer("G", "T", version=5))
        self.assertFails(self.registered(subVersion=6), SubscriptionNotLatest, "last heartbeat")
        for version in (5, 4):
            self.assertIsNone(self.wanted(self.registered(subVersion=version)).matches)

    def test_forbiddenBroadcastIsRefused(self) -> None:
        """
        A group that may not broadcast gets nothing while it does.
        """
        self.config = replace(self.config, consumeBroadcastEnable=False)
        data = consumer("G", "T", version=5)
        self.heartbeat(replace(data, messageModel=MessageModel.BROADCASTING))
        self.assertFails(self.registered(), NoPermission, "consumeBroadcastEnable is false")
        self.heartbeat(data)
        self.assertIsNone(self.wanted(self.registered()).matches)

    def test_registeredNotEnabled(self) -> None:
        """
        Filters other than tags must be enabled here as well.
        """
        subscription = SubscriptionData("T", "x > 1", subVersion=5, expressionType="OWN")
        data = replace(consumer("G"), subscriptionDataSet=frozenset({subscription}))
        self.heartbeat(data)
        self.assertFails(self.registered(), RemoteSystemError, "enablePropertyFilter is false")
        self.settings.now = PullSettings(enablePropertyFilter=True)
        self.assertIsNotNone(self.wanted(self.registered()).accepts)

    def test_newerHeartbeatChangesFilter(self) -> None:
        """
        A newer heartbeat changes what is wanted.
        """
        for version, tag in ((5, "a"), (6, "b")):
            subscribed = frozenset({tagSubscription("T", tag, version)})
            self.heartbeat(replace(consumer("G"), subscriptionDataSet=subscribed))
            matches = self.wanted(self.registered()).matches
            assert matches is not None
            self.assertEqual([matches(tagsCode(each)) for each in "ab"], [tag == "a", tag == "b"])

    # --- retried messages ---------------------------------------------------

    def wantsAgain(self, **properties: str) -> bool | None:
        """
        Whether a pull of G's retried messages wants one with these properties, or
        L{None} if it does not look at them.
        """
        header = self.registered(topic="%RETRY%G")
        accepts = self.wanted(header).accepts
        return None if accepts is None else accepts(message(**properties))

    def retries(self, *subscriptions: SubscriptionData) -> None:
        """
        Let G subscribe to its retry topic, as consumers do, and to others.
        """
        subscribed = frozenset({tagSubscription("%RETRY%G", "*", 5), *subscriptions})
        self.heartbeat(replace(consumer("G"), subscriptionDataSet=subscribed))

    def test_retryTopicIgnoresExpression(self) -> None:
        """
        All retried messages of a group are wanted, whatever its expressions for their
        topics.
        """
        self.retries(SubscriptionData("T", "5", expressionType="OWN"))
        self.assertIsNone(self.wantsAgain(RETRY_TOPIC="T"))

    def test_filterSupportRetryUsesExpression(self) -> None:
        """
        With C{filterSupportRetry} the group's expressions for their topics decide; tags and
        unknown topics do not, as in Java.
        """
        self.settings.now = PullSettings(enablePropertyFilter=True, filterSupportRetry=True)
        self.retries(
            SubscriptionData("T", "5", expressionType="OWN"),
            SubscriptionData("U", "bad", expressionType="OWN"),
            SubscriptionData("V", "5", expressionType="OTHER"),
            tagSubscription("W", "5"),
        )
        self.assertTrue(self.wantsAgain(RETRY_TOPIC="T", a="5"))
        self.assertFalse(self.wantsAgain(RETRY_TOPIC="T", a="6"))
        for topic in "UVWX":
            self.assertTrue(self.wantsAgain(RETRY_TOPIC=topic, a="6"))
        self.assertTrue(self.wantsAgain(a="6"))

    def test_formerExpressionDecidesForLeftTopic(self) -> None:
        """
        For a topic that the group has left, its former expression decides, as long as it is
        known.
        """
        self.settings.now = PullSettings(enablePropertyFilter=True, filterSupportRetry=True)
        self.retries()
        self.assertTrue(self.wantsAgain(RETRY_TOPIC="T", a="6"))
        self.former["G", "T"] = SubscriptionData("T", "5", expressionType="OWN")
        self.assertFalse(self.wantsAgain(RETRY_TOPIC="T", a="6"))
        self.assertTrue(self.wantsAgain(RETRY_TOPIC="T", a="5"))

    def test_tagsReplaceFormerExpression(self) -> None:
        """
        A former expression does not count for a topic that the group selects by tags now.
        """
        self.settings.now = PullSettings(filterSupportRetry=True)
        self.retries(tagSubscription("T", "x", 5))
        self.former["G", "T"] = SubscriptionData("T", "5", expressionType="OWN")
        self.assertTrue(self.wantsAgain(RETRY_TOPIC="T", a="6"))

    def test_filterSupportRetryIsForRetryTopics(self) -> None:
        """
        C{filterSupportRetry} is about retry topics only.
        """
        self.settings.now = PullSettings(filterSupportRetry=True)
        self.heartbeat(consumer("G", "T", version=5))
        self.assertIsNone(self.wanted(self.registered()).accepts)
