# SPDX-License-Identifier: Apache-2.0
"""
Tests for ordinary sends of several connections that are dealt with together: each
connection is served as if it were alone.
"""

from __future__ import annotations

import errno
from operator import itemgetter
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address

from tests.processors.support import Client, pullHeader
from tests.processors.test_express import ExpressCase, Watch, plain
from tests.processors.test_quicksend import Message, messages
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.record import decodeRecords
from txrocket.store.settings import FlushDiskType

CLIENTS = 3


class SeveralCase(ExpressCase):
    """
    The base: several clients of a broker.

    @ivar together: how many peers had something in each turn that was dealt with so.
    """

    def setUp(self) -> None:
        super().setUp()
        self.together: list[int] = []
        if self.express:
            self.remoting.together = self._together
        addresses: list[Any] = [
            IPv4Address("TCP", "192.0.2.8", 50002),
            IPv6Address("TCP", "2001:db8::9", 50003),
        ]
        self.clients = [self.client, *(Client(self.remoting, each) for each in addresses)]

    def _together(self, reads: list[tuple[Any, bytes]]) -> None:
        self.together.append(len(reads))
        self.way.takeTogether(reads)

    def knowAll(self) -> None:
        """
        Have a topic, and clients that have sent to it before.
        """
        self.known()
        for client in self.clients:
            client.write(*self.ordinary())
            self.clock.advance(0)
            self.assertEqual([each.code for each in client.answers()], [0])

    def sendOneEach(self) -> None:
        """
        Have each client send a message in the same turn.
        """
        for client in self.clients:
            client.write(*self.ordinary())
        self.clock.advance(0)


class SeveralTests(SeveralCase):
    """
    Clients that send in the same turn.
    """

    def test_together(self) -> None:
        """
        All of them are dealt with at once, and each is told of its own messages.
        """
        self.knowAll()
        before = len(self.stored())
        for number, client in enumerate(self.clients):
            client.write(*self.ordinary(1, queueId=number))
        self.assertEqual([each.answers() for each in self.clients], [[]] * CLIENTS)
        self.clock.advance(0)
        self.assertEqual(self.together, [CLIENTS])
        for number, client in enumerate(self.clients):
            [answer] = client.answers()
            [stored] = self.stored(queueId=number)[before if number == 0 else 0 :]
            self.assertEqual(answer.extFields["queueId"], f"{number}")
            self.assertEqual(answer.extFields["msgId"], stored.offsetMsgId)
            self.assertEqual(stored.bornHostData, client.peer.host)

    def test_alone(self) -> None:
        """
        Who is alone in a turn is dealt with as ever.
        """
        self.knowAll()
        self.assertEqual([each.code for each in self.answered(*self.ordinary(2))], [0, 0])
        self.assertEqual(self.together, [])

    def test_more(self) -> None:
        """
        What a client sends beside messages is dealt with after them, and what it sends in
        the same turn after that.
        """
        self.knowAll()
        client, other, _ = self.clients
        pull = client.request(RequestCode.PULL_MESSAGE, pullHeader())
        requests = [*self.ordinary(1), pull, *self.ordinary(1)]
        client.write(*requests[:2])
        other.write(*self.ordinary(1))
        client.write(*requests[2:])
        self.clock.advance(0)
        answers = client.answers()
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        self.assertEqual([each.code for each in (*answers, *other.answers())], [0] * 4)
        # It is a sender still, but was not one in this turn.
        self.assertEqual(self.together, [2])

    def test_cut(self) -> None:
        """
        A frame that is not whole waits for the rest of it.
        """
        self.knowAll()
        client, other, _ = self.clients
        data = b"".join(each.encode() for each in self.ordinary(2))
        client.peer.dataReceived(data[:-5])
        other.write(*self.ordinary(1))
        self.clock.advance(0)
        self.assertEqual(len(client.answers()), 1)
        self.assertEqual(len(other.answers()), 1)
        client.peer.dataReceived(data[-5:])
        other.write(*self.ordinary(1))
        self.clock.advance(0)
        self.assertEqual(len(client.answers()), 1)
        self.assertEqual(len(other.answers()), 1)

    def test_large(self) -> None:
        """
        What is long does not wait.
        """
        self.knowAll()
        requests = self.ordinary(200)
        self.assertGreater(sum(len(each.encode()) for each in requests), 1 << 15)
        for client in self.clients:
            client.write(*requests)
        self.clock.advance(0)
        self.assertEqual([len(each.answers()) for each in self.clients], [200] * CLIENTS)
        self.assertEqual(self.together, [])

    def test_gone(self) -> None:
        """
        What a client has sent before it closes its connection is there, though no answer
        is wanted.
        """
        self.knowAll()
        before = len(self.stored())
        client, other, _ = self.clients
        requests = self.ordinary(3)
        for each in requests:
            each.flag = 2
        client.write(*requests)
        other.write(*self.ordinary(1))
        client.lose()
        self.clock.advance(0)
        self.assertEqual(len(self.stored()), before + 4)
        self.assertEqual([each.code for each in other.answers()], [0])

    def test_hooks(self) -> None:
        """
        While hooks look at requests, each is dealt with by itself.
        """
        self.knowAll()
        self.remoting.hooks.append(Watch())  # type: ignore[arg-type]
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)
        self.assertEqual(self.together, [])

    def test_full(self) -> None:
        """
        If the disk does not take the messages, every sender is told so.
        """
        self.knowAll()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.sendOneEach()
        for client in self.clients:
            [answer] = client.answers()
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.together, [CLIENTS])
        self.assertEqual(self.stats.failures, CLIENTS)

    def test_newFile(self) -> None:
        """
        Those for whom a new file of the log must be made are put there.
        """
        self.knowAll()
        before = len(self.stored())
        for _ in range(30):
            for client in self.clients:
                client.write(self.large())
            self.clock.advance(0)
        for client in self.clients:
            self.assertEqual([each.code for each in client.answers()], [0] * 30)
        self.assertEqual(len(self.stored()), before + 90)
        self.assertGreater(len(self.store.log.segments.bases), 2)
        self.assertEqual(self.together, [CLIENTS] * 30)

    def large(self) -> RemotingCommand:
        """
        A message of which few fit into a file.
        """
        [request] = self.ordinary()
        request.body = b"x" * 700
        return request


