# SPDX-License-Identifier: Apache-2.0
"""
Which queue a message is sent to.

By default each queue has its turn.  After a failure the next attempt goes to another
broker, if there is one (C{TopicPublishInfo}).  A
L{FaultTable<txrocket.client.sansio.faulttable.FaultTable>} avoids slow brokers as well.
If the caller gives a selector, it decides: a function of the queues, the message and the
caller's key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.javahash import javaHash

__all__ = ["Selector", "byHash", "byMachineRoom", "byRandom", "inTurn", "roomOf"]

#: Chooses one of the queues for a message, by a key of the caller's.
Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


def byHash(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """
    The same queue for the same key, while the queues stay the same.  Java's producers
    choose the same queue for the same text or number.
    """
    hashed = abs(_hash(key)) % len(queues)
    return queues[hashed]


def _hash(key: Any) -> int:
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        # An Integer is its own hash, a Long's halves are folded.
        return key if -(2**31) <= key < 2**31 else _folded(key)
    if isinstance(key, float):
        # A Double's bits are folded; Java has one NaN only.
        return _folded(int.from_bytes(struct.pack(">d", math.nan if key != key else key), "big"))
    return javaHash(str(key))


def _folded(bits: int) -> int:
    folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    return folded - 2**32 if folded >= 2**31 else folded


def byRandom(choose: Callable[[int], int]) -> Selector:
    """
    Any queue.

    @param choose: picks a number below its argument.
    """

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        return queues[choose(len(queues))]

    return select


def roomOf(brokerName: str) -> str | None:
    """
    The machine room of a broker that is named C{room@name}.
    """
    # Java's split drops empty parts at the end.
    parts = brokerName.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def byMachineRoom(rooms: Collection[str], within: Selector = byHash) -> Selector:
    """
    A queue of a broker in one of some machine rooms; such a broker is named
    C{room@name}.  If there is no such queue, any queue.

    @param within: chooses among the queues that are left.
    """

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        near = [each for each in queues if roomOf(each.brokerName) in rooms]
        return within(near or queues, message, key)

    return select


def inTurn(queues: Sequence[MessageQueue], turn: int, failed: str | None) -> MessageQueue:
    """
    The queue whose turn it is.

    @param failed: the broker of the attempt that has just failed; its queues are skipped
        if another broker has some.
    """
    count = len(queues)
    if failed is not None:
        for offset in range(count):
            queue = queues[(turn + offset) % count]
            if queue.brokerName != failed:
                return queue
    return queues[turn % count]
