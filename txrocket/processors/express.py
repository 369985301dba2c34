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
from typing import Any, NamedTuple, TypeAlias

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


class _Sends(NamedTuple):
    """
    What a peer has sent.

    @ivar binary: what its headers are.
    @ivar sent: the ordinary sends at the beginning, as the compiled helper gives them.
    """

    peer: RemotingProtocol
    data: bytes
    binary: bool
    sent: list[Any]

    def endOf(self, count: int) -> int:
        """
        Where so many sends end.
        """
        return self.sent[count - 1][8] if count else 0


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
        sends = self._decode(peer, data, start)
        count = self._put([sends]) if sends.sent else 0
        if not count:
            return start
        peer.mayWait = True
        return sends.endOf(count)

    def takeTogether(self, reads: list[tuple[RemotingProtocol, bytes]]) -> None:
        """
        Deal with what several peers have sent.  Who has more for us than ordinary sends
        goes its own way.
        """
        ready = self._ready()
        taken = []
        for peer, data in reads:
            sends = self._decode(peer, data, 0) if ready else None
            if sends is not None and sends.sent and sends.endOf(len(sends.sent)) == len(data):
                taken.append(sends)
            else:
                peer.mayWait = False
                peer.read(data)
        left = self._put(taken) if taken else 0
        for sends in taken:
            count = min(left, len(sends.sent))
            left -= count
            if count < len(sends.sent):
                sends.peer.read(sends.data[sends.endOf(count) :])

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

    def _decode(self, peer: RemotingProtocol, data: bytes, start: int) -> _Sends:
        assert speed is not None
        binary, sent = speed.decodeSends(
            data, start, self._limit, self._send.sound.queues, self._cluster
        )
        return _Sends(peer, data, binary, sent)

    def _put(self, taken: list[_Sends]) -> int:
        """
        Put the messages of some peers, and answer.

        @return: how many there was room for.
        """
        assert speed is not None
        sent = taken[0].sent if len(taken) == 1 else [one for each in taken for one in each.sent]
        hosts = [each.peer.host for each in taken for _ in each.sent]
        try:
            puts, totals = self._store.putSent(sent, self._send.sound.fields, hosts)
        except StoreError:
            # Each of them is told on the long way.
            return 0
        for topic, (count, size) in totals.items():
            self._stats.put(topic, count, size, count)
        answered, sync = self._answers, self._isSync()
        owed: list[tuple[RemotingProtocol, Answers]] = []
        at = 0
        for peer, _, binary, own in taken:
            frames = speed.sendAnswers(
                own,
                puts[at : at + len(own)],
                answered.binaryHead if binary else answered.acceptedHead,
                answered.binaryTail if binary else answered.acceptedTail,
                binary,
            )
            at += len(own)
            if frames:
                answers = Answers(frames)
                if sync:
                    owed.append((peer, answers))
                else:
                    self._send.onCredit(answers)
                    peer.answerTogether(answers)
        if owed:
            self._await(owed, puts)
        return len(puts)

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

    def _await(self, owed: list[tuple[RemotingProtocol, Answers]], puts: list[Put]) -> None:
        """
        Answer once all is on the disk.
        """
        _, _, offset, size, *_ = puts[-1]
        self._owed += len(puts)

        def answer(result: Failure | None) -> None:
            self._owed -= len(puts)
            for peer, answers in owed:
                if isinstance(result, Failure):
                    answers.change(partial(self._send.notStored, result))
                # Who is gone is not answered.
                peer.answerTogether(answers)

        self._store.stored(offset + size).addBoth(answer)
