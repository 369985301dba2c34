# SPDX-License-Identifier: Apache-2.0
"""
What became of a message that was sent, or a pull that was made.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from txrocket.message import MessageExt
from txrocket.model import MessageQueue

__all__ = ["PullData", "PullResult", "PullStatus", "SendResult", "SendStatus"]


class SendStatus(enum.Enum):
    """
    How safe a message is.  In all four cases the broker has it.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """
    Where a message went.

    @ivar msgId: the id that this client gave it; several for a batch, divided by
        commas.
    @ivar offsetMsgId: the id that the broker gave it.
    @ivar queueOffset: its place in its queue; the first's for a batch.
    @ivar transactionId: of a half message.
    @ivar regionId: the broker's, for traces.
    @ivar traceOn: whether the broker wants traces.
    """

    sendStatus: SendStatus
    msgId: str
    offsetMsgId: str
    messageQueue: MessageQueue
    queueOffset: int
    transactionId: str | None = None
    regionId: str | None = None
    traceOn: bool = True


class PullStatus(enum.Enum):
    """
    The status of a pull.
    """

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(NamedTuple):
    """
    The result of a pull.

    @ivar nextBeginOffset: where to pull next.
    @ivar messages: those that the subscription wants.
    @ivar faults: what is wrong with each message that cannot be read, and was skipped.
    """

    pullStatus: PullStatus
    nextBeginOffset: int
    minOffset: int
    maxOffset: int
    messages: tuple[MessageExt, ...] = ()
    faults: tuple[str, ...] = ()


class PullData(NamedTuple):
    """
    The result of a pull, not read yet.

    @ivar data: the records as the broker has them, one after the other.  Of tags only
        the hashes were compared.
    """

    pullStatus: PullStatus
    nextBeginOffset: int
    minOffset: int
    maxOffset: int
    data: bytes = b""
