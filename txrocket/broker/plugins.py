# SPDX-License-Identifier: Apache-2.0
"""
What is plugged into one broker, checked before it starts.

A plugin that is not what it should be is refused, and the broker with it: one that
starts without a hook that its operator relies on does what it must not do, and one
that fails with the first message does not tell its operator in time.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

import attrs
from zope.interface import Invalid
from zope.interface.verify import verifyObject

from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
from txrocket.errors import ConfigError, SubscriptionParseFailed
from txrocket.filters.expressions import ExpressionTypes, MessageFilter
from txrocket.filters.tags import TAG
from txrocket.model import SubscriptionData
from txrocket.protocol.codes import InspectCode, RequestCode, requestName
from txrocket.remoting.interfaces import Process

__all__ = ["CheckedPlugins", "Plugins", "checkPlugins", "loadSQL92"]

# The types of expressions that RocketMQ has.
_SQL92: Final = "SQL92"
_EXPRESSION_TYPES: Final = (TAG, _SQL92)

_ROCKETMQ: Final = frozenset(int(each) for each in RequestCode)
_TAKEN: Final = _ROCKETMQ | {int(each) for each in InspectCode}
_LARGEST_CODE: Final = 2**31 - 1


@attrs.frozen
class Plugins:
    """
    What is to be plugged in.
    """

    processors: Sequence[IBrokerProcessor] = ()
    filters: Sequence[IMessageFilter] = ()
    sendHooks: Sequence[ISendHook] = ()


@attrs.frozen
class CheckedPlugins:
    """
    Plugins that provide their interfaces.

    @ivar codes: which function serves which code, and whether it blocks.
    @ivar expressionTypes: RocketMQ's and the plugins'.
    """

    codes: Sequence[tuple[Mapping[int, Process], bool]]
    expressionTypes: ExpressionTypes
    sendHooks: Sequence[ISendHook]


def checkPlugins(plugins: Plugins) -> CheckedPlugins:
    """
    Check plugins.

    @raise ConfigError: naming all that is wrong with them.
    """
    problems: list[str] = []
    taken: dict[int, str] = {}
    codes = []
    for processor in plugins.processors:
        if wrong := _mismatch(IBrokerProcessor, processor) or _notBlocking(processor):
            problems.append(wrong)
            continue
        served = _codes(processor, taken, problems)
        codes.append((served, processor.blocking))
    types = ExpressionTypes()
    types.register(_SQL92, _sql92)
    for each in plugins.filters:
        if wrong := _mismatch(IMessageFilter, each) or _badType(each, types):
            problems.append(wrong)
        else:
            types.register(each.expressionType, partial(_filter, each))
    for hook in plugins.sendHooks:
        if wrong := _mismatch(ISendHook, hook) or _awaited(hook):
            problems.append(wrong)
    if problems:
        raise ConfigError(*problems)
    return CheckedPlugins(codes, types, plugins.sendHooks)


def _name(plugin: object) -> str:
    kind = type(plugin)
    return f"plugin {kind.__module__}.{kind.__qualname__}"


def _mismatch(interface: Any, plugin: object) -> str | None:
    try:
        verifyObject(interface, plugin)
    except Invalid as error:
        # zope's text has several lines.
        said = " ".join(str(error).split())
        return f"{_name(plugin)} is no {interface.__name__}: {said}"
    return None


def _notBlocking(processor: IBrokerProcessor) -> str | None:
    if isinstance(processor.blocking, bool):
        return None
    return f"{_name(processor)}: blocking is {processor.blocking!r}, and must be True or False"


def _codes(
    processor: IBrokerProcessor, taken: dict[int, str], problems: list[str]
) -> Mapping[int, Process]:
    """
    The codes of a processor.

    @param taken: the codes that other plugins serve; its own are added.
    """
    name = _name(processor)
    try:
        codes = dict(processor.codes())
    except Exception as error:
        # A plugin may raise anything.
        problems.append(f"{name}: codes() failed: {type(error).__name__}: {error}")
        return {}
    for code, function in codes.items():
        if not isinstance(code, int) or isinstance(code, bool):
            problems.append(f"{name}: {code!r} is no request code")
        elif not 0 <= code <= _LARGEST_CODE:
            problems.append(f"{name}: {code} is no request code: 0 to {_LARGEST_CODE} are")
        elif code in _TAKEN:
            whose = "RocketMQ's own" if code in _ROCKETMQ else "served by the broker itself"
            problems.append(f"{name}: request code {requestName(code)} is {whose}")
        elif code in taken:
            problems.append(f"{name}: request code {code} is served by {taken[code]} already")
        elif not callable(function):
            problems.append(f"{name}: {function!r} for request code {code} is no function")
        else:
            taken[code] = name
    return codes


def _badType(plugin: IMessageFilter, types: ExpressionTypes) -> str | None:
    name = plugin.expressionType
    if not isinstance(name, str) or not name.strip():
        return f"{_name(plugin)}: expressionType is {name!r}, and must be a name"
    if name in _EXPRESSION_TYPES:
        return f"{_name(plugin)}: expressions of type {name} are RocketMQ's own"
    if name in types:
        return f"{_name(plugin)}: expressions of type {name} are another plugin's already"
    return None


def _awaited(hook: ISendHook) -> str | None:
    for function in (hook.beforeSend, hook.afterSend):
        if iscoroutinefunction(function):
            name = f"{_name(hook)}: {function.__name__}"
            return f"{name} is a coroutine, and the broker does not await it"
    return None


def _sql92(subscription: SubscriptionData) -> MessageFilter:
    # Not imported with this module, see loadSQL92.
    from txrocket.filters.sql92 import sql92Filter

    return sql92Filter(subscription)


def loadSQL92() -> None:
    """
    Load the parser of SQL92 expressions, if it is not loaded yet.

    Few brokers need it, and to import it and to make its tables takes long.  A broker that
    needs it calls this before it serves requests, so that no request waits.
    """
    importlib.import_module("txrocket.filters.sql92")


def _filter(plugin: IMessageFilter, subscription: SubscriptionData) -> MessageFilter:
    try:
        return MessageFilter(accepts=plugin.compile(subscription.subString))
    except ValueError as error:
        raise SubscriptionParseFailed(
            f"{plugin.expressionType} expression for {subscription.topic}: {error}"
        ) from None
