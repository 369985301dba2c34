# SPDX-License-Identifier: Apache-2.0
"""
The name servers of a program, of which any one will do.

Name servers do not know each other, and each knows all.  Requests go to one of
them until it fails to answer, and then to the next: a list in which the first
is gone costs one failure, not one for every request.

A name server that was just restarted knows nothing until the brokers register.  An
answer that may come of that is not believed before the others were asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.logger import Logger

from txrocket.errors import ConnectFailed, RemotingError
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.peers import Peers

__all__ = ["NameServers"]

Knows = Callable[[RemotingCommand], bool]

# How long the others have to answer if one does not know, in seconds: a producer waits.
_OTHERS = 1.0


class _DoesNotKnow(Exception):
    """
    A name server does not know what it was asked for.
    """


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
        self, command: RemotingCommand, timeout: float, knows: Knows | None = None
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """
        Ask the server in use and, if it gives no answer, the others in turn.

        @param timeout: in seconds, for each of them.
        @param knows: whether a response shows that the server knows what it was asked
            for.  If it does not, all others are asked, and one that knows is used from
            then on.
        @return: a Deferred of the response, whatever its code; it fails with
            the last server's L{RemotingError}.
        """
        asked: set[str] = set()
        address = self.current
        while address is not None:
            try:
                answer: RemotingCommand = yield self._peers.request(address, command, timeout)
                if knows is not None and not knows(answer):
                    asked.add(address)
                    better = yield self._askOthers(asked, command, timeout, knows)
                    answer = answer if better is None else better
                return answer
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

    @inlineCallbacks
    def _askOthers(
        self, asked: set[str], command: RemotingCommand, timeout: float, knows: Knows
    ) -> Generator[Deferred[Any], Any, RemotingCommand | None]:
        """
        Ask all at once that were not asked yet.

        @return: a Deferred of the first response of one that knows, or of L{None}.
        """

        def check(answer: RemotingCommand, address: str) -> RemotingCommand:
            if not knows(answer):
                raise _DoesNotKnow
            if address in self._addresses:
                self._current = self._addresses.index(address)
            return answer

        # One that is known to be down would only cost time.
        others = [each for each in self._addresses if each not in asked]
        asking = [
            self._peers.request(each, command, min(timeout, _OTHERS)).addCallback(check, each)
            for each in others
            if not self._peers.pausing(each)
        ]
        if not asking:
            return None
        first = yield DeferredList(asking, fireOnOneCallback=True, consumeErrors=True)
        # Of the one that knows it is a pair, and else a list of all failures.
        return first[0] if isinstance(first, tuple) else None

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
