# SPDX-License-Identifier: Apache-2.0
"""
The connections of a blocking client, one per address.

A connection is made when it is needed, kept, and looked at before it is used again.
One that anything went wrong with is closed.  A process that was forked makes its
own: two that wrote to one socket would get each other's answers.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txrocket.acl import Credentials
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.link import Link
from txrocket.blocking.tls import TLS
from txrocket.protocol.command import RemotingCommand

__all__ = ["Links"]


class Links:
    """
    Connections by address.
    """

    def __init__(self, tls: TLS | None, limit: int, credentials: Credentials | None = None) -> None:
        """
        @param limit: the longest frame in bytes, in and out.
        @param credentials: whom requests are signed for.
        """
        self._tls = tls
        self._credentials = credentials
        self._limit = limit
        self._context: ssl.SSLContext | None = None
        self._links: dict[str, Link] = {}
        self._process = os.getpid()
        self._turn = threading.Lock()

    def ask(
        self,
        address: str,
        request: RemotingCommand,
        deadline: Deadline,
        dialling: Deadline | None = None,
    ) -> RemotingCommand:
        """
        Send a request to an address and wait for the answer.

        @param dialling: until when it must be connected, if that is sooner.
        @return: the answer, whatever its code.
        @raise RemotingError: if there is none.
        @raise InvalidMessage: if the request cannot be written.
        """
        return self.askAll(address, [request], deadline, dialling)[0]

    def askAll(
        self,
        address: str,
        requests: Sequence[RemotingCommand],
        deadline: Deadline,
        dialling: Deadline | None = None,
    ) -> list[RemotingCommand]:
        """
        Send small requests to an address, all at once, and wait for all answers.

        @param dialling: until when it must be connected, if that is sooner.
        @return: the answers, whatever their codes.
        @raise RemotingError: if one is missing.
        @raise InvalidMessage: if a request cannot be written.
        """
        with self._alone():
            if self._credentials is not None:
                for each in requests:
                    self._credentials.sign(each)
            link = self._links.pop(address, None)
            if link is not None and not link.isAlive():
                link.close()
                link = None
            if link is None:
                link = Link.dial(address, dialling or deadline, self._tlsContext(), self._limit)
            try:
                answers = link.requests(requests, deadline)
            except BaseException:
                # An answer that still comes would be taken for another's.
                link.close()
                raise
            self._links[address] = link
            return answers

    def close(self) -> None:
        """
        Close all connections; they are made again when they are needed.
        """
        links, self._links = self._links, {}
        for each in links.values():
            each.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._process != os.getpid():
            # This closes no connection: the other process has them as well.
            self.close()
            self._turn = threading.Lock()
            self._process = os.getpid()
        turn = self._turn
        if not turn.acquire(blocking=False):
            raise RuntimeError(
                "a blocking client serves one thread at a time: make one for each thread"
            )
        try:
            yield
        finally:
            turn.release()

    def _tlsContext(self) -> ssl.SSLContext | None:
        if self._context is None and self._tls is not None:
            self._context = self._tls.context()
        return self._context
