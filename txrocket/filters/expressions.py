# SPDX-License-Identifier: Apache-2.0
"""
The types of expressions that a broker evaluates::

    subscription --> expressionType --> Compile --> MessageFilter
                       TAG, None, ""      tags        matches(hash)
                       others             added       matches(hash), accepts(message)

Tags are always there.  Whoever puts a broker together adds others to its table:
a name that subscribers use, and a function that makes a filter of an expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from txrocket.errors import RemoteSystemError, SubscriptionParseFailed
from txrocket.filters.tags import TAG, isTagType, tagMatcher, tagSubscription
from txrocket.message import MessageExt
from txrocket.model import SubscriptionData

__all__ = [
    *("EXPRESSION_LIMIT", "Compile", "ExpressionTypes", "MessageFilter"),
    *("buildSubscription", "checkExpression"),
]

#: How many characters an expression may have: to read so many takes 15 ms.
EXPRESSION_LIMIT: Final = 32 * 1024


@attrs.frozen
class MessageFilter:
    """
    What a message must pass to be given to a subscriber, in the two steps in
    which the store looks at it.  A step that is L{None} lets everything pass.

    @ivar matches: by the hash of its tag, from the consume queue alone.
    @ivar accepts: by all of it but its body, for which the log must be read.
    """

    matches: Callable[[int], bool] | None = None
    accepts: Callable[[MessageExt], bool] | None = None


#: Makes a filter of a subscription's expression, or raises
#: L{SubscriptionParseFailed} with what is wrong with the expression.
Compile: TypeAlias = Callable[[SubscriptionData], MessageFilter]


def checkExpression(topic: str, expression: str | None) -> None:
    """
    Refuse an expression that takes too long to read.

    @raise SubscriptionParseFailed: naming the topic and the limit.
    """
    if expression is not None and len(expression) > EXPRESSION_LIMIT:
        raise SubscriptionParseFailed(
            f"the expression for topic {topic} has {len(expression)} characters:"
            f" the limit is {EXPRESSION_LIMIT}"
        )


def buildSubscription(
    topic: str, expression: str | None, expressionType: str | None
) -> SubscriptionData:
    """
    The subscription that a request describes; C{FilterAPI.build}.  An expression
    that is none of tags is kept as it is.

    @raise SubscriptionParseFailed: if the expression is none.
    """
    if isTagType(expressionType):
        return tagSubscription(topic, expression)
    if not expression:
        raise SubscriptionParseFailed(
            f"an expression of type {expressionType} for topic {topic} must not be empty"
        )
    return SubscriptionData(topic, expression, expressionType=expressionType or TAG)


def _tags(subscription: SubscriptionData) -> MessageFilter:
    return MessageFilter(tagMatcher(subscription))


class ExpressionTypes:
    """
    The types of expressions that one broker evaluates.
    """

    def __init__(self) -> None:
        self._table: dict[str, Compile] = {TAG: _tags}

    def __contains__(self, expressionType: str) -> bool:
        return expressionType in self._table

    def register(self, expressionType: str, compileExpression: Compile) -> None:
        """
        Evaluate expressions of a type from now on.

        @raise ValueError: if there is such a type already.
        """
        if expressionType in self._table:
            raise ValueError(f"expressions of type {expressionType} are evaluated already")
        self._table[expressionType] = compileExpression

    def compile(self, subscription: SubscriptionData) -> MessageFilter:
        """
        The filter that a subscription asks for.

        @raise RemoteSystemError: if the broker does not evaluate such
            expressions, as Java answers.
        @raise SubscriptionParseFailed: if the expression is none.
        """
        compileExpression = self._table.get(subscription.expressionType or TAG)
        if compileExpression is None:
            raise RemoteSystemError(
                f"this broker does not filter messages by {subscription.expressionType}, "
                f"which the subscription to {subscription.topic} asks for; "
                f"it filters by {', '.join(sorted(self._table))}"
            )
        return compileExpression(subscription)
