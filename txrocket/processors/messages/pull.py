# SPDX-License-Identifier: Apache-2.0
"""
PULL_MESSAGE; Java's C{PullMessageProcessor}::

    header --> may it pull? --> what does it want? --> store.get --> answer
                                                           |
                              nothing there, may be held:  |
                              long poll <------------------+
                                  \\--> store.get once more --> answer

The body of an answer is the log's own bytes.

Many pulls of one turn that find messages are served together: whether a consumer may pull,
and what it wants, is asked once for all that say the same, and each peer gets its answers in
one write.  A pull that is refused or finds no message goes through the rules alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket import bulk
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.settings import BrokerSettings, PullSettings
from txrocket.broker.stats import Stats
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.tables.topics import Topics
from txrocket.config.live import Live
from txrocket.errors import (
    NoPermission,
    RemoteSystemError,
    StoreError,
    TopicNotExist,
)
from txrocket.filters.expressions import MessageFilter
from txrocket.model import MASTER_ID, PERM_READ, MessageQueue, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies import OffsetMovedEvent
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, rawResponse, responseCommand
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.headertemplates import jsonHead, responseTemplate
from txrocket.protocol.record.fields import encodeProperties
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.turn import Call, ProcessAll, Turn
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageResult, GetMessageStatus

__all__ = ["PullProcessor"]

# Bits of a pull's sysFlag.
COMMIT: Final = 1
_SUSPEND: Final = 2

_OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

# Looked up once: to look up or hash a member of an enumeration costs too much for each pull.
_FOUND: Final = GetMessageStatus.FOUND
_FOUND_REMARK: Final = GetMessageStatus.FOUND.value

# L{PullMessageResponseHeader}: a third of what it takes to fill and write one.
_FOUND_JSON: Final = (
    b'{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"}'
)

#: The same in the header of an answer that tells of messages, up to its number.
FOUND_HEADER: Final = responseTemplate(_FOUND_JSON, _FOUND_REMARK)

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


# How many consumers are known at a time.
_KNOWN: Final = 10_000

# A consumer whose pulls say more than this is not remembered: they may have 16 MiB.
_LONGEST: Final = 4096

# Answers are written once they have this many bytes.  Sixteen pulls of 32 KiB go in one call
# of the system, which wakes the peer once.
_AT_ONCE: Final = 640 * 1024

# What stands in place of a field that is not there; see bulk.decodePulls.
_MISSING: Final = "\x02"


class _Permitted(NamedTuple):
    """
    What is asked once for all pulls that say the same.

    @ivar queues: how many queues there are to pull from.
    @ivar suggested: the broker to pull from next.
    @ivar commits: whether pulls bring an offset to commit.
    """

    group: str
    topic: str
    queues: int
    matches: Callable[[int], bool] | None
    suggested: int
    commits: bool


class PullProcessor:
    """
    Gives messages to consumers.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        subscriptions: Subscriptions,
        offsets: ConsumerOffsets,
        longPoll: LongPoll,
        stats: Stats,
        broker: Live[BrokerSettings],
        settings: Live[PullSettings],
        *,
        brokerName: str,
        storeHost: bytes,
        now: Callable[[], int],
        turn: Turn,
        frameLimit: int = FRAME_LIMIT,
    ) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        @param now: the time in milliseconds.
        @param frameLimit: how many bytes an answer may have.
        """
        self._store = store
        self._topics = topics
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._longPoll = longPoll
        self._stats = stats
        self._broker = broker
        self._settings = settings
        self._brokerName = brokerName
        self._storeHost = storeHost
        self._now = now
        self._turn = turn
        self._frameLimit = frameLimit
        self._headers: dict[bytes, PullMessageRequestHeader] = {}

    def codes(self) -> dict[int, Process]:
        """
        What is served.
        """
        return {RequestCode.PULL_MESSAGE: self.pull}

    def codesOfMany(self) -> dict[int, ProcessAll]:
        """
        What is served many at a time.
        """
        return {RequestCode.PULL_MESSAGE: self.pullAll}

    # --- many pulls that find messages -----------------------------------

    def pullAll(self, calls: list[Call]) -> list[int]:
        """
        PULL_MESSAGE, many at a time: those that find messages.
        """
        permitted: dict[bytes, _Permitted] = {}
        return [self._pullSome(call, permitted) for call in calls]

    def _pullSome(self, call: Call, permitted: dict[bytes, _Permitted]) -> int:
        """
        Serve pulls of one peer.

        @param permitted: what is known of consumers in this turn.
        @return: where the first pull begins that is refused, finds no message, or comes when
            the peer does not read.
        """
        peer, _, data, start, end = call
        get, got, limit = self._store.getRecent, self._stats.got, self._frameLimit
        pieces: list[bytes] = []
        size = 0
        # Behind answers that wait for the commit, so that each peer is answered in order.
        write = peer.answer if not self._turn.hasReplies else self._later(peer)
        for pull in bulk.decodePulls(data, start, end):
            opaque, consumer, queueId, offset, most, commitOffset, stop = pull
            try:
                if consumer not in permitted:
                    permitted[consumer] = self._permit(consumer)
                group, topic, queues, matches, suggested, commits = permitted[consumer]
                found = get(topic, queueId, offset, most, matches) if queueId < queues else None
            except Exception:
                # Whatever it is, the rules meet it again, and tell the consumer.
                break
            if found is None:
                break
            records = found.data
            head = jsonHead(
                FOUND_HEADER
                % (suggested, found.nextOffset, found.minOffset, found.maxOffset, opaque),
                len(records),
            )
            length = len(head) + len(records)
            if length > limit:
                break
            pieces.append(head)
            pieces.append(records)
            size += length
            got(group, topic, found.count, len(records))
            if commits:
                self._offsets.commitWithin(
                    found.maxOffset, group, topic, queueId, commitOffset, peer.address
                )
            start = stop
            if size > _AT_ONCE:
                write(*pieces)
                pieces, size = [], 0
                if peer.isFull or self._turn.hasReplies:
                    break
        if pieces:
            write(*pieces)
        return start

    def _later(self, peer: RemotingProtocol) -> Callable[..., None]:
        return lambda *pieces: self._turn.replyAll(lambda: peer.answer(*pieces))

    def _permit(self, consumer: bytes) -> _Permitted:
        """
        Whether a consumer may pull, and which messages it wants.

        @param consumer: what all its pulls have in common.
        @raise ResponseError: if it may not.
        """
        header = self._headers.get(consumer)
        if header is None:
            if len(self._headers) >= _KNOWN:
                self._headers.clear()
            header = _headerOf(consumer)
            if len(consumer) <= _LONGEST:
                self._headers[consumer] = header
        group, config, wanted = self.permit(header)
        return _Permitted(
            header.consumerGroup,
            header.topic,
            # A filter that looks into messages has to read them.
            config.readQueueNums if wanted.accepts is None else 0,
            wanted.matches,
            self.suggested(group, fromDisk=False),
            bool(header.sysFlag & COMMIT),
        )

    # --- one pull, by all rules ------------------------------------------

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
        if not self._broker.now.brokerPermission & PERM_READ:
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
        if not self._settings.now.slaveReadEnable:
            return MASTER_ID
        return group.whichBrokerWhenConsumeSlowly if fromDisk else group.brokerId

    def _hold(
        self, header: PullMessageRequestHeader, peer: RemotingProtocol, wanted: MessageFilter
    ) -> Deferred[RemotingCommand]:
        settings = self._settings.now
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


def _headerOf(consumer: bytes) -> PullMessageRequestHeader:
    """
    What pulls of a consumer have in common, as a header.
    """
    parts = consumer.decode().split("\x01")
    group, topic, sysFlag, version, subscription, kind = parts
    return PullMessageRequestHeader(
        consumerGroup=group,
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=0,
        sysFlag=int(sysFlag),
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=int(version),
        subscription=None if subscription == _MISSING else subscription,
        expressionType=None if kind == _MISSING else kind,
    )
