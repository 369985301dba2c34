# SPDX-License-Identifier: Apache-2.0
"""
The records of a message trace as values; see L{txrocket.protocol.tracebodies}.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final, TypeAlias

import msgspec

__all__ = [
    "DEFAULT_REGION",
    "TRACE_TOPIC",
    "ConsumeReturnType",
    "EndTransaction",
    "MessageType",
    "Pub",
    "Recall",
    "SubAfter",
    "SubBefore",
    "Trace",
]

#: The topic of message traces, unless a client is configured with another one.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

#: The region of a broker without a configured region.
DEFAULT_REGION: Final = "DefaultRegion"


class MessageType(enum.IntEnum):
    """
    The type of a sent message.
    """

    Normal_Msg = 0
    Trans_Msg_Half = 1
    Trans_msg_Commit = 2
    Delay_Msg = 3
    Order_Msg = 4


class ConsumeReturnType(enum.IntEnum):
    """
    The result of a listener's call, C{ConsumeReturnType} in Java.

    @cvar TIME_OUT: the call took too long, with any result.
    @cvar RETURNNULL: the listener returned null; only in Java.
    @cvar FAILED: the listener asked for another delivery.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class Pub(msgspec.Struct, frozen=True):
    """
    A producer sent a message.

    @ivar timeStamp: when the send began.
    @ivar storeHost: the broker's address.
    @ivar bodyLength: the size of the body as sent, possibly compressed.
    @ivar costTime: the duration of the send.
    @ivar clientHost: the producer's address; in an older format only.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    tags: str | None
    keys: str | None
    storeHost: str | None
    bodyLength: int
    costTime: int
    msgType: MessageType
    offsetMsgId: str | None = ""
    success: bool = True
    clientHost: str | None = None


class SubBefore(msgspec.Struct, frozen=True):
    """
    A consumer is about to call its listener with a message.

    @ivar requestId: the id of the call.
    @ivar retryTimes: the number of earlier deliveries.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    requestId: str | None
    msgId: str | None
    retryTimes: int
    keys: str | None


class SubAfter(msgspec.Struct, frozen=True):
    """
    A consumer has called its listener with a message.

    @ivar costTime: the duration of the call, divided by the number of its messages.
    @ivar contextCode: a L{ConsumeReturnType}, or the number of an unknown one.
    @ivar timeStamp: when the call ended, if the client reports it.
    """

    requestId: str | None
    msgId: str | None
    costTime: int
    success: bool
    keys: str | None
    contextCode: int = 0
    timeStamp: int | None = None
    groupName: str | None = ""


class EndTransaction(msgspec.Struct, frozen=True):
    """
    A producer ended a transaction.

    @ivar transactionState: a name of
        L{LocalTransactionState<txrocket.client.producer.transaction.LocalTransactionState>}.
    @ivar fromTransactionCheck: whether the broker had checked the transaction.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    tags: str | None
    keys: str | None
    storeHost: str | None
    msgType: MessageType
    transactionId: str | None
    transactionState: str
    fromTransactionCheck: bool


class Recall(msgspec.Struct, frozen=True):
    """
    A producer recalled a delayed message; since 5.x.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    success: bool
    keys: ClassVar[str | None] = None


#: A record of a trace.
Trace: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall
