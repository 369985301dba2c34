# SPDX-License-Identifier: Apache-2.0
"""
Servers under C{twistd}: their plugins, a start that fails with a readable text, and a stop
in reverse order.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.error import CannotListenError, ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

import txrocket.plugins
from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
from txrocket.broker.service import Broker
from txrocket.bulk import guardBus, releaseBus
from txrocket.errors import ConfigError, RocketError
from txrocket.nameserver.service import NameServer
from txrocket.remoting.epoll import drive
from txrocket.services import Plugins

__all__ = ["CannotStart", "OrderedServices", "exitIfCannotStart", "installedPlugins"]

_INTERFACES = (IBrokerProcessor, IMessageFilter, ISendHook)


def installedPlugins() -> Plugins:
    """
    The plugins that third parties have installed in C{txrocket.plugins}: the objects of
    each module that provide an interface for brokers.  Modules whose names begin with an
    underscore are left out.

    L{twisted.plugin.getPlugins} is not used, because it ignores a plugin that cannot be
    loaded.

    @raise ConfigError: if a module cannot be loaded, or has no plugin; it lists all.
    """
    problems: list[str] = []
    found: dict[int, Any] = {}
    for name, path in _modules(problems):
        try:
            module = importlib.import_module(f"txrocket.plugins.{name}")
        except Exception as error:
            # A third party's module may raise anything.
            said = f"{type(error).__name__}: {error}"
            problems.append(f"plugin {path} cannot be loaded: {said}")
            continue
        own = _pluginsIn(module)
        if not own:
            expected = ", ".join(each.__name__ for each in _INTERFACES)
            problems.append(
                f"plugin {path} has no plugin: no object in it provides any of {expected}"
            )
        # By identity, because an object that one module imports from another is one plugin.
        found |= {id(each): each for each in own}
    if problems:
        raise ConfigError(*problems)

    def all(interface: Any) -> list[Any]:
        return [each for each in found.values() if interface.providedBy(each)]

    return Plugins(all(IBrokerProcessor), all(IMessageFilter), all(ISendHook))


def _modules(problems: list[str]) -> list[tuple[str, str]]:
    """
    The names and paths of all modules in C{txrocket.plugins}.
    """
    modules: dict[str, str] = {}
    for folder in dict.fromkeys(os.path.realpath(each) for each in txrocket.plugins.__path__):
        for finder, name, _ in pkgutil.iter_modules([folder]):
            path = str(getattr(finder.find_spec(name, None), "origin", name))
            if name in modules:
                problems.append(
                    f"plugin {path} has the name of {modules[name]}: only one can be loaded"
                )
            elif not name.startswith("_"):
                modules[name] = path
    return sorted(modules.items())


def _pluginsIn(module: ModuleType) -> Sequence[Any]:
    return [
        each
        for each in vars(module).values()
        if any(interface.providedBy(each) for interface in _INTERFACES)
    ]


class CannotStart(SystemExit, Exception):
    """
    A server cannot start, for a reason that its operator understands without a traceback.

    As a SystemExit it ends a C{twistd} in the foreground with its text and status 1.  A
    C{twistd} in the background catches it as an Exception, prints its text on the terminal
    of the start, and removes its pidfile.
    """


@contextmanager
def exitIfCannotStart() -> Iterator[None]:
    """
    Turn the errors of making or starting servers into L{CannotStart}.

    @raise CannotStart: if a server cannot be made or started.
    """
    try:
        yield
    except (RocketError, CannotListenError, OSError) as error:
        raise CannotStart(f"Cannot start: {error}") from None


class OrderedServices(MultiService):
    """
    Servers that start in order and stop in reverse order, so that a broker can unregister
    while its name server still runs.
    """

    _log = Logger()

    def __init__(self, reactor: Any, *services: Service) -> None:
        MultiService.__init__(self)
        self._reactor = reactor
        # The handlers of SIGTERM before ours.
        self._handlers: list[Any] = []
        self._guarded = False
        self._readAsEver: Callable[[], None] = lambda: None
        for each in services:
            MultiService.addService(self, each)

    def startService(self) -> None:
        """
        Start all servers.  A SIGTERM during the start stops them once they run, because a
        store whose opening is interrupted is in the state of a crash.

        @raise CannotStart: if a server cannot start.
        """
        Service.startService(self)
        started: list[Any] = []
        self._stopOnTerm()
        try:
            with exitIfCannotStart():
                for each in self.services:
                    each.startService()
                    started.append(each)
        except CannotStart as error:
            self._log.critical("{error}", error=error)
            # The text is logged already, and twistd's log includes standard error.
            error.code = 1
            for each in reversed(started):
                each.stopService()
            raise
        finally:
            if len(started) < len(self.services):
                self._heedTermAsBefore()
        servers = [each for each in self.services if isinstance(each, Broker | NameServer)]
        turns = [each.remoting.turn for each in servers]
        self._readAsEver = drive(self._reactor, turns)
        for each in servers:
            if isinstance(each, Broker):
                each.whenAnnounced().addErrback(self._refused)
        # When the reactor starts, it replaces our handler by its own.
        self._reactor.callWhenRunning(self._takeSignals)

    def _refused(self, failure: Failure) -> None:
        """
        A broker may take no role, as name servers have told it: end the process.
        """
        self._log.critical("Cannot start: {error}", error=failure.getErrorMessage())
        self._reactor.callWhenRunning(self._stopReactor)

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop all servers in reverse order.
        """
        Service.stopService(self)
        self._readAsEver()
        for each in reversed(self.services):
            if each.running:
                yield maybeDeferred(each.stopService)
        self._heedTermAsBefore()
        if self._guarded:
            self._guarded = False
            releaseBus()

    def _takeSignals(self) -> None:
        """
        Take over the signals of the servers' own process.
        """
        self._stopOnTerm()
        # If the reactor runs in another thread, the signals belong to the program around it.
        if threading.current_thread() is threading.main_thread():
            # The store maps files of the log; a disk that fails then raises SIGBUS.
            guardBus()
            self._guarded = True

    def _stopOnTerm(self) -> None:
        """
        Handle SIGTERM so that the process ends with status 0 after a graceful stop.

        With Twisted's own handler C{twistd} ends as if the signal had killed it, so that a
        requested stop looks like a failure.
        """
        # Only the main thread can set a signal handler.
        if threading.current_thread() is threading.main_thread():
            self._handlers.append(signal.signal(signal.SIGTERM, self._terminate))

    def _terminate(self, number: int, frame: object) -> None:
        # Do not log here.  The signal may interrupt the writing of a log line, and Python
        # refuses a second write to the same stream, so that the line would be lost.
        self._reactor.callFromThread(self._terminated)

    def _terminated(self) -> None:
        self._log.info("Received SIGTERM, stopping")
        self._stopReactor()

    def _stopReactor(self) -> None:
        # A second SIGTERM may arrive while the reactor stops.
        with suppress(ReactorNotRunning):
            self._reactor.stop()

    def _heedTermAsBefore(self) -> None:
        """
        Restore the last handler of SIGTERM.  That is the reactor's if it runs, so that
        C{twistd} still removes its pidfile.
        """
        if self._handlers:
            signal.signal(signal.SIGTERM, self._handlers.pop())
            self._handlers.clear()
