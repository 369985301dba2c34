# SPDX-License-Identifier: Apache-2.0
"""
The environment of a server: clock, threads, ports, connections, files and random numbers.

A server uses only its environment, so that the same server runs on a machine and, in a
test, in memory on a clock (L{txrocket.testing}).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime, IStreamServerEndpoint
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from txrocket.remoting.executors import PoolExecutor
from txrocket.remoting.interfaces import IExecutor
from txrocket.remoting.peers import Connect, endpoints
from txrocket.remoting.settings import ServerSettings
from txrocket.remoting.timebase import steady, wallOf
from txrocket.remoting.tls import ClientTLS
from txrocket.store.files import Files
from txrocket.store.flush.flusher import InThread

__all__ = ["Environment", "freePort", "localAddress"]

# For syncs of the log, the queues and the tables, and for requests that block.
_THREADS = 20


def _nothing() -> None:
    pass


class _OwnThread:
    """
    A thread that runs one function after the other.  It costs less than a pool, which has
    to find a free thread for each function.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._jobs: SimpleQueue[tuple[Callable[[], None], Deferred[None]] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._work, name="rocket-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """
        Wait until all functions are done, and end the thread.
        """
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def run(self, function: Callable[[], None]) -> Deferred[None]:
        if self._thread is None:
            return maybeDeferred(function)
        done: Deferred[None] = Deferred()
        self._jobs.put((function, done))
        return done

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, done = job
            try:
                function()
            except BaseException:
                self._reactor.callFromThread(done.errback, Failure())
            else:
                self._reactor.callFromThread(done.callback, None)


@attrs.frozen
class Environment:
    """
    The clock, threads, network and files of one server.

    @ivar clock: the reactor's clock, which is monotonic; periodic tasks and timeouts
        follow it.
    @ivar wall: the time of day in seconds, which an administrator may set; for times that
        are stored, sent or shown.
    @ivar inThread: runs a blocking function, in a thread between C{start} and C{stop},
        and otherwise at once.
    @ivar listen: makes the endpoint of a server's port.
    @ivar connect: makes the function that dials, with TLS or without.
    @ivar choose: returns a random number below its argument.
    @ivar executor: makes an executor for blocking requests, from a name, a number of
        threads, and a limit of waiting requests.
    @ivar inOwnThread: like C{inThread}, for a caller that blocks often and runs one
        function at a time: a thread of its own.  L{None} if there is none.
    @ivar start: called before a server starts.
    @ivar stop: called after it has stopped.
    """

    clock: IReactorTime
    wall: Callable[[], float]
    inThread: InThread
    listen: Callable[[ServerSettings, int], IStreamServerEndpoint]
    connect: Callable[[ClientTLS | None], Connect]
    choose: Callable[[int], int]
    files: Files
    executor: Callable[[str, int, int], IExecutor]
    inOwnThread: InThread | None = None
    start: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing

    def now(self) -> int:
        """
        The time of day in milliseconds.
        """
        return int(self.wall() * 1000)

    def elapsed(self) -> int:
        """
        The monotonic time in milliseconds, for durations.
        """
        return int(self.clock.seconds() * 1000)

    def timeOf(self, elapsed: int) -> int:
        """
        The time of day, in milliseconds, of a time of L{elapsed}, to be shown.
        """
        return self.now() - (self.elapsed() - elapsed)

    @classmethod
    def real(cls, reactor: Any) -> Environment:
        """
        The environment of the real machine, with threads of its own.  After this call the
        reactor's timers follow the monotonic clock.
        """
        steady(reactor)
        threads = ThreadPool(0, _THREADS, "rocket")
        own = _OwnThread(reactor)

        def start() -> None:
            threads.start()
            own.start()

        def stop() -> None:
            own.stop()
            threads.stop()

        def inThread(function: Callable[[], None]) -> Deferred[None]:
            # A server that cannot start closes its files after its threads have ended, and
            # perhaps no reactor runs by then.
            if not threads.started:
                return maybeDeferred(function)
            return deferToThreadPool(reactor, threads, function)

        return cls(
            clock=reactor,
            wall=wallOf(reactor),
            inThread=inThread,
            listen=lambda settings, port: settings.endpoint(reactor, port),
            connect=lambda tls: endpoints(reactor, tls),
            choose=random.randrange,
            files=Files(),
            executor=lambda name, size, queueLimit: PoolExecutor(
                reactor, threads, name=name, size=size, queueLimit=queueLimit
            ),
            inOwnThread=own.run,
            start=start,
            stop=stop,
        )


def localAddress() -> str:
    """
    The address at which other machines most likely reach this one.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # This sends nothing; the system only chooses the interface.
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


def freePort(below: int = 0, above: int = 0, interface: str = "127.0.0.1") -> int:
    """
    A free port.

    @param below: the distance down to another port that must be free as well; 0 for none.
    @param above: the distance up to another one; 0 for none.
    """
    while True:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            first.bind((interface, 0))
            port: int = first.getsockname()[1]
            try:
                if below:
                    second.bind((interface, port - below))
                if above:
                    third.bind((interface, port + above))
            except (OSError, OverflowError):
                continue
            return port
