# SPDX-License-Identifier: Apache-2.0
"""
Messages that need no rule, many at a time::

    frames of all peers, one turn
        |  bulk.decodeSends: up to the first of each peer that needs a rule
        v
    store.appendMany: their records, in one piece
        |
        v  commit: store.write(), once for the turn
    bulk.encodeSendResponses --> one write for each peer
                              \\-> SYNC_FLUSH, SYNC_MASTER: once all of the turn is on the
                                  disk, and on a slave

A message needs no rule if an earlier one to its topic passed all checks and nothing has
changed since (L{CheckedTopics}), and if no property of it has a meaning for the broker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twisted.python.failure import Failure

from txrocket import bulk
from txrocket.broker.replication.durability import LATE
from txrocket.broker.settings import BrokerSettings
from txrocket.broker.stats import Stats
from txrocket.bulk import AppendedRecord, DecodedSends, SentMessage
from txrocket.errors import (
    InvalidMessage,
    MalformedRecord,
    ResponseError,
    StoreError,
    SystemBusy,
)
from txrocket.processors.messages.send.checkedtopics import CheckedTopics
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.processors.messages.send.sendresponse import SendResponses, unavailable
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.errorresponse import printableRemark
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import Call, ProcessAll, Turn
from txrocket.store.log.append import Appended
from txrocket.store.log.write import Write
from txrocket.store.messagestore import MessageStore

__all__ = ["SendTogether", "clusterProperty"]


def clusterProperty(settings: BrokerSettings) -> str:
    """
    The property that names the cluster in every stored message.
    """
    return f"CLUSTER\x01{settings.brokerClusterName}"


# A batch above this size goes by the rules: the ids of its messages may be too long for a
# header, and then its producer gets an error.
_LARGE_BATCH: Final = 1024 * 1024


class _Appended(NamedTuple):
    """
    Messages of one turn that were appended and are not answered yet.

    @ivar sent: the messages, by the calls that they came with.
    @ivar records: where each of them went.
    @ivar binary: whether their headers, and so their answers', are in the binary form.
    @ivar write: the write that brings them to the files.
    """

    calls: list[Call]
    sent: DecodedSends
    records: list[AppendedRecord]
    binary: bool
    write: Write


class _AppendedBatch(NamedTuple):
    """
    A batch that was appended and is not answered yet.

    @ivar opaque: L{None} if the producer wants no response.
    """

    peer: RemotingProtocol
    opaque: int | None
    queueId: int
    appended: Appended
    binary: bool
    write: Write


class SendTogether:
    """
    Appends messages that need no rule.

    @ivar checked: topics whose messages need no rule.
    """

    def __init__(
        self,
        store: MessageStore,
        checks: SendChecks,
        responses: SendResponses,
        stats: Stats,
        turn: Turn,
    ) -> None:
        self.store = store
        self.checks = checks
        self.responses = responses
        self.stats = stats
        self.turn = turn
        self.checked = CheckedTopics(checks)
        self._durability = checks.durability
        self._flushed = store.flusher.flushed
        self._cluster = clusterProperty(checks.broker.now).encode()

    def codes(self) -> dict[int, ProcessAll]:
        """
        What is served.
        """
        return {
            RequestCode.SEND_MESSAGE_V2: self.sendAll,
            RequestCode.SEND_BATCH_MESSAGE: self.sendBatches,
        }

    def sendAll(self, calls: list[Call], starts: list[int]) -> None:
        """
        SEND_MESSAGE_V2, many at a time.
        """
        if not self._ready():
            return
        forms = bulk.decodeSends(calls, self.checked.queues, self._cluster, False)
        for binary, sent in enumerate(forms):
            if sent.messages:
                self._appendAll(calls, sent, bool(binary), starts)

    def _appendAll(
        self, calls: list[Call], sent: DecodedSends, binary: bool, starts: list[int]
    ) -> None:
        store = self.store
        try:
            _, records, totals = store.appendMany(sent.messages, sent.hosts, self.checked.fields)
        except (InvalidMessage, StoreError):
            # Each producer is told of it by the rules.
            return
        if not records:
            return
        # Nothing comes between the append and this: whatever fails later, the messages that
        # are in the log are answered, and not appended again.
        appended = _Appended(calls, sent, records, binary, store.pendingWrite)
        self.turn.replyAll(lambda: self._answerAll(appended))
        left, done = len(records), 0
        for index, count in sent.owners:
            taken = min(count, left)
            if not taken:
                break
            done += taken
            left -= taken
            starts[index] = sent.messages[done - 1][8]
        for topic, (count, size) in totals.items():
            self.stats.put(topic, count, size, count)

    def _answerAll(self, appended: _Appended) -> None:
        """
        Answer once the turn's messages are in the files, or, with SYNC_FLUSH or SYNC_MASTER,
        on the disk or on a slave.
        """
        if appended.write.error is not None:
            self._refuseAll(appended, unavailable(appended.write.error))
        elif self._durability.isSync:
            _, _, offset, size, *_ = appended.records[-1]
            self.checks.together += len(appended.records) - 1
            stored = self._durability.stored(offset + size)
            stored.addBoth(self._onDisk, appended)
        else:
            self._accept(appended)

    def _onDisk(self, result: Failure | None, appended: _Appended) -> None:
        self.checks.together -= len(appended.records) - 1
        if result is None:
            self.turn.replyAll(lambda: self._accept(appended))
            return
        result.trap(*LATE, StoreError)
        error = result.value
        if isinstance(error, LATE):
            self._refuseAll(appended, error, located=True)
        else:
            assert isinstance(error, StoreError)
            self._refuseAll(appended, unavailable(error))

    def _accept(self, appended: _Appended) -> None:
        calls, sent, records, binary, _ = appended
        head, tail = self.responses.template(binary)
        answers = bulk.encodeSendResponses(sent.messages, records, sent.owners, head, tail, binary)
        for (index, _), frames in zip(sent.owners, answers, strict=False):
            # A oneway send has no answer.
            if frames:
                calls[index].peer.outbox.answer(frames)

    def _refuseAll(
        self, appended: _Appended, error: ResponseError, *, located: bool = False
    ) -> None:
        """
        Answer each message with an error.

        @param located: whether the message is in the log, so that its producer learns where.
        """
        calls, sent, records, binary, _ = appended
        form = SerializeType.ROCKETMQ if binary else SerializeType.JSON
        position = 0
        for index, count in sent.owners:
            for message, record in zip(
                sent.messages[position : position + count],
                records[position : position + count],
                strict=False,
            ):
                (_, queueId), queueOffset, offset, *_ = record
                if located:
                    response = self.responses.told(
                        self.responses.idOf(offset), queueId, queueOffset
                    )
                    response.code = error.code
                    response.remark = printableRemark(error.remark)
                else:
                    response = responseCommand()
                    self.lost(error, response)
                if message[0] is not None:
                    response.opaque, response.serializeType = message[0], form
                    calls[index].peer.outbox.answer(response.encode())
            position += count

    def sendBatches(self, calls: list[Call], starts: list[int]) -> None:
        """
        SEND_BATCH_MESSAGE, many at a time.
        """
        if not self._ready():
            return
        forms = bulk.decodeSends(calls, self.checked.queues, self._cluster, True)
        if not any(sent.messages for sent in forms):
            return
        # Whatever fails later, those that are in the list are answered.
        appended: list[_AppendedBatch] = []
        self.turn.replyAll(lambda: self._answerBatches(appended))
        for binary, (messages, _, owners) in enumerate(forms):
            position = 0
            for index, count in owners:
                peer = calls[index].peer
                for message in messages[position : position + count]:
                    batch = self._appendBatch(message, peer, bool(binary))
                    if batch is None:
                        break
                    appended.append(batch)
                    starts[index] = message[8]
                    topic, stored = message[1][0], batch.appended
                    self.stats.put(topic, len(stored.sizes), stored.end - stored.offset)
                position += count

    def _appendBatch(
        self, message: SentMessage, peer: RemotingProtocol, binary: bool
    ) -> _AppendedBatch | None:
        """
        Append a batch.

        @return: L{None} if that is not possible; then the rules tell the producer why.
        """
        if len(message[2]) > _LARGE_BATCH:
            return None
        try:
            appended = self.store.appendBatch(message, peer.host)
        except (InvalidMessage, MalformedRecord, StoreError):
            return None
        opaque, (_, queueId), *_ = message
        write = self.store.pendingWrite
        return _AppendedBatch(peer, opaque, queueId, appended, binary, write)

    def _answerBatches(self, batches: list[_AppendedBatch]) -> None:
        """
        Answer once the turn's batches are as safe as promised, all in one wait.
        """
        lost = [each for each in batches if each.write.error is not None]
        if len(lost) == len(batches) or not self._durability.isSync:
            self._acceptBatches(batches)
            return
        self.checks.together += len(batches) - 1
        stored = self._durability.stored(max(each.appended.end for each in batches))
        stored.addBoth(self._batchesOnDisk, batches)

    def _batchesOnDisk(self, result: Failure | None, batches: list[_AppendedBatch]) -> None:
        self.checks.together -= len(batches) - 1
        if result is None:
            self.turn.replyAll(lambda: self._acceptBatches(batches))
            return
        result.trap(*LATE, StoreError)
        error = result.value
        assert isinstance(error, (*LATE, StoreError))
        self._acceptBatches(batches, error)

    def _acceptBatches(
        self, batches: list[_AppendedBatch], error: ResponseError | StoreError | None = None
    ) -> None:
        """
        Answer batches.

        @param error: why they are not as safe as promised, or lost.
        """
        frames: dict[RemotingProtocol, list[bytes]] = {}
        for peer, opaque, queueId, appended, binary, write in batches:
            if opaque is None:
                continue
            why = write.error or error
            if why is None and not binary:
                frame = self.responses.acceptedBatch(appended, queueId, opaque)
            else:
                response = self.responses.accepted(appended, queueId)
                if isinstance(why, StoreError):
                    self.lost(unavailable(why), response)
                elif why is not None:
                    response.code = why.code
                    response.remark = printableRemark(why.remark)
                response.opaque = opaque
                response.serializeType = SerializeType.ROCKETMQ if binary else SerializeType.JSON
                frame = response.encode()
            frames.setdefault(peer, []).append(frame)
        for peer, pieces in frames.items():
            peer.outbox.answer(*pieces)

    def _ready(self) -> bool:
        """
        Whether messages can be appended without a look at the rules.
        """
        self.checked.refresh()
        if not self.checked.queues:
            return False
        if not self._durability.isSync:
            return not self._flushed.waiting
        try:
            self.checks.checkBusy()
        except SystemBusy:
            # Each producer is told of it by the rules.
            return False
        return True

    def lost(self, error: ResponseError, response: RemotingCommand) -> None:
        """
        Make of an answer one that tells of a message that is not stored.
        """
        self.stats.failed()
        self.responses.refuse(response, error)
