# SPDX-License-Identifier: Apache-2.0
"""
Ways to call a peer.  C{peers} is a L{Peers<txrocket.remoting.peers.Peers>} in
each; the server in key_values.py answers them.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from txrocket.errors import RemotingError, ResponseError, RocketError, responseError
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
    PutKVConfigRequestHeader,
)
from txrocket.remoting.interfaces import Answer
from txrocket.remoting.peers import Peers
from txrocket.remoting.protocol import RemotingProtocol


async def put(peers: Peers, address: str, key: str, value: str) -> None:
    """
    Ask, and raise if the answer is not SUCCESS.
    """
    header = PutKVConfigRequestHeader(namespace="greetings", key=key, value=value)
    request = requestCommand(RequestCode.PUT_KV_CONFIG, header)
    response = await peers.request(address, request, timeout=3.0)
    if response.code != ResponseCode.SUCCESS:
        raise responseError(response.code, response.remark, address)


async def get(peers: Peers, address: str, key: str) -> str | None:
    """
    Ask, and treat one other code as an ordinary answer.
    """
    header = GetKVConfigRequestHeader(namespace="greetings", key=key)
    request = requestCommand(RequestCode.GET_KV_CONFIG, header)
    response = await peers.request(address, request, timeout=3.0)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if response.code != ResponseCode.SUCCESS:
        raise responseError(response.code, response.remark, address)
    return response.decodeHeader(GetKVConfigResponseHeader).value


async def getAnywhere(peers: Peers, addresses: Sequence[str], key: str) -> str | None:
    """
    Ask one peer after the other until one answers.
    """
    failed: RocketError | None = None
    for address in addresses:
        try:
            return await get(peers, address, key)
        except (RemotingError, ResponseError) as error:
            if not error.retriable:
                raise
            failed = error
    raise failed or ValueError("no addresses")


async def tell(peers: Peers, address: str, group: str) -> None:
    """
    Send a oneway request.
    """
    header = NotifyConsumerIdsChangedRequestHeader(consumerGroup=group)
    request = requestCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
    await peers.oneway(address, request, timeout=3.0)


def firstOf(peers: Peers, addresses: Sequence[str], code: int) -> Deferred[str]:
    """
    Ask all peers, use the first answer, and cancel the other requests.
    """
    first: Deferred[str] = Deferred()
    asked = [peers.request(each, requestCommand(code), 3.0) for each in addresses]

    def answered(response: RemotingCommand, address: str) -> None:
        for each in asked:
            each.cancel()
        first.callback(address)

    for address, each in zip(addresses, asked, strict=True):
        # Cancelled requests fail, and no caller waits for them.
        each.addCallback(answered, address).addErrback(lambda failure: None)
    return first


def runningInfo(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
    """
    Serve a request by a request to the peer that made it, on the same connection.
    """

    async def answer() -> RemotingCommand | None:
        asked = requestCommand(RequestCode.GET_CONSUMER_RUNNING_INFO)
        response = await peer.request(asked, timeout=3.0)
        return responseCommand(body=response.body)

    return Deferred.fromCoroutine(answer())
