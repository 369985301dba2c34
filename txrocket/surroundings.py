# SPDX-License-Identifier: Apache-2.0
"""
What a server needs of the world around it: time, threads, ports, other machines,
files, chance.

A server is handed these and reaches for nothing else, so that the same server
runs on a machine and, in a test, on a clock and in memory
(L{txrocket.testing}).
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
from txrocket.store.flush import InThread

__all__ = ["Surroundings", "freePort", "localAddress"]

# Syncing the log, the queues and the tables, and requests that block.
_THREADS = 20


def _nothing() -> None:
    pass


class _OwnThread:
    """
    A thread that runs one function after the other.  A pool, which has to find out who is
    free, takes 70 us for one that does nothing, and this 45: of a sync of the disk that is
    a tenth.
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
        Wait for what it was given.
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
class Surroundings:
    """
    @ivar clock: the reactor, as far as time goes: all that is periodic and every time-out
        follows it.  Nobody can set it.
    @ivar wall: the time of day in seconds, which anybody may set: for times that are
        stored, sent or shown.
    @ivar inThread: runs a function that blocks, in a thread between C{start} and
        C{stop}, and else at once.
    @ivar listen: makes the endpoint of a server's port.
    @ivar connect: tells how to dial others, over TLS or not.
    @ivar choose: picks a number below the one it is given.
    @ivar executor: makes an executor for what blocks, of a name, a number of
        threads and of requests that may wait for them.
    @ivar inOwnThread: as C{inThread}, for one who blocks often and does one thing at a
        time: in a thread that does nothing else.  L{None} if that is no better.
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
        What the monotonic clock shows, in milliseconds: for how long something has been
        silent, or held.
        """
        return int(self.clock.seconds() * 1000)

    def timeOf(self, elapsed: int) -> int:
        """
        The time of day in milliseconds at which L{elapsed} gave a number, to be shown.
        """
        return self.now() - (self.elapsed() - elapsed)

    @classmethod
    def real(cls, reactor: Any) -> Surroundings:
        """
        The machine's, with threads of one server's own.  From now on the timers of the
        reactor do not follow the time of day any more.
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
            # A server that cannot start gives up its threads and then closes its
            # files: perhaps no reactor is there to tell it when they are done.
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
            # Nothing is sent: the system only chooses the interface it would use.
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


def freePort(below: int = 0, interface: str = "127.0.0.1") -> int:
    """
    A port on which nobody listens, nor on the one so far below it.
    """
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((interface, 0))
            port: int = first.getsockname()[1]
            try:
                if below:
                    second.bind((interface, port - below))
            except OSError:
                continue
            return port