class WaitingTests(SeveralCase):
    """
    Messages that wait for the disk.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def test_alone(self) -> None:
        """
        They wait for nothing else.
        """
        self.knowAll()
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)
        self.assertEqual(self.together, [])

    def test_becomes(self) -> None:
        """
        A broker that is to wait for the disk from now on does so at once.
        """
        self.store.apply(attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.ASYNC_FLUSH))
        self.knowAll()
        self.store.apply(attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.SYNC_FLUSH))
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.written)


class SameTests(SeveralCase):
    """
    Whatever comes, from whomever.
    """

    def outcome(
        self, given: list[tuple[int, Message, bool]], sync: bool, express: bool
    ) -> tuple[Any, ...]:
        """
        What becomes of messages: what each client is told, but for the places, and what is
        stored of each client in each queue.
        """
        requestOf = self.begin(sync, express)
        bodies = {}
        for number, (who, message, turns) in enumerate(given):
            request = requestOf(message._replace(body=b"%d" % number))
            bodies[request.opaque] = request.body
            self.clients[who].write(request)
            if turns:
                self.clock.advance(0)
        self.clock.advance(0)
        told: list[Any] = []
        for client in self.clients:
            for answer in client.answers():
                fields = dict(answer.extFields)
                msgId = fields.pop("msgId", "")
                fields.pop("queueOffset", None)
                told.append(
                    (client.peer.address, answer.opaque, answer.code, answer.remark, fields)
                )
                if answer.code == 0:
                    self.check(msgId, bodies[answer.opaque])
        stored: dict[Any, list[bytes]] = {}
        for topic, queueId, _ in list(self.store.queues):
            got = self.store.get(topic, queueId, 0, 100)
            for each in decodeRecords(got.data, inflate=False):
                key = topic, queueId, each.bornHostData
                stored.setdefault(key, []).append(each.body)
        self.store.stop()
        # Where one waits for the disk, what is refused is answered before it.
        return sorted(told, key=itemgetter(1)), stored, self.stats.failures

    def check(self, msgId: str, body: bytes) -> None:
        """
        A message is where its sender was told.
        """
        data = self.store.messageAt(int(msgId[-16:], 16))
        assert data is not None
        self.assertIn(body, data)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, CLIENTS - 1),
                messages | plain | plain | plain,
                st.sampled_from([False, False, False, True]),
            ),
            max_size=32,
        ),
        st.booleans(),
    )
    def test_sameAsAlone(self, given: list[tuple[int, Message, bool]], sync: bool) -> None:
        """
        Everybody is told the same, and has the same in each queue, in the same order.
        """
        plain = self.outcome(given, sync, express=False)
        self.assertEqual(self.outcome(given, sync, express=True), plain)
