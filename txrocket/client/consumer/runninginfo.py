# SPDX-License-Identifier: Apache-2.0
"""
The state of a consumer, for an administrator; Java's
C{ConsumerRunningInfo}, and C{UtilAll.jstack}::

    MainThread                              TID: 140213 STATE: RUNNABLE
    MainThread                              txrocket...threadStacks(runninginfo.py:70)
    MainThread                              ...

The innermost call comes first, and after each thread an empty line.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence

from txrocket.model import MessageQueue
from txrocket.protocol.bodies import ConsumerData, ConsumerRunningInfo, ProcessQueueInfo

__all__ = ["runningInfo", "threadStacks"]


def runningInfo(
    data: ConsumerData,
    nameServers: Sequence[str],
    startedAt: int,
    queues: Mapping[MessageQueue, ProcessQueueInfo],
    **more: str,
) -> ConsumerRunningInfo:
    """
    All that a consumer tells of itself.

    @param data: what its heartbeat says.
    @param startedAt: in milliseconds.
    @param queues: what it has of each queue.
    @param more: further properties.
    """
    named = {
        "PROP_CONSUME_TYPE": data.consumeType,
        "messageModel": data.messageModel,
        "consumeFromWhere": data.consumeFromWhere,
    }
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(nameServers),
            "PROP_CONSUMER_START_TIMESTAMP": str(startedAt),
            "PROP_CLIENT_VERSION": "V4_9_7",
            "consumerGroup": data.groupName,
            **{name: each.value for name, each in named.items() if each is not None},
            **more,
        },
        subscriptionSet=tuple(
            sorted(data.subscriptionDataSet, key=lambda each: f"{each.topic}@{each.subString}")
        ),
        mqTable=dict(sorted(queues.items())),
    )


def threadStacks() -> str:
    """
    The stacks of all threads.
    """
    threads = {each.ident: each for each in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        name = "" if thread is None else thread.name
        number = ident if thread is None else thread.native_id
        # Python does not tell whether it waits for something.
        lines.append(f"{name:<40}TID: {number} STATE: RUNNABLE\n")
        for each, line in traceback.walk_stack(frame):
            code = each.f_code
            place = f"{os.path.basename(code.co_filename)}:{line}"
            module = each.f_globals.get("__name__", "")
            lines.append(f"{name:<40}{module}.{code.co_qualname}({place})\n")
        lines.append("\n")
    return "".join(lines)
