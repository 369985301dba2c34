# SPDX-License-Identifier: Apache-2.0
"""
PULL_MESSAGE; Java's C{PullMessageProcessor}::

    header --> may it pull? --> what does it want? --> store.get --> answer
                                                           |
                              nothing there, may be held:  |
                              long poll <------------------+
                                  \\--> store.get once more --> answer

The body of an answer is the log's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.longpoll import LongPoll
from txrocket.broker.offsets import Offsets
from txrocket.broker.settings import BrokerSettings, PullSettings
from txrocket.broker.stats import Stats
from txrocket.broker.subscriptions import Subscriptions
from txrocket.broker.topics import Topics
from txrocket.errors import NoPermission, RemoteSystemError, StoreError, TopicNotExist
from txrocket.filters.expressions import MessageFilter
from txrocket.model import MASTER_ID, PERM_READ, MessageQueue, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies import OffsetMovedEvent
from txrocket.protocol.bodycodec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import (
    RemotingCommand,
    rawResponse,
    responseCommand,
    responseTemplate,
)
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.parts import encodeProperties
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore
from txrocket.store.reading import GetStatus, Got

__all__ = ["PullProcessor"]

# Bits of a pull's sysFlag.
COMMIT: Final = 1
_SUSPEND: Final = 2

_OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

# To look up a member of an enumeration takes 0.15 us, to hash one 0.3.
_FOUND: Final = GetStatus.FOUND
_FOUND_REMARK: Final = GetStatus.FOUND.value

# L{PullMessageResponseHeader}: a third of what it takes to fill and write one.
_FOUND_JSON: Final = (
    b'{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"}'
)

#: The same in the header of an answer that tells of messages, up to its number.
FOUND_HEADER: Final = responseTemplate(_FOUND_JSON, _FOUND_REMARK)

_CODES: Final = {
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
}
_EMPTY: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


class PullProcessor:
    """
    Gives messages.

    @ivar settings: may be replaced while the broker runs.
    @ivar broker: may be replaced while the broker runs.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        subscriptions: Subscriptions,
        offsets: Offsets,
        longPoll: LongPoll,
        stats: Stats,
        broker: BrokerSettings,
        settings: PullSettings,
        *,
        brokerName: str,
        storeHost: bytes,
        now: Callable[[], int],
    ) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        @param now: the time in milliseconds.
        """
        self._store = store
        self._topics = topics
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._longPoll = longPoll
        self._stats = stats
        self.broker = broker
        self.settings = settings
        self._brokerName = brokerName
        self._storeHost = storeHost
        self._now = now

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {RequestCode.PULL_MESSAGE: self.pull}

    def pull(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        PULL_MESSAGE.
        """
        header = request.decodeHeader(PullMessageRequestHeader)
        answer = self._pull(header, peer, mayHold=bool(header.sysFlag & _SUSPEND))
        if header.sysFlag & COMMIT:
            self._offsets.commitWithin(
                self._store.maxOffset(header.topic, header.queueId),
                header.consumerGroup,
                header.topic,
                header.queueId,
                header.commitOffset,
                peer.address,
            )
        return answer

    def _pull(
        self, header: PullMessageRequestHeader, peer: RemotingProtocol, *, mayHold: bool
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        try:
            group, _, wanted = self.permit(header)
        except TopicNotExist:
            self._log.warn(
                "{address} pulls from topic {topic}, which does not exist",
                address=peer.address,
                topic=header.topic,
            )
            raise
        got = self._store.get(
            header.topic,
            header.queueId,
            header.queueOffset,
            header.maxMsgNums,
            wanted.matches,
            wanted.accepts,
        )
        if got.status is _FOUND:
            self._stats.got(header.consumerGroup, header.topic, got.count, len(got.data))
            suggested = self.suggested(group, fromDisk=got.fromDisk)
            return rawResponse(
                _FOUND_JSON % (suggested, got.nextOffset, got.minOffset, got.maxOffset),
                _FOUND_REMARK,
                got.data,
            )
        code = _CODES[got.status]
        if got.status in _EMPTY and header.queueOffset:
            code = ResponseCode.PULL_OFFSET_MOVED
        if code is ResponseCode.PULL_NOT_FOUND and mayHold:
            return self._hold(header, peer, wanted)
        self._stats.missed()
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._tellMoved(header, got)
        return responseCommand(
            code,
            got.status.value,
            PullMessageResponseHeader(
                self.suggested(group, fromDisk=got.fromDisk),
                got.nextOffset,
                got.minOffset,
                got.maxOffset,
            ),
            got.data,
        )

    def permit(
        self, header: PullMessageRequestHeader
    ) -> tuple[SubscriptionGroupConfig, TopicConfig, MessageFilter]:
        """
        Whose pull it is, of which topic, and what it wants.

        @raise ResponseError: if it may not be.
        """
        if not self.broker.brokerPermission & PERM_READ:
            raise NoPermission("brokerPermission forbids to pull from this broker")
        group = self._subscriptions.group(header.consumerGroup)
        config = self._check(header)
        return group, config, self._subscriptions.wanted(header, group)

    def _check(self, header: PullMessageRequestHeader) -> TopicConfig:
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotExist(f"topic {header.topic} does not exist")
        if not config.perm & PERM_READ:
            raise NoPermission(f"topic {header.topic} may not be read from")
        if not 0 <= header.queueId < config.readQueueNums:
            raise RemoteSystemError(
                f"queue {header.queueId} is not one of topic {header.topic}, which has"
                f" {config.readQueueNums} to read from"
            )
        return config

    def suggested(self, group: SubscriptionGroupConfig, *, fromDisk: bool) -> int:
        """
        Which broker to pull from next.
        """
        if not self.settings.slaveReadEnable:
            return MASTER_ID
        return group.whichBrokerWhenConsumeSlowly if fromDisk else group.brokerId

    def _hold(
        self, header: PullMessageRequestHeader, peer: RemotingProtocol, wanted: MessageFilter
    ) -> Deferred[RemotingCommand]:
        settings = self.settings
        milliseconds = (
            header.suspendTimeoutMillis
            if settings.longPollingEnable
            else settings.shortPollingTimeMills
        )
        held = self._longPoll.hold(
            header.topic,
            header.queueId,
            header.queueOffset,
            max(0, milliseconds) / 1000,
            wanted.matches,
            wanted.accepts,
        )
        # A method and no function of its own: there may be ten thousands of them.
        return held.addCallback(self._again, header, peer)

    def _again(
        self, none: None, header: PullMessageRequestHeader, peer: RemotingProtocol
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        # The group, the topic and their permissions may be others by now.
        return self._pull(header, peer, mayHold=False)

    def _tellMoved(self, header: PullMessageRequestHeader, got: Got) -> None:
        """
        Leave a message for whoever watches over consumers that lost messages.
        """
        group = header.consumerGroup
        self._log.warn(
            "Group {group} asked for offset {asked} in queue {queueId} of {topic}, which has"
            " {low} to {high}, and goes on at {given}",
            group=group,
            asked=header.queueOffset,
            queueId=header.queueId,
            topic=header.topic,
            low=got.minOffset,
            high=got.maxOffset,
            given=got.nextOffset,
        )
        queue = MessageQueue(header.topic, self._brokerName, header.queueId)
        event = OffsetMovedEvent(group, queue, header.queueOffset, got.nextOffset)
        try:
            self._store.put(
                _OFFSET_MOVED_TOPIC,
                0,
                encodeBody(event),
                encodeProperties({"KEYS": group, "TAGS": group}),
                bornTimestamp=self._now(),
                bornHost=self._storeHost,
            )
        except StoreError as error:
            self._log.error(
                "That could not be noted in {topic}: {error}",
                topic=_OFFSET_MOVED_TOPIC,
                error=error,
            )
