# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.trace.dispatcher}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tests.remoting.doubles import RemotingTests
from txrocket.client.trace.dispatcher import MAX_BODY, Traces
from txrocket.errors import InvalidMessage, RequestTimedOut
from txrocket.message import Message
from txrocket.protocol.record.fields import encodeProperties
from txrocket.protocol.tracebodies import SubBefore, decodeTraces, encodeTrace

TOPIC = "RMQ_SYS_TRACE_TOPIC"


def trace(number: int, keys: str | None = None) -> SubBefore:
    """
    One of many traces.
    """
    return SubBefore(1, "r", "g", "R", f"{number:032d}", 0, keys)


class FakeSender:
    """
    A producer.

    @ivar running: whether it is started and not stopped.
    @ivar sent: what it is to send, and what is promised of that.
    @ivar within: how long it was to wait when it was stopped.
    """

    def __init__(self) -> None:
        self.running = False
        self.sent: list[tuple[Message, Deferred[Any]]] = []
        self.within: float | None = None
        self.stopped: Deferred[None] = Deferred()

    def startService(self) -> None:
        self.running = True

    def send(self, message: Message) -> Deferred[Any]:
        assert self.running
        promise: Deferred[Any] = Deferred()
        self.sent.append((message, promise))
        return promise

    def stop(self, within: float = 5.0) -> Deferred[None]:
        self.running = False
        self.within = within
        return self.stopped

    def numbers(self) -> list[list[int]]:
        """
        The traces of each message.
        """
        return [
            [int(each.msgId or "") for each in decodeTraces(message.body)]
            for message, _ in self.sent
        ]

    def all(self) -> list[int]:
        """
        The traces of all messages.
        """
        return [each for numbers in self.numbers() for each in numbers]


