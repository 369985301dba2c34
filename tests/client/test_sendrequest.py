# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.sansio.sendrequest}.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.sansio.results import SendStatus
from txrocket.client.sansio.sendrequest import SendRequest, withProperties
from txrocket.errors import (
    InvalidMessage,
    MessageTooLarge,
    MissingField,
    ServiceNotAvailable,
    SystemBusy,
)
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import (
    RemotingCommand,
    decodeCommand,
    requestCommand,
    responseCommand,
)
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocket.protocol.record.batch import decodeBatch

QUEUE = MessageQueue("T", "broker-a", 2)


def ids() -> Iterator[str]:
    """
    Ids that tell their order.
    """
    return (f"ID{number}" for number in count())


def taken(message: Message, compressOver: int = 4096, maxMessageSize: int = 10_000) -> SendRequest:
    """
    A message as it is sent.
    """
    outgoing = SendRequest(message.topic)
    outgoing.take(message, next(ids()), compressOver, maxMessageSize)
    return outgoing


def batch(*messages: Message, maxMessageSize: int = 10_000) -> SendRequest:
    """
    A batch as it is sent.
    """
    outgoing = SendRequest(messages[0].topic)
    outgoing.takeBatch(messages, ids().__next__, maxMessageSize)
    return outgoing


def fieldsOf(outgoing: SendRequest) -> dict[str, str]:
    """
    The fields of the request.
    """
    return outgoing.request("group", QUEUE, 4, 1234).extFields


