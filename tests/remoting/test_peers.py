# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.peers}.
"""

from __future__ import annotations

import random
from typing import Any

from twisted.application.internet import backoffPolicy
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError, ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IProtocolFactory

from tests.remoting.doubles import (
    PEER,
    Raise,
    RemotingTests,
    Wire,
    frame,
    lose,
)
from txrocket.errors import ConnectFailed, ConnectionLost, RequestTimedOut
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RESPONSE_FLAG, requestCommand
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.protocol import CLOSE_TIMEOUT
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS

CODE = RequestCode.HEART_BEAT
A, B = "a.example.org:10911", "b.example.org:10911"


class Attempt:
    """
    An endpoint, used once, whose fate the test decides.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.cancelled = False
        self.wire = Wire()
        self.protocol: Any = None

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        self.factory = factory
        self.outcome: Deferred[Any] = Deferred(self._cancel)
        return self.outcome

    def _cancel(self, outcome: Deferred[Any]) -> None:
        # As the endpoints of Twisted do.
        self.cancelled = True
        outcome.errback(ConnectingCancelledError(PEER))

    def succeed(self) -> None:
        self.protocol = self.factory.buildProtocol(PEER)
        self.protocol.makeConnection(self.wire)
        self.outcome.callback(self.protocol)

    def refuse(self) -> None:
        self.outcome.errback(ConnectionRefusedError("refused"))

    def reply(self, body: bytes = b"") -> None:
        """
        Answer all requests that were sent.
        """
        for each in self.wire.drain():
            self.protocol.dataReceived(frame(0, each.opaque, body, flag=RESPONSE_FLAG))


def cancelOther(result: object, other: Deferred[Any]) -> None:
    """
    What a caller may do once it has its own result.
    """
    other.cancel()


class PeersBase(RemotingTests):
    """
    Peers whose connections are made by the test.
    """

    def setUp(self) -> None:
        super().setUp()
        self.attempts: list[Attempt] = []
        self.peers = Peers(Remoting(self.clock), self.connect, lambda failures: 2.0**failures)

    def connect(self, address: str) -> Any:
        self.attempts.append(Attempt(address))
        return self.attempts[-1]


