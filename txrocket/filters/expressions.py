# SPDX-License-Identifier: Apache-2.0
"""
The table of expression types that a broker evaluates::

    subscription --> expressionType --> Compile --> MessageFilter
                       TAG, None, ""      tags          matches(hash)
                       others             registered    matches(hash), accepts(message)

The type TAG is built in.  L{txrocket.services} registers others: a name for
subscriptions, and a function that compiles an expression to a filter.
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

#: The maximum length of an expression, because the broker parses it in one turn.
EXPRESSION_LIMIT: Final = 32 * 1024


@attrs.frozen
class MessageFilter:
    """
    The two tests of a subscription's filter.  A message is delivered if it passes both; a
    test that is L{None} passes every message.

    @ivar matches: tests the hash of the tag, which the consume queue holds.
    @ivar accepts: tests the message without its body, which is read from the commit log.
    """

    matches: Callable[[int], bool] | None = None
    accepts: Callable[[MessageExt], bool] | None = None


#: Compiles a subscription's expression to a filter, or raises
#: L{SubscriptionParseFailed} if the expression cannot be parsed.
Compile: TypeAlias = Callable[[SubscriptionData], MessageFilter]


def checkExpression(topic: str, expression: str | None) -> None:
    """
    Check the length of an expression.

    @raise SubscriptionParseFailed: if it exceeds L{EXPRESSION_LIMIT}.
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
    Create the subscription of a request; C{FilterAPI.build}.  Only a tag expression is
    parsed here.

    @raise SubscriptionParseFailed: if a tag expression cannot be parsed, or an expression
        of another type is empty.
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
    The expression types of one broker.
    """

    def __init__(self) -> None:
        self._table: dict[str, Compile] = {TAG: _tags}

    def __contains__(self, expressionType: str) -> bool:
        return expressionType in self._table

    def register(self, expressionType: str, compileExpression: Compile) -> None:
        """
        Add an expression type.

        @raise ValueError: if the type is already registered.
        """
        if expressionType in self._table:
            raise ValueError(f"expression type {expressionType} is already registered")
        self._table[expressionType] = compileExpression

    def compile(self, subscription: SubscriptionData) -> MessageFilter:
        """
        Compile the filter of a subscription.

        @raise RemoteSystemError: if the broker does not evaluate this type of expression;
            the code is Java's.
        @raise SubscriptionParseFailed: if the expression cannot be parsed.
        """
        compileExpression = self._table.get(subscription.expressionType or TAG)
        if compileExpression is None:
            raise RemoteSystemError(
                f"this broker does not filter messages by {subscription.expressionType}, "
                f"which the subscription to {subscription.topic} asks for; "
                f"it filters by {', '.join(sorted(self._table))}"
            )
        return compileExpression(subscription)
