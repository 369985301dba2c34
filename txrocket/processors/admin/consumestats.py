# SPDX-License-Identifier: Apache-2.0
"""
Which groups consume a topic, and how far a group has come in it as times; both
C{AdminBrokerProcessor}'s in Java.

    QUERY_CONSUME_TIME_SPAN    QUERY_TOPIC_CONSUME_BY_WHO
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.pull.consumeprogress import ConsumeProgress
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.processors.cooperate import Slices, cooperate, promptly, telling
from txrocket.protocol.bodies import GroupList, QueryConsumeTimeSpanBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["ConsumptionProcessor"]


class ConsumptionProcessor:
    """
    Serves administrators that ask for the groups of a topic and their progress.
    """

    def __init__(
        self,
        progress: ConsumeProgress,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        slices: Slices,
        now: Callable[[], int],
    ) -> None:
        """
        @param now: the time in milliseconds.
        """
        self._progress = progress
        self._offsets = offsets
        self._consumers = consumers
        self._slices = slices
        self._now = now

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.times,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups,
        }

    def times(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        A group's progress in the queues of a topic, as times.

        @return: a Deferred that fails with L{TopicNotExist
            <txrocket.errors.TopicNotExist>} if the topic does not exist.
        """
        header = request.decodeHeader(QueryConsumeTimeSpanRequestHeader)
        return cooperate(self._slices, self._times(header.group, header.topic))

    def _times(self, group: str, topic: str) -> Gradual[RemotingCommand]:
        spans = yield from self._progress.times(group, topic, self._now())
        return (yield from telling(QueryConsumeTimeSpanBody(spans)))

    def groups(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        The groups that subscribe to a topic or have consumed it.
        """
        topic = request.decodeHeader(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._consumers.groupsOf(topic) | self._offsets.groupsOf(topic)
        return promptly(self._slices, telling(GroupList(frozenset(groups))))
