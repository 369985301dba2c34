# SPDX-License-Identifier: Apache-2.0
"""
JSON headers that differ in a few numbers only, as bytes to be filled in::

    {"code":0,"extFields":{...%d...},"flag":1,"language":"PYTHON","opaque":%d,...}

A few request codes carry the traffic.  Their headers are formatted from a template, which
costs less than encoding a map; L{RemotingCommand<txrocket.protocol.command.RemotingCommand>}
encodes the same bytes, which a test compares.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import orjson

from txrocket.protocol.codes import VERSION

__all__ = [
    "NUMBERED",
    "ONEWAY_FLAG",
    "OPAQUE",
    "REQUEST",
    "REST",
    "SUCCESS",
    "jsonHead",
    "requestTemplate",
    "responseTemplate",
]

ONEWAY_FLAG: Final = 2

_PREFIX: Final = Struct(">iI")

#: The JSON header of a response with SUCCESS, in pieces.
SUCCESS: Final = b'{"code":0,"extFields":'
OPAQUE: Final = b',"flag":1,"language":"PYTHON","opaque":%d'
REST: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION

#: The JSON header of a request, up to its opaque.
REQUEST: Final = b'{"code":%d,"extFields":%b,"flag":%d,"language":"PYTHON","opaque":'
NUMBERED: Final = REQUEST + b"%d" + REST


def requestTemplate(code: int, extFields: bytes, *, oneway: bool = False) -> bytes:
    """
    Create a format for the JSON headers of many requests.  Its last argument is the
    C{opaque}, as C{%d}, after the arguments that C{extFields} expects.
    """
    return REQUEST % (code, extFields, ONEWAY_FLAG if oneway else 0) + b"%d" + REST


def responseTemplate(extFields: bytes, remark: str | None = None) -> bytes:
    """
    The JSON header of many responses of ours that tell of success, in which their numbers
    are to be filled in, as C{%d}, behind whatever C{extFields} leaves to be filled in.
    """
    said = b"" if remark is None else b',"remark":' + orjson.dumps(remark)
    return b"".join((SUCCESS, extFields, OPAQUE, said, REST))


def jsonHead(header: bytes, size: int = 0) -> bytes:
    """
    A frame up to its body, from its header in JSON.

    @param size: of the body.
    """
    return _PREFIX.pack(4 + len(header) + size, len(header)) + header
