# SPDX-License-Identifier: Apache-2.0
"""
Requests about offsets: of groups and of queues.

================================== ============================================
request                            its processor in Java
================================== ============================================
QUERY_CONSUMER_OFFSET              ConsumerManageProcessor
UPDATE_CONSUMER_OFFSET             ConsumerManageProcessor
GET_MAX_OFFSET, GET_MIN_OFFSET     AdminBrokerProcessor, as all that follow
SEARCH_OFFSET_BY_TIMESTAMP
GET_EARLIEST_MSG_STORETIME
GET_ALL_CONSUMER_OFFSET            for slaves, which copy the tables
GET_ALL_DELAY_OFFSET
QUERY_CORRECTION_OFFSET
CLONE_GROUP_OFFSET
================================== ============================================
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.names import checkGroup, checkTopic
from txrocket.broker.parts import Tables
from txrocket.errors import QueryNotFound, RemoteSystemError, TopicNotExist
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.bodies import DelayOffsetSerializeWrapper, QueryCorrectionOffsetBody
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messagestore import MessageStore

__all__ = ["OffsetProcessor"]

# What QUERY_CORRECTION_OFFSET says of a queue that needs no correction; Java's
# Long.MAX_VALUE.
_NO_CORRECTION = 2**63 - 1

# Offsets that are compared or copied in one slice.
_STEP: Final = 512


class OffsetProcessor:
    """
    Serves clients that ask for offsets and commit them.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        consumers: Consumers,
        delayLevels: DelayLevels,
        slices: Slices,
    ) -> None:
        self._store = store
        self._offsets = tables.offsets
        self._topics = tables.topics
        self._consumers = consumers
        self._delayLevels = delayLevels
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_MAX_OFFSET: self.maxOffset,
            RequestCode.GET_MIN_OFFSET: self.minOffset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.offsetByTime,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliestTime,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all,
            RequestCode.GET_ALL_DELAY_OFFSET: self.allDelays,
            RequestCode.QUERY_CORRECTION_OFFSET: self.corrections,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    # --- a group's ---------------------------------------------------------

    def query(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        A group's offset in a queue.  A group without an offset begins with the first message,
        if the queue still has all of its messages and they are recent.  Else the client
        decides.

        @raise QueryNotFound: if the client has to decide.
        """
        header = request.decodeHeader(QueryConsumerOffsetRequestHeader)
        topic, queueId = header.topic, header.queueId
        offset = self._offsets.query(header.consumerGroup, topic, queueId)
        if offset < 0:
            if self._store.minOffset(topic, queueId) > 0 or self._store.isOld(topic, queueId, 0):
                raise QueryNotFound(
                    f"the group {header.consumerGroup} has no offset in queue {queueId} of {topic}"
                )
            offset = 0
        return responseCommand(header=QueryConsumerOffsetResponseHeader(offset))

    def update(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Commit the offset of a group.

        @raise RemoteSystemError: if the name of topic or group is not valid, the queue does
            not exist, the offset is beyond its end, or the table is full.
        @raise TopicNotExist: if the topic does not exist.
        """
        header = request.decodeHeader(UpdateConsumerOffsetRequestHeader)
        group, topic = header.consumerGroup, header.topic
        if self._offsets.query(group, topic, header.queueId) < 0:
            # The file joins the two names by an @, so neither may have one.
            checkTopic(topic)
            checkGroup(group)
            self._checkQueue(topic, header.queueId)
            self._offsets.checkRoom(group, topic)
        queueId, offset = header.queueId, header.commitOffset
        maximum = self._store.maxOffset(topic, queueId)
        if not self._offsets.commitWithin(maximum, group, topic, queueId, offset, peer.address):
            raise RemoteSystemError(
                f"offset {offset} cannot be committed for group {group}: the next message in"
                f" queue {queueId} of {topic} gets {maximum}"
            )
        return responseCommand()

    def _checkQueue(self, topic: str, queueId: int) -> None:
        """
        Refuse offsets in queues that do not exist: they would fill the table for ever.
        """
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotExist(f"topic {topic} does not exist: no offset in it is kept")
        queues = max(config.readQueueNums, config.writeQueueNums)
        if not 0 <= queueId < queues:
            raise RemoteSystemError(
                f"queue {queueId} is not one of topic {topic}, which has {queues}"
            )

    def clone(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Give a group the offsets of another in a topic, or in all.

        @raise RemoteSystemError: if the name of the group is not valid.
        """
        header = request.decodeHeader(CloneGroupOffsetRequestHeader)
        checkGroup(header.destGroup)
        return promptly(self._slices, self._clone(header, peer.address))

    def _clone(
        self, header: CloneGroupOffsetRequestHeader, address: str
    ) -> Gradual[RemotingCommand]:
        fromGroup, toGroup = header.srcGroup, header.destGroup
        online = self._consumers.get(fromGroup)
        wanted = None if header.offline or online is None else online.subscriptions
        topics = [header.topic] if header.topic else self._offsets.topicsOf(fromGroup)
        done = 0
        for topic in topics:
            # A connected group does not need topics that it does not subscribe to.
            if self._topics.get(topic) is not None and (not wanted or topic in wanted):
                before = dict(self._offsets.of(toGroup, topic))
                self._offsets.clone(fromGroup, toGroup, topic)
                self._log.warn(
                    "{address} gives group {toGroup} the offsets of {fromGroup!r} in {topic}:"
                    " {before} -> {after}",
                    address=address,
                    toGroup=toGroup,
                    fromGroup=fromGroup,
                    topic=topic,
                    before=before,
                    after=dict(self._offsets.of(toGroup, topic)),
                )
                done += len(self._offsets.of(toGroup, topic))
            done += 1
            if done >= _STEP:
                done = 0
                yield
        return responseCommand()

    # --- a queue's ---------------------------------------------------------

    def maxOffset(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The offset that a queue's next message gets.
        """
        header = request.decodeHeader(GetMaxOffsetRequestHeader)
        offset = self._store.maxOffset(header.topic, header.queueId)
        return responseCommand(header=GetMaxOffsetResponseHeader(offset))

    def minOffset(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The offset of a queue's first message.
        """
        header = request.decodeHeader(GetMinOffsetRequestHeader)
        offset = self._store.minOffset(header.topic, header.queueId)
        return responseCommand(header=GetMinOffsetResponseHeader(offset))

    def offsetByTime(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The offset of the message that was stored at a time.
        """
        header = request.decodeHeader(SearchOffsetRequestHeader)
        offset = self._store.offsetByTime(header.topic, header.queueId, header.timestamp)
        return responseCommand(header=SearchOffsetResponseHeader(offset))

    def earliestTime(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        When a queue's first message was stored; -1 if the queue is empty.
        """
        header = request.decodeHeader(GetEarliestMsgStoretimeRequestHeader)
        found = self._store.earliestTimestamp(header.topic, header.queueId)
        return responseCommand(
            header=GetEarliestMsgStoretimeResponseHeader(-1 if found is None else found)
        )

    # --- all ---------------------------------------------------------------

    def all(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        All groups' offsets.
        """
        return self._offsets.encoded().addCallback(lambda body: responseCommand(body=body))

    def allDelays(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The offset up to which each delay level is delivered.
        """
        return responseCommand(
            body=encodeBody(DelayOffsetSerializeWrapper(self._delayLevels.offsets))
        )

    def corrections(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The least offsets of all groups in a topic's queues, for a group that is behind.
        """
        header = request.decodeHeader(QueryCorrectionOffsetHeader)
        return promptly(self._slices, self._corrections(header))

    def _corrections(self, header: QueryCorrectionOffsetHeader) -> Gradual[RemotingCommand]:
        topic = header.topic
        least = yield from self._leastOf(topic, (header.filterGroups or "").split(","))
        for queueId, offset in self._offsets.of(header.compareGroup, topic).items():
            if least.get(queueId, -1) > offset:
                least[queueId] = _NO_CORRECTION
        return (yield from telling(QueryCorrectionOffsetBody(least)))

    def _leastOf(self, topic: str, without: list[str]) -> Gradual[dict[int, int]]:
        """
        The least offset of all groups but some in each queue of a topic.  An offset before
        a queue's first message does not count.
        """
        least: dict[int, int] = {}
        done = 0
        for group in self._offsets.groupsOf(topic).difference(without):
            for queueId, offset in self._offsets.of(group, topic).items():
                if offset < least.get(queueId, offset + 1) and (
                    offset >= self._store.minOffset(topic, queueId)
                ):
                    least[queueId] = offset
                done += 1
            done += 1
            if done >= _STEP:
                done = 0
                yield
        return least
