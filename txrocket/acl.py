# SPDX-License-Identifier: Apache-2.0
"""
Signatures of requests, for brokers with access control; Java's C{AclClientRPCHook} and
C{AclSigner}.

The signature covers the values of all fields including AccessKey, in the order of the
fields' names, and then the body::

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
    Compute the signature of a request.

    @param fields: its C{extFields}; a signature among them is ignored.
    """
    values = "".join(fields[name] for name in sorted(fields) if name != _SIGNATURE)
    signing = hmac.new(secretKey.encode(), values.encode(), hashlib.sha1)
    signing.update(body)
    return base64.b64encode(signing.digest()).decode()


@attrs.frozen
class Credentials:
    """
    The keys of an account, which sign requests.
    """

    accessKey: str
    secretKey: str = attrs.field(repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """
        Sign a request.  A second call replaces the signature.
        """
        fields = command.extFields
        fields[_ACCESS_KEY] = self.accessKey
        fields[_SIGNATURE] = signature(fields, command.body, self.secretKey)
