# SPDX-License-Identifier: Apache-2.0
"""
Requests that are messages, and their replies; C{request} and C{MessageUtil} of Java's
clients::

    asker --message: id, who asks, time limit--> topic --> consumer
      ^                                                       |
      '---- broker that the asker is connected to <-- reply --'
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.outgoing import REPLY, withProperties
from txrocket.errors import InvalidMessage, RequestTimedOut
from txrocket.message import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    Message,
    MessageExt,
)

__all__ = ["awaitReply", "replyTo"]


def awaitReply(
    cluster: Cluster,
    message: Message,
    seconds: float,
    send: Callable[[Message], Deferred[Any]],
) -> Deferred[MessageExt]:
    """
    Send a message and wait for the reply of the consumer that gets it.

    @param seconds: for both.
    @param send: sends a message.
    @return: a Deferred of the reply; it fails with L{RequestTimedOut} if none comes in
        time, and as C{send}'s does.
    """
    correlationId = str(uuid.UUID(int=cluster.choose(2**128)))
    asking = withProperties(
        message,
        {
            PROPERTY_CORRELATION_ID: correlationId,
            PROPERTY_REPLY_TO_CLIENT: cluster.clientId,
            PROPERTY_TTL: str(int(seconds * 1000)),
        },
    )
    replies = cluster.requests.replies

    def forget(reply: Deferred[Any]) -> None:
        replies.pop(correlationId, None)

    def late(result: Any, after: float) -> Failure:
        return Failure(
            RequestTimedOut("", f"no reply to the message to {message.topic} in {after:g} s")
        )

    def failed(failure: Failure) -> None:
        if replies.pop(correlationId, None) is not None:
            reply.errback(failure)

    reply: Deferred[MessageExt] = Deferred(forget)
    replies[correlationId] = reply
    send(asking).addErrback(failed)
    return reply.addTimeout(seconds, cluster.reactor, onTimeoutCancel=late)


def replyTo(request: MessageExt, body: bytes) -> Message:
    """
    The reply to a message.

    @param request: the message, as it was consumed.
    @raise InvalidMessage: if it wants none.
    """
    properties = request.properties
    cluster = properties.get(PROPERTY_CLUSTER)
    asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
    if not cluster or not asker:
        raise InvalidMessage("a message that wants no reply cannot be replied to")
    return Message(
        f"{cluster}_REPLY_TOPIC",
        body,
        properties={
            PROPERTY_MSG_TYPE: REPLY,
            PROPERTY_REPLY_TO_CLIENT: asker,
            **{
                name: properties[name]
                for name in (PROPERTY_CORRELATION_ID, PROPERTY_TTL)
                if name in properties
            },
        },
    )
