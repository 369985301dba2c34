# SPDX-License-Identifier: Apache-2.0
"""
The stamp at the beginning of a body, from which the receiver computes the latency.  A
record's own times only have milliseconds::

    magic:4 "txrB" | run:4 | when:8, microseconds since 1970
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

__all__ = ["NO_RUN", "STAMP_SIZE", "SendStamp", "readStamp", "writeStamp"]

_MAGIC: Final = b"txrB"
_FORM: Final = Struct(">4s4sQ")

#: The bytes of a stamp.
STAMP_SIZE: Final = _FORM.size

#: The run id of messages that create a topic, which are not counted.
NO_RUN: Final = b"\0\0\0\0"


class SendStamp(NamedTuple):
    """
    The run and the send time of a message.

    @ivar run: the 4-byte id of the run.
    @ivar when: the send time in microseconds since 1970.
    """

    run: bytes
    when: int


def writeStamp(run: bytes, when: int) -> bytes:
    """
    Encode a stamp.
    """
    return _FORM.pack(_MAGIC, run, when)


def readStamp(body: bytes) -> SendStamp | None:
    """
    Decode the stamp of a body; L{None} if it has none.
    """
    if len(body) < STAMP_SIZE or not body.startswith(_MAGIC):
        return None
    _, run, when = _FORM.unpack_from(body)
    return SendStamp(run, when)
