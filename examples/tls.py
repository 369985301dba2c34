# SPDX-License-Identifier: Apache-2.0
"""
Both ends of a connection over TLS, with certificates from files.
"""

from __future__ import annotations

from typing import Any

from txrocket.remoting.node import Remoting
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.tls import ClientAuth, ClientTLS, ServerTLS, TLSMode


def secureServer(remoting: Remoting, folder: str) -> RemotingServerFactory:
    """
    A server that speaks TLS only, to clients whose certificate our authority
    has signed.
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
    A client that believes no server but one that our authority has signed.
    """
    tls = ClientTLS(
        authServer=True,
        trustCertPath=f"{folder}/authority.pem",
        certPath=f"{folder}/client.pem",
        keyPath=f"{folder}/client.key",
    )
    return Peers(remoting, endpoints(reactor, tls))
