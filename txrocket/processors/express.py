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

A message costs 3 us here and 10 there.  The first frame that is not ordinary ends the
journey: it and all behind it go the way of every request, which knows all the rules and
all that may be wrong, and learns here which topics are sound.  Nothing is decided here.
"""

from __future__ import annotations

from txrocket.broker.stats import Stats
from txrocket.compiled import speed
from txrocket.errors import StoreError
from txrocket.processors.send import SendProcessor
from txrocket.processors.sendanswers import SendAnswers
from txrocket.protocol.command import Answers
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore
from txrocket.store.settings import FlushDiskType

__all__ = ["Express"]


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
        self._cluster = f"CLUSTER\x01{send.broker.brokerClusterName}".encode()

    def take(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        """
        Deal with ordinary sends.

        @param data: what the peer has sent, from C{start} on.
        @return: where what was not dealt with begins.
        """
        sound = self._send.sound
        sound.refresh()
        if (
            not sound.queues
            or self._store.settings.flushDiskType is not FlushDiskType.ASYNC_FLUSH
            or self._flushed.waiting
        ):
            return start
        assert speed is not None
        _, sent = speed.decodeSends(data, start, self._limit, sound.queues, self._cluster)
        if not sent:
            return start
        try:
            puts, totals = self._store.putSent(sent, sound.fields, peer.host)
        except StoreError:
            # Each of them is told on the long way.
            return start
        if not puts:
            return start
        for topic, (count, size) in totals.items():
            self._stats.put(topic, count, size, count)
        frames = speed.sendAnswers(
            sent, puts, self._answers.acceptedHead, self._answers.acceptedTail
        )
        if frames:
            answers = Answers(frames)
            self._send.onCredit(answers)
            peer.answerTogether(answers)
        end: int = sent[len(puts) - 1][8]
        return end
