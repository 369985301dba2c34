# SPDX-License-Identifier: Apache-2.0
"""
The queues that a consumer of a group has locked; Java's C{RebalanceLockManager}.

An orderly consumer locks a queue before it pulls from it, and again every 20 seconds.  The
lock ends when its holder unlocks the queue, or 60 seconds after it last locked it.  It does
not end with the connection, because the consumer may be consuming what it has pulled::

    lock(group, queues, client) --> free, expired or its own: locked
                                    another's: not locked

All groups together hold at most C{maxQueueLockNum} locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

import attrs

from txrocket.errors import RemoteSystemError
from txrocket.model import MessageQueue
from txrocket.protocol.bodies.inspect import HeldLock, LockList
from txrocket.protocol.fastjson import Gradual

__all__ = ["LOCK_MAX_LIVE_TIME", "Holder", "QueueLocks"]

#: Milliseconds; C{rocketmq.broker.rebalance.lockMaxLiveTime}.
LOCK_MAX_LIVE_TIME = 60_000


# Sorting by the fields is faster than comparing queues.
_order = attrgetter("topic", "brokerName", "queueId")


class Holder(NamedTuple):
    """
    The holder of a lock.

    @ivar clientId: the consumer.
    @ivar held: for how many milliseconds it has held the lock.
    @ivar silent: how many milliseconds ago it last locked the queue.
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
        @param maxLiveTime: for how many milliseconds a lock lasts.
        """
        self._maxLiveTime = maxLiveTime
        self._limit = limit
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], clientId: str, now: int
    ) -> frozenset[MessageQueue]:
        """
        Lock queues for a consumer.

        @param now: in milliseconds.
        @return: the queues that it holds now.  A queue beyond the limit is left out, and the
            client tries again.
        @raise RemoteSystemError: if all of them are beyond the limit.
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
        Unlock the queues that a consumer holds.
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

    def clear(self) -> None:
        """
        Forget all locks: this broker is not the master any more, which alone gives them.
        """
        self._groups.clear()
        self._count = 0

    def holders(self, group: str, now: int) -> dict[MessageQueue, Holder]:
        """
        The holders of a group's queues.
        """
        return {
            queue: Holder(lock.clientId, now - lock.since, now - lock.heard)
            for queue, lock in self._groups.get(group, {}).items()
            if not self._expired(lock, now)
        }

    def first(self, most: int, now: int, only: str | None = None) -> Gradual[LockList]:
        """
        The first locks.

        @param most: how many.
        @param only: a group, or L{None} for all groups.
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
        Remove the expired locks.
        """
        for group, locks in list(self._groups.items()):
            gone = [queue for queue, lock in locks.items() if self._expired(lock, now)]
            for queue in gone:
                del locks[queue]
                self._count -= 1
            # Another slice may have removed the group.
            if self._groups.get(group) is locks:
                self._forgetEmpty(group, locks)
            yield

    def _expired(self, lock: _Lock, now: int) -> bool:
        return now - lock.heard > self._maxLiveTime

    def _forgetEmpty(self, group: str, locks: dict[MessageQueue, _Lock]) -> None:
        if not locks:
            del self._groups[group]
