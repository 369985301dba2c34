# SPDX-License-Identifier: Apache-2.0
"""
The messages of one queue that were pulled and are not consumed yet; Java's
C{ProcessQueue}::

    pulled --> [ 7  8  9 10 11 ] --> listener
                 ^           ^
              commit here   pull on from behind here, while there is room

Messages may be consumed in any order, but a group's offset says that all before it are
consumed.  So the offset to commit is that of the first message that is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import attrs

from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import ProcessQueueInfo

__all__ = ["ProcessQueue", "Room"]


@attrs.frozen
class Room:
    """
    How much of a queue may be held.

    @ivar count: messages (pullThresholdForQueue).
    @ivar size: bytes of bodies (pullThresholdSizeForQueue).
    @ivar span: offsets from the first to the last (consumeConcurrentlyMaxSpan).
    """

    count: int = 1000
    size: int = 100 * 1024 * 1024
    span: int = 2000


class ProcessQueue:
    """
    One queue of a consumer, and the messages of it that are held.

    @ivar dropped: whether the queue is no longer this consumer's: calls that run are
        finished, and nothing of them is committed.
    @ivar nextOffset: where to pull next.
    @ivar locked: whether the broker has locked the queue for this consumer.
    @ivar lockedAt: when it last said so, in seconds.
    @ivar pulledAt: when it was last pulled, in seconds.
    @ivar consumedAt: when a listener last had messages of it, in seconds.
    """

    def __init__(self, queue: MessageQueue, nextOffset: int) -> None:
        self.queue = queue
        self.nextOffset = nextOffset
        self.dropped = False
        self.locked = False
        self.lockedAt = self.pulledAt = self.consumedAt = 0.0
        # In the order of their offsets, which is the order in which they are pulled.
        self._messages: OrderedDict[int, MessageExt] = OrderedDict()
        self._taken: dict[int, MessageExt] = {}
        self._begun: dict[int, float] = {}
        self._last = nextOffset - 1
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages) + len(self._taken)

    def __contains__(self, message: MessageExt) -> bool:
        return message.queueOffset in self._messages

    @property
    def waiting(self) -> int:
        """
        How many messages were not taken yet.
        """
        return len(self._messages)

    def add(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """
        Add messages that were pulled.

        @return: those that were not there already.
        """
        fresh = []
        for message in messages:
            if message.queueOffset > self._last:
                self._messages[message.queueOffset] = message
                self._last = message.queueOffset
                self.size += len(message.body)
                fresh.append(message)
        return fresh

    def fullReason(self, room: Room, *, span: bool) -> str | None:
        """
        Why to pull no more now, or L{None} if there is room.

        @param span: whether the distance from the first to the last message counts.
        """
        if len(self) >= room.count:
            return f"{len(self)} messages wait to be consumed"
        if self.size >= room.size:
            return f"{self.size} bytes wait to be consumed"
        if span and self._messages and self._last - next(iter(self._messages)) > room.span:
            first = next(iter(self._messages))
            return f"message {first} is not consumed, and {self._last - first} after it were pulled"
        return None

    # --- in any order ----------------------------------------------------

    def begin(self, messages: Iterable[MessageExt], now: float) -> None:
        """
        A listener was given messages.
        """
        self.consumedAt = now
        for message in messages:
            self._begun[message.queueOffset] = now

    def end(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """
        A listener has finished with messages.

        @return: those that L{overdue} has not taken from it.
        """
        return [each for each in messages if self._begun.pop(each.queueOffset, None) is not None]

    def done(self, messages: Iterable[MessageExt]) -> int:
        """
        Messages are consumed.

        @return: the offset that can be committed.
        """
        for message in messages:
            if self._messages.pop(message.queueOffset, None) is not None:
                self.size -= len(message.body)
        return self.commitOffset

    @property
    def commitOffset(self) -> int:
        """
        All messages before this are consumed.
        """
        first = next(iter(self._messages)) if self._messages else self._last + 1
        return min(first, min(self._taken)) if self._taken else first

    def overdue(self, before: float) -> list[MessageExt]:
        """
        Take from listeners the messages at the front that they were given before
        some time.
        """
        found = []
        for offset, message in self._messages.items():
            begun = self._begun.get(offset)
            if begun is None or begun >= before:
                break
            del self._begun[offset]
            found.append(message)
        return found

    # --- in order --------------------------------------------------------

    def take(self, most: int) -> Sequence[MessageExt]:
        """
        The next messages, in order; they stay until L{commit} or L{giveBack}.
        """
        taken: list[MessageExt] = []
        while self._messages and len(taken) < most:
            offset, message = self._messages.popitem(last=False)
            self._taken[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int:
        """
        The messages that were taken are consumed.

        @return: the offset that can be committed.
        """
        for message in self._taken.values():
            self.size -= len(message.body)
        self._taken.clear()
        return self.commitOffset

    def giveBack(self, messages: Sequence[MessageExt]) -> None:
        """
        Messages that were taken are to be taken again, perhaps changed.
        """
        for message in reversed(messages):
            self._taken.pop(message.queueOffset, None)
            self._messages[message.queueOffset] = message
            self._messages.move_to_end(message.queueOffset, last=False)

    def info(self, committed: int, timeOf: Callable[[float], int]) -> ProcessQueueInfo:
        """
        The queue's data for an administrator.

        @param timeOf: the time of day in milliseconds, for seconds of the reactor's clock.
        """

        def shown(seconds: float) -> int:
            # 0 is never.
            return timeOf(seconds) if seconds else 0

        waiting = list(self._messages)
        taken = sorted(self._taken)
        return ProcessQueueInfo(
            commitOffset=committed,
            cachedMsgMinOffset=waiting[0] if waiting else 0,
            cachedMsgMaxOffset=waiting[-1] if waiting else 0,
            cachedMsgCount=len(waiting),
            cachedMsgSizeInMiB=self.size // (1024 * 1024),
            transactionMsgMinOffset=taken[0] if taken else 0,
            transactionMsgMaxOffset=taken[-1] if taken else 0,
            transactionMsgCount=len(taken),
            locked=self.locked,
            lastLockTimestamp=shown(self.lockedAt),
            droped=self.dropped,
            lastPullTimestamp=shown(self.pulledAt),
            lastConsumeTimestamp=shown(self.consumedAt),
        )
