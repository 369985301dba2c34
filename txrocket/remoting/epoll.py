# SPDX-License-Identifier: Apache-2.0
"""
The event loop of a server's own process: Twisted's epoll loop, which also says when a turn
ends::

    epoll --> readable, an accepted TCP connection --> doRead
         \\--> all else, as Twisted does it
    then  --> Turn.end of each program: serve, commit, answer

For every event of a connection Twisted's reactor pushes a context that names it, in case
something is logged by way of the old C{twisted.python.log}, and looks three times whether
the connection is still there.  A server with many connections that each have one request in
flight pays that for every request.  See hotpath: epoll.

The loop is private to Twisted, so this is the only module that replaces it, and it leaves
alone any reactor but the one it knows.  A program that embeds a server keeps its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.tcp import Server
from twisted.python import log

from txrocket.remoting.turn import Turn

__all__ = ["drive"]


def drive(reactor: Any, turns: Sequence[Turn]) -> Callable[[], None]:
    """
    Have a reactor end the turns of a process's programs after each round of events, if it is
    Twisted's epoll reactor.

    @return: a function that gives the reactor its own loop back.
    """
    if type(reactor) is not EPollReactor:
        return lambda: None
    reactor.doIteration = _Loop(reactor, turns).poll  # type: ignore[method-assign]
    for each in turns:
        each.driven = True

    def release() -> None:
        vars(reactor).pop("doIteration", None)
        for each in turns:
            each.driven = False
            each.end()

    return release


class _Loop:
    """
    What C{doPoll} of L{EPollReactor} does, and the ends of turns.
    """

    def __init__(self, reactor: Any, turns: Sequence[Turn]) -> None:
        self._reactor = reactor
        self._turns = turns

    def poll(self, timeout: float | None) -> None:
        reactor, turns = self._reactor, self._turns
        for turn in turns:
            # Timers and threads have asked for writes.  Ending the turn may set timers.
            if turn.isOpen:
                turn.end()
                timeout = 0
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
        for turn in turns:
            if turn.isOpen:
                turn.end()
