# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.responsetable}.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import ConnectionLost, RequestTimedOut, TooManyRequests
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.responsetable import SWEEP_INTERVAL, PendingRequest, ResponseTable

ADDRESS = "192.0.2.7:10911"
HEART_BEAT = 34


def answer(opaque: int) -> RemotingCommand:
    """
    A response.
    """
    response = responseCommand()
    response.opaque = opaque
    return response


def expect(table: ResponseTable, opaque: int, timeout: float) -> PendingRequest:
    """
    Send a request, so to speak.
    """
    pending = table.request(opaque, HEART_BEAT, timeout)
    table.add(pending)
    return pending


def note(pending: PendingRequest, clock: Clock, opaque: int, failed: dict[int, float]) -> None:
    """
    Write down when a request fails.
    """
    pending.addErrback(lambda failure: failed.update({opaque: clock.seconds()}))


def cancelAll(failure: Failure, others: Sequence[PendingRequest]) -> None:
    """
    What a caller with several requests may do when one of them fails.
    """
    for each in others:
        each.cancel()


def passTime(clock: Clock, seconds: float) -> None:
    """
    Let time pass from timer to timer, so that no step hides how late one is.
    """
    end = clock.seconds() + seconds
    while (calls := clock.getDelayedCalls()) and calls[0].getTime() <= end:
        clock.advance(max(0.0, calls[0].getTime() - clock.seconds()))
    clock.advance(end - clock.seconds())


