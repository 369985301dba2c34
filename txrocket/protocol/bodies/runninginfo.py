# SPDX-License-Identifier: Apache-2.0
"""
Bodies in which a consumer describes itself to the admin tool: its queues, its rates,
and its result for one message that the tool had it consume.
"""

from __future__ import annotations

import enum

import msgspec

from txrocket.model import Int32, Int64, MessageQueue, SubscriptionData

__all__ = [
    "CMResult",
    "ConsumeMessageDirectlyResult",
    "ConsumeStatus",
    "ConsumerRunningInfo",
    "ProcessQueueInfo",
]


class ProcessQueueInfo(msgspec.Struct, frozen=True):
    """
    The state of a process queue in a consumer.

    @ivar commitOffset: the offset to commit.
    @ivar cachedMsgMinOffset: the first pulled message that is not yet consumed.
    @ivar cachedMsgMaxOffset: the last such message.
    @ivar cachedMsgCount: the number of such messages.
    @ivar cachedMsgSizeInMiB: their size.
    @ivar transactionMsgMinOffset: the first message in an orderly consumer's listener.
    @ivar transactionMsgMaxOffset: the last such message.
    @ivar transactionMsgCount: the number of such messages.
    @ivar locked: whether the broker granted the queue's lock.
    @ivar tryUnlockTimes: the number of failed attempts to unlock the queue.
    @ivar lastLockTimestamp: when the lock was last granted.
    @ivar droped: whether the consumer has given up the queue; the spelling is Java's.
    @ivar lastPullTimestamp: when the queue was last pulled.
    @ivar lastConsumeTimestamp: when the listener last got messages of the queue.
    """

    commitOffset: Int64 = 0
    cachedMsgMinOffset: Int64 = 0
    cachedMsgMaxOffset: Int64 = 0
    cachedMsgCount: Int32 = 0
    cachedMsgSizeInMiB: Int32 = 0
    transactionMsgMinOffset: Int64 = 0
    transactionMsgMaxOffset: Int64 = 0
    transactionMsgCount: Int32 = 0
    locked: bool = False
    tryUnlockTimes: Int64 = 0
    lastLockTimestamp: Int64 = 0
    droped: bool = False
    lastPullTimestamp: Int64 = 0
    lastConsumeTimestamp: Int64 = 0


class ConsumeStatus(msgspec.Struct, frozen=True):
    """
    A consumer's rates in a topic.

    @ivar pullRT: milliseconds per pull.
    @ivar pullTPS: pulled messages per second.
    @ivar consumeRT: milliseconds per call of the listener.
    @ivar consumeOKTPS: consumed messages per second.
    @ivar consumeFailedTPS: failed messages per second.
    @ivar consumeFailedMsgs: failed messages in the last hour.
    """

    pullRT: float = 0.0
    pullTPS: float = 0.0
    consumeRT: float = 0.0
    consumeOKTPS: float = 0.0
    consumeFailedTPS: float = 0.0
    consumeFailedMsgs: Int64 = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True):
    """
    The response to GET_CONSUMER_RUNNING_INFO.

    @ivar properties: its settings and C{PROP_...} entries.
    @ivar subscriptionSet: its subscriptions, sorted by C{topic@subString}.
    @ivar mqTable: queue to its state, sorted by queue.
    @ivar statusTable: topic to rates, sorted by topic.
    @ivar jstack: the stacks of its threads, if the request asks for them.
    """

    properties: dict[str, str] = {}
    subscriptionSet: tuple[SubscriptionData, ...] = ()
    mqTable: dict[MessageQueue, ProcessQueueInfo] = {}
    statusTable: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class CMResult(enum.Enum):
    """
    The result of a listener for one message.
    """

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(msgspec.Struct, frozen=True):
    """
    The response to CONSUME_MESSAGE_DIRECTLY.

    @ivar order: whether the listener is orderly.
    @ivar autoCommit: whether an orderly listener commits by itself.
    @ivar consumeResult: the result of the listener.
    @ivar remark: the text of the listener's exception, if it raised one.
    @ivar spentTimeMills: how long the listener ran.
    """

    order: bool = False
    autoCommit: bool = True
    consumeResult: CMResult | None = None
    remark: str | None = None
    spentTimeMills: Int64 = 0
