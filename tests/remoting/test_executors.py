# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.executors}.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults, inlineCallbacks
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.remoting.doubles import RemotingTests, connected, frame
from txrocket.errors import SystemBusy
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.remoting.executors import InlineExecutor, PoolExecutor, TurnExecutor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Remoting

reactor: Any = theReactor


class FakeReactor(Clock):
    """
    A clock that can be called from threads, of which there are none.
    """

    def callFromThread(self, callable: Callable[..., object], *args: object) -> None:
        callable(*args)


class FakeThreads:
    """
    Threads that run when they are told to.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[bool, Any], None], Callable[[], Any]]] = []

    def callInThreadWithCallback(
        self, onResult: Callable[[bool, Any], None], func: Callable[..., Any], *args: Any
    ) -> None:
        self.calls.append((onResult, lambda: func(*args)))

    def finish(self, n: int = 0) -> None:
        """
        One of them does its work.
        """
        onResult, work = self.calls.pop(n)
        try:
            result = work()
        except Exception:
            onResult(False, Failure())
        else:
            onResult(True, result)


def answering(request: RemotingCommand, peer: object) -> RemotingCommand:
    """
    A processor.
    """
    return responseCommand(body=request.body)


class InlineTests(SynchronousTestCase):
    """
    L{InlineExecutor}.
    """

    def test_bind(self) -> None:
        """
        Running in the reactor costs nothing: it is the processor itself.
        """
        self.assertIs(InlineExecutor().bind(answering), answering)


class PoolTests(SynchronousTestCase):
    """
    L{PoolExecutor}.
    """

    def setUp(self) -> None:
        self.clock = FakeReactor()
        self.threads = FakeThreads()
        self.pool = PoolExecutor(
            self.clock, self.threads, name="send", size=2, queueLimit=3, maxWait=0.2
        )
        self.peer = RemotingProtocol(Remoting(self.clock), accepted=True)

    def execute(self, body: bytes = b"", process: Any = answering) -> Deferred[RemotingCommand]:
        """
        A request comes in.
        """
        task: Any = self.pool.bind(process)(requestCommand(1, body=body), self.peer)
        return task  # type: ignore[no-any-return]

    def test_size(self) -> None:
        """
        No more than C{size} requests run at a time; those that wait follow in
        the order in which they came.
        """
        tasks = [self.execute(b"%d" % n) for n in range(4)]
        self.assertEqual((self.pool.running, self.pool.waiting), (2, 2))
        self.assertEqual(len(self.threads.calls), 2)
        self.threads.finish(1)
        self.assertEqual(self.successResultOf(tasks[1]).body, b"1")
        self.assertEqual((self.pool.running, self.pool.waiting), (2, 1))
        for n in (0, 2, 3):
            self.assertNoResult(tasks[n])
            self.threads.finish()
            self.assertEqual(self.successResultOf(tasks[n]).body, b"%d" % n)
        self.assertEqual((self.pool.running, self.pool.waiting), (0, 0))

    def test_overload(self) -> None:
        """
        When as many wait as may, the next is refused at once, with RocketMQ's
        mark for it and the pool's name; a free place is used again.
        """
        tasks = [self.execute() for _ in range(5)]
        error = self.assertRaises(SystemBusy, self.execute)
        self.assertEqual(
            error.remark, "[OVERLOAD] send: 3 requests wait already, try again in a while"
        )
        self.threads.finish()
        self.successResultOf(tasks[0])
        self.assertNoResult(self.execute())

    def test_noQueue(self) -> None:
        """
        With no places to wait, a free thread is enough.
        """
        pool = PoolExecutor(self.clock, self.threads, name="x", size=1, queueLimit=0)
        serve: Any = pool.bind(answering)
        self.assertNoResult(serve(requestCommand(1), self.peer))
        self.assertRaises(SystemBusy, serve, requestCommand(1), self.peer)

    def test_expiry(self) -> None:
        """
        Who has waited too long is refused when the time is over, even if no
        thread comes free, with RocketMQ's mark for it; and each in its own time.
        """
        self.execute()
        self.execute()
        first = self.execute()
        self.clock.advance(0.15)
        second = self.execute()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0.05)
        error = self.failureResultOf(first, SystemBusy).value
        self.assertEqual(
            error.remark,
            "[TIMEOUT_CLEAN_QUEUE] send: waited 0.200 s for its turn, 1 more wait, "
            "try again in a while",
        )
        self.clock.advance(0.125)
        self.assertNoResult(second)
        self.clock.advance(0.025)
        self.failureResultOf(second, SystemBusy)
        self.assertEqual((self.pool.waiting, self.clock.getDelayedCalls()), (0, []))

    def test_expiryOfAnyTime(self) -> None:
        """
        The time is over when the clock says so: 0.7 + 0.2 - 0.7 is a little
        less than 0.2, and waiting for the rest again and again would be a loop
        without end.
        """
        self.execute()
        self.execute()
        self.clock.advance(0.7)
        waiting = self.execute()
        (timer,) = self.clock.getDelayedCalls()
        resets: list[float] = []
        again = self.clock.callLater

        def callLater(delay: float, *call: Any, **keywords: Any) -> Any:
            resets.append(delay)
            self.assertLess(len(resets), 5)
            return again(delay, *call, **keywords)

        self.patch(self.clock, "callLater", callLater)
        self.clock.advance(timer.getTime() - self.clock.seconds())
        self.failureResultOf(waiting, SystemBusy)
        self.assertEqual(resets, [])

    def test_runsInTime(self) -> None:
        """
        A timer set for a request that got its thread in time hurts no one.
        """
        self.execute()
        self.execute()
        tasks = [self.execute(), self.execute()]
        self.clock.advance(0.1)
        late = self.execute()
        for _ in range(4):
            self.threads.finish()
        for each in tasks:
            self.successResultOf(each)
        self.clock.advance(0.1)
        self.assertNoResult(late)
        self.threads.finish()
        self.successResultOf(late)
        self.clock.advance(10)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """
        A request whose connection went away is not run if it waits; if it runs,
        its answer is dropped.  Neither keeps its place.
        """
        running, _other, waiting, last = (self.execute() for _ in range(4))
        for each in (running, waiting):
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.threads.finish()
        self.assertEqual((self.pool.running, self.pool.waiting), (2, 0))
        self.threads.finish(1)
        self.successResultOf(last)
        self.threads.finish()
        self.assertEqual(self.threads.calls, [])

    def test_cancelledExpires(self) -> None:
        """
        A cancelled request that is due is only taken off the queue.
        """
        self.execute()
        self.execute()
        waiting = self.execute()
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.clock.advance(0.2)
        self.assertEqual(self.pool.waiting, 0)

    def test_raises(self) -> None:
        """
        What a processor raises in its thread is the answer's failure, and the
        thread is free again.
        """

        def divide(request: RemotingCommand, peer: object) -> RemotingCommand:
            raise ZeroDivisionError

        task = self.execute(process=divide)
        self.threads.finish()
        self.failureResultOf(task, ZeroDivisionError)
        self.assertEqual(self.pool.running, 0)

    def test_deferred(self) -> None:
        """
        A Deferred made in a thread belongs to no one: it is an error.
        """
        task = self.execute(process=lambda request, peer: Deferred())
        self.threads.finish()
        error = self.failureResultOf(task, TypeError).value
        self.assertIn("send", str(error))


class ConnectionTests(RemotingTests):
    """
    A pool behind a connection.
    """

    def test_busy(self) -> None:
        """
        Whether refused at once or after a while, the peer is answered
        SYSTEM_BUSY.
        """
        clock, threads = FakeReactor(), FakeThreads()
        remoting = Remoting(clock)
        pool = PoolExecutor(clock, threads, name="send", size=1, queueLimit=1, maxWait=0.2)
        remoting.registerProcessor(1, FunctionProcessor(answering), pool)
        protocol, wire = connected(remoting)
        protocol.dataReceived(frame(1, 1, b"served") + frame(1, 2) + frame(1, 3))
        (overload,) = wire.drain()
        clock.advance(0.2)
        (expired,) = wire.drain()
        threads.finish()
        (served,) = wire.drain()
        self.assertEqual(
            [(each.opaque, each.code) for each in (overload, expired, served)],
            [(3, ResponseCode.SYSTEM_BUSY), (2, ResponseCode.SYSTEM_BUSY), (1, 0)],
        )
        self.assertEqual(served.body, b"served")


class ThreadTests(TestCase):
    """
    The same with threads.
    """

    timeout = 300

    @inlineCallbacks
    def test_threads(self) -> Any:
        """
        Processors run beside each other in the pool's threads, and their
        answers come back in the reactor's.
        """
        threads = ThreadPool(2, 2, "pool")
        threads.start()
        self.addCleanup(threads.stop)
        # Both must be in it at the same time, or it breaks.
        meeting = threading.Barrier(2, timeout=120)
        ran: set[str] = set()

        def work(request: RemotingCommand, peer: object) -> RemotingCommand:
            meeting.wait()
            ran.add(threading.current_thread().name)
            return responseCommand(body=request.body)

        pool = PoolExecutor(reactor, threads, name="work", size=2, maxWait=20)
        serve: Any = pool.bind(work)
        came: list[threading.Thread] = []
        tasks = [serve(requestCommand(1, body=b"%d" % n), None) for n in range(6)]
        self.assertEqual((pool.running, pool.waiting), (2, 4))

        def arrived(result: Any) -> Any:
            came.append(threading.current_thread())
            return result

        for each in tasks:
            each.addBoth(arrived)
        answers = yield gatherResults(tasks)
        self.assertEqual([each.body for each in answers], [b"%d" % n for n in range(6)])
        self.assertEqual(set(came), {threading.current_thread()})
        self.assertNotIn(threading.current_thread().name, ran)
        # It would find nothing to do, but trial wants the reactor clean.
        pool._expiry.cancel()  # type: ignore[union-attr]


class TurnTests(SynchronousTestCase):
    """
    L{TurnExecutor}.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[Deferred[RemotingCommand]] = []
        executor = TurnExecutor(self.clock, name="query", size=2, queueLimit=1, maxWait=5)
        self.serve = executor.bind(self._process)
        self.executor = executor
        self.request = requestCommand(12)
        self.peer = RemotingProtocol(Remoting(self.clock), accepted=True)

    def _process(self, request: RemotingCommand, peer: RemotingProtocol) -> Any:
        self.begun.append(Deferred())
        return self.begun[-1]

    def _ask(self) -> Any:
        return self.serve(self.request, self.peer)

    def test_turns(self) -> None:
        """
        As many run as may; the next begins when one of them is done.
        """
        first, second, third = self._ask(), self._ask(), self._ask()
        self.assertEqual((len(self.begun), self.executor.waiting), (2, 1))
        answer = responseCommand()
        self.begun[1].callback(answer)
        self.assertIs(self.successResultOf(second), answer)
        self.assertEqual((len(self.begun), self.executor.waiting), (3, 0))
        self.assertNoResult(first)
        self.begun[2].errback(ValueError("no"))
        self.failureResultOf(third, ValueError)
        self.assertEqual(self.executor.running, 1)

    def test_overload(self) -> None:
        """
        Who finds no room to wait is told so at once, and who waits too long after
        its time.
        """
        self._ask(), self._ask()
        waits = self._ask()
        with self.assertRaises(SystemBusy):
            self._ask()
        self.clock.advance(5)
        self.failureResultOf(waits, SystemBusy)

    def test_atOnce(self) -> None:
        """
        An answer that is there at once, and an error, make room at once.
        """
        answer = responseCommand()
        serve = self.executor.bind(lambda request, peer: answer)
        for _ in range(5):
            given: Any = serve(self.request, self.peer)
            self.assertIs(self.successResultOf(given), answer)

        def fail(request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
            raise SystemBusy("not now")

        refused: Any = self.executor.bind(fail)(self.request, self.peer)
        self.failureResultOf(refused, SystemBusy)
        self.assertEqual(self.executor.running, 0)

    def test_cancelled(self) -> None:
        """
        What a request waits for is given up with it, and makes room.
        """
        first = self._ask()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertTrue(self.begun[0].called)
        self.assertEqual(self.executor.running, 0)
