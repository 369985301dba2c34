# SPDX-License-Identifier: Apache-2.0
"""
Requests that the broker sends on to a group's consumers: to go to other offsets, and to tell
their offsets; Java's C{Broker2Client}::

    INVOKE_BROKER_TO_RESET_OFFSET --> offsets of all queues at a time
        --> RESET_CONSUMER_CLIENT_OFFSET, oneway, to each consumer of the group

    INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        --> GET_CONSUMER_STATUS_FROM_CLIENT, to each or one --> all answers in one

The consumers go to the offsets and then commit them.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.clients.registry import ClientChannelInfo
from txrocket.broker.pull.consumeprogress import ConsumeProgress
from txrocket.errors import ConsumerNotOnline, RemoteSystemError, RocketError
from txrocket.model import MessageQueue
from txrocket.processors.cooperate import Slices, cooperate
from txrocket.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from txrocket.protocol.bodies.codec import decodeGradually, encodeGradually
from txrocket.protocol.codes import LanguageCode, RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["ResetOffsetProcessor"]

# The ordinal of V3_0_7_SNAPSHOT: older clients know nothing of resets.
_OLDEST = 28

# How long a consumer has to answer, in seconds.
_TIMEOUT = 5.0

# How many bytes the answer of a consumer may have: 8,192 queues with long names.
_LONGEST_STATUS: Final = 1024 * 1024

# How many queues the log names.
_SHOWN: Final = 16


class ResetOffsetProcessor:
    """
    Serves administrators that reset the offsets of groups.
    """

    _log = Logger()

    def __init__(self, progress: ConsumeProgress, consumers: Consumers, slices: Slices) -> None:
        self._progress = progress
        self._consumers = consumers
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    @inlineCallbacks
    def reset(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """
        Have a group's consumers go on with the messages since a time.

        @raise RemoteSystemError: if the topic does not exist, the group has no offsets, or a
            consumer is too old.
        @raise ConsumerNotOnline: if no consumer of the group is connected.
        """
        header = request.decodeHeader(ResetOffsetRequestHeader)
        offsets = yield cooperate(
            self._slices,
            self._progress.offsetsAt(header.group, header.topic, header.timestamp, header.isForce),
        )
        clients = self._clients(header.group)
        if not clients:
            raise ConsumerNotOnline(
                f"no consumer of the group {header.group} is connected that could be taken to"
                f" other offsets in {header.topic}"
            )
        answer = yield cooperate(self._slices, self._tell(header, offsets, clients, request))
        shown = {queue.queueId: offset for queue, offset in islice(offsets.items(), _SHOWN)}
        self._log.warn(
            "{address} takes group {group} to other offsets in {count} queues of {topic}:"
            " {offsets}{more}",
            address=peer.address,
            group=header.group,
            count=len(offsets),
            topic=header.topic,
            offsets=shown,
            more=" and so on" if len(offsets) > _SHOWN else "",
        )
        return responseCommand(body=answer)

    def _tell(
        self,
        header: ResetOffsetRequestHeader,
        offsets: dict[MessageQueue, int],
        clients: list[ClientChannelInfo],
        request: RemotingCommand,
    ) -> Gradual[bytes]:
        """
        Send other offsets to consumers.

        @return: the offsets as Java's tool reads them.
        """
        # Whether the group may go forward is decided here; Java passes no more on.
        told = ResetOffsetRequestHeader(header.topic, header.group, header.timestamp)
        answer = yield from encodeGradually(ResetOffsetBody(offsets))
        forC = b""
        for client in clients:
            body = answer
            if _isForC(client.language, request.language):
                forC = body = forC or (yield from encodeGradually(_forC(offsets)))
            command = requestCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
            try:
                client.peer.oneway(command)
            except RocketError as error:
                self._log.error(
                    "Consumer {clientId} of {group} could not be told of other offsets: {error}",
                    clientId=client.clientId,
                    group=header.group,
                    error=error,
                )
            yield
        return answer

    @inlineCallbacks
    def status(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """
        The offsets of a group's consumers, or of one of them.  A consumer that does not
        answer is left out.

        @raise RemoteSystemError: if no consumer is connected, or one is too old.
        """
        header = request.decodeHeader(GetConsumerStatusRequestHeader)
        clients = self._clients(header.group)
        if not clients:
            raise RemoteSystemError(f"no consumer of the group {header.group} is connected")
        asked = [each for each in clients if header.clientAddr in (None, "", each.clientId)]
        told = GetConsumerStatusRequestHeader(header.topic, header.group)
        asking = yield cooperate(self._slices, self._ask(asked, told))
        answers = yield DeferredList(asking, consumeErrors=True)
        tables = {
            client.clientId: table
            for client, (succeeded, table) in zip(asked, answers, strict=True)
            if succeeded and table is not None
        }
        body = yield cooperate(
            self._slices, encodeGradually(GetConsumerStatusBody(consumerTable=tables))
        )
        return responseCommand(body=body)

    def _ask(
        self, clients: list[ClientChannelInfo], header: GetConsumerStatusRequestHeader
    ) -> Gradual[list[Deferred[Any]]]:
        """
        Ask consumers for their offsets.
        """
        asking = []
        for each in clients:
            request = requestCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
            asking.append(each.peer.request(request, _TIMEOUT).addCallback(self._table))
            yield
        return asking

    def _table(self, answer: RemotingCommand) -> Deferred[dict[MessageQueue, int] | None] | None:
        if answer.code or not 0 < len(answer.body) <= _LONGEST_STATUS:
            return None
        work = decodeGradually(GetConsumerStatusBody, answer.body)
        return cooperate(self._slices, work).addCallback(lambda body: body.messageQueueTable)

    def _clients(self, name: str) -> list[ClientChannelInfo]:
        """
        The consumers of a group.

        @raise RemoteSystemError: if one of them is too old.
        """
        group = self._consumers.get(name)
        clients = [] if group is None else [each.client for each in group.byId.values()]
        for each in clients:
            if each.version < _OLDEST:
                raise RemoteSystemError(
                    f"the consumer {each.clientId} of version {each.version} is too old for that"
                )
        return clients


def _isForC(language: str, asker: str) -> bool:
    """
    Whether a consumer reads offsets in the form of C++.  The language of Java's tool chooses
    the form, and a C++ consumer reads only its own.
    """
    cpp, java = LanguageCode.CPP.name, LanguageCode.JAVA.name
    return language == cpp or (asker == cpp and language != java)


def _forC(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        tuple(
            MessageQueueForC(each.topic, each.brokerName, each.queueId, offset)
            for each, offset in offsets.items()
        )
    )
