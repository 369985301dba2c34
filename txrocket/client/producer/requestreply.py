# SPDX-License-Identifier: Apache-2.0
"""
Messages whose sender waits for a reply, and replying; C{request} of Java's
C{DefaultMQProducerImpl} and C{MessageUtil}::

    be known to the brokers --> send --> a consumer replies --> its broker --> here
    (the first time)            CORRELATION_ID, REPLY_TO_CLIENT, TTL

A reply comes by any broker of the cluster that the message went to, and a broker brings
it only to a producer that has sent it a heartbeat.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.routes import Route
from txrocket.client.sansio.sendrequest import REPLY, withProperties
from txrocket.errors import InvalidMessage, RequestTimedOut, RocketError, TopicNotExist
from txrocket.message import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    Message,
    MessageExt,
)
from txrocket.protocol.names import replyTopic

__all__ = ["RequestReply", "replyTo"]

# How many seconds brokers have to learn of a producer's first request.
_HEARD_WITHIN: Final = 1.0


class _Send(Protocol):
    """
    Sends a message.
    """

    def __call__(self, message: Message, /, *, timeout: float) -> Deferred[Any]: ...


class RequestReply:
    """
    Asks by messages.
    """

    def __init__(self, cluster: Cluster, topics: dict[str, None], queues: int, send: _Send) -> None:
        """
        @param topics: the topics whose routes the producer needs; more are added.
        @param queues: how many queues a topic gets that comes into being.
        """
        self._cluster = cluster
        self._topics = topics
        self._queues = queues
        self._send = send

    def request(self, message: Message, seconds: float) -> Deferred[MessageExt]:
        """
        Send a message and wait for its reply.

        @param seconds: for both.
        """
        correlationId = str(uuid.UUID(int=self._cluster.choose(2**128)))
        asking = withProperties(
            message,
            {
                PROPERTY_CORRELATION_ID: correlationId,
                PROPERTY_REPLY_TO_CLIENT: self._cluster.clientId,
                PROPERTY_TTL: str(int(seconds * 1000)),
            },
        )
        replies = self._cluster.requests.replies
        clock = self._cluster.reactor
        deadline = clock.seconds() + seconds

        def forget(reply: Deferred[Any]) -> None:
            replies.pop(correlationId, None)

        def late(result: Any, after: float) -> Failure:
            return Failure(
                RequestTimedOut("", f"no reply to the message to {message.topic} in {after:g} s")
            )

        def failed(failure: Failure) -> None:
            if replies.pop(correlationId, None) is not None:
                reply.errback(failure)

        def ask(none: None) -> None:
            if correlationId in replies:
                left = max(0.0, deadline - clock.seconds())
                self._send(asking, timeout=left).addErrback(failed)

        reply: Deferred[MessageExt] = Deferred(forget)
        replies[correlationId] = reply
        self._beKnown(message.topic).addCallback(ask)
        return reply.addTimeout(seconds, clock, onTimeoutCancel=late)

    @inlineCallbacks
    def _beKnown(self, topic: str) -> Generator[Deferred[Any], Any, None]:
        """
        Tell all brokers of this client that replies may come by.

        @return: a Deferred that fires once they know it, as far as that can be.
        """
        routes = self._cluster.routes

        def inherit(failure: Failure) -> Deferred[Route]:
            failure.trap(TopicNotExist)
            return routes.inherit(topic, self._queues)

        try:
            route = yield routes.find(topic).addErrback(inherit)
        except RocketError:
            # Sending fails as well, and says why.
            return
        wanted = {replyTopic(each.cluster) for each in route.data.brokerDatas}
        missing = wanted - self._topics.keys()
        if missing:
            self._topics |= dict.fromkeys(missing)
            # A cluster that has no such topic brings no replies.
            yield DeferredList([routes.find(each) for each in missing], consumeErrors=True)
            heard: Deferred[None] = Deferred()
            self._cluster.heartbeat().addCallback(heard.callback)
            # One that does not answer is not waited for: the reply will hardly come by it.
            clock = self._cluster.reactor
            yield heard.addTimeout(_HEARD_WITHIN, clock).addErrback(lambda failure: None)


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
        replyTopic(cluster),
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
