# SPDX-License-Identifier: Apache-2.0
"""
Tag expressions, as RocketMQ's C{FilterAPI} reads them::

    *  or nothing at all        every message
    pay || refund               messages whose tag is one of these

A consume queue holds the hash of each message's tag and not the tag, so a
broker compares hashes; the client compares the tags themselves once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txrocket.errors import SubscriptionParseFailed
from txrocket.model import SubscriptionData
from txrocket.protocol.javahash import tagsCode

__all__ = ["EVERYTHING", "TAG", "isTagType", "tagMatcher", "tagSubscription"]

TAG: Final = "TAG"

#: The expression that every message matches.
EVERYTHING: Final = "*"

# What Java's trim takes off: not what Unicode calls a space.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


_LEAST_HASH: Final = -(2**31)


def isTagType(expressionType: str | None) -> bool:
    """
    Whether an expression of a type is one of tags, as it is without a type.
    """
    return not expressionType or expressionType == TAG


def tagSubscription(topic: str, expression: str | None, version: int = 0) -> SubscriptionData:
    """
    The subscription that an expression of tags stands for.

    @param version: when the subscription was made, in milliseconds.
    @raise SubscriptionParseFailed: if there are separators and nothing between
        them.  One with nothing but spaces between them matches no message, as in
        Java.
    """
    if not expression or expression == EVERYTHING:
        return SubscriptionData(topic, EVERYTHING, subVersion=version)
    parts = expression.split("||")
    if not any(parts):
        raise SubscriptionParseFailed(f"the expression {expression} for topic {topic} has no tags")
    tags = frozenset(part.strip(_TRIMMED) for part in parts) - {""}
    return SubscriptionData(
        topic,
        expression,
        tagsSet=tags,
        codeSet=frozenset(map(tagsCode, tags)),
        subVersion=version,
    )


def tagMatcher(subscription: SubscriptionData) -> Callable[[int], bool] | None:
    """
    Whether a message may match a subscription, by what the consume queue holds
    for it.

    @return: a function of the hash; L{None} where every message matches.
    """
    if subscription.subString == EVERYTHING or subscription.classFilterMode:
        return None
    codes = subscription.codeSet
    # The queue's 64 bits are the hash itself, but for the queues of delayed messages,
    # which hold a time, and which nobody filters by tag.  Java's broker with
    # enableConsumeQueueExt writes where it keeps the hash, which is less than any int:
    # then the client alone decides, as it does in Java if that place cannot be read.
    return lambda hashed: hashed in codes or hashed < _LEAST_HASH
