# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about consumer groups; all of them
C{AdminBrokerProcessor}'s in Java.

    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP    GET_CONSUME_STATS
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG       GET_BROKER_CONSUME_STATS
    DELETE_SUBSCRIPTIONGROUP
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.names import checkGroup
from txrocket.broker.parts import Tables
from txrocket.broker.pull.consumeprogress import ConsumeProgress
from txrocket.broker.replication.durability import Durability
from txrocket.model import SubscriptionGroupConfig
from txrocket.processors.admin.topics import checkQueues
from txrocket.processors.cooperate import Slices, cooperate, telling
from txrocket.protocol.bodies import ConsumeStats
from txrocket.protocol.bodies.codec import decodeBody, encodeBody, encodeGradually
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["GroupProcessor"]


class GroupProcessor:
    """
    Serves administrators that create, change, delete and look at groups.
    """

    _log = Logger()

    def __init__(
        self,
        tables: Tables,
        progress: ConsumeProgress,
        slices: Slices,
        address: str,
        durability: Durability,
    ) -> None:
        """
        @param address: the broker's.
        """
        self._durability = durability
        self._groups = tables.groups
        self._removal = tables.removal
        self._progress = progress
        self._slices = slices
        self._address = address

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_CONSUME_STATS: self.progress,
            RequestCode.GET_BROKER_CONSUME_STATS: self.allProgress,
        }

    def update(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Create or change a group.

        @raise RemoteSystemError: if the name is not valid, or the number of queues is out of
            bounds.
        """
        config = decodeBody(SubscriptionGroupConfig, request.body)
        checkGroup(config.groupName)
        checkQueues(config.retryQueueNums)
        before = self._groups.table.get(config.groupName)
        saved = self._groups.put(config)
        self._log.warn(
            "{address} {did} consumer group {group}: {before} -> {after}",
            address=peer.address,
            did="made" if before is None else "changed",
            group=config.groupName,
            before=before,
            after=config,
        )
        saved.addCallback(lambda none: self._durability.tablesStored())
        return saved.addCallback(lambda none: responseCommand())

    def all(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        All groups.
        """
        return responseCommand(body=self._groups.encoded())

    def delete(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Delete a group, which need not exist.
        """
        header = request.decodeHeader(DeleteSubscriptionGroupRequestHeader)
        self._log.warn(
            "{address} deletes consumer group {group!r}{offsets}: {before} -> None",
            address=peer.address,
            group=header.groupName,
            offsets=" and its offsets" if header.removeOffset else "",
            before=self._groups.table.get(header.groupName),
        )
        removed = self._removal.group(header.groupName, withOffsets=header.removeOffset)
        removed.addCallback(lambda none: self._durability.tablesStored())
        return removed.addCallback(lambda none: responseCommand())

    def progress(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        The progress of a group in a topic, or in all.
        """
        header = request.decodeHeader(GetConsumeStatsRequestHeader)
        return cooperate(self._slices, self._progressOf(header.consumerGroup, header.topic))

    def _progressOf(self, group: str, topic: str | None) -> Gradual[RemotingCommand]:
        stats = yield from self._progress.ofGroup(group, topic)
        return (yield from telling(stats))

    def allProgress(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        The progress of all groups in all topics.
        """
        header = request.decodeHeader(GetConsumeStatsInBrokerHeader)
        return cooperate(self._slices, self._allProgress(header.isOrder)).addCallback(
            lambda body: responseCommand(body=body)
        )

    def _allProgress(self, ordered: bool) -> Gradual[bytes]:
        """
        A L{ConsumeStatsList<txrocket.protocol.bodies.ConsumeStatsList>}, encoded part by
        part, because to encode it takes as long as to collect it.
        """
        behind = 0
        parts: dict[str, list[bytes]] = {group: [] for group in self._groups.table}
        yield

        def tell(group: str, stats: ConsumeStats) -> Gradual[None]:
            nonlocal behind
            behind += sum(
                each.brokerOffset - each.consumerOffset for each in stats.offsetTable.values()
            )
            parts[group].append((yield from encodeGradually(stats)))

        yield from self._progress.ofGroups(parts, ordered, tell)
        groups = []
        for name, each in parts.items():
            groups.append(b"{%s:[%s]}" % (encodeBody(name), b",".join(each)))
            yield
        return b'{"brokerAddr":%s,"consumeStatsList":[%s],"totalDiff":%d}' % (
            encodeBody(self._address),
            b",".join(groups),
            behind,
        )
