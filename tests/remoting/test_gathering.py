# SPDX-License-Identifier: Apache-2.0
"""
Tests for answering many at once: what is settled before answers are written, and
what is gathered until the reactor turns.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone

from tests.remoting.doubles import (
    Raise,
    RemotingTests,
    Wire,
    connected,
    decoded,
    frame,
    lose,
    serving,
)
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.remoting.node import Remoting
from txrocket.remoting.protocol import RemotingProtocol

NOW, LATER, NEVER = 1, 2, 3


class GatheringTests(RemotingTests):
    """
    The base: a server that answers NOW at once and LATER when a test says so.
    """

    def setUp(self) -> None:
        super().setUp()
        self.given: list[RemotingCommand] = []
        self.promised: list[Deferred[RemotingCommand]] = []
        self.settled: list[int] = []
        self.remoting = serving(self.clock, {NOW: self.now, LATER: self.later, NEVER: _never})
        self.peer, self.wire = self.connect()

    def connect(self) -> tuple[RemotingProtocol, Wire]:
        """
        A connection.
        """
        return connected(self.remoting)

    def now(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        response = responseCommand(body=request.body)
        self.given.append(response)
        return response

    def later(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        promise: Deferred[RemotingCommand] = Deferred()
        self.promised.append(promise)
        return promise


def _never(request: RemotingCommand, peer: RemotingProtocol) -> None:
    return None


class SettleTests(GatheringTests):
    """
    C{settle}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.remoting.settle = self.settle

    def settle(self) -> None:
        """
        Note how much had been written, and given, by then.
        """
        self.settled.append(len(self.wire.value()))

    def test_before(self) -> None:
        """
        It is called once for all answers to a read, before any of them is written.
        """
        self.peer.dataReceived(frame(NOW, 1) + frame(NOW, 2) + frame(NOW, 3))
        self.assertEqual(self.settled, [0])
        self.assertEqual([each.opaque for each in self.wire.drain()], [1, 2, 3])

    def test_promised(self) -> None:
        """
        And before an answer that was promised.
        """
        self.peer.dataReceived(frame(LATER, 1))
        self.assertEqual(self.settled, [])
        self.promised[0].callback(responseCommand())
        self.assertEqual(self.settled, [0])
        self.assertEqual(len(self.wire.drain()), 1)

    def test_notWithoutAnswers(self) -> None:
        """
        Where nothing is answered nothing is settled: not for requests of ours, not
        for those that want no answer.
        """
        self.peer.dataReceived(frame(NEVER, 1) + frame(NOW, 2, flag=2))
        self.peer.oneway(requestCommand(NOW))
        self.assertEqual(self.settled, [])

    def test_changes(self) -> None:
        """
        It may change answers that are not written yet.
        """

        def refuse() -> None:
            for each in self.given:
                each.code = 14
                each.remark = "lost"
                each.fields = {"a": "b"}

        self.remoting.settle = refuse
        self.peer.dataReceived(frame(NOW, 1) + frame(NOW, 2))
        for answer in self.wire.drain():
            self.assertEqual((answer.code, answer.remark), (14, "lost"))
            self.assertEqual(answer.extFields, {"a": "b"})

    def test_parts(self) -> None:
        """
        Large answers go out in parts, and what each part says is settled before it.
        """
        body = b"x" * 60_000
        self.peer.dataReceived(frame(NOW, 1, body) + frame(NOW, 2, body) + frame(NOW, 3))
        self.assertEqual(len(self.settled), 2)
        self.assertEqual(self.settled[0], 0)
        self.assertEqual([each.opaque for each in self.wire.drain()], [1, 2, 3])

    def test_keepsPromise(self) -> None:
        """
        Settling may keep a promise on the same connection, whose answer is written
        on the way: each request is answered once.
        """

        def settle() -> None:
            if self.promised:
                self.promised.pop().callback(responseCommand(body=b"kept"))

        self.remoting.settle = settle
        self.peer.dataReceived(frame(LATER, 1) + frame(NOW, 2) + frame(NOW, 3))
        answers = self.wire.drain()
        self.assertEqual(sorted(each.opaque for each in answers), [1, 2, 3])
        self.assertEqual(self.peer._answers, [])

    def test_keepsOthersPromise(self) -> None:
        """
        Or on another connection, which settles in turn before it writes.
        """
        other, wire = self.connect()
        other.dataReceived(frame(LATER, 7))
        calls: list[str] = []

        def settle() -> None:
            calls.append("settle")
            if self.promised:
                self.promised.pop().callback(responseCommand())

        self.remoting.settle = settle
        self.peer.dataReceived(frame(NOW, 1))
        self.assertEqual(calls, ["settle", "settle"])
        self.assertEqual([each.opaque for each in wire.drain()], [7])
        self.assertEqual([each.opaque for each in self.wire.drain()], [1])

    def test_closes(self) -> None:
        """
        Settling may end the connection; then nothing more is written to it.
        """
        self.remoting.settle = lambda: lose(self.peer, ConnectionDone())
        self.peer.dataReceived(frame(NOW, 1))
        self.assertEqual(self.wire.value(), b"")

    def test_close(self) -> None:
        """
        Who closes a connection settles what is still to be written to it.
        """
        self.remoting.gatherTurn()
        self.peer.dataReceived(frame(LATER, 1))
        self.promised[0].callback(responseCommand())
        self.assertEqual(self.settled, [])
        self.peer.close()
        self.assertEqual(self.settled, [0])
        self.assertEqual(len(self.wire.drain()), 1)


