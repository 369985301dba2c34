# SPDX-License-Identifier: Apache-2.0
"""
A broker and a name server on a clock and a network in memory, with the broker's files on a real
disk, so that the compiled module and C{verify} work on them as they do for a user.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

from txrocket.client.cluster import Cluster
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.store.files import Files
from txrocket.testing.memory.cluster import MemoryCluster

_Result = TypeVar("_Result")

# Small files, so that there are several of each kind.
LOG_FILE = 16_384
SLOTS = 40
LEVELS = "1s 20s 30s"
SETTINGS: dict[str, str | int | float] = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": 20 * 16,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": 120,
    "maxMessageSize": 6000,
    "messageDelayLevel": LEVELS,
    "enablePropertyFilter": True,
}


class RealFiles(Files):
    """
    The real disk, of a process that can end as by C{kill -9}.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._handles: set[int] = set()
        self._folders: set[Callable[[], None]] = set()

    def crash(self) -> None:
        """
        The process has ended: its files are closed.
        """
        handles, self._handles = self._handles, set()
        for each in handles:
            os.close(each)
        folders, self._folders = self._folders, set()
        for release in folders:
            release()

    def open(self, path: str) -> int:
        """
        See L{Files.open}.
        """
        handle = super().open(path)
        self._handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        """
        See L{Files.close}.  One that a crash has closed may be another file by now.
        """
        if handle in self._handles:
            self._handles.remove(handle)
            super().close(handle)

    def lock(self, path: str) -> Callable[[], None]:
        """
        See L{Files.lock}.
        """
        before = set(self._handles)
        super().lock(path)
        (handle,) = self._handles - before
        return lambda: self.close(handle)

    def lockFolder(self, path: str) -> Callable[[], None] | None:
        """
        See L{Files.lockFolder}.
        """
        release = super().lockFolder(path)
        if release is None:
            return None
        self._folders.add(release)

        def unlock() -> None:
            if release in self._folders:
                self._folders.remove(release)
                release()

        return unlock

    def modified(self, path: str) -> float:
        """
        See L{Files.modified}: the cluster's time, which is not the system's.
        """
        os.stat(path)
        return self._now()

    def space(self, path: str) -> tuple[int, int]:
        """
        See L{Files.space}: the disk is never full.
        """
        return 1 << 40, 1 << 39


@implementer(ILogObserver)
class Listener:
    """
    Hears what is logged as a warning or worse.

    @ivar told: that.
    @ivar faults: errors that no code has handled.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.faults: list[str] = []

    def __call__(self, event: LogEvent) -> None:
        """
        Something is logged.
        """
        if event["log_level"] < LogLevel.warn:
            return
        text = formatEvent(event) or str(event.get("log_format"))
        if text.startswith("Unhandled"):
            failure = event.get("log_failure")
            self.faults.append(f"unhandled error: {failure and failure.getErrorMessage()}")
        else:
            self.told.append(text)


class World:
    """
    The servers and their clients.

    @ivar told: what was logged as a warning or worse since the start.
    @ivar faults: errors that no code has handled.
    """

    def __init__(self, folder: str, later: float = 0.0) -> None:
        """
        @param folder: of the store.
        @param later: how many seconds after the first start of all it is.
        """
        self.servers = MemoryCluster(settings={**SETTINGS, "storePathRootDir": folder})
        self.servers.advance(later)
        (self.address,) = self.servers.brokers
        self._files = RealFiles(self.servers.clock.seconds)
        # The broker's disk is the one thing that is real.
        self.servers._machines[self.address]._files = self._files  # type: ignore[assignment]
        self._listener = Listener()
        self.told, self.faults = self._listener.told, self._listener.faults
        self._clients: list[Any] = []
        self._peers = Peers(Remoting(self.servers.clock), self.servers.connect)
        self._began = self.servers.clock.seconds()

    def start(self) -> None:
        """
        Start the servers.

        @raise Exception: what the broker raises if it refuses.
        """
        globalLogPublisher.addObserver(self._listener)
        self.servers.start()

    @property
    def age(self) -> float:
        """
        How many seconds have passed.
        """
        return self.servers.clock.seconds() - self._began

    def client(self) -> Cluster:
        """
        A client in a process of its own.
        """
        servers = self.servers
        number = len(self._clients)
        client = Cluster(
            servers.nameServers,
            servers.clock,
            connect=servers.connect,
            clientId=f"client{number}",
            # The same each time, so that a case comes again.
            choose=random.Random(number).randrange,
        )
        self._clients.append(client)
        return client

    def join(self, member: Any) -> Any:
        """
        Start a producer or a consumer.
        """
        self._clients.insert(0, member)
        member.startService()
        return member

    def leave(self, member: Any) -> None:
        """
        Stop a producer or a consumer.
        """
        self._clients.remove(member)
        self.wait(member.stop(1.0))

    def wait(self, deferred: Deferred[_Result]) -> _Result:
        """
        What comes of it.
        """
        return self.servers.resultOf(deferred)

    def ask(self, code: RequestCode, header: Any = None, body: bytes = b"") -> RemotingCommand:
        """
        The broker's answer to a request.
        """
        command = requestCommand(code, header, body=body)
        return self.wait(self._peers.request(self.address, command, timeout=10.0))

    def _end(self) -> None:
        clients, self._clients = self._clients, []
        for each in clients:
            try:
                self.wait(each.stop(0.5) if hasattr(each, "group") else each.stop())
            except Exception as error:
                self.told.append(f"a client did not stop: {error}")
        self.wait(self._peers.stop())

    def stop(self) -> None:
        """
        Stop the clients and the servers.
        """
        try:
            self._end()
            self.servers.stop()
        finally:
            globalLogPublisher.removeObserver(self._listener)
            self._files.crash()

    def crash(self) -> None:
        """
        End the broker as C{kill -9} does, then the rest.
        """
        try:
            self.servers.crash(self.address)
            self._end()
            self.servers.stop()
        finally:
            globalLogPublisher.removeObserver(self._listener)
            self._files.crash()
