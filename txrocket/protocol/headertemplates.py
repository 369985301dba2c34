# SPDX-License-Identifier: Apache-2.0
"""
JSON headers that differ in a few values only, cut where those go::

    {"code":0,"extFields":{"a":"%","b":"%"},"flag":1,"language":"PYTHON","opaque":%,...}

A few codes carry the traffic.  To fill in such a header costs less than to encode a map.  The
templates are cut from what L{RemotingCommand} encodes, so it alone knows how a header looks.
Requests are filled in with C{%}, responses by
L{Bulk.encodeHeads<txrocket.bulk.interface.Bulk.encodeHeads>}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from txrocket.protocol.command import RemotingCommand, rawRequest, responseCommand

__all__ = ["MARK", "requestTemplate", "responsePieces"]

#: The value of a field that is to be filled in.
MARK: Final = "\x01value\x01"

# How JSON has it, and the opaque of a command that has no number yet.
_MARK_JSON: Final = b"\\u0001value\\u0001"
_NO_OPAQUE: Final = b'"opaque":0'

_PREFIX: Final = 8


def requestTemplate(code: int, extFields: bytes, *, oneway: bool = False) -> bytes:
    """
    Create a format for the JSON headers of many requests.  Its last argument is the
    C{opaque}, as C{%d}, after the arguments that C{extFields} expects.

    @param extFields: a format, whose result is JSON.
    """
    # The encoder looks at no field.
    before, after = _cut(rawRequest(code, extFields, oneway=oneway))
    return b"%b%%d%b" % (before, after)


def responsePieces(fields: Mapping[str, str], remark: str | None = None) -> tuple[bytes, ...]:
    """
    Cut the JSON header of responses that tell of success where their values go: the fields
    that are L{MARK}, in their order, and at last the C{opaque}.
    """
    response = responseCommand(remark=remark)
    response.fields = dict(fields)
    before, after = _cut(response)
    return (*before.split(_MARK_JSON), after)


def _cut(command: RemotingCommand) -> tuple[bytes, bytes]:
    """
    A header before and behind the number.
    """
    # No string in the header has these bytes, because JSON escapes quotes.
    before, _, after = command.encodeHead()[_PREFIX:].partition(_NO_OPAQUE)
    return before + _NO_OPAQUE[:-1], after
