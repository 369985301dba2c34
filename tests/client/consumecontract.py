# SPDX-License-Identifier: Apache-2.0
"""
The rules that consuming in any order and in order share.

    Concurrently --+
                   +--> one contract: calls, lost queues, stop
    Orderly -------+

A test module imports this module and not the class, else trial would run the class itself.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.client.listeners import Slow
from tests.client.messages import QUEUE, several
from tests.remoting.doubles import RemotingTests
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.message import MessageExt
from txrocket.model import MessageQueue


class ConsumeContract(RemotingTests):
    """
    A consume service that calls a listener for one queue.

    @ivar commits: the offsets that were committed.
    @ivar backs: the messages that were sent back, with their levels, and the Deferreds by
        which a test says how that ends.
    @ivar slow: the listener.
    """

    consuming: Any

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(1000)
        self.window = self.opened(QUEUE)
        self.commits: list[int] = []
        self.backs: list[tuple[int, int, Deferred[None]]] = []
        self.slow = Slow()
        self.consuming = self.make(self.slow)

    def make(self, listener: Any, batch: int = 0, limit: int = 20) -> Any:
        """
        A consume service that calls a listener.
        """
        raise NotImplementedError

    def opened(self, queue: MessageQueue) -> ProcessQueue:
        """
        A queue that may be consumed.
        """
        return ProcessQueue(queue, 0)

    def sendBack(self, message: MessageExt, delayLevel: int) -> Deferred[None]:
        """
        A message is sent back, and the test says how that ends.
        """
        promise: Deferred[None] = Deferred()
        self.backs.append((message.queueOffset, delayLevel, promise))
        return promise

    def came(
        self, *offsets: int, window: ProcessQueue | None = None, consuming: Any = None
    ) -> None:
        """
        Messages were pulled.
        """
        # A window without messages is false.
        window = self.window if window is None else window
        (consuming or self.consuming).submit(window, window.add(several(offsets)))

    def returned(self, index: int, error: Exception | None = None) -> None:
        """
        Sending back ends.
        """
        promise = self.backs[index][2]
        if error is None:
            promise.callback(None)
        else:
            promise.errback(error)

    def test_callSetsConsumedAt(self) -> None:
        """
        A window knows when a listener last had messages of its queue.
        """
        self.clock.advance(5)
        self.came(0)
        self.assertEqual(self.window.consumedAt, 1005)

    def test_lostQueueGetsNoCall(self) -> None:
        """
        Messages of a lost queue are not given to the listener, and those that it has are
        not committed.
        """
        self.consuming = self.make(self.slow, limit=1)
        self.came(0, 1)
        self.window.dropped = True
        self.came(2)
        self.slow.end(0)
        self.assertEqual((self.slow.offsets, self.commits), ([0], []))
        self.assertEqual(self.consuming.running, 0)

    def test_stopWaitsForRunningCalls(self) -> None:
        """
        After a stop no call begins.  The stop ends once the last call has ended and its
        offset is committed.
        """
        self.consuming = self.make(self.slow, limit=1)
        self.came(0, 1)
        stopped = self.consuming.stop()
        committed: list[list[int]] = []
        stopped.addCallback(lambda none: committed.append(list(self.commits)))
        self.assertNoResult(stopped)
        self.slow.end(0)
        self.assertEqual((committed, self.slow.offsets), ([[1]], [0]))

    def test_stopWithoutCallsEndsAtOnce(self) -> None:
        """
        If no call runs, a stop ends at once.
        """
        self.successResultOf(self.consuming.stop())
