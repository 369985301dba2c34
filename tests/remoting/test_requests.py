# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.protocol}: requests of our own, and both ends of a
connection calling each other.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.logger import LogLevel

from tests.remoting.doubles import (
    ADDRESS,
    Raise,
    Recorder,
    RemotingTests,
    connected,
    frame,
    lose,
    pair,
    serving,
)
from txrocket.errors import (
    ConnectionLost,
    InvalidMessage,
    RemotingError,
    RequestTimedOut,
    ResponseError,
    TooManyRequests,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    requestCommand,
    responseCommand,
)
from txrocket.remoting.protocol import CLOSE_TIMEOUT, RemotingProtocol
from txrocket.remoting.remoting import Limits, Remoting
from txrocket.remoting.responsetable import Pending
from txrocket.server.echo import echo

CODE = RequestCode.HEART_BEAT


def reply(opaque: int, body: bytes = b"") -> bytes:
    """
    A peer's answer.
    """
    return frame(0, opaque, body, flag=RESPONSE_FLAG)


class RequestTests(RemotingTests):
    """
    L{RemotingProtocol.request}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.remoting = Remoting(self.clock, Limits(requests=3, frame=1000))
        self.protocol, self.wire = connected(self.remoting, accepted=False)

    def test_anyOrder(self) -> None:
        """
        Each request is sent with an opaque of its own and fires with the answer
        that carries it.
        """
        pending = [self.protocol.request(requestCommand(CODE, body=b"%d" % n), 3) for n in range(3)]
        self.clock.advance(0)
        sent = self.wire.drain()
        self.assertEqual([each.body for each in sent], [b"0", b"1", b"2"])
        self.assertEqual(len({each.opaque for each in sent}), 3)
        self.protocol.dataReceived(b"".join(reply(each.opaque, each.body) for each in sent[::-1]))
        self.assertEqual([self.successResultOf(each).body for each in pending], [b"0", b"1", b"2"])

    def test_anyCode(self) -> None:
        """
        An answer is an answer, whatever its code: judging it is for the caller.
        """
        pending = self.protocol.request(requestCommand(CODE), 3)
        (sent,) = self.wire.drain()
        self.protocol.dataReceived(frame(17, sent.opaque, flag=RESPONSE_FLAG, remark="no topic"))
        response = self.successResultOf(pending)
        self.assertEqual((response.code, response.remark), (17, "no topic"))

    def test_timeout(self) -> None:
        """
        Without an answer a request fails in time, and the connection is kept.
        """
        pending = self.protocol.request(requestCommand(CODE), 3)
        self.clock.advance(3)
        self.failureResultOf(pending, RequestTimedOut)
        self.assertFalse(self.wire.disconnecting)

    def test_oneTimer(self) -> None:
        """
        However many requests are under way, the connection has one timer, and
        none once it is lost.
        """
        for timeout in (3, 1, 2):
            self.protocol.request(requestCommand(CODE), timeout).addErrback(lambda failure: None)
        self.clock.advance(0)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        lose(self.protocol, ConnectionDone())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost(self) -> None:
        """
        A lost connection fails what is under way at once; the error names
        phase, request, peer, time spent and reason.  What is sent afterwards fails too.
        """
        pending = self.protocol.request(requestCommand(CODE), 3)
        self.clock.advance(0.25)
        lost = self.protocol.whenLost()
        lose(self.protocol, TransportLost("reset"))
        error = self.failureResultOf(pending, ConnectionLost).value
        self.assertIn(
            f"waiting for the answer to HEART_BEAT (34): the connection to {ADDRESS} was lost"
            " after 0.250 s: ",
            str(error),
        )
        self.assertIn("reset", str(error))
        self.assertIn("reset", self.successResultOf(lost))
        self.wire.drain()
        error = self.failureResultOf(
            self.protocol.request(requestCommand(CODE), 3), ConnectionLost
        ).value
        self.assertEqual(
            str(error), f"HEART_BEAT (34) was not sent: the connection to {ADDRESS} is closed"
        )
        self.assertRaises(ConnectionLost, self.protocol.oneway, requestCommand(CODE))
        self.assertEqual(self.wire.drain(), [])

    def test_neverConnected(self) -> None:
        """
        A connection that is not up yet takes no requests.
        """
        protocol = RemotingProtocol(self.remoting, accepted=False)
        self.failureResultOf(protocol.request(requestCommand(CODE), 3), ConnectionLost)

    def test_whenLostCancelled(self) -> None:
        """
        Who no longer wants to know of the loss is not told.
        """
        lost = self.protocol.whenLost()
        lost.cancel()
        self.failureResultOf(lost, CancelledError)
        lose(self.protocol, ConnectionDone())

    def test_close(self) -> None:
        """
        Closing is in the transport's hands, which is told that nothing more is
        produced: TLS would wait for that.
        """
        self.protocol.close()
        self.assertTrue(self.wire.disconnecting)
        self.assertIsNone(self.wire.producer)

    def test_closeInTime(self) -> None:
        """
        A peer that closes with us is not aborted, and leaves no timer; closing
        what is lost already is nothing.
        """
        self.protocol.close()
        self.clock.advance(CLOSE_TIMEOUT / 2)
        lose(self.protocol, ConnectionDone())
        self.assertEqual((self.wire.aborts, self.clock.getDelayedCalls()), (0, []))
        self.protocol.close()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closeWithoutEnd(self) -> None:
        """
        A peer that does not take what is left, or is gone without a word, is
        given L{CLOSE_TIMEOUT} and no more, however often closing is asked for.
        """
        self.protocol.close()
        self.clock.advance(CLOSE_TIMEOUT / 2)
        self.protocol.close()
        self.clock.advance(CLOSE_TIMEOUT / 2)
        self.assertEqual(self.wire.aborts, 1)
        lose(self.protocol, ConnectionDone())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_strays(self) -> None:
        """
        A late or unasked answer is dropped, and told at the 1st, 10th, 100th.
        """
        pending = self.protocol.request(requestCommand(CODE), 3)
        (sent,) = self.wire.drain()
        pending.cancel()
        self.failureResultOf(pending, CancelledError)
        for told, times in ((1, 1), (1, 8), (2, 1), (2, 89), (3, 1), (3, 100)):
            self.protocol.dataReceived(reply(sent.opaque) * times)
            self.assertEqual(len(self.logged(LogLevel.info)), told)
        first, *_others, hundredth = self.logged(LogLevel.info)
        self.assertIn(ADDRESS, first)
        self.assertIn("no. 100 on this connection", hundredth)

    def test_limit(self) -> None:
        """
        Over the limit nothing is sent, and an answer makes room.
        """
        pending = [self.protocol.request(requestCommand(CODE), 3) for _ in range(3)]
        sent = self.wire.drain()
        self.failureResultOf(self.protocol.request(requestCommand(CODE), 3), TooManyRequests)
        self.assertEqual(self.wire.drain(), [])
        self.protocol.dataReceived(reply(sent[0].opaque))
        self.successResultOf(pending[0])
        self.assertNoResult(self.protocol.request(requestCommand(CODE), 3))

    def test_tooLarge(self) -> None:
        """
        A request that no peer would take is not sent, and not waited for.
        """
        pending = self.protocol.request(requestCommand(CODE, body=bytes(1000)), 3)
        self.failureResultOf(pending, InvalidMessage)
        self.assertEqual((self.wire.writes, len(self.protocol.responseTable)), ([], 0))

    def test_gathered(self) -> None:
        """
        Requests that are sent because answers came in go out in one write.
        """
        pending = [self.protocol.request(requestCommand(CODE), 3) for _ in range(3)]
        for each in pending:
            each.addCallback(lambda response: self.protocol.oneway(requestCommand(CODE)))
        self.clock.advance(0)
        sent = self.wire.drain()
        self.wire.writes.clear()
        self.protocol.dataReceived(b"".join(reply(each.opaque) for each in sent))
        self.assertEqual((len(self.wire.writes), len(self.wire.drain())), (1, 3))

    def test_gatheredMuch(self) -> None:
        """
        Unless they are too much for one.
        """
        protocol, wire = connected(Remoting(self.clock), accepted=False)
        large = bytes(60_000)
        pending = [protocol.request(requestCommand(CODE), 3) for _ in range(3)]
        for each in pending:
            each.addCallback(lambda response: protocol.oneway(requestCommand(CODE, body=large)))
        self.clock.advance(0)
        sent = wire.drain()
        wire.writes.clear()
        protocol.dataReceived(b"".join(reply(each.opaque) for each in sent))
        self.assertEqual([len(each) // 60_000 for each in wire.writes], [2, 1])

    def test_oneWrite(self) -> None:
        """
        A request goes out at once, and those that follow before it is answered in
        one write at the end of the turn, in their order.
        """
        for number in range(3):
            self.protocol.request(requestCommand(CODE, body=b"%d" % number), 3)
        self.assertEqual([each.body for each in self.wire.drain()], [b"0"])
        self.wire.writes.clear()
        self.clock.advance(0)
        self.assertEqual([each.body for each in self.wire.drain()], [b"1", b"2"])
        self.assertEqual(len(self.wire.writes), 1)


class Posted(Pending[str]):
    """
    What a caller waits for itself.
    """

    code = CODE

    def answered(self, response: RemotingCommand, /) -> None:
        self.callback(f"answered {response.code}")

    def failed(self, error: RemotingError, /) -> None:
        self.callback(f"failed: {type(error).__name__}")


class PostTests(RemotingTests):
    """
    L{PeerOutbox.reserve} and L{PeerOutbox.post}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.remoting = Remoting(self.clock, Limits(requests=4, unsent=8000))
        self.protocol, self.wire = connected(self.remoting, accepted=False, capacity=5000)

    def post(self, size: int = 1) -> Posted:
        """
        Send a request that somebody else has encoded.
        """
        posted = Posted()
        posted.opaque, posted.timeout = self.protocol.outbox.reserve(), 3.0
        posted.deadline = self.clock.seconds() + 3.0
        command = requestCommand(CODE, body=bytes(size))
        command.opaque = posted.opaque
        self.protocol.outbox.post(posted, command.encodeHead(), command.body)
        return posted

    def test_outcome(self) -> None:
        """
        Who posts is told of an answer, that none came in time, or that none can come.
        """
        posted = self.post()
        (sent,) = self.wire.drain()
        self.assertEqual((sent.opaque, sent.body), (posted.opaque, b"\0"))
        self.protocol.dataReceived(reply(sent.opaque))
        self.assertEqual(self.successResultOf(posted), "answered 0")
        late = self.post()
        self.clock.advance(3.0)
        self.assertEqual(self.successResultOf(late), "failed: RequestTimedOut")
        lost = self.post()
        lose(self.protocol, ConnectionDone())
        self.assertEqual(self.successResultOf(lost), "failed: ConnectionLost")

    def test_together(self) -> None:
        """
        It is numbered and written with the other requests, in their order.
        """
        self.protocol.request(requestCommand(CODE, body=b"first"), 3)
        self.post(2)
        self.assertEqual([each.body for each in self.wire.drain()], [b"first"])
        self.clock.advance(0)
        (second,) = self.wire.drain()
        self.assertEqual((second.opaque, second.body), (1, bytes(2)))

    def test_reserve(self) -> None:
        """
        There is no number while the limit is reached, hooks want to look, too much waits
        for a peer that does not read, or there is no connection.
        """
        for size in (1, 6000, 9000):
            # The second fills the transport, the third is more than may wait for it.
            self.assertGreaterEqual(self.protocol.outbox.reserve(), 0)
            self.post(size)
            self.clock.advance(0)
        self.assertEqual(self.protocol.outbox.reserve(), -1)
        self.wire.drain()
        self.assertGreater(self.protocol.outbox.reserve(), 0)
        self.post()
        self.assertEqual(self.protocol.outbox.reserve(), -1)
        self.clock.advance(3.0)
        self.assertGreater(self.protocol.outbox.reserve(), 0)
        self.remoting.registerHook(Recorder("hook", []))
        self.assertEqual(self.protocol.outbox.reserve(), -1)
        self.remoting.hooks.clear()
        self.assertGreater(self.protocol.outbox.reserve(), 0)
        lose(self.protocol, ConnectionDone())
        self.assertEqual(self.protocol.outbox.reserve(), -1)


