# SPDX-License-Identifier: Apache-2.0
"""
When a message is as safe as its sender was promised: on the master's disk, on a slave, or
both::

                        ASYNC_MASTER             SYNC_MASTER
    ASYNC_FLUSH         in the files             in the files, and a slave has it
    SYNC_FLUSH          on the disk              on the disk, and a slave has it on its disk

Both waits go on at the same time.  As in RocketMQ, a failure of the slave's is told rather
than one of the disk's, and the message is stored in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from txrocket.errors import FlushDiskTimeout, FlushSlaveTimeout, SlaveNotAvailable
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import FlushDiskType

__all__ = ["LATE", "Durability", "IReplicas", "NoReplicas"]

#: Errors about a message that is in the log all the same.
LATE = (FlushDiskTimeout, FlushSlaveTimeout, SlaveNotAvailable)


class IReplicas(Protocol):
    """
    The slaves that a message may wait for.
    """

    @property
    def waiting(self) -> int:
        """
        How many messages wait.
        """

    def stored(self, end: int) -> Deferred[None]:
        """
        A Deferred that fires once a slave has all of the log up to C{end}.  It fails with
        L{SlaveNotAvailable} or L{FlushSlaveTimeout}.
        """

    def tablesStored(self) -> Deferred[None]:
        """
        A Deferred that fires once a slave has all changes of topics and groups so far, or if
        there is none to wait for.  It fails with L{FlushSlaveTimeout}.
        """


class NoReplicas:
    """
    The slaves of a broker that has none.

    @ivar waiting: no message waits.
    """

    waiting = 0

    def stored(self, end: int) -> Deferred[None]:
        """
        See L{IReplicas}.
        """
        return fail(SlaveNotAvailable("no slave is connected"))

    def tablesStored(self) -> Deferred[None]:
        """
        See L{IReplicas}.
        """
        return succeed(None)


class Durability:
    """
    Tells when a message is stored.
    """

    def __init__(
        self,
        store: MessageStore,
        replicas: IReplicas | None = None,
        waitsForSlaves: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        @param waitsForSlaves: whether the broker is a SYNC_MASTER.
        """
        self._store = store
        self._replicas: IReplicas = replicas or NoReplicas()
        self._waitsForSlaves = waitsForSlaves

    @property
    def isSync(self) -> bool:
        """
        Whether a message is not stored yet when it is in the files.
        """
        return (
            self._store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH or self._waitsForSlaves()
        )

    @property
    def waiting(self) -> tuple[int, float]:
        """
        How many messages wait for the disk or for a slave, and for how many seconds the first
        has waited for the disk.
        """
        count, seconds = self._store.waiting
        return max(count, self._replicas.waiting), seconds

    def stored(self, end: int) -> Deferred[None]:
        """
        A Deferred that fires once the message that ends there is as safe as promised.  It
        fails with one of L{LATE} if that is not so in time, and with L{StoreError} if the
        message is lost.
        """
        stored = self._store.stored(end)
        if not self._waitsForSlaves():
            return stored
        return _both(stored, self._replicas.stored(end))

    def tablesStored(self) -> Deferred[None]:
        """
        A Deferred that fires once topics and groups, as they are now, are as safe as promised
        beyond this broker's disk.  It fails with L{FlushSlaveTimeout}.
        """
        return self._replicas.tablesStored() if self._waitsForSlaves() else succeed(None)


def _both(stored: Deferred[None], replicated: Deferred[None]) -> Deferred[None]:
    """
    A Deferred that fires once both have, with the slave's failure rather than the disk's.  A
    lost message is told of at once.
    """
    both: Deferred[None] = Deferred()
    outcomes: dict[int, Failure | None] = {}

    def done(result: Failure | None, place: int) -> None:
        outcomes[place] = result
        if both.called:
            return
        if result is not None and not result.check(*LATE):
            both.errback(result)
        elif len(outcomes) == 2:
            failure = outcomes[1] or outcomes[0]
            both.callback(failure)

    stored.addBoth(done, 0)
    replicated.addBoth(done, 1)
    return both
