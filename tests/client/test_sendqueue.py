# SPDX-License-Identifier: Apache-2.0
"""
Tests for which queue a L{Producer<txrocket.client.producer.producer.Producer>} sends to.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.client.network import FakeBroker, FakeNameServer, Network, routeTo
from tests.remoting.doubles import RemotingTests
from txrocket.client.cluster import Cluster
from txrocket.client.producer.producer import Producer
from txrocket.client.sansio.faulttable import FaultTable
from txrocket.client.sansio.queueselector import byHash
from txrocket.client.sansio.results import SendStatus
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

NS, A, B = "192.0.2.10:9876", "192.0.2.11:10911", "192.0.2.13:10911"


class SendingBroker(FakeBroker):
    """
    A broker that takes messages.

    @ivar queues: where they went.
    @ivar code: how it answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queues: list[int] = []
        self.code = ResponseCode.SUCCESS
        self.answers[RequestCode.SEND_MESSAGE_V2] = self._send

    def _send(self, request: RemotingCommand) -> RemotingCommand:
        queueId = request.decodeHeader(SendMessageRequestHeaderV2).queueId
        self.queues.append(queueId)
        return responseCommand(self.code, "as told", SendMessageResponseHeader("ID", queueId, 0))


class SendQueueTests(RemotingTests):
    """
    Two brokers with four queues each.
    """

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        ns = FakeNameServer()
        ns.routes["T"] = routeTo(a={0: A}, b={0: B})
        self.a, self.b = SendingBroker(), SendingBroker()
        self.network.listeners = {NS: ns, A: self.a, B: self.b}
        self.cluster = Cluster(
            NS, self.clock, connect=self.network.endpoint, choose=lambda below: 0
        )

    def producer(self, **options: Any) -> Producer:
        """
        A producer that is started.
        """
        made = Producer(self.cluster, "p", **options)
        self.successResultOf(made.start())
        return made

    def sent(self, sending: Deferred[Any]) -> Any:
        """
        What became of it.
        """
        self.network.flush()
        return self.successResultOf(sending)

    def where(self, producer: Producer, **options: Any) -> list[tuple[str, int]]:
        """
        Where eight messages go, all in turn.
        """
        found = []
        for _ in range(8):
            queue = self.sent(producer.send(Message("T", b"x"), **options)).messageQueue
            found.append((queue.brokerName, queue.queueId))
        return found

    def test_inTurn(self) -> None:
        """
        Each queue of each broker comes in turn.
        """
        found = self.where(self.producer())
        self.assertEqual(sorted(found), [(name, at) for name in "ab" for at in range(4)])

    def test_key(self) -> None:
        """
        With a key only, its hash decides, also for a message that nobody waits for.
        """
        producer = self.producer()
        queues = [MessageQueue("T", name, at) for name in "ab" for at in range(4)]
        chosen = byHash(queues, Message("T", b"x"), "order-7")
        broker = {"a": self.a, "b": self.b}[chosen.brokerName]
        result = self.sent(producer.send(Message("T", b"x"), key="order-7"))
        self.assertEqual(result.messageQueue, chosen)
        for _ in range(3):
            self.sent(producer.sendOneway(Message("T", b"x"), key="order-7"))
        self.network.flush()
        self.assertEqual(broker.queues, [chosen.queueId] * 4)

    def test_slowIsAvoided(self) -> None:
        """
        With a fault table, a broker that fails is left alone.
        """
        producer = self.producer(faults=FaultTable())
        self.a.code = ResponseCode.SYSTEM_BUSY
        self.assertEqual({name for name, _ in self.where(producer)}, {"b"})
        self.assertEqual(len(self.a.queues), 1)

    def test_storedIsNoFault(self) -> None:
        """
        A broker that has the message, though not as safely as it should, has not
        failed: Java leaves none alone for that.
        """
        for code in (
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ):
            self.a.code = code
            producer = self.producer(faults=FaultTable())
            names = [name for name, _ in self.where(producer)]
            self.assertEqual((names.count("a"), names.count("b")), (4, 4))
            result = self.sent(producer.send(Message("T", b"x"), MessageQueue("T", "a", 0)))
            self.assertIs(result.sendStatus, SendStatus(code))
            self.sent(producer.stop())