class OnewayTests(RemotingTests):
    """
    L{RemotingProtocol.oneway}.
    """

    def test_sent(self) -> None:
        """
        It is sent with the oneway flag, and nothing is waited for.
        """
        protocol, wire = connected(Remoting(self.clock), accepted=False)
        protocol.oneway(requestCommand(CODE, body=b"note"))
        (sent,) = wire.drain()
        self.assertEqual((sent.flag, sent.body), (ONEWAY_FLAG, b"note"))
        self.assertEqual(len(protocol.responseTable), 0)

    def test_limit(self) -> None:
        """
        While the peer does not read, so many may wait and no more; once it has
        read, there is room again.
        """
        remoting = Remoting(self.clock, Limits(oneways=2))
        protocol, wire = connected(remoting, accepted=False, capacity=0)
        for _ in range(3):  # the first one fills the transport
            protocol.oneway(requestCommand(CODE))
        error = self.assertRaises(TooManyRequests, protocol.oneway, requestCommand(CODE))
        self.assertIn(f"not sent to {ADDRESS}: 2 oneway requests", str(error))
        self.clock.advance(0)
        self.assertEqual(len(wire.drain()), 3)
        protocol.oneway(requestCommand(CODE))
        self.assertEqual(len(wire.drain()), 1)

    def test_oneWrite(self) -> None:
        """
        The first goes out at once, and those that follow it in one write at the end of
        the turn, in their order, unless there is too much of them.
        """
        protocol, wire = connected(Remoting(self.clock), accepted=False)
        for number in range(3):
            protocol.oneway(requestCommand(CODE, body=b"%d" % number))
        self.assertEqual([each.body for each in wire.drain()], [b"0"])
        self.clock.advance(0)
        self.assertEqual([each.body for each in wire.drain()], [b"1", b"2"])
        self.assertEqual(len(wire.writes), 2)
        for size in (1, 1, 200_000):
            protocol.oneway(requestCommand(CODE, body=bytes(size)))
        self.assertEqual([len(each.body) for each in wire.drain()], [1, 1, 200_000])

    def test_notices(self) -> None:
        """
        What an accepting end has to say goes out at once, each time.
        """
        protocol, wire = connected(Remoting(self.clock))
        for number in range(3):
            protocol.oneway(requestCommand(CODE, body=b"%d" % number))
        self.assertEqual([each.body for each in wire.drain()], [b"0", b"1", b"2"])


