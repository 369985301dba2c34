# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.headers} and L{txrocket.protocol.headers.fields}.

C{fixtures/headers.json} has the fields of RocketMQ 4.9.7's header classes with
those that they inherit: name to Java type, with an exclamation mark where the
field is C{@CFNotNull}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedField, MalformedHeader, MissingField, ProtocolError
from txrocket.protocol import headers
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import RemotingCommand, decodeCommand, requestCommand
from txrocket.protocol.headers import (
    HEADERS,
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    EndTransactionRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeaderV2,
    ViewMessageRequestHeader,
)
from txrocket.protocol.headers.fields import Header, decodeExtFields, decodeHeader, headerFromFields

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire" / "headers.rst"
JAVA: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "headers.json").read_text("utf-8")
)
DECLARED: dict[str, type[Header]] = {
    name: each
    for name, each in vars(headers).items()
    if isinstance(each, type) and issubclass(each, Header) and each is not Header
}

# Where a declaration differs from Java's, and why.
NOT_REQUIRED = {
    # @CFNotNull on a primitive, or on a field with a value: Java cannot miss it.
    ("ResetOffsetRequestHeader", "isForce"),
    ("GetConsumeStatsInBrokerHeader", "isOrder"),
    ("CreateTopicRequestHeader", "order"),
    # mqadmin sends it only with a file.
    ("UpdateGlobalWhiteAddrsConfigRequestHeader", "aclFileFullPath"),
}
NOT_SENT = {
    # Inherited, but this header has the broker's name as n.
    ("SendMessageRequestHeaderV2", "bname"),
}
# An enum in Java, which sends its name: the type says what it may be.
NARROWED = {("CreateTopicRequestHeader", "topicFilterType")}


def javaType(kind: inspect.Type) -> str:
    """
    The Java type, in its primitive form, of a declared one.
    """
    if isinstance(kind, inspect.UnionType):
        (kind,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.IntType):
        return {2**31 - 1: "int", 2**63 - 1: "long"}[kind.le or 0]
    return {
        inspect.StrType: "String",
        inspect.BoolType: "boolean",
        inspect.LiteralType: "Literal",
    }[type(kind)]


PRIMITIVE = {"Integer": "int", "Long": "long", "Boolean": "boolean"}


def declaration(header: type[Header]) -> dict[str, inspect.Field]:
    """
    A header's fields by their wire names.
    """
    info = inspect.type_info(header)
    assert isinstance(info, inspect.StructType)
    return {each.encode_name: each for each in info.fields}


class DeclarationTests(SynchronousTestCase):
    """
    The declarations compared with Java's.
    """

    def test_fieldsAreJavas(self) -> None:
        """
        Every header has exactly the fields of the Java class of its name.
        """
        self.assertEqual(set(DECLARED), set(JAVA))
        for name, header in DECLARED.items():
            expected = {each for each in JAVA[name] if (name, each) not in NOT_SENT}
            self.assertEqual(set(header.__struct_encode_fields__), expected, name)

    def test_typesAreJavas(self) -> None:
        """
        Every field has Java's type; int and Integer are the same on the wire.
        """
        for name, header in DECLARED.items():
            for wireName, each in declaration(header).items():
                java = JAVA[name][wireName].rstrip("!")
                expected = PRIMITIVE.get(java, java)
                if (name, wireName) in NARROWED:
                    expected = "Literal"
                self.assertEqual(javaType(each.type), expected, f"{name}.{wireName}")

    def test_requiredFieldsAreJavas(self) -> None:
        """
        A field is required exactly if Java says so, except for fields that peers omit.
        """
        required = {
            (name, wireName)
            for name, header in DECLARED.items()
            for wireName, each in declaration(header).items()
            if each.required
        }
        java = {
            (name, field)
            for name, fields in JAVA.items()
            for field, kind in fields.items()
            if kind.endswith("!")
        }
        self.assertEqual(required, java - NOT_REQUIRED)

    def test_everyHeaderHasACode(self) -> None:
        """
        Every declared header belongs to at least one request code.
        """
        used = {each for pair in HEADERS.values() for each in pair if each is not None}
        self.assertEqual(used, set(DECLARED.values()))

    def test_shortNamesMatchLongNames(self) -> None:
        """
        The header with short names has the fields of the one with long names, field by
        field.
        """
        long, short = HEADERS[RequestCode.SEND_MESSAGE], HEADERS[RequestCode.SEND_MESSAGE_V2]
        assert long.request is not None
        self.assertEqual(
            set(long.request.__struct_fields__), set(SendMessageRequestHeaderV2.__struct_fields__)
        )
        self.assertIs(long.response, short.response)


