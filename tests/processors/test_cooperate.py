# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.cooperate}.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest import mock
from unittest.mock import patch

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import SystemBusy
from txrocket.processors.cooperate import Turns, begun, cooperate, cooperator, promptly, telling
from txrocket.protocol.bodies import GroupList
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.command import RemotingCommand, responseCommand


class CooperateTests(SynchronousTestCase):
    """
    Tests for L{cooperate}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.cooperator = cooperator(self.clock)
        self.steps = 0

    def work(self, count: int) -> Generator[None, None, str]:
        """
        A number of steps.
        """
        for _ in range(count):
            self.steps += 1
            yield
        return "done"

    def test_generatorsValueIsTheResult(self) -> None:
        """
        What the generator returns is the result; nothing is done before the
        reactor turns.
        """
        done = cooperate(self.cooperator, self.work(3))
        self.assertEqual(0, self.steps)
        self.assertNoResult(done)
        self.clock.advance(0)
        self.assertEqual("done", self.successResultOf(done))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_longWorkYieldsToReactor(self) -> None:
        """
        After ten milliseconds the reactor has its turn, and then the work goes on.
        """
        now = [0.0]

        def slow() -> Generator[None, None, None]:
            for _ in range(5):
                now[0] += 0.006
                self.steps += 1
                yield

        turns = patch.object(self.clock, "callLater", wraps=self.clock.callLater)
        with patch("time.time", lambda: now[0]), turns as callLater:
            done = cooperate(self.cooperator, slow())
            self.clock.advance(0)
        self.assertIsNone(self.successResultOf(done))
        # Two steps, two steps, one.
        self.assertEqual((5, 3), (self.steps, callLater.call_count))

    def test_generatorsErrorIsTheFailure(self) -> None:
        """
        What the generator raises is the failure.
        """

        def broken() -> Generator[None, None, None]:
            yield
            raise ZeroDivisionError

        done = cooperate(self.cooperator, broken())
        self.clock.advance(0)
        self.failureResultOf(done, ZeroDivisionError)

    def test_cancelEndsWork(self) -> None:
        """
        Nobody waits any more: the work ends, and nothing is left on the clock.
        """
        done = cooperate(self.cooperator, self.work(1000))
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.clock.advance(0)
        self.assertEqual(0, self.steps)
        self.assertEqual([], self.clock.getDelayedCalls())


class PromptlyTests(SynchronousTestCase):
    """
    Tests for L{promptly}, L{begun} and L{telling}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.slices = cooperator(self.clock)

    def work(self, steps: int) -> Generator[None, None, RemotingCommand]:
        """
        A response after a number of steps.
        """
        for _ in range(steps):
            yield
        return responseCommand(remark="done")

    def test_shortWorkIsAnsweredAtOnce(self) -> None:
        """
        Work that does not yield is answered without a Deferred.
        """
        answer = promptly(self.slices, self.work(0))
        self.assertIsInstance(answer, RemotingCommand)
        self.assertEqual("done", self.successResultOf(begun(self.slices, self.work(0))).remark)

    def test_longWorkIsAnsweredLater(self) -> None:
        """
        Work that yields goes on when the reactor turns.
        """
        answer: Any = promptly(self.slices, self.work(3))
        self.assertNoResult(answer)
        self.clock.advance(0)
        self.assertEqual("done", self.successResultOf(answer).remark)
        self.assertEqual(0, self.slices.started)

    def test_tooManyAreRefused(self) -> None:
        """
        When 64 requests are being answered bit by bit, the next is refused, and a
        cancelled one makes room.
        """
        answers: list[Any] = [promptly(self.slices, self.work(3)) for _ in range(64)]
        self.assertRaises(SystemBusy, promptly, self.slices, self.work(3))
        answers[0].cancel()
        self.failureResultOf(answers[0], CancelledError)
        answers[0] = promptly(self.slices, self.work(3))
        self.clock.pump([0] * 5)
        for each in answers:
            self.assertEqual("done", self.successResultOf(each).remark)

    def test_tellingGivesTheBody(self) -> None:
        """
        An answer that is written bit by bit has the same body.
        """
        names = frozenset(f"g{number}" for number in range(10_000))
        answer: Any = promptly(self.slices, telling(GroupList(names)))
        self.clock.pump([0] * 1000)
        body = self.successResultOf(answer).body
        self.assertEqual(names, decodeBody(GroupList, body).groupList)


class TurnsTests(SynchronousTestCase):
    """
    Tests for L{Turns}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = Turns(cooperator(self.clock))
        self.peer: Any = mock.Mock(address="a:1")
        self.done: list[str] = []

    def work(self, name: str, steps: int) -> Generator[None, None, RemotingCommand]:
        """
        Work that notes when it is done.
        """
        for _ in range(steps):
            yield
        self.done.append(name)
        return responseCommand(remark=name)

    def test_requestsOfOnePeerKeepTheirOrder(self) -> None:
        """
        A short request waits for the long one before it, and one of another peer does not.
        """
        other: Any = mock.Mock(address="b:1")
        first: Any = self.turns.take(self.peer, self.work("long", 3))
        second: Any = self.turns.take(self.peer, self.work("short", 0))
        self.turns.take(other, self.work("other", 0))
        self.assertEqual(["other"], self.done)
        self.clock.pump([0] * 5)
        self.assertEqual(["other", "long", "short"], self.done)
        self.assertEqual("long", self.successResultOf(first).remark)
        self.assertEqual("short", self.successResultOf(second).remark)
        answer = self.turns.take(self.peer, self.work("now", 0))
        self.assertIsInstance(answer, RemotingCommand)

    def test_whatIsCancelledIsPassedOver(self) -> None:
        """
        A request whose connection went away is not served, and those behind it are.
        """
        waiting: list[Any] = [
            self.turns.take(self.peer, self.work(str(number), number % 2 + 1))
            for number in range(4)
        ]
        for each in waiting[:2]:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.clock.pump([0] * 5)
        self.assertEqual(["2", "3"], self.done)

    def test_tooManyAreRefused(self) -> None:
        """
        When 16 requests of a peer wait, the next is refused.
        """
        waiting: list[Any] = [self.turns.take(self.peer, self.work("", 1)) for _ in range(17)]
        error = self.assertRaises(SystemBusy, self.turns.take, self.peer, self.work("", 1))
        self.assertIn("16 requests of a:1", str(error))
        self.clock.pump([0] * 50)
        for each in waiting:
            self.successResultOf(each)
