# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.fastjson}.

Where a comment says "fastjson", the expected text was printed by fastjson
1.2.69_noneautotype, the library in RocketMQ 4.9.7, through the classes of
rocketmq-common 4.9.7.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Hashable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody
from txrocket.model import BrokerData, MessageModel, MessageQueue, TopicRouteData
from txrocket.protocol.fastjson import MAX_DEPTH, parse, write


def objectKey(members: dict[Any, Any]) -> Hashable:
    """
    Represents an object that is a key.
    """
    return tuple(members.items())


def read(text: str) -> Any:
    """
    Parse text.
    """
    return parse(text.encode("utf-8"), objectKey)


class Sample(msgspec.Struct, frozen=True):
    """
    A value to write.
    """

    zulu: int = 1
    Alpha: str | None = None
    model: MessageModel | None = None
    tags: frozenset[str] = frozenset()


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text().filter(lambda key: key != "$ref"), inner, max_size=4)
        | st.dictionaries(st.integers(-(2**63), 2**63 - 1), inner, max_size=4)
    ),
    max_leaves=20,
)


class ParseTests(SynchronousTestCase):
    """
    Tests for L{parse}.
    """

    def assertRefused(self, text: str, reason: str) -> None:
        """
        Assert that the text is refused, for this reason at this place.
        """
        error = self.assertRaises(MalformedBody, read, text)
        self.assertIn(reason, str(error))

    def test_integerKeysAreIntegers(self) -> None:
        """
        Integers are accepted as keys, and differ from strings of digits.
        """
        self.assertEqual(read('{0:"127.0.0.1:10911",-1 : {}}'), {0: "127.0.0.1:10911", -1: {}})
        self.assertEqual(read('{"0":"a",0:"b"}'), {"0": "a", 0: "b"})

    def test_objectKeysAreGivenToCaller(self) -> None:
        """
        An object as a key is given to the caller's function.
        """
        self.assertEqual(
            read('{{"queueId":0,"topic":"t"}:1,{"queueId":1,"topic":"t"}:2}'),
            {(("queueId", 0), ("topic", "t")): 1, (("queueId", 1), ("topic", "t")): 2},
        )

    def test_namesNeedNoQuotes(self) -> None:
        """
        Names may have no quotes or single quotes, and so may strings have single quotes.
        """
        self.assertEqual(
            read("""{topic:'it"s','a\\'b':"it's",$x_1:null}"""),
            {"topic": 'it"s', "a'b": "it's", "$x_1": None},
        )

    def test_extraCommasAreIgnored(self) -> None:
        """
        Commas around members and after elements are ignored, as by fastjson.
        """
        self.assertEqual(read('{,"a":1,,,"b":[1,],}'), {"a": 1, "b": [1]})

    def test_byteOrderMarkIsIgnored(self) -> None:
        """
        A byte order mark at the beginning is ignored.
        """
        self.assertEqual(read("\ufeff{}"), {})

    def test_bareControlCharactersAreAccepted(self) -> None:
        """
        A string may hold bare control characters, as the Go client's jstack does.
        """
        self.assertEqual(read('{"jstack":"main\n\tat x"}'), {"jstack": "main\n\tat x"})

    def test_javaEscapesAreAccepted(self) -> None:
        """
        Java's escapes are accepted besides those of JSON.
        """
        self.assertEqual(
            read(r"""'\x41\v\0\7\'\"\\\/\b\f\n\r\t\u4e2d\ud83d\ude00'"""),
            "A\v\0\7'\"\\/\b\f\n\r\t中😀",
        )

    def test_numbersAreParsed(self) -> None:
        """
        The parser of the dialect reads 64-bit integers and doubles as orjson does.
        """
        self.assertEqual(
            read("{0:[9223372036854775807,-9223372036854775808,1.5E2,-0.25,1.]}"),
            {0: [2**63 - 1, -(2**63), 150.0, -0.25, 1.0]},
        )
        self.assertEqual(read("{0:[true,false,null]}"), {0: [True, False, None]})

    def test_malformedTextNamesPlace(self) -> None:
        """
        Text that cannot be parsed is refused with the reason and the place.
        """
        for text, reason in [
            ("", "a value was expected at character 0"),
            ("{", "a key was expected at character 1"),
            ("[", "a value was expected at character 1"),
            ("[1 2]", "a comma or closing bracket was expected at character 3"),
            ('{"a":1 "b":2}', "a comma or closing brace was expected at character 7"),
            ('{"a" 1}', "a colon was expected at character 5"),
            ("{1.5:2}", "a colon was expected at character 2"),
            ("{?:1}", "a key was expected at character 1"),
            ('{"a":x}', "a value was expected at character 5"),
            ("NaN", "a value was expected"),
            ("-", "a number was expected at character 0"),
            ("{} {}", "text after the value at character 3"),
            ('"abc', "an unfinished string at character 4"),
            ("'", "an unfinished string at character 1"),
            (r'"\q"', "an unknown escape"),
            (r'"\u12"', "an unknown escape"),
            (r'"\u00zz"', "an unknown escape"),
            ('"\\', "an unknown escape"),
            (r'"\ud800"', "half a surrogate pair"),
            (r'"\udc00\ud800"', "half a surrogate pair"),
        ]:
            self.assertRefused(text, reason)

    def test_notUtf8NamesByte(self) -> None:
        """
        Text that is not UTF-8 is refused, and the error names the byte.
        """
        error = self.assertRaises(MalformedBody, parse, b'{"a":"\xff"}', objectKey)
        self.assertEqual(str(error), "not UTF-8 at byte 6")

    def test_hugeNumberIsRefused(self) -> None:
        """
        An integer beyond 64 bits is refused as a key and as a value, and so is a number
        beyond a double.
        """
        for digits in ("9223372036854775808", "-9223372036854775809", "9" * 100_000):
            self.assertRefused(f'{{"a":{digits}}}', "an integer beyond 64 bits at character 5")
            self.assertRefused(f'{{{digits}:"a"}}', "an integer beyond 64 bits at character 1")
        self.assertRefused("[1e400]", "a number beyond a double at character 1")

    def test_longDigitsInStringAreText(self) -> None:
        """
        Long digits in a string are not a number.
        """
        self.assertEqual(read('{"a":"' + "9" * 50 + '"}'), {"a": "9" * 50})

    def test_deepNestingIsRefused(self) -> None:
        """
        Values and keys that are nested too deep are refused with the same error, at any
        depth.
        """
        brackets = MAX_DEPTH - 2  # and the object, and its member
        within = "[" * brackets + "{0:1}" + "]" * brackets
        self.assertEqual(json.dumps(read(within)).count("["), brackets)
        for opening in ("[", '{"a":', "{{"):
            for levels in (MAX_DEPTH + 1, 1_000, 100_000):
                if opening == '{"a":' and levels == 1_000:
                    continue  # standard JSON: orjson's own bound is 1024
                self.assertRefused(opening * levels, f"nested deeper than {MAX_DEPTH}")

    @given(TREES)
    def test_standardJsonIsParsed(self, tree: Any) -> None:
        """
        Any standard JSON is parsed as the standard says.
        """
        text = json.dumps(tree)
        self.assertEqual(read(text), json.loads(text))

    @given(TREES)
    def test_dialectReaderAgreesWithOrjson(self, tree: Any) -> None:
        """
        The parser of the dialect returns the same values for standard JSON as orjson.
        """
        text = json.dumps(tree)
        # The integer key keeps the text from the fast path.
        self.assertEqual(read(f"{{0:{text}}}"), {0: json.loads(text)})

    @given(st.binary())
    def test_anyBytesRaiseOnlyMalformedBody(self, data: bytes) -> None:
        """
        Any bytes give a value or MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            parse(data, objectKey)

    @given(st.text(alphabet="{}[]:,\"'\\$ref.@0123456789-eExu ab", max_size=60))
    def test_anyPunctuationRaisesOnlyMalformedBody(self, text: str) -> None:
        """
        Text of JSON's own characters gives a value or MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            read(text)