class HookTests(RemotingTests):
    """
    Hooks at the end that asks.
    """

    def setUp(self) -> None:
        super().setUp()
        self.seen: list[tuple[object, ...]] = []
        self.first, self.second = Recorder("first", self.seen), Recorder("second", self.seen)
        self.remoting = Remoting(self.clock)
        self.remoting.registerHook(self.first)
        self.remoting.registerHook(self.second)
        self.protocol, self.wire = connected(self.remoting, accepted=False)

    def test_order(self) -> None:
        """
        They are asked in order before the request is written and after its
        answer came, before the caller sees it.
        """
        pending = self.protocol.request(requestCommand(CODE), 3)
        pending.addCallback(lambda response: self.seen.append(("caller", response.code)))
        (sent,) = self.wire.drain()
        self.protocol.dataReceived(reply(sent.opaque))
        self.assertEqual(
            self.seen,
            [
                ("first", "before", ADDRESS, CODE),
                ("second", "before", ADDRESS, CODE),
                ("first", "after", ADDRESS, CODE, 0),
                ("second", "after", ADDRESS, CODE, 0),
                ("caller", 0),
            ],
        )

    def test_addField(self) -> None:
        """
        What a hook puts into a request's fields is sent, oneway or not: this is
        how requests are signed.
        """
        self.first.before = lambda request: request.extFields.update(AccessKey="k")
        self.protocol.request(requestCommand(CODE), 3).addErrback(lambda failure: None)
        self.protocol.oneway(requestCommand(CODE))
        self.assertEqual([each.extFields for each in self.wire.drain()], [{"AccessKey": "k"}] * 2)

    def test_refuse(self) -> None:
        """
        A hook's refusal is the caller's failure, and nothing is sent.
        """
        self.first.before = Raise(ResponseError("no", code=16))
        failure = self.failureResultOf(self.protocol.request(requestCommand(CODE), 3))
        self.assertEqual(failure.value.code, 16)
        self.assertRaises(ResponseError, self.protocol.oneway, requestCommand(CODE))
        self.assertEqual((self.wire.writes, len(self.protocol.responseTable)), ([], 0))

    def test_raisesAfter(self) -> None:
        """
        A hook that fails on the answer fails the request.
        """
        self.second.after = Raise(ZeroDivisionError())
        pending = self.protocol.request(requestCommand(CODE), 3)
        (sent,) = self.wire.drain()
        self.protocol.dataReceived(reply(sent.opaque))
        self.failureResultOf(pending, ZeroDivisionError)


