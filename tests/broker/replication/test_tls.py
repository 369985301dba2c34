# SPDX-License-Identifier: Apache-2.0
"""
Tests of TLS on the HA port, on loopback: Twisted's TLS writes by the reactor's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.broker.replication.fakes import (
    FILE,
    FakeEpochs,
    FakeIdentity,
    FakeLog,
    FakeSink,
    FakeTables,
    Peer,
)
from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.broker.replication.master import ReplicaServerFactory
from txrocket.broker.replication.replicas import Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave import LinkState, MasterLink
from txrocket.protocol.ha.plain import encodeOffset
from txrocket.remoting.peers import endpoints
from txrocket.remoting.tls import ClientTLS, ServerTLS, TLSMode

CLOCK: Any = reactor
SETTINGS = ReplicationSettings()


class TLSTests(TestCase):
    """
    The broker's TLS settings on the HA port.
    """

    @inlineCallbacks
    def listen(self, mode: TLSMode) -> Generator[Any, Any, None]:
        """
        Start a master.
        """
        self.log = FakeLog(bytes(range(256)) * 1000)
        parts = MasterParts(self.log, FakeEpochs((1, 0)), FakeTables(), FakeIdentity("group"), FILE)
        self.replicas = Replicas(CLOCK, self.log, SETTINGS, False)
        self.factory = ReplicaServerFactory(CLOCK, parts, self.replicas, SETTINGS, ServerTLS(mode))
        endpoint = TCP4ServerEndpoint(CLOCK, 0, interface="127.0.0.1")
        port = yield endpoint.listen(self.factory)
        self.port = port.getHost().port
        self.addCleanup(self.until, lambda: not self.factory.connections)
        self.addCleanup(port.stopListening)

    @inlineCallbacks
    def until(self, isTrue: Callable[[], bool]) -> Generator[Any, Any, None]:
        """
        Wait for something.
        """
        while not isTrue():
            yield deferLater(CLOCK, 0.005)

    def slave(self, replicaId: int, tls: ClientTLS | None) -> tuple[FakeLog, MasterLink]:
        """
        Start a slave.
        """
        log = FakeLog()

        def flush() -> Deferred[None]:
            return succeed(None)

        parts = SlaveParts(
            log,
            FakeEpochs(),
            FakeSink(log),
            FakeIdentity("", replicaId),
            FILE,
            flush,
            lambda cut: None,
            lambda offset, folder: None,
        )
        link = MasterLink(CLOCK, endpoints(CLOCK, tls), parts, SETTINGS, lambda failures: 0.05)
        link.follow(f"127.0.0.1:{self.port}")
        self.addCleanup(link.follow, None)
        return log, link

    @inlineCallbacks
    def test_slavesFollowWithAndWithoutTLS(self) -> Generator[Any, Any, None]:
        """
        With tls.server.mode permissive, slaves follow over TLS and without it.
        """
        yield self.listen(TLSMode.PERMISSIVE)
        logs = [self.slave(1, ClientTLS())[0], self.slave(2, None)[0]]
        yield self.until(lambda: all(each.data == self.log.data for each in logs))
        end = self.log.put(b"more")
        yield self.replicas.stored(end)
        yield self.until(lambda: all(each.end == end for each in logs))
        self.assertEqual(len(self.replicas.all), 2)

    @inlineCallbacks
    def test_enforcedTLSRefusesPlainText(self) -> Generator[Any, Any, None]:
        """
        With tls.server.mode enforcing, nothing is sent without TLS.
        """
        yield self.listen(TLSMode.ENFORCING)
        endpoint = TCP4ClientEndpoint(CLOCK, "127.0.0.1", self.port)
        peer = yield endpoint.connect(Factory.forProtocol(Peer))
        peer.say(encodeOffset(0))
        yield self.until(lambda: peer.isLost)
        self.assertEqual(peer.received, b"")
        log, link = self.slave(1, ClientTLS())
        yield self.until(lambda: log.data == self.log.data)
        self.assertIs(link.state, LinkState.FOLLOWING)

    @inlineCallbacks
    def test_disabledTLSRefusesHandshake(self) -> Generator[Any, Any, None]:
        """
        With tls.server.mode disabled, a slave that wants TLS does not follow.
        """
        yield self.listen(TLSMode.DISABLED)
        log, link = self.slave(1, ClientTLS())
        yield self.until(lambda: link.failures > 1)
        self.assertEqual((log.end, self.replicas.all), (0, ()))
