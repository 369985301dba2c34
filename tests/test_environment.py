# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.environment}.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any
from unittest import mock

import attrs
from twisted.internet import reactor as theReactor
from twisted.internet.defer import gatherResults, inlineCallbacks, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase, TestCase

from txrocket.config import Configuration
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.settings import NamesrvServerSettings
from txrocket.server.environment import Environment, freePort, localAddress
from txrocket.services import BROKER_SECTIONS, broker
from txrocket.store.files import Files

reactor: Any = theReactor


class RealTests(TestCase):
    """
    Tests for L{Environment.real}.
    """

    def setUp(self) -> None:
        self.around = Environment.real(reactor)

    def test_nowIsWallClockMilliseconds(self) -> None:
        """
        The time is the machine's time of day, in milliseconds.
        """
        before = int(time.time() * 1000)
        self.assertIn(self.around.now() - before, range(5000))

    def test_elapsedFollowsReactorClock(self) -> None:
        """
        Intervals are measured by the clock of the reactor, which is not the time of day,
        and can be shown as one.
        """
        self.assertIsNot(reactor.seconds, time.time)
        before = int(reactor.seconds() * 1000)
        elapsed = self.around.elapsed()
        self.assertIn(elapsed - before, range(5000))
        moved = attrs.evolve(self.around, wall=lambda: time.time() - 3600)
        shown = int(time.time() * 1000) - 3_600_000 - moved.timeOf(elapsed)
        self.assertIn(shown, range(-1000, 5000))

    @inlineCallbacks
    def test_blockingFunctionRunsInThread(self) -> Any:
        """
        A blocking function runs in a thread between start and stop.
        """
        ran: list[int] = []
        self.around.start()
        self.addCleanup(self.around.stop)
        yield self.around.inThread(lambda: ran.append(threading.get_ident()))
        self.assertNotIn(threading.get_ident(), ran)

    def test_stoppedThreadsRunAtOnce(self) -> None:
        """
        Before the start and after the stop a function runs at once, since no thread would
        run it.
        """
        ran: list[int] = []
        self.successResultOf(self.around.inThread(lambda: ran.append(threading.get_ident())))
        self.around.start()
        self.around.stop()
        self.successResultOf(self.around.inThread(lambda: ran.append(threading.get_ident())))
        self.assertEqual(ran, [threading.get_ident()] * 2)

        def fail() -> None:
            raise OSError("disk")

        self.failureResultOf(self.around.inThread(fail), OSError)

    @inlineCallbacks
    def test_ownThreadRunsInTurn(self) -> Any:
        """
        A caller with its own thread has its functions run there in turn and gets their
        errors; the stop waits for the last.
        """
        inOwnThread = self.around.inOwnThread
        assert inOwnThread is not None
        ran: list[int] = []
        first, second = threading.Event(), threading.Event()

        def fail() -> None:
            raise OSError("disk")

        def last() -> None:
            first.wait(30)
            second.set()

        self.around.start()
        for _ in range(2):
            yield inOwnThread(lambda: ran.append(threading.get_ident()))
        self.assertEqual(len(set(ran)), 1)
        self.assertNotIn(threading.get_ident(), ran)
        yield self.assertFailure(inOwnThread(fail), OSError)
        told = inOwnThread(last)
        self.assertFalse(second.is_set())
        first.set()
        self.around.stop()
        self.assertTrue(second.is_set())
        yield told

    def test_stoppedOwnThreadRunsAtOnce(self) -> None:
        """
        Before the start and after the stop functions run at once.
        """
        inOwnThread = self.around.inOwnThread
        assert inOwnThread is not None
        ran: list[int] = []
        self.successResultOf(inOwnThread(lambda: ran.append(threading.get_ident())))
        self.around.start()
        self.around.stop()
        self.successResultOf(inOwnThread(lambda: ran.append(threading.get_ident())))
        self.assertEqual(ran, [threading.get_ident()] * 2)

    @inlineCallbacks
    def test_endpointsHaveSettingsAddress(self) -> Any:
        """
        Endpoints have the address of the settings, and lead to it.
        """
        settings = NamesrvServerSettings(bindAddress="127.0.0.1")
        factory = RemotingServerFactory(Remoting(reactor))
        port = yield self.around.listen(settings, 0).listen(factory)
        host = port.getHost()
        peers = Peers(Remoting(reactor), self.around.connect(None))
        try:
            answer = yield peers.request(f"127.0.0.1:{host.port}", requestCommand(0), 3.0)
            self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        finally:
            lost = [each.whenLost() for each in factory.connections]
            yield peers.stop()
            yield gatherResults([maybeDeferred(port.stopListening), *lost])
        self.assertEqual(host.host, "127.0.0.1")

    def test_filesChanceAndExecutorsAreReal(self) -> None:
        """
        Files are real, chance is below its bound, executors have their name.
        """
        self.assertIs(type(self.around.files), Files)
        self.assertEqual({self.around.choose(1) for _ in range(9)}, {0})
        executor: Any = self.around.executor("plugins", 2, 3)
        self.assertEqual(executor.name, "plugins")


class PortTests(SynchronousTestCase):
    """
    Addresses and ports of this machine.
    """

    def test_localAddressCanListen(self) -> None:
        """
        It is an address of this machine: a server can listen at it.
        """
        with socket.socket() as probe:
            probe.bind((localAddress(), 0))

    def test_noNetworkMeansLoopback(self) -> None:
        """
        A machine without a network is reached at loopback.
        """
        with mock.patch.object(socket.socket, "connect", side_effect=OSError):
            self.assertEqual(localAddress(), "127.0.0.1")

    def test_freePortHasFreePortBelow(self) -> None:
        """
        A server can listen at the port and at the one below it.
        """
        port = freePort(2)
        for each in (port, port - 2):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", each))

    def test_portWithTakenPortBelowIsSkipped(self) -> None:
        """
        A port is skipped if the one below it is taken.
        """
        bind = socket.socket.bind
        refused: list[int] = []

        def once(self: socket.socket, address: Any) -> None:
            if address[1] and not refused:
                refused.append(address[1])
                raise OSError("taken")
            bind(self, address)

        with mock.patch.object(socket.socket, "bind", once):
            port = freePort(2)
        self.assertEqual(len(refused), 1)
        self.assertNotEqual(port - 2, refused[0])


class TakenTests(TestCase):
    """
    A broker that cannot start.
    """

    def test_portInUseClosesStore(self) -> None:
        """
        A broker that finds its port taken has closed its store before anything else
        happens, as after a graceful stop: the next one may have it.
        """
        folder = self.mktemp()
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            given = {
                "listenPort": str(other.getsockname()[1]),
                "bindAddress": "127.0.0.1",
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": "",
                "storePathRootDir": folder,
                "mappedFileSizeCommitLog": "65536",
            }
            configuration = Configuration.read(BROKER_SECTIONS, (), None, given)
            first = broker(Environment.real(reactor), configuration)
            self.assertRaises(CannotListenError, first.startService)
        self.assertNotIn("abort", os.listdir(folder))
        Files().lock(os.path.join(folder, "lock"))()