class GatherTurnTests(GatheringTests):
    """
    L{Remoting.gatherTurn}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.other, self.otherWire = self.connect()
        self.peer.dataReceived(b"".join(frame(LATER, each) for each in range(3)))
        self.other.dataReceived(frame(LATER, 9))
        self.remoting.gatherTurn()

    def keep(self, body: bytes = b"") -> None:
        """
        Keep all promises.
        """
        for each in self.promised:
            each.callback(responseCommand(body=body))

    def test_oneWrite(self) -> None:
        """
        All that is written to a connection until the reactor turns is written at
        once, in its order.
        """
        self.keep()
        self.assertEqual((self.wire.writes, self.otherWire.writes), ([], []))
        self.clock.advance(0)
        self.assertEqual((len(self.wire.writes), len(self.otherWire.writes)), (1, 1))
        self.assertEqual([each.opaque for each in self.wire.drain()], [0, 1, 2])
        self.assertEqual([each.opaque for each in self.otherWire.drain()], [9])

    def test_once(self) -> None:
        """
        However often it is asked for in a turn, the turn ends once, and the next
        is as usual.
        """
        self.remoting.gatherTurn()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.keep()
        self.assertEqual(len(self.wire.writes), 3)

    def test_again(self) -> None:
        """
        A later turn can be gathered as well.
        """
        self.clock.advance(0)
        self.remoting.gatherTurn()
        self.keep()
        self.assertEqual(self.wire.writes, [])
        self.clock.advance(0)
        self.assertEqual(len(self.wire.writes), 1)

    def test_large(self) -> None:
        """
        What is large is not gathered beyond what the transport should be told of.
        """
        self.keep(b"x" * 70_000)
        self.assertEqual(len(self.wire.writes), 1)
        self.assertEqual([each.opaque for each in self.wire.drain()], [0, 1])
        self.clock.advance(0)
        self.assertEqual([each.opaque for each in self.wire.drain()], [2])

    def test_requests(self) -> None:
        """
        Requests of ours are gathered too.
        """
        self.peer.oneway(requestCommand(NOW))
        answer = self.peer.request(requestCommand(LATER), 1)
        self.assertEqual(self.wire.writes, [])
        self.clock.advance(0)
        self.assertEqual(len(decoded(self.wire.writes[0])), 2)
        self.clock.advance(1)
        self.failureResultOf(answer)

    def test_reads(self) -> None:
        """
        A read's answers wait with the others.
        """
        self.promised[0].callback(responseCommand())
        self.peer.dataReceived(frame(NOW, 5) + frame(NOW, 6))
        self.assertEqual(self.wire.writes, [])
        self.clock.advance(0)
        self.assertEqual(len(self.wire.writes), 1)
        self.assertEqual([each.opaque for each in self.wire.drain()], [0, 5, 6])

    def test_whileServing(self) -> None:
        """
        Who serves a request may ask for it.
        """
        self.clock.advance(0)

        def gather(request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
            self.remoting.gatherTurn()
            return responseCommand()

        pair = serving(self.clock, {NOW: gather}).processorTable[NOW]
        self.remoting.processorTable[NOW] = pair
        self.peer.dataReceived(frame(NOW, 5))
        self.other.dataReceived(frame(NOW, 6))
        self.assertEqual((self.wire.writes, self.otherWire.writes), ([], []))
        self.clock.advance(0)
        self.assertEqual([each.opaque for each in self.wire.drain()], [5])
        self.assertEqual([each.opaque for each in self.otherWire.drain()], [6])

    def test_nothing(self) -> None:
        """
        A read that is answered with nothing has nothing to wait for.
        """
        self.peer.dataReceived(frame(NEVER, 5))
        self.assertEqual(self.remoting._uncorked, {})

    def test_lost(self) -> None:
        """
        A connection that is gone when the turn ends is passed over; others are
        not.
        """
        self.keep()
        lose(self.peer, ConnectionDone())
        self.clock.advance(0)
        self.assertEqual(self.wire.writes, [])
        self.assertEqual(len(self.otherWire.writes), 1)

    def test_close(self) -> None:
        """
        Who closes a connection does not lose what has gathered.
        """
        self.keep()
        self.peer.close()
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(len(self.wire.drain()), 3)
        self.clock.advance(0)
        self.assertEqual(len(self.wire.writes), 1)

    def test_settled(self) -> None:
        """
        At the end of the turn what was said on credit is settled, though those to
        whom it was said are gone; what that has others say goes out with the rest.
        """
        settled: list[bool] = []

        def settle() -> None:
            if not settled:
                settled.append(self.remoting.corked)
                self.promised[3].callback(responseCommand())

        self.remoting.settle = settle
        self.peer.dataReceived(frame(NOW, 5))
        lose(self.peer, ConnectionDone())
        self.clock.advance(0)
        self.assertEqual(settled, [True])
        self.assertEqual([each.opaque for each in self.otherWire.drain()], [9])

    def test_settlingFails(self) -> None:
        """
        If that fails, which is a bug of ours, the turn ends all the same.
        """
        self.keep()
        self.remoting.settle = Raise(KeyError("oops"))
        self.assertRaises(KeyError, self.clock.advance, 0)
        self.assertFalse(self.remoting.corked)

    def test_writtenMeanwhile(self) -> None:
        """
        What is said while the turn is being ended goes out before it has ended.
        """
        left = [requestCommand(NOW), requestCommand(NOW)]

        def settle() -> None:
            if left:
                self.other.oneway(left.pop())

        self.remoting.settle = settle
        self.promised[0].callback(responseCommand())
        self.clock.advance(0)
        self.assertEqual(len(self.otherWire.drain()), 2)
        self.assertFalse(self.remoting.corked)

    def test_default(self) -> None:
        """
        A program that asks for nothing of this gathers and settles nothing.
        """
        remoting = Remoting(self.clock)
        self.assertIsNone(remoting.settle)
        self.assertFalse(remoting.corked)
