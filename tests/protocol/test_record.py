# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.record}.
"""

from __future__ import annotations

import base64
import ipaddress
import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from tests.protocol.javarecords import javaRows
from txrocket.errors import InvalidMessage, MalformedRecord, UnsupportedCompression
from txrocket.message import MessageExt, splitProperties
from txrocket.protocol.compression import deflate
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    STOREHOSTADDRESS_V6_FLAG,
    SYS_FLAG_POSITION,
    TopicField,
    decodeRecord,
    decodeRecords,
    encodeBlank,
    encodeHost,
    encodeMessageExt,
    encodeProperties,
    encodeRecord,
    encodeTopic,
    joinProperties,
    measureRecord,
    storeTimestampAt,
)

# The response of a 4.9.7 broker to VIEW_MESSAGE_BY_ID for offset 16857608.
ANNOTATED = bytes.fromhex(
    "000000e4"  # total size: 228
    "daa320a7"  # magic code of a message
    "03fc8f4d"  # CRC-32 of "m_body7", without its top bit
    "00000003"  # queue id
    "00000000"  # flag
    "0000000000000001"  # queue offset
    "0000000001013a08"  # physical offset: 16857608
    "00000000"  # sysFlag: not compressed, no transaction, IPv4 hosts
    "000001a1e25d2957"  # born timestamp
    "7f000001 0000a7fe"  # born host 127.0.0.1, port 43006
    "000001a1e25d295a"  # store timestamp, 3 ms later
    "7f000001 00005597"  # store host 127.0.0.1, port 21911
    "00000000"  # reconsume times
    "0000000000000000"  # prepared transaction offset
    "00000007 6d5f626f647937"  # body of 7 bytes: m_body7
    "10 686361646d5f545f6532356431343865"  # topic of 16 bytes: hcadm_T_e25d148e
    "0072"  # properties of 114 bytes, none after the last closed by 02
    "4b455953 01 6d5f6b657937 02"  # KEYS = m_key7
    "554e49515f4b4559 01"  # UNIQ_KEY =
    "4644303030303030303030303030303030303030303030303030303030303032"  # FD0000000000000000...2
    "373031453330393436453039344446353431353730303045 02"  # 701E30946E094DF54157000E
    "434c5553544552 01 4861726e657373436c7573746572 02"  # CLUSTER = HarnessCluster
    "54414753 01 54616731 02"  # TAGS = Tag1
    "6e 01 37"  # n = 7
)

V4 = encodeHost("127.0.0.1", 10911)
V6 = encodeHost("2001:db8::1", 10911)

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
# No surrogates, because they cannot be encoded.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)


def capturedBodies() -> list[tuple[int, bytes]]:
    """
    The bodies of captured frames that consist of records, with the requests' codes.
    """
    kinds = {
        (11, "response"),  # PULL_MESSAGE
        (12, "response"),  # QUERY_MESSAGE
        (33, "response"),  # VIEW_MESSAGE_BY_ID
        (34, "response"),  # a pull's answer, filed under a heartbeat of the same opaque
        (39, "oneway"),  # CHECK_TRANSACTION_STATE
        (309, "request"),  # CONSUME_MESSAGE_DIRECTLY
    }
    return [
        (frame.requestCode, frame.body)
        for frame in captures()
        if (frame.requestCode, frame.kind) in kinds and frame.body[4:8] == b"\xda\xa3\x20\xa7"
    ]


def makeRecord(**changes: Any) -> bytes:
    """
    A small record.
    """
    fields: dict[str, Any] = {
        "topic": encodeTopic("TopicTest"),
        "body": b"hello",
        "properties": b"TAGS\x01A",
        "queueId": 1,
        "flag": 2,
        "queueOffset": 3,
        "physicalOffset": 4,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "bornHost": V4,
        "storeTimestamp": 6,
        "storeHost": V4,
    }
    return encodeRecord(**{**fields, **changes})


class CapturedTests(SynchronousTestCase):
    """
    Records of RocketMQ 4.9.7.
    """

    def test_fieldsAreAtTheirPlaces(self) -> None:
        """
        Each field of a captured record is at its place.
        """
        message = decodeRecord(ANNOTATED, checkCrc=True, brokerName="b0")
        self.assertEqual(
            message,
            MessageExt(
                topic="hcadm_T_e25d148e",
                body=b"m_body7",
                flag=0,
                propertiesData=ANNOTATED[-114:],
                queueId=3,
                queueOffset=1,
                commitLogOffset=16857608,
                sysFlag=0,
                bornTimestamp=0x01A1E25D2957,
                bornHostData=b"\x7f\x00\x00\x01\x00\x00\xa7\xfe",
                storeTimestamp=0x01A1E25D295A,
                storeHostData=b"\x7f\x00\x00\x01\x00\x00\x55\x97",
                reconsumeTimes=0,
                preparedTransactionOffset=0,
                bodyCRC=0x03FC8F4D,
                storeSize=228,
                brokerName="b0",
            ),
        )
        self.assertEqual(
            message.properties,
            {
                "KEYS": "m_key7",
                "UNIQ_KEY": "FD000000000000000000000000000002701E30946E094DF54157000E",
                "CLUSTER": "HarnessCluster",
                "TAGS": "Tag1",
                "n": "7",
            },
        )
        self.assertEqual(message.bornHost, ("127.0.0.1", 43006))
        self.assertEqual(message.storeHost, ("127.0.0.1", 21911))
        self.assertEqual(message.offsetMsgId, "7F000001000055970000000001013A08")
        self.assertIn(ANNOTATED, [body for code, body in capturedBodies() if code == 33])

    def test_positionsAreThoseOfFields(self) -> None:
        """
        The position constants are the positions of their fields.
        """
        self.assertEqual(struct.unpack_from(">i", ANNOTATED, QUEUE_ID_POSITION), (3,))
        self.assertEqual(struct.unpack_from(">q", ANNOTATED, QUEUE_OFFSET_POSITION), (1,))
        self.assertEqual(struct.unpack_from(">q", ANNOTATED, PHYSICAL_OFFSET_POSITION), (16857608,))
        self.assertEqual(struct.unpack_from(">i", ANNOTATED, SYS_FLAG_POSITION), (0,))
        self.assertEqual(storeTimestampAt(ANNOTATED), 0x01A1E25D295A)
        self.assertEqual(measureRecord(ANNOTATED), (228, MESSAGE_MAGIC_CODE))

    def test_capturedRecordsRoundTrip(self) -> None:
        """
        Every captured record matches its CRC and is encoded to the same bytes, also from
        its properties as a mapping.
        """
        bodies = capturedBodies()
        self.assertEqual({code for code, _ in bodies}, {11, 12, 33, 34, 39, 309})
        for _, body in bodies:
            messages = decodeRecords(body, checkCrc=True)
            self.assertEqual(b"".join(map(encodeMessageExt, messages)), body)
            for message in messages:
                self.assertEqual(encodeProperties(message.properties), message.propertiesData)

    def test_mappedFileIsDecodedAsBytes(self) -> None:
        """
        A record in a mapped file is decoded as one in bytes.
        """
        with mmap.mmap(-1, 4096) as mapped:
            mapped[100 : 100 + len(ANNOTATED)] = ANNOTATED
            self.assertEqual(decodeRecord(mapped, 100, checkCrc=True), decodeRecord(ANNOTATED))
            self.assertEqual(measureRecord(mapped, 100)[0], 228)
            self.assertRaises(MalformedRecord, decodeRecord, mapped, 0)
            self.assertRaises(MalformedRecord, decodeRecord, mapped, 4090)


class JavaTests(SynchronousTestCase):
    """
    Records of RocketMQ 4.9.7's own encoder (L{tests.protocol.javarecords}).
    """

    def test_fieldsAreDecodedAsInJava(self) -> None:
        """
        Every field is decoded as in Java, with IPv4 and IPv6 hosts.
        """
        same = (
            "topic flag queueId queueOffset commitLogOffset bornTimestamp storeTimestamp"
            " reconsumeTimes preparedTransactionOffset bodyCRC storeSize sysFlag"
        )
        for row in javaRows("record"):
            record = base64.b64decode(row["record"])
            message = decodeRecord(record, checkCrc=True)
            for name in same.split():
                self.assertEqual(getattr(message, name), row[name], (row["name"], name))
            self.assertEqual(message.offsetMsgId, row["msgId"])
            self.assertEqual(message.properties, row["properties"])
            for (host, port), javas in (
                (message.bornHost, row["bornHost"]),
                (message.storeHost, row["storeHost"]),
            ):
                # Java does not shorten an IPv6 address to "::".
                self.assertEqual(
                    (ipaddress.ip_address(host), port), (ipaddress.ip_address(javas[0]), javas[1])
                )
            self.assertEqual(storeTimestampAt(record), row["storeTimestamp"])

    def test_javaCompressedBodiesAreDecompressed(self) -> None:
        """
        Bodies that Java compressed with zlib, LZ4 and Zstandard are decompressed, and the
        flag is removed.
        """
        kinds = set()
        for row in javaRows("record"):
            [message] = decodeRecords(base64.b64decode(row["record"]))
            self.assertEqual(message.body, base64.b64decode(row["body"]), row["name"])
            self.assertEqual(message.sysFlag, row["sysFlag"] & ~1)
            kinds.add(row["sysFlag"] & 0x701)
        self.assertEqual(kinds, {0, 0x1, 0x101, 0x201, 0x301})

    def test_sameValuesGiveJavasBytes(self) -> None:
        """
        The same values are encoded to Java's bytes.
        """
        for row in javaRows("record"):
            record = base64.b64decode(row["record"])
            stored = decodeRecord(record)
            self.assertEqual(encodeMessageExt(stored), record, row["name"])
            if row["name"] == "odd properties":
                continue  # holds a separator, which is refused here
            built = encodeRecord(
                encodeTopic(row["topic"]),
                stored.body,
                encodeProperties(row["written"]),
                row["queueId"],
                row["flag"],
                row["queueOffset"],
                row["commitLogOffset"],
                row["sysFlag"],
                row["bornTimestamp"],
                encodeHost(*row["bornHost"]),
                row["storeTimestamp"],
                encodeHost(*row["storeHost"]),
                row["reconsumeTimes"],
                row["preparedTransactionOffset"],
            )
            self.assertEqual(built, record, row["name"])


class EncodeTests(SynchronousTestCase):
    """
    Encoding records.
    """

    @given(
        words.filter(lambda topic: len(topic.encode()) <= 127),
        st.binary(max_size=300),
        st.dictionaries(words, words, max_size=5),
        st.tuples(ints, ints, longs, longs, ints, longs, hosts, longs, hosts, ints, longs),
    )
    def test_encodedRecordIsDecoded(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        rest: tuple[int, int, int, int, int, int, bytes, int, bytes, int, int],
    ) -> None:
        """
        A record is decoded as it was encoded, with any flags, hosts of either kind and
        any text; the V6 flags match the hosts.
        """
        record = encodeRecord(encodeTopic(topic), body, encodeProperties(properties), *rest)
        message = decodeRecord(record, checkCrc=True)
        self.assertEqual((message.topic, message.body), (topic, body))
        self.assertEqual(message.properties, properties)
        fields = (
            "queueId flag queueOffset commitLogOffset sysFlag bornTimestamp bornHostData"
            " storeTimestamp storeHostData reconsumeTimes preparedTransactionOffset"
        )
        expected = list(rest)
        expected[4] = (
            rest[4] & ~0x30 | (len(rest[6]) == 20 and 0x10) | (len(rest[8]) == 20 and 0x20)
        )
        self.assertEqual([getattr(message, name) for name in fields.split()], expected)
        self.assertEqual(message.storeSize, len(record))
        self.assertEqual(message.bodyCRC, zlib.crc32(body) & 0x7FFFFFFF)
        self.assertEqual(storeTimestampAt(record), message.storeTimestamp)
        self.assertEqual(encodeMessageExt(message), record)

    def test_crcHasNoTopBit(self) -> None:
        """
        The CRC is stored without its top bit, which Java masks off.
        """
        self.assertEqual(zlib.crc32(b"123456789"), 0xCBF43926)
        record = makeRecord(body=b"123456789")
        self.assertEqual(record[8:12].hex(), "4bf43926")
        decodeRecord(record, checkCrc=True)

    def test_hostsSetV6Flags(self) -> None:
        """
        A client cannot make a broker write a record whose flags claim another layout.
        """
        record = makeRecord(sysFlag=BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG | 4)
        self.assertEqual(decodeRecord(record).sysFlag, 4)
        record = makeRecord(bornHost=V6)
        self.assertEqual(decodeRecord(record).sysFlag, BORNHOST_V6_FLAG)

    def test_longTopicOrPropertiesAreRefused(self) -> None:
        """
        A topic has at most 127 bytes and properties 32767, because Java stores the
        lengths in a signed byte and a signed short.
        """
        decodeRecord(makeRecord(topic=encodeTopic("t" * 127), properties=b"p" * 32767))
        self.assertRaises(InvalidMessage, encodeTopic, "t" * 128)
        self.assertRaises(InvalidMessage, encodeTopic, "主" * 43)
        self.assertRaises(InvalidMessage, makeRecord, properties=b"p" * 32768)
        self.assertEqual(len(encodeProperties({"n": "v" * 32765})), 32767)
        self.assertRaises(InvalidMessage, encodeProperties, {"n": "v" * 32766})

    def test_numberBeyondItsFieldIsRefused(self) -> None:
        """
        A number too large for its field is refused with InvalidMessage.
        """
        self.assertRaises(InvalidMessage, makeRecord, queueId=2**31)
        self.assertRaises(InvalidMessage, makeRecord, queueOffset=2**63)
        self.assertRaises(InvalidMessage, makeRecord, sysFlag=2**40)

    def test_wrongHostLengthIsRefused(self) -> None:
        """
        A host has 8 or 20 bytes; struct would silently cut or pad others.
        """
        self.assertRaises(InvalidMessage, makeRecord, bornHost=b"\x7f\x00\x00\x01")
        self.assertRaises(InvalidMessage, makeRecord, storeHost=b"")

    def test_mappedIPv4HostIsIPv4(self) -> None:
        """
        An address is 4 or 16 bytes and a port of 4. An IPv4 address in IPv6 form is
        encoded as IPv4, as by Java's InetAddress.
        """
        self.assertEqual(encodeHost("127.0.0.1", 21911).hex(), "7f00000100005597")
        self.assertEqual(encodeHost("::1", 1).hex(), "0" * 31 + "1" + "00000001")
        self.assertEqual(encodeHost("::ffff:10.1.2.3", 65535), encodeHost("10.1.2.3", 65535))
        for host, port in (("localhost", 1), ("", 1), ("127.0.0.1", -1), ("::1", 65536)):
            self.assertRaises(InvalidMessage, encodeHost, host, port)

    def test_loneSurrogateIsRefused(self) -> None:
        """
        A lone surrogate, which JSON can hold, is refused with InvalidMessage.
        """
        self.assertRaises(InvalidMessage, encodeTopic, "\ud800")
        self.assertRaises(InvalidMessage, encodeProperties, {"n": "\udfff"})


class PropertiesTests(SynchronousTestCase):
    """
    Properties as text.
    """

    def test_propertiesAreJoinedAsInJava(self) -> None:
        """
        Properties are joined as by C{MessageDecoder.messageProperties2String}: no
        separator at the end, empty names and values written.
        """
        for properties, text in (
            ({}, ""),
            ({"a": "b"}, "a\x01b"),
            ({"a": "b", "c": "d"}, "a\x01b\x02c\x01d"),
            ({"a": ""}, "a\x01"),
            ({"": "b"}, "\x01b"),
            ({"": ""}, "\x01"),
        ):
            self.assertEqual(joinProperties(properties), text)

    def test_separatorInPropertyIsRefused(self) -> None:
        """
        A separator in a name or value is refused, because it would change the properties.
        """
        for properties in (
            {"a\x01": "b"},
            {"a": "b\x01"},
            {"a\x02b": "c"},
            {"a": "b\x02c\x01d"},
            {"a": "\x02", "b": "c"},
        ):
            self.assertRaises(InvalidMessage, joinProperties, properties)

    @given(st.dictionaries(words, words))
    def test_joinedPropertiesAreSplit(self, properties: dict[str, str]) -> None:
        """
        Names and values without separators are split as they were joined, with or without
        a separator at the end.
        """
        text = joinProperties(properties)
        self.assertEqual(splitProperties(text), properties)
        self.assertEqual(splitProperties(text + "\x02"), properties)


class DamageTests(SynchronousTestCase):
    """
    Bytes that are not a valid record raise L{MalformedRecord} and no other error.
    """

    def records(self) -> list[bytes]:
        """
        Records of all four layouts, and a compressed one.
        """
        return [
            ANNOTATED,
            makeRecord(bornHost=V6),
            makeRecord(storeHost=V6),
            makeRecord(bornHost=V6, storeHost=V6),
            makeRecord(body=deflate(b"hello" * 20), sysFlag=0x301),
        ]

    def read(self, data: bytes) -> bool:
        """
        Decode by all functions; return whether all succeeded.
        """
        try:
            for message in decodeRecords(data):
                _ = message.properties, message.bornHost, message.storeHost, message.msgId
            decodeRecords(data, checkCrc=True, inflate=False)
            storeTimestampAt(data)
        except (MalformedRecord, UnsupportedCompression):
            return False
        return True

    def test_cutRecordIsMalformed(self) -> None:
        """
        A record that is cut at any byte is malformed, alone or after a valid one.
        """
        for record in self.records():
            for end in range(len(record)):
                self.assertRaises(MalformedRecord, decodeRecord, record[:end])
                self.assertRaises(MalformedRecord, measureRecord, record[:end])
                self.assertRaises(MalformedRecord, storeTimestampAt, record[:end])
                if end:
                    self.assertRaises(MalformedRecord, decodeRecords, record + record[:end])

    def test_followingBytesDoNotCompleteRecord(self) -> None:
        """
        A record is never completed with the bytes after it: its parts must fill exactly
        its size.
        """
        for record in self.records():
            for size in range(len(record)):
                shorter = struct.pack(">i", size) + record[4:] + bytes(200)
                self.assertRaises(MalformedRecord, decodeRecord, shorter)
            longer = struct.pack(">i", len(record) + 1) + record[4:] + bytes(200)
            self.assertRaises(MalformedRecord, decodeRecord, longer)

    def test_changedByteIsMalformedInCheckedParts(self) -> None:
        """
        A record with any byte changed is decoded or malformed; it is malformed if the
        byte is in the size, the magic code, the body or a length.
        """
        for record in self.records():
            for place in range(len(record)):
                for flip in (0x01, 0x10, 0x80, 0xFF):
                    damaged = bytearray(record)
                    damaged[place] ^= flip
                    sound = self.read(bytes(damaged))
                    if place < 8:
                        self.assertFalse(sound, place)
        start = 88
        for place in (*range(8, 12), *range(start - 4, start + 8)):
            damaged = bytearray(ANNOTATED)
            damaged[place] ^= 0x40
            self.assertRaises(MalformedRecord, decodeRecord, bytes(damaged), checkCrc=True)

    @given(st.binary(max_size=200), st.booleans())
    def test_anyBytesRaiseOnlyMalformedRecord(self, noise: bytes, magic: bool) -> None:
        """
        Any bytes are a record or raise MalformedRecord.
        """
        self.read(noise[:4] + b"\xda\xa3\x20\xa7" + noise[4:] if magic else noise)

    def test_errorNamesPlaceAndReason(self) -> None:
        """
        The error names the place and the reason.
        """
        for data, position, reason in (
            (b"", 0, "record at 0: the data ends at 0"),
            (ANNOTATED, -228, "record at -228: the data ends at 228"),
            (ANNOTATED, 227, "record at 227: the data ends at 228"),
            (bytes(300), 7, "record at 7: magic code 00000000"),
            (encodeBlank(100) + bytes(92), 0, "record at 0: a blank of 100 bytes"),
            (ANNOTATED[:200], 0, "record at 0: size 228, but there are only 200 bytes"),
            (
                struct.pack(">i", 90) + ANNOTATED[4:],
                0,
                "record at 0: size 90, but the smallest record has 91 bytes",
            ),
            (
                struct.pack(">i", 227) + ANNOTATED[4:],
                0,
                "record at 0: size 227 is not that of its body, topic and properties",
            ),
        ):
            error = self.assertRaises(MalformedRecord, decodeRecord, data, position)
            self.assertEqual(str(error), reason)

    def test_errorOfPullNamesPlaceInBody(self) -> None:
        """
        In a pull, the error names the place of the bad record in the body, also if its
        decompression fails.
        """
        for bad in (
            makeRecord(topic=TopicField(b"\x01\xff")),
            makeRecord(body=b"no zlib", sysFlag=1),
            makeRecord(body=deflate(bytes(1001)), sysFlag=0x301),
            ANNOTATED.replace(b"m_body7", b"m_body8"),
        ):
            error = self.assertRaises(
                MalformedRecord, decodeRecords, ANNOTATED + bad, checkCrc=True, limit=1000
            )
            self.assertTrue(str(error).startswith("record at 228: "), error)

    def test_negativeLengthsAreMalformed(self) -> None:
        """
        A negative body length, and topic and properties lengths that are negative in
        Java, are malformed even if the sizes add up.
        """
        negative = bytearray(makeRecord(body=b"", properties=b""))
        negative[84:88] = struct.pack(">i", -1)
        self.assertRaises(MalformedRecord, decodeRecord, bytes(negative))
        topic = makeRecord(topic=TopicField(b"\x80" + b"t" * 128))
        self.assertRaises(MalformedRecord, decodeRecord, topic)
        properties = bytearray(makeRecord(properties=b"") + bytes(32768))
        properties[:4] = struct.pack(">i", len(properties))
        properties[-32770:-32768] = b"\x80\x00"
        self.assertRaises(MalformedRecord, decodeRecord, bytes(properties))

    def test_negativeLengthDoesNotLeadBack(self) -> None:
        """
        A negative body length does not lead to bytes before the record, even if they look
        like a topic and properties that fit.
        """
        record = bytearray(makeRecord())
        # From the body's place at 88, 256 back is 168 before the record.
        record[84:88] = struct.pack(">i", -256)
        before = struct.pack(">BH", 0, len(record) + 165) + bytes(165)
        self.assertRaises(MalformedRecord, decodeRecord, before + record, 168)
        # The same, where the bytes before are the end of another record's properties.
        properties = encodeTopic("TopicTest") + struct.pack(">H", len(record) + 156) + bytes(156)
        first = makeRecord(properties=properties)
        self.assertEqual(len(decodeRecords(first)), 1)
        self.assertRaises(MalformedRecord, decodeRecords, first + record)

    def test_propertiesThatAreNotUtf8AreKept(self) -> None:
        """
        Properties that are not UTF-8 are read with U+FFFD, as in Java, and encoded to the
        same bytes, because a broker does not check those of a batch.
        """
        record = makeRecord(properties=b"a\x01\xff\x02TAGS\x01A")
        message = decodeRecord(record)
        self.assertEqual(message.properties, {"a": "\ufffd", "TAGS": "A"})
        self.assertEqual(encodeMessageExt(message), record)


class ReadingTests(SynchronousTestCase):
    """
    Decoding less than a record, or several.
    """

    def test_bodyCanBeSkippedButChecked(self) -> None:
        """
        A caller that needs no body gets all other fields, and can still have the body
        checked.
        """
        expected = msgspec.structs.replace(decodeRecord(ANNOTATED), body=b"")
        self.assertEqual(decodeRecord(ANNOTATED, readBody=False), expected)
        self.assertEqual(decodeRecord(ANNOTATED, readBody=False, checkCrc=True), expected)
        damaged = ANNOTATED.replace(b"m_body7", b"m_body8")
        self.assertEqual(decodeRecord(damaged, readBody=False), expected)
        self.assertRaises(MalformedRecord, decodeRecord, damaged, readBody=False, checkCrc=True)

    def test_crcOfEmptyBodyIsNotChecked(self) -> None:
        """
        The checksum of an empty body is not checked, as in Java.
        """
        record = bytearray(makeRecord(body=b""))
        record[8:12] = b"\x01\x02\x03\x04"
        self.assertEqual(decodeRecord(bytes(record), checkCrc=True).body, b"")

    def test_pulledRecordsKeepOrder(self) -> None:
        """
        The records of a pull come in their order with their broker's name; an empty body
        gives none.
        """
        records = [makeRecord(queueOffset=number, bornHost=V6) for number in range(5)]
        messages = decodeRecords(b"".join(records), brokerName="broker-a")
        self.assertEqual([message.queueOffset for message in messages], [0, 1, 2, 3, 4])
        self.assertEqual({message.brokerName for message in messages}, {"broker-a"})
        self.assertEqual(decodeRecords(b""), [])

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["T", "topic", "主题"]),
                st.sampled_from([b"", b"x", b"y" * 300]),
                st.sampled_from([(V4, V4), (V4, V4), (V4, V6), (V6, V4), (V6, V6)]),
                st.sampled_from([0, 1, 0x301]),
            ),
            min_size=1,
            max_size=5,
        ),
        st.booleans(),
        st.tuples(st.integers(0, 1 << 11), st.sampled_from([None, 0, 1, 0x7F, 0xFF])),
        st.integers(0, 3),
    )
    @settings(max_examples=300, deadline=None)
    def test_decodeRecordsEqualsDecodeRecord(
        self,
        given: list[tuple[str, bytes, tuple[bytes, bytes], int]],
        checkCrc: bool,
        damage: tuple[int, int | None],
        cut: int,
    ) -> None:
        """
        Records that are decoded together, valid or not, give the same messages or the
        same error as one by one.
        """
        records = bytearray()
        for number, (topic, body, (born, store), sysFlag) in enumerate(given):
            records += makeRecord(
                topic=encodeTopic(topic),
                body=body,
                bornHost=born,
                storeHost=store,
                sysFlag=sysFlag,
                queueOffset=number,
            )
        position, value = damage
        if value is not None:
            records[position % len(records)] = value
        data = bytes(records[: len(records) - cut])

        def oneByOne() -> list[MessageExt]:
            found: list[MessageExt] = []
            while (position := sum(each.storeSize for each in found)) < len(data):
                found.append(decodeRecord(data, position, checkCrc=checkCrc, brokerName="b"))
            return [
                msgspec.structs.replace(each, propertiesData=each.propertiesData + b"\x02a\x01b")
                for each in found
            ]

        def outcome(read: Callable[[], list[MessageExt]]) -> object:
            try:
                return read()
            except MalformedRecord as error:
                return str(error)

        def atOnce() -> list[MessageExt]:
            return decodeRecords(
                data,
                checkCrc=checkCrc,
                inflate=False,
                brokerName="b",
                appended=b"\x02a\x01b",
            )

        self.assertEqual(outcome(atOnce), outcome(oneByOne))

    def test_badCompressionSparesOtherMessages(self) -> None:
        """
        Without decompression, a message that cannot be decompressed does not affect the
        others of its pull.
        """
        bad = makeRecord(body=b"no zlib", sysFlag=1)
        messages = decodeRecords(bad + ANNOTATED, inflate=False)
        self.assertEqual([message.body for message in messages], [b"no zlib", b"m_body7"])

    def test_blankIsNotARecord(self) -> None:
        """
        The blank at the end of a log file has 8 bytes with the size that it fills, and is
        not a record.
        """
        blank = encodeBlank(1000)
        self.assertEqual(blank.hex(), "000003e8cbd43194")
        self.assertEqual(len(blank), BLANK_SIZE)
        self.assertEqual(measureRecord(ANNOTATED + blank, 228), (1000, BLANK_MAGIC_CODE))
        self.assertRaises(MalformedRecord, decodeRecord, blank + bytes(992))
        self.assertRaises(MalformedRecord, storeTimestampAt, blank + bytes(992))
        self.assertRaises(MalformedRecord, decodeRecords, ANNOTATED + blank)
        # A blank shorter than its head would be an endless loop.
        self.assertRaises(MalformedRecord, measureRecord, encodeBlank(7) + bytes(100))
