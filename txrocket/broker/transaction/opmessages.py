# SPDX-License-Identifier: Apache-2.0
"""
The op messages of transactions, which say which half messages are decided::

    RMQ_SYS_TRANS_HALF_TOPIC      ... 17  18  19  20  21      queue 0
                                       ^           ^          17 and 20 are undecided
    RMQ_SYS_TRANS_OP_HALF_TOPIC   ... 18  21  19              queue 0: tag d, body

    first = 17       decided = 0 1 1 0 1       a byte for each half from there on

The state is only in memory.  After a start the broker reads it again, from the offsets of
the group CID_RMQ_SYS_TRANS in both topics: all is decided below them.  Java uses the same
group.

An op also says that a half was moved: a copy was appended to its queue with one more check
on its count, or it was given up.  Such an op has the property TRANSACTION_CHECK_TIMES, and a
decision has not.  Java ignores the property; to it, any op says that nothing more is to be
done about a half.  A decision for a half that was moved before is I{late}, and counts for
its copy, which names the half by TRAN_PREPARED_QUEUE_OFFSET.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.message import PROPERTY_TRANSACTION_CHECK_TIMES, MessageExt
from txrocket.store.messagestore import MessageStore

__all__ = ["GROUP", "HALF_TOPIC", "OP_TOPIC", "DecidedUpTo", "OpMessages"]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

#: The group of the broker's offsets in both topics, as in Java.
GROUP: Final = "CID_RMQ_SYS_TRANS"

# How much is read at a time: halves, their bytes, and ops, which are small.
_HALVES: Final = 128
_HALVES_SIZE: Final = 1 << 20
_OPS: Final = 256

# Late decisions that are remembered.  For one beyond that, the producer is asked again.
_LATE: Final = 100_000

# Ops that share one entry for their highest half: 10,000 transactions a second, one of which
# is undecided for an hour, make about as many entries.
_SPAN: Final = 4096


class DecidedUpTo(NamedTuple):
    """
    How far all halves are decided.

    @ivar half: the first undecided half.
    @ivar op: the first op about that half or a later one, or the first late op without
        effect so far.
    """

    half: int
    op: int


class OpMessages:
    """
    The state of all halves, as the ops say.

    @ivar first: the first undecided half, or the next one that will come.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.first = 0
        self._decided = bytearray()
        self._op = 0  # the next to be read
        # Spans of the ops that were read: the first op, and the highest half.
        self._spans: deque[list[int]] = deque()
        # Late decisions by half, and their ops.
        self._late: dict[int, int] = {}
        self._lateBefore: dict[int, int] = {}

    def start(self, offsets: ConsumerOffsets) -> None:
        """
        Begin at the offsets of the group, within the queues.
        """
        # A broker that becomes a master once more reads the ops again.
        self._decided.clear()
        self._spans.clear()
        self._late, self._lateBefore = {}, {}
        self.first = self._begin(offsets, HALF_TOPIC)
        self._op = self._begin(offsets, OP_TOPIC)

    def _begin(self, offsets: ConsumerOffsets, topic: str) -> int:
        low, high = self._store.minOffset(topic, 0), self._store.maxOffset(topic, 0)
        return min(max(low, offsets.query(GROUP, topic, 0)), high)

    @property
    def end(self) -> int:
        """
        The offset of the next half that will come.
        """
        return self._store.maxOffset(HALF_TOPIC, 0)

    @property
    def decidedUpTo(self) -> DecidedUpTo:
        """
        The offsets below which nothing needs to be read again.
        """
        op = self._spans[0][0] if self._spans else self._op
        late = (*self._late.values(), *self._lateBefore.values())
        return DecidedUpTo(self.first, min((op, *late)))

    # --- ops ---------------------------------------------------------------

    def read(self) -> bool:
        """
        Read some of the new ops.

        @return: whether there are more.
        @raise StoreError: if the disk cannot be read.
        """
        self._op = max(self._op, self._store.minOffset(OP_TOPIC, 0))
        entries = list(self._store.mended(OP_TOPIC, 0, self._op, _OPS))
        messages = self._store.messages([(at, size) for at, size, _ in entries])
        for offset, message in enumerate(messages, self._op):
            if message is not None:
                self._take(offset, message)
        self._op += len(entries)
        self._advance()
        return self._op < self._store.maxOffset(OP_TOPIC, 0)

    def _take(self, op: int, message: MessageExt) -> None:
        # An op of a half that is not in its queue yet is not valid.
        if not message.body.isdigit() or len(message.body) > 19:
            return
        half = int(message.body)
        if half >= self.end:
            return
        known = half < self.first or not self._isOpen(half)
        if not known:
            self._mark(half)
            if not self._spans or op >= self._spans[-1][0] + _SPAN:
                self._spans.append([op, half])
            self._spans[-1][1] = max(half, self._spans[-1][1])
        elif PROPERTY_TRANSACTION_CHECK_TIMES not in message.properties and len(self._late) < _LATE:
            self._late[half] = op

    def _isOpen(self, half: int) -> bool:
        at = half - self.first
        return at >= len(self._decided) or not self._decided[at]

    def _mark(self, half: int) -> None:
        at = half - self.first
        if at >= len(self._decided):
            self._decided.extend(bytes(at + 1 - len(self._decided)))
        self._decided[at] = 1

    def _advance(self) -> None:
        """
        Forget the decided halves at the beginning, and the deleted ones.
        """
        past = self._decided.find(0)
        if past < 0:
            past = len(self._decided)
        past = max(past, self._store.minOffset(HALF_TOPIC, 0) - self.first)
        if past:
            del self._decided[:past]
            self.first += past
            while self._spans and self._spans[0][1] < self.first:
                self._spans.popleft()

    # --- halves ------------------------------------------------------------

    def halves(self, start: int, end: int) -> list[tuple[int, MessageExt | None]]:
        """
        Some of the next undecided halves between two offsets: the offset of each, and the
        message, or L{None} if it cannot be read.

        @return: an empty list if all are decided.
        @raise StoreError: if the disk cannot be read.
        """
        offsets: list[int] = []
        places: list[tuple[int, int]] = []
        room = _HALVES_SIZE
        at = self._next(start)
        while at < end and len(offsets) < _HALVES and room > 0:
            entries: list[tuple[int, int, int]]
            entries = list(self._store.mended(HALF_TOPIC, 0, at, min(_HALVES, end - at)))
            # If a file of the queue is missing, there are no entries.
            for place, size, _ in entries or [(-1, 0, 0)]:
                if self._isOpen(at):
                    offsets.append(at)
                    places.append((place, size))
                    room -= size
                at += 1
                if len(offsets) == _HALVES or room <= 0:
                    break
            at = self._next(at)
        return list(zip(offsets, self._store.messages(places), strict=True))

    def _next(self, offset: int) -> int:
        """
        The first undecided half from an offset on.
        """
        at = max(0, offset - self.first)
        found = self._decided.find(0, at)
        return self.first + (max(at, len(self._decided)) if found < 0 else found)

    def skip(self, half: int) -> None:
        """
        Skip a half that cannot be read.
        """
        self._mark(half)
        self._advance()

    # --- late decisions ----------------------------------------------------

    def isLate(self, origin: int) -> bool:
        """
        Whether a decision has come for a half after it was moved.
        """
        return origin in self._late or origin in self._lateBefore

    def beginPass(self) -> None:
        """
        A pass through all undecided halves begins.
        """
        self._lateBefore |= self._late
        self._late = {}

    def endPass(self) -> None:
        """
        The pass has ended: late decisions from before it have had their effect.
        """
        self._lateBefore = {}
