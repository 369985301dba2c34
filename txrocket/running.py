# SPDX-License-Identifier: Apache-2.0
"""
Servers under C{twistd}: what was plugged in, starting or saying why not, and
stopping one after the other.
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

import txrocket.plugins
from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
from txrocket.compiled import speed
from txrocket.errors import ConfigError, RocketError
from txrocket.remoting.lean import readLeanly
from txrocket.services import Plugins

__all__ = ["CannotStart", "InTurn", "installedPlugins", "orSayWhyNot"]

_INTERFACES = (IBrokerProcessor, IMessageFilter, ISendHook)


def installedPlugins() -> Plugins:
    """
    What third parties have put into C{txrocket.plugins}: of every module there but
    those whose names begin with an underscore, the objects that provide what can be
    plugged into a broker.

    This is not left to L{twisted.plugin.getPlugins}, which goes on without a plugin
    that it cannot load.

    @raise ConfigError: naming all modules that cannot be loaded, or have nothing to
        plug in.
    """
    problems: list[str] = []
    found: dict[int, Any] = {}
    for name, path in _modules(problems):
        try:
            module = importlib.import_module(f"txrocket.plugins.{name}")
        except Exception as error:
            # It is somebody else's code, and may do anything.
            said = f"{type(error).__name__}: {error}"
            problems.append(f"plugin {path} cannot be loaded: {said}")
            continue
        own = _pluginsIn(module)
        if not own:
            expected = ", ".join(each.__name__ for each in _INTERFACES)
            problems.append(
                f"plugin {path} plugs nothing in: no object in it provides any of {expected}"
            )
        # By identity: what one module imports of another is one plugin.
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
    A server cannot start, for a reason that its operator understands and no
    traceback explains better.

    As a SystemExit it ends a C{twistd} in the foreground with its text and status 1.
    As an Exception it is caught by one in the background, which tells its text to
    whoever waits for the start, and removes its pidfile.
    """


@contextmanager
def orSayWhyNot() -> Iterator[None]:
    """
    Make or start servers.

    @raise CannotStart: if that is not possible.
    """
    try:
        yield
    except (RocketError, CannotListenError, OSError) as error:
        raise CannotStart(f"Cannot start: {error}") from None


class InTurn(MultiService):
    """
    Servers that start one after the other, and stop the other way round: a broker
    says goodbye to a name server that is still there.
    """

    _log = Logger()

    def __init__(self, reactor: Any, *services: Service) -> None:
        MultiService.__init__(self)
        self._reactor = reactor
        # What handled SIGTERM before ours did.
        self._handlers: list[Any] = []
        self._guarded = False
        self._readAsEver: Callable[[], None] = lambda: None
        for each in services:
            MultiService.addService(self, each)

    def startService(self) -> None:
        """
        Start all of them.  A SIGTERM that comes meanwhile stops them once they run: to
        break off the opening of a store is the same to it as a crash.

        @raise CannotStart: if one cannot start.
        """
        Service.startService(self)
        started: list[Any] = []
        self._stopOnTerm()
        try:
            with orSayWhyNot():
                for each in self.services:
                    each.startService()
                    started.append(each)
        except CannotStart as error:
            self._log.critical("{error}", error=error)
            # Said already: twistd's log has standard error in it.
            error.code = 1
            for each in reversed(started):
                each.stopService()
            raise
        finally:
            if len(started) < len(self.services):
                self._heedTermAsBefore()
        self._readAsEver = readLeanly(self._reactor)
        # A reactor that starts to run puts a handler of its own in place of ours.
        self._reactor.callWhenRunning(self._takeSignals)

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """
        Stop all of them, the last first.
        """
        Service.stopService(self)
        self._readAsEver()
        for each in reversed(self.services):
            if each.running:
                yield maybeDeferred(each.stopService)
        self._heedTermAsBefore()
        if self._guarded and speed is not None:
            self._guarded = False
            speed.releaseBus()

    def _takeSignals(self) -> None:
        """
        Take over the signals of the servers' own process.
        """
        self._stopOnTerm()
        # A reactor in another thread is a part of a program, whose signals are its own.
        if speed is not None and threading.current_thread() is threading.main_thread():
            # Files of the log are mapped from now on: a disk that fails raises SIGBUS then.
            speed.guardBus()
            self._guarded = True

    def _stopOnTerm(self) -> None:
        """
        End with status 0 after a graceful stop.

        Twisted's own handler has C{twistd} end as if the signal had killed it, so that
        a stop that is asked for looks like one that failed.
        """
        # A reactor in another thread hears of no signals.
        if threading.current_thread() is threading.main_thread():
            self._handlers.append(signal.signal(signal.SIGTERM, self._terminate))

    def _terminate(self, number: int, frame: object) -> None:
        # Nothing is logged here.  A signal may interrupt the writing of a log line, and
        # Python then refuses a second write, whose line would be lost.
        self._reactor.callFromThread(self._stopReactor)

    def _stopReactor(self) -> None:
        self._log.info("Received SIGTERM, stopping")
        # Asked for twice, perhaps.
        with suppress(ReactorNotRunning):
            self._reactor.stop()

    def _heedTermAsBefore(self) -> None:
        """
        Hand SIGTERM back to the handler that had it last, which is the reactor's if it
        runs: then C{twistd} still removes its pidfile.
        """
        if self._handlers:
            signal.signal(signal.SIGTERM, self._handlers.pop())
            self._handlers.clear()
