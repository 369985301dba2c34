# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.plugins} and L{txrocket.broker.interfaces}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer

from txrocket.broker.interfaces import (
    IBrokerProcessor,
    IMessageFilter,
    ISendHook,
    SendMessageContext,
)
from txrocket.broker.plugins import Plugins, checkPlugins
from txrocket.errors import ConfigError, SubscriptionParseFailed
from txrocket.message import splitProperties
from txrocket.model import SubscriptionData
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand

HERE = f"plugin {__name__}"


def serve(request: Any, peer: Any) -> None:
    """
    A function that serves.
    """


@implementer(IBrokerProcessor)
class Processor:
    """
    A processor of the codes that it is given.
    """

    def __init__(self, codes: Any, blocking: Any = False) -> None:
        self._codes = codes
        self.blocking = blocking

    def codes(self) -> Mapping[int, Any]:
        if isinstance(self._codes, Exception):
            raise self._codes
        codes: Mapping[int, Any] = self._codes
        return codes


@implementer(IMessageFilter)
class Filter:
    """
    A filter of the type that it is given.
    """

    def __init__(self, expressionType: Any) -> None:
        self.expressionType = expressionType

    def compile(self, expression: str) -> Callable[[Any], bool]:
        length = int(expression)
        return lambda message: len(message.topic) == length


@implementer(ISendHook)
class Hook:
    """
    A hook.
    """

    def beforeSend(self, sending: SendMessageContext) -> None:
        pass

    def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        pass


class HalfHook:
    """
    Lacks a method.
    """

    def __init__(self) -> None:
        directlyProvides(self, ISendHook)

    def beforeSend(self, sending: SendMessageContext) -> None:
        pass


@implementer(ISendHook)
class OddHook(Hook):
    """
    Cannot be called with a message.
    """

    def beforeSend(self) -> None:  # type: ignore[override]
        pass


@implementer(ISendHook)
class SlowHook(Hook):
    """
    Wants to be awaited.
    """

    async def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:  # type: ignore[override]
        pass


class Undecided:
    """
    Does not tell whether it blocks.
    """

    def __init__(self) -> None:
        directlyProvides(self, IBrokerProcessor)

    def codes(self) -> Mapping[int, Any]:
        return {}


