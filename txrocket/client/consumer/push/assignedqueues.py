# SPDX-License-Identifier: Apache-2.0
"""
The queues that a push consumer has; Java's C{RebalancePushImpl}.

The life of a queue; only consumers in order lock it::

    fell to this member --> lock --> where is the group? --> pull, consume
         ^                    |               |                   |
         |   another has it: 1 s;  not told: 3 s                  |
         |                                                        |
         +--- lock was lost, or had run out: begin anew ----------+
                                                                  |
    fell to another --> pull no more --> keep the offset --> listener done --> unlock

What is known of a queue while it is another's is out of date, and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.consumer.offsetstore import OffsetStore
from txrocket.client.consumer.push.orderly import LOCK_TIME, Orderly
from txrocket.client.consumer.push.pullloop import PullLoop
from txrocket.client.consumer.push.queuelocks import ConsumerLocks, LockResult
from txrocket.client.consumer.startoffset import StartOffset
from txrocket.errors import RocketError
from txrocket.model import MessageQueue

__all__ = ["AssignedQueues", "InOrder"]

# When a queue is tried again, in seconds: one that another has still, and one that
# could not be begun.
_AFTER_LOCKED: Final = 1.0
_AFTER_FAILURE: Final = 3.0


class InOrder(NamedTuple):
    """
    The parts that consuming in order needs: the consume service, and the locks.
    """

    consume: Orderly
    locks: ConsumerLocks


class AssignedQueues:
    """
    Takes queues that fall to a consumer, and leaves them.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        pullLoop: PullLoop,
        offsets: OffsetStore,
        startOffset: StartOffset,
        isMine: Callable[[MessageQueue], bool],
        inOrder: InOrder | None,
    ) -> None:
        """
        @param isMine: tells whether a queue has fallen to this consumer.
        """
        self._clock = clock
        self._pullLoop = pullLoop
        self._offsets = offsets
        self._startOffset = startOffset
        self._isMine = isMine
        self._inOrder = inOrder
        self._running = False
        self._later: set[IDelayedCall] = set()

    # --- life ------------------------------------------------------------

    def start(self) -> None:
        """
        Take queues from now on.
        """
        self._running = True

    def stop(self) -> None:
        """
        Take no more.
        """
        self._running = False
        for call in self._later:
            call.cancel()
        self._later.clear()

    def release(self) -> Deferred[None]:
        """
        Leave all, after a stop.

        @return: a Deferred that fires once they are unlocked.
        """
        for queue in list(self._pullLoop.processQueues):
            self._pullLoop.end(queue)
            self._offsets.forget(queue)
        if self._inOrder is None:
            return succeed(None)
        consume, locks = self._inOrder
        # Nobody may have a queue while the listener is still about with it: that lock
        # runs out by itself.
        free = locks.held - set(consume.busy)
        locks.held.clear()
        return locks.unlock(free)

    # --- queues ----------------------------------------------------------

    def changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        """
        Queues have fallen to this consumer, and others to other members.
        """
        for queue in removed:
            self.leave(queue)
        self.obtain(added)

    @inlineCallbacks
    def leave(self, queue: MessageQueue) -> Generator[Deferred[Any], Any, None]:
        """
        Leave a queue to another member: at once, or, in order, once the listener's call for
        it has ended.  Until then the lock keeps the other away.
        """
        self._pullLoop.end(queue)
        yield self._offsets.persist([queue])
        if self._inOrder is not None:
            yield self._inOrder.consume.free(queue)
        # Unless it has come back meanwhile, or a stop unlocks all.
        if self._running and not self._isMine(queue):
            self._offsets.forget(queue)
            if self._inOrder is not None:
                self._inOrder.locks.unlock([queue])

    def obtain(self, queues: Sequence[MessageQueue]) -> None:
        """
        Begin queues, as far as they still are this consumer's.
        """
        if not self._running:
            return
        mine = [each for each in queues if self._isMine(each)]
        if self._inOrder is None:
            for queue in mine:
                self._take(queue)
        else:
            self._inOrder.locks.lock(mine).addCallback(self._locked, mine)

    def _obtainLater(self, queues: Sequence[MessageQueue], seconds: float) -> None:
        def now() -> None:
            self._later.discard(call)
            self.obtain(queues)

        if self._running and queues:
            call = self._clock.callLater(seconds, now)
            self._later.add(call)

    def _locked(self, locked: LockResult, queues: Sequence[MessageQueue]) -> None:
        for queue in sorted(locked.own):
            if self._isMine(queue):
                self._take(queue)
            else:
                self.leave(queue)
        unsaid = [each for each in queues if each not in locked.own | locked.others]
        self._obtainLater(sorted(locked.others), _AFTER_LOCKED)
        self._obtainLater(unsaid, _AFTER_FAILURE)

    def _take(self, queue: MessageQueue) -> None:
        def begin(offset: int) -> None:
            if self._running and self._isMine(queue) and queue not in self._pullLoop.processQueues:
                self._offsets.forget(queue)
                processQueue = self._pullLoop.begin(queue, offset)
                processQueue.locked = self._inOrder is not None
                processQueue.lockedAt = self._clock.seconds()
                self._pullLoop.pull(processQueue)

        def failed(failure: Failure) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "{queue} cannot be begun yet, trying again: {error}",
                queue=queue,
                error=failure.value,
            )
            self._obtainLater([queue], _AFTER_FAILURE)

        self._startOffset.find(queue).addCallbacks(begin, failed)

    # --- locks -----------------------------------------------------------

    def lockAgain(self) -> Deferred[None]:
        """
        Renew the locks, also of lost queues for which the listener still has a call.
        """
        assert self._inOrder is not None
        locks = self._inOrder.locks
        return locks.lock(locks.held).addCallback(self._lockedAgain)

    def _lockedAgain(self, locked: LockResult) -> None:
        now = self._clock.seconds()
        for processQueue in self._pullLoop.each():
            if processQueue.queue in locked.others:
                self._beginAnew(processQueue.queue, "another member has its lock")
            elif processQueue.queue in locked.own and now - processQueue.lockedAt > LOCK_TIME:
                self._beginAnew(processQueue.queue, "its lock had run out")
            elif processQueue.queue in locked.own:
                processQueue.lockedAt = now

    def _beginAnew(self, queue: MessageQueue, why: str) -> None:
        """
        Forget where a queue was: another member may have gone on with it.
        """
        self._log.warn("{queue} is begun anew: {why}", queue=queue, why=why)
        self._pullLoop.end(queue)
        self._offsets.forget(queue)
        self.obtain([queue])
