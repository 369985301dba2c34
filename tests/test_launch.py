# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.launch}; what it loads is tested in L{tests.test_plugins}.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tests.remoting.doubles import RemotingTests
from txrocket.bulk import compiled, isGuarded
from txrocket.errors import ConfigError, StoreInUse
from txrocket.server.launch import CannotStart, OrderedServices, exitIfCannotStart


class Server(Service):
    """
    A server that writes down what is done to it.

    @ivar error: why it cannot start.
    @ivar whenStarted: called during the start.
    """

    def __init__(self, name: str, done: list[str]) -> None:
        self.name = name
        self._done = done
        self.error: Exception | None = None
        self.whenStarted: Callable[[], None] = lambda: None
        self.stopped: Deferred[None] = Deferred()

    def startService(self) -> None:
        if self.error is not None:
            raise self.error
        super().startService()
        self._done.append(f"{self.name} starts")
        self.whenStarted()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._done.append(f"{self.name} stops")
        return self.stopped


class Reactor:
    """
    A reactor that runs when a test says so.

    @ivar whenRunning: what is called then.
    @ivar stops: how often it was told to stop.
    """

    def __init__(self) -> None:
        self.whenRunning: list[Callable[[], None]] = []
        self._calls: list[Callable[[], None]] = []
        self.stops = 0

    def callWhenRunning(self, function: Callable[[], None]) -> None:
        self.whenRunning.append(function)

    def callFromThread(self, function: Callable[[], None]) -> None:
        self._calls.append(function)

    def turn(self) -> None:
        """
        Make the calls that signals and threads have asked for.
        """
        while self._calls:
            self._calls.pop(0)()

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning


