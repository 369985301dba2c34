# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking.commands.resend}.
"""

from __future__ import annotations

import io
import sys
import zlib
from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from txrocket.blocking import Client
from txrocket.blocking.commands.resend import ALL, SOME, WRONG, main, resend
from txrocket.client.sansio.results import PullStatus
from txrocket.errors import ConnectionLost, InvalidMessage
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.compression import COMPRESSED_FLAG
from txrocket.protocol.record import (
    TRANSACTION_PREPARED_TYPE,
    decodeRecord,
    encodeHost,
    encodeProperties,
    encodeRecord,
    encodeTopic,
)
from txrocket.server.main import main as txrocket
from txrocket.testing import ChildCluster

HOST = encodeHost("127.0.0.1", 10911)


def record(
    offset: int, topic: str, body: bytes, sysFlag: int = 0, queueId: int = 1, **properties: str
) -> bytes:
    """
    A record of the log.
    """
    return encodeRecord(
        *(encodeTopic(topic), body, encodeProperties(properties), queueId, 9, 5),
        *(offset, sysFlag, 1_700_000_000_000, HOST, 1_700_000_000_000, HOST),
    )


class ResendTests(SynchronousTestCase):
    """
    Which messages are sent, and what is told.
    """

    def setUp(self) -> None:
        """
        Begin with nothing sent.
        """
        self.sent: list[tuple[Message, MessageQueue | None]] = []
        self.failures: dict[bytes, Exception] = {}
        self.out = io.StringIO()

    def send(self, message: Message, queue: MessageQueue | None) -> None:
        """
        Send a message, or fail.
        """
        if message.body in self.failures:
            raise self.failures[message.body]
        self.sent.append((message, queue))

    def resend(self, *records: bytes, **options: object) -> int:
        """
        Send records again.
        """
        messages: list[MessageExt] = [decodeRecord(each) for each in records]
        return resend(lambda: messages, self.send, self.out, **options)  # type: ignore[arg-type]

    def test_messageKept(self) -> None:
        """
        Topic, body, flag and the properties of the producer are kept, with its id; those that
        brokers add are not.
        """
        one = record(0, "T", b"one", TAGS="a", KEYS="k l", UNIQ_KEY="id", mine="x", CLUSTER="c")
        self.assertEqual(ALL, self.resend(one))
        [(message, queue)] = self.sent
        self.assertEqual(("T", b"one", 9), (message.topic, message.body, message.flag))
        expected = {"TAGS": "a", "KEYS": "k l", "UNIQ_KEY": "id", "mine": "x"}
        self.assertEqual(expected, {**message.properties} | expected)
        self.assertNotIn("CLUSTER", message.properties)
        self.assertIsNone(queue)
        self.assertIn("sent      T: 1", self.out.getvalue())

    def test_sameQueue(self) -> None:
        """
        If a broker is named, each message goes to its queue of the same number.
        """
        self.resend(record(0, "T", b"one", queueId=3), brokerName="b")
        self.assertEqual(MessageQueue("T", "b", 3), self.sent[0][1])

    def test_compressedBody(self) -> None:
        """
        A compressed body is sent as it was before.
        """
        self.resend(record(0, "T", zlib.compress(b"long" * 99), COMPRESSED_FLAG))
        self.assertEqual(b"long" * 99, self.sent[0][0].body)

    def test_delayed(self) -> None:
        """
        A delayed message goes to its own topic with its level, unless the file has it as
        delivered.
        """
        topic, parked = "SCHEDULE_TOPIC_XXXX", partial(record, REAL_TOPIC="T", REAL_QID="2")
        self.resend(
            parked(0, topic, b"later", UNIQ_KEY="a", DELAY="3"),
            parked(200, topic, b"done", UNIQ_KEY="b", DELAY="3"),
            record(400, "T", b"done", UNIQ_KEY="b"),
            record(600, "rmq_sys_timer", b"timed", REAL_TOPIC="T", TIMER_DELIVER_MS="9"),
            brokerName="b",
        )
        self.assertEqual(
            [("T", b"later", 2), ("T", b"done", 1), ("T", b"timed", 0)],
            [(each.topic, each.body, queue.queueId) for each, queue in self.sent if queue],
        )
        self.assertEqual("3", self.sent[0][0].properties["DELAY"])
        self.assertEqual("9", self.sent[2][0].properties["TIMER_DELIVER_MS"])
        self.assertIn("left out  SCHEDULE_TOPIC_XXXX: 1, delivered", self.out.getvalue())

    def test_brokersOwnLeftOut(self) -> None:
        """
        Halves, decisions and records that fill holes are left out, and counted.
        """
        code = self.resend(
            record(0, "RMQ_SYS_TRANS_HALF_TOPIC", b"half", REAL_TOPIC="T"),
            record(200, "T", b"half", TRANSACTION_PREPARED_TYPE),
            record(400, "RMQ_SYS_TRANS_OP_HALF_TOPIC", b"1"),
            record(600, "rmq_sys_hole", b"\0"),
        )
        self.assertEqual((ALL, []), (code, self.sent))
        self.assertEqual(4, self.out.getvalue().count("left out"))

    def test_retried(self) -> None:
        """
        A message of a retry topic keeps how often it was tried.
        """
        self.resend(record(0, "%RETRY%g", b"again"))
        self.assertEqual("0", self.sent[0][0].properties["RECONSUME_TIME"])

    def test_failureEndsAndTellsHowToGoOn(self) -> None:
        """
        A send that fails ends the command, which tells where to go on; from there the rest is
        sent.
        """
        records = [record(n * 200, "T", b"%d" % n) for n in range(4)]
        self.failures[b"2"] = ConnectionLost("127.0.0.1:10911", "gone")
        self.assertEqual(SOME, self.resend(*records))
        self.assertIn("go on with --from 400", self.out.getvalue())
        self.failures.clear()
        self.assertEqual(ALL, self.resend(*records, start=400))
        self.assertEqual([b"0", b"1", b"2", b"3"], [each.body for each, _ in self.sent])

    def test_invalidMessagePassedOver(self) -> None:
        """
        A message that no client can send is left out, with the reason, and the exit code says
        that not all were sent.
        """
        self.failures[b"bad"] = InvalidMessage("the body is empty")
        code = self.resend(record(0, "T", b"bad"), record(200, "T", b"good"))
        self.assertEqual((SOME, 1), (code, len(self.sent)))
        self.assertIn("left out  T: 1, the body is empty", self.out.getvalue())


class CommandTests(SynchronousTestCase):
    """
    The command.
    """

    def write(self, data: bytes) -> str:
        """
        A file of records.
        """
        path: str = self.mktemp()
        with open(path, "wb") as file:
            file.write(data)
        return path

    def test_dryRunSendsNothing(self) -> None:
        """
        A dry run tells what would be sent, and needs no broker.
        """
        path = self.write(record(0, "T", b"one") + record(200, "T", b"two"))
        out = io.StringIO()
        self.assertEqual(ALL, main(["-n", "127.0.0.1:1", "--dry-run", path], out))
        self.assertEqual("to send   T: 2\n", out.getvalue())

    def test_badFileSendsNothing(self) -> None:
        """
        A file that is damaged or missing is refused before the first message is sent.
        """
        good = record(0, "T", b"one")
        for path in (self.write(good + good[:-1]), self.mktemp()):
            out, errors = io.StringIO(), io.StringIO()
            self.patch(sys, "stderr", errors)
            self.assertEqual(WRONG, main(["-n", "127.0.0.1:1", path], out))
            self.assertEqual("", out.getvalue())
            self.assertIn(path, errors.getvalue())

    def test_live(self) -> None:
        """
        The messages of a file come to their topic at a real broker.
        """
        cluster = ChildCluster()
        self.addCleanup(cluster.stop)
        cluster.start()
        path = self.write(b"".join(record(n * 200, "Cut", b"%d" % n, TAGS="t") for n in range(5)))
        self.patch(sys, "stdout", io.StringIO())
        self.assertEqual(0, txrocket(["resend", "-n", ";".join(cluster.nameServers), path]))
        with Client(cluster.nameServers) as client:
            found: list[MessageExt] = []
            for queue in client.queues("Cut"):
                result = client.pull(queue, 0)
                if result.pullStatus is PullStatus.FOUND:
                    found += result.messages
        self.assertEqual([b"%d" % n for n in range(5)], sorted(each.body for each in found))
        self.assertEqual({"t"}, {each.tags for each in found})
