# SPDX-License-Identifier: Apache-2.0
"""
The name servers of a program, of which any one will do.

Name servers do not know each other, and each knows all.  Requests go to one of
them until it fails to answer, and then to the next: a list in which the first
is gone costs one failure, not one for every request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import ConnectFailed, RemotingError
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.peers import Peers

__all__ = ["NameServers"]


class NameServers:
    """
    A list of name servers, and the one that is used.
    """

    _log = Logger()

    def __init__(
        self, peers: Peers, addresses: Sequence[str], choose: Callable[[int], int]
    ) -> None:
        """
        @param choose: picks a number below the one it is given: which server to
            begin with, so that many clients spread over them.
        """
        self._peers = peers
        self._choose = choose
        self._addresses: list[str] = []
        self._current = 0
        self.update(addresses)

    @property
    def addresses(self) -> Sequence[str]:
        """
        All name servers.
        """
        return tuple(self._addresses)

    @property
    def current(self) -> str | None:
        """
        The one that is asked next.
        """
        return self._addresses[self._current] if self._addresses else None

    def update(self, addresses: Sequence[str]) -> None:
        """
        Take a new list.  The server in use stays in use if it is in it; the
        connections to those that are not are closed.
        """
        addresses = list(dict.fromkeys(addresses))
        used = self.current
        for gone in set(self._addresses) - set(addresses):
            self._peers.forget(gone)
        self._addresses = addresses
        if used in addresses:
            self._current = addresses.index(used)
        else:
            self._current = self._choose(len(addresses)) if addresses else 0

    @inlineCallbacks
    def request(
        self, command: RemotingCommand, timeout: float
    ) -> Generator[Deferred[RemotingCommand], RemotingCommand, RemotingCommand]:
        """
        Ask the server in use and, if it gives no answer, the others in turn.

        @param timeout: in seconds, for each of them.
        @return: a Deferred of the response, whatever its code; it fails with
            the last server's L{RemotingError}.
        """
        asked: set[str] = set()
        address = self.current
        while address is not None:
            try:
                return (yield self._peers.request(address, command, timeout))
            except RemotingError as error:
                asked.add(address)
                self._leave(address)
                following = self._following(asked)
                if following is None:
                    raise
                self._log.warn(
                    "Name server {address} gives no answer, asking {following}: {error}",
                    address=address,
                    following=following,
                    error=error,
                )
                address = following
        raise ConnectFailed("", f"{requestName(command.code)}: no name server is known")

    def _following(self, asked: set[str]) -> str | None:
        """
        The server in use or, if it was asked, the first after it that was not.
        """
        ordered = self._addresses[self._current :] + self._addresses[: self._current]
        return next((each for each in ordered if each not in asked), None)

    def _leave(self, address: str) -> None:
        # Another request, or a new list, may have moved on already.
        if self.current == address:
            self._current = (self._current + 1) % len(self._addresses)
