# SPDX-License-Identifier: Apache-2.0
"""
Clients of the model, and what they were told: numbered messages, topics, groups and offsets.

A request is not waited for, so that anything may happen before its answer.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from tests.replication.powercluster import PowerCluster
from txrocket.message import Message
from txrocket.model import SubscriptionGroupConfig
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.ha.plain import encodeOffset
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.record import encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting

__all__ = ["Acknowledged", "Traffic"]

_TIMEOUT = 4.0


class Acknowledged(NamedTuple):
    """
    A message that was answered with SEND_OK.

    @ivar offset: its offset in its queue.
    @ivar isDelayed: whether it is delivered later; then the offset is another queue's.
    """

    body: bytes
    topic: str
    queueId: int
    offset: int
    isDelayed: bool


class Traffic:
    """
    Sends requests, and notes the answers.

    @ivar sent: the bodies of all messages that were sent.
    @ivar acknowledged: the messages with SEND_OK.
    @ivar topics: the topics whose creation was acknowledged by a master with a slave.
    @ivar groups: the groups.
    @ivar problems: promises that were broken.
    """

    def __init__(self, cluster: PowerCluster, random: Random, isSync: bool) -> None:
        self._cluster = cluster
        self._random = random
        self._peers = Peers(Remoting(cluster.clock), cluster.connect, lambda failures: 0.1)
        self.sent: list[bytes] = []
        self.acknowledged: list[Acknowledged] = []
        self.isSync = isSync
        self.problems: list[str] = []
        self.topics: set[str] = set()
        self.groups: set[str] = set()

    def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout: float = _TIMEOUT,
    ) -> Deferred[RemotingCommand]:
        """
        Send a request.
        """
        return self._peers.request(address, requestCommand(code, header, body), timeout)

    def send(self, address: str, topic: str) -> None:
        """
        Send a message, perhaps one that is delivered later.
        """
        body = self._body()
        isDelayed = self._random.random() < 0.08
        properties = {"KEYS": body[:6].decode(), **({"DELAY": "1"} if isDelayed else {})}
        self._send(address, RequestCode.SEND_MESSAGE_V2, topic, [body], body, properties)

    def sendBatch(self, address: str, topic: str) -> None:
        """
        Send some messages together.
        """
        bodies = [self._body() for _ in range(self._random.randrange(2, 5))]
        data = encodeBatch([Message(topic, each) for each in bodies])
        self._send(address, RequestCode.SEND_BATCH_MESSAGE, topic, bodies, data, {})

    def create(self, address: str, topic: str) -> None:
        """
        Create a topic.
        """
        header = CreateTopicRequestHeader(topic, "TBW102", 2, 2, 6, "SINGLE_TAG")
        self._make(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, b"", self.topics, topic)

    def createGroup(self, address: str, group: str) -> None:
        """
        Create a group.
        """
        body = encodeBody(SubscriptionGroupConfig(group))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        self._make(address, code, None, body, self.groups, group)

    def commit(self, address: str, topic: str, offset: int) -> None:
        """
        Commit an offset of a consumer.
        """
        header = UpdateConsumerOffsetRequestHeader("G", topic, 0, offset)
        asking = self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        asking.addErrback(_ignore)

    def intrude(self, address: str, offset: int) -> None:
        """
        Have a stranger tell a master, in the stream of RocketMQ 4.9.7, that it has the log up
        to an offset.
        """
        host, _, port = address.rpartition(":")
        factory = Factory()
        factory.noisy = False
        factory.protocol = lambda: _Stranger(offset)
        connecting = self._cluster.connect(f"{host}:{int(port) + 1}").connect(factory)

        def connected(protocol: Any) -> None:
            self._cluster.clock.callLater(2.0, protocol.transport.abortConnection)

        connecting.addCallbacks(connected, _ignore)

    def _body(self) -> bytes:
        body = b"%06d:" % len(self.sent) + b"." * self._random.choice((0, 10, 10, 150, 600))
        self.sent.append(body)
        return body

    def _send(
        self,
        address: str,
        code: int,
        topic: str,
        bodies: list[bytes],
        data: bytes,
        properties: dict[str, str],
    ) -> None:
        now = int(self._cluster.wall() * 1000)
        text = encodeProperties(properties).decode()
        isBatch = code == RequestCode.SEND_BATCH_MESSAGE
        header = SendMessageRequestHeaderV2(
            "P", topic, "TBW102", 2, 0, 0, now, 0, text, 0, batch=isBatch
        )

        def answered(response: RemotingCommand) -> None:
            if response.code == ResponseCode.SUCCESS:
                stored = response.decodeHeader(SendMessageResponseHeader)
                for number, body in enumerate(bodies):
                    self.acknowledged.append(
                        Acknowledged(
                            body, topic, 0, stored.queueOffset + number, "DELAY" in properties
                        )
                    )

        self.ask(address, code, header, data).addCallbacks(answered, _ignore)

    def _make(
        self,
        address: str,
        code: int,
        header: Header | None,
        body: bytes,
        names: set[str],
        name: str,
    ) -> None:
        cluster = self._cluster
        # Without a slave, a master answers alone.
        before = cluster.hasSlaves(address)

        def answered(response: RemotingCommand) -> None:
            if response.code == ResponseCode.SUCCESS and before and cluster.hasSlaves(address):
                names.add(name)
                others = [each for each in cluster.running() if each != address]
                if self.isSync and not any(name in cluster.names(each) for each in others):
                    self.problems.append(f"{name} was acknowledged, and no slave has it")

        self.ask(address, code, header, body).addCallbacks(answered, _ignore)


class _Stranger(Protocol):
    """
    Sends an offset, and takes what comes.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(encodeOffset(self._offset))


def _ignore(failure: Failure) -> None:
    """
    The request may have had its effect or not.
    """
