# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.protocol}: peers that do not read.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.remoting.doubles import (
    ADDRESS,
    RemotingTests,
    connected,
    decoded,
    frame,
    lose,
    serving,
)
from txrocket.errors import TooManyRequests
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import (
    RESPONSE_FLAG,
    RemotingCommand,
    requestCommand,
    responseCommand,
)
from txrocket.remoting.remoting import Limits
from txrocket.remoting.server import RemotingServerFactory
from txrocket.server.echo import echo

CODE = RequestCode.PULL_MESSAGE
BODY = bytes(200_000)
reactor: Any = theReactor


class AcceptedTests(RemotingTests):
    """
    The end that was dialled stops reading from a peer that does not read.
    """

    def setUp(self) -> None:
        super().setUp()
        self.served: list[int] = []

        def pull(request: RemotingCommand, peer: object) -> RemotingCommand:
            self.served.append(request.opaque)
            return responseCommand(body=BODY)

        self.protocol, self.wire = connected(
            serving(self.clock, {CODE: pull, 1: echo}), capacity=65536
        )

    def test_pauses(self) -> None:
        """
        Once the transport is full nothing more is read, and what was read is
        not served, until the peer reads.  Then all is served in order, and
        reading goes on.
        """
        self.protocol.dataReceived(b"".join(frame(CODE, n) for n in range(5)))
        self.assertEqual(self.wire.producerState, "paused")
        self.assertEqual(self.served, [0])
        answers = []
        for n in range(1, 5):
            answers += self.wire.drain()
            self.assertEqual(self.served, list(range(n + 1)))
            self.assertEqual(self.wire.producerState, "paused")
        answers += self.wire.drain()
        self.assertEqual(self.wire.producerState, "producing")
        self.assertEqual([each.opaque for each in answers], list(range(5)))

    def test_moreWhilePaused(self) -> None:
        """
        What a transport delivers although it was asked to pause, as TLS may,
        waits behind what came before.
        """
        self.protocol.dataReceived(frame(CODE, 0) + frame(CODE, 1))
        self.protocol.dataReceived(frame(CODE, 2) + frame(1, 3))
        self.assertEqual(self.served, [0])
        answers = [each.opaque for _ in range(4) for each in self.wire.drain()]
        self.assertEqual(answers, [0, 1, 2, 3])
        self.assertEqual(self.wire.producerState, "producing")

    def test_faultBehind(self) -> None:
        """
        A fault behind requests that wait closes the connection only after they
        were served.
        """
        self.protocol.dataReceived(frame(CODE, 0) + frame(CODE, 1) + b"\xff\xff\xff\xff")
        self.assertFalse(self.wire.disconnecting)
        self.wire.drain()
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual([each.opaque for each in self.wire.drain()], [1])

    def test_lost(self) -> None:
        """
        What waits is forgotten when the connection is lost.
        """
        self.protocol.dataReceived(frame(CODE, 0) + frame(CODE, 1))
        lose(self.protocol, ConnectionDone())
        self.wire.drain()
        self.assertEqual(self.served, [0])

    @given(
        st.lists(st.sampled_from([0, 10, 70_000, 300_000]), max_size=25),
        st.lists(st.integers(1, 400), min_size=1, max_size=10),
        st.randoms(use_true_random=False),
    )
    def test_nothingLost(self, sizes: list[int], cuts: list[int], chance: Any) -> None:
        """
        However the requests are cut, and whenever the peer reads, each is
        served once and answered in order.
        """
        protocol, wire = connected(
            serving(
                Clock(),
                {CODE: lambda asked, peer: responseCommand(body=bytes(int(asked.body)))},
            ),
            capacity=65536,
        )
        stream = b"".join(frame(CODE, n, b"%d" % size) for n, size in enumerate(sizes))
        answers: list[RemotingCommand] = []
        while stream or wire.value():
            if wire.producerState == "producing" and stream:
                cut = chance.choice(cuts)
                protocol.dataReceived(stream[:cut])
                stream = stream[cut:]
            if wire.producerState == "paused" or chance.random() < 0.3 or not stream:
                answers += wire.drain()
        self.assertEqual(
            [(each.opaque, len(each.body)) for each in answers], list(enumerate(sizes))
        )

    def test_readingCounts(self) -> None:
        """
        A peer that reads is active, even if it has nothing to say.
        """
        self.protocol.dataReceived(frame(CODE, 0))
        self.protocol.active = False
        self.wire.drain()
        self.assertTrue(self.protocol.active)


class DialledTests(RemotingTests):
    """
    The end that dialled goes on reading: if both ends stopped, neither would
    ever go on.
    """

    def test_goesOn(self) -> None:
        """
        While the transport is full, requests of the peer are served and its
        answers taken.
        """
        protocol, wire = connected(
            serving(self.clock, {CODE: lambda *given: responseCommand(body=BODY)}),
            accepted=False,
            capacity=65536,
        )
        pending = protocol.request(requestCommand(1, body=BODY), 3)
        (sent,) = decoded(wire.value())
        protocol.dataReceived(frame(CODE, 1) + frame(CODE, 2))
        protocol.dataReceived(frame(0, sent.opaque, flag=RESPONSE_FLAG))
        self.assertEqual(wire.producerState, "producing")
        self.successResultOf(pending)
        self.assertEqual([each.opaque for each in wire.drain()], [sent.opaque, 1, 2])