class ReferenceTests(SynchronousTestCase):
    """
    Tests for L{parse} with C{$ref}.
    """

    def assertRefused(self, text: str, reason: str) -> None:
        """
        Assert that the text is refused for this reason.
        """
        self.assertIn(reason, str(self.assertRaises(MalformedBody, read, text)))

    def test_indexInPathIsFound(self) -> None:
        """
        A path with an index leads to an element's member (fastjson, one MessageQueue in
        two QueueTimeSpans).
        """
        tree = read(
            '{"consumeTimeSpanSet":[{"messageQueue":{"brokerName":"b","queueId":1,"topic":"t"}},'
            '{"messageQueue":{"$ref":"$.consumeTimeSpanSet[0].messageQueue"}}]}'
        )
        first, second = tree["consumeTimeSpanSet"]
        self.assertEqual(second, {"messageQueue": {"brokerName": "b", "queueId": 1, "topic": "t"}})
        self.assertEqual(second, first)

    def test_escapedNameInPathIsFound(self) -> None:
        """
        Special characters in the names of a path are escaped by backslashes (fastjson,
        one map for two clients).
        """
        tree = read(
            r'{"consumerTable":{"127.0.0.1@a b":{{"brokerName":"b"}:5},'
            r'"c2":{"$ref":"$.consumerTable.127\\.0\\.0\\.1\\@a\\ b"}}}'
        )
        self.assertEqual(tree["consumerTable"]["c2"], {(("brokerName", "b"),): 5})

    def test_forwardReferenceIsFound(self) -> None:
        """
        A reference may come before its value, and may lead to another reference.
        """
        self.assertEqual(
            read('{"a":{"$ref":"$.b"},"b":{"$ref":"$.c[1]"},"c":[0,{"x":1}],"d":{"$ref":"$.b.x"}}'),
            {"a": {"x": 1}, "b": {"x": 1}, "c": [0, {"x": 1}], "d": 1},
        )

    def test_indexInPathFindsIntegerKey(self) -> None:
        """
        An index in a path also finds an integer key.
        """
        self.assertEqual(read('{"a":{3:[1]},"b":{"$ref":"$.a[3]"}}')["b"], [1])

    def test_cyclicReferenceIsRefused(self) -> None:
        """
        A reference to a value that contains it (fastjson writes "$", "@" and "..") is
        refused, because no body has a cycle.
        """
        self.assertRefused('{"a":{"$ref":"$"}}', "references nest deeper")
        self.assertRefused('{"a":{"b":{"$ref":"$.a"}}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"$.a.b"}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"@"}}', "a value that contains it")
        self.assertRefused('{"a":{"$ref":".."}}', "a value that contains it")

    def test_danglingReferenceIsRefused(self) -> None:
        """
        A path without a value is refused.
        """
        for path in ("$.x", "$.a[7]", "$.a.b", "$a", "$.", "$.a[x]", "$.n.x"):
            self.assertRefused(f'{{"a":[1],"n":1,"b":{{"$ref":"{path}"}}}}', "does not exist")

    def test_referenceWithOtherMembersIsRefused(self) -> None:
        """
        A reference has one member, a path, and is not a key (fastjson: illegal ref).
        """
        self.assertRefused('{"a":{"$ref":"$","x":1}}', "more than a path")
        self.assertRefused('{"a":{"$ref":1}}', "more than a path")
        self.assertRefused('{"a":{},"b":{{"$ref":"$.a"}:1}}', "a reference as a key")

    def test_referenceBombIsRefused(self) -> None:
        """
        References that unfold to far more than the text are refused.
        """
        levels = [
            f'"l{n}":[' + ",".join([f'{{"$ref":"$.l{n - 1}"}}'] * 20) + "]" for n in range(1, 12)
        ]
        self.assertRefused('{"l0":[1],' + ",".join(levels) + "}", "unfold to too many values")


