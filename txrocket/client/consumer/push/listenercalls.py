# SPDX-License-Identifier: Apache-2.0
"""
How a push consumer's messages get to its listener, put together from its options::

    message --> prepared --> hooks, if there are any --> listener
                Concurrently, or Orderly
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.options import PushOptions
from txrocket.client.consumer.push.concurrently import Concurrently
from txrocket.client.consumer.push.consumehooks import Watch, Watched
from txrocket.client.consumer.push.consumeservice import Consumed, ConsumeService
from txrocket.client.consumer.push.listener import Listener, ListenerCaller
from txrocket.client.consumer.push.orderly import Orderly
from txrocket.client.consumer.push.sendback import SendMessageBack, originTopic
from txrocket.client.sansio.pullrequest import readable
from txrocket.message import MessageExt
from txrocket.protocol.compression import COMPRESSED_FLAG
from txrocket.protocol.names import RETRY_PREFIX

__all__ = ["consumeService", "prepared"]

# How often a message is tried again before it is a dead letter, if nothing else is set.
_MAX_TIMES: Final = 16


def prepared(message: MessageExt) -> MessageExt:
    """
    A pulled message as a listener sees it: its body readable, and under the topic that the
    listener subscribes to if it comes from a retry topic.

    @raise MalformedRecord: if its body is damaged.
    """
    if message.sysFlag & COMPRESSED_FLAG:
        message = readable(message)
    if message.topic.startswith(RETRY_PREFIX):
        return replace(message, topic=originTopic(message))
    return message


def consumeService(
    cluster: Cluster,
    group: str,
    calls: GroupCalls,
    listener: Listener,
    options: PushOptions,
    consumed: Consumed,
) -> ConsumeService:
    """
    Make the service that calls a listener, in order or in any order.

    @param consumed: is told up to which offset a queue is consumed.
    @raise ConfigError: if the listener is to block, and is an C{async def}.
    """
    clock, times = cluster.reactor, options.maxReconsumeTimes
    caller = ListenerCaller(listener, options.batch, clock, blocking=options.blocking)
    if options.hooks:
        watch = Watch(clock, group, options.hooks, options.consumeTimeout, orderly=options.orderly)
        caller = Watched(watch, listener, options.batch, clock, blocking=options.blocking)
    back = SendMessageBack(cluster, calls, group, _MAX_TIMES if times is None else times)
    if not options.orderly:
        sendBack = None if options.broadcast else back.sendBack
        return Concurrently(clock, caller, options.concurrency, consumed, sendBack, prepared)
    return Orderly(
        clock,
        caller,
        options.concurrency,
        consumed,
        back.toRetryTopic,
        prepared,
        suspend=options.suspend,
        maxTimes=times,
        needsLock=not options.broadcast,
    )