# Words that a decoder that guesses types would read as other types.
texts = st.one_of(
    st.sampled_from(
        ["null", "true", "false", "0", "1", "-1", "1.5", "{}", "[]", '"', "\\", "\x01"]
    ),
    st.text(min_size=1, max_size=30),
)


def values(kind: inspect.Type, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """
    Values of a declared type.
    """
    if isinstance(kind, inspect.UnionType):
        return st.one_of([values(each, text) for each in kind.types])
    if isinstance(kind, inspect.NoneType):
        return st.none()
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.IntType):
        return st.integers(kind.ge, kind.le)
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    assert isinstance(kind, inspect.StrType)
    return text


def instances(
    header: type[Header], text: st.SearchStrategy[str] = texts
) -> st.SearchStrategy[Header]:
    """
    Headers of a class with any values that it allows.
    """
    members = {each.name: values(each.type, text) for each in declaration(header).values()}
    if header is RegisterBrokerRequestHeader:
        # None is not sent, and a missing field is read as 0.
        members["bodyCrc32"] = st.integers(-(2**31), 2**31 - 1)
    if header is EndTransactionRequestHeader:
        members["commitOrRollback"] = st.sampled_from([0, 8, 12])
    return st.builds(header, **members)


anyHeader = st.sampled_from(list(DECLARED.values())).flatmap(instances)


class RoundTripTests(SynchronousTestCase):
    """
    Typed headers through both formats.
    """

    def passOn(self, command: RemotingCommand) -> RemotingCommand:
        """
        Encode and decode a command.
        """
        frame = command.encode()
        return decodeCommand(frame, 4, len(frame))

    def test_everyHeaderRoundTrips(self) -> None:
        """
        Every header class is decoded as it was encoded, in JSON and binary, from the text
        and from the map of fields.
        """

        for kind in DECLARED.values():
            self.checkClass(kind)

    def checkClass(self, kind: type[Header]) -> None:
        """
        Round-trip headers of one class.
        """

        @settings(max_examples=8)
        @given(instances(kind))
        def check(header: Header) -> None:
            for form in SerializeType:
                command = requestCommand(1, header)
                command.serializeType = form
                again = self.passOn(command)
                self.assertEqual(again.decodeHeader(kind), header)
                self.assertEqual(again.extFields, header.toFields())
                self.assertEqual(again.decodeHeader(kind), header)

        check()

    @given(anyHeader)
    def test_toFieldsWritesJavasText(self, header: Header) -> None:
        """
        Fields are text under the wire's names: booleans in Java's spelling, decimal
        numbers, and no field for None.
        """
        expected = {}
        for wireName, each in declaration(type(header)).items():
            value = getattr(header, each.name)
            if isinstance(value, bool):
                expected[wireName] = "true" if value else "false"
            elif value is not None:
                expected[wireName] = str(value)
        self.assertEqual(header.toFields(), expected)
        self.assertEqual(headerFromFields(type(header), expected), header)

    def test_emptyTextIsAbsentInBinary(self) -> None:
        """
        The empty text is kept in JSON; in the binary format the field is absent.
        """
        for form, expected in ((SerializeType.JSON, {"topic": ""}), (SerializeType.ROCKETMQ, {})):
            command = requestCommand(1, DeleteTopicRequestHeader(""))
            command.serializeType = form
            self.assertEqual(self.passOn(command).extFields, expected)


jsonValues = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


def perhapsFields(value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[type[Header], Any]]:
    """
    A header class and a map that has some of its fields and some other ones.
    """

    def draw(header: type[Header]) -> st.SearchStrategy[tuple[type[Header], Any]]:
        names = st.one_of(st.sampled_from(header.__struct_encode_fields__), st.text())
        return st.tuples(st.just(header), st.dictionaries(names, value))

    return st.sampled_from(list(DECLARED.values())).flatmap(draw)


