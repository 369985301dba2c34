# SPDX-License-Identifier: Apache-2.0
"""
Clients of RocketMQ on Twisted: producers and consumers, whose Deferreds can be
awaited::

    from txrocket import Message
    from txrocket.client import Cluster, Producer

    async with Cluster("127.0.0.1:9876", reactor) as cluster:
        async with Producer(cluster, "orders") as producer:
            await producer.send(Message("Orders", b"tea"))

Each name is looked up when it is first used, because parts of this package serve the
L{blocking client<txrocket.blocking>}, too, which does without Twisted.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from txrocket.client.cluster import Cluster
    from txrocket.client.consuming import Consuming, IConsumeMessageHook
    from txrocket.client.listening import ConsumeLater
    from txrocket.client.litepull import LitePullConsumer
    from txrocket.client.offsets import LocalOffsets
    from txrocket.client.producer import Producer
    from txrocket.client.pullconsumer import PullConsumer
    from txrocket.client.pullschedule import PullSchedule
    from txrocket.client.pushconsumer import PushConsumer
    from txrocket.client.queues import FaultTable, byHash, byMachineRoom, byRandom
    from txrocket.client.results import PullResult, PullStatus, SendResult, SendStatus
    from txrocket.client.sending import ISendMessageHook, Sending
    from txrocket.client.traceviews import MessageTrace, TraceReader
    from txrocket.client.transaction import (
        LocalTransactionState,
        TransactionProducer,
        TransactionSendResult,
    )
    from txrocket.client.window import Room

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
    "ConsumeLater": "listening",
    "Consuming": "consuming",
    "FaultTable": "queues",
    "IConsumeMessageHook": "consuming",
    "ISendMessageHook": "sending",
    "LitePullConsumer": "litepull",
    "LocalOffsets": "offsets",
    "LocalTransactionState": "transaction",
    "MessageTrace": "traceviews",
    "Producer": "producer",
    "PullConsumer": "pullconsumer",
    "PullResult": "results",
    "PullSchedule": "pullschedule",
    "PullStatus": "results",
    "PushConsumer": "pushconsumer",
    "Room": "window",
    "SendResult": "results",
    "SendStatus": "results",
    "TraceReader": "traceviews",
    "Sending": "sending",
    "TransactionProducer": "transaction",
    "TransactionSendResult": "transaction",
    "byHash": "queues",
    "byMachineRoom": "queues",
    "byRandom": "queues",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
