# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about topics, and about files that are no longer
needed; all of them C{AdminBrokerProcessor}'s in Java.

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
from txrocket.broker.progress import Gradual, Progress
from txrocket.broker.removal import Removal
from txrocket.broker.topics import Topics
from txrocket.errors import RemoteSystemError
from txrocket.model import TopicConfig, TopicFilterType
from txrocket.processors.gradual import Slices, gradually, telling
from txrocket.protocol.bodies import TopicList
from txrocket.protocol.bodycodec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["QUEUE_LIMIT", "TopicProcessor", "checkQueues"]

#: How many queues a topic may have: whoever asks for its statistics gets a line
#: for each.
QUEUE_LIMIT: Final = 8192


def checkQueues(*counts: int) -> None:
    """
    Refuse numbers of queues that cannot be meant.

    @raise RemoteSystemError: naming the first.
    """
    for count in counts:
        if not 0 <= count <= QUEUE_LIMIT:
            raise RemoteSystemError(f"{count} queues: 0 to {QUEUE_LIMIT} are allowed")


class TopicProcessor:
    """
    Serves those who make, change, delete and look at topics.
    """

    _log = Logger()

    def __init__(
        self,
        topics: Topics,
        removal: Removal,
        progress: Progress,
        cooperator: Slices,
        told: Callable[[], Deferred[None]],
    ) -> None:
        """
        @param told: gives a Deferred that fires once name servers have been told of
            what has just changed.
        """
        self._topics = topics
        self._removal = removal
        self._progress = progress
        self._cooperator = cooperator
        self._told = told

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
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
        Make a topic, or change it.  When that is answered it is on the disk, and
        the name servers have heard of it, as far as they can be reached: whoever
        asked may send at once.

        @raise RemoteSystemError: if the name cannot be a topic's or is the
            broker's own, or the number of queues is out of bounds.
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
        yield told
        return responseCommand()

    def delete(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Delete a topic; one that is not there is deleted as well.

        @raise RemoteSystemError: if the name cannot be a topic's or is the
            broker's own.
        """
        topic = request.decodeHeader(DeleteTopicRequestHeader).topic
        self._checkName(topic)
        self._log.warn(
            "{address} deletes topic {topic} and its queues: {before} -> None",
            address=peer.address,
            topic=topic,
            before=self._topics.get(topic),
        )
        return self._removal.topic(topic).addCallback(lambda none: responseCommand())

    def all(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        All topics.
        """
        return responseCommand(body=self._topics.encoded())

    def stats(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Where a topic's queues begin and end.

        @return: a Deferred that fails with L{TopicNotExist
            <txrocket.errors.TopicNotExist>} if there is no such topic.
        """
        topic = request.decodeHeader(GetTopicStatsInfoRequestHeader).topic
        return gradually(self._cooperator, self._ends(topic))

    def _ends(self, topic: str) -> Gradual[RemotingCommand]:
        table = yield from self._progress.ends(topic)
        return (yield from telling(table))

    def own(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        The topics that brokers, and this one, have for themselves.
        """
        return responseCommand(body=encodeBody(TopicList(SYSTEM_TOPICS | self._topics.own)))

    # --- what is no longer needed ------------------------------------------

    def cleanUnused(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        Delete the queues of topics that are not there any more, if the log has none of
        their messages any more either.
        """

        def done(count: int) -> RemotingCommand:
            self._log.warn(
                "{address} had the empty queues of unused topics deleted, topics: {count}",
                address=peer.address,
                count=count,
            )
            return responseCommand()

        return gradually(self._cooperator, self._removal.unused()).addCallback(done)

    def cleanQueues(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Nothing: queues forget what the log no longer has as soon as a file of it is
        deleted.  An empty one stays, to go on counting where it has stopped.
        """
        return responseCommand()

    def deleteFiles(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Delete the files of the log that are old enough, at once and not in the hour
        that is meant for it.  A file that is younger than C{fileReservedTime} stays.
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