class StrangeFieldsTests(SynchronousTestCase):
    """
    Fields that differ from their declaration.
    """

    def checkDecoding(self, header: type[Header], decode: Any) -> Header | None:
        """
        Assert that decoding gives a header, or an error that names one of its fields.
        """
        try:
            decoded: Header = decode()
        except (MissingField, MalformedField) as error:
            self.assertIn(error.field.split(" ")[0], str(error))
            if error.header == header.__name__:
                self.assertIn(error.field.split(" ")[0], header.__struct_encode_fields__)
        except ProtocolError:
            pass
        else:
            self.assertIsInstance(decoded, header)
            return decoded
        return None

    @given(perhapsFields(st.one_of(st.text(), st.integers().map(str))))
    def test_anyMapNamesFirstWrongField(self, drawn: tuple[type[Header], dict[str, str]]) -> None:
        """
        Any map of texts is a header, or the error names its first wrong field; JSON text
        and map give the same.
        """
        header, fields = drawn
        mapped = self.checkDecoding(header, lambda: headerFromFields(header, fields))
        raw = msgspec.json.encode(fields)
        self.assertEqual(self.checkDecoding(header, lambda: decodeHeader(header, raw)), mapped)

    @given(perhapsFields(jsonValues))
    def test_anyJsonIsHeaderOrError(self, drawn: tuple[type[Header], dict[str, Any]]) -> None:
        """
        Any JSON object is a header or a ProtocolError.
        """
        header, fields = drawn
        raw = msgspec.json.encode(fields)
        self.checkDecoding(header, lambda: decodeHeader(header, raw))

    @given(st.sampled_from(list(DECLARED.values())), st.binary())
    def test_anyBytesRaiseOnlyProtocolError(self, header: type[Header], raw: bytes) -> None:
        """
        Any bytes are a header or a ProtocolError.
        """
        self.checkDecoding(header, lambda: decodeHeader(header, raw))

    def test_missingFieldIsNamed(self) -> None:
        """
        A missing field is named, also by its attribute if the wire's name is a letter;
        null counts as missing.
        """
        error = self.assertRaises(MissingField, headerFromFields, DeleteTopicRequestHeader, {})
        self.assertEqual((error.header, error.field), ("DeleteTopicRequestHeader", "topic"))
        error = self.assertRaises(MissingField, headerFromFields, SendMessageRequestHeaderV2, {})
        self.assertEqual(error.field, "a (producerGroup)")
        for raw in (b"{}", b"null", b'{"topic":null}'):
            self.assertRaises(MissingField, decodeHeader, DeleteTopicRequestHeader, raw)

    def test_malformedFieldIsNamed(self) -> None:
        """
        A value that is not valid for its type is refused with the field's name, bare or
        as text.
        """
        for raw in (
            b'{"offset":"x"}',
            b'{"offset":""}',
            b'{"offset":" 1"}',
            b'{"offset":true}',
            b'{"offset":1.5}',
            b'{"offset":[]}',
            b'{"offset":{}}',
            b'{"offset":9223372036854775808}',
            b'{"offset":"9223372036854775808"}',
            b'{"offset":"-9223372036854775809"}',
        ):
            error = self.assertRaises(MalformedField, decodeHeader, ViewMessageRequestHeader, raw)
            self.assertEqual(error.field, "offset")

    def test_numbersHaveJavasRange(self) -> None:
        """
        A long has the range of Java's, and no number is rounded.
        """
        for number in (2**63 - 1, -(2**63), 2**53 + 1):
            for raw in (b'{"offset":%d}', b'{"offset":"%d"}'):
                header = decodeHeader(ViewMessageRequestHeader, raw % number)
                self.assertEqual(header.offset, number)

    def test_zeroAndOneAreBooleans(self) -> None:
        """
        true, false, 1 and 0 are booleans, bare and as text; other words are refused,
        which Java reads as false.
        """
        for raw, expected in (
            (b'{"topic":"T","acceptStandardJsonOnly":"true"}', True),
            (b'{"topic":"T","acceptStandardJsonOnly":true}', True),
            (b'{"topic":"T","acceptStandardJsonOnly":"1"}', True),
            (b'{"topic":"T","acceptStandardJsonOnly":1}', True),
            (b'{"topic":"T","acceptStandardJsonOnly":"false"}', False),
            (b'{"topic":"T","acceptStandardJsonOnly":0}', False),
            (b'{"topic":"T","acceptStandardJsonOnly":null}', None),
            (b'{"topic":"T"}', None),
        ):
            header = decodeHeader(GetRouteInfoRequestHeader, raw)
            self.assertIs(header.acceptStandardJsonOnly, expected)
        raw = b'{"topic":"T","acceptStandardJsonOnly":"yes"}'
        error = self.assertRaises(MalformedField, decodeHeader, GetRouteInfoRequestHeader, raw)
        self.assertEqual(error.field, "acceptStandardJsonOnly")

    def test_bareNumberIsText(self) -> None:
        """
        A text field accepts a bare number or boolean as its text.
        """
        for raw, topic in ((b"5", "5"), (b"1.5", "1.5"), (b"true", "true"), (b"false", "false")):
            header = decodeHeader(DeleteTopicRequestHeader, b'{"topic":%b}' % raw)
            self.assertEqual(header.topic, topic)

    def test_unknownChoiceIsRefused(self) -> None:
        """
        A field with few possible values refuses others, and the error names the field.
        """
        fields = CreateTopicRequestHeader("T", "D", 1, 1, 6, "SINGLE_TAG").toFields()
        fields["topicFilterType"] = "NO_TAG"
        error = self.assertRaises(
            MalformedField, headerFromFields, CreateTopicRequestHeader, fields
        )
        self.assertEqual(error.field, "topicFilterType")
        fields = EndTransactionRequestHeader("G", 1, 2, 8, "id").toFields()
        fields["commitOrRollback"] = "4"
        malformed = self.assertRaises(
            MalformedHeader, headerFromFields, EndTransactionRequestHeader, fields
        )
        self.assertIn("commitOrRollback 4", str(malformed))

    def test_extFieldsIsMapOfPlainValues(self) -> None:
        """
        extFields is a map of strings, numbers and booleans. Members that are null are
        absent, and other values are refused.
        """
        raw = b'{"a":"x","b":1,"c":true,"d":null,"e":false,"f":1.5}'
        expected = {"a": "x", "b": "1", "c": "true", "e": "false", "f": "1.5"}
        self.assertEqual(decodeExtFields(raw), expected)
        self.assertEqual(decodeExtFields(b"null"), {})
        for raw in (b"[]", b"5", b'"x"', b"{", b"", b"[" * 100000, b'{"a":%b}' % (b"9" * 5000)):
            self.assertRaises(MalformedHeader, decodeExtFields, raw)
        error = self.assertRaises(MalformedField, decodeExtFields, b'{"a":"x","b":{}}')
        self.assertEqual(error.field, "b")


