# SPDX-License-Identifier: Apache-2.0
"""
SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE; Java's C{SendMessageProcessor}::

    needs no rule? --> L{SendTogether}, with the others of the turn
         | else
    checks --> properties --> reroute --> store.append
         |
    commit: store.write(), once for the turn --> response
                                              \\-> SYNC_FLUSH, SYNC_MASTER: once it is on
                                                  the disk, and on a slave
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.broker.interfaces import SendMessageContext
from txrocket.broker.names import RETRY_PREFIX
from txrocket.broker.replication.durability import LATE
from txrocket.broker.transaction.opmessages import HALF_TOPIC
from txrocket.bulk import SentMessage
from txrocket.errors import (
    InvalidMessage,
    MalformedRecord,
    MessageIllegal,
    ResponseError,
    StoreError,
)
from txrocket.model import TopicFilterType
from txrocket.processors.messages.send.reroute import TRANSACTION, SendReroute
from txrocket.processors.messages.send.sendhooks import SendHooks
from txrocket.processors.messages.send.sendresponse import unavailable
from txrocket.processors.messages.send.sendtogether import SendTogether, clusterProperty
from txrocket.processors.messages.send.storedproperties import SPECIAL, storedProperties, undelayed
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand, responseCommand
from txrocket.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record import (
    MULTI_TAGS_FLAG,
)
from txrocket.remoting.errorresponse import printableRemark
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import ProcessAll
from txrocket.store.log.append import Appended
from txrocket.store.log.write import Write

__all__ = ["SendProcessor"]


class SendProcessor:
    """
    Appends messages that producers send.
    """

    def __init__(
        self,
        together: SendTogether,
        reroute: SendReroute,
        hooks: SendHooks,
        *,
        choose: Callable[[int], int],
    ) -> None:
        """
        @param together: serves the messages that need no rule.
        @param choose: picks a number below the one it is given.
        """
        self._together = together
        self._store = together.store
        self._checks = together.checks
        self._durability = together.checks.durability
        self._responses = together.responses
        self._stats = together.stats
        self._checked = together.checked
        self._topics = together.checks.topics
        self._reroute = reroute
        self._hooks = hooks
        self._choose = choose
        self._cluster = clusterProperty(together.checks.broker.now)
        # Answers to messages that this turn's commit brings to the files.
        self._uncommitted: list[tuple[RemotingCommand, Write]] = []
        together.turn.onCommit(self._commit)

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.sendV2,
            RequestCode.SEND_BATCH_MESSAGE: self.sendBatch,
        }

    def send(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_MESSAGE.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeader))

    def sendV2(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_MESSAGE_V2.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeaderV2))

    def sendBatch(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_BATCH_MESSAGE.
        """
        header = request.decodeHeader(SendMessageRequestHeaderV2)
        header.batch = True
        return self._serve(request, peer, header)

    def codesOfMany(self) -> dict[int, ProcessAll]:
        """
        What is served many at a time.
        """
        # A hook wants to see each message.
        return {} if self._hooks else self._together.codes()

    # --- one message, by all rules ---------------------------------------

    def _commit(self) -> None:
        """
        Bring this turn's messages to the files.  If that fails, the answers, which are not
        encoded yet, tell of it.
        """
        self._store.commit()
        uncommitted, self._uncommitted = self._uncommitted, []
        for response, write in uncommitted:
            if write.error is not None:
                self._together.lost(unavailable(write.error), response)

    def _afterCommit(self, response: RemotingCommand) -> None:
        """
        Have an answer tell of it if the message cannot be committed.
        """
        self._uncommitted.append((response, self._store.pendingWrite))

    def _serve(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        try:
            return self._send(request, peer, header)
        except ResponseError as error:
            refused: ResponseError = error
        except (InvalidMessage, MalformedRecord) as error:
            refused = MessageIllegal(str(error))
        except StoreError as error:
            self._stats.failed()
            refused = unavailable(error)
        response = responseCommand()
        self._responses.refuse(response, refused)
        return response

    def _send(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        self._checks.admit()
        topic, queueId, batch = header.topic, header.queueId, header.batch
        config = self._checks.topic(header, peer)
        if queueId < 0:
            queueId = self._choose(config.writeQueueNums)
        properties, body, flag = header.properties, request.body, header.flag
        bornTimestamp, sysFlag = header.bornTimestamp, header.sysFlag
        sending = None
        if self._hooks:
            sending = _context(header, queueId, body, peer.address)
            config = self._hooks.before(sending, config)
            topic, queueId, flag = sending.topic, sending.queueId, sending.flag
            properties, body = sending.properties, sending.body
            bornTimestamp = sending.bornTimestamp
        text, waits = storedProperties(properties, self._cluster)
        goesTo = queueId
        if topic.startswith(RETRY_PREFIX):
            # The consumer commits past a message once it is in the retry topic, so always wait
            # for the disk, even with WAIT=false.
            waits = True
            dead = self._reroute.dead(topic, header, request.version)
            if dead is not None:
                topic, goesTo, text = dead, 0, undelayed(text)
        if config.topicFilterType is TopicFilterType.MULTI_TAG:
            sysFlag |= MULTI_TAGS_FLAG
        try:
            propertiesData = text.encode()
        except UnicodeEncodeError:
            raise MessageIllegal("properties: half of a surrogate pair is no text") from None
        goes = topic
        if sysFlag & TRANSACTION or SPECIAL(text):
            goes, goesTo, propertiesData = self._reroute.aside(topic, goesTo, text, sysFlag, batch)
            if goes == HALF_TOPIC:
                sysFlag &= ~TRANSACTION
        message = goes, goesTo, body, propertiesData
        born, times = (bornTimestamp, peer.host), header.reconsumeTimes or 0
        if batch:
            appended = self._appendBatch(message, born, sysFlag, times)
        else:
            appended = self._store.put(*message, *born, flag, sysFlag, times)
        sizes = appended.sizes
        self._stats.put(goes, len(sizes), sizes[0] if len(sizes) == 1 else sum(sizes))
        response = self._responses.accepted(appended, queueId)
        if sending is not None:
            self._hooks.after(sending, response)
        return self._answer(request, response, appended, topic, waits)

    def _appendBatch(
        self,
        message: tuple[str, int, bytes, bytes],
        born: tuple[int, bytes],
        sysFlag: int,
        reconsumeTimes: int,
    ) -> Appended:
        topic, queueId, body, properties = message
        bornTimestamp, bornHost = born
        rest = properties, bornTimestamp, 0, sysFlag, reconsumeTimes
        sent = SentMessage(None, (topic, queueId), body, *rest)
        return self._store.appendBatch(sent, bornHost)

    def _answer(
        self,
        request: RemotingCommand,
        response: RemotingCommand,
        appended: Appended,
        topic: str,
        waits: bool,
    ) -> Answer:
        if request.flag & ONEWAY_FLAG:
            return response
        sync = waits and self._durability.isSync
        unsaved = topic in self._topics.unsaved
        if not sync and not unsaved:
            self._note(topic)
            self._afterCommit(response)
            return response
        stored = self._durability.stored(appended.end)
        if unsaved:
            stored.addCallback(lambda none: self._saved(topic))
        else:
            self._note(topic)
        stored.addErrback(self.notStored, response)
        answer: Deferred[RemotingCommand] = stored.addCallback(lambda none: response)
        return answer

    def _note(self, topic: str) -> None:
        """
        The next message to this topic needs no rule.
        """
        config = self._topics.get(topic)
        if (
            config is not None
            # The topic is known already.
            and config is not self._checked.configs.get(topic)
            and not self._hooks
            and not self._checks.settings.now.startAcceptSendRequestTimeStamp
            and config.topicFilterType is not TopicFilterType.MULTI_TAG
            and not topic.startswith(RETRY_PREFIX)
        ):
            self._checked.add(config)

    def _saved(self, topic: str) -> Deferred[None] | None:
        """
        Wait until a topic is on the disk, and on a slave if messages wait for one: if it is
        not, its messages are out of reach.
        """
        if topic not in self._topics.unsaved:
            return None
        return self._topics.saved().addCallback(lambda none: self._durability.tablesStored())

    def notStored(self, failure: Failure, response: RemotingCommand) -> None:
        """
        Make of an answer one that tells of a message that is not on the disk.
        """
        failure.trap(*LATE, StoreError)
        error = failure.value
        if isinstance(error, LATE):
            # It is in the log, and the sender learns where.
            response.code = error.code
            response.remark = printableRemark(error.remark)
        else:
            assert isinstance(error, StoreError)
            self._together.lost(unavailable(error), response)


def _context(
    header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    queueId: int,
    body: bytes,
    address: str,
) -> SendMessageContext:
    """
    A message as hooks see it.
    """
    return SendMessageContext(
        header.topic,
        queueId,
        header.properties or "",
        body,
        header.flag,
        header.producerGroup,
        header.bornTimestamp,
        header.batch,
        address,
    )
