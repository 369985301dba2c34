# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.listener}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.client.listeners import Threads
from tests.client.messages import pulled
from txrocket.client.consumer.push.listener import ConsumeLater, ListenerCaller
from txrocket.errors import ConfigError
from txrocket.message import MessageExt


class ListeningTests(SynchronousTestCase):
    """
    Every kind of listener.
    """

    def setUp(self) -> None:
        self.threads = Threads(Clock())

    def listening(self, listener: Any, batch: int = 0, *, blocking: bool = False) -> ListenerCaller:
        """
        A listener, ready to be called.
        """
        return ListenerCaller(listener, batch, self.threads, blocking=blocking)

    def test_plainResultCountsAtOnce(self) -> None:
        """
        A function gets the message, and its result counts at once.
        """
        later = ConsumeLater(delayLevel=2)
        listening = self.listening(lambda message: (message, later))
        self.assertEqual(listening.call([pulled(3)]), (pulled(3), later))
        self.assertEqual(listening.batch, 1)

    def test_functionsErrorIsRaised(self) -> None:
        """
        An error of a function is raised.
        """
        self.assertRaises(ZeroDivisionError, self.listening(lambda _: 1 / 0).call, [pulled(3)])

    def test_batchListenerGetsList(self) -> None:
        """
        A listener of batches gets a list, also for one message.
        """
        listening = self.listening(lambda messages: messages, 5)
        self.assertEqual(listening.call([pulled(3)]), [pulled(3)])
        self.assertEqual(listening.batch, 5)
        self.assertEqual(self.listening(list, 1).call([pulled(3)]), [pulled(3)])

    def test_deferredIsPassedOn(self) -> None:
        """
        A Deferred is passed on as it is.
        """
        promise: Deferred[None] = Deferred()
        self.assertIs(self.listening(lambda message: promise).call([pulled(3)]), promise)

    def test_coroutineRunsAtOnce(self) -> None:
        """
        An C{async def} runs at once as far as it can, and its result is a Deferred's.
        """
        promise: Deferred[int] = Deferred()
        seen = []

        async def listen(message: MessageExt) -> int:
            seen.append(message.queueOffset)
            return 1 + await promise

        result = self.listening(listen).call([pulled(3)])
        self.assertEqual(seen, [3])
        self.assertNoResult(result)
        promise.callback(1)
        self.assertEqual(self.successResultOf(result), 2)

    def test_coroutinesErrorFailsDeferred(self) -> None:
        """
        An error of a coroutine fails its Deferred.
        """

        async def listen(message: MessageExt) -> None:
            raise ZeroDivisionError

        self.failureResultOf(self.listening(listen).call([pulled(3)]), ZeroDivisionError)

    def test_blockingListenerRunsInThread(self) -> None:
        """
        A blocking listener is called in one of the reactor's threads, and its result comes
        back to the reactor.
        """
        result = self.listening(lambda message: message.queueOffset, blocking=True).call(
            [pulled(3)]
        )
        self.assertNoResult(result)
        self.threads.jobs.pop()()
        self.assertNoResult(result)
        self.threads.advance(0)
        self.assertEqual(self.successResultOf(result), 3)

    def test_blockingErrorComesBack(self) -> None:
        """
        An error of a blocking listener comes back to the reactor as well.
        """
        result = self.listening(lambda messages: 1 / 0, 2, blocking=True).call([pulled(3)])
        self.threads.jobs.pop()()
        self.threads.advance(0)
        self.failureResultOf(result, ZeroDivisionError)

    def test_blockingCoroutineIsRefused(self) -> None:
        """
        An C{async def} cannot be called in a thread: no event loop would run it, and all
        its messages would count as consumed.
        """

        async def listen(message: MessageExt) -> None:
            """
            Never runs.
            """

        self.assertRaises(ConfigError, self.listening, listen, blocking=True)

    def test_negativeCountIsRefused(self) -> None:
        """
        The number of consumed messages cannot be negative.
        """
        self.assertRaises(ValueError, ConsumeLater, done=-1)
