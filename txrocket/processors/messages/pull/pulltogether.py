# SPDX-License-Identifier: Apache-2.0
"""
Pulls that find messages, many at a time::

    frames of one peer, one turn
        |  bulk.decodePulls: up to the first that no client would write so
        v
    may it pull, what does it want: asked once for all that say the same
        |
        v
    store.getRecent --> bulk.encodeHeads --> one write for the peer

A pull that is refused or finds no message goes through the rules alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from txrocket import bulk
from txrocket.broker.parts import Core
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.processors.messages.pull.pullchecks import PullChecks
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.headertemplates import MARK, responsePieces
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import Call, ProcessAll
from txrocket.store.read.getresult import GetMessageStatus

__all__ = ["COMMIT", "PullTogether"]

#: The bit of a pull's sysFlag that tells that the pull brings an offset to commit.
COMMIT: Final = 1

# The header of an answer that tells of messages.
_FOUND_PIECES: Final = responsePieces(
    dict.fromkeys(PullMessageResponseHeader(0, 0, 0, 0).toFields(), MARK),
    GetMessageStatus.FOUND.value,
)

# No such answer is longer than this without its messages.
_HEAD_LIMIT: Final = 512

# How many consumers are known at a time.
_KNOWN: Final = 10_000

# A consumer whose pulls say more than this is not remembered: they may have 16 MiB.
_LONGEST: Final = 4096

# Answers are written once they have this many bytes.  Sixteen pulls of 32 KiB go in one call
# of the system, which wakes the peer once.
_AT_ONCE: Final = 640 * 1024

# What stands in place of a field that is not there; see bulk.decodePulls.
_MISSING: Final = "\x02"


class _Permitted(NamedTuple):
    """
    What is asked once for all pulls that say the same.

    @ivar queues: how many queues there are to pull from.
    @ivar suggested: the broker to pull from next.
    @ivar commits: whether pulls bring an offset to commit.
    """

    group: str
    topic: str
    queues: int
    matches: Callable[[int], bool] | None
    suggested: int
    commits: bool


class PullTogether:
    """
    Gives messages to many consumers.
    """

    def __init__(self, core: Core, checks: PullChecks, offsets: ConsumerOffsets) -> None:
        self.core = core
        self.checks = checks
        self.offsets = offsets
        self._store = core.store
        self._stats = core.stats
        self._turn = core.remoting.turn
        self._frameLimit = core.remoting.limits.frame
        self._headers: dict[bytes, PullMessageRequestHeader] = {}

    def codes(self) -> dict[int, ProcessAll]:
        """
        What is served.
        """
        return {RequestCode.PULL_MESSAGE: self.pullAll}

    def pullAll(self, calls: list[Call], starts: list[int]) -> None:
        """
        PULL_MESSAGE, many at a time: those that find messages.
        """
        permitted: dict[bytes, _Permitted] = {}
        for index, call in enumerate(calls):
            self._pullSome(call, permitted, starts, index)

    def _pullSome(
        self, call: Call, permitted: dict[bytes, _Permitted], starts: list[int], index: int
    ) -> None:
        """
        Serve pulls of one peer, up to the first that is refused, finds no message, or comes
        when the peer does not read.

        @param permitted: what is known of consumers in this turn.
        @param index: which of C{starts} is the peer's.
        """
        peer, _, data, start, end = call
        get, got, limit = self._store.getRecent, self._stats.got, self._frameLimit - _HEAD_LIMIT
        rows: list[tuple[int | str, ...]] = []
        bodies: list[bytes] = []
        size = 0
        # Behind answers that wait for the commit, so that each peer is answered in order.
        write = peer.outbox.answer if not self._turn.hasReplies else self._later(peer)
        for pull in bulk.decodePulls(data, start, end):
            opaque, consumer, queueId, offset, most, commitOffset, stop = pull
            try:
                if consumer not in permitted:
                    permitted[consumer] = self._permit(consumer)
                group, topic, queues, matches, suggested, commits = permitted[consumer]
                found = get(topic, queueId, offset, most, matches) if queueId < queues else None
            except Exception:
                # Whatever it is, the rules meet it again, and tell the consumer.
                break
            if found is None:
                break
            records, minOffset, maxOffset = found.data, found.minOffset, found.maxOffset
            length = len(records)
            if length > limit:
                break
            rows.append((suggested, found.nextOffset, minOffset, maxOffset, opaque, length))
            bodies.append(records)
            size += length
            got(group, topic, found.count, length)
            if commits:
                self.offsets.commitWithin(
                    maxOffset, group, topic, queueId, commitOffset, peer.address
                )
            start = stop
            if size > _AT_ONCE:
                write(*_frames(rows, bodies))
                starts[index] = start
                rows, bodies, size = [], [], 0
                if peer.outbox.isFull or self._turn.hasReplies:
                    break
        if rows:
            write(*_frames(rows, bodies))
            starts[index] = start

    def _later(self, peer: RemotingProtocol) -> Callable[..., None]:
        return lambda *pieces: self._turn.replyAll(lambda: peer.outbox.answer(*pieces))

    def _permit(self, consumer: bytes) -> _Permitted:
        """
        Whether a consumer may pull, and which messages it wants.

        @param consumer: what all its pulls have in common.
        @raise ResponseError: if it may not.
        """
        header = self._headers.get(consumer)
        if header is None:
            if len(self._headers) >= _KNOWN:
                self._headers.clear()
            header = _headerOf(consumer)
            if len(consumer) <= _LONGEST:
                self._headers[consumer] = header
        group, config, wanted = self.checks.permit(header)
        return _Permitted(
            header.consumerGroup,
            header.topic,
            # A filter that looks into messages has to read them.
            config.readQueueNums if wanted.accepts is None else 0,
            wanted.matches,
            self.checks.suggested(group, fromDisk=False),
            # A slave takes no commits with pulls, as in Java.
            bool(header.sysFlag & COMMIT) and self.checks.role.isMaster,
        )


def _frames(rows: list[tuple[int | str, ...]], bodies: list[bytes]) -> Iterator[bytes]:
    """
    Answers that tell of messages, each in two pieces: the messages are not copied.
    """
    heads = bulk.encodeHeads(_FOUND_PIECES, rows)
    return chain.from_iterable(zip(heads, bodies, strict=True))


def _headerOf(consumer: bytes) -> PullMessageRequestHeader:
    """
    What pulls of a consumer have in common, as a header.
    """
    parts = consumer.decode().split("\x01")
    group, topic, sysFlag, version, subscription, kind = parts
    return PullMessageRequestHeader(
        consumerGroup=group,
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=0,
        sysFlag=int(sysFlag),
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=int(version),
        subscription=None if subscription == _MISSING else subscription,
        expressionType=None if kind == _MISSING else kind,
    )