class DocumentTests(SynchronousTestCase):
    """
    The page about headers.
    """

    WORDS = {"String": "string", "Literal": "enum"}

    def rows(self, name: str) -> list[list[str]]:
        """
        The table of a header, without its last column.
        """
        text = DOCUMENT.read_text(encoding="utf-8")
        start = text.index(f"\n{name}\n{'~' * len(name)}\n")
        section = text[start:].split("\n\n.. _", 1)[0]
        rows = section.split("\n   * - ")[2:]
        return [[cell.strip() for cell in row.split("\n     - ")[:3]] for row in rows]

    def test_pageHasEveryField(self) -> None:
        """
        docs/wire/headers.rst has every header with every field, in order, with its type
        and default.
        """
        for name, header in DECLARED.items():
            expected = []
            for wireName, each in declaration(header).items():
                alias = "" if wireName == each.name else f" {each.name}"
                kind = javaType(each.type)
                missing = "none" if each.default is None else str(each.default).lower()
                expected.append(
                    [
                        f"``{wireName}``{alias}",
                        self.WORDS.get(kind, kind),
                        "refused" if each.required else missing,
                    ]
                )
            self.assertEqual(self.rows(name), expected, name)

    def test_pageHasEveryServedCode(self) -> None:
        """
        Every served code is on the page with its name and its headers, and every header
        has the codes that carry it.
        """
        text = DOCUMENT.read_text(encoding="utf-8")
        flowed = " ".join(text.split())
        for code, pair in HEADERS.items():
            cells = [
                "\\-" if each is None else f":ref:`{each.__name__} <header-{each.__name__}>`"
                for each in pair
            ]
            name = RequestCode(code).name
            self.assertIn(
                f"   * - {int(code)}\n     - {name}\n     - {cells[0]}\n     - {cells[1]}\n", text
            )
            for each, what in zip(pair, ("request", "response"), strict=True):
                if each is not None:
                    start = flowed.index(f"{each.__name__} {'~' * len(each.__name__)}")
                    carried = flowed[start:].split(".. list-table::", 1)[0]
                    self.assertIn(f"{name} {int(code)} ({what})", carried)
