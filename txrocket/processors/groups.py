# SPDX-License-Identifier: Apache-2.0
"""
Requests of administrators about consumer groups; all of them
C{AdminBrokerProcessor}'s in Java.

    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP    GET_CONSUME_STATS
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG       GET_BROKER_CONSUME_STATS
    DELETE_SUBSCRIPTIONGROUP

and those that are passed on to one of a group's consumers, whose answer is passed
back::

    GET_CONSUMER_RUNNING_INFO    as it is
    CONSUME_MESSAGE_DIRECTLY     with the message, for its listener to try
"""

from __future__ import annotations

from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.clients import Consumers
from txrocket.broker.groups import Groups
from txrocket.broker.names import checkGroup
from txrocket.broker.progress import Gradual, Progress
from txrocket.broker.removal import Removal
from txrocket.errors import ConsumeMsgTimeout, RemoteSystemError, RemotingError, RequestTimedOut
from txrocket.model import SubscriptionGroupConfig
from txrocket.processors.gradual import Slices, gradually, telling
from txrocket.processors.topics import checkQueues
from txrocket.protocol.bodies import ConsumeStats
from txrocket.protocol.bodycodec import decodeBody, encodeBody, encodeGradually
from txrocket.protocol.codes import RequestCode, requestName
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.reading import StoreReader

__all__ = ["ConsumerCallProcessor", "GroupProcessor"]

# The ordinal of V3_1_8_SNAPSHOT: older consumers do not know these requests.
_OLDEST = 62

# How long a consumer has to answer, in seconds.
_TIMEOUT = 10.0


class GroupProcessor:
    """
    Serves those who make, change, delete and look at groups.
    """

    _log = Logger()

    def __init__(
        self,
        groups: Groups,
        removal: Removal,
        progress: Progress,
        cooperator: Slices,
        address: str,
    ) -> None:
        """
        @param address: the broker's.
        """
        self._groups = groups
        self._removal = removal
        self._progress = progress
        self._cooperator = cooperator
        self._address = address

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
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
        Make a group, or change it.

        @raise RemoteSystemError: if the name cannot be a group's, or the number of
            queues is out of bounds.
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
        return saved.addCallback(lambda none: responseCommand())

    def all(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        All groups.
        """
        return responseCommand(body=self._groups.encoded())

    def delete(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Delete a group; one that is not there is deleted as well.
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
        return removed.addCallback(lambda none: responseCommand())

    def progress(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        How far a group has come in a topic, or in all.
        """
        header = request.decodeHeader(GetConsumeStatsRequestHeader)
        return gradually(self._cooperator, self._progressOf(header.consumerGroup, header.topic))

    def _progressOf(self, group: str, topic: str | None) -> Gradual[RemotingCommand]:
        stats = yield from self._progress.ofGroup(group, topic)
        return (yield from telling(stats))

    def allProgress(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        How far all groups have come in all topics.
        """
        header = request.decodeHeader(GetConsumeStatsInBrokerHeader)
        return gradually(self._cooperator, self._allProgress(header.isOrder)).addCallback(
            lambda body: responseCommand(body=body)
        )

    def _allProgress(self, ordered: bool) -> Gradual[bytes]:
        """
        A L{ConsumeStatsList<txrocket.protocol.bodies.ConsumeStatsList>}, written
        part by part: to write it takes as long as to gather what is in it.
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


class ConsumerCallProcessor:
    """
    Passes requests on to consumers.
    """

    def __init__(self, consumers: Consumers, store: StoreReader, brokerName: str) -> None:
        self._consumers = consumers
        self._store = store
        self._brokerName = brokerName

    def codes(self) -> dict[int, Process]:
        """
        What serves which code.
        """
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.runningInfo,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consumeDirectly,
        }

    def runningInfo(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        What a consumer tells of itself.

        @raise RemoteSystemError: as Java answers, if it is not connected or too old.
        """
        header = request.decodeHeader(GetConsumerRunningInfoRequestHeader)
        return self._call(request, header.consumerGroup, header.clientId, request.body)

    def consumeDirectly(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        What a consumer's listener makes of a message.

        @raise RemoteSystemError: if there is no such message, or the consumer is
            not connected or too old.
        """
        header = request.decodeHeader(ConsumeMessageDirectlyResultRequestHeader)
        _, _, offset = decodeMessageId(header.msgId or "")
        record = self._store.messageAt(offset)
        if record is None:
            raise RemoteSystemError(f"there is no message {header.msgId}")
        request.extFields["brokerName"] = self._brokerName
        return self._call(request, header.consumerGroup, header.clientId or "", record)

    def _call(
        self, request: RemotingCommand, groupName: str, clientId: str, body: bytes
    ) -> Deferred[RemotingCommand]:
        group = self._consumers.get(groupName)
        member = None if group is None else group.byId.get(clientId)
        if member is None:
            raise RemoteSystemError(f"the consumer {clientId} of {groupName} is not connected")
        client = member.client
        if client.version < _OLDEST:
            raise RemoteSystemError(
                f"the consumer {clientId} of version {client.version} is too old for that"
            )
        command = requestCommand(request.code, body=body)
        command.fields = dict(request.extFields)

        def failed(failure: Failure) -> NoReturn:
            failure.trap(RemotingError)
            what = requestName(request.code)
            said = f"{what}: the consumer {clientId} of {groupName}: {failure.value}"
            if failure.check(RequestTimedOut):
                raise ConsumeMsgTimeout(said)
            raise RemoteSystemError(said)

        return client.peer.request(command, _TIMEOUT).addErrback(failed)
