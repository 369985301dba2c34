# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{benchmarks.generator}: it counts what was answered as it should, and nothing
else.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import generator

Answer = Callable[[dict[str, Any]], tuple[dict[str, Any], bytes]]

# RocketMQ's: PULL_MESSAGE, GET_MAX_OFFSET, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE.
PULL, MAX_OFFSET, SEND, BATCH = 11, 30, 310, 320

# PullSysFlag.FLAG_SUBSCRIPTION
SUBSCRIPTION = 4

# MessageDecoder.MESSAGE_MAGIC_CODE, in a record of the least size.
RECORD = struct.pack(">iI", 91, 0xDAA320A7) + bytes(83)


class FakeBroker:
    """
    Answers each request of any number of connections, until it is closed.

    @ivar asked: the headers of all requests.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked: list[dict[str, Any]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(begin := stream.read(8)) == 8:
                size, mark = struct.unpack(">II", begin)
                header = json.loads(stream.read(mark & 0xFFFFFF))
                stream.read(size - 4 - (mark & 0xFFFFFF))
                self.asked.append(header)
                told, body = self._answer(header)
                answer = json.dumps({**told, "opaque": header["opaque"], "flag": 1}).encode()
                sizes = struct.pack(">II", 4 + len(answer) + len(body), len(answer))
                connection.sendall(sizes + answer + body)

    def close(self) -> None:
        """
        No more connections.
        """
        self._listener.close()


class GeneratorTests(SynchronousTestCase):
    """
    C{load.c} with a broker that answers what it is told to.
    """

    def load(self, answer: Answer, mode: str, **options: object) -> Any:
        """
        Eight requests; what they came to, and the broker.
        """
        if not any(map(shutil.which, ("cc", "gcc", "clang"))):
            raise SkipTest("there is no C compiler")
        broker = FakeBroker(answer)
        self.addCleanup(broker.close)
        usual = {"total": 8, "warm": 0, "connections": 2, "inflight": 2, "body": 10}
        return generator.run(broker.port, mode, **{**usual, **options}), broker

    def test_acceptedSendsCountOnce(self) -> None:
        """
        Sends that were accepted count, each once; those of a batch by its messages.
        """
        done, broker = self.load(lambda header: ({"code": 0}, b""), "send")
        self.assertEqual((done.requests, done.messages, done.errors), (8, 8, 0))
        self.assertEqual({each["code"] for each in broker.asked}, {SEND})
        done, broker = self.load(lambda header: ({"code": 0}, b""), "batch", batch=5)
        self.assertEqual((done.requests, done.messages, done.errors), (8, 40, 0))
        self.assertEqual({each["code"] for each in broker.asked}, {BATCH})

    def test_refusedSendsDoNotCount(self) -> None:
        """
        A send that is not answered with code 0 does not count, and the first such answer is
        shown.
        """
        done, _ = self.load(lambda header: ({"code": 2, "remark": "busy"}, b""), "send")
        self.assertEqual((done.messages, done.errors), (0, 8))
        self.assertIn("busy", done.error)

    def pulls(self, records: int) -> Any:
        """
        Pulls of 32 that are answered with this many.
        """

        def answer(header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
            if header["code"] == MAX_OFFSET:
                return {"code": 0, "extFields": {"offset": "1000"}}, b""
            return {"code": 0}, RECORD * records

        return self.load(answer, "pull")

    def test_pullCountsItsMessages(self) -> None:
        """
        A pull counts with all its messages, and it asks with its subscription: a
        broker refuses it otherwise.
        """
        done, broker = self.pulls(32)
        self.assertEqual((done.requests, done.messages, done.errors), (8, 8 * 32, 0))
        flags = {int(each["extFields"]["sysFlag"]) for each in broker.asked if each["code"] == PULL}
        self.assertTrue(flags and all(flag & SUBSCRIPTION for flag in flags))

    def test_shortPullDoesNotCount(self) -> None:
        """
        A pull with a message too few does not count.
        """
        done, _ = self.pulls(31)
        self.assertEqual((done.messages, done.errors), (0, 8))
        self.assertIn("a pull without all its messages", done.error)

    def test_windowLimitsConnectionsInTurn(self) -> None:
        """
        With a window, connections take turns.
        """
        done, broker = self.load(lambda header: ({"code": 0}, b""), "send", connections=4, window=1)
        self.assertEqual(done.messages, 8)
        self.assertEqual(len({each["opaque"] for each in broker.asked}), 2)

    def test_bothCountsReceivedMessages(self) -> None:
        """
        End to end, what consumers received counts, not what producers sent.
        """
        record = struct.pack(">iI", 107, 0xDAA320A7) + bytes(80) + b"0" * 16 + bytes(3)
        # Whoever asks for more than the first three has received these.
        received = threading.Event()

        def answer(header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
            if header["code"] == MAX_OFFSET:
                return {"code": 0, "extFields": {"offset": "0"}}, b""
            if header["code"] == PULL:
                if header["extFields"]["queueOffset"] == "3":
                    received.set()
                return {"code": 0}, record * 3
            received.wait(60)
            return {"code": 0}, b""

        done, broker = self.load(answer, "both", body=16)
        self.assertTrue(done.messages % 3 == 0 and done.messages > 0)
        self.assertEqual(done.errors, 0)
        self.assertEqual(done.requests, sum(each["code"] == SEND for each in broker.asked))