class BothEndsTests(RemotingTests):
    """
    Two ends of one connection, each calling the other.
    """

    def test_bothWays(self) -> None:
        """
        Client calls server and server calls client over one connection, at the
        same time and with the same opaques.
        """
        ours, theirs = serving(self.clock, {1: echo}), serving(self.clock, {2: echo})
        client, server, pump = pair(ours, theirs)
        asked = [client.request(requestCommand(2, body=b"up %d" % n), 3) for n in range(5)]
        back = [server.request(requestCommand(1, body=b"down %d" % n), 3) for n in range(5)]
        self.clock.advance(0)
        pump.flush()
        self.assertEqual(
            [self.successResultOf(each).body for each in asked], [b"up %d" % n for n in range(5)]
        )
        self.assertEqual(
            [self.successResultOf(each).body for each in back], [b"down %d" % n for n in range(5)]
        )

    def test_callsBackWhileServing(self) -> None:
        """
        A processor may ask the client something and answer with what it said,
        as a transaction check does.
        """

        def check(request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
            asked = peer.request(requestCommand(1, body=b"and you?"), 3)
            return asked.addCallback(lambda said: responseCommand(body=said.body + b" said it"))

        client, _server, pump = pair(
            serving(self.clock, {1: lambda *given: responseCommand(body=b"client")}),
            serving(self.clock, {2: check}),
        )
        asked = client.request(requestCommand(2), 3)
        pump.flush()
        self.assertEqual(self.successResultOf(asked).body, b"client said it")

    def test_closed(self) -> None:
        """
        When one end closes, both fail what they wait for.
        """
        never: list[Deferred[RemotingCommand]] = []

        def wait(*given: object) -> Deferred[RemotingCommand]:
            never.append(Deferred())
            return never[-1]

        client, server, pump = pair(serving(self.clock, {1: wait}), serving(self.clock, {2: wait}))
        asked, back = (
            client.request(requestCommand(2), 3),
            server.request(requestCommand(1), 3),
        )
        pump.flush()
        server.close()
        pump.flush()
        self.failureResultOf(asked, ConnectionLost)
        self.failureResultOf(back, ConnectionLost)
        self.assertTrue(all(each.called for each in never))
