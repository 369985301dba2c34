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

Who has one message under way on each of many connections is helped as well: what several
of them send in one turn of the reactor is put in one piece (L{Express.takeTogether}), and
answered to each.

Batches come in the same way, and are put one by one; SYNC_FLUSH is not for them.

A message costs 3 us here and 10 there.  The first frame that is not ordinary ends the
journey: it and all behind it go the way of every request, which knows all the rules and
all that may be wrong, and learns here which topics are sound.  Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from twisted.python.failure import Failure

from txrocket.broker.stats import Stats
from txrocket.compiled import speed
from txrocket.errors import InvalidMessage, MalformedRecord, StoreError
from txrocket.processors.send import SendProcessor
from txrocket.processors.sendanswers import SendAnswers, unavailable
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
        if not self._ready():
            return start
        assert speed is not None
        binary, sent = speed.decodeSends(
            data, start, self._limit, self._send.sound.queues, self._cluster
        )
        puts = self._put(sent, [peer.host] * len(sent)) if sent else []
        if not puts:
            return start
        frames = speed.sendAnswers(sent, puts, *self._template(binary), binary)
        sync = self._isSync()
        if frames:
            answers = Answers(frames)
            if sync:
                self._await(peer, answers, puts)
            else:
                self._send.onCredit(answers)
                peer.answerTogether(answers)
        end: int = sent[len(puts) - 1][8]
        # Where the disk is waited for, nobody need wait for anything else.
        peer.mayWait = len(puts) == 1 and not start and end == len(data) and not sync
        return end

    def takeTogether(self, reads: list[tuple[RemotingProtocol, bytes]]) -> None:
        """
        Deal with what several peers have sent.  Who has anything but one ordinary send
        for us is dealt with alone.
        """
        assert speed is not None
        decode, limit, cluster = speed.decodeSends, self._limit, self._cluster
        known = self._send.sound.queues if self._ready() and not self._isSync() else {}
        senders: dict[bool, list[tuple[RemotingProtocol, bytes]]] = {False: [], True: []}
        sends: dict[bool, list[Any]] = {False: [], True: []}
        others = []
        for read in reads:
            peer, data = read
            binary, sent = decode(data, 0, limit, known, cluster)
            if len(sent) == 1 and sent[0][8] == len(data):
                senders[binary].append(read)
                sends[binary] += sent
            else:
                peer.mayWait = False
                others.append(read)
        for binary, sent in sends.items():
            count = self._putEach(binary, senders[binary], sent) if sent else 0
            others += senders[binary][count:]
        # Last, for they may change what was looked at above.
        for peer, data in others:
            peer.read(data)

    def _putEach(
        self, binary: bool, senders: list[tuple[RemotingProtocol, bytes]], sent: list[Any]
    ) -> int:
        """
        Put a message of each of several peers.

        @return: how many there was room for.
        """
        assert speed is not None
        losses = self._store.losses
        puts = self._put(sent, [peer.host for peer, _ in senders])
        if not puts:
            return 0
        frames = speed.sendAnswers(sent, puts, *self._template(binary), binary, True)
        # On credit, and paid at once: to keep books on it takes 3 us for each.
        lost = self._store.settle(losses)
        for (peer, _), frame in zip(senders, frames, strict=False):
            # Who wants no answer has an empty one.
            if not frame:
                continue
            if lost is None:
                peer.answerNow(frame)
            else:
                answers = Answers(frame)
                answers.change(partial(self._send.lost, unavailable(lost)))
                peer.answerTogether(answers)
        return len(puts)

    def _ready(self) -> bool:
        """
        Whether anything can be taken.
        """
        sound = self._send.sound
        sound.refresh()
        waits = self._busy() if self._isSync() else self._flushed.waiting
        return bool(sound.queues) and not waits

    def _isSync(self) -> bool:
        return self._store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH

    def _template(self, binary: bool) -> tuple[bytes, bytes]:
        """
        What is the same in all answers.
        """
        answers = self._answers
        if binary:
            return answers.binaryHead, answers.binaryTail
        return answers.acceptedHead, answers.acceptedTail

    def _put(self, sent: list[Any], hosts: list[bytes]) -> list[Put]:
        """
        Put messages.

        @return: those for which there was room.
        """
        try:
            puts, totals = self._store.putSent(sent, self._send.sound.fields, hosts)
        except StoreError:
            # Each of them is told on the long way.
            return []
        for topic, (count, size) in totals.items():
            self._stats.put(topic, count, size, count)
        return puts

    def takeBatches(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        """
        Deal with ordinary batches that need not wait for the disk.

        @param data: what the peer has sent, from C{start} on.
        @return: where what was not dealt with begins.
        """
        if self._isSync() or not self._ready():
            return start
        assert speed is not None
        store = self._store
        binary, sent = speed.decodeSends(
            data, start, self._limit, self._send.sound.queues, self._cluster, True
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

        def answer(result: Failure | None) -> None:
            self._owed -= len(puts)
            if isinstance(result, Failure):
                answers.change(partial(self._send.notStored, result))
            # Who is gone is not answered.
            peer.answerTogether(answers)

        self._store.stored(offset + size).addBoth(answer)
