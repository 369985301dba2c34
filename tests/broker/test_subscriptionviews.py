# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.clients.subscriptionviews}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.clients.subscriptionviews import SubscriptionViews, describe
from txrocket.model import SubscriptionData
from txrocket.protocol.bodies.inspect import SubscriptionDifference, SubscriptionView


def wants(*expressions: str, kind: str = "TAG", version: int = 0) -> list[SubscriptionData]:
    """
    Subscriptions, each as C{topic=expression}.
    """
    split = [each.partition("=") for each in expressions]
    return [
        SubscriptionData(topic, text, subVersion=version, expressionType=kind)
        for topic, _, text in split
    ]


class ViewsTests(SynchronousTestCase):
    """
    L{SubscriptionViews}.
    """

    def setUp(self) -> None:
        self.views = SubscriptionViews()

    def test_sameSubscriptionsShareAView(self) -> None:
        """
        Members that say the same do not differ, and what they say is kept once.
        """
        self.assertTrue(self.views.say("a", wants("T=x", "U=*")))
        self.assertFalse(self.views.say("b", wants("U=*", "T=x")))
        self.assertFalse(self.views.say("a", wants("T=x", "U=*")))
        self.assertFalse(self.views.differ)
        self.assertEqual(self.views.differences(), [])
        self.assertIs(self.views._of["a"], self.views._of["b"])

    def test_orderOfTagsDoesNotMatter(self) -> None:
        """
        Tags are the same in any order and with any spaces; nothing at all is
        everything; and a newer subscription to the same is no other.
        """
        for one, other in (("T=a||b", "T= b || a||"), ("T=*", "T="), ("T=a", "T= a ")):
            views = SubscriptionViews()
            views.say("a", wants(one))
            views.say("b", wants(other, version=9))
            self.assertFalse(views.differ, (one, other))

    def test_otherExpressionDiffers(self) -> None:
        """
        Another expression is a difference, and so is another type of it, and of
        other types every character counts.
        """
        for one, other in (
            (wants("T=a"), wants("T=b")),
            (wants("T=a"), wants("T=a || b")),
            (wants("T=a"), wants("T=a", kind="SQL92")),
            (wants("T=a  > 1", kind="SQL92"), wants("T=a > 1", kind="SQL92")),
        ):
            views = SubscriptionViews()
            views.say("a", one)
            self.assertTrue(views.say("b", other))
            self.assertTrue(views.differ)

    def test_untypedExpressionIsTags(self) -> None:
        """
        An expression without a type is one of tags.
        """
        self.views.say("a", wants("T=x", kind=""))
        self.views.say("b", wants("T=x"))
        self.assertFalse(self.views.differ)

    def test_differencesNameMembers(self) -> None:
        """
        For each topic with different subscriptions these are listed with their members, and
        the members without one.
        """
        self.views.say("a", wants("T=x", "U=*", "V=1"))
        self.views.say("b", wants("T=x", "U=*", "V=1"))
        self.views.say("c", wants("T=y", "V=1"))
        self.assertEqual(
            self.views.differences(),
            [
                SubscriptionDifference(
                    "T",
                    (
                        SubscriptionView("x", "TAG", 2, ("a", "b")),
                        SubscriptionView("y", "TAG", 1, ("c",)),
                    ),
                ),
                SubscriptionDifference(
                    "U",
                    (
                        SubscriptionView("*", "TAG", 2, ("a", "b")),
                        SubscriptionView(None, None, 1, ("c",)),
                    ),
                ),
            ],
        )

    def test_changedViewsAreReported(self) -> None:
        """
        A view is reported when the first member has it, and when the last has it no more;
        not for one more or one less.
        """
        self.views.say("a", wants("T=x"))
        self.views.say("b", wants("T=x"))
        self.assertTrue(self.views.say("a", wants("T=y")))
        self.assertFalse(self.views.say("c", wants("T=y")))
        self.assertTrue(self.views.say("b", wants("T=y")))
        self.assertFalse(self.views.differ)
        self.assertFalse(self.views.forget("b"))
        self.assertFalse(self.views.forget("never"))
        self.assertTrue(self.views.say("a", wants()))
        self.assertTrue(self.views.forget("a"))
        self.assertTrue(self.views.forget("c"))
        self.assertEqual((self.views._of, self.views._members), ({}, {}))

    def test_newerDuplicateCounts(self) -> None:
        """
        Where one heartbeat has a topic twice, the newer counts, in either order.
        """
        older, newer = wants("T=x", version=1), wants("T=y", version=2)
        self.views.say("a", older + newer)
        self.views.say("b", newer + older)
        self.views.say("c", newer)
        self.assertFalse(self.views.differ)

    def test_longExpressionIsShortened(self) -> None:
        """
        Little is kept of a long expression or name; still a difference at its end
        shows.
        """
        long = "x" * 100_000
        self.views.say("a", wants(f"T={long}1", f"{long}=*"))
        self.views.say("b", wants(f"T={long}2", f"{long}=*"))
        self.assertTrue(self.views.differ)
        kept = [text for view in self.views._members for entry in view for text in entry]
        self.assertLess(max(map(len, kept)), 300)
        [difference] = self.views.differences()
        self.assertEqual(difference.topic, "T")

    def test_manyTopicsAreDigested(self) -> None:
        """
        Nor of very many topics; still a difference in the last of them shows.
        """
        topics = [f"T{number:05}=*" for number in range(5000)]
        self.views.say("a", wants(*topics))
        self.views.say("b", wants(*topics[:-1]))
        self.assertTrue(self.views.differ)
        self.assertEqual({len(view) for view in self.views._members}, {1025})
        self.assertEqual(len(self.views.differences()), 1)

    def test_manyMembersAreCounted(self) -> None:
        """
        Of many members the first are named, and all are counted; of very many views some
        are compared.
        """
        for number in range(50):
            self.views.say(f"a{number}", wants("T=x"))
        self.views.say("b", wants("T=y"))
        [difference] = self.views.differences()
        self.assertEqual([each.members for each in difference.views], [50, 1])
        self.assertEqual(difference.views[0].clientIds, ("a0", "a1", "a2", "a3", "a4"))
        for number in range(100):
            self.views.say(f"c{number}", wants(f"T={number}"))
        [difference] = self.views.differences()
        self.assertEqual(len(difference.views), 16)


class DescribeTests(SynchronousTestCase):
    """
    L{describe}.
    """

    def test_differencesAreNamed(self) -> None:
        """
        Topics, expressions and members are named.
        """
        views = SubscriptionViews()
        views.say("a", wants("T=x", "U=*"))
        views.say("b", wants("T=n > 1", kind="SQL92"))
        self.assertEqual(
            describe(views.differences()),
            "T: 'x' by a; SQL92 'n > 1' by b. U: '*' by a; not at all by b",
        )

    def test_manyDifferencesAreShortened(self) -> None:
        """
        Not all of them, if they are many.
        """
        views = SubscriptionViews()
        for number in range(7):
            views.say(f"a{number}", wants(*(f"T{each}=x" for each in range(8))))
        views.say("b", [])
        said = describe(views.differences())
        self.assertIn("T4: 'x' by a0, a1, a2, a3, a4 and 2 more; not at all by b", said)
        self.assertNotIn("T5", said)
        self.assertTrue(said.endswith(". and 3 topics more"))