class LimitTests(RemotingTests):
    """
    What waits for a peer that does not read is bounded.
    """

    limits = Limits(unsent=1_000_000)

    def test_requests(self) -> None:
        """
        Requests over the limit fail and are not sent; the connection is kept,
        and works again once the peer has read.
        """
        protocol, wire = connected(
            serving(self.clock, {}, self.limits), accepted=False, capacity=65536
        )
        refused = 0
        for _ in range(100):
            pending = protocol.request(requestCommand(CODE, body=BODY), 3)
            pending.addErrback(lambda failure: failure.trap(TooManyRequests))
            refused += pending.called
        self.assertLess(len(wire.value()), 1_000_000 + 3 * len(BODY))
        self.assertGreater(refused, 90)
        error = self.assertRaises(TooManyRequests, protocol.oneway, requestCommand(CODE))
        self.assertIn(f"not sent to {ADDRESS}: it does not read, and ", str(error))
        self.assertFalse(wire.disconnecting)
        self.clock.advance(0)
        self.assertEqual(len(wire.drain()), 100 - refused)
        protocol.oneway(requestCommand(CODE))
        self.assertEqual(len(wire.drain()), 1)

    def test_answers(self) -> None:
        """
        Answers over the limit end the connection, with one warning: the peer
        would wait for them in vain.
        """
        promises: list[Deferred[RemotingCommand]] = []

        def promise(*given: object) -> Deferred[RemotingCommand]:
            promises.append(Deferred())
            return promises[-1]

        protocol, wire = connected(
            serving(self.clock, {CODE: promise}, self.limits), capacity=65536
        )
        protocol.dataReceived(b"".join(frame(CODE, n) for n in range(100)))
        for each in promises:
            each.callback(responseCommand(body=BODY))
        self.assertLess(len(wire.value()), 1_000_000 + 3 * len(BODY))
        self.assertEqual(wire.aborts, 1)
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn(f"Dropping the connection to {ADDRESS}", warning)
        wire.writes.clear()
        lose(protocol, ConnectionDone())
        self.assertEqual(wire.writes, [])

    def test_manyAnswers(self) -> None:
        """
        The dialling end, which goes on reading, drops the connection once as
        well, and serves nothing of it any more.
        """
        served: list[int] = []

        def pull(request: RemotingCommand, peer: object) -> RemotingCommand:
            served.append(request.opaque)
            return responseCommand(body=BODY)

        protocol, wire = connected(
            serving(self.clock, {CODE: pull}, self.limits), accepted=False, capacity=65536
        )
        protocol.dataReceived(b"".join(frame(CODE, n) for n in range(100)))
        protocol.dataReceived(frame(CODE, 100))
        self.assertEqual(wire.aborts, 1)
        self.assertEqual(len(self.logged(LogLevel.warn)), 1)
        self.assertLess(len(served), 10)


class Sloth(Protocol):
    """
    A client that asks for much and does not read.
    """

    transport: Any

    def __init__(self, asking: bytes) -> None:
        self.asking = asking
        self.received: list[bytes] = []
        self.size = 0
        self.awaited = 0
        self.complete: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        self.transport.write(self.asking)

    def dataReceived(self, data: bytes) -> None:
        self.received.append(data)
        self.size += len(data)
        if self.size >= self.awaited:
            self.complete.callback(None)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        if not self.complete.called:
            self.complete.errback(reason)


class SocketTests(TestCase):
    """
    The same with sockets.
    """

    timeout = 300

    @inlineCallbacks
    def test_pipelinedPulls(self) -> Any:
        """
        A client asks for 50 MiB in 200 pulls and does not read: the server
        holds few answers, and gives all of them once it does read.
        """
        peers: set[Any] = set()
        served = 0

        def pull(request: RemotingCommand, peer: object) -> RemotingCommand:
            nonlocal served
            served += 1
            peers.add(peer)
            return responseCommand(body=bytes(256 * 1024))

        factory = RemotingServerFactory(serving(reactor, {CODE: pull}))
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = yield endpoint.listen(factory)
        self.addCleanup(port.stopListening)
        sloth = Sloth(b"".join(frame(CODE, n) for n in range(200)))
        answer = responseCommand(body=bytes(256 * 1024))
        yield connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port), sloth)
        # The kernel's buffers are full as well once the pause lasts.
        lasting = 0
        while lasting < 10:
            yield deferLater(reactor, 0.01)
            paused = peers and all(each.transport.producerPaused for each in peers)
            lasting = lasting + 1 if paused else 0
        (peer,) = peers
        # Twisted's outgoing buffer, which it keeps in two parts.
        held = len(peer.transport.dataBuffer) + peer.transport._tempDataLen
        self.assertLess(held, 1024 * 1024)
        self.assertLess(served, 100)
        sizes = []
        for n in range(200):
            answer.opaque = n
            sizes.append(len(answer.encode()))
        sloth.awaited = sum(sizes)
        sloth.transport.resumeProducing()
        yield sloth.complete
        answers = decoded(b"".join(sloth.received))
        self.assertEqual([each.opaque for each in answers], list(range(200)))
        self.assertEqual({len(each.body) for each in answers}, {256 * 1024})
        lost = peer.whenLost()
        sloth.transport.loseConnection()
        yield lost
