# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.protocol} and L{txrocket.remoting.errorresponse}: how a
connection serves what the peer asks.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel

from tests.captures import captures
from tests.remoting.doubles import (
    ADDRESS,
    Raise,
    Recorder,
    RemotingTests,
    connected,
    decoded,
    frame,
    lose,
    serving,
)
from txrocket.errors import (
    InvalidMessage,
    MissingField,
    ResponseError,
    TopicNotExist,
)
from txrocket.protocol.codes import RequestCode, ResponseCode, SerializeType
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    responseCommand,
)
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.protocol import CLOSE_TIMEOUT
from txrocket.remoting.remoting import FunctionProcessor, Limits, Remoting
from txrocket.server.echo import echo

CODE = RequestCode.HEART_BEAT
BINARY = SerializeType.ROCKETMQ


class AnswerTests(RemotingTests):
    """
    Answers, and when there are none.
    """

    def test_connected(self) -> None:
        """
        The peer's address is known and Nagle's algorithm is off: answers are
        gathered here, and must not wait a second time below.
        """
        protocol, wire = connected(Remoting(self.clock))
        self.assertEqual(protocol.address, ADDRESS)
        self.assertTrue(wire.noDelay)
        self.assertTrue(wire.streaming)

    def test_atOnce(self) -> None:
        """
        An answer carries the request's opaque and form and the response flag,
        whatever the processor put there.
        """
        answer = responseCommand(0, "fine", body=b"body")
        answer.opaque, answer.flag = 99, 0
        protocol, wire = connected(serving(self.clock, {CODE: lambda request, peer: answer}))
        for form in SerializeType:
            protocol.dataReceived(frame(CODE, 5, serializeType=form))
            (response,) = wire.drain()
            self.assertEqual(
                (response.opaque, response.flag, response.serializeType),
                (5, RESPONSE_FLAG, form),
            )
            self.assertEqual((response.code, response.remark, response.body), (0, "fine", b"body"))

    def test_processorSees(self) -> None:
        """
        The processor is given the request and the connection it came on.
        """
        seen: list[Any] = []
        protocol, _wire = connected(serving(self.clock, {CODE: lambda *given: seen.append(given)}))
        protocol.dataReceived(frame(CODE, 5, b"asked", fields={"topic": "T"}))
        ((request, peer),) = seen
        self.assertIs(peer, protocol)
        self.assertEqual((request.extFields, request.body), ({"topic": "T"}, b"asked"))

    def test_captured(self) -> None:
        """
        Every request that a Java, Go or C++ client was seen to send is served,
        however the stream is cut.
        """
        remoting = Remoting(self.clock)
        remoting.registerDefaultProcessor(FunctionProcessor(echo), InlineExecutor())
        requests = [each for each in captures() if each.kind == "request"]
        stream = b"".join(each.frame for each in requests)
        for size in (len(stream), 1460, 97):
            protocol, wire = connected(remoting)
            for start in range(0, len(stream), size):
                protocol.dataReceived(stream[start : start + size])
            answers = wire.drain()
            self.assertEqual(
                [(each.opaque, each.code, each.body) for each in answers],
                [(each.header["opaque"], 0, each.body) for each in requests],
            )
        self.assertGreater(len(requests), 100)

    def test_none(self) -> None:
        """
        A processor that returns nothing, now or later, owes no answer.
        """
        later: Deferred[None] = Deferred()
        protocol, wire = connected(
            serving(self.clock, {1: lambda *given: None, 2: lambda *given: later})
        )
        protocol.dataReceived(frame(1, 1) + frame(2, 2))
        later.callback(None)
        self.assertEqual(wire.writes, [])

    def test_promised(self) -> None:
        """
        A promised answer is written when it is there, after others that were
        asked for later; one that is there already takes its turn.
        """
        later: Deferred[RemotingCommand] = Deferred()
        protocol, wire = connected(
            serving(
                self.clock,
                {
                    1: lambda *given: later,
                    2: lambda *given: responseCommand(0),
                    3: lambda *given: succeed(responseCommand(0)),
                },
            )
        )
        protocol.dataReceived(frame(1, 1) + frame(3, 2) + frame(2, 3))
        self.assertEqual([each.opaque for each in wire.drain()], [2, 3])
        later.callback(responseCommand(0, "late"))
        (response,) = wire.drain()
        self.assertEqual((response.opaque, response.remark), (1, "late"))

    def test_oneWrite(self) -> None:
        """
        The answers to all requests of one read go out in one write, in order.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        protocol.dataReceived(b"".join(frame(CODE, n, b"%d" % n) for n in range(100)))
        self.assertEqual(len(wire.writes), 1)
        self.assertEqual(
            [(each.opaque, each.body) for each in wire.drain()],
            [(n, b"%d" % n) for n in range(100)],
        )

    def test_largeAnswersInParts(self) -> None:
        """
        Large answers are not gathered without end: the transport gets them
        in time to say that it is full.
        """
        body = bytes(60_000)
        protocol, wire = connected(
            serving(self.clock, {CODE: lambda *given: responseCommand(body=body)})
        )
        protocol.dataReceived(b"".join(frame(CODE, n) for n in range(10)))
        self.assertEqual(len(wire.writes), 5)
        self.assertEqual([each.opaque for each in wire.drain()], list(range(10)))

    def test_oneway(self) -> None:
        """
        A oneway request is served and never answered, whether its processor
        answers, fails or promises, or a hook refuses it.
        """
        served: list[int] = []

        def process(request: RemotingCommand, peer: object) -> Any:
            served.append(request.code)
            match request.code:
                case 1:
                    return responseCommand(0)
                case 2:
                    raise TopicNotExist
                case 3:
                    return succeed(responseCommand(0))
            return fail(ZeroDivisionError())

        remoting = serving(self.clock, dict.fromkeys((1, 2, 3, 4), process))
        protocol, wire = connected(remoting)
        protocol.dataReceived(b"".join(frame(n, n, flag=ONEWAY_FLAG) for n in (1, 2, 3, 4, 5)))
        hook = Recorder("hook", [])
        remoting.registerHook(hook)
        hook.before = Raise(TopicNotExist())
        protocol.dataReceived(frame(1, 1, flag=ONEWAY_FLAG))
        hook.before, hook.after = lambda request: None, Raise(KeyError())
        protocol.dataReceived(frame(1, 1, flag=ONEWAY_FLAG))
        self.assertEqual((served, wire.writes), ([1, 2, 3, 4, 1], []))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_tooLarge(self) -> None:
        """
        An answer over the frame limit becomes an error answer that says so.
        """
        limits = Limits(frame=1000)
        protocol, wire = connected(
            serving(self.clock, {CODE: lambda *given: responseCommand(body=bytes(1000))}, limits)
        )
        protocol.dataReceived(frame(CODE, 5))
        (response,) = wire.drain()
        self.assertEqual((response.opaque, response.code), (5, ResponseCode.SYSTEM_ERROR))
        self.assertIn("the limits are 1000", str(response.remark))

    def test_longRemark(self) -> None:
        """
        A remark that fits no frame, or no answer at all, is cut, however it
        came about: the peer must get its answer.
        """
        long = "x" * (17 * 1024 * 1024)
        protocol, wire = connected(
            serving(
                self.clock,
                {
                    1: lambda *given: responseCommand(1, long),
                    2: Raise(TopicNotExist(long)),
                    3: Raise(InvalidMessage(long)),
                },
            )
        )
        protocol.dataReceived(frame(1, 1) + frame(2, 2) + frame(3, 3))
        answers = wire.drain()
        self.assertEqual([(each.opaque, each.code) for each in answers], [(1, 1), (2, 17), (3, 1)])
        for each in answers:
            self.assertIn("xxxx", str(each.remark))
            self.assertLess(len(str(each.remark)), 10_000)

    def test_unwritableRemark(self) -> None:
        """
        A remark that is no Unicode is told as far as it is, also when it is a
        hook's last word.
        """
        remoting = serving(self.clock, {1: Raise(TopicNotExist("\udcff!")), 2: echo})
        protocol, wire = connected(remoting)
        protocol.dataReceived(frame(1, 1))
        hook = Recorder("hook", [])
        hook.after = Raise(TopicNotExist("\udcff!"))
        remoting.registerHook(hook)
        protocol.dataReceived(frame(2, 2) + frame(2, 3, serializeType=BINARY))
        self.assertEqual(
            [(each.opaque, each.code, each.remark) for each in wire.drain()],
            [(n, 17, "?!") for n in (1, 2, 3)],
        )


class FaultTests(RemotingTests):
    """
    What was raised becomes an answer.
    """

    def answerTo(self, error: Exception) -> RemotingCommand:
        """
        What the peer gets when a processor raises, which must be the same
        however it does it.
        """
        remoting = serving(
            self.clock, {1: Raise(error), 2: lambda *given: fail(error), 3: Raise(error)}
        )
        protocol, wire = connected(remoting)
        protocol.dataReceived(frame(1, 1) + frame(2, 2, serializeType=BINARY))
        raised, failed = wire.drain()
        self.assertEqual((raised.opaque, failed.opaque), (1, 2))
        self.assertEqual((raised.flag, failed.flag), (RESPONSE_FLAG, RESPONSE_FLAG))
        self.assertEqual((raised.serializeType, failed.serializeType), (0, 1))
        self.assertEqual(raised.code, failed.code)
        self.assertEqual(raised.remark, (failed.remark or "").replace("code 2", "code 1") or None)
        return raised

    def test_responseError(self) -> None:
        """
        A L{ResponseError} is the answer: its code and remark.
        """
        answer = self.answerTo(TopicNotExist("no topic T here"))
        self.assertEqual((answer.code, answer.remark), (17, "no topic T here"))
        answer = self.answerTo(ResponseError(code=4711))
        self.assertEqual((answer.code, answer.remark), (4711, None))

    def test_protocolError(self) -> None:
        """
        A request that cannot be understood is answered SYSTEM_ERROR, "bad
        request", and is not our fault: nothing is logged.
        """
        answer = self.answerTo(MissingField("PullMessageRequestHeader", "topic"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(
            answer.remark, "bad request: PullMessageRequestHeader: field topic is missing"
        )

    def test_ownError(self) -> None:
        """
        What else we raise on purpose is told as it stands.
        """
        answer = self.answerTo(InvalidMessage("body too long"))
        self.assertEqual((answer.code, answer.remark), (1, "body too long"))

    def test_bug(self) -> None:
        """
        Everything else is a bug: logged in full, with the request and the peer,
        and the answer names its type.
        """
        remoting = serving(self.clock, {CODE: Raise(ZeroDivisionError("by zero"))})
        protocol, wire = connected(remoting)
        protocol.dataReceived(frame(CODE, 1))
        (answer,) = wire.drain()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("ZeroDivisionError: by zero", str(answer.remark))
        self.assertIn("HEART_BEAT", str(answer.remark))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(
            self.logged(LogLevel.critical), [f"Serving HEART_BEAT (34) from {ADDRESS} failed"]
        )

    def test_noAnswer(self) -> None:
        """
        A processor that returns, now or later, what is no answer at all, such
        as the coroutine of an C{async def}, has a bug, which costs its own
        request only.
        """
        protocol, wire = connected(
            serving(
                self.clock,
                {1: lambda *given: "fine", 2: lambda *given: succeed({}), 3: echo},
            )
        )
        protocol.dataReceived(frame(1, 1) + frame(2, 2) + frame(3, 3))
        self.assertEqual([(e.opaque, e.code) for e in wire.drain()], [(1, 1), (2, 1), (3, 0)])
        now, later = self.flushLoggedErrors(TypeError)
        self.assertIn("'fine'", now.getErrorMessage())
        self.assertIn("{}", later.getErrorMessage())

    def test_othersGoOn(self) -> None:
        """
        A failure concerns its own request only.
        """
        protocol, wire = connected(
            serving(self.clock, {1: echo, 2: Raise(ZeroDivisionError("by zero"))})
        )
        protocol.dataReceived(frame(1, 1) + frame(2, 2) + frame(1, 3))
        self.assertEqual([(e.opaque, e.code) for e in wire.drain()], [(1, 0), (2, 1), (3, 0)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_malformedFields(self) -> None:
        """
        Fields that are no map are the peer's fault, found when they are read.
        """
        header = b'{"code":34,"extFields":[1],"flag":0,"opaque":9}'
        data = len(header).to_bytes(4, "big") + header
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        protocol.dataReceived((len(data)).to_bytes(4, "big") + data)
        (answer,) = wire.drain()
        self.assertEqual((answer.opaque, answer.code), (9, ResponseCode.SYSTEM_ERROR))
        self.assertTrue(str(answer.remark).startswith("bad request: "), answer.remark)


class HookTests(RemotingTests):
    """
    Hooks at the end that serves.
    """

    def setUp(self) -> None:
        super().setUp()
        self.seen: list[tuple[object, ...]] = []
        self.first, self.second = Recorder("first", self.seen), Recorder("second", self.seen)
        self.remoting = serving(self.clock, {CODE: echo})
        self.remoting.registerHook(self.first)
        self.remoting.registerHook(self.second)
        self.protocol, self.wire = connected(self.remoting)

    def test_order(self) -> None:
        """
        They are asked in order, before and after, with the peer's address.
        """
        self.protocol.dataReceived(frame(CODE, 1))
        self.assertEqual(
            self.seen,
            [
                ("first", "before", ADDRESS, CODE),
                ("second", "before", ADDRESS, CODE),
                ("first", "after", ADDRESS, CODE, 0),
                ("second", "after", ADDRESS, CODE, 0),
            ],
        )

    def test_refuse(self) -> None:
        """
        A hook refuses with its code: later hooks and the processor are not
        asked, and all hooks see the refusal.
        """
        self.first.before = Raise(ResponseError("not you", code=16))
        self.protocol.dataReceived(frame(CODE, 1))
        (answer,) = self.wire.drain()
        self.assertEqual((answer.opaque, answer.code, answer.remark), (1, 16, "not you"))
        self.assertEqual([each[:2] for each in self.seen].count(("second", "before")), 0)
        self.assertIn(("second", "after", ADDRESS, CODE, 16), self.seen)

    def test_addField(self) -> None:
        """
        What a hook puts into an answer's fields is sent.
        """
        self.second.after = lambda response: response.extFields.update(traced="yes")
        self.protocol.dataReceived(frame(CODE, 1, fields={"a": "b"}))
        (answer,) = self.wire.drain()
        self.assertEqual(answer.extFields, {"a": "b", "traced": "yes"})

    def test_raisesAfter(self) -> None:
        """
        A hook that fails after the answer was made turns it into an error.
        """
        self.first.after = Raise(ZeroDivisionError("hook"))
        self.protocol.dataReceived(frame(CODE, 1, serializeType=BINARY))
        (answer,) = self.wire.drain()
        self.assertEqual((answer.opaque, answer.code, answer.serializeType), (1, 1, 1))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class PromiseTests(RemotingTests):
    """
    Answers that are waited for.
    """

    def setUp(self) -> None:
        super().setUp()
        self.promises: list[Deferred[RemotingCommand]] = []
        self.cancelled: list[Deferred[RemotingCommand]] = []

        def promise(request: RemotingCommand, peer: object) -> Deferred[RemotingCommand]:
            self.promises.append(Deferred(self.cancelled.append))
            return self.promises[-1]

        self.protocol, self.wire = connected(
            serving(self.clock, {1: promise, 2: echo}, Limits(unanswered=2))
        )

    def test_lost(self) -> None:
        """
        When the connection is lost, what was promised is cancelled, and nothing
        is written or logged any more.
        """
        self.protocol.dataReceived(frame(1, 1) + frame(1, 2))
        lose(self.protocol, ConnectionDone())
        self.assertEqual(set(self.cancelled), set(self.promises))
        self.assertEqual(self.wire.writes, [])
        self.assertEqual(self.flushLoggedErrors(CancelledError), [])

    def test_answeredWhileLost(self) -> None:
        """
        A promise kept because it was cancelled is not written either.
        """
        self.protocol.dataReceived(frame(1, 1))
        self.promises[0]._canceller = lambda promise: promise.callback(responseCommand(0))
        lose(self.protocol, ConnectionDone())
        self.assertEqual(self.wire.writes, [])

    def test_limit(self) -> None:
        """
        Over the limit of unanswered requests a request is answered SYSTEM_BUSY
        and not served, until one of the others is answered.
        """
        self.protocol.dataReceived(frame(1, 1) + frame(1, 2) + frame(1, 3))
        (busy,) = self.wire.drain()
        self.assertEqual((busy.opaque, busy.code), (3, ResponseCode.SYSTEM_BUSY))
        self.assertIn(ADDRESS, str(busy.remark))
        self.assertEqual(len(self.promises), 2)
        self.promises[0].callback(responseCommand(0))
        self.protocol.dataReceived(frame(1, 4))
        self.assertEqual([each.opaque for each in self.wire.drain()], [1])
        self.assertEqual(len(self.promises), 3)


class ProtocolFaultTests(RemotingTests):
    """
    Peers that break the protocol.
    """

    def test_garbage(self) -> None:
        """
        Garbage closes the connection, with one warning that names the peer and
        what is wrong.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        protocol.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
        self.assertTrue(wire.disconnecting)
        self.assertIsNone(wire.producer)
        self.assertEqual(wire.writes, [])
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn(ADDRESS, warning)
        self.assertIn(str(0x47455420 + 4), warning)

    def test_notUnicode(self) -> None:
        """
        A header that is not UTF-8 breaks the protocol like any other garbage;
        fields that are not, found only when they are read, are a bad request.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        request = frame(CODE, 1, fields={"topic": "TTTT"})
        protocol.dataReceived(request.replace(b"TTTT", b"T\xf3TT"))
        (answer,) = wire.drain()
        self.assertEqual((answer.opaque, answer.code), (1, ResponseCode.SYSTEM_ERROR))
        self.assertTrue(str(answer.remark).startswith("bad request: "), answer.remark)
        protocol.dataReceived(request.replace(b"PYTHON", b"PY\xcaHON"))
        self.assertTrue(wire.disconnecting)
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn("JSON header", warning)

    def test_garbageGoesOn(self) -> None:
        """
        What a transport delivers while it closes, as TLS does until the peer
        agrees, is not warned of again, and does not keep the connection.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        for _ in range(10):
            protocol.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
            self.clock.advance(CLOSE_TIMEOUT / 10)
        self.assertEqual(len(self.logged(LogLevel.warn)), 1)
        self.assertEqual(wire.aborts, 1)

    def test_servedBefore(self) -> None:
        """
        What came whole before the fault, in the same read, is served first.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}))
        protocol.dataReceived(
            frame(CODE, 1) + frame(CODE, 2) + b"\xff\xff\xff\xff" + frame(CODE, 3)
        )
        self.assertEqual([each.opaque for each in decoded(wire.value())], [1, 2])
        self.assertTrue(wire.disconnecting)

    def test_frameLimit(self) -> None:
        """
        A length over the limit is refused as soon as it is read.
        """
        protocol, wire = connected(serving(self.clock, {CODE: echo}, Limits(frame=100)))
        protocol.dataReceived((97).to_bytes(4, "big"))
        self.assertTrue(wire.disconnecting)

    def test_lostMeanwhile(self) -> None:
        """
        If a processor loses the connection, a fault behind it is of no interest.
        """
        protocol, wire = connected(
            serving(self.clock, {CODE: lambda request, peer: lose(peer, ConnectionDone())})
        )
        protocol.dataReceived(frame(CODE, 1) + b"\xff\xff\xff\xff")
        self.assertEqual(self.logged(LogLevel.warn), [])
        self.assertFalse(wire.disconnecting)
