# SPDX-License-Identifier: Apache-2.0
"""
Tag expressions, as RocketMQ's C{FilterAPI} parses them::

    *  or empty                 every message
    pay || refund               messages whose tag is one of these

A consume queue holds only the hash of each message's tag.  Therefore the broker
compares hashes, and the client compares the tags again.
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

# The characters that Java's trim removes, which are not Unicode's spaces.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


_LEAST_HASH: Final = -(2**31)


def isTagType(expressionType: str | None) -> bool:
    """
    Whether a type, possibly empty, means tag expressions.
    """
    return not expressionType or expressionType == TAG


def tagSubscription(topic: str, expression: str | None, version: int = 0) -> SubscriptionData:
    """
    Create the subscription of a tag expression.

    @param version: when the subscription was made, in milliseconds.
    @raise SubscriptionParseFailed: if the expression has only separators.  An expression
        of separators and spaces matches no message, as in Java.
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
    Compile a tag subscription.

    @return: a function that tells from the hash in the consume queue whether the message
        may match; L{None} if every message matches.
    """
    if subscription.subString == EVERYTHING or subscription.classFilterMode:
        return None
    codes = subscription.codeSet
    # The consume queue's 64 bits are the hash, except in queues of delayed messages,
    # which have no tag subscriptions.  With enableConsumeQueueExt, Java's broker writes the
    # place of an extension instead, which is less than any hash.  Then only the client
    # decides, as in Java if the extension cannot be read.
    return lambda hashed: hashed in codes or hashed < _LEAST_HASH
