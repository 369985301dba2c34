# SPDX-License-Identifier: Apache-2.0
"""
Send a message through the servers that C{make run} starts, and pull it back::

    .venv/bin/python examples/first_message.py 127.0.0.1:9876

This is the protocol itself, request by request, as every client uses it.
"""

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket.errors import responseError
from txrocket.model import MASTER_ID, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting


async def ask(peers: Peers, address: str, request: RemotingCommand) -> RemotingCommand:
    """
    Return an answer, or raise the error that it reports.
    """
    answer = await peers.request(address, request, timeout=3.0)
    if answer.code:
        raise responseError(answer.code, answer.remark or "", address)
    return answer


async def sendAndPull(reactor: Any, nameServer: str) -> None:
    """
    Ask the name server for a broker, send it a message, and pull the message.
    """
    peers = Peers(Remoting(reactor), endpoints(reactor))
    try:
        # A topic that does not exist yet inherits from TBW102, and so does its route.
        route = requestCommand(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("TBW102")
        )
        answer = await ask(peers, nameServer, route)
        broker = decodeBody(TopicRouteData, answer.body).brokerDatas[0].brokerAddrs[MASTER_ID]

        send = SendMessageRequestHeaderV2(
            producerGroup="examples",
            topic="Greetings",
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=0,
            bornTimestamp=int(reactor.seconds() * 1000),
            flag=0,
            properties="TAGS\x01english",
        )
        answer = await ask(
            peers, broker, requestCommand(RequestCode.SEND_MESSAGE_V2, send, b"hello")
        )
        sent = answer.decodeHeader(SendMessageResponseHeader)
        print(f"sent to {broker}, queue {sent.queueId}, offset {sent.queueOffset}")

        pull = PullMessageRequestHeader(
            consumerGroup="examples",
            topic="Greetings",
            queueId=0,
            queueOffset=sent.queueOffset,
            maxMsgNums=32,
            sysFlag=4,  # the subscription is in the request
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            subscription="english",
        )
        answer = await ask(peers, broker, requestCommand(RequestCode.PULL_MESSAGE, pull))
        for message in decodeRecords(answer.body):
            print(f"pulled {message.body!r}, tagged {message.tags}")
    finally:
        await peers.stop()


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    react(lambda reactor: Deferred.fromCoroutine(sendAndPull(reactor, address)))
