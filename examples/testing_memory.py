# SPDX-License-Identifier: Apache-2.0
"""
Tests of greetings.py in memory, on a clock::

    .venv/bin/trial examples.testing_memory
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from examples.greetings import greet, greetings
from txrocket.errors import ConnectFailed, RequestTimedOut
from txrocket.protocol.codes import RequestCode
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import FunctionProcessor, Remoting
from txrocket.testing.trial import memoryCluster


class GreetingTests(SynchronousTestCase):
    """
    Greetings through a broker.
    """

    def setUp(self) -> None:
        self.cluster = memoryCluster(self, settings={"flushDiskType": "SYNC_FLUSH"})
        self.peers = Peers(Remoting(self.cluster.clock), self.cluster.connect)
        self.nameServer = self.cluster.nameServers[0]

    def run_(self, doing: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """
        The result of a Deferred; the clock advances until there is one.
        """
        return self.cluster.resultOf(Deferred.fromCoroutine(doing))

    def test_greeted(self) -> None:
        """
        A greeting is read.
        """
        self.run_(greet(self.peers, self.nameServer, "hello"))
        self.assertEqual(self.run_(greetings(self.peers, self.nameServer)), ["hello"])

    def test_kept(self) -> None:
        """
        A greeting is there after the broker has crashed and come back.
        """
        self.run_(greet(self.peers, self.nameServer, "hello"))
        self.cluster.crash(self.cluster.brokers[0])
        self.cluster.start(self.cluster.brokers[0])
        self.assertEqual(self.run_(greetings(self.peers, self.nameServer)), ["hello"])

    def test_noNameServer(self) -> None:
        """
        Without a name server there is an error, and soon.
        """
        self.cluster.crash(self.nameServer)
        began = self.cluster.clock.seconds()
        with self.assertRaises(ConnectFailed):
            self.run_(greet(self.peers, self.nameServer, "hello"))
        self.assertEqual(self.cluster.clock.seconds(), began)

    def test_noAnswer(self) -> None:
        """
        If the broker does not answer, the client gives up after three seconds.
        """
        silent = FunctionProcessor(lambda request, peer: None)
        self.cluster.broker().remoting.registerProcessor(
            RequestCode.SEND_MESSAGE_V2, silent, InlineExecutor()
        )
        greeting = Deferred.fromCoroutine(greet(self.peers, self.nameServer, "hello"))
        self.cluster.advance(2.9)
        self.assertNoResult(greeting)
        self.cluster.advance(0.2)
        self.failureResultOf(greeting, RequestTimedOut)