class CheckTests(SynchronousTestCase):
    """
    Messages that are refused, as by Java's C{Validators}.
    """

    def test_invalidTopicIsRefused(self) -> None:
        """
        A topic must have a valid name, and clients must be allowed to send to it.
        """
        for topic in ("", "a b", "x" * 128, "OFFSET_MOVED_EVENT"):
            self.assertRaises(InvalidMessage, SendRequest, topic)

    def test_invalidBodyIsRefused(self) -> None:
        """
        A body must be bytes, not empty, and not too large.
        """
        text: Any = "text"
        for body, reason in ((b"", "without a body"), (text, "is bytes, not str")):
            for take in (taken, batch):
                error = self.assertRaises(InvalidMessage, take, Message("T", body))
                self.assertIn(reason, str(error))

    def test_sizeLimitIsBeforeCompression(self) -> None:
        """
        The limit is for the given body, before compression.
        """
        for take in (taken, batch):
            take(Message("T", bytes(10_000)))
            error = self.assertRaises(MessageTooLarge, take, Message("T", bytes(10_001)))
            self.assertEqual((error.size, error.limit), (10_001, 10_000))

    def test_invalidPropertiesAreRefused(self) -> None:
        """
        Properties take 32767 bytes at most, the id included, and are Unicode text without
        the two separators.
        """
        room = 32767 - len("UNIQ_KEY\x01ID0\x02name\x01")
        for value, size in (("x", room), ("ü", room // 2)):
            taken(Message("T", b"x", properties={"name": value * size}))
            bad = Message("T", b"x", properties={"name": value * (size + 1)})
            error = self.assertRaises(InvalidMessage, taken, bad)
            self.assertIn("at most 32767", str(error))
        for value in ("a\x01b", "a\x02b", "\ud800"):
            bad = Message("T", b"x", properties={"name": value})
            self.assertRaises(InvalidMessage, taken, bad)
            self.assertRaises(InvalidMessage, batch, bad)


class TakeTests(SynchronousTestCase):
    """
    The request of a message.
    """

    def test_plainBodyIsSentWithId(self) -> None:
        """
        The body is sent as it is; the id is a property like the others.
        """
        outgoing = taken(Message("T", b"body", "tag", flag=3))
        self.assertEqual(outgoing.body, b"body")
        self.assertEqual(outgoing.msgId, "ID0")
        self.assertEqual(
            fieldsOf(outgoing),
            {
                "a": "group",
                "b": "T",
                "c": "TBW102",
                "d": "4",
                "e": "2",
                "f": "0",
                "g": "1234",
                "h": "3",
                "i": "UNIQ_KEY\x01ID0\x02TAGS\x01tag",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": "broker-a",
            },
        )
        self.assertEqual(fieldsOf(taken(Message("T", b"body")))["i"], "UNIQ_KEY\x01ID0")

    def test_givenIdIsKept(self) -> None:
        """
        A message that has an id keeps it.
        """
        outgoing = taken(Message("T", b"x", properties={"UNIQ_KEY": "mine"}))
        self.assertEqual(outgoing.msgId, "mine")
        self.assertEqual(fieldsOf(outgoing)["i"], "UNIQ_KEY\x01mine")

    def test_largeBodyIsCompressed(self) -> None:
        """
        A body of 4096 bytes is compressed, as by Java's producer, and one of 4095 is not.
        """
        self.assertEqual(taken(Message("T", bytes(4095))).sysFlag, 0)
        outgoing = taken(Message("T", bytes(4096)))
        self.assertEqual(zlib.decompress(outgoing.body), bytes(4096))
        # COMPRESSED_FLAG and zlib's number, 3, at bit 8.
        self.assertEqual(fieldsOf(outgoing)["f"], str(0x1 | 0x3 << 8))

    def test_replyHasOwnRequest(self) -> None:
        """
        A reply has its own request code, with or without an id of its sender.
        """
        for more in ({}, {"UNIQ_KEY": "mine"}):
            outgoing = taken(Message("T", b"x", properties={"MSG_TYPE": "reply", **more}))
            request = outgoing.request("group", QUEUE, 4, 0)
            self.assertEqual(request.code, RequestCode.SEND_REPLY_MESSAGE_V2)

    def test_halfIsMarkedPrepared(self) -> None:
        """
        A half message is marked as prepared.
        """
        for said, flag in (("true", "4"), ("True", "4"), ("false", "0"), ("1", "0")):
            outgoing = taken(Message("T", b"x", properties={"TRAN_MSG": said}))
            self.assertEqual(fieldsOf(outgoing)["f"], flag)
        both = taken(Message("T", bytes(5000), properties={"TRAN_MSG": "true"}))
        self.assertEqual(fieldsOf(both)["f"], str(0x301 | 0x4))

    def test_retryTopicHasTimesAsField(self) -> None:
        """
        To a retry topic, the reconsume times go as a field and not as a property; to
        another topic they stay a property.
        """
        properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "a": "b"}
        fields = fieldsOf(taken(Message("%RETRY%g", b"x", properties=properties)))
        self.assertEqual((fields["j"], fields["l"]), ("3", "16"))
        self.assertEqual(fields["i"], "UNIQ_KEY\x01ID0\x02a\x01b")
        fields = fieldsOf(taken(Message("%RETRY%g", b"x", properties={"a": "b"})))
        self.assertEqual((fields["j"], fields.get("l")), ("0", None))
        fields = fieldsOf(taken(Message("T", b"x", properties=properties)))
        self.assertEqual((fields["j"], fields.get("l")), ("0", None))
        self.assertIn("RECONSUME_TIME\x013", fields["i"])
        # Not to be tried again at all is more than nothing.
        never = {"RECONSUME_TIME": "0", "MAX_RECONSUME_TIMES": "0"}
        fields = fieldsOf(taken(Message("%RETRY%g", b"x", properties=never)))
        self.assertEqual((fields["j"], fields["l"]), ("0", "0"))
        bad = Message("%RETRY%g", b"x", properties={"RECONSUME_TIME": "often"})
        self.assertRaises(InvalidMessage, taken, bad)

    def test_onewayRequestWantsNoAnswer(self) -> None:
        """
        A request may want no answer.
        """
        outgoing = taken(Message("T", b"x"))
        self.assertTrue(outgoing.request("group", QUEUE, 4, 0, oneway=True).isOneway)
        self.assertFalse(outgoing.request("group", QUEUE, 4, 0).isOneway)

    @given(
        st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True),
        st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        st.integers(0, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")),
            max_size=3,
        ),
        st.booleans(),
    )
    def test_templateMakesSameRequest(
        self,
        topic: str,
        group: str,
        brokerName: str,
        queueId: int,
        flag: int,
        born: int,
        properties: dict[str, str],
        oneway: bool,
    ) -> None:
        """
        A request made from a template equals one made from a header.
        """
        outgoing = taken(Message(topic, b"x" * 9, flag=flag, properties=properties), 5)
        queue = MessageQueue(topic, brokerName, queueId)
        header = SendMessageRequestHeaderV2(
            producerGroup=group,
            topic=topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=7,
            queueId=queueId,
            sysFlag=outgoing.sysFlag,
            bornTimestamp=born,
            flag=flag,
            properties=outgoing.properties,
            reconsumeTimes=0,
            bname=brokerName,
        )
        plain = requestCommand(RequestCode.SEND_MESSAGE_V2, header, outgoing.body, oneway=oneway)
        quick = outgoing.request(group, queue, 7, born, oneway=oneway)
        self.assertIsNone(quick.fields)
        frame = quick.encode()
        read = decodeCommand(frame, 4, len(frame))
        self.assertEqual(read.decodeHeader(SendMessageRequestHeaderV2), header)
        self.assertEqual(read.extFields, plain.extFields)
        self.assertEqual(
            (read.code, read.flag, read.language, read.version, read.body),
            (plain.code, plain.flag, plain.language, plain.version, plain.body),
        )

    def test_addedPropertiesMakeCopy(self) -> None:
        """
        A message with more properties is another message.
        """
        message = Message("T", b"x", "tag", flag=7)
        more = withProperties(message, {"a": "b"})
        self.assertEqual(more, Message("T", b"x", "tag", flag=7, properties={"a": "b"}))
        self.assertEqual(dict(message.properties), {"TAGS": "tag"})


