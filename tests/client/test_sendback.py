# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.push.sendback}.
"""

from __future__ import annotations

import zlib
from typing import Any

from msgspec.structs import replace

from tests.captures import captures
from tests.client.brokers import A, ConsumerTests
from tests.client.messages import pulled
from tests.client.network import routeTo
from tests.remoting.doubles import Raise
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.push.sendback import SendMessageBack, originTopic
from txrocket.errors import MalformedRecord, RemoteSystemError, SendFailed
from txrocket.message import splitProperties
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from txrocket.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)


class ReturningTests(ConsumerTests):
    """
    Messages that are sent back.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ns.routes["%RETRY%G"] = routeTo(a={0: A})
        self.got(self.cluster.routes.find("T"))
        self.addCleanup(self.cluster.stop)
        self.returning = SendMessageBack(self.cluster, GroupCalls(self.cluster, "G"), "G", 16)
        self.sent: list[tuple[SendMessageRequestHeaderV2, bytes]] = []
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = self.store

    def store(self, request: RemotingCommand) -> RemotingCommand:
        """
        A message is sent.
        """
        self.sent.append((request.decodeHeader(SendMessageRequestHeaderV2), request.body))
        return responseCommand(header=SendMessageResponseHeader("00", 0, 7))

    def refuse(self) -> None:
        """
        The broker does not take messages back.
        """
        self.a.failing[RequestCode.CONSUMER_SEND_MSG_BACK] = RemoteSystemError("no")

    def again(self, message: Any, delayLevel: int = 0) -> tuple[SendMessageRequestHeaderV2, bytes]:
        """
        The message that is sent in place of one that its broker does not take back.
        """
        self.refuse()
        self.got(self.returning.sendBack(message, delayLevel))
        (sent,) = self.sent
        return sent

    # --- by the broker ---------------------------------------------------

    def test_sendBackHasJavasFields(self) -> None:
        """
        The broker gets the place of the message and its next time, in the fields of Java's
        consumer.
        """
        message = pulled(5, UNIQ_KEY="abc")
        self.got(self.returning.sendBack(message, 4))
        (header,) = self.a.backs
        self.assertEqual(
            header,
            ConsumerSendMsgBackRequestHeader(
                1005, "G", 4, "abc", "T", maxReconsumeTimes=16, bname="a"
            ),
        )
        self.assertEqual(self.sent, [])

    def test_fieldsAreThoseOfCaptures(self) -> None:
        """
        These are the fields of the captured requests.
        """
        self.got(self.returning.sendBack(pulled(5, UNIQ_KEY="abc"), 4))
        (header,) = self.a.backs
        asked = [
            each.header for each in captures() if each.requestCode == 36 and each.kind == "request"
        ]
        java = [each["extFields"] for each in asked if each["version"] == 407]
        self.assertTrue(java)
        for fields in java:
            self.assertEqual(set(fields), set(header.toFields()))

    def test_retriedMessageHasFirstTopic(self) -> None:
        """
        For a message that came again the broker gets its first topic.
        """
        message = pulled(5, topic="%RETRY%G", times=1, RETRY_TOPIC="T")
        self.got(self.returning.sendBack(message, 0))
        self.assertEqual(self.a.backs[0].originTopic, "T")
        self.assertEqual(originTopic(pulled(5, topic="%RETRY%G")), "%RETRY%G")
        self.assertEqual(originTopic(pulled(5, RETRY_TOPIC="U")), "T")

    # --- to the retry topic ----------------------------------------------

    def test_refusedMessageGoesToRetryTopic(self) -> None:
        """
        If its broker does not take it, the message is sent to the group's retry topic, with
        the properties and delay that the broker would have given it.
        """
        header, body = self.again(pulled(5, b"hello", UNIQ_KEY="abc", KEYS="k", TRAN_MSG="true"))
        self.assertEqual((header.topic, body), ("%RETRY%G", b"hello"))
        self.assertEqual((header.reconsumeTimes, header.maxReconsumeTimes), (1, 16))
        self.assertEqual(
            splitProperties(header.properties or ""),
            {
                "UNIQ_KEY": "abc",
                "KEYS": "k",
                "ORIGIN_MESSAGE_ID": "abc",
                "RETRY_TOPIC": "T",
                "DELAY": "3",
            },
        )
        self.assertEqual(header.sysFlag, 0)

    def test_secondRetryKeepsIdAndTopic(self) -> None:
        """
        It keeps its first id and topic however often it comes again, and waits longer each
        time.
        """
        message = pulled(
            5, topic="%RETRY%G", times=4, RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="first", DELAY="6"
        )
        header, _ = self.again(message)
        properties = splitProperties(header.properties or "")
        self.assertEqual(
            (properties["ORIGIN_MESSAGE_ID"], properties["RETRY_TOPIC"]), ("first", "T")
        )
        self.assertEqual((properties["DELAY"], header.reconsumeTimes), ("7", 5))

    def test_deadLetterHasMaximumTimes(self) -> None:
        """
        A dead letter is sent with the maximum of times, so that the broker makes one of it.
        """
        header, _ = self.again(pulled(5), -1)
        self.assertEqual((header.reconsumeTimes, header.maxReconsumeTimes), (16, 16))

    def test_bodyIsSentDecompressed(self) -> None:
        """
        A compressed body is sent as it was before compression.
        """
        flags = COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
        header, body = self.again(pulled(5, zlib.compress(b"hello"), sysFlag=flags))
        self.assertEqual((body, header.sysFlag), (b"hello", 0))

    def test_damagedBodyCannotBeSent(self) -> None:
        """
        A body that cannot be read cannot be sent.
        """
        self.refuse()
        message = pulled(5, b"no zlib", sysFlag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE)
        self.failed(self.returning.sendBack(message, 0), MalformedRecord)

    def test_refusalOfAllIsError(self) -> None:
        """
        If no broker takes it, that is an error.
        """
        self.refuse()
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = Raise(RemoteSystemError("no"))
        sent = self.returning.sendBack(pulled(5), 0)
        for _ in range(5):
            self.network.advance(1)
        self.failureResultOf(sent, SendFailed)

    def test_unknownBrokersMessageGoesElsewhere(self) -> None:
        """
        A message of an unknown broker goes to a known one.
        """
        self.got(self.returning.sendBack(replace(pulled(5), brokerName="z"), 0))
        self.assertEqual([header.topic for header, _ in self.sent], ["%RETRY%G"])
