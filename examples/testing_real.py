# SPDX-License-Identifier: Apache-2.0
"""
Tests of greetings.py with real sockets and files::

    .venv/bin/trial examples.testing_real
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.trial.unittest import TestCase

from examples.greetings import greet, greetings
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.testing.trial import realCluster


class GreetingTests(TestCase):
    """
    Greetings through a broker.
    """

    @inlineCallbacks
    def setUp(self) -> Any:
        self.cluster = yield realCluster(self, reactor)
        remoting = Remoting(reactor)  # type: ignore[arg-type]
        self.peers = Peers(remoting, endpoints(reactor))
        self.addCleanup(self.peers.stop)

    @inlineCallbacks
    def test_greeted(self) -> Any:
        """
        A greeting is read.
        """
        nameServer = self.cluster.nameServers[0]
        yield Deferred.fromCoroutine(greet(self.peers, nameServer, "hello"))
        read = yield Deferred.fromCoroutine(greetings(self.peers, nameServer))
        self.assertEqual(read, ["hello"])