class PlugTests(SynchronousTestCase):
    """
    Tests for L{checkPlugins}.
    """

    def problems(self, **plugins: Any) -> tuple[str, ...]:
        """
        The problems of plugins.
        """
        error = self.assertRaises(ConfigError, checkPlugins, Plugins(**plugins))
        assert isinstance(error, ConfigError)
        for each in error.problems:
            self.assertNotIn("\n", each)
        return error.problems

    def test_noPluginsLeaveRocketMQsTypes(self) -> None:
        """
        Without plugins there are RocketMQ's types of expressions and nothing else.
        """
        plugged = checkPlugins(Plugins())
        self.assertEqual((plugged.codes, plugged.sendHooks), ([], ()))
        self.assertIn("TAG", plugged.expressionTypes)
        self.assertIn("SQL92", plugged.expressionTypes)
        self.assertNotIn("PREFIX", plugged.expressionTypes)

    def test_validPluginsAreAccepted(self) -> None:
        """
        Valid plugins are accepted as they are.
        """
        hook = Hook()
        plugged = checkPlugins(
            Plugins(
                [Processor({20_001: serve}), Processor({20_002: serve, 20_003: serve}, True)],
                [Filter("LENGTH")],
                [hook],
            )
        )
        self.assertEqual(
            plugged.codes,
            [({20_001: serve}, False), ({20_002: serve, 20_003: serve}, True)],
        )
        self.assertEqual(plugged.sendHooks, [hook])
        self.assertIn("LENGTH", plugged.expressionTypes)

    def test_codesOfRocketMQAreRefused(self) -> None:
        """
        No request code that RocketMQ has can be taken from it, served by this broker
        or not.
        """
        for code in RequestCode:
            for same in (code, int(code)):
                name = f"{code.name} ({int(code)})"
                self.assertEqual(
                    self.problems(processors=[Processor({20_001: serve, same: serve})]),
                    (f"{HERE}.Processor: request code {name} is RocketMQ's own",),
                )

    def test_codesOfTheBrokerAreRefused(self) -> None:
        """
        Nor any that the broker has beyond RocketMQ.
        """
        [said] = self.problems(processors=[Processor({30_001: serve})])
        self.assertEqual(
            said,
            f"{HERE}.Processor: request code INSPECT_LOCKS (30001) is served by the broker itself",
        )

    def test_codesMustBeUniqueNumbers(self) -> None:
        """
        A code is a number that fits a header, one plugin's alone, and served by a
        function.
        """
        for codes, expected in (
            ({-1: serve}, "-1 is no request code: 0 to 2147483647 are"),
            ({2**31: serve}, "2147483648 is no request code: 0 to 2147483647 are"),
            ({"GREET": serve}, "'GREET' is no request code"),
            ({True: serve}, "True is no request code"),
            ({20_001: "serve"}, "'serve' for request code 20001 is no function"),
            (KeyError("x"), "codes() failed: KeyError: 'x'"),
            (None, "codes() failed: TypeError: 'NoneType' object is not iterable"),
        ):
            self.assertEqual(
                self.problems(processors=[Processor(codes)]), (f"{HERE}.Processor: {expected}",)
            )
        twice = [Processor({20_001: serve}), Processor({20_001: serve})]
        self.assertEqual(
            self.problems(processors=twice),
            (f"{HERE}.Processor: request code 20001 is served by {HERE}.Processor already",),
        )

    def test_blockingMustBeABool(self) -> None:
        """
        A processor says whether it blocks, and nothing else.
        """
        self.assertEqual(
            self.problems(processors=[Processor({}, blocking="no")]),
            (f"{HERE}.Processor: blocking is 'no', and must be True or False",),
        )
        (problem,) = self.problems(processors=[Undecided()])
        self.assertIn(f"{HERE}.Undecided is no IBrokerProcessor: ", problem)
        self.assertIn("blocking", problem)

    def test_expressionTypeNamesAreUnique(self) -> None:
        """
        A type of expressions has a name, which is neither RocketMQ's nor another plugin's.
        """
        for kind, expected in (
            ("TAG", "expressions of type TAG are RocketMQ's own"),
            ("SQL92", "expressions of type SQL92 are RocketMQ's own"),
            ("", "expressionType is '', and must be a name"),
            (7, "expressionType is 7, and must be a name"),
        ):
            self.assertEqual(self.problems(filters=[Filter(kind)]), (f"{HERE}.Filter: {expected}",))
        self.assertEqual(
            self.problems(filters=[Filter("A"), Filter("A")]),
            (f"{HERE}.Filter: expressions of type A are another plugin's already",),
        )

    def test_missingInterfaceIsNamed(self) -> None:
        """
        Each plugin that does not provide its interface is named, with the reason, and not
        only the first.
        """
        problems = self.problems(
            processors=[Hook()], filters=[Hook()], sendHooks=[HalfHook(), OddHook(), Hook()]
        )
        for problem, start, reason in zip(
            problems,
            (
                f"{HERE}.Hook is no IBrokerProcessor: ",
                f"{HERE}.Hook is no IMessageFilter: ",
                f"{HERE}.HalfHook is no ISendHook: ",
                f"{HERE}.OddHook is no ISendHook: ",
            ),
            ("IBrokerProcessor", "IMessageFilter", "afterSend", "beforeSend"),
            strict=True,
        ):
            self.assertTrue(problem.startswith(start), problem)
            self.assertIn(reason, problem.removeprefix(start))

    def test_coroutineHookIsRefused(self) -> None:
        """
        A hook that is a coroutine is refused.
        """
        self.assertEqual(
            self.problems(sendHooks=[SlowHook()]),
            (f"{HERE}.SlowHook: afterSend is a coroutine, and the broker does not await it",),
        )

    def test_filterCompilesExpressions(self) -> None:
        """
        A filter's expression is compiled for the subscription, and what is wrong with
        it is told to the subscriber.
        """
        types = checkPlugins(Plugins(filters=[Filter("LENGTH")])).expressionTypes
        compiled = types.compile(SubscriptionData("T", "3", expressionType="LENGTH"))
        self.assertIsNone(compiled.matches)
        assert compiled.accepts is not None
        message: Any = type("Message", (), {"topic": "abc"})
        self.assertTrue(compiled.accepts(message))
        error = self.assertRaises(
            SubscriptionParseFailed,
            types.compile,
            SubscriptionData("T", "three", expressionType="LENGTH"),
        )
        self.assertIn("LENGTH expression for T: invalid literal", str(error))


class SendingTests(SynchronousTestCase):
    """
    Tests for L{SendMessageContext.note}.
    """

    def sending(self, properties: str) -> SendMessageContext:
        """
        A message.
        """
        return SendMessageContext("T", 0, properties, b"", 0, "group", 0, False, "192.0.2.1:1")

    def test_notedPropertyIsAdded(self) -> None:
        """
        A property is added, whether or not those that are there are ended as they
        should be; in the place of one that has its name.
        """
        for before in ("", "a\x011", "a\x011\x02", "n\x01old\x02a\x011"):
            sending = self.sending(before)
            sending.note("n", "v")
            expected = {**splitProperties(before), "n": "v"}
            self.assertEqual(splitProperties(sending.properties), expected)

    def test_separatorsAreRefused(self) -> None:
        """
        A separator in a name or a value is refused.
        """
        for name, value in (("", "v"), ("n\x01", "v"), ("n", "v\x02a\x01b"), ("n\x02", "v")):
            sending = self.sending("a\x011")
            self.assertRaises(ValueError, sending.note, name, value)
            self.assertEqual(sending.properties, "a\x011")
