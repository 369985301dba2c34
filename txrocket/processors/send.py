# SPDX-License-Identifier: Apache-2.0
"""
SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE; Java's C{SendMessageProcessor}::

    header --> may it be sent? --> properties --> store.put --> answer
                    |                                             |
               topic unknown:                       SYNC_FLUSH: once it is on the disk
               made, if it may be                   else: on credit, see settle

This is the hot path.  What need not wait for the disk is answered on credit: the
messages of all requests that came in one turn of the reactor go to the log in one
write, just before their answers go out, and no Deferred is made for any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.broker.decisions import HALF_TOPIC
from txrocket.broker.interfaces import Sending
from txrocket.broker.names import RETRY_PREFIX
from txrocket.broker.settings import BrokerSettings, SendSettings
from txrocket.broker.stats import Stats
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedRecord,
    MessageIllegal,
    ResponseError,
    StoreError,
)
from txrocket.model import TopicFilterType
from txrocket.processors.admission import Admission
from txrocket.processors.sendanswers import SendAnswers, unavailable
from txrocket.processors.sendhooks import SendHooks
from txrocket.processors.sound import SoundTopics
from txrocket.processors.stored import SPECIAL, UNIQUE, Shapes, storedProperties, undelayed
from txrocket.processors.ways import TRANSACTION, Ways
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    Answers,
    RemotingCommand,
    rawResponse,
    responseCommand,
)
from txrocket.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record import (
    MULTI_TAGS_FLAG,
)
from txrocket.remoting.faults import sayable
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import Appended, MessageStore
from txrocket.store.settings import FlushDiskType

__all__ = ["SendProcessor"]

# To look up a member of an enumeration takes 0.15 us.
_ASYNC_FLUSH: Final = FlushDiskType.ASYNC_FLUSH


class SendProcessor:
    """
    Takes messages.

    @ivar settings: may be replaced while the broker runs.
    @ivar broker: may be replaced while the broker runs.
    @ivar sound: topics whose ordinary messages need no further look.
    """

    def __init__(
        self,
        store: MessageStore,
        ways: Ways,
        stats: Stats,
        admission: Admission,
        answers: SendAnswers,
        hooks: SendHooks,
        *,
        choose: Callable[[int], int],
        gather: Callable[[], None] = lambda: None,
    ) -> None:
        """
        @param choose: picks a number below the one it is given.
        @param gather: has answers wait for the end of the reactor's turn.
        """
        self._store = store
        self._flushed = store.flusher.flushed
        self._topics = admission.topics
        self._ways = ways
        self._stats = stats
        self._admission = admission
        self._answers = answers
        self._hooks = hooks
        self._choose = choose
        self._gather = gather
        self._cluster = f"CLUSTER\x01{admission.broker.brokerClusterName}"
        self._shapes = Shapes(self._cluster)
        self._credit: list[RemotingCommand | Answers] = []
        self._losses = 0  # the store's when the first of them was put
        self.sound = SoundTopics(self._topics)

    @property
    def settings(self) -> SendSettings:
        """
        When messages are taken.
        """
        return self._admission.settings

    @settings.setter
    def settings(self, settings: SendSettings) -> None:
        self._admission.settings = settings
        self.sound.clear()

    @property
    def broker(self) -> BrokerSettings:
        """
        What senders are told of the broker, and what it lets them do.
        """
        return self._admission.broker

    @broker.setter
    def broker(self, settings: BrokerSettings) -> None:
        self._admission.broker = settings
        self._answers.apply(settings)
        self.sound.clear()

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

    def settle(self) -> None:
        """
        Bring to the log what was answered on credit, before those answers go out.
        If that fails, they tell of it.
        """
        if self._credit:
            lost = self._store.settle(self._losses)
            # Who is told of what was written, or lost, may write answers in turn, and
            # have settled all that is here: by then either has happened.
            credit, self._credit = self._credit, []
            if lost is not None:
                for response in credit:
                    if isinstance(response, Answers):
                        response.change(partial(self.lost, unavailable(lost)))
                    else:
                        self.lost(unavailable(lost), response)

    def lost(self, error: ResponseError, response: RemotingCommand) -> None:
        """
        Make of an answer one that tells of a message that is not stored.
        """
        self._stats.failed()
        self._answers.refuse(response, error)

    def onCredit(self, response: RemotingCommand | Answers) -> None:
        """
        An answer to what was put, and is not in the files yet.
        """
        if not self._credit:
            self._losses = self._store.losses
            self._gather()
        self._credit.append(response)

    def _serve(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        try:
            return self._quick(request, peer, header) or self._send(request, peer, header)
        except ResponseError as error:
            refused: ResponseError = error
        except (InvalidMessage, MalformedRecord) as error:
            refused = MessageIllegal(str(error))
        except StoreError as error:
            self._stats.failed()
            refused = unavailable(error)
        response = responseCommand()
        self._answers.refuse(response, refused)
        return response

    def _quick(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> RemotingCommand | None:
        """
        What L{_send} does, for an ordinary message, like one before it, that need
        not wait for the disk: half of its price.

        @return: L{None}, with nothing done, if it is not ordinary.
        """
        topic, queueId, store = header.topic, header.queueId, self._store
        config = self.sound.configs.get(topic)
        if (
            config is None
            # A topic that changes becomes another object.
            or config is not self._topics.get(topic)
            or not 0 <= queueId < config.writeQueueNums
            or header.batch
            or header.sysFlag & TRANSACTION
            or request.flag & ONEWAY_FLAG
            or store.settings.flushDiskType is not _ASYNC_FLUSH
            or self._flushed.waiting
        ):
            return None
        head, found, tail = (header.properties or "").partition(UNIQUE)
        unique, _, rest = tail.partition("\x02")
        shape = self._shapes.get(head, rest if found else None)
        if shape is None:
            return None
        before, after, hashed, keys = shape
        try:
            uniqueData = unique.encode()
        except UnicodeEncodeError:
            return None
        offset, sizes, queueOffset, _, _ = store.put(
            topic,
            queueId,
            request.body,
            before + uniqueData + after,
            header.bornTimestamp,
            peer.host,
            header.flag,
            header.sysFlag,
            header.reconsumeTimes or 0,
            filing=(hashed, uniqueData, keys),
        )
        self._stats.put(topic, 1, sizes[0])
        response = rawResponse(self._answers.acceptedJson % (offset, queueId, queueOffset))
        self.onCredit(response)
        return response

    def _send(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        self._admission.admit()
        topic, queueId, batch = header.topic, header.queueId, header.batch
        config = self._admission.topic(header, peer)
        if queueId < 0:
            queueId = self._choose(config.writeQueueNums)
        properties, body, flag = header.properties, request.body, header.flag
        bornTimestamp, sysFlag = header.bornTimestamp, header.sysFlag
        sending = None
        if self._hooks:
            sending = Sending(
                topic,
                queueId,
                properties or "",
                body,
                flag,
                header.producerGroup,
                bornTimestamp,
                batch,
                peer.address,
            )
            config = self._hooks.before(sending, config)
            topic, queueId, flag = sending.topic, sending.queueId, sending.flag
            properties, body = sending.properties, sending.body
            bornTimestamp = sending.bornTimestamp
        text, waits = storedProperties(properties, self._cluster)
        goesTo = queueId
        if topic.startswith(RETRY_PREFIX):
            # Who sends it takes it for dealt with: it must not be lost, whatever it says.
            waits = True
            dead = self._ways.dead(topic, header, request.version)
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
            goes, goesTo, propertiesData = self._ways.aside(topic, goesTo, text, sysFlag, batch)
            if goes == HALF_TOPIC:
                sysFlag &= ~TRANSACTION
        if batch:
            appended = self._store.putBatch(
                goes,
                goesTo,
                body,
                propertiesData,
                bornTimestamp=bornTimestamp,
                bornHost=peer.host,
                sysFlag=sysFlag,
                reconsumeTimes=header.reconsumeTimes or 0,
            )
        else:
            appended = self._store.put(
                goes,
                goesTo,
                body,
                propertiesData,
                bornTimestamp,
                peer.host,
                flag,
                sysFlag,
                header.reconsumeTimes or 0,
            )
        sizes = appended.sizes
        self._stats.put(goes, len(sizes), sizes[0] if len(sizes) == 1 else sum(sizes))
        response = self._answers.accepted(appended, queueId)
        if sending is not None:
            self._hooks.after(sending, response)
        return self._answer(request, response, appended, topic, waits)

    def _answer(
        self,
        request: RemotingCommand,
        response: RemotingCommand,
        appended: Appended,
        topic: str,
        waits: bool,
    ) -> Answer:
        if request.flag & ONEWAY_FLAG:
            # Not on credit: what is never written would never be settled.
            return response
        sync = waits and self._store.settings.flushDiskType is FlushDiskType.SYNC_FLUSH
        unsaved = topic in self._topics.unsaved
        if not sync and not unsaved:
            self._note(topic)
            self.onCredit(response)
            return response
        stored = self._store.stored(appended.end)
        if unsaved:
            stored.addCallback(lambda none: self._saved(topic))
        else:
            self._note(topic)
        stored.addErrback(self.notStored, response)
        answer: Deferred[RemotingCommand] = stored.addCallback(lambda none: response)
        return answer

    def _note(self, topic: str) -> None:
        """
        The next message to a topic may be sent the quick way.
        """
        config = self._topics.get(topic)
        if (
            config is not None
            # Known already; to note it takes 3 us.
            and config is not self.sound.configs.get(topic)
            and not self._hooks
            and not self.settings.startAcceptSendRequestTimeStamp
            and config.topicFilterType is not TopicFilterType.MULTI_TAG
            and not topic.startswith(RETRY_PREFIX)
        ):
            self.sound.note(config)

    def _saved(self, topic: str) -> Deferred[None] | None:
        """
        Wait until a topic is on the disk: if it is not, its messages are out of
        reach.
        """
        return self._topics.saved() if topic in self._topics.unsaved else None

    def notStored(self, failure: Failure, response: RemotingCommand) -> None:
        """
        Make of an answer one that tells of a message that is not on the disk.
        """
        failure.trap(FlushDiskTimeout, StoreError)
        error = failure.value
        if isinstance(error, FlushDiskTimeout):
            # It is in the log, and the sender learns where.
            response.code = error.code
            response.remark = sayable(error.remark)
        else:
            assert isinstance(error, StoreError)
            self.lost(unavailable(error), response)
