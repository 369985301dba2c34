# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.errors}.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from inspect import isfunction, signature
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from txrocket import errors
from txrocket.errors import (
    ConnectFailed,
    ConnectionLost,
    DiskFull,
    FrameTooLarge,
    HeaderTooLong,
    InvalidFrameLength,
    MalformedField,
    MessageIllegal,
    MissingField,
    RemotingError,
    RequestTimedOut,
    ResponseError,
    RocketError,
    SendFailed,
    SystemBusy,
    TooManyRequests,
    TopicNotExist,
    UnknownSerializeType,
    responseError,
)
from txrocket.protocol.codes import ResponseCode

# The six that Java's DefaultMQProducer tries again at another broker by itself
# (its retryResponseCodes), the two by which a peer sheds load, and the one that
# asks for another pull by its name.
RETRIABLE_CODES = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
    ResponseCode.FLOW_CONTROL,
}


def family(root: type[RocketError]) -> Iterator[type[RocketError]]:
    """
    A class and all that derive from it.
    """
    yield root
    for each in root.__subclasses__():
        yield from family(each)


def required(kind: type[RocketError]) -> int:
    """
    How many arguments a class wants.
    """
    if not isfunction(kind.__init__):
        return 1
    parameters = signature(kind).parameters.values()
    return sum(each.default is each.empty and each.kind <= 1 for each in parameters)


class ResponseErrorTests(SynchronousTestCase):
    """
    Errors that stand for response codes.
    """

    def test_everyCode(self) -> None:
        """
        Every response code but SUCCESS has exactly one class, and no class has
        a code that RocketMQ does not.
        """
        codes = [each.code for each in ResponseError.__subclasses__()]
        self.assertEqual(sorted(codes), sorted(set(ResponseCode) - {ResponseCode.SUCCESS}))

    def test_codeGivesItsClass(self) -> None:
        """
        A code is turned into the one class that has it, and the error says who
        answered what.
        """
        for kind in ResponseError.__subclasses__():
            error = responseError(kind.code, "why", "10.0.0.1:10911")
            self.assertIs(type(error), kind)
            self.assertEqual(error.code, kind.code)
            self.assertEqual(error.remark, "why")
            self.assertEqual(error.address, "10.0.0.1:10911")
            self.assertEqual(str(error), f"10.0.0.1:10911 answered code {kind.code}: why")

    def test_unknownCode(self) -> None:
        """
        A code of a newer peer is a plain ResponseError with that code, and not
        one to try again.
        """
        error = responseError(9999, None)
        self.assertIs(type(error), ResponseError)
        self.assertEqual((error.code, error.remark, error.address), (9999, "", ""))
        self.assertEqual(str(error), "code 9999")
        self.assertFalse(error.retriable)
        # The class itself is as it was.
        self.assertEqual(ResponseError.code, -1)

    def test_raisedByAProcessor(self) -> None:
        """
        A processor raises a class with a remark only; the code is the class's.
        """
        error = SystemBusy("broker busy")
        self.assertEqual((error.code, str(error)), (2, "code 2: broker busy"))


class RetriableTests(SynchronousTestCase):
    """
    Which requests may be made again.
    """

    def test_exactlyThese(self) -> None:
        """
        A request that got no answer may be made again, one that was answered with
        one of nine codes, and a write that found the disk full; nothing else by
        itself.
        """
        expected = {DiskFull, *family(RemotingError)} | {
            type(responseError(code, None)) for code in RETRIABLE_CODES
        }
        self.assertEqual({each for each in family(RocketError) if each.retriable is True}, expected)


class SendFailedTests(SynchronousTestCase):
    """
    What a sender gets in the end.
    """

    def test_phase(self) -> None:
        """
        The phase says how far the last attempt came: without an attempt there was
        no route.
        """
        for error, attempts, phase in (
            (TopicNotExist("no"), 0, "route"),
            (ConnectFailed("b:1", "refused"), 1, "connect"),
            (ConnectionLost("b:1", "reset"), 1, "send"),
            (TooManyRequests("b:1", "full"), 1, "send"),
            (RequestTimedOut("b:1", "late"), 1, "answer"),
            (MessageIllegal("long"), 1, "answer"),
        ):
            self.assertEqual(SendFailed("T", error, "b:1", attempts, 0.5).phase, phase)

    def test_words(self) -> None:
        """
        It says which topic, how often, how long, what and with whom.
        """
        error = SendFailed("Orders", RequestTimedOut("b:1", "late"), "b:1", 3, 2.5)
        self.assertEqual(
            str(error),
            "sending to topic Orders failed at attempt 3 after 2.500 s, answer with b:1: late",
        )
        self.assertEqual((error.address, error.attempts, error.elapsed), ("b:1", 3, 2.5))
        nowhere = SendFailed("Orders", TopicNotExist("no"), "", 0, 0.0)
        self.assertEqual(
            str(nowhere), "sending to topic Orders failed after 0.000 s, route: code 17: no"
        )

    def test_retriable(self) -> None:
        """
        Another attempt may do if it may do for the last error.
        """
        for cause in (SystemBusy("later"), MessageIllegal("never")):
            self.assertEqual(SendFailed("T", cause, "", 1, 0).retriable, cause.retriable)


class FamilyTests(SynchronousTestCase):
    """
    The tree of errors.
    """

    def test_allAreListed(self) -> None:
        """
        Every class of the module is public.
        """
        own = {each.__name__ for each in family(RocketError) if each.__module__ == errors.__name__}
        self.assertEqual(own | {"responseError"}, set(errors.__all__))

    def test_words(self) -> None:
        """
        An error's words hold every number and name that it was made of, and its
        attributes hold them for programs.
        """
        for error, values in (
            (FrameTooLarge(17, 16), {"size": 17, "limit": 16}),
            (InvalidFrameLength(-5), {"size": -5}),
            (HeaderTooLong(9, 8), {"size": 9, "room": 8}),
            (UnknownSerializeType(7), {"serializeType": 7}),
            (MissingField("H", "topic"), {"header": "H", "field": "topic"}),
            (
                MalformedField("H", "topic", "bad"),
                {"header": "H", "field": "topic", "reason": "bad"},
            ),
        ):
            for name, value in values.items():
                self.assertEqual(getattr(error, name), value)
                self.assertIn(str(value), str(error))

    def test_address(self) -> None:
        """
        A request without an answer tells which peer it was made to.
        """
        error = ConnectFailed("10.0.0.1:9876", "refused")
        self.assertEqual((error.address, str(error)), ("10.0.0.1:9876", "refused"))

    def test_pickled(self) -> None:
        """
        An error is the same in another process: a worker's reaches who waits for it.
        """
        for kind in family(RocketError):
            if kind is SendFailed:
                error: Any = SendFailed("T", TopicNotExist("no", address="a:1"), "a:1", 2, 0.5)
            else:
                error = kind(*["word"] * required(kind))
            copy = pickle.loads(pickle.dumps(error))
            self.assertIs(type(copy), kind)
            self.assertEqual((str(copy), copy.args), (str(error), error.args))
            self.assertEqual(repr(vars(copy)), repr(vars(error)))
