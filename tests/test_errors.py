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
    StoreIsReplica,
    SystemBusy,
    TooManyRequests,
    TopicNotExist,
    UnknownSerializeType,
    responseError,
)
from txrocket.protocol.codes import ResponseCode

# The six codes for which Java's DefaultMQProducer retries at another broker
# (its retryResponseCodes), the two by which a peer sheds load, and the one whose name
# asks for another pull.
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
    A class and all its subclasses, at any depth.
    """
    yield root
    for each in root.__subclasses__():
        yield from family(each)


def required(kind: type[RocketError]) -> int:
    """
    The number of positional arguments that a class requires.
    """
    if not isfunction(kind.__init__):
        return 1
    parameters = signature(kind).parameters.values()
    return sum(each.default is each.empty and each.kind <= 1 for each in parameters)


class ResponseErrorTests(SynchronousTestCase):
    """
    Errors that stand for response codes.
    """

    def test_everyCodeHasOneClass(self) -> None:
        """
        Every response code but SUCCESS has exactly one class, and no class has
        a code that RocketMQ does not.
        """
        codes = [each.code for each in ResponseError.__subclasses__()]
        self.assertEqual(sorted(codes), sorted(set(ResponseCode) - {ResponseCode.SUCCESS}))

    def test_codeGivesItsClass(self) -> None:
        """
        A code is turned into the one class that has it, and the error's text holds the
        responding peer, the code and the remark.
        """
        for kind in ResponseError.__subclasses__():
            error = responseError(kind.code, "why", "10.0.0.1:10911")
            self.assertIs(type(error), kind)
            self.assertEqual(error.code, kind.code)
            self.assertEqual(error.remark, "why")
            self.assertEqual(error.address, "10.0.0.1:10911")
            self.assertEqual(str(error), f"10.0.0.1:10911 answered code {kind.code}: why")

    def test_unknownCodeGivesBaseClass(self) -> None:
        """
        A code of a newer peer gives a plain ResponseError with that code, which is
        not retriable.
        """
        error = responseError(9999, None)
        self.assertIs(type(error), ResponseError)
        self.assertEqual((error.code, error.remark, error.address), (9999, "", ""))
        self.assertEqual(str(error), "code 9999")
        self.assertFalse(error.retriable)
        # The class attribute has not changed.
        self.assertEqual(ResponseError.code, -1)

    def test_remarkAloneTakesCodeOfClass(self) -> None:
        """
        A processor raises a class with a remark only; the code is the class's.
        """
        error = SystemBusy("broker busy")
        self.assertEqual((error.code, str(error)), (2, "code 2: broker busy"))


class RetriableTests(SynchronousTestCase):
    """
    Which errors are retriable.
    """

    def test_noResponseNineCodesAndRefusalsOfStoreAreRetriable(self) -> None:
        """
        A request without a response is retriable, so is a response with one of nine
        codes, and a write to a full disk; no other error is.
        """
        expected = {DiskFull, StoreIsReplica, *family(RemotingError)} | {
            type(responseError(code, None)) for code in RETRIABLE_CODES
        }
        self.assertEqual({each for each in family(RocketError) if each.retriable is True}, expected)


class SendFailedTests(SynchronousTestCase):
    """
    The error of a send after its last attempt.
    """

    def test_lastErrorGivesPhase(self) -> None:
        """
        The phase says how far the last attempt came.  Without any attempt it is the
        route.
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

    def test_textHoldsTopicAttemptsTimePhaseAddress(self) -> None:
        """
        The text holds the topic, the number of attempts, their duration, the phase and
        the broker's address.
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

    def test_lastErrorDecidesRetriable(self) -> None:
        """
        SendFailed is retriable if the last error is.
        """
        for cause in (SystemBusy("later"), MessageIllegal("never")):
            self.assertEqual(SendFailed("T", cause, "", 1, 0).retriable, cause.retriable)


class FamilyTests(SynchronousTestCase):
    """
    The tree of errors.
    """

    def test_allAreListed(self) -> None:
        """
        Every error class of the package is exported by it.
        """
        package = f"{errors.__name__}."
        own = {each.__name__ for each in family(RocketError) if each.__module__.startswith(package)}
        self.assertEqual(own | {"responseError"}, set(errors.__all__))

    def test_textAndAttributesHoldArguments(self) -> None:
        """
        An error's text holds every argument of its constructor, and so do its
        attributes.
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

    def test_remotingErrorHoldsAddress(self) -> None:
        """
        The error of a request without a response holds the peer's address.
        """
        error = ConnectFailed("10.0.0.1:9876", "refused")
        self.assertEqual((error.address, str(error)), ("10.0.0.1:9876", "refused"))

    def test_pickledErrorIsEqual(self) -> None:
        """
        An error keeps its class, text and attributes when it is pickled, so a worker
        process can hand it to its caller.
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
