# SPDX-License-Identifier: Apache-2.0
"""
Where a message goes that does not go into its topic at once::

    in a transaction             the halves, until it is decided
    delayed                      a topic of the broker's own, until it is due
    to %RETRY%group, too often   the group's dead letters
"""

from __future__ import annotations

from typing import Final

from txrocket.broker.delivery.reroute import Destination, Reroutes, encodeSplit
from txrocket.broker.delivery.retries import Retries
from txrocket.broker.transaction.halfmessages import HalfMessages
from txrocket.errors import MessageIllegal, NoPermission
from txrocket.message import PROPERTY_TRAN_MSG, splitProperties
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE

__all__ = ["TRANSACTION", "SendReroute"]

#: All bits of sysFlag that speak of transactions.
TRANSACTION: Final = TRANSACTION_ROLLBACK_TYPE


class SendReroute:
    """
    All ways but the straight one.
    """

    def __init__(
        self,
        detours: Reroutes,
        transactions: HalfMessages,
        retries: Retries,
        checks: SendChecks,
    ) -> None:
        self._detours = detours
        self._transactions = transactions
        self._retries = retries
        self._checks = checks

    def dead(
        self,
        topic: str,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        version: int,
    ) -> str | None:
        """
        Where a message to a retry topic goes instead, if it is not tried again.

        @param version: the client's.
        @raise ResponseError: if there is no such group.
        """
        times = header.reconsumeTimes or 0
        return self._retries.dead(topic, times, header.maxReconsumeTimes, version)

    def aside(
        self, topic: str, queueId: int, properties: str, sysFlag: int, batch: bool
    ) -> tuple[str, int, bytes]:
        """
        Where a message goes that may have to wait, and with which properties.

        @raise ResponseError: if it may not be sent.
        """
        split = splitProperties(properties)
        half = split.get(PROPERTY_TRAN_MSG, "").lower() == "true"
        if batch and (half or sysFlag & TRANSACTION):
            raise MessageIllegal("messages in transactions cannot be sent as a batch")
        # A half waits for its decision first; but what it then asks for must be had.
        place = self._detours.place(topic, queueId, split)
        if half:
            if self._checks.settings.now.rejectTransactionMessage:
                raise NoPermission("rejectTransactionMessage forbids messages in transactions")
            place = self._transactions.half(Destination(topic, queueId, split))
        elif sysFlag & TRANSACTION_PREPARED_TYPE:
            raise MessageIllegal("messages in transactions have to say so, by TRAN_MSG")
        if place.topic == topic:
            return topic, queueId, properties.encode()
        if batch:
            raise MessageIllegal("messages that are delivered late cannot be sent as a batch")
        return place.topic, place.queueId, encodeSplit(place.properties)
