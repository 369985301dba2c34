# SPDX-License-Identifier: Apache-2.0
"""
The health of a store: whether it takes messages, and if not, why::

    write failed, sync failed --> StoreHealth.fail --> no message is taken any more
                                                   --> callers that wait get the error

A disk that fails once cannot be trusted: the system may have thrown data away that it could
not write.  So a store that has failed stays so until it is started again.
"""

from __future__ import annotations

from twisted.logger import Logger

from txrocket.errors import StoreError, StoreFailed, StoreIsReplica
from txrocket.store.files import SyncFailed
from txrocket.store.flush.watermark import Watermark

__all__ = ["StoreHealth"]


class StoreHealth:
    """
    Keeps the first error after which no message can be kept.

    @ivar failure: why the store takes no messages any more, or L{None}.
    @ivar following: why the store takes the log of a master and no messages, or L{None}.
    """

    _log = Logger()

    def __init__(self, root: str, written: Watermark) -> None:
        """
        @param root: the folder of the store.
        @param written: its waiters get the error.
        """
        self._root = root
        self._written = written
        self.failure: StoreFailed | None = None
        self.following: StoreIsReplica | None = None

    @property
    def refusal(self) -> StoreError | None:
        """
        Why the store takes no messages now, or L{None}.
        """
        return self.failure or self.following

    def fail(self, error: StoreFailed) -> None:
        """
        Take no messages any more.
        """
        if self.failure is None:
            self.failure = error
            self._log.critical("{error}", error=error)
            self._written.fail(error)

    def judge(self, error: Exception) -> None:
        """
        Take no messages any more, if the error is one of a disk that failed.
        """
        if isinstance(error, StoreFailed):
            self.fail(error)
        elif isinstance(error, SyncFailed):
            self.fail(StoreFailed(f"syncing {self._root} failed: {error}; start the store anew"))

    def close(self) -> None:
        """
        Take no messages any more, because the store is closed.
        """
        self.failure = StoreFailed(f"{self._root} is closed")