class OrderedServicesTests(RemotingTests):
    """
    Tests for L{OrderedServices}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.done: list[str] = []
        self.reactor = Reactor()
        self.first, self.second = Server("first", self.done), Server("second", self.done)
        self.servers = OrderedServices(self.reactor, self.first, self.second)
        # The handlers that SIGTERM was given.
        self.handlers: list[Any] = []
        self.patch(signal, "signal", self.handle)

    def handle(self, number: int, handler: Any) -> str:
        """
        Take note of a handler, and leave the test's own process alone.
        """
        self.assertEqual(number, signal.SIGTERM)
        self.handlers.append(handler)
        return f"before {len(self.handlers)}"

    def test_serversStopInReverseOrder(self) -> None:
        """
        Servers start in order, and stop in the reverse order, each when the one before has
        stopped.
        """
        self.servers.startService()
        self.assertTrue(self.servers.running)
        stopped = self.servers.stopService()
        self.assertEqual(self.done, ["first starts", "second starts", "second stops"])
        self.second.stopped.callback(None)
        self.assertEqual(self.done[3:], ["first stops"])
        self.assertNoResult(stopped)
        self.first.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertFalse(self.servers.running)

    def test_failedStartStopsEarlierServers(self) -> None:
        """
        If a server cannot start, those before it are stopped and the operator is told once,
        in the log: the exit itself says nothing more.
        """
        for error in (
            StoreInUse("store is in use"),
            CannotListenError("127.0.0.1", 1, OSError("taken")),
            PermissionError(13, "Permission denied", "topics.json"),
        ):
            self.done.clear()
            self.events.clear()
            self.second.error = error
            exit = self.assertRaises(CannotStart, self.servers.startService)
            self.assertEqual((str(exit), exit.code), (f"Cannot start: {error}", 1))
            self.assertEqual(self.done, ["first starts", "first stops"])
            self.assertEqual(self.logged(LogLevel.critical), [f"Cannot start: {error}"])
        self.assertEqual(self.reactor.whenRunning, [])
        self.successResultOf(self.servers.stopService())
        self.assertEqual(self.done, ["first starts", "first stops"])

    def test_programmingErrorIsNotHidden(self) -> None:
        """
        A mistake of ours is not hidden.
        """
        self.second.error = KeyError("mistake")
        self.assertRaises(KeyError, self.servers.startService)

    def test_sigtermStopsReactorOnce(self) -> None:
        """
        SIGTERM stops the reactor, and asked for twice it does nothing more.  Once the
        servers have stopped it is handled as before.
        """
        self.servers.startService()
        for call in self.reactor.whenRunning:
            call()
        # The reactor has put a handler of its own in place of the first.
        first, handler = self.handlers
        self.assertEqual(first, handler)
        for stops in (1, 2):
            handler(signal.SIGTERM, None)
            self.reactor.turn()
            self.assertEqual(self.reactor.stops, stops)
        self.servers.stopService()
        for each in (self.second, self.first):
            self.assertEqual(len(self.handlers), 2)
            each.stopped.callback(None)
        self.assertEqual(self.handlers[2:], ["before 2"])

    def test_termLoggedInReactorTurn(self) -> None:
        """
        The handler of SIGTERM logs nothing itself: the signal may have interrupted the
        writing of another line.
        """
        self.servers.startService()
        self.handlers[0](signal.SIGTERM, None)
        self.assertNotIn("Received SIGTERM, stopping", self.logged(LogLevel.info))
        self.reactor.turn()
        self.assertIn("Received SIGTERM, stopping", self.logged(LogLevel.info))

    def test_sigtermDuringStartStopsReactor(self) -> None:
        """
        A SIGTERM during the start of servers stops the reactor once it runs.
        """
        self.second.whenStarted = lambda: self.handlers[0](signal.SIGTERM, None)
        self.servers.startService()
        self.assertEqual(self.reactor.stops, 0)
        self.reactor.turn()
        self.assertEqual(self.reactor.stops, 1)

    def test_termAfterFailedStart(self) -> None:
        """
        After a start that failed, for whatever reason, SIGTERM is handled as before.
        """
        for error, raised in ((StoreInUse("in use"), CannotStart), (KeyError("bug"), KeyError)):
            self.handlers.clear()
            self.second.error = error
            self.assertRaises(raised, self.servers.startService)
            self.assertEqual(self.handlers[1:], ["before 1"])

    def test_busIsGuarded(self) -> None:
        """
        The servers' own process survives a mapped file that cannot be read, from when the
        reactor runs until the servers have stopped.
        """
        self.assertFalse(isGuarded())
        self.servers.startService()
        for call in self.reactor.whenRunning:
            call()
        self.assertTrue(isGuarded())
        self.servers.stopService()
        for each in (self.second, self.first):
            self.assertTrue(isGuarded())
            each.stopped.callback(None)
        self.assertFalse(isGuarded())

    if compiled is None:
        test_busIsGuarded.skip = "the compiled module was not built"  # type: ignore[attr-defined]

    def test_otherThreadLeavesSignals(self) -> None:
        """
        A reactor in another thread leaves signals alone.
        """
        self.patch(threading, "main_thread", lambda: None)
        self.servers.startService()
        for call in self.reactor.whenRunning:
            call()
        self.assertEqual(self.handlers, [])
        self.assertFalse(isGuarded())


class ReasonTests(SynchronousTestCase):
    """
    Tests for L{exitIfCannotStart}.
    """

    def test_knownErrorExitsWithText(self) -> None:
        """
        An error that the operator can mend ends the program with its text, under both of
        twistd's ways of running.
        """
        with self.assertRaises(CannotStart) as raised, exitIfCannotStart():
            raise ConfigError("a is wrong", "b is wrong")
        self.assertEqual(raised.exception.code, "Cannot start: a is wrong\nb is wrong")
        self.assertIsInstance(raised.exception, SystemExit)
        self.assertIsInstance(raised.exception, Exception)

    def test_successSaysNothing(self) -> None:
        """
        Where nothing is wrong nothing is said.
        """
        with exitIfCannotStart():
            pass
