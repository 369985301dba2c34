# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.javajson}.

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
from txrocket.protocol.javajson import MAX_DEPTH, parse, write


def objectKey(members: dict[Any, Any]) -> Hashable:
    """
    Stands for an object that is a key.
    """
    return tuple(members.items())


def read(text: str) -> Any:
    """
    Parse text.
    """
    return parse(text.encode("utf-8"), objectKey)


class Sample(msgspec.Struct, frozen=True):
    """
    Something to write.
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
        The text gets the typed error, which says why and where.
        """
        error = self.assertRaises(MalformedBody, read, text)
        self.assertIn(reason, str(error))

    def test_integerKeys(self) -> None:
        """
        Integers are keys, and are told apart from strings of digits.
        """
        self.assertEqual(read('{0:"127.0.0.1:10911",-1 : {}}'), {0: "127.0.0.1:10911", -1: {}})
        self.assertEqual(read('{"0":"a",0:"b"}'), {"0": "a", 0: "b"})

    def test_objectKeys(self) -> None:
        """
        An object in a key's place is given to the caller.
        """
        self.assertEqual(
            read('{{"queueId":0,"topic":"t"}:1,{"queueId":1,"topic":"t"}:2}'),
            {(("queueId", 0), ("topic", "t")): 1, (("queueId", 1), ("topic", "t")): 2},
        )

    def test_names(self) -> None:
        """
        Names may lack quotes or have single ones, and strings too have those.
        """
        self.assertEqual(
            read("""{topic:'it"s','a\\'b':"it's",$x_1:null}"""),
            {"topic": 'it"s', "a'b": "it's", "$x_1": None},
        )

    def test_extraCommas(self) -> None:
        """
        Commas around members and behind elements are forgiven, as by fastjson.
        """
        self.assertEqual(read('{,"a":1,,,"b":[1,],}'), {"a": 1, "b": [1]})

    def test_byteOrderMark(self) -> None:
        """
        A byte order mark in front means nothing.
        """
        self.assertEqual(read("\ufeff{}"), {})

    def test_bareControls(self) -> None:
        """
        A string may hold bare control characters: the Go client's jstack does.
        """
        self.assertEqual(read('{"jstack":"main\n\tat x"}'), {"jstack": "main\n\tat x"})

    def test_escapes(self) -> None:
        """
        Java's escapes are known beside those of JSON.
        """
        self.assertEqual(
            read(r"""'\x41\v\0\7\'\"\\\/\b\f\n\r\t\u4e2d\ud83d\ude00'"""),
            "A\v\0\7'\"\\/\b\f\n\r\t中😀",
        )

    def test_numbers(self) -> None:
        """
        64-bit integers and doubles are read on the long way as on the short.
        """
        self.assertEqual(
            read("{0:[9223372036854775807,-9223372036854775808,1.5E2,-0.25,1.]}"),
            {0: [2**63 - 1, -(2**63), 150.0, -0.25, 1.0]},
        )
        self.assertEqual(read("{0:[true,false,null]}"), {0: [True, False, None]})

    def test_refusals(self) -> None:
        """
        What is not in the language is refused with the reason and the place.
        """
        for text, reason in [
            ("", "no value at character 0"),
            ("{", "no key at character 1"),
            ("[", "no value at character 1"),
            ("[1 2]", "neither comma nor closing bracket at character 3"),
            ('{"a":1 "b":2}', "neither comma nor closing brace at character 7"),
            ('{"a" 1}', "no colon at character 5"),
            ("{1.5:2}", "no colon at character 2"),
            ("{?:1}", "no key at character 1"),
            ('{"a":x}', "no value at character 5"),
            ("NaN", "no value"),
            ("-", "no number at character 0"),
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

    def test_notUTF8(self) -> None:
        """
        Text that is not UTF-8 is refused, and the byte is named.
        """
        error = self.assertRaises(MalformedBody, parse, b'{"a":"\xff"}', objectKey)
        self.assertEqual(str(error), "not UTF-8 at byte 6")

    def test_hugeNumbers(self) -> None:
        """
        An integer beyond 64 bits is refused, be it a key or a value and however
        long, and so is a number beyond a double.
        """
        for digits in ("9223372036854775808", "-9223372036854775809", "9" * 100_000):
            self.assertRefused(f'{{"a":{digits}}}', "an integer beyond 64 bits at character 5")
            self.assertRefused(f'{{{digits}:"a"}}', "an integer beyond 64 bits at character 1")
        self.assertRefused("[1e400]", "a number beyond a double at character 1")

    def test_digitsInStrings(self) -> None:
        """
        Long digits in a string are no number.
        """
        self.assertEqual(read('{"a":"' + "9" * 50 + '"}'), {"a": "9" * 50})

    def test_depth(self) -> None:
        """
        Nesting has a bound, in values and in keys, and exceeding it by far is
        the same typed error.
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
    def test_standard(self, tree: Any) -> None:
        """
        Whatever standard JSON says is what is read.
        """
        text = json.dumps(tree)
        self.assertEqual(read(text), json.loads(text))

    @given(TREES)
    def test_ownReader(self, tree: Any) -> None:
        """
        The reader of the dialect agrees with the standard one: a text in which
        both can read a value gives the same value by either way.
        """
        text = json.dumps(tree)
        # The integer key keeps the text from the fast path.
        self.assertEqual(read(f"{{0:{text}}}"), {0: json.loads(text)})

    @given(st.binary())
    def test_anyBytes(self, data: bytes) -> None:
        """
        Any bytes give a value or the typed error.
        """
        with contextlib.suppress(MalformedBody):
            parse(data, objectKey)

    @given(st.text(alphabet="{}[]:,\"'\\$ref.@0123456789-eExu ab", max_size=60))
    def test_anyPunctuation(self, text: str) -> None:
        """
        Text made of the language's own signs gives a value or the typed error.
        """
        with contextlib.suppress(MalformedBody):
            read(text)


class ReferenceTests(SynchronousTestCase):
    """
    Tests for L{parse} where C{$ref} stands for a value told elsewhere.
    """

    def assertRefused(self, text: str, reason: str) -> None:
        """
        The text gets the typed error.
        """
        self.assertIn(reason, str(self.assertRaises(MalformedBody, read, text)))

    def test_list(self) -> None:
        """
        A path with an index leads to an element's member (fastjson, one
        MessageQueue in two QueueTimeSpans).
        """
        tree = read(
            '{"consumeTimeSpanSet":[{"messageQueue":{"brokerName":"b","queueId":1,"topic":"t"}},'
            '{"messageQueue":{"$ref":"$.consumeTimeSpanSet[0].messageQueue"}}]}'
        )
        first, second = tree["consumeTimeSpanSet"]
        self.assertEqual(second, {"messageQueue": {"brokerName": "b", "queueId": 1, "topic": "t"}})
        self.assertEqual(second, first)

    def test_escapedPath(self) -> None:
        """
        Signs in a path's names are escaped by backslashes (fastjson, one map for
        two clients).
        """
        tree = read(
            r'{"consumerTable":{"127.0.0.1@a b":{{"brokerName":"b"}:5},'
            r'"c2":{"$ref":"$.consumerTable.127\\.0\\.0\\.1\\@a\\ b"}}}'
        )
        self.assertEqual(tree["consumerTable"]["c2"], {(("brokerName", "b"),): 5})

    def test_forward(self) -> None:
        """
        A reference may come before what it means, and mean another reference.
        """
        self.assertEqual(
            read('{"a":{"$ref":"$.b"},"b":{"$ref":"$.c[1]"},"c":[0,{"x":1}],"d":{"$ref":"$.b.x"}}'),
            {"a": {"x": 1}, "b": {"x": 1}, "c": [0, {"x": 1}], "d": 1},
        )

    def test_integerKey(self) -> None:
        """
        An index in a path also finds an integer key.
        """
        self.assertEqual(read('{"a":{3:[1]},"b":{"$ref":"$.a[3]"}}')["b"], [1])

    def test_around(self) -> None:
        """
        A reference to a value around itself (fastjson writes "$", "@" and "..")
        would be a cycle, which no body has: it is refused.
        """
        self.assertRefused('{"a":{"$ref":"$"}}', "references nest deeper")
        self.assertRefused('{"a":{"b":{"$ref":"$.a"}}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"$.a.b"}}', "references nest deeper")
        self.assertRefused('{"a":{"$ref":"@"}}', "a value around itself")
        self.assertRefused('{"a":{"$ref":".."}}', "a value around itself")

    def test_nowhere(self) -> None:
        """
        A path that leads nowhere is refused.
        """
        for path in ("$.x", "$.a[7]", "$.a.b", "$a", "$.", "$.a[x]", "$.n.x"):
            self.assertRefused(f'{{"a":[1],"n":1,"b":{{"$ref":"{path}"}}}}', "leads nowhere")

    def test_notAlone(self) -> None:
        """
        A reference has one member, a path, and is not a key (fastjson: illegal ref).
        """
        self.assertRefused('{"a":{"$ref":"$","x":1}}', "more than a path")
        self.assertRefused('{"a":{"$ref":1}}', "more than a path")
        self.assertRefused('{"a":{},"b":{{"$ref":"$.a"}:1}}', "a reference as a key")

    def test_bomb(self) -> None:
        """
        References that unfold to far more than the text are refused.
        """
        levels = [
            f'"l{n}":[' + ",".join([f'{{"$ref":"$.l{n - 1}"}}'] * 20) + "]" for n in range(1, 12)
        ]
        self.assertRefused('{"l0":[1],' + ",".join(levels) + "}", "unfold to too much")


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

    def test_strings(self) -> None:
        """
        Strings are escaped as fastjson does it, in keys too.
        """
        expected = f"{{{self.PLAIN}:{self.PLAIN}}}".encode()
        self.assertEqual(write({self.TEXT: self.TEXT}), expected)

    def test_standardStrings(self) -> None:
        """
        Standard text is ASCII and has slashes escaped (fastjson, BrowserCompatible).
        """
        expected = f"{{{self.STANDARD}:{self.STANDARD}}}".encode()
        self.assertEqual(write({self.TEXT: self.TEXT}, standard=True), expected)

    def test_halfPair(self) -> None:
        """
        Half a surrogate pair becomes a question mark (fastjson, then getBytes).
        """
        self.assertEqual(write({"k": "a\ud800b"}), b'{"k":"a?b"}')

    def test_doubles(self) -> None:
        """
        Doubles are printed as fastjson prints them: shortest digits, an exponent
        from 1.0E7 on and below 0.001, null for what is not a number.
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
    def test_doubleRoundTrip(self, number: float) -> None:
        """
        A printed double means the same double.
        """
        self.assertEqual(float(write(number)), number)

    def test_members(self) -> None:
        """
        Members are written by name, capitals first, without those that are None;
        an enum by its name.
        """
        self.assertEqual(
            write(Sample(Alpha="a", model=MessageModel.CLUSTERING)),
            b'{"Alpha":"a","model":"CLUSTERING","tags":[],"zulu":1}',
        )
        self.assertEqual(write(Sample()), b'{"tags":[],"zulu":1}')

    def test_sets(self) -> None:
        """
        A set's order depends on its elements alone.
        """
        self.assertEqual(
            write(Sample(tags=frozenset({"c", "a", "b"}))), b'{"tags":["a","b","c"],"zulu":1}'
        )

    def test_keys(self) -> None:
        """
        Integers and objects are written as keys without quotes, in the map's order.
        """
        self.assertEqual(write({1: "a", 0: None, "2": True}), b'{1:"a",0:null,"2":true}')
        self.assertEqual(
            write({MessageQueue("t", "b", 1): [False, 2]}),
            b'{{"brokerName":"b","queueId":1,"topic":"t"}:[false,2]}',
        )

    def test_standardKeys(self) -> None:
        """
        In standard text all keys are strings, and maps are sorted: integers as
        numbers (fastjson; the order as in Java's TreeMap).
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

    def test_unknown(self) -> None:
        """
        What has no JSON form is a programming error.
        """
        self.assertRaises(TypeError, write, object())

    @given(TREES)
    def test_roundTrip(self, tree: Any) -> None:
        """
        What is written is read as the same.
        """
        self.assertEqual(parse(write(tree), objectKey), tree)
