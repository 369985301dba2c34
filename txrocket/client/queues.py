# SPDX-License-Identifier: Apache-2.0
"""
Which queue a message is sent to.

Without a wish of the sender's, each in turn, but none of the broker that has just
failed if there is another (C{TopicPublishInfo}); with a L{FaultTable}, none of a
broker that is slow (C{MQFaultStrategy}).  With a wish, a selector decides: a
function of the queues, the message and the sender's key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.javahash import javaHash

__all__ = ["FaultTable", "Selector", "byHash", "byMachineRoom", "byRandom", "inTurn", "roomOf"]

#: Chooses one of the queues for a message, by a key of the sender's.
Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


def byHash(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """
    The same queue for the same key, as long as the queues are the same; Java's
    producers choose the same one for the same text or number.
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
        # A Double's bits are folded; Java knows one NaN only.
        return _folded(int.from_bytes(struct.pack(">d", math.nan if key != key else key), "big"))
    return javaHash(str(key))


def _folded(bits: int) -> int:
    folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    return folded - 2**32 if folded >= 2**31 else folded


def byRandom(choose: Callable[[int], int]) -> Selector:
    """
    Any queue.

    @param choose: picks a number below the one it is given.
    """

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        return queues[choose(len(queues))]

    return select


def roomOf(brokerName: str) -> str | None:
    """
    The machine room of a broker that is named C{room@name}.
    """
    # As Java's split does: what is empty at the end does not count.
    parts = brokerName.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def byMachineRoom(rooms: Collection[str], within: Selector = byHash) -> Selector:
    """
    A queue in one of some machine rooms: of a broker that is named C{room@name}.
    If there is none, any queue.

    @param within: chooses among those.
    """

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        near = [each for each in queues if roomOf(each.brokerName) in rooms]
        return within(near or queues, message, key)

    return select


def inTurn(queues: Sequence[MessageQueue], turn: int, failed: str | None) -> MessageQueue:
    """
    Each queue in turn.

    @param failed: the broker that has just failed; another is taken if there is one.
    """
    count = len(queues)
    if failed is not None:
        for offset in range(count):
            queue = queues[(turn + offset) % count]
            if queue.brokerName != failed:
                return queue
    return queues[turn % count]


class FaultTable:
    """
    Which brokers are slow, and for how long they are left alone
    (C{sendLatencyFaultEnable}).
    """

    # From so many milliseconds on, a broker is left alone for so many.
    STEPS: Final = (
        (15_000, 600_000),
        (3_000, 180_000),
        (2_000, 120_000),
        (1_000, 60_000),
        (550, 30_000),
    )
    # As slow as this counts one that gave no answer.
    FAILED: Final = 30_000

    def __init__(self) -> None:
        # Broker name: its latency, and until when it is left alone.
        self._table: dict[str, tuple[int, int]] = {}
        self._worst = 0

    def note(self, brokerName: str, latency: int, now: int, *, failed: bool) -> None:
        """
        A broker has answered, or not.

        @param latency: in milliseconds.
        @param now: what a monotonic clock shows, in milliseconds.
        """
        counted = self.FAILED if failed else latency
        rest = next((rest for least, rest in self.STEPS if counted >= least), 0)
        self._table[brokerName] = latency, now + rest

    def isAvailable(self, brokerName: str, now: int) -> bool:
        """
        Whether a broker may be sent to.
        """
        return self._table.get(brokerName, (0, 0))[1] <= now

    def select(self, queues: Sequence[MessageQueue], turn: int, now: int) -> MessageQueue:
        """
        Each queue in turn, but for those of brokers that are left alone; if all
        are, one of the better half of them.
        """
        count = len(queues)
        for offset in range(count):
            queue = queues[(turn + offset) % count]
            if self.isAvailable(queue.brokerName, now):
                return queue
        there = {each.brokerName for each in queues}
        ranked = sorted(there, key=lambda name: self._table[name])
        self._worst += 1
        chosen = ranked[self._worst % max(1, len(ranked) // 2)]
        own = [each for each in queues if each.brokerName == chosen]
        return own[turn % len(own)]
