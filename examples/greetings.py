# SPDX-License-Identifier: Apache-2.0
"""
A small application: it sends greetings and reads them.  C{testing_memory.py},
C{testing_real.py} and C{testing_pytest.py} test it.
"""

from __future__ import annotations

from examples.first_message import ask
from txrocket.model import MASTER_ID, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.peers import Peers


async def anyBroker(peers: Peers, nameServer: str) -> str:
    """
    The address of a broker that creates topics.
    """
    header = GetRouteInfoRequestHeader("TBW102")
    request = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    answer = await ask(peers, nameServer, request)
    return decodeBody(TopicRouteData, answer.body).brokerDatas[0].brokerAddrs[MASTER_ID]


async def greet(peers: Peers, nameServer: str, text: str) -> None:
    """
    Send a greeting.
    """
    header = SendMessageRequestHeaderV2("greeters", "Greetings", "TBW102", 4, 0, 0, 0, 0)
    request = requestCommand(RequestCode.SEND_MESSAGE_V2, header, text.encode())
    await ask(peers, await anyBroker(peers, nameServer), request)


async def greetings(peers: Peers, nameServer: str) -> list[str]:
    """
    All greetings.
    """
    header = PullMessageRequestHeader(
        consumerGroup="greeted",
        topic="Greetings",
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=4,  # the subscription is in the request
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
        subscription="*",
    )
    request = requestCommand(RequestCode.PULL_MESSAGE, header)
    answer = await ask(peers, await anyBroker(peers, nameServer), request)
    return [each.body.decode() for each in decodeRecords(answer.body)]
