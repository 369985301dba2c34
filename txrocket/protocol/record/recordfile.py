# SPDX-License-Identifier: Apache-2.0
"""
A file of records, one behind the other: the messages that were cut off the log of a broker::

    | record | record | record |      no blanks, whole records only
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from txrocket.errors import MalformedRecord
from txrocket.message import MessageExt
from txrocket.protocol.record.decode import decodeRecord
from txrocket.protocol.record.fields import BLANK_SIZE

__all__ = ["readRecordFile"]

# No frame can carry more, so no record is longer.
_LONGEST: Final = 16 * 1024 * 1024
_CHUNK: Final = 1024 * 1024


def readRecordFile(read: Callable[[int], bytes]) -> Iterator[tuple[int, MessageExt]]:
    """
    The messages of a file, each with its place in the file.  Bodies are compared with their
    checksums, and stay as they are stored.

    @param read: reads up to so many bytes; none at the end of the file.
    @raise MalformedRecord: if a record is damaged, or not whole, with its place.
    """
    data, position, start = b"", 0, 0
    while True:
        size = int.from_bytes(data[position : position + 4], "big")
        if not len(data) - position >= BLANK_SIZE or not size <= len(data) - position:
            wanted = size if BLANK_SIZE <= size <= _LONGEST else 0
            more = read(max(_CHUNK, wanted))
            if more:
                data, start, position = data[position:] + more, start + position, 0
                continue
            if position == len(data):
                return
        try:
            message = decodeRecord(data, position, checkCrc=True)
        except MalformedRecord as error:
            reason = str(error).partition(": ")[2]
            raise MalformedRecord(f"record at {start + position}: {reason}") from None
        yield start + position, message
        position += message.storeSize
