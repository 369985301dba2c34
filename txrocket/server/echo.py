# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-echo}: answers every request with its own fields and body.

It is the smallest program on remoting: a server to try a RocketMQ client with, and an
example of the parts of a server.
"""

from __future__ import annotations

from twisted.application.internet import StreamServerEndpointService
from twisted.internet.endpoints import serverFromString
from twisted.python import usage

from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.timebase import steady
from txrocket.remoting.tls import ServerTLS, TLSMode

__all__ = ["Options", "echo", "makeService"]


def echo(request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
    """
    The request's fields and body as a response.
    """
    response = responseCommand(body=request.body)
    response.fields = request.extFields
    return response


class Options(usage.Options):
    """
    The command line.
    """

    synopsis = "[options]"
    longdesc = "Answers every RocketMQ request with its own fields and body."
    optParameters = [
        ["listen", "l", "tcp:9876:interface=127.0.0.1", "Where to listen, as an endpoint."],
        ["tls", None, "permissive", "TLS beside plain text: disabled, permissive or enforcing."],
    ]

    def postOptions(self) -> None:
        """
        Check the options.
        """
        try:
            self["tls"] = TLSMode(self["tls"])
        except ValueError:
            raise usage.UsageError(
                f"--tls {self['tls']}: disabled, permissive or enforcing was expected"
            ) from None


def makeService(options: Options) -> StreamServerEndpointService:
    """
    The server as a service.
    """
    from twisted.internet import reactor

    steady(reactor)
    remoting = Remoting(reactor)
    remoting.registerDefaultProcessor(FunctionProcessor(echo), InlineExecutor())
    factory = RemotingServerFactory(remoting, ServerTLS(mode=options["tls"]))
    return StreamServerEndpointService(serverFromString(reactor, options["listen"]), factory)
