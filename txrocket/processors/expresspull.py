# SPDX-License-Identifier: Apache-2.0
"""
Pulls that find messages, many at a time, with the compiled helper::

    what one read of a connection gave: frame frame frame fra
        |  decodePulls: what is in those that are PULL_MESSAGE with a JSON header
        v
    may it pull, what does it want: asked once for all that say the same
        |
        v
    store.get --> answers, all of them in one write

As L{txrocket.processors.express} has it for sends, the first pull that is refused, finds
nothing or has a header of another kind ends the journey: it and all behind it go the way
of every request.  A pull costs 8 us here, and 14 there, without what the system takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from txrocket.broker.offsets import Offsets
from txrocket.broker.stats import Stats
from txrocket.compiled import speed
from txrocket.processors.pull import COMMIT, FOUND_HEADER, PullProcessor
from txrocket.protocol.command import Answers, jsonHead
from txrocket.protocol.headers import PullMessageRequestHeader
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore

__all__ = ["ExpressPull"]

# How many consumers are known at a time.
_KNOWN: Final = 10_000

# Of a consumer whose pulls say more than that nothing is kept: they may have 16 MiB.
_LONGEST: Final = 4096

# Answers are written once they have so many bytes.  Sixteen pulls of 32 KiB go in one call
# of the system, which wakes the peer once: in calls of three each costs 4 us more, of 26.
_AT_ONCE: Final = 640 * 1024

# What the helper has in place of a field that is not there.
_MISSING: Final = "\x02"


class _Asked(NamedTuple):
    """
    What was asked once for all pulls that say the same.

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


class ExpressPull:
    """
    Takes pulls that find messages.
    """

    def __init__(
        self, store: MessageStore, pull: PullProcessor, offsets: Offsets, stats: Stats, limit: int
    ) -> None:
        """
        @param limit: how long a frame may be.
        """
        self._store = store
        self._pull = pull
        self._offsets = offsets
        self._stats = stats
        self._limit = limit
        self._headers: dict[bytes, PullMessageRequestHeader] = {}

    def take(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        """
        Deal with pulls.

        @param data: what the peer has sent, from C{start} on.
        @return: where what was not dealt with begins.
        """
        assert speed is not None
        pulls = [] if peer.isFull else speed.decodePulls(data, start, self._limit)
        if not pulls:
            return start
        near, got, limit = self._store.near, self._stats.got, self._limit
        commit = self._offsets.commitWithin
        asked: dict[bytes, _Asked] = {}
        pieces: list[bytes] = []
        size = 0
        for opaque, who, queueId, offset, most, commitOffset, end in pulls:
            try:
                if who not in asked:
                    asked[who] = self._ask(who)
                group, topic, queues, matches, suggested, commits = asked[who]
                found = near(topic, queueId, offset, most, matches) if queueId < queues else None
            except Exception:
                # Whatever it is, it is met again, and told, on the long way.
                break
            if found is None:
                break
            records = found.data
            head = jsonHead(
                FOUND_HEADER
                % (suggested, found.nextOffset, found.minOffset, found.maxOffset, opaque),
                len(records),
            )
            length = len(head) + len(records)
            if length > limit:
                break
            pieces.append(head)
            pieces.append(records)
            size += length
            got(group, topic, found.count, len(records))
            if commits:
                commit(found.maxOffset, group, topic, queueId, commitOffset, peer.address)
            start = end
            if size > _AT_ONCE:
                peer.answerTogether(Answers(*pieces))
                pieces, size = [], 0
                if peer.isFull:
                    break
        if pieces:
            peer.answerTogether(Answers(*pieces))
        return start

    def _ask(self, who: bytes) -> _Asked:
        """
        Whether and what pulls of a consumer may have.

        @raise ResponseError: if they may not.
        """
        header = self._headers.get(who)
        if header is None:
            if len(self._headers) >= _KNOWN:
                self._headers.clear()
            header = _headerOf(who)
            if len(who) <= _LONGEST:
                self._headers[who] = header
        group, config, wanted = self._pull.permit(header)
        return _Asked(
            header.consumerGroup,
            header.topic,
            # What looks into messages has to read them.
            config.readQueueNums if wanted.accepts is None else 0,
            wanted.matches,
            self._pull.suggested(group, fromDisk=False),
            bool(header.sysFlag & COMMIT),
        )


def _headerOf(who: bytes) -> PullMessageRequestHeader:
    """
    What pulls of a consumer have in common, as a header.
    """
    parts = who.decode().split("\x01")
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
