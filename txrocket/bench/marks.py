# SPDX-License-Identifier: Apache-2.0
"""
What a body begins with, so that its receiver knows when it was sent: a record's own time
has milliseconds only::

    magic:4 "txrB" | run:4 | when:8, microseconds since 1970
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

__all__ = ["MARK_SIZE", "NO_RUN", "Mark", "readMark", "writeMark"]

_MAGIC: Final = b"txrB"
_FORM: Final = Struct(">4s4sQ")

#: Bytes of a mark.
MARK_SIZE: Final = _FORM.size

#: Of the messages that make a topic, which nobody counts.
NO_RUN: Final = b"\0\0\0\0"


class Mark(NamedTuple):
    """
    @ivar run: of which run a message is: 4 bytes.
    @ivar when: when it was sent, in microseconds since 1970.
    """

    run: bytes
    when: int


def writeMark(run: bytes, when: int) -> bytes:
    """
    A mark.
    """
    return _FORM.pack(_MAGIC, run, when)


def readMark(body: bytes) -> Mark | None:
    """
    The mark of a body, if it has one.
    """
    if len(body) < MARK_SIZE or not body.startswith(_MAGIC):
        return None
    _, run, when = _FORM.unpack_from(body)
    return Mark(run, when)
