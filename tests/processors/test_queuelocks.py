# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.clients.queuelocks}.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.replay import Server, fieldsOf, fieldsOfOurs, requests, responseTo
from tests.remoting.doubles import frame
from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.model import MessageQueue
from txrocket.processors.clients.queuelocks import LockProcessor
from txrocket.processors.cooperate import cooperator
from txrocket.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode

Q0, Q1 = (MessageQueue("T", "broker-a", each) for each in range(2))


class LockTests(SynchronousTestCase):
    """
    L{LockProcessor}.
    """

    def setUp(self) -> None:
        self.now = 0
        self.locks = QueueLocks()
        self.clock = Clock()
        self.processor = LockProcessor(self.locks, lambda: self.now, cooperator(self.clock))
        self.server = Server(self.processor.codes(), self.clock)

    def lock(self, clientId: str, *queues: MessageQueue) -> frozenset[MessageQueue]:
        """
        The queues that a client of a group gets.
        """
        body = encodeBody(LockBatchRequestBody("G", clientId, frozenset(queues)))
        answer = self.server.send(frame(RequestCode.LOCK_BATCH_MQ, 7, body))
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        return decodeBody(LockBatchResponseBody, answer.body).lockOKMQSet

    def test_freeQueueIsLocked(self) -> None:
        """
        A client gets what is free, until it gives it back or is silent for more
        than 60 seconds.
        """
        self.assertEqual(self.lock("a", Q0), {Q0})
        self.assertEqual(self.lock("b", Q0, Q1), {Q1})
        body = encodeBody(UnlockBatchRequestBody("G", "b", frozenset({Q0, Q1})))
        answer = self.server.send(frame(RequestCode.UNLOCK_BATCH_MQ, 7, body))
        assert answer is not None
        self.assertEqual((answer.code, answer.body), (ResponseCode.SUCCESS, b""))
        self.assertEqual(self.lock("c", Q0, Q1), {Q1})
        self.now = 60_001
        self.assertEqual(self.lock("c", Q0, Q1), {Q0, Q1})

    def test_missingClientIsRefused(self) -> None:
        """
        A request must have a client id and a valid group.
        """
        for code, body in (
            (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody("G", None, frozenset({Q0}))),
            (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody("G", "", frozenset({Q0}))),
            (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody(None, "a", frozenset({Q0}))),
            (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody("a/b", "a", frozenset({Q0}))),
            (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchRequestBody("G", None, frozenset({Q0}))),
            (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchRequestBody(None, "a", frozenset({Q0}))),
        ):
            answer = self.server.send(frame(code, 7, encodeBody(body)))
            assert answer is not None
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("clientId" if body.consumerGroup == "G" else "group", answer.remark or "")
        self.assertEqual(self.locks.holders("G", 0), {})

    def test_capturedLocks(self) -> None:
        """
        Requests of Java's and C++ clients lock what Java locked for them.
        """
        replayed = requests(RequestCode.LOCK_BATCH_MQ, "broker", "vip")
        self.assertEqual(len(replayed), 8)
        compared = 0
        for theirs in replayed:
            self.setUp()
            ours = self.server.send(theirs.frame)
            assert ours is not None
            asked = decodeBody(LockBatchRequestBody, theirs.body)
            got = decodeBody(LockBatchResponseBody, ours.body)
            self.assertEqual(got.lockOKMQSet, asked.mqSet)
            expected = responseTo(theirs)
            if expected is not None:
                compared += 1
                self.assertEqual(fieldsOfOurs(ours), fieldsOf(expected))
        self.assertEqual(compared, 6)

    def test_capturedUnlocks(self) -> None:
        """
        Requests to unlock, oneway ones too, give back what the client had.
        """
        replayed = requests(RequestCode.UNLOCK_BATCH_MQ, "broker", "vip")
        self.assertEqual(len(replayed), 8)
        compared = 0
        for theirs in replayed:
            self.setUp()
            asked = decodeBody(UnlockBatchRequestBody, theirs.body)
            assert asked.consumerGroup and asked.clientId
            self.locks.lock(asked.consumerGroup, asked.mqSet, asked.clientId, 0)
            ours = self.server.send(theirs.frame)
            self.assertEqual(self.locks.holders(asked.consumerGroup, 0), {})
            self.assertEqual(ours is None, theirs.kind == "oneway")
            expected = responseTo(theirs)
            if ours is not None and expected is not None:
                compared += 1
                self.assertEqual(fieldsOfOurs(ours), fieldsOf(expected))
        self.assertEqual(compared, 6)
