# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.filters.tags}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import SubscriptionParseFailed
from txrocket.filters.tags import tagMatcher, tagSubscription
from txrocket.model import SubscriptionData
from txrocket.protocol.javahash import tagsCode

tag = st.text(min_size=1).filter(lambda each: "|" not in each and each[0] > " " and each[-1] > " ")


class SubscriptionTests(SynchronousTestCase):
    """
    L{tagSubscription}.
    """

    def test_emptyOrAsteriskMatchesAll(self) -> None:
        """
        L{None}, the empty text and an asterisk match all messages, and have no tags.
        """
        for expression in (None, "", "*"):
            self.assertEqual(
                tagSubscription("T", expression, 7), SubscriptionData("T", "*", subVersion=7)
            )

    def test_tagsAreSplitAndHashed(self) -> None:
        """
        Tags are separated by double bars, with or without spaces. Their codes are Java's
        hashes (C{"TagA".hashCode()} is 2598919), and the expression is kept unchanged.
        """
        for expression in ("TagA||TagB", "TagA || TagB", "\t TagB||\0TagA\n||", "||TagA|| ||TagB"):
            made = tagSubscription("T", expression)
            self.assertEqual(made.subString, expression)
            self.assertEqual(made.tagsSet, {"TagA", "TagB"})
            self.assertEqual(made.codeSet, {2598919, 2598920})
            self.assertEqual(made.expressionType, "TAG")
            self.assertEqual(made.subVersion, 0)
            self.assertFalse(made.classFilterMode)

    def test_singleBarIsPartOfTag(self) -> None:
        """
        A single bar is part of a tag, and of three bars the first two separate.
        """
        self.assertEqual(tagSubscription("T", "a|b").tagsSet, {"a|b"})
        self.assertEqual(tagSubscription("T", "a|||b").tagsSet, {"a", "|b"})

    def test_unicodeSpaceIsNotTrimmed(self) -> None:
        """
        As Java's trim, it keeps a space that only Unicode calls a space.
        """
        self.assertEqual(tagSubscription("T", "\u3000a || b\u00a0").tagsSet, {"\u3000a", "b\u00a0"})

    def test_separatorsAloneAreRefused(self) -> None:
        """
        Separators alone are refused; Java's split returns nothing for them.
        """
        for expression in ("||", "||||"):
            error = self.assertRaises(SubscriptionParseFailed, tagSubscription, "T", expression)
            self.assertIn(expression, error.remark)

    def test_spacesBetweenSeparatorsMatchNothing(self) -> None:
        """
        Spaces between separators are an expression without tags, which matches no
        message.
        """
        for expression in (" ", " || ", "|| "):
            made = tagSubscription("T", expression)
            self.assertEqual(made.tagsSet, set())
            matches = tagMatcher(made)
            assert matches is not None
            self.assertFalse(matches(0))

    @given(st.sets(tag, min_size=1))
    def test_joinedTagsAreSplit(self, tags: set[str]) -> None:
        """
        Tags that are joined with double bars are split into the same tags.
        """
        if tags != {"*"}:
            made = tagSubscription("T", " || ".join(tags))
            self.assertEqual(made.tagsSet, tags)
            self.assertEqual(made.codeSet, {tagsCode(each) for each in tags})


class MatcherTests(SynchronousTestCase):
    """
    L{tagMatcher}.
    """

    def test_matchAllNeedsNoFunction(self) -> None:
        """
        If all messages match, there is no function.
        """
        self.assertIsNone(tagMatcher(tagSubscription("T", "*")))
        self.assertIsNone(tagMatcher(SubscriptionData("T", "a", classFilterMode=True)))

    def test_hashDecides(self) -> None:
        """
        A message matches if the hash of its tag is one of the subscription's; without a
        tag the hash is 0.
        """
        matches = tagMatcher(tagSubscription("T", "TagA || TagB"))
        assert matches is not None
        self.assertEqual(
            [matches(code) for code in (2598919, 2598920, 2598921, 0)], [True, True, False, False]
        )

    def test_extensionAddressMatches(self) -> None:
        """
        If Java's broker stored the hash in an extension (C{enableConsumeQueueExt}), the
        queue has an address below all hashes. The message matches, and the client
        compares the tag itself.
        """
        matches = tagMatcher(tagSubscription("T", "TagA"))
        assert matches is not None
        for address, matching in (
            *((-(2**63), True), (-(2**63) + 48, True), (-(2**31) - 1, True)),
            *((-(2**31), False), (-1, False), (2**63 - 1, False)),
        ):
            self.assertIs(matches(address), matching)

    def test_clientsCodesDecide(self) -> None:
        """
        The codes that a client sent decide, not the text of its expression.
        """
        matches = tagMatcher(SubscriptionData("T", "a", codeSet=frozenset({5})))
        assert matches is not None
        self.assertTrue(matches(5))
        self.assertFalse(matches(tagsCode("a")))
