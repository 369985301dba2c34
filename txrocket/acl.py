# SPDX-License-Identifier: Apache-2.0
"""
Signing requests for brokers that check who asks; Java's C{AclClientRPCHook} and
C{AclSigner}.

What is signed are the values of all fields, AccessKey among them, in the order of the
fields' names, and the body behind them::

    Signature = base64(HMAC-SHA1(secretKey, value value value ... body))
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import attrs

from txrocket.protocol.command import RemotingCommand

__all__ = ["Credentials", "signature"]

_ACCESS_KEY: Final = "AccessKey"
_SIGNATURE: Final = "Signature"


def signature(fields: Mapping[str, str], body: bytes, secretKey: str) -> str:
    """
    The signature of a request.

    @param fields: its C{extFields}; a signature that is among them does not count.
    """
    values = "".join(fields[name] for name in sorted(fields) if name != _SIGNATURE)
    signing = hmac.new(secretKey.encode(), values.encode(), hashlib.sha1)
    signing.update(body)
    return base64.b64encode(signing.digest()).decode()


@attrs.frozen
class Credentials:
    """
    An account.
    """

    accessKey: str
    secretKey: str = attrs.field(repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """
        Sign a request.  One that was signed before may be signed again.
        """
        fields = command.extFields
        fields[_ACCESS_KEY] = self.accessKey
        fields[_SIGNATURE] = signature(fields, command.body, self.secretKey)
