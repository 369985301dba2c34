# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.filters.expressions}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import RemoteSystemError, SubscriptionParseFailed
from txrocket.filters.expressions import ExpressionTypes, MessageFilter, buildSubscription
from txrocket.filters.tags import tagSubscription
from txrocket.model import SubscriptionData


class BuildTests(SynchronousTestCase):
    """
    L{buildSubscription}.
    """

    def test_noTypeMeansTags(self) -> None:
        """
        TAG, and no type at all, means a tag expression.
        """
        for expressionType in ("TAG", None, ""):
            self.assertEqual(
                buildSubscription("T", "a || b", expressionType), tagSubscription("T", "a || b")
            )
        self.assertEqual(buildSubscription("T", None, "TAG"), tagSubscription("T", "*"))

    def test_otherTypeIsNotParsed(self) -> None:
        """
        An expression of another type is stored unchanged, with its type and without tags.
        """
        self.assertEqual(
            buildSubscription("T", "a > 1 || b", "SQL92"),
            SubscriptionData("T", "a > 1 || b", expressionType="SQL92"),
        )

    def test_onlyTagExpressionMayBeEmpty(self) -> None:
        """
        Only a tag expression may be empty.
        """
        for expression in (None, ""):
            error = self.assertRaises(
                SubscriptionParseFailed, buildSubscription, "T", expression, "SQL92"
            )
            self.assertIn("SQL92", error.remark)


class TypesTests(SynchronousTestCase):
    """
    L{ExpressionTypes}.
    """

    def test_tagsAreBuiltIn(self) -> None:
        """
        Tag expressions are evaluated without registration, by their hash alone.
        """
        types = ExpressionTypes()
        self.assertEqual(types.compile(tagSubscription("T", "*")), MessageFilter())
        for subscription in (
            tagSubscription("T", "TagA"),
            SubscriptionData("T", "TagA", codeSet=frozenset({2598919}), expressionType=""),
        ):
            made = types.compile(subscription)
            assert made.matches is not None
            self.assertTrue(made.matches(2598919))
            self.assertFalse(made.matches(2598920))
            self.assertIsNone(made.accepts)

    def test_unknownTypeIsRefused(self) -> None:
        """
        A type that is not registered is refused with SYSTEM_ERROR, as by Java. The error
        names this type and the registered ones.
        """
        subscription = buildSubscription("T", "a > 1", "SQL92")
        error = self.assertRaises(RemoteSystemError, ExpressionTypes().compile, subscription)
        self.assertEqual(
            error.remark,
            "this broker does not filter messages by SQL92, which the subscription to T asks for; "
            "it filters by TAG",
        )

    def test_registeredTypeCompiles(self) -> None:
        """
        A registered type compiles the filters of its subscriptions, at this broker only.
        """
        wanted = MessageFilter(accepts=lambda message: message.reconsumeTimes == 0)
        asked = []

        def compileExpression(subscription: SubscriptionData) -> MessageFilter:
            asked.append(subscription)
            return wanted

        types, others = ExpressionTypes(), ExpressionTypes()
        types.register("FRESH", compileExpression)
        subscription = buildSubscription("T", "yes", "FRESH")
        self.assertIs(types.compile(subscription), wanted)
        self.assertEqual(asked, [subscription])
        self.assertRaises(RemoteSystemError, others.compile, subscription)

    def test_secondRegistrationIsRefused(self) -> None:
        """
        A registered type cannot be replaced.
        """
        types = ExpressionTypes()
        self.assertRaises(ValueError, types.register, "TAG", lambda subscription: MessageFilter())
