# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about topics and old files; all of them C{AdminBrokerProcessor}'s
in Java.

    UPDATE_AND_CREATE_TOPIC    GET_ALL_TOPIC_CONFIG    GET_TOPIC_STATS_INFO
    DELETE_TOPIC_IN_BROKER     GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    CLEAN_UNUSED_TOPIC         CLEAN_EXPIRED_CONSUMEQUEUE
    DELETE_EXPIRED_COMMITLOG
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.names import SYSTEM_TOPICS, checkNotSystem, checkTopic
from txrocket.broker.parts import Tables
from txrocket.broker.pull.consumeprogress import ConsumeProgress
from txrocket.broker.replication.durability import Durability
from txrocket.errors import RemoteSystemError
from txrocket.model import TopicConfig, TopicFilterType
from txrocket.processors.cooperate import Slices, cooperate, telling
from txrocket.protocol.bodies import TopicList
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["QUEUE_LIMIT", "TopicProcessor", "checkQueues"]

#: How many queues a topic may have, because its statistics have an entry for each.
QUEUE_LIMIT: Final = 8192


def checkQueues(*counts: int) -> None:
    """
    Refuse numbers of queues that are out of bounds.

    @raise RemoteSystemError: naming the first.
    """
    for count in counts:
        if not 0 <= count <= QUEUE_LIMIT:
            raise RemoteSystemError(f"{count} queues: 0 to {QUEUE_LIMIT} are allowed")


class TopicProcessor:
    """
    Serves administrators that create, change, delete and look at topics.
    """

    _log = Logger()

    def __init__(
        self,
        tables: Tables,
        progress: ConsumeProgress,
        slices: Slices,
        told: Callable[[], Deferred[None]],
        durability: Durability,
    ) -> None:
        """
        @param told: gives a Deferred that fires once the name servers know of the last
            change.
        """
        self._durability = durability
        self._topics = tables.topics
        self._removal = tables.removal
        self._progress = progress
        self._slices = slices
        self._told = told

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.own,
            RequestCode.CLEAN_UNUSED_TOPIC: self.cleanUnused,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.cleanQueues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.deleteFiles,
        }

    @inlineCallbacks
    def update(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """
        Create or change a topic.  The response comes once the topic is on the disk and
        every name server that can be reached knows it, so a client may send at once.  If
        messages wait for a slave, it also has the topic.

        @raise RemoteSystemError: if the name is not valid or the broker's own, or the number
            of queues is out of bounds.
        """
        header = request.decodeHeader(CreateTopicRequestHeader)
        self._checkName(header.topic)
        checkQueues(header.readQueueNums, header.writeQueueNums)
        config = TopicConfig(
            header.topic,
            header.readQueueNums,
            header.writeQueueNums,
            header.perm,
            TopicFilterType(header.topicFilterType),
            header.topicSysFlag or 0,
        )
        before = self._topics.get(header.topic)
        saved = self._topics.put(config)
        self._log.warn(
            "{address} {did} topic {topic}: {before} -> {after}",
            address=peer.address,
            did="made" if before is None else "changed",
            topic=header.topic,
            before=before,
            after=config,
        )
        told = self._told()
        yield saved
        yield self._durability.tablesStored()
        yield told
        return responseCommand()

    def delete(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Delete a topic, which need not exist.

        @raise RemoteSystemError: if the name is not valid or the broker's own.
        """
        topic = request.decodeHeader(DeleteTopicRequestHeader).topic
        self._checkName(topic)
        self._log.warn(
            "{address} deletes topic {topic} and its queues: {before} -> None",
            address=peer.address,
            topic=topic,
            before=self._topics.get(topic),
        )
        removed = self._removal.topic(topic)
        removed.addCallback(lambda none: self._durability.tablesStored())
        return removed.addCallback(lambda none: responseCommand())

    def all(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        All topics.
        """
        return responseCommand(body=self._topics.encoded())

    def stats(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        The first and last offsets of a topic's queues.

        @return: a Deferred that fails with L{TopicNotExist
            <txrocket.errors.TopicNotExist>} if the topic does not exist.
        """
        topic = request.decodeHeader(GetTopicStatsInfoRequestHeader).topic
        return cooperate(self._slices, self._ends(topic))

    def _ends(self, topic: str) -> Gradual[RemotingCommand]:
        table = yield from self._progress.ends(topic)
        return (yield from telling(table))

    def own(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The topics that brokers, and this one, have for themselves.
        """
        return responseCommand(body=encodeBody(TopicList(SYSTEM_TOPICS | self._topics.own)))

    # --- removal -----------------------------------------------------------

    def cleanUnused(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        Delete the queues of topics that do not exist any more, if the log has no message of
        them.
        """

        def done(count: int) -> RemotingCommand:
            self._log.warn(
                "{address} had the empty queues of unused topics deleted, topics: {count}",
                address=peer.address,
                count=count,
            )
            return responseCommand()

        return cooperate(self._slices, self._removal.unused()).addCallback(done)

    def cleanQueues(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Nothing to do: with a file of the log the broker also deletes the entries of queues.
        An empty queue stays, to go on counting.
        """
        return responseCommand()

    def deleteFiles(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Delete the old files of the log now, and not at the hour of C{deleteWhen}.  A file
        that is younger than C{fileReservedTime} stays.
        """
        count = self._removal.oldFiles()
        self._log.warn(
            "{address} had files of the log deleted that are older than fileReservedTime: {count}",
            address=peer.address,
            count=count,
        )
        return responseCommand()

    def _checkName(self, topic: str) -> None:
        checkTopic(topic)
        checkNotSystem(topic)
        if topic in self._topics.own:
            raise RemoteSystemError(f"the topic {topic} is one of this broker's own")
