# SPDX-License-Identifier: Apache-2.0
"""
CONSUMER_SEND_MSG_BACK: a consumer could not deal with a message;
C{asyncConsumerSendMsgBack} of Java's C{SendMessageProcessor}::

    the message, from the log
        --> RETRY_TOPIC, ORIGIN_MESSAGE_ID: where it came from, for good
        --> DELAY 3 + times, or as the consumer wants, to %RETRY%group
        \\-> no times left: at once, to %DLQ%group

The consumer takes the message for dealt with once this is answered, so it is
answered when the new one is stored: with SYNC_FLUSH, when it is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.broker.detours import Detours, encodeSplit
from txrocket.broker.retries import Retries
from txrocket.broker.stats import Stats
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedRecord,
    NoPermission,
    RemoteSystemError,
    StoreError,
)
from txrocket.message import (
    PROPERTY_DELAY,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
    MessageExt,
)
from txrocket.model import PERM_WRITE, SubscriptionGroupConfig
from txrocket.processors.admission import Admission
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import ConsumerSendMsgBackRequestHeader
from txrocket.protocol.record import decodeRecord
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore

__all__ = ["SendBackProcessor"]

# The delay level of the first time; it is one more each time.
_FIRST_LEVEL: Final = 3

# What a record can tell.
_MOST_TIMES: Final = 2**31 - 1


class SendBackProcessor:
    """
    Takes messages back.
    """

    def __init__(
        self,
        store: MessageStore,
        retries: Retries,
        detours: Detours,
        stats: Stats,
        admission: Admission,
        choose: Callable[[int], int],
    ) -> None:
        """
        @param detours: where messages wait that have a delay level.
        @param choose: picks a number below the one it is given.
        """
        self._store = store
        self._retries = retries
        self._detours = detours
        self._stats = stats
        self._admission = admission
        self._choose = choose

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.sendBack}

    def sendBack(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        CONSUMER_SEND_MSG_BACK.

        @raise ResponseError: if the group or the message is not there, or nothing
            may be written.
        """
        header = request.decodeHeader(ConsumerSendMsgBackRequestHeader)
        self._admission.checkBusy()
        config = self._retries.group(header.group)
        if not self._admission.broker.brokerPermission & PERM_WRITE:
            raise NoPermission("brokerPermission forbids to send to this broker")
        if config.retryQueueNums <= 0:
            # The operator wants none of it tried again.
            return responseCommand()
        topic, queueId = self._retryQueue(config, header.unitMode)
        try:
            message = self._message(header.offset)
            level = header.delayLevel or _FIRST_LEVEL + message.reconsumeTimes
            times, most = message.reconsumeTimes, header.maxReconsumeTimes
            if level < 0 or self._retries.isDead(config, times, most, request.version):
                topic, queueId, level = self._retries.deadTopic(header.group), 0, 0
            return self._put(message, topic, queueId, level, header.group)
        except (InvalidMessage, MalformedRecord, StoreError) as error:
            self._stats.failed()
            raise RemoteSystemError(f"the message is not taken back: {error}") from None

    def _retryQueue(self, config: SubscriptionGroupConfig, unit: bool) -> tuple[str, int]:
        topic = self._retries.retryTopic(config, unit)
        if not topic.perm & PERM_WRITE:
            raise NoPermission(f"topic {topic.topicName} may not be written to")
        # Java goes by the group alone, also if its topic is older and has fewer queues:
        # nobody reads from one that is too many.
        queues = min(config.retryQueueNums, topic.readQueueNums)
        return topic.topicName, self._choose(max(queues, 1))

    def _message(self, offset: int) -> MessageExt:
        record = self._store.messageAt(offset)
        if record is None:
            raise RemoteSystemError(f"there is no message at the offset {offset}")
        return decodeRecord(record)

    def _put(
        self, message: MessageExt, topic: str, queueId: int, level: int, group: str
    ) -> Deferred[RemotingCommand]:
        properties = dict(message.properties)
        origin = properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        if not properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = message.offsetMsgId
        properties[PROPERTY_DELAY] = str(level)
        # Java's, which does not wait for the disk here; it stays with the message.
        properties[PROPERTY_WAIT] = "false"
        place = self._detours.place(topic, queueId, properties)
        appended = self._store.put(
            place.topic,
            place.queueId,
            message.body,
            encodeSplit(place.properties),
            message.bornTimestamp,
            message.bornHostData,
            message.flag,
            message.sysFlag,
            min(message.reconsumeTimes + 1, _MOST_TIMES),
        )
        self._stats.put(place.topic, 1, appended.sizes[0])
        topics = self._admission.topics

        def saved(none: None) -> Deferred[None] | None:
            # Without its topic the message would be out of reach.
            return topics.saved() if topic in topics.unsaved else None

        def taken(none: None) -> RemotingCommand:
            self._stats.sentBack(group, origin)
            return responseCommand()

        stored = self._store.stored(appended.end).addCallback(saved)
        return stored.addCallbacks(taken, self._notStored)

    def _notStored(self, failure: Failure) -> NoReturn:
        failure.trap(FlushDiskTimeout, StoreError)
        self._stats.failed()
        # It may come twice now; the consumer must not believe that it will come.
        raise RemoteSystemError(f"the message is not taken back: {failure.getErrorMessage()}")
