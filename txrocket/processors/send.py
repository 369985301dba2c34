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

import re
from collections.abc import Callable, Sequence
from typing import Final

import orjson
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.interfaces import ISendHook, Sending
from txrocket.broker.names import NOT_SENT_TO, checkSendable, checkTopic
from txrocket.broker.settings import BrokerSettings, SendSettings
from txrocket.broker.stats import Stats
from txrocket.broker.topics import Topics
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedRecord,
    MessageIllegal,
    NoPermission,
    RemoteSystemError,
    ResponseError,
    ServiceNotAvailable,
    StoreError,
    SystemBusy,
    TopicNotExist,
)
from txrocket.message import PROPERTY_TRAN_MSG, PROPERTY_WAIT, Message, splitProperties
from txrocket.model import PERM_WRITE, TopicConfig, TopicFilterType
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    RemotingCommand,
    rawResponse,
    responseCommand,
)
from txrocket.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record import (
    MULTI_TAGS_FLAG,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocket.remoting.faults import sayable
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import Appended, MessageStore
from txrocket.store.settings import FlushDiskType

__all__ = ["SendProcessor", "storedProperties"]

_WAIT = re.compile("(?:\\A|(?<=\x02))WAIT\x01[^\x02]*\x02")
_CLUSTER = re.compile("(?:\\A|(?<=\x02))CLUSTER\x01[^\x02]*\x02")
_TRUE = "\x02WAIT\x01true\x02"

# All bits of sysFlag that speak of transactions.
_TRANSACTION = TRANSACTION_ROLLBACK_TYPE

# To look up a member of an enumeration takes 0.15 us, which would be half a
# microsecond for each message.
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_MULTI_TAG: Final = TopicFilterType.MULTI_TAG
_SYNC_FLUSH: Final = FlushDiskType.SYNC_FLUSH
_JSON: Final = int(SerializeType.JSON)

# Topics that are known to be in order.
_KNOWN: Final = 10_000


def storedProperties(properties: str | None, cluster: str) -> tuple[str, bool]:
    """
    A message's properties as the log gets them: without WAIT, with CLUSTER.

    @param cluster: C{CLUSTER \\x01} and the cluster's name.
    @return: the properties, and whether the sender waits for the disk.
    """
    if not properties:
        return cluster, True
    text = properties if properties[-1] == "\x02" else properties + "\x02"
    waits = True
    if "WAIT\x01" in text:
        # Java's producers send it so, always; a search is a tenth of the pattern's.
        text = text.replace(_TRUE, "\x02")
        if "WAIT\x01" in text:
            # Of several the last counts, which may be one that is gone now.
            waits = splitProperties(properties).get(PROPERTY_WAIT, "true").lower() == "true"
            text = _WAIT.sub("", text)
    if "CLUSTER\x01" in text:
        text = _CLUSTER.sub("", text)
    return text + cluster, waits


class SendProcessor:
    """
    Takes messages.

    @ivar settings: may be replaced while the broker runs.
    @ivar broker: may be replaced while the broker runs.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        stats: Stats,
        broker: BrokerSettings,
        settings: SendSettings,
        *,
        storeHost: bytes,
        now: Callable[[], int],
        choose: Callable[[int], int],
        hooks: Sequence[ISendHook] = (),
        gather: Callable[[], None] = lambda: None,
    ) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        @param now: the time in milliseconds.
        @param choose: picks a number below the one it is given.
        @param gather: has answers wait for the end of the reactor's turn.
        """
        self._store = store
        self._topics = topics
        self._stats = stats
        self.settings = settings
        self._now = now
        self._choose = choose
        self._hooks = hooks
        self._gather = gather
        self._idPrefix = storeHost.hex().upper()
        self._cluster = f"CLUSTER\x01{broker.brokerClusterName}"
        self._credit: list[RemotingCommand] = []
        self._losses = 0  # the store's when the first of them was put
        self._sound: dict[str, TopicConfig] = {}
        self.broker = broker

    @property
    def broker(self) -> BrokerSettings:
        """
        What senders are told of the broker, and what it lets them do.
        """
        return self._broker

    @broker.setter
    def broker(self, settings: BrokerSettings) -> None:
        self._broker = settings
        self._sound.clear()
        self._told = {
            "MSG_REGION": settings.regionId,
            "TRACE_ON": "true" if settings.traceOn else "false",
        }
        told = orjson.dumps(self._told).replace(b"%", b"%%")
        # What L{_acceptedFields} gives, as JSON, for one message: a fifth of the price.
        self._acceptedJson = (
            told[:-1]
            + f',"msgId":"{self._idPrefix}%016X","queueId":"%d","queueOffset":"%d"}}'.encode()
        )

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.sendV2,
            RequestCode.SEND_BATCH_MESSAGE: self.sendV2,
        }

    def send(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_MESSAGE.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeader))

    def sendV2(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeaderV2))

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
                    self._stats.failed()
                    self._refuse(response, _unavailable(lost))

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
            refused = _unavailable(error)
        response = responseCommand()
        self._refuse(response, refused)
        return response

    def _send(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        if self._store.flusher.flushed.waiting or self.settings.startAcceptSendRequestTimeStamp:
            self._admit()
        topic, queueId = header.topic, header.queueId
        config = self._topics.get(topic) or self._make(header, peer)
        # A topic that changes becomes another object.
        if config is not self._sound.get(topic) or not 0 <= queueId < config.writeQueueNums:
            self._check(config, queueId)
            if queueId < 0:
                queueId = self._choose(config.writeQueueNums)
        batch = header.batch or request.code == _BATCH
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
            config = self._before(sending, config)
            topic, queueId, flag = sending.topic, sending.queueId, sending.flag
            properties, body = sending.properties, sending.body
            bornTimestamp = sending.bornTimestamp
        text, waits = storedProperties(properties, self._cluster)
        if sysFlag & _TRANSACTION or "TRAN_MSG\x01" in text or "DELAY\x01" in text:
            self._checkKind(text, sysFlag, batch)
        if config.topicFilterType is _MULTI_TAG:
            sysFlag |= MULTI_TAGS_FLAG
        try:
            propertiesData = text.encode()
        except UnicodeEncodeError:
            raise MessageIllegal("properties: half of a surrogate pair is no text") from None
        if batch:
            appended = self._store.putBatch(
                topic,
                queueId,
                body,
                propertiesData,
                bornTimestamp=bornTimestamp,
                bornHost=peer.host,
                sysFlag=sysFlag,
                reconsumeTimes=header.reconsumeTimes or 0,
            )
        else:
            appended = self._store.put(
                topic,
                queueId,
                body,
                propertiesData,
                bornTimestamp,
                peer.host,
                flag,
                sysFlag,
                header.reconsumeTimes or 0,
            )
        sizes = appended.sizes
        self._stats.put(topic, len(sizes), sizes[0] if len(sizes) == 1 else sum(sizes))
        if request.serializeType == _JSON and not batch:
            response = rawResponse(
                self._acceptedJson % (appended.offset, queueId, appended.queueOffset)
            )
        else:
            response = responseCommand()
            response.fields = self._acceptedFields(appended, queueId)
        if sending is not None:
            self._after(sending, response)
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
        sync = waits and self._store.settings.flushDiskType is _SYNC_FLUSH
        unsaved = topic in self._topics.unsaved
        if not sync and not unsaved:
            if not self._credit:
                self._losses = self._store.losses
                self._gather()
            self._credit.append(response)
            return response
        stored = self._store.stored(appended.end)
        if unsaved:
            stored.addCallback(lambda none: self._saved(topic))
        stored.addCallbacks(lambda none: response, self._notStored, errbackArgs=(response,))
        answer: Deferred[RemotingCommand] = stored  # type: ignore[assignment]
        return answer

    def _saved(self, topic: str) -> Deferred[None] | None:
        """
        Wait until a topic is on the disk: if it is not, its messages are out of
        reach.
        """
        return self._topics.saved() if topic in self._topics.unsaved else None

    def _notStored(self, failure: Failure, response: RemotingCommand) -> RemotingCommand:
        failure.trap(FlushDiskTimeout, StoreError)
        error = failure.value
        if isinstance(error, FlushDiskTimeout):
            # It is in the log, and the sender learns where.
            response.code = error.code
            response.remark = sayable(error.remark)
        else:
            assert isinstance(error, StoreError)
            self._stats.failed()
            self._refuse(response, _unavailable(error))
        return response

    # --- hooks -----------------------------------------------------------

    def _before(self, sending: Sending, config: TopicConfig) -> TopicConfig:
        """
        Let hooks look at a message.

        @return: the topic that it goes to now.
        """
        where = sending.topic, sending.queueId
        for hook in self._hooks:
            hook.beforeSend(sending)
        if (sending.topic, sending.queueId) == where:
            return config
        found = self._topics.get(sending.topic)
        if found is None:
            raise TopicNotExist(f"topic {sending.topic}, where a hook sends this, does not exist")
        self._check(found, sending.queueId)
        return found

    def _after(self, sending: Sending, response: RemotingCommand) -> None:
        for hook in self._hooks:
            try:
                hook.afterSend(sending, response)
            except Exception:
                # The message is taken, and its sender must not be told otherwise.
                self._log.failure("{hook} failed after a message was taken", hook=hook)

    # --- what may be sent ------------------------------------------------

    def _make(
        self,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        peer: RemotingProtocol,
    ) -> TopicConfig:
        """
        A topic that is not there yet.
        """
        checkSendable(checkTopic(header.topic))
        config, saved = self._topics.inherit(
            header.topic,
            header.defaultTopic,
            header.defaultTopicQueueNums,
            header.unitMode,
            peer.address,
        )
        # The sender is told by the one that it waits for.
        saved.addErrback(lambda failure: failure.trap(StoreError) and None)
        return config

    def _admit(self) -> None:
        """
        Refuse early what would be answered late.
        """
        settings = self.settings
        waiting, seconds = self._store.waiting
        if waiting and settings.brokerFastFailureEnable:
            if waiting >= settings.sendThreadPoolQueueCapacity:
                raise SystemBusy(
                    f"[OVERLOAD] {waiting} sends wait for the disk already, try again in a while"
                )
            if seconds * 1000 > settings.osPageCacheBusyTimeOutMills:
                raise SystemBusy(
                    f"[PCBUSY] the disk has taken {seconds:.1f} s for what waits for it,"
                    " try again in a while"
                )
        if settings.startAcceptSendRequestTimeStamp > self._now():
            raise RemoteSystemError(
                "no message is taken before startAcceptSendRequestTimeStamp, "
                f"{settings.startAcceptSendRequestTimeStamp}"
            )

    def _check(self, config: TopicConfig, queueId: int) -> None:
        topic = config.topicName
        if topic in NOT_SENT_TO:
            checkSendable(topic)
        if config.order and not self._broker.brokerPermission & PERM_WRITE:
            raise NoPermission("brokerPermission forbids to send to this broker")
        if not config.perm & PERM_WRITE:
            raise NoPermission(f"topic {topic} may not be written to")
        if queueId >= config.writeQueueNums and queueId >= config.readQueueNums:
            raise RemoteSystemError(
                f"queue {queueId} is not one of topic {topic}, which has {config.writeQueueNums}"
                f" to write to and {config.readQueueNums} to read from"
            )
        if queueId < 0 and not config.writeQueueNums:
            raise NoPermission(f"topic {topic} has no queue to write to")
        if len(self._sound) >= _KNOWN:
            self._sound.clear()
        self._sound[topic] = config

    def _checkKind(self, properties: str, sysFlag: int, batch: bool) -> None:
        """
        Refuse what would be stored and not be handled as its sender expects.
        """
        if batch and sysFlag & _TRANSACTION:
            raise MessageIllegal("messages in transactions cannot be sent as a batch")
        if sysFlag & TRANSACTION_PREPARED_TYPE:
            raise NoPermission("this broker takes no messages in transactions")
        message = Message("", b"", properties=splitProperties(properties))
        if message.properties.get(PROPERTY_TRAN_MSG, "").lower() == "true":
            raise NoPermission("this broker takes no messages in transactions")
        if message.delayTimeLevel > 0:
            raise NoPermission("this broker takes no delayed messages")

    # --- answers ---------------------------------------------------------

    def _acceptedFields(self, appended: Appended, queueId: int) -> dict[str, str]:
        """
        What a sender is told of where its messages went.
        """
        offset = appended.offset
        ids = []
        for size in appended.sizes:
            ids.append(f"{self._idPrefix}{offset:016X}")
            offset += size
        return {
            **self._told,
            "msgId": ",".join(ids),
            "queueId": str(queueId),
            "queueOffset": str(appended.queueOffset),
        }

    def _refuse(self, response: RemotingCommand, error: ResponseError) -> None:
        response.code = error.code
        response.remark = sayable(error.remark)
        response.fields = dict(self._told)


def _unavailable(error: StoreError) -> ServiceNotAvailable:
    return ServiceNotAvailable(f"the store takes no messages now: {error}")
