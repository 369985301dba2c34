# SPDX-License-Identifier: Apache-2.0
"""
The subscription of a pull: the rules between a pull, its group and the group's members.

A pull carries its subscription, or uses that of its group's heartbeats.  If the heartbeat
is older than the pull's subscription, the pull is refused, because it would lose messages.

A group gets all of its retried messages, unless C{filterSupportRetry} is set: then its
subscription to a message's own topic decides::

    %RETRY%group  --> message, property RETRY_TOPIC --> subscription of the group
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.names import RETRY_PREFIX
from txrocket.broker.settings import PullSettings
from txrocket.broker.tables.groups import Groups
from txrocket.config import Live
from txrocket.errors import (
    NoPermission,
    RemoteSystemError,
    ResponseError,
    SubscriptionGroupNotExist,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from txrocket.filters.expressions import (
    ExpressionTypes,
    MessageFilter,
    buildSubscription,
    checkExpression,
)
from txrocket.filters.tags import isTagType
from txrocket.message import PROPERTY_RETRY_TOPIC, MessageExt
from txrocket.model import MessageModel, SubscriptionData, SubscriptionGroupConfig
from txrocket.protocol.headers import PullMessageRequestHeader

__all__ = ["Subscriptions"]

# The bit of a pull's sysFlag that says that it brings its subscription along.
_BROUGHT = 4

# Compiled expressions that are cached: short ones, and ones as long as SQL92 may be.  Longer
# ones are not cached, because a pull may carry one of 16 MiB.
_COMPILED = 1024
_SHORT = 1024
_LONG_COMPILED = 64
_LONG = 16 * 1024

_Made = TypeVar("_Made")


def _remembering(make: Callable[..., _Made], sizeOf: Callable[..., int]) -> Callable[..., _Made]:
    """
    A function with a cache for short texts, and a smaller one for long texts.
    """
    short, long = lru_cache(_COMPILED)(make), lru_cache(_LONG_COMPILED)(make)

    def made(*given: object) -> _Made:
        size = sizeOf(*given)
        if size <= _SHORT:
            return short(*given)
        return long(*given) if size <= _LONG else make(*given)

    return made


def _sizeOfPull(topic: str, expression: str | None, expressionType: str | None) -> int:
    return len(topic) + len(expression or "") + len(expressionType or "")


def _sizeOfSubscription(subscription: SubscriptionData) -> int:
    texts = subscription.subString, subscription.expressionType or "", *subscription.tagsSet
    return sum(map(len, texts)) + 8 * len(subscription.codeSet)


class Subscriptions:
    """
    The subscriptions of the groups at a broker, and the filters that they ask for.
    """

    def __init__(
        self,
        groups: Groups,
        consumers: Consumers,
        expressionTypes: ExpressionTypes,
        settings: Live[PullSettings],
        formerly: Callable[[str, str], SubscriptionData | None] = lambda group, topic: None,
    ) -> None:
        """
        @param formerly: a group's former subscription to a topic, if that is known.
        """
        self._groups = groups
        self._consumers = consumers
        self._formerly = formerly
        self._settings = settings
        self._compile = _remembering(expressionTypes.compile, _sizeOfSubscription)
        self._build = _remembering(buildSubscription, _sizeOfPull)

    def group(self, name: str) -> SubscriptionGroupConfig:
        """
        The group that pulls.

        @raise ResponseError: if the group does not exist, or may not pull.
        """
        config = self._groups.find(name)
        if config is None:
            raise SubscriptionGroupNotExist(
                f"consumer group {name} does not exist, and autoCreateSubscriptionGroup is false"
            )
        if not config.consumeEnable:
            raise NoPermission(f"consumer group {name} may not consume: consumeEnable is false")
        return config

    def wanted(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> MessageFilter:
        """
        The filter of a pull.

        @raise ResponseError: if the subscription is not known or cannot be parsed.
        """
        if header.sysFlag & _BROUGHT:
            checkExpression(header.topic, header.subscription)
            subscription = self._build(header.topic, header.subscription, header.expressionType)
        else:
            subscription = self._registered(header, config)
        wanted = self.filterOf(subscription)
        if self._settings.now.filterSupportRetry and header.topic.startswith(RETRY_PREFIX):
            group = header.topic.removeprefix(RETRY_PREFIX)
            return MessageFilter(wanted.matches, partial(self._wantedAgain, group))
        return wanted

    def filterOf(self, subscription: SubscriptionData) -> MessageFilter:
        """
        The filter that a subscription asks for.

        @raise ResponseError: if the broker does not evaluate such expressions, or the
            expression cannot be parsed.
        """
        checkExpression(subscription.topic, subscription.subString)
        if not isTagType(subscription.expressionType):
            self._checkEnabled(subscription)
        return self._compile(subscription)

    def _wantedAgain(self, group: str, message: MessageExt) -> bool:
        """
        Whether a group still subscribes to a retried message.
        """
        topic = message.properties.get(PROPERTY_RETRY_TOPIC, "")
        subscription = self._consumers.subscription(group, topic)
        if subscription is None:
            subscription = self._formerly(group, topic)
        if subscription is None or isTagType(subscription.expressionType):
            return True
        if not self._settings.now.enablePropertyFilter:
            return True
        try:
            accepts = self._compile(subscription).accepts
        except ResponseError:
            return True
        return accepts is None or accepts(message)

    def _registered(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        group = self._consumers.get(header.consumerGroup)
        if group is None:
            raise SubscriptionNotExist(
                f"no consumer of group {header.consumerGroup} is known here: it pulls before its"
                " first heartbeat, or was silent for too long"
            )
        if not config.consumeBroadcastEnable and group.messageModel is MessageModel.BROADCASTING:
            raise NoPermission(
                f"consumer group {header.consumerGroup} may not broadcast:"
                " consumeBroadcastEnable is false"
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotExist(
                f"consumer group {header.consumerGroup} does not subscribe to {header.topic};"
                " do all of its members have the same subscriptions?"
            )
        if subscription.subVersion < header.subVersion:
            raise SubscriptionNotLatest(
                f"consumer group {header.consumerGroup} has another subscription to"
                f" {header.topic} than its last heartbeat told"
            )
        return subscription

    def _checkEnabled(self, subscription: SubscriptionData) -> None:
        if not self._settings.now.enablePropertyFilter:
            raise RemoteSystemError(
                f"this broker does not filter messages by {subscription.expressionType}:"
                " enablePropertyFilter is false"
            )
