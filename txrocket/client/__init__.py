# SPDX-License-Identifier: Apache-2.0
"""
Clients of RocketMQ on Twisted: producers and consumers, whose Deferreds can be
awaited::

    from txrocket import Message
    from txrocket.client import Cluster, Producer

    async with Cluster("127.0.0.1:9876", reactor) as cluster:
        async with Producer(cluster, "orders") as producer:
            await producer.send(Message("Orders", b"tea"))

Each name is imported when it is first used, because the
L{blocking client<txrocket.blocking>} shares parts of this package, and needs no Twisted.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from txrocket.client.cluster import Cluster
    from txrocket.client.consumer.offsetstore import LocalOffsets
    from txrocket.client.consumer.pull.litepull import LitePullConsumer
    from txrocket.client.consumer.pull.pullconsumer import PullConsumer
    from txrocket.client.consumer.pull.pullschedule import PullSchedule
    from txrocket.client.consumer.push.consumehooks import (
        Consuming,
        IConsumeMessageHook,
    )
    from txrocket.client.consumer.push.listener import ConsumeLater
    from txrocket.client.consumer.push.processqueue import Room
    from txrocket.client.consumer.push.pushconsumer import PushConsumer
    from txrocket.client.producer.producer import Producer
    from txrocket.client.producer.sendcontext import ISendMessageHook, Sending
    from txrocket.client.producer.transaction import (
        LocalTransactionState,
        TransactionProducer,
        TransactionSendResult,
    )
    from txrocket.client.sansio.faulttable import FaultTable
    from txrocket.client.sansio.queueselector import byHash, byMachineRoom, byRandom
    from txrocket.client.sansio.results import PullResult, PullStatus, SendResult, SendStatus
    from txrocket.client.trace.view import MessageTrace, TraceReader

__all__ = [
    "Cluster",
    "ConsumeLater",
    "Consuming",
    "FaultTable",
    "IConsumeMessageHook",
    "ISendMessageHook",
    "LitePullConsumer",
    "LocalOffsets",
    "LocalTransactionState",
    "MessageTrace",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullSchedule",
    "PullStatus",
    "PushConsumer",
    "Room",
    "SendResult",
    "SendStatus",
    "Sending",
    "TraceReader",
    "TransactionProducer",
    "TransactionSendResult",
    "byHash",
    "byMachineRoom",
    "byRandom",
]

_MODULES: Final = {
    "Cluster": "cluster",
    "ConsumeLater": "consumer.push.listener",
    "Consuming": "consumer.push.consumehooks",
    "FaultTable": "sansio.faulttable",
    "IConsumeMessageHook": "consumer.push.consumehooks",
    "ISendMessageHook": "producer.sendcontext",
    "LitePullConsumer": "consumer.pull.litepull",
    "LocalOffsets": "consumer.offsetstore",
    "LocalTransactionState": "producer.transaction",
    "MessageTrace": "trace.view",
    "Producer": "producer.producer",
    "PullConsumer": "consumer.pull.pullconsumer",
    "PullResult": "sansio.results",
    "PullSchedule": "consumer.pull.pullschedule",
    "PullStatus": "sansio.results",
    "PushConsumer": "consumer.push.pushconsumer",
    "Room": "consumer.push.processqueue",
    "SendResult": "sansio.results",
    "SendStatus": "sansio.results",
    "Sending": "producer.sendcontext",
    "TraceReader": "trace.view",
    "TransactionProducer": "producer.transaction",
    "TransactionSendResult": "producer.transaction",
    "byHash": "sansio.queueselector",
    "byMachineRoom": "sansio.queueselector",
    "byRandom": "sansio.queueselector",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