class BatchTests(SynchronousTestCase):
    """
    The request of a batch.
    """

    def test_eachMessageHasId(self) -> None:
        """
        Each message has an id, its own or a new one, and all ids are known.
        """
        outgoing = batch(
            Message("T", b"a", "tag", flag=1), Message("T", b"b", properties={"UNIQ_KEY": "mine"})
        )
        self.assertEqual(outgoing.msgId, "ID0,mine")
        first, second = decodeBatch(outgoing.body, "T")
        self.assertEqual(dict(first.properties), {"TAGS": "tag", "UNIQ_KEY": "ID0"})
        self.assertEqual((first.body, first.flag, second.body), (b"a", 1, b"b"))
        request = outgoing.request("group", QUEUE, 4, 0)
        self.assertEqual(request.code, RequestCode.SEND_BATCH_MESSAGE)
        self.assertEqual((request.extFields["m"], request.extFields["i"]), ("true", ""))

    def test_batchCarriesWait(self) -> None:
        """
        C{WAIT} is told for the batch.
        """
        outgoing = batch(Message("T", b"a", waitStoreMsgOK=False))
        self.assertEqual(fieldsOf(outgoing)["i"], "WAIT\x01false")

    def test_unfitMessagesAreRefused(self) -> None:
        """
        Messages that cannot be sent together are refused, as by Java's C{MessageBatch}.
        """
        for second in (Message("U", b"x"), Message("T", b"x", delayTimeLevel=1)):
            self.assertRaises(InvalidMessage, batch, Message("T", b"x"), second)


class ResultTests(SynchronousTestCase):
    """
    The answer to a send.
    """

    def answer(self, code: int = 0, queueId: int = 2) -> RemotingCommand:
        """
        A broker's answer.
        """
        return responseCommand(code, None, SendMessageResponseHeader("0A", queueId, 77, "tx"))

    def test_fourCodesAreStored(self) -> None:
        """
        Four codes tell that the broker has the message.
        """
        outgoing = taken(Message("T", b"x"))
        for code, status in (
            (0, SendStatus.SEND_OK),
            (10, SendStatus.FLUSH_DISK_TIMEOUT),
            (11, SendStatus.SLAVE_NOT_AVAILABLE),
            (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
        ):
            result = outgoing.resultOf(self.answer(code), QUEUE, "a:1")
            self.assertEqual(result, (status, "ID0", "0A", QUEUE, 77, "tx", None, True))

    def test_brokersQueueIsResult(self) -> None:
        """
        The broker may have stored it in another queue.
        """
        result = taken(Message("T", b"x")).resultOf(self.answer(queueId=1), QUEUE, "a:1")
        self.assertEqual(result.messageQueue, MessageQueue("T", "broker-a", 1))

    def test_regionAndTraceAreResult(self) -> None:
        """
        The broker tells its region, and whether it wants traces.
        """
        for told, wanted in (("true", True), ("false", False)):
            answer = self.answer()
            answer.extFields.update({"MSG_REGION": "r", "TRACE_ON": told})
            result = taken(Message("T", b"x")).resultOf(answer, QUEUE, "a:1")
            self.assertEqual((result.regionId, result.traceOn), ("r", wanted))

    def test_otherCodeIsItsError(self) -> None:
        """
        Any other code is its error, with the broker's address.
        """
        outgoing = taken(Message("T", b"x"))
        for code, kind in ((2, SystemBusy), (14, ServiceNotAvailable)):
            refused = responseCommand(code, "no")
            error = self.assertRaises(kind, outgoing.resultOf, refused, QUEUE, "a:1")
            self.assertEqual((error.address, error.remark), ("a:1", "no"))

    def test_answerWithoutPlaceIsRefused(self) -> None:
        """
        An answer without the place of the message cannot be decoded.
        """
        outgoing = taken(Message("T", b"x"))
        self.assertRaises(MissingField, outgoing.resultOf, responseCommand(), QUEUE, "a:1")
