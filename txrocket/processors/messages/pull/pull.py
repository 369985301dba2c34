# SPDX-License-Identifier: Apache-2.0
"""
PULL_MESSAGE; Java's C{PullMessageProcessor}::

    header --> may it pull? --> what does it want? --> store.get --> answer
                                                           |
                              nothing there, may be held:  |
                              long poll <------------------+
                                  \\--> store.get once more --> answer

The body of an answer is the log's own bytes.

Many pulls of one turn that find messages are served together: see L{PullTogether}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.errors import StoreError, TopicNotExist
from txrocket.filters.expressions import MessageFilter
from txrocket.model import MessageQueue, SubscriptionGroupConfig
from txrocket.processors.messages.pull.pulltogether import COMMIT, PullTogether
from txrocket.protocol.bodies import OffsetMovedEvent
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.record.fields import encodeProperties
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import ProcessAll
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus

__all__ = ["PullProcessor"]

# The bit of a pull's sysFlag that tells that the consumer waits for messages.
_SUSPEND: Final = 2

_OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

# Looked up once: to look up or hash a member of an enumeration costs too much for each pull.
_FOUND: Final = GetMessageStatus.FOUND

_CODES: Final = {
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
}
_EMPTY: Final = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)


class PullProcessor:
    """
    Gives messages to consumers.
    """

    _log = Logger()

    def __init__(self, together: PullTogether, now: Callable[[], int]) -> None:
        """
        @param together: serves the pulls that find messages.
        @param now: the time in milliseconds.
        """
        self._together = together
        self._checks = together.checks
        self._core = core = together.core
        self._store = core.store
        self._stats = core.stats
        self._offsets = together.offsets
        self._settings = together.checks.settings
        self._now = now

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {RequestCode.PULL_MESSAGE: self.pull}

    def codesOfMany(self) -> dict[int, ProcessAll]:
        """
        What is served many at a time.
        """
        return self._together.codes()

    def pull(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        PULL_MESSAGE.
        """
        header = request.decodeHeader(PullMessageRequestHeader)
        answer = self._pull(header, peer, mayHold=bool(header.sysFlag & _SUSPEND))
        if header.sysFlag & COMMIT and self._checks.role.isMaster:
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
            group, _, wanted = self._checks.permit(header)
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
            return self._response(ResponseCode.SUCCESS, got, group)
        code = _CODES[got.status]
        if got.status in _EMPTY and header.queueOffset:
            code = ResponseCode.PULL_OFFSET_MOVED
        if code is ResponseCode.PULL_NOT_FOUND and mayHold:
            return self._hold(header, peer, wanted)
        self._stats.missed()
        if not self._checks.corrects:
            got = replace(got, nextOffset=header.queueOffset)
            if code is ResponseCode.PULL_OFFSET_MOVED:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif code is ResponseCode.PULL_OFFSET_MOVED:
            self._tellMoved(header, got)
        return self._response(code, got, group)

    def _response(
        self, code: int, got: GetMessageResult, group: SubscriptionGroupConfig
    ) -> RemotingCommand:
        suggested = self._checks.suggested(group, fromDisk=got.fromDisk)
        header = PullMessageResponseHeader(suggested, got.nextOffset, got.minOffset, got.maxOffset)
        return responseCommand(code, got.status.value, header, got.data)

    def _hold(
        self, header: PullMessageRequestHeader, peer: RemotingProtocol, wanted: MessageFilter
    ) -> Deferred[RemotingCommand]:
        settings = self._settings.now
        milliseconds = (
            header.suspendTimeoutMillis
            if settings.longPollingEnable
            else settings.shortPollingTimeMills
        )
        held = self._core.longPoll.hold(
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

    def _tellMoved(self, header: PullMessageRequestHeader, got: GetMessageResult) -> None:
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
        if not self._checks.role.isMaster:
            return
        queue = MessageQueue(header.topic, self._core.identity.name, header.queueId)
        event = OffsetMovedEvent(group, queue, header.queueOffset, got.nextOffset)
        try:
            self._store.put(
                _OFFSET_MOVED_TOPIC,
                0,
                encodeBody(event),
                encodeProperties({"KEYS": group, "TAGS": group}),
                bornTimestamp=self._now(),
                bornHost=self._core.storeHost,
            )
        except StoreError as error:
            self._log.error(
                "That could not be noted in {topic}: {error}",
                topic=_OFFSET_MOVED_TOPIC,
                error=error,
            )
