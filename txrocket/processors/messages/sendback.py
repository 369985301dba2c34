# SPDX-License-Identifier: Apache-2.0
"""
CONSUMER_SEND_MSG_BACK: a consumer could not consume a message, and sends it back;
C{asyncConsumerSendMsgBack} of Java's C{SendMessageProcessor}::

    the message, from the log
        --> RETRY_TOPIC, ORIGIN_MESSAGE_ID: its original topic and id
        --> DELAY 3 + retries, or as the consumer asks, to %RETRY%group
        \\-> no retries left: at once, to %DLQ%group

The consumer commits past the message once it gets the response.  So the broker responds when
the new message is stored: with SYNC_FLUSH, when it is on the disk; with SYNC_MASTER, when a
slave has it, if one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.broker.delivery.reroute import Reroutes, encodeSplit
from txrocket.broker.delivery.retries import Retries
from txrocket.broker.stats import Stats
from txrocket.errors import (
    FlushDiskTimeout,
    FlushSlaveTimeout,
    InvalidMessage,
    MalformedRecord,
    NoPermission,
    RemoteSystemError,
    SlaveNotAvailable,
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
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import ConsumerSendMsgBackRequestHeader
from txrocket.protocol.record import decodeRecord
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messagestore import MessageStore

__all__ = ["SendBackProcessor"]

# The delay level of the first retry; it is one more each time.
_FIRST_LEVEL: Final = 3

# The largest number of a record.
_MOST_TIMES: Final = 2**31 - 1


class SendBackProcessor:
    """
    Serves consumers that send messages back.
    """

    def __init__(
        self,
        store: MessageStore,
        retries: Retries,
        reroutes: Reroutes,
        stats: Stats,
        checks: SendChecks,
        choose: Callable[[int], int],
    ) -> None:
        """
        @param reroutes: parks messages with a delay level.
        @param choose: returns a number below its argument.
        """
        self._store = store
        self._retries = retries
        self._reroutes = reroutes
        self._stats = stats
        self._checks = checks
        self._choose = choose

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.sendBack}

    def sendBack(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        CONSUMER_SEND_MSG_BACK.

        @raise ResponseError: if the group or the message does not exist, or the broker may
            not be written to.
        """
        header = request.decodeHeader(ConsumerSendMsgBackRequestHeader)
        self._checks.checkBusy()
        config = self._retries.group(header.group)
        if not self._checks.broker.now.brokerPermission & PERM_WRITE:
            raise NoPermission("brokerPermission forbids to send to this broker")
        if config.retryQueueNums <= 0:
            # The operator has disabled retries for the group.
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
        # Java uses the number of the group alone.  If its topic is older and has fewer
        # queues, no consumer reads from the others.
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
        # As Java, which does not wait for the disk here.
        properties[PROPERTY_WAIT] = "false"
        place = self._reroutes.place(topic, queueId, properties)
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
        topics = self._checks.topics

        def saved(none: None) -> Deferred[None] | None:
            # Without its topic no consumer reaches the message.
            return topics.saved() if topic in topics.unsaved else None

        def taken(none: None) -> RemotingCommand:
            self._stats.sentBack(group, origin)
            return responseCommand()

        durability = self._checks.durability
        stored = durability.stored(appended.end).addErrback(self._late).addCallback(saved)
        return stored.addCallbacks(taken, self._notStored)

    def _late(self, failure: Failure) -> None:
        """
        A slave is late, or there is none.  The message is stored here, and Java does not wait
        for one at all.
        """
        failure.trap(SlaveNotAvailable, FlushSlaveTimeout)

    def _notStored(self, failure: Failure) -> NoReturn:
        failure.trap(FlushDiskTimeout, StoreError)
        self._stats.failed()
        # It may come twice now; the consumer must not believe that it will come.
        raise RemoteSystemError(f"the message is not taken back: {failure.getErrorMessage()}")
