# SPDX-License-Identifier: Apache-2.0
"""
Answers that peers of accepted connections do not read, and the memory that they hold
together.

Each connection has a limit of its own; a thousand that ask for the list of all topics
and read nothing stay below it, and hold gigabytes.  Above the budget the connection is
dropped that leaves most unread::

    written while the transport is full --> counted --> above the budget: the largest goes
    the transport has room again, or is gone --> counted no more
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

if TYPE_CHECKING:
    from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["UnreadAnswers"]


class UnreadAnswers:
    """
    The unread answers of a server.

    @ivar size: how many bytes they have together.
    """

    _log = Logger()

    def __init__(self, limit: int) -> None:
        """
        @param limit: how many bytes they may have together, C{serverMaxUnreadBytes}.
        """
        self._limit = limit
        self._sizes: dict[RemotingProtocol, int] = {}
        self.size = 0

    def add(self, connection: RemotingProtocol, size: int) -> None:
        """
        A connection has written what its peer does not read yet.
        """
        self._sizes[connection] = self._sizes.get(connection, 0) + size
        self.size += size
        if self.size > self._limit:
            self._dropLargest()

    def forget(self, connection: RemotingProtocol) -> None:
        """
        The peer has read, or is gone.
        """
        self.size -= self._sizes.pop(connection, 0)

    def _dropLargest(self) -> None:
        connection = max(self._sizes, key=self._sizes.__getitem__)
        self._log.warn(
            "Dropping the connection to {address}, which leaves {size} bytes of answers unread:"
            " all connections leave {total}, and serverMaxUnreadBytes is {limit}",
            address=connection.address,
            size=self._sizes[connection],
            total=self.size,
            limit=self._limit,
        )
        self.forget(connection)
        connection.drop()
