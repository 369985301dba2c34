# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.echo}.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import gatherResults, inlineCallbacks
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.captures import captures
from txrocket.protocol.command import decodeCommand, requestCommand
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS, TLSMode
from txrocket.server.echo import Options, echo, makeService

reactor: Any = theReactor


class EchoTests(SynchronousTestCase):
    """
    The processor.
    """

    def test_capturedRequestComesBack(self) -> None:
        """
        The fields and the body of a captured request come back.
        """
        peer: Any = None
        for each in captures():
            request = decodeCommand(each.frame, 4, len(each.frame))
            response = echo(request, peer)
            self.assertEqual(
                (response.code, response.isResponse, response.body), (0, True, each.body)
            )
            # Node's booleans and numbers are bare in JSON, and text everywhere else.
            fields = (each.header.get("extFields") or {}).items()
            self.assertEqual(
                response.extFields,
                {name: v if isinstance(v, str) else json.dumps(v) for name, v in fields},
            )


class OptionsTests(SynchronousTestCase):
    """
    The command line.
    """

    def test_defaultsListenOnLoopback(self) -> None:
        """
        It listens where a name server would, for this machine only, and takes
        TLS beside plain text.
        """
        options = Options()
        options.parseOptions([])
        self.assertEqual(options["listen"], "tcp:9876:interface=127.0.0.1")
        self.assertIs(options["tls"], TLSMode.PERMISSIVE)

    def test_tlsModeIsOneOfThree(self) -> None:
        """
        The mode is one of three words.
        """
        for mode in TLSMode:
            options = Options()
            options.parseOptions(["--tls", mode.value])
            self.assertIs(options["tls"], mode)
        error = self.assertRaises(UsageError, Options().parseOptions, ["--tls", "on"])
        self.assertEqual(str(error), "--tls on: disabled, permissive or enforcing was expected")


class ServiceTests(TestCase):
    """
    The service, over sockets.
    """

    timeout = 300

    @inlineCallbacks
    def test_serviceEchoesPlainAndTls(self) -> Any:
        """
        Started, it echoes over plain text and over TLS on one port; stopped,
        it no longer listens.
        """
        options = Options()
        options.parseOptions(["--listen", "tcp:0:interface=127.0.0.1"])
        service = makeService(options)
        service.privilegedStartService()
        service.startService()
        self.addCleanup(lambda: service.running and service.stopService())
        waiting: Any = service._waitingForPort
        port = waiting.result
        address = f"127.0.0.1:{port.getHost().port}"
        for tls in (None, ClientTLS()):
            peers = Peers(Remoting(reactor), endpoints(reactor, tls))
            request = requestCommand(4711, body=b"hello")
            request.extFields["topic"] = "T"
            answer = yield peers.request(address, request, 10)
            self.assertEqual((answer.code, answer.body), (0, b"hello"))
            self.assertEqual(answer.extFields, {"topic": "T"})
            yield peers.stop()
        lost = [each.whenLost() for each in port.factory.connections]
        yield service.stopService()
        yield gatherResults(lost)
        self.assertFalse(port.connected)
