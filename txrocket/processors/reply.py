# SPDX-License-Identifier: Apache-2.0
"""
SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: the reply to a message whose sender waits
for it; Java's C{ReplyMessageProcessor}::

    replier --> broker --> who asked: the producer whose id is REPLY_TO_CLIENT
                  |          |
                  |<---------' has it, or is not there
                  '--> stored in CLUSTER_REPLY_TOPIC, if storeReplyMessageEnable is set
                  '--> the replier is answered

What is stored is for the record: nobody reads it to get a reply, and a store that does
not take it changes nothing for who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from txrocket.broker.clients import Producers
from txrocket.broker.interfaces import Sending
from txrocket.broker.stats import Stats
from txrocket.errors import (
    FlushDiskTimeout,
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
from txrocket.processors.admission import Admission
from txrocket.processors.sendanswers import SendAnswers
from txrocket.processors.sendhooks import SendHooks
from txrocket.processors.ways import TRANSACTION
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.remoting.faults import sayable
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import Appended, MessageStore

__all__ = ["ReplyProcessor"]

# How long who asked has to take the reply, in seconds.
_TIMEOUT: Final = 10.0


class ReplyProcessor:
    """
    Brings replies to who asked.
    """

    _log = Logger()

    def __init__(
        self,
        store: MessageStore,
        producers: Producers,
        stats: Stats,
        admission: Admission,
        answers: SendAnswers,
        hooks: SendHooks,
        *,
        storeHost: bytes,
        now: Callable[[], int],
        choose: Callable[[int], int],
    ) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        @param now: the time in milliseconds.
        @param choose: picks a number below the one it is given.
        """
        self._store = store
        self._producers = producers
        self._stats = stats
        self._admission = admission
        self._answers = answers
        self._hooks = hooks
        host, port = decodeHost(storeHost)
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._now = now
        self._choose = choose

    def codes(self) -> dict[int, Process]:
        """
        What is served.
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
            self._answers.refuse(response, error)
            return response
        return self._bring(sending, header, peer.host)

    def _admitted(
        self,
        request: RemotingCommand,
        peer: RemotingProtocol,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
    ) -> Sending:
        """
        A reply that may be sent.

        @raise ResponseError: if it may not.
        """
        self._admission.checkBegun()
        config = self._admission.topic(header, peer)
        queueId = header.queueId if header.queueId >= 0 else self._choose(config.writeQueueNums)
        sending = Sending(
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
    def _bring(
        self,
        sending: Sending,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        bornHost: bytes,
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        problem = yield self._push(sending, header)
        response = self._answers.told("0", sending.queueId, 0)
        if problem is not None:
            self._answers.refuse(response, problem)
        if self._admission.settings.storeReplyMessageEnable:
            appended = yield self._keep(sending, header, bornHost)
            if appended is not None:
                # It is stored, also if nobody has got it.
                told = self._answers.accepted(appended, sending.queueId)
                response.fields = told.fields
        if self._hooks:
            self._hooks.after(sending, response)
        return response

    @inlineCallbacks
    def _push(
        self, sending: Sending, header: SendMessageRequestHeader | SendMessageRequestHeaderV2
    ) -> Generator[Deferred[Any], Any, RemoteSystemError | None]:
        """
        Bring a reply to who asked.

        @return: a Deferred of what keeps it from that, if something does.
        """
        asker = splitProperties(sending.properties).get(PROPERTY_REPLY_TO_CLIENT)
        if asker is None:
            return RemoteSystemError(
                f"a reply that does not say by {PROPERTY_REPLY_TO_CLIENT} who asked goes nowhere"
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
        self, sending: Sending, header: SendMessageRequestHeader | SendMessageRequestHeaderV2
    ) -> ReplyMessageRequestHeader:
        now = self._now()
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
    def _keep(
        self,
        sending: Sending,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        bornHost: bytes,
    ) -> Generator[Deferred[Any], Any, Appended | None]:
        """
        Store a reply.

        @return: a Deferred of where it is, if it is.
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
                # A reply is no half of anything.  Java keeps no flag at all, not even
                # that a body is compressed.
                header.sysFlag & ~TRANSACTION,
                header.reconsumeTimes or 0,
            )
            end = appended.end
            yield self._store.stored(end) if waits else self._store.written.reaches(end)
        except FlushDiskTimeout:
            # It is in the log.
            pass
        except (InvalidMessage, StoreError) as error:
            self._stats.failed()
            self._log.warn("A reply is not stored: {error}", error=sayable(str(error)))
            return None
        self._stats.put(sending.topic, 1, appended.sizes[0])
        return appended
