# SPDX-License-Identifier: Apache-2.0
"""
Tests for what L{txrocket.remoting.tls.ServerTLS} asks of clients.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import certificates
from txrocket.remoting.tls import ClientAuth, ServerTLS, TLSMode


class ClientAuthTests(SynchronousTestCase):
    """
    C{tls.server.need.client.auth}.
    """

    def test_asked(self) -> None:
        """
        C{none} asks for no certificate, C{optional} checks one that is shown,
        C{require} insists on one.
        """
        folder = Path(self.mktemp())
        certificates.write(folder)
        for clientAuth, asked in (
            (ClientAuth.NONE, (False, False)),
            (ClientAuth.OPTIONAL, (True, False)),
            (ClientAuth.REQUIRE, (True, True)),
        ):
            tls = ServerTLS(
                TLSMode.ENFORCING,
                testMode=False,
                certPath=str(folder / "server.pem"),
                keyPath=str(folder / "server.key"),
                clientAuth=clientAuth,
                trustCertPath=str(folder / "authority.pem"),
            )
            options = tls.contextFactory()
            self.assertEqual((options.verify, options.requireCertificate), asked)

    def test_testMode(self) -> None:
        """
        In test mode a certificate is made up and none is asked for.
        """
        options = ServerTLS(TLSMode.PERMISSIVE, clientAuth=ClientAuth.REQUIRE).contextFactory()
        self.assertFalse(options.verify)