class TracesTests(RemotingTests):
    """
    Traces of which each has its number.
    """

    def setUp(self) -> None:
        super().setUp()
        self.sender = FakeSender()
        self.traces = self.make(True)
        self.traces.start()

    def make(self, topic: str | bool) -> Traces:
        """
        Traces that have not begun.
        """
        return Traces(self.clock, topic, lambda: self.sender)

    def add(self, *numbers: int) -> None:
        """
        Something becomes of messages.
        """
        for each in numbers:
            self.traces.add(trace(each))

    # --- when ------------------------------------------------------------

    def test_traceWaitsHalfASecond(self) -> None:
        """
        A trace waits half a second for others, and then all go in one message.
        """
        self.add(1)
        self.clock.advance(0.25)
        self.add(2)
        self.clock.advance(0.24)
        self.assertEqual(self.sender.sent, [])
        self.clock.advance(0.01)
        self.assertEqual(self.sender.numbers(), [[1, 2]])
        self.add(3)
        self.clock.advance(0.49)
        self.assertEqual(len(self.sender.sent), 1)
        self.clock.advance(0.01)
        self.assertEqual(self.sender.numbers()[1:], [[3]])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hundredTracesAreSentAtOnce(self) -> None:
        """
        A hundred traces are sent at once.
        """
        self.add(*range(99))
        self.assertEqual(self.sender.sent, [])
        self.add(99, 100)
        self.assertEqual(self.sender.numbers(), [list(range(100))])
        self.clock.advance(0.5)
        self.assertEqual(self.sender.numbers()[1:], [[100]])

    def test_messageStaysWithinSizeLimit(self) -> None:
        """
        No message is larger than 128,000 bytes, counted in bytes and not in characters.
        """
        long = SubBefore(1, "订" * 10_000, "g", "R", "ID", 0, None)
        for _ in range(5):
            self.traces.add(long)
        self.clock.advance(0.5)
        sizes = [len(message.body) for message, _ in self.sender.sent]
        size = len(encodeTrace(long).encode())
        self.assertEqual(sizes, [4 * size, size])
        self.assertLessEqual(sizes[0], MAX_BODY)
        self.assertGreater(sizes[0] + size, MAX_BODY)

    # --- what ------------------------------------------------------------

    def test_messageHasKeysOfItsTraces(self) -> None:
        """
        A message with traces has the ids and keys of all its traces, each once.
        """
        self.traces.add(trace(1, "a b"))
        self.traces.add(trace(1, "b  c "))
        self.traces.add(trace(2))
        self.clock.advance(0.5)
        ((message, _),) = self.sender.sent
        one, two = f"{1:032d}", f"{2:032d}"
        self.assertEqual(message.keys, [one, "a", "b", "c", two])
        self.assertEqual(message.topic, TOPIC)

    def test_keysFitIntoProperties(self) -> None:
        """
        The keys of a message fit into its properties.  If those of a single trace do not,
        the message has its id only.
        """
        for number in range(4):
            self.traces.add(trace(number, f"{number}" * 10_000))
        self.traces.add(trace(4, "订" * 10_900))
        self.clock.advance(0.5)
        self.assertEqual(self.sender.numbers(), [[0, 1], [2, 3, 4]])
        for message, _ in self.sender.sent:
            encodeProperties({**message.properties, "more": "x" * 4000})
        self.assertEqual(self.sender.sent[1][0].keys[-1], f"{4:032d}")
        last = decodeTraces(self.sender.sent[1][0].body)[-1]
        self.assertEqual(last.keys, "订" * 10_900)

    def test_otherTopicIsUsed(self) -> None:
        """
        Traces may go to another topic.  Messages of that topic and of system topics are not
        traced.
        """
        traces = self.make("Traces")
        traces.start()
        traces.add(trace(1))
        self.clock.advance(0.5)
        self.assertEqual(self.sender.sent[0][0].topic, "Traces")
        covered = [traces.covers(each) for each in ("Traces", TOPIC, "Traces2", "T")]
        self.assertEqual(covered, [False, False, True, True])
        self.assertEqual(self.traces.topic, TOPIC)
        for wrong in ("a b", "SCHEDULE_TOPIC_XXXX"):
            self.assertRaises(InvalidMessage, self.make, wrong)

    # --- too many, and other mishaps -------------------------------------

    def test_fullQueueDropsTraces(self) -> None:
        """
        If 2,048 traces are not sent yet, further ones are dropped.
        """
        self.add(*range(2100))
        self.assertEqual(self.traces.dropped, 52)
        self.clock.advance(0.5)
        self.assertEqual(self.sender.all(), list(range(2048)))
        self.add(1)
        self.assertEqual(self.traces.dropped, 53)
        self.sender.sent[0][1].callback(None)
        self.add(*range(100), 100)
        self.assertEqual(self.traces.dropped, 54)
        self.assertEqual(self.sender.numbers()[-1], list(range(100)))

    def test_failedTraceIsDropped(self) -> None:
        """
        Traces that cannot be sent are dropped.
        """
        self.add(1, 2)
        self.clock.advance(0.5)
        self.sender.sent[0][1].errback(RequestTimedOut("", "late"))
        self.assertEqual(self.traces.dropped, 2)

    def test_unwritableTraceIsDropped(self) -> None:
        """
        A trace that cannot be encoded is dropped, and the others are sent.
        """
        self.traces.add(trace(1, "a\x02b"))
        self.traces.add(trace(2, "\ud800"))
        self.assertEqual(self.traces.dropped, 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.add(3)
        self.clock.advance(0.5)
        self.assertEqual(self.sender.numbers(), [[3]])

    def test_dropsAreLoggedOncePerMinute(self) -> None:
        """
        Drops are logged once a minute, and when they end.
        """
        self.clock.advance(1000)
        self.add(*range(2050))
        for number, promise in enumerate(promise for _, promise in self.sender.sent[:3]):
            self.clock.advance(20)
            promise.errback(RequestTimedOut("192.0.2.1:1", f"late {number}"))
        first = f"1 traces for {TOPIC} were dropped, 1 in all: brokers take them too slowly"
        self.assertEqual(
            self.logged(LogLevel.warn),
            [first, f"301 traces for {TOPIC} were dropped, 302 in all: late 2"],
        )
        self.sender.sent[3][1].errback(RequestTimedOut("", "late"))
        self.traces.stop(1.0)
        self.assertEqual(len(self.logged(LogLevel.warn)), 2)
        self.sender.stopped.callback(None)
        self.assertEqual(
            self.logged(LogLevel.warn)[2:],
            [f"100 traces for {TOPIC} were dropped, 402 in all: the client has stopped"],
        )

    # --- life ------------------------------------------------------------

    def test_stopSendsWaitingTraces(self) -> None:
        """
        A stop sends the waiting traces within its time limit, and takes no more.
        """
        self.add(1, 2)
        stopping = self.traces.stop(2.5)
        self.assertEqual(self.sender.numbers(), [[1, 2]])
        self.assertEqual(self.sender.within, 2.5)
        self.assertNoResult(stopping)
        self.add(3)
        self.sender.stopped.callback(None)
        self.successResultOf(stopping)
        self.clock.advance(1)
        self.assertEqual(len(self.sender.sent), 1)
        self.assertEqual(self.traces.dropped, 0)
        self.successResultOf(self.traces.stop(2.5))

    def test_unstartedDispatcherTakesNoTrace(self) -> None:
        """
        Before the start no trace is taken.
        """
        traces = self.make(True)
        traces.add(trace(1))
        self.successResultOf(traces.stop(1))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_restartHasNewProducer(self) -> None:
        """
        A restart makes a new producer.
        """
        first = self.sender
        first.stopped.callback(None)
        self.successResultOf(self.traces.stop(1))
        self.sender = FakeSender()
        self.traces.start()
        self.add(1)
        self.clock.advance(0.5)
        self.assertEqual((len(first.sent), self.sender.numbers()), (0, [[1]]))


class Model(RuleBasedStateMachine):
    """
    Traces, and brokers that take them, refuse them or let them wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.sender = FakeSender()
        self.sender.stopped = succeed(None)
        self.traces = Traces(self.clock, True, lambda: self.sender)
        self.traces.start()
        self.number = 0
        self.added: list[tuple[int, float]] = []
        self.stopped = False

    @rule(count=st.integers(1, 700), keys=st.sampled_from([None, "k", "x" * 500, "y" * 40_000]))
    def add(self, count: int, keys: str | None) -> None:
        for _ in range(count):
            self.number += 1
            before = self.traces.dropped
            self.traces.add(trace(self.number, keys))
            if self.traces.dropped == before and not self.stopped:
                self.added.append((self.number, self.clock.seconds()))

    @rule(seconds=st.sampled_from([0.1, 0.3, 0.5, 7.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _answer(self, choose: Callable[[int], int], how: Callable[[Deferred[Any]], None]) -> int:
        waiting = [
            index for index, (_, promise) in enumerate(self.sender.sent) if not promise.called
        ]
        if not waiting:
            return 0
        index = waiting[choose(len(waiting))]
        how(self.sender.sent[index][1])
        return len(self.sender.numbers()[index])

    @rule(which=st.integers(0, 30))
    def taken(self, which: int) -> None:
        self._answer(lambda count: which % count, lambda promise: promise.callback(None))

    @rule(which=st.integers(0, 30))
    def failed(self, which: int) -> None:
        error = RequestTimedOut("", "late")
        before = self.traces.dropped
        count = self._answer(lambda count: which % count, lambda promise: promise.errback(error))
        assert self.traces.dropped == before + count

    @precondition(lambda self: not self.stopped)
    @rule()
    def stop(self) -> None:
        self.traces.stop(1.0)
        self.stopped = True
        assert self.sender.all() == [number for number, _ in self.added]

    @invariant()
    def inOrder(self) -> None:
        """
        Each that was taken is sent once, in its turn, and not later than it may.
        """
        sent = self.sender.all()
        assert sent == [number for number, _ in self.added[: len(sent)]]
        for _, when in self.added[len(sent) :]:
            assert self.clock.seconds() - when < 0.5

    @invariant()
    def bounded(self) -> None:
        """
        There are never too many, and no message is too large.
        """
        waiting = [
            len(numbers)
            for numbers, (_, promise) in zip(self.sender.numbers(), self.sender.sent, strict=True)
            if not promise.called
        ]
        unsent = len(self.added) - sum(map(len, self.sender.numbers()))
        assert unsent < 100
        assert sum(waiting) + unsent <= 2048
        for message, _ in self.sender.sent:
            assert len(message.body) <= MAX_BODY
            encodeProperties({**message.properties, "more": "x" * 4000})


class ModelTests(SynchronousTestCase):
    """
    L{Model}.
    """

    def test_tracesMatchModel(self) -> None:
        """
        Whatever happens in whichever order, no trace is lost unseen, none waits too long,
        and there are never too many.
        """
        run_state_machine_as_test(
            Model, settings=settings(max_examples=25, stateful_step_count=15, deadline=None)
        )
