# SPDX-License-Identifier: Apache-2.0
"""
Messages as they were pulled, for the tests of consumers.
"""

from __future__ import annotations

from collections.abc import Iterable

from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.record.fields import encodeHost, joinProperties

QUEUE = MessageQueue("T", "a", 0)

HOST = encodeHost("192.0.2.11", 10911)


def pulled(
    offset: int,
    body: bytes = b"body",
    *,
    topic: str = "T",
    times: int = 0,
    sysFlag: int = 0,
    **properties: str,
) -> MessageExt:
    """
    A message of the first queue.

    @param times: how often it came again.
    """
    return MessageExt(
        topic=topic,
        body=body,
        flag=0,
        propertiesData=joinProperties(properties).encode(),
        queueId=0,
        queueOffset=offset,
        commitLogOffset=1000 + offset,
        sysFlag=sysFlag,
        bornTimestamp=1,
        bornHostData=HOST,
        storeTimestamp=2,
        storeHostData=HOST,
        reconsumeTimes=times,
        preparedTransactionOffset=0,
        bodyCRC=0,
        storeSize=100,
        brokerName="a",
    )


def several(offsets: Iterable[int]) -> list[MessageExt]:
    """
    Messages of the first queue.
    """
    return [pulled(each) for each in offsets]


def offsetsOf(messages: Iterable[MessageExt]) -> list[int]:
    """
    Where messages are in their queue.
    """
    return [each.queueOffset for each in messages]