class PeersTests(PeersBase):
    """
    The connections that a program dials.
    """

    def test_lazy(self) -> None:
        """
        No one is dialled before it is asked for.
        """
        self.assertEqual(self.attempts, [])

    def test_shared(self) -> None:
        """
        All who ask share one attempt and then one connection, per address.
        """
        waiting = [self.peers.connection(A) for _ in range(3)]
        other = self.peers.connection(B)
        self.assertEqual([each.address for each in self.attempts], [A, B])
        self.attempts[0].succeed()
        connections = {self.successResultOf(each) for each in waiting}
        self.assertEqual(connections, {self.attempts[0].protocol})
        self.assertNoResult(other)
        self.assertIs(self.successResultOf(self.peers.connection(A)), self.attempts[0].protocol)
        self.assertEqual(len(self.attempts), 2)
        self.assertFalse(self.attempts[0].protocol.accepted)

    def test_failed(self) -> None:
        """
        A failed attempt fails all who wait, and the error names the address, the time
        spent and the reason.
        """
        waiting = [self.peers.connection(A) for _ in range(3)]
        self.clock.advance(1.5)
        self.attempts[0].refuse()
        for each in waiting:
            error = self.failureResultOf(each, ConnectFailed).value
            self.assertIn(f"connecting to {A} failed after 1.500 s: ", str(error))
            self.assertIn("refused", str(error))
            self.assertEqual(error.address, A)

    def test_badAddress(self) -> None:
        """
        An address that cannot even be dialled is a failed attempt.
        """
        peers = Peers(Remoting(self.clock), endpoints(self.clock))
        error = self.failureResultOf(peers.connection("nowhere"), ConnectFailed).value
        self.assertIn("host:port was expected", str(error))

    def test_badSettings(self) -> None:
        """
        TLS settings that cannot be used are a failed attempt, and named.
        """
        tls = ClientTLS(authServer=True, trustCertPath="no-such-file")
        peers = Peers(Remoting(self.clock), endpoints(self.clock, tls))
        error = self.failureResultOf(peers.connection("127.0.0.1:1"), ConnectFailed).value
        self.assertIn("tls.client.trustCertPath", str(error))

    def test_pause(self) -> None:
        """
        After a failure there is a pause.  Who asks meanwhile waits for its end
        and shares the next attempt.
        """
        self.peers.connection(A).addErrback(lambda failure: None)
        self.attempts[0].refuse()
        self.clock.advance(0.5)
        waiting = [self.peers.connection(A), self.peers.connection(A)]
        self.clock.advance(1.49)
        self.assertEqual(len(self.attempts), 1)
        self.clock.advance(0.01)
        self.assertEqual(len(self.attempts), 2)
        self.attempts[1].succeed()
        self.assertEqual(
            {self.successResultOf(each) for each in waiting}, {self.attempts[1].protocol}
        )

    def test_pausing(self) -> None:
        """
        Whether an address would have to wait for the end of a pause can be asked.
        """
        self.assertFalse(self.peers.pausing(A))
        self.peers.connection(A).addErrback(lambda failure: None)
        self.assertFalse(self.peers.pausing(A))
        self.attempts[0].refuse()
        self.clock.advance(1.99)
        self.assertTrue(self.peers.pausing(A))
        self.clock.advance(0.01)
        self.assertFalse(self.peers.pausing(A))

    def test_pauseOver(self) -> None:
        """
        Who asks after the pause does not wait, and no one dials unasked.
        """
        self.peers.connection(A).addErrback(lambda failure: None)
        self.attempts[0].refuse()
        self.clock.advance(100.0)
        self.assertEqual(len(self.attempts), 1)
        self.peers.connection(A)
        self.assertEqual(len(self.attempts), 2)

    def test_pausesGrow(self) -> None:
        """
        Each failure in a row makes the pause longer; a success starts anew.
        """
        for pause in (2.0, 4.0, 8.0):
            self.peers.connection(A).addErrback(lambda failure: None)
            self.attempts[-1].refuse()
            dialled = len(self.attempts)
            self.peers.connection(A).addErrback(lambda failure: None)
            self.clock.advance(pause - 0.01)
            self.assertEqual(len(self.attempts), dialled)
            self.clock.advance(0.01)
            self.assertEqual(len(self.attempts), dialled + 1)
        self.attempts[-1].succeed()
        lose(self.attempts[-1].protocol, ConnectionDone())
        self.peers.connection(A).addErrback(lambda failure: None)
        self.attempts[-1].refuse()
        self.peers.connection(A)
        self.clock.advance(2.0)
        self.assertEqual(len(self.attempts), dialled + 3)

    def test_defaultPauses(self) -> None:
        """
        The pauses that are used unless others are given grow from a part of a
        second to ten seconds, with chance in them.
        """
        random.seed(7)
        self.addCleanup(random.seed)
        peers = Peers(Remoting(self.clock), self.connect)
        pauses = []
        for _ in range(12):
            peers.connection(A).addErrback(lambda failure: None)
            self.attempts[-1].refuse()
            peers.connection(A).addErrback(lambda failure: None)
            (timer,) = self.clock.getDelayedCalls()
            pauses.append(timer.getTime() - self.clock.seconds())
            self.clock.advance(pauses[-1])
            self.attempts[-1].refuse()
            self.clock.advance(100.0)
        self.assertTrue(0.2 <= pauses[0] < 2.0, pauses)
        self.assertTrue(10.0 <= pauses[-1] < 12.0, pauses)
        self.assertNotEqual(
            pauses[-1], backoffPolicy(0.2, 10.0, 1.5, jitter=lambda: 0.0)(len(pauses))
        )

    def test_redialled(self) -> None:
        """
        After a loss the next who asks has it dialled again, through a new
        endpoint, so that the name is looked up anew.
        """
        self.peers.connection(A)
        self.attempts[0].succeed()
        lose(self.attempts[0].protocol, ConnectionDone())
        self.assertEqual(len(self.attempts), 1)
        again = self.peers.connection(A)
        self.assertEqual([each.address for each in self.attempts], [A, A])
        self.attempts[1].succeed()
        self.assertIs(self.successResultOf(again), self.attempts[1].protocol)

    def test_cancelOne(self) -> None:
        """
        Who no longer wants the connection leaves the attempt to the others.
        """
        first, second = self.peers.connection(A), self.peers.connection(A)
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertFalse(self.attempts[0].cancelled)
        self.attempts[0].succeed()
        self.successResultOf(second)

    def test_cancelAnother(self) -> None:
        """
        Who is told of an attempt's end may cancel others that wait for it.
        """
        for end in (Attempt.succeed, Attempt.refuse):
            first, second = self.peers.connection(B), self.peers.connection(B)
            first.addBoth(cancelOther, second)
            end(self.attempts[-1])
            self.failureResultOf(second, CancelledError)
            self.peers.forget(B)

    def test_forget(self) -> None:
        """
        Forgetting an address closes its connection; one that is not known is
        nothing.
        """
        self.peers.connection(A)
        self.attempts[0].succeed()
        self.peers.forget(A)
        self.peers.forget(B)
        self.assertTrue(self.attempts[0].wire.disconnecting)
        self.peers.connection(A)
        self.assertEqual(len(self.attempts), 2)

    def test_forgetDialling(self) -> None:
        """
        Forgetting ends the attempt, and fails who waits for it.
        """
        waiting = self.peers.connection(A)
        self.peers.forget(A)
        self.assertTrue(self.attempts[0].cancelled)
        error = self.failureResultOf(waiting, ConnectFailed).value
        self.assertEqual(str(error), f"connecting to {A} failed because it was given up")

    def test_forgetPausing(self) -> None:
        """
        Forgetting ends the pause, too.
        """
        self.peers.connection(A).addErrback(lambda failure: None)
        self.attempts[0].refuse()
        waiting = self.peers.connection(A)
        self.peers.forget(A)
        self.failureResultOf(waiting, ConnectFailed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """
        Stopping closes all connections, and is over when they are gone.
        """
        for address in (A, B, "c:1"):
            self.peers.connection(address).addErrback(lambda failure: None)
        for each in self.attempts[:2]:
            each.succeed()
        stopped = self.peers.stop()
        for each in self.attempts[:2]:
            self.assertTrue(each.wire.disconnecting)
            self.assertNoResult(stopped)
            lose(each.protocol, ConnectionDone())
        self.assertIsNone(self.successResultOf(stopped))
        self.assertTrue(self.attempts[2].cancelled)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopNothing(self) -> None:
        """
        With no connections there is nothing to wait for.
        """
        self.successResultOf(self.peers.stop())

    def test_stopStuck(self) -> None:
        """
        A peer that does not let go is not waited for without end.
        """
        self.peers.connection(A)
        self.attempts[0].succeed()
        self.peers.stop()
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertEqual(self.attempts[0].wire.aborts, 1)


class RequestTests(PeersBase):
    """
    Requests by address.
    """

    def test_request(self) -> None:
        """
        A request is sent when the connection is up, at once if it is.
        """
        first = self.peers.request(A, requestCommand(CODE, body=b"1"), 3)
        self.attempts[0].succeed()
        self.attempts[0].reply(b"one")
        self.assertEqual(self.successResultOf(first).body, b"one")
        second = self.peers.request(A, requestCommand(CODE, body=b"2"), 3)
        self.attempts[0].reply(b"two")
        self.assertEqual(self.successResultOf(second).body, b"two")
        self.assertEqual(len(self.attempts), 1)

    def test_timeoutConnecting(self) -> None:
        """
        A request's time runs while it is connecting, or waits for the end of a
        pause; others go on waiting.
        """
        quick = self.peers.request(A, requestCommand(CODE), 1)
        slow = self.peers.request(A, requestCommand(CODE), 30)
        self.clock.advance(1)
        error = self.failureResultOf(quick, ConnectFailed).value
        self.assertEqual(str(error), f"connecting to {A} failed: not connected within 1 s")
        self.attempts[0].refuse()
        self.failureResultOf(slow, ConnectFailed)
        pausing = self.peers.request(A, requestCommand(CODE), 1)
        self.clock.advance(1)
        self.failureResultOf(pausing, ConnectFailed)

    def test_timeoutIncludesConnecting(self) -> None:
        """
        What connecting took is no longer there for the answer.
        """
        pending = self.peers.request(A, requestCommand(CODE), 3)
        self.clock.advance(2)
        self.attempts[0].succeed()
        self.clock.advance(0.9)
        self.assertNoResult(pending)
        self.clock.advance(0.2)
        self.failureResultOf(pending, RequestTimedOut)

    def test_refused(self) -> None:
        """
        If there is no connection, nothing was sent, and the error says so by
        its class.
        """
        pending = self.peers.request(A, requestCommand(CODE), 3)
        self.attempts[0].refuse()
        self.failureResultOf(pending, ConnectFailed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost(self) -> None:
        """
        A connection lost under a request fails it at once.
        """
        pending = self.peers.request(A, requestCommand(CODE), 3)
        self.attempts[0].succeed()
        lose(self.attempts[0].protocol, ConnectionDone())
        self.failureResultOf(pending, ConnectionLost)

    def test_againOnLoss(self) -> None:
        """
        Who asks again because the connection was lost, within the failure, gets
        a new connection and not the dead one; and keeps it.
        """
        again = self.peers.request(A, requestCommand(CODE), 3)
        again.addErrback(lambda failure: self.peers.request(A, requestCommand(CODE), 3))
        noted = self.peers.request(A, requestCommand(CODE), 3)
        noted.addErrback(lambda failure: self.peers.oneway(A, requestCommand(CODE), 3))
        self.attempts[0].succeed()
        lose(self.attempts[0].protocol, ConnectionDone())
        self.assertEqual(len(self.attempts), 2)
        self.attempts[1].succeed()
        self.clock.advance(0)
        self.attempts[1].reply(b"again")
        self.assertEqual(self.successResultOf(again).body, b"again")
        self.successResultOf(noted)
        self.peers.request(A, requestCommand(CODE), 3).addErrback(lambda failure: None)
        self.assertEqual(len(self.attempts), 2)

    def test_againAfterDrop(self) -> None:
        """
        A connection that we dropped ourselves is not used until the transport
        is done with it.
        """
        self.peers.connection(A)
        self.attempts[0].succeed()
        self.attempts[0].protocol.connected = 0
        pending = self.peers.request(A, requestCommand(CODE), 3)
        self.attempts[1].succeed()
        lose(self.attempts[0].protocol, ConnectionDone())
        self.attempts[1].reply()
        self.successResultOf(pending)
        self.assertIs(self.successResultOf(self.peers.connection(A)), self.attempts[1].protocol)

    def test_connectedTooLate(self) -> None:
        """
        A connection that comes up in the very turn of the reactor in which the
        time runs out is too late: the request fails like any that timed out.
        """
        pending = self.peers.request(A, requestCommand(CODE), 3)
        self.clock.rightNow += 3.5  # time passed, but no timer was run yet
        callLater = self.clock.callLater

        def strict(delay: float, *call: Any, **keywords: Any) -> Any:
            # The real reactor refuses what Clock lets pass.
            assert delay >= 0, delay
            return callLater(delay, *call, **keywords)

        self.patch(self.clock, "callLater", strict)
        self.attempts[0].succeed()
        self.clock.advance(0)
        self.failureResultOf(pending, RequestTimedOut)
        self.assertEqual(len(self.attempts[0].protocol.responseTable), 0)

    def test_oneway(self) -> None:
        """
        A oneway request is over once it is handed to the transport.
        """
        sent = self.peers.oneway(A, requestCommand(CODE, body=b"note"), 3)
        self.assertNoResult(sent)
        self.attempts[0].succeed()
        self.assertIsNone(self.successResultOf(sent))
        (command,) = self.attempts[0].wire.drain()
        self.assertTrue(command.isOneway)
        late = self.peers.oneway(B, requestCommand(CODE), 3)
        self.clock.advance(3)
        self.failureResultOf(late, ConnectFailed)
        # By a connection that is up it is handed over before there is a Deferred.
        self.assertIsNone(self.successResultOf(self.peers.oneway(A, requestCommand(CODE), 0)))
        self.patch(self.attempts[0].protocol, "oneway", Raise(ZeroDivisionError()))
        self.failureResultOf(self.peers.oneway(A, requestCommand(CODE), 3), ZeroDivisionError)

    def test_up(self) -> None:
        """
        Who can do without a connection asks whether there is one; none is made.
        """
        self.assertIsNone(self.peers.up(A))
        self.assertEqual(self.attempts, [])
        self.peers.connection(A)
        self.assertIsNone(self.peers.up(A))
        self.attempts[0].succeed()
        self.assertIs(self.peers.up(A), self.attempts[0].protocol)
        self.attempts[0].protocol.connected = 0
        self.assertIsNone(self.peers.up(A))
