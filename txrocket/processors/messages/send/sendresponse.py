# SPDX-License-Identifier: Apache-2.0
"""
What senders are answered::

    MSG_REGION, TRACE_ON            always; Java's clients note them in their traces
    msgId, queueId, queueOffset     of what was stored
"""

from __future__ import annotations

from txrocket.broker.settings import BrokerSettings
from txrocket.bulk import encodeHeads, messageIds
from txrocket.config.live import Live
from txrocket.errors import ResponseError, ServiceNotAvailable, StoreError
from txrocket.protocol.codes import SerializeType
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headertemplates import MARK, responsePieces
from txrocket.remoting.errorresponse import printableRemark
from txrocket.store.messagestore import Appended

__all__ = ["SendResponses", "unavailable"]


# What stands for the offset in an id that is to be filled in.
_OFFSET = f"{0xABCDEF:016x}"

# A binary header's code, language and version; and these with opaque, flag, no remark, and
# the length of the fields.
_BEFORE_OPAQUE = 5
_BEFORE_FIELDS = 21


class SendResponses:
    """
    Answers senders.

    @ivar acceptedHead: the JSON header of the answer to one message, up to the offset in its
        id.
    @ivar acceptedTail: what is behind its opaque.
    @ivar binaryHead: the fields of such an answer up to that offset, as a binary header
        has them.
    @ivar binaryTail: how such a header begins.
    """

    def __init__(self, storeHost: bytes, broker: Live[BrokerSettings]) -> None:
        """
        @param storeHost: the broker's address, as records hold it.
        """
        self._idPrefix = storeHost.hex().upper()
        self._broker = broker
        self._apply(broker.now)

    def _refresh(self) -> None:
        """
        Tell producers of the broker what the settings say now.
        """
        if self._applied is not self._broker.now:
            self._apply(self._broker.now)

    def _apply(self, broker: BrokerSettings) -> None:
        self._applied = broker
        self._told = {
            "MSG_REGION": broker.regionId,
            "TRACE_ON": "true" if broker.traceOn else "false",
        }
        stored = dict.fromkeys(("msgId", "queueId", "queueOffset"), MARK)
        self._pieces = pieces = responsePieces(self._told | stored)
        self.acceptedHead = pieces[0] + self._idPrefix.encode()
        self.acceptedTail = pieces[-1]
        # A header with an id that lacks the offset, cut where that goes.
        known = self.told(self._idPrefix + _OFFSET, 0, 0)
        known.serializeType = SerializeType.ROCKETMQ
        header = known.encodeHead()[8:]
        self.binaryTail = header[:_BEFORE_OPAQUE]
        self.binaryHead = header[_BEFORE_FIELDS : header.index(_OFFSET.encode())]

    def template(self, binary: bool) -> tuple[bytes, bytes]:
        """
        What all answers to single messages have in common, before and behind what differs.
        """
        self._refresh()
        if binary:
            return self.binaryHead, self.binaryTail
        return self.acceptedHead, self.acceptedTail

    def idOf(self, offset: int) -> str:
        """
        The id of the record at an offset of the log.
        """
        return f"{self._idPrefix}{offset:016X}"

    def acceptedBatch(self, appended: Appended, queueId: int, opaque: int) -> bytes:
        """
        The answer that L{accepted} gives, as a frame with a JSON header.
        """
        self._refresh()
        ids = messageIds(self._idPrefix, appended.offset, appended.sizes)
        row = ids, queueId, appended.queueOffset, opaque, 0
        return encodeHeads(self._pieces, [row])[0]

    def accepted(self, appended: Appended, queueId: int) -> RemotingCommand:
        """
        The answer to what was stored.

        @param queueId: where its sender takes it to be.
        """
        ids = messageIds(self._idPrefix, appended.offset, appended.sizes)
        return self.told(ids, queueId, appended.queueOffset)

    def told(self, msgId: str, queueId: int, queueOffset: int) -> RemotingCommand:
        """
        An answer that tells where something is.
        """
        self._refresh()
        response = responseCommand()
        response.fields = {
            **self._told,
            "msgId": msgId,
            "queueId": str(queueId),
            "queueOffset": str(queueOffset),
        }
        return response

    def refuse(self, response: RemotingCommand, error: ResponseError) -> None:
        """
        Make of an answer one that refuses.
        """
        self._refresh()
        response.code = error.code
        response.remark = printableRemark(error.remark)
        response.fields = dict(self._told)


def unavailable(error: StoreError) -> ServiceNotAvailable:
    """
    What a sender is told of a store that does not take its message.
    """
    return ServiceNotAvailable(f"the store takes no messages now: {error}")
