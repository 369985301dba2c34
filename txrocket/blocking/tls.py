# SPDX-License-Identifier: Apache-2.0
"""
TLS with Python's own C{ssl}, by the settings of
L{ClientTLS<txrocket.remoting.tls.ClientTLS>}.
"""

from __future__ import annotations

import ssl

import attrs

from txrocket.errors import ConfigError

__all__ = ["TLS"]


@attrs.frozen
class TLS:
    """
    The C{tls.client.*} settings.

    @ivar authServer: C{tls.client.authServer}: refuse a server whose certificate is not
        for the dialled host, or is not signed by an authority of C{trustCertPath}.  The
        system's authorities count if that is not set.
    @ivar certPath: the client's own certificate, if servers ask for one.
    """

    authServer: bool = False
    trustCertPath: str | None = None
    certPath: str | None = None
    keyPath: str | None = None
    keyPassword: str | None = attrs.field(default=None, repr=False)

    def context(self) -> ssl.SSLContext:
        """
        The settings as a context of C{ssl}.

        @raise ConfigError: if a setting is missing or not valid; it names the setting.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.authServer:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.trustCertPath is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(self.trustCertPath)
            except (OSError, ValueError) as error:
                raise _unusable("trustCertPath", self.trustCertPath, error) from None
        if self.certPath is not None:
            if self.keyPath is None:
                raise ConfigError("tls.client.keyPath is not set")
            try:
                # A function, because OpenSSL otherwise asks for a password at the terminal.
                context.load_cert_chain(self.certPath, self.keyPath, lambda: self.keyPassword or "")
            except (OSError, ValueError) as error:
                path = f"{self.certPath}, keyPath {self.keyPath}"
                raise _unusable("certPath", path, error) from None
        return context


def _unusable(setting: str, path: str, error: Exception) -> ConfigError:
    return ConfigError(f"tls.client.{setting} {path}: {error}")