class ResponseTableTests(SynchronousTestCase):
    """
    The responseTable of one connection.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.table = ResponseTable(self.clock, ADDRESS, 1000)

    def expect(self, opaque: int, timeout: float = 3.0) -> PendingRequest:
        """
        Send a request, so to speak.
        """
        return expect(self.table, opaque, timeout)

    def test_anyOrder(self) -> None:
        """
        Answers find their requests by opaque, in whatever order they come.
        """
        pending = {opaque: self.expect(opaque) for opaque in (1, 2, 3)}
        self.assertEqual(len(self.table), 3)
        for opaque in (2, 3, 1):
            response = answer(opaque)
            self.assertTrue(self.table.answer(response))
            self.assertIs(self.successResultOf(pending[opaque]), response)
        self.assertEqual(len(self.table), 0)

    def test_unasked(self) -> None:
        """
        An answer that is not waited for, or is the second, finds no one.
        """
        self.assertFalse(self.table.answer(answer(1)))
        pending = self.expect(1)
        self.assertTrue(self.table.answer(answer(1)))
        self.assertFalse(self.table.answer(answer(1)))
        self.successResultOf(pending)

    def test_timeout(self) -> None:
        """
        A request that is not answered in time fails, naming phase, request,
        peer and time; its late answer finds no one.
        """
        pending = self.expect(1, 3.0)
        self.clock.advance(2.99)
        self.assertNoResult(pending)
        self.clock.advance(0.01)
        error = self.failureResultOf(pending, RequestTimedOut).value
        self.assertEqual(
            str(error),
            "waiting for the answer to HEART_BEAT (34): 192.0.2.7:10911 did not answer within 3 s",
        )
        self.assertEqual(error.address, ADDRESS)
        self.assertFalse(self.table.answer(answer(1)))

    def test_shorterLater(self) -> None:
        """
        A request that is due before those sent earlier is not late for them.
        """
        slow, quick = self.expect(1, 30.0), self.expect(2, 0.5)
        self.clock.advance(0.5)
        self.failureResultOf(quick, RequestTimedOut)
        self.assertNoResult(slow)
        self.clock.advance(29.5)
        self.failureResultOf(slow, RequestTimedOut)

    @given(
        st.lists(
            st.tuples(st.floats(0.0, 1.0), st.floats(0.001, 5.0), st.booleans()),
            min_size=1,
            max_size=30,
        )
    )
    def test_exactness(self, requests: list[tuple[float, float, bool]]) -> None:
        """
        Whatever was sent when, each unanswered request fails no sooner than its
        time and no later than one L{SWEEP_INTERVAL} after, and the connection
        never has more than one timer.
        """
        clock = Clock()
        table = ResponseTable(clock, ADDRESS, 1000)
        failed: dict[int, float] = {}
        due: dict[int, float] = {}
        for opaque, (pause, timeout, answered) in enumerate(requests):
            passTime(clock, pause)
            note(expect(table, opaque, timeout), clock, opaque, failed)
            if answered:
                table.answer(answer(opaque))
            else:
                due[opaque] = clock.seconds() + timeout
            self.assertLessEqual(len(clock.getDelayedCalls()), 1)
        passTime(clock, 10.0)
        self.assertEqual(failed.keys(), due.keys())
        for opaque, time in failed.items():
            # 1e-9: the clock's own rounding.
            self.assertTrue(0 <= time - due[opaque] <= SWEEP_INTERVAL + 1e-9, (time, due[opaque]))

    def test_sweepInterval(self) -> None:
        """
        Requests that fall due one after the other share sweeps that are
        L{SWEEP_INTERVAL} apart, and are late by no more than that.
        """
        failed: dict[int, float] = {}
        for n in range(100):
            note(self.expect(n, 1.0 + n / 1000), self.clock, n, failed)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.pump([0.001] * 1200)
        self.assertEqual(len(failed), 100)
        self.assertLessEqual(len(set(failed.values())), 4)
        for n, time in failed.items():
            self.assertTrue(-1e-9 <= time - (1.0 + n / 1000) <= SWEEP_INTERVAL + 0.0011, (n, time))

    def test_noTimerLeft(self) -> None:
        """
        A timer that finds nothing to wait for is not set again.
        """
        self.successResultOf(self._answered(1))
        self.clock.advance(3.0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def _answered(self, opaque: int) -> PendingRequest:
        pending = self.expect(opaque)
        self.table.answer(answer(opaque))
        return pending

    def test_lost(self) -> None:
        """
        A lost connection fails all requests at once, naming phase, request,
        peer, time spent and reason, and leaves no timer.
        """
        first, second = self.expect(1), self.expect(2)
        self.clock.advance(1.5)
        self.table.failAll("Connection was closed cleanly.")
        for each in (first, second):
            error = self.failureResultOf(each, ConnectionLost).value
            self.assertEqual(
                str(error),
                "waiting for the answer to HEART_BEAT (34): the connection to "
                "192.0.2.7:10911 was lost after 1.500 s: Connection was closed cleanly.",
            )
        self.assertEqual((len(self.table), self.clock.getDelayedCalls()), (0, []))

    def test_lostIdle(self) -> None:
        """
        Losing a connection on which nothing was ever asked is nothing special.
        """
        self.table.failAll("gone")
        self.assertEqual(len(self.table), 0)

    def test_cancel(self) -> None:
        """
        Cancelling forgets the request and makes room for another.
        """
        pending = self.expect(1)
        pending.cancel()
        self.failureResultOf(pending, CancelledError)
        self.assertEqual(len(self.table), 0)
        self.assertFalse(self.table.answer(answer(1)))

    def test_cancelledByAnother(self) -> None:
        """
        A request may cancel others as it fails, by loss or by time, both those
        that were to fail before and those that were to fail after it.
        """
        for failing in (
            lambda: self.table.failAll("gone"),
            lambda: self.clock.advance(3.0),
        ):
            pending = [self.expect(n) for n in range(3)]
            pending[1].addErrback(cancelAll, (pending[0], pending[2]))
            failing()
            self.failureResultOf(pending[0], ConnectionLost, RequestTimedOut)
            self.failureResultOf(pending[2], CancelledError)
            self.assertEqual(len(self.table), 0)

    def test_limit(self) -> None:
        """
        No more requests are under way than may be; nothing else changes.
        """
        table = ResponseTable(self.clock, ADDRESS, 2)
        pending = expect(table, 1, 3.0)
        expect(table, 2, 3.0)
        error = self.assertRaises(TooManyRequests, table.request, 3, HEART_BEAT, 3.0)
        self.assertIn("HEART_BEAT (34) was not sent to 192.0.2.7:10911: 2 requests", str(error))
        pending.cancel()
        self.failureResultOf(pending, CancelledError)
        expect(table, 4, 3.0)
        self.assertEqual(len(table), 2)
