# SPDX-License-Identifier: Apache-2.0
"""
A minimal client for tests that send and pull a message, and a test case for tests of
fixtures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from txrocket.errors import responseError
from txrocket.message import MessageExt
from txrocket.model import MASTER_ID, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.peers import Connect, Peers
from txrocket.remoting.remoting import Remoting

# Bits of a pull's sysFlag: hold it, and the subscription is in it.
HOLD, BROUGHT = 2, 4


class Client:
    """
    Sends requests to servers.
    """

    def __init__(self, clock: Any, connect: Connect) -> None:
        self._clock = clock
        self.peers = Peers(Remoting(clock), connect, backoff=lambda failures: 0.1)

    async def ask(self, address: str, request: RemotingCommand) -> RemotingCommand:
        """
        Return an answer, or raise the error that it reports.
        """
        answer = await self.peers.request(address, request, 5.0)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND):
            raise responseError(answer.code, answer.remark, address)
        return answer

    async def brokersOf(self, nameServer: str, topic: str = "TBW102") -> dict[str, str]:
        """
        The addresses of the brokers that have a topic, by their names.
        """
        header = GetRouteInfoRequestHeader(topic)
        answer = await self.ask(
            nameServer, requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        )
        route = decodeBody(TopicRouteData, answer.body)
        # Their order is the order of registration, which is random.
        brokers = sorted(route.brokerDatas, key=lambda each: each.brokerName)
        return {each.brokerName: each.brokerAddrs[MASTER_ID] for each in brokers}

    async def send(
        self,
        broker: str,
        body: bytes,
        topic: str = "Greetings",
        properties: str = "",
        group: str = "tests",
    ) -> SendMessageResponseHeader:
        """
        Send to the first queue of a topic.
        """
        header = SendMessageRequestHeaderV2(
            producerGroup=group,
            topic=topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=0,
            bornTimestamp=int(self._clock.seconds() * 1000),
            flag=0,
            properties=properties,
        )
        answer = await self.ask(broker, requestCommand(RequestCode.SEND_MESSAGE_V2, header, body))
        return answer.decodeHeader(SendMessageResponseHeader)

    async def pull(
        self,
        broker: str,
        topic: str = "Greetings",
        offset: int = 0,
        hold: float = 0,
        subscription: str = "*",
        expressionType: str | None = None,
    ) -> list[MessageExt]:
        """
        The messages of the first queue of a topic.

        @param hold: the seconds to wait for a message.
        """
        header = PullMessageRequestHeader(
            consumerGroup="tests",
            topic=topic,
            queueId=0,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=BROUGHT | (HOLD if hold else 0),
            commitOffset=0,
            suspendTimeoutMillis=int(hold * 1000),
            subVersion=0,
            subscription=subscription,
            expressionType=expressionType,
        )
        answer = await self.ask(broker, requestCommand(RequestCode.PULL_MESSAGE, header))
        return list(decodeRecords(answer.body))

    def stop(self) -> Deferred[None]:
        """
        Close all connections.
        """
        return self.peers.stop()


class Cleaned:
    """
    The part of a test case that fixtures use.

    @ivar cleanups: the functions to call at the end.
    """

    def __init__(self) -> None:
        self.cleanups: list[Callable[[], Any]] = []

    def addCleanup(self, function: Callable[[], Any]) -> None:
        """
        Add a function to call at the end.
        """
        self.cleanups.append(function)
