# SPDX-License-Identifier: Apache-2.0
"""
The legible members of a damaged table.

The tables of topics, groups and offsets are one map of flat objects, so each of these
can be read alone, wherever the text around it is damaged::

    {"offsetTable":{"T@G":{0:7,1:9},"T@H":{0:###########"U@G":{0:3}}}
                    ^^^^^^^^^^^^^^^                     ^^^^^^^^^^^
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

from txrocket.errors import MalformedBody, ProtocolError
from txrocket.protocol.bodies.codec import decodeBody

__all__ = ["decodeTable", "legible"]

_Value = TypeVar("_Value")

# Names are bounded, or a text of nothing but quotes would be gone through for each.
_MEMBER = re.compile(rb'("(?:[^"\\\x00-\x1f]|\\.){1,600}")\s*:\s*(\{[^{}]*\})')


def decodeTable(kind: type[_Value], data: bytes, member: bytes) -> _Value:
    """
    A table's value.

    @param member: the member that holds it.  Without it the table would be taken for an
        empty one.
    @raise MalformedBody: if it is not valid.
    """
    if b'"%s"' % member not in data:
        raise MalformedBody(f"it has no {member.decode()}")
    return decodeBody(kind, data)


def legible(text: bytes, kind: type[_Value]) -> Iterator[tuple[str, _Value]]:
    """
    The members of a damaged table that can be read.

    @param kind: what each is.
    @return: their names and values.  A value may be damaged in a way that shows nowhere.
    """
    for match in _MEMBER.finditer(text):
        try:
            yield decodeBody(str, match[1]), decodeBody(kind, match[2])
        except ProtocolError:
            continue
