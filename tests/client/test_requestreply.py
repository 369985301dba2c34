# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.producer}: messages that are replied to.
"""

from __future__ import annotations

import uuid
from typing import Any

from twisted.internet.defer import CancelledError

from tests.client.answering import ADDRESSES, Received, routeTo
from tests.client.producercase import HELLO, ProducerCase, consumed
from txrocket.client.producer.producer import Producer
from txrocket.errors import (
    InvalidMessage,
    RequestTimedOut,
    SendFailed,
    ServiceNotAvailable,
)
from txrocket.message import Message, splitProperties
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import ReplyMessageRequestHeader


class RequestTests(ProducerCase):
    """
    Requests and their replies.
    """

    def asked(self, producer: Producer, **options: Any) -> Received:
        """
        Send a message that wants a reply.
        """
        self.reply = producer.request(HELLO, **options)
        return self.network.only()

    def push(self, asked: Received, correlationId: str, body: bytes = b"reply") -> None:
        """
        The broker brings a reply.
        """
        header = ReplyMessageRequestHeader(
            *("repliers", "cluster_REPLY_TOPIC", "TBW102", 4, 0, 0, 0, 0),
            *("/192.0.2.9:1", "/192.0.2.1:10911", 0, f"CORRELATION_ID\x01{correlationId}"),
        )
        request = requestCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body)
        asked.protocol.dataReceived(request.encode())

    def test_requestNamesClientAndTime(self) -> None:
        """
        The message names the client, the correlation id and the time limit; the reply with
        that id is the result.
        """
        received = self.asked(self.producer(), timeout=2.5)
        self.assertEqual(received.code, RequestCode.SEND_MESSAGE_V2)
        properties = splitProperties(received.fields["i"])
        self.assertEqual(properties["REPLY_TO_CLIENT"], "192.0.2.50@1")
        self.assertEqual(properties["TTL"], "2500")
        correlationId = properties["CORRELATION_ID"]
        self.assertEqual(str(uuid.UUID(correlationId)), correlationId)
        received.stored()
        self.push(received, "of somebody else")
        self.assertNoResult(self.reply)
        self.push(received, correlationId)
        reply = self.successResultOf(self.reply)
        self.assertEqual((reply.body, reply.topic), (b"reply", "cluster_REPLY_TOPIC"))
        self.assertEqual(self.cluster.requests.replies, {})

    def test_earlyReplyCounts(self) -> None:
        """
        A reply may come before the broker's answer.
        """
        received = self.asked(self.producer())
        self.push(received, splitProperties(received.fields["i"])["CORRELATION_ID"])
        self.successResultOf(self.reply)
        received.refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_lateReplyIsDropped(self) -> None:
        """
        A request without a reply in time fails, and a later reply is dropped.
        """
        received = self.asked(self.producer(), timeout=2.0)
        received.stored()
        self.clock.advance(1.9)
        self.assertNoResult(self.reply)
        self.clock.advance(0.1)
        error = self.failureResultOf(self.reply, RequestTimedOut).value
        self.assertIn("no reply to the message to T in 2 s", str(error))
        self.push(received, splitProperties(received.fields["i"])["CORRELATION_ID"])
        self.assertEqual(self.cluster.requests.replies, {})

    def test_unsentRequestFails(self) -> None:
        """
        A request that is not sent gets no reply, and is not awaited.
        """
        self.asked(self.producer()).refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.failureResultOf(self.reply, SendFailed)
        self.assertEqual(self.cluster.requests.replies, {})

    def test_cancelledRequestIsForgotten(self) -> None:
        """
        A cancelled request is forgotten.
        """
        received = self.asked(self.producer())
        self.reply.cancel()
        self.failureResultOf(self.reply, CancelledError)
        self.assertEqual(self.cluster.requests.replies, {})
        received.refuse(ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_allBrokersGetHeartbeatFirst(self) -> None:
        """
        Before the first request, all brokers of the topic's clusters get a heartbeat,
        because the reply may come through any of them.  Later requests do not wait for
        that.
        """
        self.network.routes["cluster_REPLY_TOPIC"] = routeTo("broker-a", "broker-b", "broker-c")
        producer = self.producer()
        self.asked(producer).stored()
        self.assertEqual(set(self.network.heartbeats), set(ADDRESSES.values()))
        self.assertIn("cluster_REPLY_TOPIC", producer.topics())
        self.network.heartbeats.clear()
        self.network.asked.clear()
        self.asked(producer).stored()
        self.assertEqual((self.network.heartbeats, self.network.asked), ([], []))

    def test_newTopicGetsHeartbeatFirst(self) -> None:
        """
        The same holds for a topic that the request creates.
        """
        self.network.routes["cluster_REPLY_TOPIC"] = routeTo("broker-c")
        self.reply = self.producer().request(Message("New", b"x"))
        self.assertEqual(self.network.only().fields["b"], "New")
        self.assertIn(ADDRESSES["broker-c"], self.network.heartbeats)

    def test_silentBrokerIsAwaitedOneSecond(self) -> None:
        """
        A broker that does not answer is awaited for a second, which is a part of the time
        limit.
        """
        self.network.routes["cluster_REPLY_TOPIC"] = routeTo("broker-c")
        self.network.vanished.add(ADDRESSES["broker-c"])
        self.reply = self.producer().request(HELLO, timeout=2.0)
        self.assertEqual(self.network.run(), [])
        self.clock.advance(1.0)
        self.network.only().stored()
        self.clock.advance(0.9)
        self.assertNoResult(self.reply)
        self.clock.advance(0.1)
        self.failureResultOf(self.reply, RequestTimedOut)

    def test_requestAfterTimeLimitIsNotSent(self) -> None:
        """
        If the time limit is over by then, the request is not sent.
        """
        self.network.routes["cluster_REPLY_TOPIC"] = routeTo("broker-c")
        self.network.vanished.add(ADDRESSES["broker-c"])
        self.reply = self.producer().request(HELLO, timeout=0.5)
        self.network.run()
        self.clock.advance(0.5)
        self.failureResultOf(self.reply, RequestTimedOut)
        self.clock.advance(1.0)
        self.assertEqual(self.network.run(), [])

    def test_missingRouteFailsRequest(self) -> None:
        """
        Without a route the request fails with the reason; so it does with a producer that
        is not started.
        """
        self.network.routes.clear()
        producer = self.producer()
        reply = producer.request(HELLO)
        self.network.run()
        self.failureResultOf(reply, SendFailed)
        self.successResultOf(producer.stop())
        self.failureResultOf(producer.request(HELLO), ServiceNotAvailable)

    def test_replyGoesToReplyTopic(self) -> None:
        """
        A reply goes to the reply topic of the request's cluster, with the requester's
        properties.
        """
        self.network.routes["cluster_REPLY_TOPIC"] = routeTo("broker-b")
        question = consumed(
            CLUSTER="cluster", REPLY_TO_CLIENT="asker", CORRELATION_ID="7", TTL="3000", other="x"
        )
        sent = self.producer().reply(question, b"answer")
        received = self.network.only()
        self.assertEqual(received.code, RequestCode.SEND_REPLY_MESSAGE_V2)
        self.assertEqual(
            (received.fields["b"], received.request.body), ("cluster_REPLY_TOPIC", b"answer")
        )
        properties = splitProperties(received.fields["i"])
        del properties["UNIQ_KEY"]
        self.assertEqual(
            properties,
            {
                "MSG_TYPE": "reply",
                "REPLY_TO_CLIENT": "asker",
                "CORRELATION_ID": "7",
                "TTL": "3000",
            },
        )
        received.stored()
        self.successResultOf(sent)

    def test_plainMessageIsNotReplied(self) -> None:
        """
        A message that wants no reply cannot be replied to.
        """
        producer = self.producer()
        for question in (consumed(CLUSTER="c"), consumed(REPLY_TO_CLIENT="asker")):
            self.failureResultOf(producer.reply(question, b"x"), InvalidMessage)
