# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.record.batch}.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import Capture, captures
from tests.protocol.javarecords import javaRows
from txrocket.bulk import BatchRecords, batchRecords
from txrocket.errors import InvalidMessage, MalformedRecord, MessageTooLarge
from txrocket.message import PROPERTY_UNIQ_KEY, Message, splitProperties
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    decodeRecords,
    encodeHost,
    encodeMessageExt,
    encodeProperties,
    encodeTopic,
)
from txrocket.protocol.record.batch import decodeBatch, encodeBatch, splitBatch

V4 = encodeHost("127.0.0.1", 10911)
V6 = encodeHost("2001:db8::1", 10911)

# Two messages, the second without properties.
ANNOTATED = bytes.fromhex(
    "0000001d"  # size: 29
    "00000000"  # no magic code
    "00000000"  # no CRC
    "00000001"  # flag
    "00000003 6f6e65"  # body of 3 bytes: one
    "0004 61 01 62 02"  # properties of 4 bytes, a = b, closed as Go and C++ do
    "00000019 00000000 00000000 00000000"
    "00000003 74776f"  # body: two
    "0000"  # no properties
)


def capturedBatches() -> list[Capture]:
    """
    The captured SEND_BATCH_MESSAGE requests.
    """
    return [frame for frame in captures() if frame.requestCode == 320 and frame.kind == "request"]


def makeRecords(data: bytes, properties: bytes = b"", **changes: Any) -> BatchRecords:
    """
    Encode the records of a batch with small numbers.
    """
    fields: dict[str, Any] = {
        "queueId": 1,
        "queueOffset": 10,
        "physicalOffset": 1000,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "bornHost": V4,
        "storeTimestamp": 6,
        "storeHost": V4,
    }
    return batchRecords(data, encodeTopic("T"), properties, *{**fields, **changes}.values())


def named(message: Message) -> Message:
    """
    A message with a unique id of the maximum length.
    """
    properties = {PROPERTY_UNIQ_KEY: "F" * 56, **message.properties}
    return Message(message.topic, message.body, properties=properties)


class SplitTests(SynchronousTestCase):
    """
    Dividing messages into batches.
    """

    @given(
        st.lists(
            st.builds(
                Message,
                st.just("T"),
                st.binary(max_size=60),
                st.sampled_from(["", "tag", "größe"]),
                properties=st.sampled_from([{}, {PROPERTY_UNIQ_KEY: "id"}]),
            ),
            max_size=12,
        ),
        st.integers(170, 400),
    )
    def test_batchesFillTheLimit(self, messages: list[Message], limit: int) -> None:
        """
        All messages are in the batches in their order. No batch exceeds the limit with
        all ids in it, and none has room for the first message of the next one.
        """
        batches = list(splitBatch(messages, limit))
        self.assertEqual([each for batch in batches for each in batch], messages)
        for batch in batches:
            self.assertLessEqual(len(encodeBatch([named(each) for each in batch])), limit)
        for batch, following in pairwise(batches):
            joined = [named(each) for each in [*batch, following[0]]]
            self.assertGreater(len(encodeBatch(joined)), limit)

    def test_messageOfTheLimitGoesAlone(self) -> None:
        """
        A message of exactly the limit is a batch of its own; one byte more is refused
        with both numbers.
        """
        # 22 around body and properties, UNIQ_KEY\x01 and an id of 56 digits.
        message = Message("T", b"x" * 13)
        size = 22 + 13 + 9 + 56
        self.assertEqual(list(splitBatch([message, message], size)), [[message], [message]])
        error = self.assertRaises(MessageTooLarge, list, splitBatch([message], size - 1))
        self.assertEqual((error.size, error.limit), (size, size - 1))

    def test_batchIsYieldedBeforeNextMessageIsRead(self) -> None:
        """
        A batch is yielded before the messages after it are read.
        """
        asked = []

        def messages() -> Iterator[Message]:
            for number in range(3):
                asked.append(number)
                yield Message("T", b"x" * 100)

        batches = splitBatch(messages(), 200)
        self.assertEqual(len(next(batches)), 1)
        self.assertEqual(asked, [0, 1])

    def test_unencodableMessageIsRefused(self) -> None:
        """
        A message that no batch can hold is refused.
        """
        bad = Message("T", b"x", properties={"a": "\x01"})
        self.assertRaises(InvalidMessage, list, splitBatch([bad], 1000))


