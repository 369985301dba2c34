# SPDX-License-Identifier: Apache-2.0
"""
Ordinary sends, many at a time, with the compiled helper::

    what one read of a connection gave: frame frame frame fra
        |  decodeSends: what is in those that are ordinary SEND_MESSAGE_V2
        v
    store.putSent: their records, in one piece
        |
        v
    sendAnswers: all answers, in one piece --> on credit, as L{SendProcessor} has it
                                            \\-> SYNC_FLUSH: once all is on the disk

Batches come in the same way, and are put one by one; SYNC_FLUSH is not for them.

A message costs 3 us here and 10 there.  The first frame that is not ordinary ends the
journey: it and all behind it go the way of every request, which knows all the rules and
all that may be wrong, and learns here which topics are sound.  Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from txrocket.broker.stats import Stats
from txrocket.compiled import speed
from txrocket.errors import InvalidMessage, MalformedRecord, StoreError
from txrocket.processors.send import SendProcessor
from txrocket.processors.sendanswers import SendAnswers
from txrocket.protocol.command import Answers
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.follow import Put
from txrocket.store.messages import MessageStore
from txrocket.store.settings import FlushDiskType

__all__ = ["Express", "inTurn"]

# See L{Remoting<txrocket.remoting.node.Remoting>}.
Way: TypeAlias = Callable[[RemotingProtocol, bytes, int], int]


def inTurn(ways: Sequence[Way], peer: RemotingProtocol, data: bytes, start: int) -> int:
    """
    Have what a peer has sent dealt with by whoever can, until nobody can.

    @return: where what was not dealt with begins.
    """
    end = len(data)
    before = -1
    while before < start < end:
        before = start
        for way in ways:
            if start < end:
                start = way(peer, data, start)
    return start


class Express:
    """
    Takes ordinary messages.
    """

    def __init__(
        self,
        store: MessageStore,
        send: SendProcessor,
        answers: SendAnswers,
        stats: Stats,
        limit: int,
    ) -> None:
        """
        @param limit: how long a frame may be.
        """
        self._store = store
        self._flushed = store.flusher.flushed
        self._send = send
        self._answers = answers
        self._stats = stats
        self._limit = limit
        self._owed = 0  # messages whose answers wait for the disk
        self._cluster = f"CLUSTER\x01{send.broker.brokerClusterName}".encode()

    def take(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        """
        Deal with ordinary sends.

        @param data: what the peer has sent, from C{start} on.
        @return: where what was not dealt with begins.
        """
        sound, store = self._send.sound, self._store
        sound.refresh()
        sync = store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH
        if not sound.queues or (self._busy() if sync else self._flushed.waiting):
            return start
        assert speed is not None
        binary, sent = speed.decodeSends(data, start, self._limit, sound.queues, self._cluster)
        if not sent:
            return start
        try:
            puts, totals = store.putSent(sent, sound.fields, peer.host)
        except StoreError:
            # Each of them is told on the long way.
            return start
        if not puts:
            return start
        for topic, (count, size) in totals.items():
            self._stats.put(topic, count, size, count)
        answered = self._answers
        frames = speed.sendAnswers(
            sent,
            puts,
            answered.binaryHead if binary else answered.acceptedHead,
            answered.binaryTail if binary else answered.acceptedTail,
            binary,
        )
        if frames:
            answers = Answers(frames)
            if sync:
                self._await(peer, answers, puts)
            else:
                self._send.onCredit(answers)
                peer.answerTogether(answers)
        end: int = sent[len(puts) - 1][8]
        return end

    def takeBatches(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        """
        Deal with ordinary batches that need not wait for the disk.

        @param data: what the peer has sent, from C{start} on.
        @return: where what was not dealt with begins.
        """
        sound, store = self._send.sound, self._store
        sound.refresh()
        if (
            not sound.queues
            or self._flushed.waiting
            or store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH
        ):
            return start
        assert speed is not None
        binary, sent = speed.decodeSends(
            data, start, self._limit, sound.queues, self._cluster, True
        )
        if binary:
            return start
        for opaque, (topic, queueId), batch, properties, born, _, sysFlag, times, end in sent:
            try:
                appended = store.putBatch(
                    topic,
                    queueId,
                    batch,
                    properties,
                    bornTimestamp=born,
                    bornHost=peer.host,
                    sysFlag=sysFlag,
                    reconsumeTimes=times,
                )
            except (InvalidMessage, MalformedRecord, StoreError):
                # It is told on the long way.
                break
            sizes = appended.sizes
            self._stats.put(topic, len(sizes), sum(sizes))
            if opaque is not None:
                # At once: should the next not find room, this one may be lost with it.
                answer = Answers(self._answers.acceptedBatch(appended, queueId, opaque))
                self._send.onCredit(answer)
                peer.answerTogether(answer)
            start = end
        return start

    def _busy(self) -> bool:
        """
        Whether so much waits for the disk that some may have to be refused.
        """
        settings = self._send.settings
        return self._owed >= settings.sendThreadPoolQueueCapacity or (
            self._store.waiting[1] * 1000 > settings.osPageCacheBusyTimeOutMills
        )

    def _await(self, peer: RemotingProtocol, answers: Answers, puts: list[Put]) -> None:
        """
        Answer once all is on the disk.
        """
        _, _, offset, size, *_ = puts[-1]
        self._owed += len(puts)

        def answer(result: Failure | None) -> Answers:
            self._owed -= len(puts)
            # Who is gone is not answered.
            if isinstance(result, Failure) and not result.check(CancelledError):
                answers.change(partial(self._send.notStored, result))
            return answers

        peer.promiseTogether(self._store.stored(offset + size).addBoth(answer))
