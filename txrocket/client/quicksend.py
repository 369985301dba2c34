# SPDX-License-Identifier: Apache-2.0
"""
The quick way of an ordinary message: less than half of what the general way by
L{Attempts<txrocket.client.attempts.Attempts>} costs, and the same in all else.

An ordinary message goes to whichever queue is next, of a topic whose route is known, by a
connection that is up; it is not compressed, no half of a transaction and no reply, and no
hook looks at it.  All that differs from the last one to the same queue is the time, the
id, the flag, the other properties and the number of the request.  They are put into a
header that was written for that queue before::

    {"code":310,"extFields":{"a":"group","b":"topic", ... "g":"TIME","h":"FLAG",
     "i":"UNIQ_KEY\\u0001ID\\u0002TAGS\\u0001...", ...},"flag":0, ... "opaque":NUMBER, ...}

The Deferred that waits in the response table is the one that the sender has got.  What
does not end in the message being stored goes on as all others do: the message becomes a
L{Sending<txrocket.client.sending.Sending>} that has had its first attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import msgspec
import orjson
from twisted.internet.defer import Deferred, fail, succeed

from txrocket.client.attempts import Attempts
from txrocket.client.cluster import Cluster
from txrocket.client.outgoing import Stored, sendTemplate
from txrocket.client.results import SendResult, SendStatus
from txrocket.client.sending import Sending
from txrocket.errors import InvalidMessage, RemotingError
from txrocket.message import (
    PROPERTY_MSG_TYPE,
    PROPERTY_TAGS,
    PROPERTY_TRAN_MSG,
    PROPERTY_UNIQ_KEY,
    Message,
)
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.fields import UNREADABLE
from txrocket.protocol.names import RETRY_PREFIX
from txrocket.protocol.parts import joinProperties
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.responses import Pending

__all__ = ["QuickSend", "QuickSends"]

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_OK: Final = SendStatus.SEND_OK

# Length and header's length, whose first byte says that it is JSON: 0.
_PREFIX: Final = Struct(">2I").pack

_decodeStored: Final = msgspec.json.Decoder(Stored, strict=False).decode

# What an answer tells that cannot be read.
_NOWHERE: Final = Stored("", -1, -1)

# A tuple by another name; to call SendResult takes twice as long.
_newTuple: Final = tuple.__new__


# Bytes of the other properties.  With more there is more to check.
_PROPERTIES: Final = 4096

# What a header has at most beside them.
_HEADER: Final = 4096

# For so many seconds it is not asked anew whether somebody has set the time of day.
_BELIEVED: Final = 0.01


class _Way:
    """
    How messages get to a queue.

    @ivar template: the header, as L{sendTemplate} gives it.
    @ivar version: of the routes that it follows from.
    @ivar protocol: the connection that was up when it was last looked for.
    """

    __slots__ = ("address", "protocol", "queue", "template", "version")

    def __init__(
        self,
        queue: MessageQueue,
        address: str,
        template: bytes,
        version: int,
        protocol: RemotingProtocol | None,
    ) -> None:
        self.queue = queue
        self.address = address
        self.template = template
        self.version = version
        self.protocol = protocol


class QuickSend(Pending[SendResult]):
    """
    A message on its way.

    @ivar way: where it was sent first.
    @ivar began: when, in seconds of the reactor's clock.
    @ivar born: the same as a time of day, in milliseconds.
    @ivar again: what it waits for in place of the answer to that.
    """

    code = _SEND
    message: Message
    way: _Way
    msgId: str
    began: float
    born: int
    sends: QuickSends
    again: Deferred[Any] | None = None

    def answered(self, response: RemotingCommand, /) -> None:
        """
        The broker has answered.
        """
        way, sends = self.way, self.sends
        queue = way.queue
        try:
            stored = _decodeStored(response.raw)
        except UNREADABLE:
            stored = _NOWHERE
        if (
            response.code
            or response.fields is not None
            or stored.queueId != queue.queueId
            # Its topic may have gone meanwhile.
            or way.version != sends.routes.version
        ):
            sends.goOn(self, succeed(response))
            return
        result = (
            _SEND_OK,
            self.msgId,
            stored.msgId,
            queue,
            stored.queueOffset,
            stored.transactionId,
            stored.regionId,
            stored.traceOn != "false",
        )
        sends.underWay.over()
        self.callback(_newTuple(SendResult, result))

    def failed(self, error: RemotingError, /) -> None:
        """
        The broker has not answered.
        """
        self.sends.goOn(self, fail(error))


class QuickSends:
    """
    Sends ordinary messages.

    @ivar routes: the cluster's.
    @ivar underWay: the messages that are not sent yet.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        attempts: Attempts,
        *,
        queues: int,
        compressOver: int,
        maxMessageSize: int,
    ) -> None:
        """
        @param attempts: for all that is not ordinary.
        @param queues: how many queues a topic gets if it is not there yet.
        @param compressOver: bodies of so many bytes, or more, are compressed.
        """
        self._cluster = cluster
        self._clock = cluster.reactor
        self._wall = cluster.wall
        # What to add to the reactor's clock for the time of day, and until when that is
        # believed: to ask the system each time would take a hundredth of a send.
        self._ahead = self._believed = 0.0
        self.routes = cluster.routes
        self._uniqueId = cluster.uniqueId
        self._group = group
        self._attempts = attempts
        self._queues = queues
        self._limits = compressOver, maxMessageSize
        # No frame can be too long then.
        room = cluster.remoting.limits.frame - _PROPERTIES - _HEADER
        self._tooLong = min(compressOver, maxMessageSize + 1, room)
        self.underWay = attempts.underWay
        self._ways: dict[str, list[_Way]] = {}
        self._version = -1

    def send(self, message: Message, timeout: float) -> QuickSend | None:
        """
        Send a message, if it is an ordinary one.

        @param timeout: in seconds.
        @return: L{None}, with nothing done, if it is not.
        """
        body, properties, flag = message.body, message.properties, message.flag
        if (
            self._version != self.routes.version or (ways := self._ways.get(message.topic)) is None
        ) and (ways := self._find(message.topic)) is None:
            return None
        if (
            type(body) is not bytes
            or not 0 < len(body) < self._tooLong
            or type(flag) is not int
            or timeout <= 0
        ):
            return None
        if not properties:
            more: bytes | None = b""
        elif len(properties) == 1 and type(tags := properties.get(PROPERTY_TAGS)) is str:
            # Most messages have no others, and there are few tags: half a microsecond.
            more = _tagged(tags)
        else:
            more = _written(properties)
        if more is None:
            return None
        attempts = self._attempts
        turn = attempts.turn + 1
        way = ways[turn % len(ways)]
        protocol = way.protocol
        opaque = -1 if protocol is None else protocol.reserve()
        if protocol is None or opaque < 0:
            # For the next one.
            way.protocol = self._cluster.peers.up(way.address)
            return None
        attempts.turn = turn
        began = self._clock.seconds()
        if began >= self._believed:
            self._ahead, self._believed = self._wall() - began, began + _BELIEVED
        born = int((began + self._ahead) * 1000)
        sent = QuickSend(self._cancel)
        sent.opaque = opaque
        sent.timeout = timeout
        sent.deadline = began + timeout
        sent.began = began
        sent.born = born
        sent.message = message
        sent.way = way
        sent.sends = self
        sent.msgId = msgId = self._uniqueId.at(born)
        header = way.template % (born, flag, msgId.encode(), more, opaque)
        size = len(header)
        self.underWay.count += 1
        protocol.post(sent, _PREFIX(4 + size + len(body), size) + header, body)
        return sent

    def _find(self, topic: str) -> list[_Way] | None:
        """
        How messages get to the queues of a topic; L{None} if it is not ordinary.
        """
        routes = self.routes
        if self._version != routes.version:
            self._ways.clear()
            self._version = routes.version
        route = routes.get(topic)
        if (
            route is None
            or route.inherited
            or topic not in self._attempts.topics
            or topic.startswith(RETRY_PREFIX)
        ):
            return None
        ways = []
        for queue in route.writeQueues:
            address = routes.address(queue.brokerName)
            if address is None:
                return None
            template = sendTemplate(self._group, topic, self._queues, queue)
            protocol = self._cluster.peers.up(address)
            ways.append(_Way(queue, address, template, routes.version, protocol))
        if not ways:
            return None
        self._ways[topic] = ways
        return ways

    def goOn(self, sent: QuickSend, outcome: Deferred[RemotingCommand]) -> None:
        """
        Go on with a message as with others.

        @param outcome: of its first attempt.
        """
        message = sent.message
        sending = Sending(message.topic, message, sent.timeout)
        sending.take(message, lambda: sent.msgId, *self._limits)
        sending.began, sending.deadline = sent.began, sent.deadline
        sending.born = sent.born
        sending.queue, sending.address = sent.way.queue, sent.way.address
        sending.attempts = 1
        args = sending, sent.began

        def end(result: Any) -> None:
            sent.again = None
            if not sent.called:
                sent.callback(result)

        attempts = self._attempts
        sent.again = outcome.addCallbacks(
            attempts.answered, attempts.unanswered, callbackArgs=args, errbackArgs=args
        )
        sent.again.addBoth(end)

    def _cancel(self, sent: Deferred[SendResult]) -> None:
        assert isinstance(sent, QuickSend)
        if sent.again is not None:
            sent.again.cancel()
        else:
            # Without one, or with another, the table that had it is gone.
            if sent.way.protocol is not None:
                sent.way.protocol.responseTable.forget(sent)
            self.underWay.over()


def _written(properties: Mapping[str, str]) -> bytes | None:
    """
    Properties as JSON has them, with a separator before each; L{None} if there is
    something special about them, or may be.
    """
    if (
        PROPERTY_UNIQ_KEY in properties
        or PROPERTY_MSG_TYPE in properties
        or PROPERTY_TRAN_MSG in properties
    ):
        return None
    try:
        written = orjson.dumps(f"\x02{joinProperties(properties)}")[1:-1]
    except (InvalidMessage, orjson.JSONEncodeError):
        return None
    return written if len(written) <= _PROPERTIES else None


@lru_cache(1024)
def _tagged(tags: str) -> bytes | None:
    return _written({PROPERTY_TAGS: tags})
