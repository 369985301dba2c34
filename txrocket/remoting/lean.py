# SPDX-License-Identifier: Apache-2.0
"""
Reading from connections without a logging context for each.

For every event of a connection Twisted's reactor pushes a context that names it, in case
something is logged by way of the old C{twisted.python.log}, and looks three times whether
the connection is still there: 4 us, where all that a sync sender costs is 20.  A server
with many connections that each have one request under way pays that for every request.

    epoll --> readable, an accepted TCP connection --> doRead
         \\--> all else, as Twisted does it

This is Twisted's private affair, so this is the only module that looks, and it leaves a
reactor alone that is not the one it knows.  Whoever runs a process of its own calls
L{readLeanly}; a program that we are only a part of is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.tcp import Server
from twisted.python import log

__all__ = ["readLeanly"]


def readLeanly(reactor: Any) -> Callable[[], None]:
    """
    Have a reactor read from accepted connections without more ado, if it is one that can.

    @return: a function after which it reads as ever.
    """
    if type(reactor) is not EPollReactor:
        return lambda: None
    reactor.doIteration = _Lean(reactor).poll  # type: ignore[method-assign]
    return lambda: vars(reactor).pop("doIteration", None)


class _Lean:
    """
    What C{doPoll} of L{EPollReactor} does.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def poll(self, timeout: float | None) -> None:
        reactor = self._reactor
        selectables = reactor._selectables
        # A signal's handler has run by itself, and the call was made again.
        events = reactor._poller.poll(-1 if timeout is None else timeout, len(selectables))
        for handle, event in events:
            # One that was served before may have closed this one.
            selectable = selectables.get(handle)
            if selectable is None:
                continue
            if event == EPOLLIN and type(selectable) is Server:
                why: BaseException | None
                try:
                    why = selectable.doRead()
                except BaseException as error:
                    why = error
                    log.err()
                if why:
                    reactor._disconnectSelectable(selectable, why, True)
            else:
                log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, handle, event)
