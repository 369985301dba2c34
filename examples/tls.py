# SPDX-License-Identifier: Apache-2.0
"""
Both ends of a connection over TLS, with certificates from files.
"""

from __future__ import annotations

from typing import Any

from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.tls import ClientAuth, ClientTLS, ServerTLS, TLSMode


def secureServer(remoting: Remoting, folder: str) -> RemotingServerFactory:
    """
    A server that accepts TLS only, from clients with a certificate of our authority.
    """
    tls = ServerTLS(
        mode=TLSMode.ENFORCING,
        testMode=False,
        certPath=f"{folder}/server.pem",
        keyPath=f"{folder}/server.key",
        clientAuth=ClientAuth.REQUIRE,
        trustCertPath=f"{folder}/authority.pem",
    )
    return RemotingServerFactory(remoting, tls)


def securePeers(reactor: Any, remoting: Remoting, folder: str) -> Peers:
    """
    A client that accepts only servers with a certificate of our authority.
    """
    tls = ClientTLS(
        authServer=True,
        trustCertPath=f"{folder}/authority.pem",
        certPath=f"{folder}/client.pem",
        keyPath=f"{folder}/client.key",
    )
    return Peers(remoting, endpoints(reactor, tls))
