# SPDX-License-Identifier: Apache-2.0
"""
Which consumer of a group has which queue for itself; Java's
C{RebalanceLockManager}.

A consumer that takes messages in order locks a queue before it pulls from it
and again every 20 seconds.  The lock goes away when its holder gives it back,
or 60 seconds after it was last heard of; not when its connection is lost, since
it may be consuming what it has got already::

    lock(group, queues, client) --> free, expired or its own: the client has it
                                    another's: it has not

All groups together hold at most C{maxQueueLockNum} locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

import attrs

from txrocket.errors import RemoteSystemError
from txrocket.model import MessageQueue
from txrocket.protocol.inspection import HeldLock, LockList
from txrocket.protocol.javajson import Gradual

__all__ = ["LOCK_MAX_LIVE_TIME", "Holder", "QueueLocks"]

#: Milliseconds; C{rocketmq.broker.rebalance.lockMaxLiveTime}.
LOCK_MAX_LIVE_TIME = 60_000


# Of the fields themselves: to compare 20,000 queues would take 30 ms.
_order = attrgetter("topic", "brokerName", "queueId")


class Holder(NamedTuple):
    """
    Who has a lock.

    @ivar clientId: the consumer.
    @ivar held: for how many milliseconds it has had the lock.
    @ivar silent: for how many it has not asked for it again.
    """

    clientId: str
    held: int
    silent: int


@attrs.define
class _Lock:
    clientId: str
    since: int
    heard: int


class QueueLocks:
    """
    The locks of all groups.
    """

    def __init__(self, maxLiveTime: int = LOCK_MAX_LIVE_TIME, limit: int = 500_000) -> None:
        """
        @param limit: how many locks there may be.
        @param maxLiveTime: for how many milliseconds a lock outlives its holder's
            last word.
        """
        self._maxLiveTime = maxLiveTime
        self._limit = limit
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], clientId: str, now: int
    ) -> frozenset[MessageQueue]:
        """
        Have queues locked for a consumer.

        @param now: in milliseconds.
        @return: those that it has now.  A queue that there is no room for is not among
            them if others are; the client asks again for it.
        @raise RemoteSystemError: if there is room for none.
        """
        locks = self._groups.setdefault(group, {})
        got = []
        full = False
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and self._count >= self._limit:
                full = True
                continue
            if lock is None or self._expired(lock, now):
                self._count += lock is None
                locks[queue] = _Lock(clientId, now, now)
            elif lock.clientId == clientId:
                lock.heard = now
            else:
                continue
            got.append(queue)
        self._forgetEmpty(group, locks)
        if full and not got:
            raise RemoteSystemError(
                f"no queue is locked for group {group}: {self._count} are locked already, and"
                f" maxQueueLockNum is {self._limit}: set it higher in the broker's file and start"
                " the broker anew"
            )
        return frozenset(got)

    def unlock(self, group: str, queues: Iterable[MessageQueue], clientId: str) -> None:
        """
        Give back those of some queues that a consumer has.
        """
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.clientId == clientId:
                del locks[queue]
                self._count -= 1
        self._forgetEmpty(group, locks)

    def holders(self, group: str, now: int) -> dict[MessageQueue, Holder]:
        """
        Who has which queue.
        """
        return {
            queue: Holder(lock.clientId, now - lock.since, now - lock.heard)
            for queue, lock in self._groups.get(group, {}).items()
            if not self._expired(lock, now)
        }

    def first(self, most: int, now: int, only: str | None = None) -> Gradual[LockList]:
        """
        Who has which queue.

        @param most: how many are told of.
        @param only: the one group that is meant, if not all are.
        """
        told: list[HeldLock] = []
        count = 0
        for group in list(self._groups) if only is None else [only]:
            locks = self._groups.get(group, {})
            held = [queue for queue, lock in locks.items() if not self._expired(lock, now)]
            count += len(held)
            if most > len(told):
                held.sort(key=_order)
                for queue in held[: most - len(told)]:
                    lock = locks[queue]
                    told.append(
                        HeldLock(group, queue, lock.clientId, now - lock.since, now - lock.heard)
                    )
            yield
        return LockList(tuple(told), count - len(told))

    def expire(self, now: int) -> Gradual[None]:
        """
        Forget the locks that nobody holds any more.
        """
        for group, locks in list(self._groups.items()):
            gone = [queue for queue, lock in locks.items() if self._expired(lock, now)]
            for queue in gone:
                del locks[queue]
                self._count -= 1
            # It may have been forgotten while others had their turn.
            if self._groups.get(group) is locks:
                self._forgetEmpty(group, locks)
            yield

    def _expired(self, lock: _Lock, now: int) -> bool:
        return now - lock.heard > self._maxLiveTime

    def _forgetEmpty(self, group: str, locks: dict[MessageQueue, _Lock]) -> None:
        if not locks:
            del self._groups[group]
