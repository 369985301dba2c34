# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.consumehooks}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.client.listeners import Slow, Threads
from tests.client.messages import pulled, several
from tests.client.pushcase import PushTests
from txrocket.client.consumer.push.consumehooks import (
    Consuming,
    IConsumeMessageHook,
    Watch,
    Watched,
)
from txrocket.client.consumer.push.listener import ConsumeLater
from txrocket.client.consumer.push.listenercalls import prepared
from txrocket.model import MessageModel
from txrocket.protocol.tracebodies import ConsumeReturnType

SUCCESS, TIME_OUT, EXCEPTION, _, FAILED = ConsumeReturnType

LIMIT = 10.0


@implementer(IConsumeMessageHook)
class Seer:
    """
    A hook that writes down what it sees.

    @ivar before: the offsets and times of calls that began.
    @ivar after: of ended calls: the number of consumed messages, the status, the time and
        the error.
    """

    name = "seer"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.calls: list[Consuming] = []

    def beforeConsume(self, consuming: Consuming) -> None:
        offsets = [each.queueOffset for each in consuming.messages]
        self.before.append((consuming.group, offsets, consuming.began))
        self.calls.append(consuming)
        if self._error is not None:
            raise self._error

    def afterConsume(self, consuming: Consuming) -> None:
        assert consuming in self.calls
        self.after.append((consuming.done, consuming.status, consuming.ended, consuming.error))
        if self._error is not None:
            raise self._error


