# SPDX-License-Identifier: Apache-2.0
"""
What calls a push consumer's listener; Java's C{ConsumeMessageService}.

L{Concurrently<txrocket.client.consumer.push.concurrently.Concurrently>} and
L{Orderly<txrocket.client.consumer.push.orderly.Orderly>} share its life::

    submit --> loop: calls, while fewer than the limit run --> done --> consumed
                ^                                               |
                '-----------------------------------------------+--> idle, after a stop
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.consumer.push.listener import ListenerCaller
from txrocket.client.consumer.push.processqueue import ProcessQueue
from txrocket.message import MessageExt

__all__ = ["ConsumeService", "Consumed", "Prepare", "SendBack"]

#: Sends a message back to the broker, with a delay level.
SendBack: TypeAlias = Callable[[MessageExt, int], Deferred[None]]

#: Is told up to which offset a queue is consumed.
Consumed: TypeAlias = Callable[[ProcessQueue, int], None]

#: Makes a message fit for a listener.
Prepare: TypeAlias = Callable[[MessageExt], MessageExt]


class ConsumeService(ABC):
    """
    Calls a listener.

    @ivar running: how many calls of the listener are running.
    """

    _log = Logger()

    running: int

    def __init__(
        self,
        clock: IReactorTime,
        listener: ListenerCaller,
        limit: int,
        consumed: Consumed,
        prepare: Prepare,
    ) -> None:
        """
        @param limit: how many calls may run at a time.
        """
        self._clock = clock
        self._listener = listener
        self._limit = limit
        self._consumed = consumed
        self._prepare = prepare
        self._idle: list[Deferred[None]] = []
        self._stopped = False
        self._looping = False

    @abstractmethod
    def submit(self, processQueue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """
        Consume messages that were pulled.
        """

    @abstractmethod
    def expire(self, processQueues: Sequence[ProcessQueue], limit: float) -> None:
        """
        Send back messages that a listener has had for too long.

        @param limit: in seconds.
        """

    # --- life ------------------------------------------------------------

    def start(self) -> None:
        """
        Begin calls, after a stop.
        """
        self._stopped = False

    def stop(self) -> Deferred[None]:
        """
        Begin no more calls.

        @return: a Deferred that fires once no call runs, and no message is being sent back.
        """
        self._stopped = True
        self._clear()
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._fireIdle()
        return idle

    @abstractmethod
    def _clear(self) -> None:
        """
        Drop all calls that have not begun.
        """

    @abstractmethod
    def _isBusy(self) -> bool:
        """
        Whether L{stop} must wait.
        """

    def _fireIdle(self) -> None:
        while self._idle and not self._isBusy():
            self._idle.pop().callback(None)

    # --- calls -----------------------------------------------------------

    def _run(self) -> None:
        """
        Begin calls, as many as may run.
        """
        # A call that ends at once leads here again: the loop that runs goes on.
        if self._looping:
            return
        self._looping = True
        try:
            while self.running < self._limit and self._begin():
                pass
        finally:
            self._looping = False

    @abstractmethod
    def _begin(self) -> bool:
        """
        Begin the next call.

        @return: whether there was something to begin.
        """

    def _logFailure(
        self, failure: Failure, processQueue: ProcessQueue, messages: Sequence[MessageExt]
    ) -> None:
        self._log.failure(
            "The listener failed with {count} messages of {queue}, the first at {offset}",
            failure,
            count=len(messages),
            queue=processQueue.queue,
            offset=messages[0].queueOffset,
        )
