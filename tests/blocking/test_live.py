# SPDX-License-Identifier: Apache-2.0
"""
L{txrocket.blocking} against our own servers, in a process of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from txrocket.blocking import TLS, Client, Settings
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import RemotingError, RocketError, SendFailed
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.record.batch import BATCH_LIMIT
from txrocket.testing import ChildCluster


def pulled(client: Client, queue: MessageQueue, expression: str = "*") -> Iterator[MessageExt]:
    """
    All messages of a queue.
    """
    offset = client.minOffset(queue)
    while True:
        result = client.pull(queue, offset, expression=expression)
        yield from result.messages
        if result.pullStatus not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG):
            return
        offset = result.nextBeginOffset


def sendOne(client: Client) -> str:
    """
    Send a message in another process.
    """
    return client.send(Message("Forked", b"x")).msgId


class LiveTests(SynchronousTestCase):
    """
    A name server and two brokers.
    """

    def setUp(self) -> None:
        self.cluster = ChildCluster(brokers=2)
        # Before it is started: it stops what has been.
        self.addCleanup(self.cluster.stop)
        self.cluster.start()

    def client(self, **options: Any) -> Client:
        """
        A client that is closed when the test is over.
        """
        client = Client(Settings(self.cluster.nameServers, timeout=60.0, **options))
        self.addCleanup(client.close)
        return client

    def test_sentMessagesArePulledAndFound(self) -> None:
        """
        Sent messages are pulled, also by tags, found by key and by both ids, and found by
        time.
        """
        client = self.client()
        client.createTopic("Orders", 2)
        queues = client.queues("Orders")
        self.assertEqual(len(queues), 4)
        began = time.time()
        large = bytes(range(256)) * 400
        results = [
            client.send(Message("Orders", body, tag, f"key-{number}", flag=number))
            for number, (body, tag) in enumerate(
                [(b"a", "new"), (b"b", "paid"), (large, "new"), (b"d", "new")]
            )
        ]
        self.assertEqual({each.messageQueue for each in results}, set(queues))
        new = [each for queue in queues for each in pulled(client, queue, "new")]
        self.assertEqual({each.body for each in new}, {b"a", large, b"d"})
        self.assertEqual({each.flag for each in new}, {0, 2, 3})
        for result in results:
            queue = result.messageQueue
            self.assertEqual((client.minOffset(queue), client.maxOffset(queue)), (0, 1))
            self.assertEqual(client.searchByTime(queue, began - 1), 0)
            earliest = client.earliestTime(queue)
            assert earliest is not None
            self.assertLess(abs(earliest - began), 60)
            self.assertEqual(client.viewMessage(result.offsetMsgId).msgId, result.msgId)
            (found,) = client.queryMessage("Orders", result.msgId, unique=True)
            self.assertEqual(found.offsetMsgId, result.offsetMsgId)
        (found,) = client.queryMessage("Orders", "key-2")
        self.assertEqual(found.body, large)
        self.assertEqual(client.queryMessage("Orders", "key-9"), [])

    def test_committedOffsetIsKept(self) -> None:
        """
        A group's offset is kept.
        """
        client = self.client()
        client.createTopic("Offsets", 1)
        queue = client.queues("Offsets")[0]
        client.send(Message("Offsets", b"x"), queue)
        client.commit("readers", queue, 1)
        self.assertEqual(client.offset("readers", queue), 1)
        self.assertIsNone(client.earliestTime(client.queues("Offsets")[1]))

    def test_smallMessagesGoInFewRequests(self) -> None:
        """
        Many small messages go in few requests, each as large as a broker takes, and
        come back in their order.
        """
        client = self.client()
        client.createTopic("Batches", 1)
        queue = client.queues("Batches")[0]
        messages = [Message("Batches", b"%06d" % number) for number in range(50_000)]
        results = client.sendBatch(messages, queue)
        # As many messages as a batch may have: some 94 bytes each, of 4 MiB.
        self.assertEqual(len(results), -(-50_000 // BATCH_LIMIT))
        self.assertEqual(client.maxOffset(queue), 50_000)
        bodies = [each.body for each in client.pull(queue, 49_990).messages]
        self.assertEqual(bodies, [b"%06d" % number for number in range(49_990, 50_000)])

    def test_missingTopicIsCreatedBySend(self) -> None:
        """
        A topic that does not exist is made by a message.
        """
        client = self.client()
        result = client.send(Message("Made", b"x"))
        self.assertIn(result.messageQueue, client.queues("Made"))
        self.assertEqual([each.body for each in pulled(client, result.messageQueue)], [b"x"])

    def test_waitingPullGetsNewMessage(self) -> None:
        """
        A pull that waits gets a message as soon as it is there.
        """
        client = self.client()
        client.createTopic("Waiting", 1)
        queue = client.queues("Waiting")[0]
        held = client.pull(queue, 0, wait=0.05)
        self.assertIs(held.pullStatus, PullStatus.NO_NEW_MSG)

        def send() -> None:
            with Client(Settings(self.cluster.nameServers, timeout=60.0)) as other:
                other.send(Message("Waiting", b"x"), queue)

        sending = threading.Timer(0.1, send)
        sending.start()
        self.addCleanup(sending.join)
        result = client.pull(queue, 0, wait=60.0)
        self.assertEqual([each.body for each in result.messages], [b"x"])

    def test_pickledAndForkedClientsSend(self) -> None:
        """
        A client that is pickled, and one that was forked, send from other processes,
        each with ids of its own.
        """
        client = self.client()
        client.createTopic("Forked", 1)
        own = sendOne(client)
        # Else a reactor that ran here before would take what is to end the workers.
        undo = signal.signal, (signal.SIGTERM, signal.SIG_DFL)
        with multiprocessing.get_context("fork").Pool(2, *undo) as pool:
            others = pool.map(sendOne, [client] * 8, chunksize=1)
        self.assertEqual(len({own, *others}), 9)
        self.assertEqual(
            sum(len(list(pulled(client, each))) for each in client.queues("Forked")), 9
        )

    def test_tlsWorksBesidePlainText(self) -> None:
        """
        The servers take TLS beside plain text.
        """
        client = self.client(tls=TLS())
        client.send(Message("Secret", bytes(1_000_000)))
        # One broker has made it.
        self.assertEqual(len(client.queues("Secret")), 4)

    def test_oversizeAnswerIsRefused(self) -> None:
        """
        An answer that is larger than this client takes is refused, and not waited
        for.
        """
        client = self.client()
        client.createTopic("Large", 1)
        queue = client.queues("Large")[0]
        client.send(Message("Large", os.urandom(50_000)), queue)
        small = self.client(frameMaxLength=10_000, retries=0)
        error = self.assertRaises(RemotingError, small.pull, queue, 0)
        self.assertIn("larger than the limit of 10000", str(error))


class KilledTests(SynchronousTestCase):
    """
    Servers that are killed.
    """

    def test_clientSurvivesKilledServers(self) -> None:
        """
        A client survives when its servers are killed and come back: its messages are there,
        and it connects again by itself.
        """
        cluster = ChildCluster(folder=self.mktemp(), settings={"flushDiskType": "SYNC_FLUSH"})
        cluster.start()
        self.addCleanup(cluster.stop)
        with Client(Settings(cluster.nameServers, timeout=60.0)) as client:
            client.createTopic("T", 1)
            queue = client.send(Message("T", b"first")).messageQueue
            cluster.kill()
            # The name server is not there either.
            with self.assertLogs("txrocket.blocking", "WARNING"):
                error = self.assertRaises(
                    SendFailed, client.send, Message("T", b"lost"), timeout=0.5
                )
            self.assertIsInstance(error.error, RocketError)
            self.assertIn(error.phase, ("connect", "send", "answer"))
            cluster.start()
            self.assertEqual(client.send(Message("T", b"second")).messageQueue, queue)
            self.assertEqual([each.body for each in pulled(client, queue)], [b"first", b"second"])
