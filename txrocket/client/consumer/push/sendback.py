# SPDX-License-Identifier: Apache-2.0
"""
Sending back messages that a listener did not consume; C{sendMessageBack} of Java's
consumers::

    broker, which has the message --> the group's retry topic, after a delay
         |                              ^
         '-- does not answer --> sent there, as a message of our own

    tried for the last time --> the group's dead letters, by the broker
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.puller import readable
from txrocket.client.producer.producer import innerProducer
from txrocket.errors import RocketError
from txrocket.message import (
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRAN_MSG,
    Message,
    MessageExt,
)
from txrocket.protocol.names import RETRY_PREFIX

__all__ = ["SendMessageBack", "originTopic"]

# The delay level of the first time; it is one more each time.
_FIRST_LEVEL: Final = 3


def originTopic(message: MessageExt) -> str:
    """
    The topic that a message was sent to, before it came again.
    """
    if message.topic.startswith(RETRY_PREFIX):
        return message.properties.get(PROPERTY_RETRY_TOPIC) or message.topic
    return message.topic


class SendMessageBack:
    """
    Gives messages back.
    """

    def __init__(
        self, cluster: Cluster, requests: GroupCalls, group: str, maxReconsumeTimes: int
    ) -> None:
        """
        @param maxReconsumeTimes: how often a message comes again before it is dead.
        """
        self._cluster = cluster
        self._requests = requests
        self._group = group
        self._maxTimes = maxReconsumeTimes

    def sendBack(self, message: MessageExt, delayLevel: int) -> Deferred[None]:
        """
        Have a message brought again later.

        @param delayLevel: when; 0 leaves it to the broker, -1 makes a dead letter of
            it.
        @return: a Deferred that fails with a L{RocketError} if no broker takes it.
        """

        def otherwise(failure: Failure) -> Deferred[None]:
            failure.trap(RocketError)
            return self.toRetryTopic(message, delayLevel)

        origin = replace(message, topic=originTopic(message))
        sent = self._requests.sendBack(origin, delayLevel, maxReconsumeTimes=self._maxTimes)
        return sent.addErrback(otherwise)

    def toRetryTopic(self, message: MessageExt, delayLevel: int) -> Deferred[None]:
        """
        Send a message to the group's retry topic, as its broker would have; one that
        has had its last time the broker makes a dead letter.

        @param delayLevel: the broker chooses when, unless it is -1, for a dead letter.
        """
        sent = maybeDeferred(
            lambda: innerProducer(self._cluster).send(self._again(message, delayLevel))
        )
        return sent.addCallback(lambda result: None)

    def _again(self, message: MessageExt, delayLevel: int) -> Message:
        message = readable(message)
        times = self._maxTimes if delayLevel < 0 else message.reconsumeTimes + 1
        properties = {
            **message.properties,
            PROPERTY_ORIGIN_MESSAGE_ID: (
                message.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or message.msgId
            ),
            PROPERTY_RETRY_TOPIC: originTopic(message),
            PROPERTY_RECONSUME_TIME: str(times),
            PROPERTY_MAX_RECONSUME_TIMES: str(self._maxTimes),
        }
        properties.pop(PROPERTY_TRAN_MSG, None)
        return Message(
            RETRY_PREFIX + self._group,
            message.body,
            flag=message.flag,
            delayTimeLevel=_FIRST_LEVEL + message.reconsumeTimes,
            properties=properties,
        )
