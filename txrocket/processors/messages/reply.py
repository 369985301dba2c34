# SPDX-License-Identifier: Apache-2.0
"""
SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: the reply to a message whose producer waits for
it; Java's C{ReplyMessageProcessor}::

    replier --> broker --> requester: the producer whose id is REPLY_TO_CLIENT
                  |          |
                  |<---------' has the reply, or is not connected
                  '--> appended to CLUSTER_REPLY_TOPIC, if storeReplyMessageEnable is set
                  '--> response to the replier

The stored reply is only a record: the requester never reads it, and does not notice if the
store refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.clients.producers import Producers
from txrocket.broker.interfaces import SendMessageContext
from txrocket.broker.parts import Core
from txrocket.broker.replication.durability import LATE
from txrocket.errors import (
    InvalidMessage,
    MessageIllegal,
    RemoteSystemError,
    ResponseError,
    RocketError,
    StoreError,
)
from txrocket.message import (
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_WAIT,
    decodeHost,
    splitProperties,
)
from txrocket.processors.messages.send.reroute import TRANSACTION
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.processors.messages.send.sendhooks import SendHooks
from txrocket.processors.messages.send.sendresponse import SendResponses
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.remoting.errorresponse import printableRemark
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messagestore import Appended

__all__ = ["ReplyProcessor"]

# How long the requester has to answer, in seconds.
_TIMEOUT: Final = 10.0


class ReplyProcessor:
    """
    Serves repliers: passes their replies on to the requesters.
    """

    _log = Logger()

    def __init__(
        self,
        core: Core,
        producers: Producers,
        checks: SendChecks,
        responses: SendResponses,
        hooks: SendHooks,
        *,
        choose: Callable[[int], int],
    ) -> None:
        """
        @param choose: returns a number below its argument.
        """
        self._store = core.store
        self._producers = producers
        self._stats = core.stats
        self._checks = checks
        self._responses = responses
        self._hooks = hooks
        host, port = decodeHost(core.storeHost)
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._choose = choose

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.replyV2,
        }

    def reply(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_REPLY_MESSAGE.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeader))

    def replyV2(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        SEND_REPLY_MESSAGE_V2.
        """
        return self._serve(request, peer, request.decodeHeader(SendMessageRequestHeaderV2))

    def _serve(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Answer:
        try:
            sending = self._admitted(request, peer, header)
        except ResponseError as error:
            response = responseCommand()
            self._responses.refuse(response, error)
            return response
        return self._pass(sending, header, peer.host)

    def _admitted(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> SendMessageContext:
        """
        Check a reply.

        @raise ResponseError: if it may not be sent.
        """
        self._checks.checkRole()
        self._checks.checkBegun()
        config = self._checks.topic(header, peer)
        queueId = header.queueId if header.queueId >= 0 else self._choose(config.writeQueueNums)
        sending = SendMessageContext(
            header.topic,
            queueId,
            header.properties or "",
            request.body,
            header.flag,
            header.producerGroup,
            header.bornTimestamp,
            False,
            peer.address,
        )
        if self._hooks:
            self._hooks.before(sending, config)
        try:
            sending.properties.encode()
        except UnicodeEncodeError:
            raise MessageIllegal("properties: half of a surrogate pair is no text") from None
        return sending

    @inlineCallbacks
    def _pass(
        self,
        sending: SendMessageContext,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        bornHost: bytes,
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        problem = yield self._push(sending, header)
        response = self._responses.told("0", sending.queueId, 0)
        if problem is not None:
            self._responses.refuse(response, problem)
        if self._checks.settings.now.storeReplyMessageEnable:
            appended = yield self._append(sending, header, bornHost)
            if appended is not None:
                # It is stored, even if the requester has not got it.
                told = self._responses.accepted(appended, sending.queueId)
                response.fields = told.fields
        if self._hooks:
            self._hooks.after(sending, response)
        return response

    @inlineCallbacks
    def _push(
        self,
        sending: SendMessageContext,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Generator[Deferred[Any], Any, RemoteSystemError | None]:
        """
        Pass a reply on to its requester.

        @return: a Deferred of the error, or of L{None}.
        """
        asker = splitProperties(sending.properties).get(PROPERTY_REPLY_TO_CLIENT)
        if asker is None:
            return RemoteSystemError(
                f"a reply without the property {PROPERTY_REPLY_TO_CLIENT} has no requester"
            )
        peer = self._producers.find(asker)
        if peer is None:
            return RemoteSystemError(f"the client {asker} that asked is not connected here")
        request = requestCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pushed(sending, header), sending.body
        )
        try:
            answer = yield peer.request(request, _TIMEOUT)
        except RocketError as error:
            said = str(error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            said = f"it answered code {answer.code}: {answer.remark}"
        return RemoteSystemError(f"the client {asker} that asked did not take the reply: {said}")

    def _pushed(
        self,
        sending: SendMessageContext,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> ReplyMessageRequestHeader:
        now = self._checks.now()
        given = sending.properties.removesuffix("\x02")
        properties = f"{given}\x02{PROPERTY_PUSH_REPLY_TIME}\x01{now}"
        return ReplyMessageRequestHeader(
            sending.producerGroup,
            sending.topic,
            header.defaultTopic,
            header.defaultTopicQueueNums,
            sending.queueId,
            header.sysFlag,
            sending.bornTimestamp,
            sending.flag,
            sending.address,
            self._address,
            now,
            properties,
            header.reconsumeTimes,
            header.unitMode,
        )

    @inlineCallbacks
    def _append(
        self,
        sending: SendMessageContext,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        bornHost: bytes,
    ) -> Generator[Deferred[Any], Any, Appended | None]:
        """
        Store a reply.

        @return: a Deferred of where it is, or of L{None} if it is not stored.
        """
        waits = splitProperties(sending.properties).get(PROPERTY_WAIT, "true").lower() == "true"
        try:
            appended = self._store.put(
                sending.topic,
                sending.queueId,
                sending.body,
                sending.properties.encode(),
                sending.bornTimestamp,
                bornHost,
                sending.flag,
                # A reply is not a half message.  Java stores no flag at all, not even that
                # of a compressed body.
                header.sysFlag & ~TRANSACTION,
                header.reconsumeTimes or 0,
            )
            end = appended.end
            stored = self._checks.durability.stored
            yield stored(end) if waits else self._store.written.reaches(end)
        except LATE:
            # It is in the log.
            pass
        except (InvalidMessage, StoreError) as error:
            self._stats.failed()
            self._log.warn("A reply is not stored: {error}", error=printableRemark(str(error)))
            return None
        self._stats.put(sending.topic, 1, appended.sizes[0])
        return appended
