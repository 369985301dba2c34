# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.command}: what a header may be in either form, and
how the rest is refused.
"""

from __future__ import annotations

import struct

import orjson
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import InvalidMessage, MalformedField, MalformedHeader, MissingField
from txrocket.protocol.codes import VERSION, RequestCode, ResponseCode, SerializeType
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    decodeCommand,
    rawRequest,
    requestCommand,
    responseCommand,
)
from txrocket.protocol.headers import CreateTopicRequestHeader, DeleteTopicRequestHeader
from txrocket.protocol.headers.fields import headerFromFields
from txrocket.protocol.headertemplates import requestTemplate


def jsonCommand(header: bytes) -> RemotingCommand:
    """
    The command whose JSON header is this text.
    """
    data = len(header).to_bytes(4, "big") + header
    return decodeCommand(data, 0, len(data))


def binaryCommand(header: bytes, body: bytes = b"") -> RemotingCommand:
    """
    The command whose binary header is this.
    """
    data = struct.pack(">I", 1 << 24 | len(header)) + header + body
    return decodeCommand(data, 0, len(data))


def binaryHeader(fields: bytes, remark: bytes = b"", language: int = 3) -> bytes:
    """
    A binary header with these fields, as bytes.
    """
    fixed = struct.pack(">hbhii", 11, language, 407, 5, 0)
    return b"".join(
        (fixed, struct.pack(">i", len(remark)), remark, struct.pack(">i", len(fields)), fields)
    )


class JsonTests(SynchronousTestCase):
    """
    JSON headers that are not regular.
    """

    def test_textThatIsNotUtf8IsMalformed(self) -> None:
        """
        Text that is not UTF-8 is a malformed header: at once in a member of the command,
        at the first access in its fields.
        """
        self.assertRaises(MalformedHeader, jsonCommand, b'{"remark":"\xff"}')
        for fields in (b'{"topic":"\xff"}', b'{"\xff":"T"}', b'{"\xff":1}'):
            command = jsonCommand(b'{"extFields":%b}' % fields)
            with self.assertRaises(MalformedHeader):
                command.decodeHeader(DeleteTopicRequestHeader)
            with self.assertRaises(MalformedHeader):
                command.extFields  # noqa: B018

    def test_emptyFieldsAreForwarded(self) -> None:
        """
        A command with an empty map of fields is forwarded with it, even after an access
        to the map; a command without a map is forwarded without.
        """
        for fields in (b'"extFields":{},', b""):
            header = (
                b'{"code":0,%b"flag":1,"language":"JAVA","opaque":3,'
                b'"serializeTypeCurrentRPC":"JSON","version":407}' % fields
            )
            command = jsonCommand(header)
            self.assertEqual(command.extFields, {})
            self.assertEqual(command.encode()[8:], header)

    def test_missingAndUnknownMembersAreAccepted(self) -> None:
        """
        A header may lack any member, have unknown members, and end in white space. It
        cannot set the command's internal state.
        """
        command = jsonCommand(b"{}")
        self.assertEqual(
            (command.code, command.opaque, command.flag, command.remark), (0, 0, 0, None)
        )
        command = jsonCommand(
            b'{"opaque":"7","new":[{}],"-body":"AAAA","-fields":{"a":"b"},"-serializeType":1}\n'
        )
        self.assertEqual(command.opaque, 7)
        self.assertEqual((command.body, command.extFields, command.serializeType), (b"", {}, 0))

    def test_wrongTypesAreMalformed(self) -> None:
        """
        A header that is not a JSON object, or has a member of a wrong type, is malformed.
        """
        for header in (
            b"",
            b"null",
            b"[]",
            b"5",
            b"{",
            b'{"code":5',
            b'{"code":5}}',
            b'{"code":"x"}',
            b'{"code":true}',
            b'{"code":1.5}',
            b'{"code":2147483648}',
            b'{"opaque":-2147483649}',
            b'{"flag":[]}',
            b'{"language":5}',
            b'{"remark":{}}',
            b'{"extFields":}',
            b'{"code":%b}' % (b"9" * 5000),
        ):
            self.assertRaises(MalformedHeader, jsonCommand, header)

    def test_deepNestingIsMalformed(self) -> None:
        """
        Nesting beyond the decoder's stack is malformed, even in unknown members.
        """
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            nested = opening * 50000 + b"1" + closing * 50000
            for member in (b"extFields", b"new", b"code"):
                self.assertRaises(MalformedHeader, jsonCommand, b'{"%b":%b}' % (member, nested))

    def test_fieldsThatAreNoMapAreRefusedAtAccess(self) -> None:
        """
        Fields that are not a map of strings, numbers and booleans are refused at the
        first access; null means no fields.
        """
        for fields in (b"[]", b"5", b'{"a":[]}'):
            command = jsonCommand(b'{"extFields":%b}' % fields)
            with self.assertRaises((MalformedHeader, MalformedField)):
                command.extFields  # noqa: B018
        command = jsonCommand(b'{"extFields":null}')
        self.assertRaises(MissingField, command.decodeHeader, DeleteTopicRequestHeader)
        self.assertEqual(command.extFields, {})

    def test_noFieldsLacksRequiredField(self) -> None:
        """
        A command without fields lacks the required fields of a typed header.
        """
        self.assertRaises(MissingField, jsonCommand(b"{}").decodeHeader, DeleteTopicRequestHeader)

    def test_emptyTextIsNotNull(self) -> None:
        """
        An empty remark is not a missing one, and an empty field exists.
        """
        command = RemotingCommand(remark="", fields={"a": ""})
        again = jsonCommand(command.encode()[8:])
        self.assertEqual((again.remark, again.extFields), ("", {"a": ""}))
        command = RemotingCommand(remark=None, fields={})
        self.assertNotIn(b"remark", command.encode())
        self.assertNotIn(b"extFields", command.encode())


class BinaryTests(SynchronousTestCase):
    """
    Binary headers.
    """

    def test_emptyTextIsNull(self) -> None:
        """
        A length of zero is null: an empty remark is L{None}, and an empty field does not
        exist.
        """
        command = RemotingCommand(remark="", fields={"a": "", "b": "x"}, serializeType=1)
        again = binaryCommand(command.encode()[8:])
        self.assertIsNone(again.remark)
        self.assertEqual(again.extFields, {"b": "x"})
        again = binaryCommand(binaryHeader(b""))
        self.assertEqual((again.remark, again.extFields), (None, {}))

    def test_bodyFollowsHeader(self) -> None:
        """
        The body begins where the header ends.
        """
        fields = b"\x00\x01a\x00\x00\x00\x01b"
        command = binaryCommand(binaryHeader(fields), b"body")
        self.assertEqual((command.extFields, command.body), ({"a": "b"}, b"body"))

    def test_longestNameIs32767Bytes(self) -> None:
        """
        A name may have up to 32767 bytes; a longer one cannot be sent.
        """
        for size in (63, 64, 32767):
            command = RemotingCommand(fields={"n" * size: "v"}, serializeType=1)
            again = binaryCommand(command.encode()[8:])
            self.assertEqual(again.extFields, {"n" * size: "v"})
        command = RemotingCommand(fields={"n" * 32768: "v"}, serializeType=1)
        self.assertRaises(InvalidMessage, command.encode)

    def test_lengthBeyondHeaderIsMalformed(self) -> None:
        """
        A length beyond the end of its container is malformed, even if the frame continues
        with a body.
        """
        body = bytes(100)
        for header in (
            binaryHeader(b"\x00\x01a\x00\x00\x00\x02b"),  # value over the end
            binaryHeader(b"\x00\x01a\xff\xff\xff\xffb"),  # value of -1 or 4 GiB
            binaryHeader(b"\x00\x09a\x00\x00\x00\x01b"),  # name over the end
            binaryHeader(b"\xff\xffa\x00\x00\x00\x01b"),  # name of -1 or 64 KiB
            binaryHeader(b"\x00\x01a\x00\x00"),  # no whole length
            binaryHeader(b"\x00"),
            binaryHeader(b"", b"why")[:-1],  # no length of the fields
            struct.pack(">hbhiiii", 11, 3, 407, 5, 0, -1, 0),  # remark of -1
            struct.pack(">hbhiiii", 11, 3, 407, 5, 0, 1, 0),  # remark over the end
            struct.pack(">hbhiiii", 11, 3, 407, 5, 0, 0, -1),  # fields of -1
            struct.pack(">hbhiiii", 11, 3, 407, 5, 0, 0, 1),  # fields over the end
        ):
            self.assertRaises(MalformedHeader, binaryCommand, header, body)
            self.assertRaises(MalformedHeader, binaryCommand, header)

    def test_textThatIsNotUtf8IsMalformed(self) -> None:
        """
        Text that is not UTF-8 is malformed in the remark, in names and in values.
        """
        for header in (
            binaryHeader(b"", b"\xff"),
            binaryHeader(b"\x00\x01\xff\x00\x00\x00\x01b"),
            binaryHeader(b"\x00\x01a\x00\x00\x00\x01\xff"),
        ):
            self.assertRaises(MalformedHeader, binaryCommand, header)

    def test_lengthsCountBytes(self) -> None:
        """
        Lengths count bytes, not characters.
        """
        command = RemotingCommand(remark="né", fields={"ü": "\U0001f680"}, serializeType=1)
        header = command.encode()[8:]
        self.assertIn("né".encode() + struct.pack(">i", 12), header)
        self.assertEqual(binaryCommand(header).extFields, {"ü": "\U0001f680"})

    def test_unknownLanguageIsOther(self) -> None:
        """
        An unknown number of a language is OTHER, and an unknown name is sent as OTHER.
        """
        for number, name in ((3, "PYTHON"), (12, "RUST"), (13, "OTHER"), (-1, "OTHER")):
            self.assertEqual(binaryCommand(binaryHeader(b"", language=number)).language, name)
        frame = RemotingCommand(language="COBOL", serializeType=1).encode()
        self.assertEqual(frame[10], 7)

    def test_codeBeyond16BitsIsRefused(self) -> None:
        """
        A code beyond 16 bits cannot be sent; a version wraps, as in Java.
        """
        for code in (32768, -32769):
            command = RemotingCommand(code, serializeType=1)
            self.assertRaises(InvalidMessage, command.encode)
            # JSON has room for it.
            self.assertEqual(jsonCommand(RemotingCommand(code).encode()[8:]).code, code)
        for version, wrapped in ((32767, 32767), (32768, -32768), (65536, 0), (-1, -1)):
            frame = RemotingCommand(version=version, serializeType=1).encode()
            self.assertEqual(binaryCommand(frame[8:]).version, wrapped)


class UnsendableTests(SynchronousTestCase):
    """
    Commands that cannot be encoded.
    """

    def test_loneSurrogateIsRefused(self) -> None:
        """
        A lone surrogate is refused as a message that cannot be sent, at any place and in
        both formats.
        """
        for form in (0, 1):
            for command in (
                RemotingCommand(remark="\ud800", serializeType=form),
                RemotingCommand(fields={"a": "\ud800"}, serializeType=form),
                RemotingCommand(fields={"\ud800": "a"}, serializeType=form),
            ):
                self.assertRaises(InvalidMessage, command.encode)

    def test_numberOutOfRangeIsRefused(self) -> None:
        """
        A number beyond both formats is refused in the same way.
        """
        for form in (0, 1):
            command = RemotingCommand(opaque=2**64, serializeType=form)
            self.assertRaises(InvalidMessage, command.encode)

    def test_longFrameOrHeaderIsRefused(self) -> None:
        """
        A frame over the limit, and a header over 16 MiB with any limit, are refused
        before they are sent.
        """
        command = RemotingCommand(5, body=b"x" * 100)
        size = len(command.encode())
        self.assertEqual(len(command.encodeHead(size)), size - 100)
        self.assertRaises(InvalidMessage, command.encodeHead, size - 1)
        for form in (0, 1):
            command = RemotingCommand(5, remark="x" * 0x1000000, serializeType=form)
            self.assertRaises(InvalidMessage, command.encode)
            self.assertRaises(InvalidMessage, command.encodeHead, 2**31)


class MakingTests(SynchronousTestCase):
    """
    Commands that this program makes.
    """

    def test_requestHasLanguageAndFlag(self) -> None:
        """
        A request has the sender's language and version, and the flag for a oneway
        request.
        """
        command = requestCommand(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))
        self.assertEqual((command.language, command.version), ("PYTHON", VERSION))
        self.assertEqual((command.flag, command.extFields), (0, {"topic": "T"}))
        self.assertFalse(command.isResponse or command.isOneway)
        command = requestCommand(RequestCode.HEART_BEAT, body=b"{}", oneway=True)
        self.assertEqual((command.flag, command.extFields, command.body), (ONEWAY_FLAG, {}, b"{}"))
        self.assertTrue(command.isOneway and not command.isResponse)

    def test_responseHasFlag(self) -> None:
        """
        A response has its flag; without a code it is SUCCESS.
        """
        command = responseCommand()
        self.assertEqual((command.code, command.remark), (ResponseCode.SUCCESS, None))
        self.assertEqual(command.flag, RESPONSE_FLAG)
        command = responseCommand(17, "why", DeleteTopicRequestHeader("T"), b"body")
        self.assertEqual((command.code, command.remark), (17, "why"))
        self.assertEqual((command.extFields, command.body), ({"topic": "T"}, b"body"))
        self.assertTrue(command.isResponse and not command.isOneway)

    def test_addedFieldsAreSent(self) -> None:
        """
        Fields that are added to extFields are sent with the others, as a signature is.
        """
        command = jsonCommand(b'{"extFields":{"topic":"T"}}')
        command.extFields["Signature"] = "s"
        for form in (0, 1):
            command.serializeType = form
            frame = command.encode()
            again = decodeCommand(frame, 4, len(frame))
            self.assertEqual(again.extFields, {"topic": "T", "Signature": "s"})
        self.assertEqual(command.decodeHeader(DeleteTopicRequestHeader).topic, "T")

    def test_commandIsForwardedInOtherFormat(self) -> None:
        """
        A command that was received in one format can be sent in the other.
        """
        command = jsonCommand(b'{"code":11,"opaque":5,"extFields":{"a":"b"},"version":407}')
        command.serializeType = 1
        fields = b"\x00\x01a\x00\x00\x00\x01b"
        self.assertEqual(command.encode()[8:], binaryHeader(fields, language=0))

    def test_strHasCodeOpaqueAndRemark(self) -> None:
        """
        The text of a command for logs has its code, opaque, size and remark.
        """
        command = RemotingCommand(11, opaque=5, body=b"xyz")
        self.assertEqual(str(command), "<request PULL_MESSAGE (11) opaque 5, body of 3 bytes>")
        command = RemotingCommand(17, opaque=5, flag=RESPONSE_FLAG, remark="why")
        self.assertEqual(str(command), "<response 17 opaque 5, body of 0 bytes: why>")


# What UTF-8 can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT = st.integers(-(2**31), 2**31 - 1)


class RawTests(SynchronousTestCase):
    """
    Commands whose fields are already JSON.
    """

    @given(
        st.one_of(st.just(0), INT),
        st.sampled_from([0, RESPONSE_FLAG, ONEWAY_FLAG]),
        INT,
        st.one_of(st.none(), TEXT),
        st.dictionaries(TEXT, TEXT, min_size=1, max_size=4),
        st.sampled_from(["PYTHON", "JAVA"]),
    )
    def test_rawFieldsAreEncodedAsMap(
        self,
        code: int,
        flag: int,
        opaque: int,
        remark: str | None,
        fields: dict[str, str],
        language: str,
    ) -> None:
        """
        They have the same bytes as commands whose fields are a map.
        """
        raw = Raw(orjson.dumps(fields))
        quick = RemotingCommand(code, language, VERSION, opaque, flag, remark, raw)
        plain = RemotingCommand(code, language, VERSION, opaque, flag, remark, fields=fields)
        self.assertEqual(quick.encode(), plain.encode())

    def test_rawRequestFieldsCanBeChanged(self) -> None:
        """
        The fields of such a request can be read and added to as those of any other.
        """
        for oneway in (False, True):
            plain = requestCommand(RequestCode.PULL_MESSAGE, None, b"body", oneway=oneway)
            plain.extFields["topic"] = "T"
            quick = rawRequest(RequestCode.PULL_MESSAGE, b'{"topic":"T"}', b"body", oneway=oneway)
            self.assertEqual(quick.encode(), plain.encode())
            self.assertEqual(quick.decodeHeader(DeleteTopicRequestHeader).topic, "T")
            for each in (plain, quick):
                each.extFields["Signature"] = "s"
            self.assertEqual(quick.encode(), plain.encode())

    @given(st.integers(0, 2**31 - 1), st.text(), st.booleans())
    def test_filledTemplateEqualsRequest(self, number: int, value: str, oneway: bool) -> None:
        """
        A header from a template has the bytes of the header that is made for one request.
        """
        plain = requestCommand(RequestCode.PULL_MESSAGE, oneway=oneway)
        plain.extFields["a"], plain.opaque = value, number
        template = requestTemplate(RequestCode.PULL_MESSAGE, b'{"a":%b}', oneway=oneway)
        self.assertEqual(template % (orjson.dumps(value), number), plain.encode()[8:])


class NamingTests(SynchronousTestCase):
    """
    The texts of errors.
    """

    def test_errorNamesFieldNotItsValue(self) -> None:
        """
        An error names the field, even if the peer's value looks like a reason with
        another field.
        """
        fields = {
            "topic": "T",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "Object missing required field `perm`",
        }
        error = self.assertRaises(
            MalformedField, headerFromFields, CreateTopicRequestHeader, fields
        )
        self.assertEqual(error.field, "topicFilterType")


def _rawResponse(extFields: bytes, remark: str | None = None, body: bytes = b"") -> RemotingCommand:
    response = responseCommand(0, remark, None, body)
    response.raw = Raw(extFields)
    return response


class RawResponseTests(SynchronousTestCase):
    """
    Responses whose fields are JSON already.
    """

    @given(
        st.dictionaries(st.text(max_size=9), st.text(max_size=9), min_size=1, max_size=5),
        st.none() | st.text(max_size=20),
        st.binary(max_size=9),
        st.integers(-(2**31), 2**31 - 1),
        st.sampled_from(SerializeType),
        st.sampled_from([("code", 1), ("flag", 0), ("flag", 3), ("language", "JAVA"), None]),
    )
    def test_rawFieldsEqualMap(
        self,
        fields: dict[str, str],
        remark: str | None,
        body: bytes,
        opaque: int,
        form: int,
        change: tuple[str, object] | None,
    ) -> None:
        """
        They are written as those whose fields are a map, with any change, in both formats.
        """
        raw = _rawResponse(orjson.dumps(fields), remark, body)
        plain = responseCommand(0, remark, None, body)
        plain.fields = fields
        for each in (raw, plain):
            each.opaque = opaque
            each.serializeType = int(form)
            if change is not None:
                setattr(each, *change)
        self.assertEqual(raw.encode(), plain.encode())
        self.assertEqual(raw.extFields, fields)
        self.assertEqual(raw.encode(), plain.encode())

    def test_invalidRemarkIsRefused(self) -> None:
        """
        A remark that JSON cannot hold is refused as everywhere.
        """
        self.assertRaises(InvalidMessage, _rawResponse(b"{}", "\ud800").encode)