class WriteTests(SynchronousTestCase):
    """
    Tests for L{write}.
    """

    # fastjson, the same text as key and as value of a KVTable.
    TEXT = "\0\x07\b\t\n\x0b\f\r\x1f \"/\\'<~\x7f\x9f\xa0é\u2027\u2028\u2029中😀"
    PLAIN = (
        r'"\u0000\u0007\b\t\n\u000B\f\r\u001F \"/\\' + "'<~" + r"\u007F\u009F" + "\xa0é\u2027"
        r"\u2028\u2029" + '中😀"'
    )
    STANDARD = (
        r'"\u0000\u0007\b\t\n\u000B\f\r\u001F \"\/\\' + "'<~"
        r"\u007F\u009F\u00A0\u00E9\u2027\u2028\u2029\u4E2D\uD83D\uDE00" + '"'
    )

    def test_stringsAreEscapedAsByFastjson(self) -> None:
        """
        Strings are escaped as by fastjson, in keys too.
        """
        expected = f"{{{self.PLAIN}:{self.PLAIN}}}".encode()
        self.assertEqual(write({self.TEXT: self.TEXT}), expected)

    def test_standardStringsAreAscii(self) -> None:
        """
        Standard text is ASCII with escaped slashes (fastjson, BrowserCompatible).
        """
        expected = f"{{{self.STANDARD}:{self.STANDARD}}}".encode()
        self.assertEqual(write({self.TEXT: self.TEXT}, standard=True), expected)

    def test_loneSurrogateIsQuestionMark(self) -> None:
        """
        A lone surrogate becomes a question mark (fastjson, then getBytes).
        """
        self.assertEqual(write({"k": "a\ud800b"}), b'{"k":"a?b"}')

    def test_doublesArePrintedAsByFastjson(self) -> None:
        """
        Doubles are printed as by fastjson: the fewest digits, an exponent from 1.0E7 on
        and below 0.001, null for NaN and infinities.
        """
        for number, text in [
            (0.0, b"0.0"),
            (-0.0, b"-0.0"),
            (1.0, b"1.0"),
            (2.4, b"2.4"),
            (100.0, b"100.0"),
            (0.1 + 0.2, b"0.30000000000000004"),
            (123456.789, b"123456.789"),
            (9999999.5, b"9999999.5"),
            (1e7, b"1.0E7"),
            (12345678.9, b"1.23456789E7"),
            (-12345678.9, b"-1.23456789E7"),
            (9e15, b"9.0E15"),
            (123456789012345680.0, b"1.2345678901234568E17"),
            (1e22, b"1.0E22"),
            (1e23, b"1.0E23"),
            (2e23, b"2.0E23"),
            (1e-3, b"0.001"),
            (9.99e-4, b"9.99E-4"),
            (0.00012, b"1.2E-4"),
            (1.7976931348623157e308, b"1.7976931348623157E308"),
            (2.2250738585072014e-308, b"2.2250738585072014E-308"),
            (1e-323, b"1.0E-323"),
            (5e-324, b"4.9E-324"),
            (-5e-324, b"-4.9E-324"),
            (math.nan, b"null"),
            (math.inf, b"null"),
        ]:
            self.assertEqual(write(number), text)

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_printedDoubleIsParsed(self, number: float) -> None:
        """
        A printed double is parsed as the same double.
        """
        self.assertEqual(float(write(number)), number)

    def test_membersAreSortedWithoutNone(self) -> None:
        """
        Members are sorted by name, capitals first, without those that are None; an enum
        is written by its name.
        """
        self.assertEqual(
            write(Sample(Alpha="a", model=MessageModel.CLUSTERING)),
            b'{"Alpha":"a","model":"CLUSTERING","tags":[],"zulu":1}',
        )
        self.assertEqual(write(Sample()), b'{"tags":[],"zulu":1}')

    def test_setOrderDependsOnElements(self) -> None:
        """
        The order of a set depends on its elements alone.
        """
        self.assertEqual(
            write(Sample(tags=frozenset({"c", "a", "b"}))), b'{"tags":["a","b","c"],"zulu":1}'
        )

    def test_integerAndObjectKeysAreUnquoted(self) -> None:
        """
        Integers and objects are written as keys without quotes, in the map's order.
        """
        self.assertEqual(write({1: "a", 0: None, "2": True}), b'{1:"a",0:null,"2":true}')
        self.assertEqual(
            write({MessageQueue("t", "b", 1): [False, 2]}),
            b'{{"brokerName":"b","queueId":1,"topic":"t"}:[false,2]}',
        )

    def test_standardKeysAreSortedStrings(self) -> None:
        """
        In standard text all keys are strings, and maps are sorted: integers as numbers
        (fastjson; the order as in Java's TreeMap).
        """
        route = TopicRouteData(
            orderTopicConf="o",
            brokerDatas=(BrokerData("c", "b", {1: "x", 10: "q", 0: "yé", 2: "w"}),),
            filterServerTable={"z": ("1",), "b": ("2",), "a": ()},
        )
        self.assertEqual(
            write(route, standard=True),
            rb'{"brokerDatas":[{"brokerAddrs":{"0":"y\u00E9","1":"x","2":"w","10":"q"},'
            rb'"brokerName":"b","cluster":"c"}],'
            rb'"filterServerTable":{"a":[],"b":["2"],"z":["1"]},'
            rb'"orderTopicConf":"o","queueDatas":[]}',
        )
        self.assertEqual(
            write({MessageQueue("t", "b", 1): 0}, standard=True),
            rb'{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"t\"}":0}',
        )

    def test_unsupportedTypeRaises(self) -> None:
        """
        A value without a JSON form raises a TypeError.
        """
        self.assertRaises(TypeError, write, object())

    @given(TREES)
    def test_writtenValueIsParsed(self, tree: Any) -> None:
        """
        A value is parsed as it was written.
        """
        self.assertEqual(parse(write(tree), objectKey), tree)