class ClientFormTests(SynchronousTestCase):
    """
    The body of a batch request.
    """

    def test_fieldsAreAtTheirPlaces(self) -> None:
        """
        Each field of an annotated batch is at its place.
        """
        self.assertEqual(
            decodeBatch(ANNOTATED, "T"),
            [Message("T", b"one", flag=1, properties={"a": "b"}), Message("T", b"two")],
        )

    def test_capturedBatchesRoundTrip(self) -> None:
        """
        Captured batches of the Java and the Go client are decoded. Those in the format of
        4.9.7, without a separator at the end, are encoded to the same bytes.
        """
        same = 0
        for frame in capturedBatches():
            messages = decodeBatch(frame.body, frame.header["extFields"]["b"])
            self.assertEqual(len(messages), 20)
            self.assertEqual(messages[0].tags, "B0")
            self.assertEqual(messages[19].keys, ["bk19"])
            encoded = encodeBatch(messages)
            self.assertEqual(decodeBatch(encoded, messages[0].topic), messages)
            same += encoded == frame.body
        self.assertGreaterEqual(same, 5)

    def test_javaBatchesAreDecodedAsInJava(self) -> None:
        """
        Batches of RocketMQ's own encoder are decoded as Java decodes them.
        """
        for row in javaRows("batch"):
            messages = decodeBatch(base64.b64decode(row["client"]), row["topic"])
            self.assertEqual(
                [(message.body, message.flag, message.properties) for message in messages],
                [
                    (base64.b64decode(part["body"]), part["flag"], part["properties"])
                    for part in row["messages"]
                ],
            )

    @given(
        st.lists(
            st.tuples(
                st.binary(max_size=50),
                st.integers(-(2**31), 2**31 - 1),
                st.dictionaries(st.sampled_from(["a", "é", "🚀"]), st.just("标签")),
            ),
            min_size=1,
        )
    )
    def test_encodedBatchIsDecoded(self, parts: list[tuple[bytes, int, dict[str, str]]]) -> None:
        """
        A batch is decoded as it was encoded.
        """
        messages = [Message("T", body, flag=flag, properties=p) for body, flag, p in parts]
        self.assertEqual(decodeBatch(encodeBatch(messages), "T"), messages)

    def test_incompatibleMessagesAreRefused(self) -> None:
        """
        A batch has one topic, which is not a retry topic, no delayed messages, and one
        value of waitStoreMsgOK, as in C{MessageBatch}.
        """
        plain = Message("T", b"")
        for messages in (
            [],
            [plain, Message("U", b"")],
            [plain, Message("T", b"", delayTimeLevel=1)],
            [plain, Message("T", b"", delayTimeMs=1)],
            [plain, Message("T", b"", deliverTimeMs=1)],
            [plain, Message("T", b"", waitStoreMsgOK=False)],
            [Message("%RETRY%group", b"")],
            [Message("T", b"", flag=2**31)],
            [Message("T", b"", properties={"a": "\x01"})],
        ):
            self.assertRaises(InvalidMessage, encodeBatch, messages)

    def test_damagedBatchIsMalformed(self) -> None:
        """
        A batch that is empty, cut within a message, or has a wrong length is malformed.
        With any byte changed, decoding raises no other error.
        """
        for end in range(len(ANNOTATED)):
            if end != 29:
                self.assertRaises(MalformedRecord, decodeBatch, ANNOTATED[:end], "T")
                self.assertRaises(MalformedRecord, makeRecords, ANNOTATED[:end])
        for place in range(len(ANNOTATED)):
            for flip in (0x01, 0x80, 0xFF):
                damaged = bytearray(ANNOTATED)
                damaged[place] ^= flip
                try:
                    records, sizes = makeRecords(bytes(damaged), b"x\x01y")
                except MalformedRecord:
                    continue
                self.assertEqual(len(decodeRecords(records, checkCrc=True)), len(sizes))

    def test_negativeLengthsAreMalformed(self) -> None:
        """
        Lengths that are negative in Java are malformed, even if the sizes add up.
        """
        negative = struct.pack(">5i", 21, 0, 0, 0, -1) + bytes(2)
        self.assertRaises(MalformedRecord, decodeBatch, negative, "T")
        long = struct.pack(">5iH", 22 + 0x8000, 0, 0, 0, 0, 0x8000) + bytes(0x8000)
        self.assertRaises(MalformedRecord, decodeBatch, long, "T")

    def test_negativeLengthDoesNotLeadBack(self) -> None:
        """
        A negative length does not lead back to an earlier message, which would be an
        endless loop.
        """
        first = struct.pack(">5i", 236, 0, 0, 0, 214) + bytes(214) + bytes(2)
        # Its body "ends" at 236 + 20 - 256 = 0, its properties at 2.
        second = struct.pack(">5i", 2 - 236, 0, 0, 0, -256) + bytes(2)
        self.assertRaises(MalformedRecord, decodeBatch, first + second, "T")


