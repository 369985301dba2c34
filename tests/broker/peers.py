# SPDX-License-Identifier: Apache-2.0
"""
Clients of a broker, in memory, for the tests of connected clients.
"""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock

from tests.remoting.doubles import connected, lose
from txrocket.broker.clients.registry import ClientChannelInfo
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from txrocket.protocol.bodies import ConsumerData
from txrocket.protocol.codes import RequestCode
from txrocket.remoting.remoting import Limits, Remoting


class Connected:
    """
    A connection that a client opened to a broker.

    @ivar peer: the broker's end.
    @ivar wire: what the broker writes on.
    """

    def __init__(
        self,
        address: str = "192.0.2.7:50000",
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self.peer, self.wire = connected(Remoting(self._clock, limits))
        self.peer.address = address

    def client(self, clientId: str) -> ClientChannelInfo:
        """
        A client on this connection.
        """
        return ClientChannelInfo(clientId, self.peer, "JAVA", 407)

    def notices(self) -> list[str]:
        """
        The groups that the client was told of since it was last asked, each as
        often as it was told.
        """
        told = []
        # What is said in one turn goes out at its end.
        self._clock.advance(0)
        for command in self.wire.drain():
            assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert command.isOneway
            told.append(command.extFields["consumerGroup"])
        return told

    def lose(self) -> None:
        """
        The connection ends.
        """
        lose(self.peer, ConnectionDone())


def consumer(group: str, *topics: str, version: int = 1, expression: str = "*") -> ConsumerData:
    """
    What a heartbeat says of a consumer group.
    """
    return ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        frozenset(SubscriptionData(each, expression, subVersion=version) for each in topics),
    )
