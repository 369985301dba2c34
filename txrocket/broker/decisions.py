# SPDX-License-Identifier: Apache-2.0
"""
Which halves of transactions are decided, as the op topic says::

    RMQ_SYS_TRANS_HALF_TOPIC      ... 17  18  19  20  21      queue 0
                                       ^           ^          17 and 20 are undecided
    RMQ_SYS_TRANS_OP_HALF_TOPIC   ... 18  21  19              queue 0: tag d, body

    first = 17       decided = 0 1 1 0 1       a byte for each half from there on

Nothing of this has to outlast the process: it is read again from the offsets of the
group CID_RMQ_SYS_TRANS in both topics, below which all is decided; Java keeps them
as well, and under the same name.

An op also says that a half goes on elsewhere: it was put at the end of its queue
with one more check on its count, or was given up.  By TRANSACTION_CHECK_TIMES among
its properties such an op can be told from a decision.  Java, which moves a half
without a word, takes either for what it says: that there is nothing more to be done
about a half.  A decision for a half that was moved before is I{late}, and counts for
its copy, which names it by TRAN_PREPARED_QUEUE_OFFSET.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from txrocket.broker.offsets import Offsets
from txrocket.message import PROPERTY_TRANSACTION_CHECK_TIMES, MessageExt
from txrocket.store.messages import MessageStore

__all__ = ["GROUP", "HALF_TOPIC", "OP_TOPIC", "Decisions", "Reached"]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

#: The group that Java's broker keeps its offsets in both topics for.
GROUP: Final = "CID_RMQ_SYS_TRANS"

# How much is read at a time: halves, and of these so many bytes; ops, which are small.
_HALVES: Final = 128
_HALVES_SIZE: Final = 1 << 20
_OPS: Final = 256

# Late decisions that are remembered: of those beyond, a second check has to bring
# them out.
_LATE: Final = 100_000

# Ops whose highest half is noted together: 10,000 transactions in a second, of which
# one is undecided for an hour, make as many notes.
_SPAN: Final = 4096


class Reached(NamedTuple):
    """
    How far all is decided.

    @ivar half: the first half that is not.
    @ivar op: the first op that says something about that half or a later one, or is late
        and has not had its effect.
    """

    half: int
    op: int


class Decisions:
    """
    What is known about the halves.

    @ivar first: the first half that is undecided, or the next that will come.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.first = 0
        self._decided = bytearray()
        self._op = 0  # the next to be read
        # Of the ops that were read: where some begin, and their highest half.
        self._spans: deque[list[int]] = deque()
        # Late decisions, and the ops that told of them.
        self._late: dict[int, int] = {}
        self._lateBefore: dict[int, int] = {}

    def start(self, offsets: Offsets) -> None:
        """
        Begin where the offsets say, as far as there is something.
        """
        self.first = self._begin(offsets, HALF_TOPIC)
        self._op = self._begin(offsets, OP_TOPIC)

    def _begin(self, offsets: Offsets, topic: str) -> int:
        low, high = self._store.minOffset(topic, 0), self._store.maxOffset(topic, 0)
        return min(max(low, offsets.query(GROUP, topic, 0)), high)

    @property
    def end(self) -> int:
        """
        The offset of the next half that will come.
        """
        return self._store.maxOffset(HALF_TOPIC, 0)

    @property
    def reached(self) -> Reached:
        """
        Up to where nothing needs to be read again.
        """
        op = self._spans[0][0] if self._spans else self._op
        late = (*self._late.values(), *self._lateBefore.values())
        return Reached(self.first, min((op, *late)))

    # --- ops ---------------------------------------------------------------

    def read(self) -> bool:
        """
        Take in some of the ops that have come.

        @return: whether there are more.
        @raise StoreError: if the disk does not give them.
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
        # A half is in its queue before anything is said about it.
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
        Forget what is decided at the beginning, or gone from the disk.
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
        The next undecided halves between two offsets, some of them: each with its
        offset, and L{None} if it cannot be read.

        @return: an empty list if there are none.
        @raise StoreError: if the disk does not give them.
        """
        offsets: list[int] = []
        places: list[tuple[int, int]] = []
        room = _HALVES_SIZE
        at = self._next(start)
        while at < end and len(offsets) < _HALVES and room > 0:
            entries: list[tuple[int, int, int]]
            entries = list(self._store.mended(HALF_TOPIC, 0, at, min(_HALVES, end - at)))
            # None are read where the file of a queue is missing.
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
        Pass over a half that cannot be read.
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
        All undecided halves will be looked at.
        """
        self._lateBefore |= self._late
        self._late = {}

    def endPass(self) -> None:
        """
        They were: late decisions that were known before have had their effect.
        """
        self._lateBefore = {}