class LogFormTests(SynchronousTestCase):
    """
    The records that a broker makes of a batch.
    """

    def test_recordsAreJavas(self) -> None:
        """
        The records have the bytes of RocketMQ's C{MessageExtEncoder}: the request's
        properties appended with a separator if needed, a CRC of each body, consecutive
        offsets.
        """
        for row in javaRows("batch"):
            records, sizes = batchRecords(
                base64.b64decode(row["client"]),
                encodeTopic(row["topic"]),
                encodeProperties(row["batchProperties"]),
                row["queueId"],
                row["queueOffset"],
                row["physicalOffset"],
                row["sysFlag"],
                row["bornTimestamp"],
                encodeHost(*row["bornHost"]),
                row["storeTimestamp"],
                encodeHost(*row["storeHost"]),
                row["reconsumeTimes"],
            )
            self.assertEqual(records, base64.b64decode(row["log"]), row["name"])
            self.assertEqual(sizes, row["sizes"])

    def test_recordSizesMatchCapturedIds(self) -> None:
        """
        The records of captured batches are as long as the broker's were, which the ids in
        its responses show.
        """
        answers = {frame.pair: frame for frame in captures() if frame.kind == "response"}
        seen = 0
        for frame in capturedBatches():
            if frame.pair not in answers:
                continue
            fields = frame.header["extFields"]
            answered = answers[frame.pair].header["extFields"]
            ids = [decodeMessageId(one) for one in answered["msgId"].split(",")]
            offsets = [offset for _, _, offset in ids]
            # The broker reads the request's properties and adds its cluster's name.
            properties = {**splitProperties(fields["i"]), "CLUSTER": "HarnessCluster"}
            records, sizes = batchRecords(
                frame.body,
                encodeTopic(fields["b"]),
                encodeProperties(properties),
                int(fields["e"]),
                int(answered["queueOffset"]),
                offsets[0],
                int(fields["f"]),
                int(fields["g"]),
                V4,
                int(fields["g"]),
                encodeHost(*ids[0][:2]),
            )
            starts = [offsets[0] + sum(sizes[:number]) for number in range(len(sizes))]
            self.assertEqual(starts, offsets)
            messages = decodeRecords(records, checkCrc=True)
            self.assertEqual(
                [message.offsetMsgId for message in messages], answered["msgId"].split(",")
            )
            seen += 1
        self.assertGreaterEqual(seen, 4)

    @given(
        st.lists(
            st.tuples(st.binary(max_size=50), st.sampled_from([b"", b"a\x01b", b"a\x01b\x02"])),
            min_size=1,
        ),
        st.sampled_from([b"", b"CLUSTER\x01c"]),
        st.sampled_from([V4, V6]),
        st.sampled_from([V4, V6]),
    )
    def test_batchedRecordEqualsSingleRecord(
        self, parts: list[tuple[bytes, bytes]], added: bytes, bornHost: bytes, storeHost: bytes
    ) -> None:
        """
        Each record equals the record of the same message alone, with its own properties
        and the request's.
        """
        data = b"".join(
            struct.pack(">5i", 22 + len(body) + len(own), 0, 0, 7, len(body))
            + body
            + struct.pack(">H", len(own))
            + own
            for body, own in parts
        )
        records, sizes = makeRecords(data, added, bornHost=bornHost, storeHost=storeHost)
        messages = decodeRecords(records, checkCrc=True)
        self.assertEqual(b"".join(map(encodeMessageExt, messages)), records)
        self.assertEqual([message.storeSize for message in messages], sizes)
        for number, (message, (body, own)) in enumerate(zip(messages, parts, strict=True)):
            self.assertEqual((message.body, message.flag, message.topic), (body, 7, "T"))
            self.assertEqual(message.queueOffset, 10 + number)
            self.assertEqual(message.commitLogOffset, 1000 + sum(sizes[:number]))
            self.assertEqual((message.bornHostData, message.storeHostData), (bornHost, storeHost))
            expected = {"a": "b"} if own else {}
            self.assertEqual(message.properties, {**expected, **splitProperties(added.decode())})

    def test_exceededLimitsAreRefused(self) -> None:
        """
        Properties that are too long together, addresses of wrong lengths and numbers that
        do not fit are refused; Java writes a torn record.
        """
        own = b"n\x01" + b"v" * 32760
        data = struct.pack(">5iH", 22 + len(own), 0, 0, 0, 0, len(own)) + own
        self.assertEqual(len(makeRecords(data, b"a\x01b" + b"c")[1]), 1)
        self.assertRaises(InvalidMessage, makeRecords, data, b"a\x01bcd")
        self.assertRaises(InvalidMessage, makeRecords, ANNOTATED, bornHost=b"")
        self.assertRaises(InvalidMessage, makeRecords, ANNOTATED, queueId=2**31)
        self.assertRaises(InvalidMessage, makeRecords, ANNOTATED, physicalOffset=2**63 - 1)

    def test_hostsSetV6Flags(self) -> None:
        """
        The hosts set the V6 bits of sysFlag, regardless of the request's bits.
        """
        records, *_ = makeRecords(ANNOTATED, sysFlag=0x30)
        self.assertEqual({message.sysFlag for message in decodeRecords(records)}, {0})
        records, *_ = makeRecords(ANNOTATED, bornHost=V6)
        self.assertEqual(decodeRecords(records)[1].sysFlag, BORNHOST_V6_FLAG)
