# SPDX-License-Identifier: Apache-2.0
"""
The result of reading a queue; Java's C{GetMessageResult} and C{GetMessageStatus}.
"""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["GetMessageResult", "GetMessageStatus"]


class GetMessageStatus(Enum):
    """
    The outcome of a pull; Java's C{GetMessageStatus}.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(msgspec.Struct, frozen=True, gc=False):
    """
    The answer to a pull.

    @ivar data: the records as they are in the log, one after the other.
    @ivar fromDisk: whether they are so old that a slave had better serve them.
    """

    status: GetMessageStatus
    nextOffset: int
    minOffset: int
    maxOffset: int
    data: bytes = b""
    count: int = 0
    fromDisk: bool = False