class WatchedTests(SynchronousTestCase):
    """
    Hooks around the calls of a listener.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.seer = Seer()
        self.hooks = [self.seer]

    def call(
        self,
        listener: Callable[[Any], Any],
        count: int = 3,
        *,
        orderly: bool = False,
        blocking: bool = False,
        reactor: Any = None,
    ) -> Any:
        """
        Give messages to a listener.
        """
        watch = Watch(self.clock, "G", self.hooks, LIMIT, orderly=orderly)
        watched = Watched(watch, listener, 5, reactor, blocking=blocking)
        return watched.call(several(range(count)))

    def takes(self, result: Any, seconds: float) -> Callable[[Any], Any]:
        """
        A listener that takes its time.
        """

        def listen(messages: Any) -> Any:
            self.clock.advance(seconds)
            if isinstance(result, Exception):
                raise result
            return result

        return listen

    def test_hookGetsMessagesBeforeListener(self) -> None:
        """
        A hook gets the messages before the listener, and the listener is called as without
        a hook.
        """
        verifyObject(IConsumeMessageHook, self.seer)
        given: list[Any] = []

        def listen(messages: Any) -> str:
            given.append(messages)
            self.assertEqual(self.seer.before, [("G", [0, 1, 2], 1000.0)])
            self.assertEqual(self.seer.after, [])
            return "well"

        self.assertEqual(self.call(listen), "well")
        self.assertEqual(given, [several(range(3))])
        single = Watched(
            Watch(self.clock, "G", [], 1.0, orderly=False), given.append, 0, None, blocking=False
        )
        single.call([pulled(7)])
        self.assertEqual(given[1:], [pulled(7)])
        self.assertEqual(single.batch, 1)

    def test_hookGetsJavasReturnType(self) -> None:
        """
        After a call a hook gets Java's return type: success, failure, exception, or timeout
        without an exception.
        """
        error = ValueError("bad")
        for result, seconds, expected in (
            (None, 1.0, (3, SUCCESS)),
            ("anything", 1.0, (3, SUCCESS)),
            (None, LIMIT, (3, TIME_OUT)),
            (ConsumeLater(), 1.0, (0, FAILED)),
            (ConsumeLater(done=2), 1.0, (2, FAILED)),
            (ConsumeLater(done=9), 1.0, (3, FAILED)),
            (ConsumeLater(), LIMIT, (0, TIME_OUT)),
            (error, 1.0, (0, EXCEPTION)),
            (error, LIMIT, (0, EXCEPTION)),
        ):
            self.seer.after.clear()
            listener = self.takes(result, seconds)
            if result is error:
                self.assertIs(self.assertRaises(ValueError, self.call, listener), error)
            else:
                self.assertIs(self.call(listener), result)
            ((*seen, ended, raised),) = self.seer.after
            self.assertEqual(tuple(seen), expected)
            self.assertEqual(ended, self.clock.seconds())
            self.assertIs(raised, error if result is error else None)

    def test_partialOrderlyCallFails(self) -> None:
        """
        In order, if one message of a call is not consumed, none of the call counts as
        consumed.
        """
        self.call(self.takes(ConsumeLater(done=2), 1.0), orderly=True)
        self.assertEqual(self.seer.after[0][:2], (0, FAILED))

    def test_hookAwaitsDeferred(self) -> None:
        """
        A call ends with its Deferred, and the Deferred's result is not changed.
        """
        slow = Slow()
        for result, expected in ((None, (3, SUCCESS)), (ConsumeLater(done=1), (1, FAILED))):
            called: Deferred[Any] = self.call(slow)
            self.clock.advance(2)
            self.assertEqual(self.seer.after, [])
            slow.end(-1, result)
            self.assertIs(self.successResultOf(called), result)
            self.assertEqual(self.seer.after.pop()[:2], expected)
        called = self.call(slow)
        slow.end(-1, ValueError("bad"))
        self.failureResultOf(called, ValueError)
        self.assertEqual(self.seer.after.pop()[:2], (0, EXCEPTION))

    def test_hookAwaitsCoroutine(self) -> None:
        """
        A call of an async function is seen as well.
        """

        async def listen(messages: Any) -> ConsumeLater:
            return ConsumeLater()

        self.assertEqual(self.successResultOf(self.call(listen)), ConsumeLater())
        self.assertEqual(self.seer.after[0][:2], (0, FAILED))

    def test_hookRunsInReactorThread(self) -> None:
        """
        Of a call in a thread, hooks get beginning and end in the reactor's thread.
        """
        threads = Threads(self.clock)
        called = self.call(len, blocking=True, reactor=threads)
        self.assertEqual(len(self.seer.before), 1)
        (job,) = threads.jobs
        job()
        self.assertEqual(self.seer.after, [])
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(called), 3)
        self.assertEqual(self.seer.after[0][:2], (3, SUCCESS))

    def test_raisingHookIsLogged(self) -> None:
        """
        An error of a hook is logged, and neither the call nor the other hooks are affected.
        """
        bad = Seer(ValueError("hook"))
        self.hooks = [bad, self.seer]
        self.assertEqual(self.call(len), 3)
        self.assertEqual((len(bad.after), len(self.seer.after)), (1, 1))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)


class ConsumerHookTests(PushTests):
    """
    The hooks of a consumer.
    """

    def test_hookSeesConcurrentCalls(self) -> None:
        """
        Each call is seen, also one with messages that come again.
        """
        seer = Seer()
        self.started(hooks=[seer])
        self.a.put(b"a", b"b")
        self.network.flush()
        self.assertEqual([offsets for _, offsets, _ in seer.before], [[0], [1]])
        self.slow.end(1, ConsumeLater())
        self.slow.end(0)
        self.network.flush()
        self.assertEqual([each[:2] for each in seer.after], [(0, FAILED), (1, SUCCESS)])
        self.assertEqual(len(self.a.backs), 1)

    def test_hookSeesOrderlyCalls(self) -> None:
        """
        Each call in order is seen.
        """
        seer = Seer()
        self.started(hooks=[seer], orderly=True)
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0, ConsumeLater(seconds=1.0))
        self.network.advance(1)
        self.slow.end(1)
        self.assertEqual([each[:2] for each in seer.after], [(0, FAILED), (1, SUCCESS)])
        self.assertEqual([each.messages[0].reconsumeTimes for each in seer.calls], [0, 1])

    def test_hookSeesBroadcastCalls(self) -> None:
        """
        Each call of a broadcast consumer is seen.
        """
        seer = Seer()
        self.started(hooks=[seer], messageModel=MessageModel.BROADCASTING)
        self.a.put(b"a")
        self.network.flush()
        self.slow.end(0)
        self.assertEqual([each[:2] for each in seer.after], [(1, SUCCESS)])

    def test_hookSeesOriginalTopic(self) -> None:
        """
        A retried message is seen under its original topic, as by the listener.
        """
        seer = Seer()
        consumer = self.make(hooks=[seer])
        again = pulled(0, topic="%RETRY%G", RETRY_TOPIC="T")
        consumer._consume._listener.call([prepared(again)])
        self.assertEqual(seer.calls[0].messages[0].topic, "T")

    def test_hookSkipsDirectConsume(self) -> None:
        """
        A message that an administrator has consumed directly is not seen, as with Java.
        """
        seer = Seer()
        consumer = self.started(hooks=[seer])
        result = consumer.consumeDirectly(pulled(0), "a")
        self.slow.end(0)
        self.successResultOf(result)
        self.assertEqual(seer.before, [])
