# SPDX-License-Identifier: Apache-2.0
"""
Requests that the broker passes on to one consumer of a group, whose answer it passes back;
both C{AdminBrokerProcessor}'s in Java::

    GET_CONSUMER_RUNNING_INFO    as it is
    CONSUME_MESSAGE_DIRECTLY     with the message, for the consumer's listener to try
"""

from __future__ import annotations

from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.broker.clients.consumers import Consumers
from txrocket.errors import ConsumeMsgTimeout, RemoteSystemError, RemotingError, RequestTimedOut
from txrocket.protocol.codes import RequestCode, requestName
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messagestore import MessageStore

__all__ = ["ConsumerCallProcessor"]

# The ordinal of V3_1_8_SNAPSHOT: older consumers do not know these requests.
_OLDEST = 62

# How long a consumer has to answer, in seconds.
_TIMEOUT = 10.0


class ConsumerCallProcessor:
    """
    Passes requests on to consumers.
    """

    def __init__(self, consumers: Consumers, store: MessageStore, brokerName: str) -> None:
        self._consumers = consumers
        self._store = store
        self._brokerName = brokerName

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.runningInfo,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consumeDirectly,
        }

    def runningInfo(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        The running info of a consumer.

        @raise RemoteSystemError: as Java answers, if it is not connected or too old.
        """
        header = request.decodeHeader(GetConsumerRunningInfoRequestHeader)
        return self._call(request, header.consumerGroup, header.clientId, request.body)

    def consumeDirectly(
        self, request: RemotingCommand, peer: RemotingProtocol
    ) -> Deferred[RemotingCommand]:
        """
        Have a consumer's listener consume a message.

        @raise RemoteSystemError: if the message does not exist, or the consumer is not
            connected or too old.
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
