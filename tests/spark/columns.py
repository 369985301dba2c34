# SPDX-License-Identifier: Apache-2.0
"""
Records as columns, held against records decoded one by one.  Needs Arrow.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.columns.arrow import recordBatch, slices
from pyspark_rocketmq.columns.positions import positionsIn
from pyspark_rocketmq.columns.properties import PropertyColumns
from pyspark_rocketmq.columns.records import Records
from pyspark_rocketmq.columns.schema import COLUMNS, FURTHER
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.javarecords import javaRows
from tests.spark.logs import record
from txrocket.errors import MalformedRecord, UnsupportedCompression
from txrocket.message import splitProperties
from txrocket.protocol.record import decodeRecords, encodeHost, encodeRecord, encodeTopic

TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
KINDS = {**COLUMNS, **FURTHER}
SCHEMA = pa.schema([(name, TYPES[kind]) for name, kind in KINDS.items()])

hosts = st.sampled_from(
    [encodeHost("192.0.2.1", 10911), encodeHost("10.0.0.7", 65535), encodeHost("2001:db8::7", 1)]
)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
times = st.integers(-(2**63), 2**63 - 1)
# Names and values of properties, with all that can be wrong with them.
pieces = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\x01", b"\x02", b"x y", "é世".encode(), b"\xff", b"1"]
)
entries = st.tuples(st.sampled_from([b"TAGS", b"a", b"b"]), st.sampled_from([b"1", b"2", b""]))
properties = st.lists(pieces, max_size=9).map(b"".join) | st.lists(entries, max_size=6).map(
    lambda given: b"\x02".join(b"%b\x01%b" % each for each in given)
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """
    A record of any kind.
    """
    body = draw(st.binary(max_size=40))
    sysFlag = draw(st.sampled_from((0, 2, 4, 8)))
    if body and draw(st.booleans()):
        body, sysFlag = zlib.compress(body), sysFlag | draw(st.sampled_from((0x1, 0x301)))
    return encodeRecord(
        encodeTopic(draw(st.sampled_from(("T", "Orders", "世界", "")))),
        body,
        draw(properties),
        draw(ints),
        draw(ints),
        draw(longs),
        draw(longs),
        sysFlag,
        draw(times),
        draw(hosts),
        draw(times),
        draw(hosts),
        draw(ints),
        draw(longs),
    )


def row(message: Any) -> dict[str, Any]:
    """
    What the columns of a message are.
    """

    def instant(time: int) -> int:
        # Spark counts microseconds.
        return min(max(time, -(2**63) // 1000 + 1), 2**63 // 1000)

    def address(host: tuple[str, int]) -> str:
        return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"

    return {
        "topic": message.topic,
        "brokerName": "b",
        "queueId": message.queueId,
        "queueOffset": message.queueOffset,
        "msgId": message.msgId,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "properties": dict(message.properties),
        "bornTimestamp": instant(message.bornTimestamp),
        "storeTimestamp": instant(message.storeTimestamp),
        "bornHost": address(message.bornHost),
        "reconsumeTimes": message.reconsumeTimes,
        "body": message.body,
        "offsetMsgId": message.offsetMsgId,
        "commitLogOffset": message.commitLogOffset,
        "storeHost": address(message.storeHost),
        "flag": message.flag,
        "sysFlag": message.sysFlag,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """
    The rows of a batch.
    """
    found = []
    for name in ("bornTimestamp", "storeTimestamp"):
        index = batch.schema.get_field_index(name)
        # In milliseconds, since not all of them are dates that Python has.
        batch = batch.set_column(
            index, name, pa.compute.divide(batch.column(index).cast(pa.int64()), 1000)
        )
    for each in batch.to_pylist():
        assert len(dict(each["properties"])) == len(each["properties"])
        found.append({**each, "properties": dict(each["properties"])})
    return found


class ColumnsTests(SynchronousTestCase):
    """
    All columns at once.
    """

    def same(self, data: bytes) -> None:
        """
        The columns have what the messages have.
        """
        positions, end = positionsIn(data)
        self.assertEqual(end, len(data))
        batch = recordBatch(Records(data, positions), list(KINDS), SCHEMA, brokerName="b")
        self.assertEqual(batch.schema, SCHEMA)
        batch.validate(full=True)
        expected = [row(each) for each in decodeRecords(data)]
        for index, each in enumerate(decodeRecords(data, inflate=False)):
            # How it is stored, and not how it is given.
            expected[index]["sysFlag"] = each.sysFlag
        self.assertEqual(rows(batch), expected)

    @given(st.lists(records(), max_size=6).map(b"".join))
    def test_anyRecordsMatchMessages(self, data: bytes) -> None:
        """
        Whatever records there are, columns and messages agree.
        """
        self.same(data)

    def test_javaRecordsMatchMessages(self) -> None:
        """
        So they do for records that Java made.
        """
        made = [base64.b64decode(each["record"]) for each in javaRows("record")]
        self.assertGreater(len(made), 10)
        readable = []
        for data in made:
            try:
                decodeRecords(data)
                readable.append(data)
            except MalformedRecord:
                pass
        self.same(b"".join(readable))

    def test_onlySchemaColumnsAreMade(self) -> None:
        """
        Only what is asked for is made, under the names of the schema, and a topic that
        is known is not looked for.
        """
        data = record(0, topic="T", TAGS="x")
        schema = pa.schema([("TAGS", pa.string()), ("Topic", pa.string())])
        batch = recordBatch(Records(data, [0]), ["tags", "topic"], schema, topic="Other")
        self.assertEqual(batch.to_pylist(), [{"TAGS": "x", "Topic": "Other"}])


class RecordsTests(SynchronousTestCase):
    """
    Records that are damaged, or not wanted.
    """

    def test_noRecordsGiveEmptyColumns(self) -> None:
        """
        There may be none.
        """
        batch = recordBatch(Records(b"", []), list(KINDS), SCHEMA)
        self.assertEqual((batch.num_rows, batch.schema), (0, SCHEMA))

    def test_whereSelectsRecords(self) -> None:
        """
        Some of them are chosen by truth values.
        """
        data = record(0, b"a") + record(1, b"b") + record(2, b"c")
        every = Records(data, positionsIn(data)[0])
        self.assertIs(every.where(np.array([True] * 3)), every)
        some = every.where(np.array([True, False, True]))
        self.assertEqual(some.body.to_pylist(), [b"a", b"c"])

    @given(records(), st.data())
    def test_damagedRecordRaisesOurError(self, good: bytes, data: st.DataObject) -> None:
        """
        A record whose bytes are changed gives columns, or one of our errors.
        """
        broken = bytearray(good)
        for _ in range(data.draw(st.integers(1, 3))):
            # The head, and all lengths behind it.
            index = data.draw(st.integers(8, len(broken) - 1))
            broken[index] = data.draw(st.integers(0, 255))
        whole = bytes(broken) + record(0)
        try:
            found = Records(whole, [0, len(broken)])
            recordBatch(found, list(KINDS), SCHEMA).validate(full=True)
        except (MalformedRecord, UnsupportedCompression):
            pass

    def test_inconsistentLengthsAreReported(self) -> None:
        """
        Lengths that do not add up are told, with the place.
        """
        good = record(0, b"body", topic="T", TAGS="x")
        bodyLength, topicLength = 84, 88 + 4
        for at, wrong in (
            (bodyLength, b"\xff\xff\xff\xff"),
            (bodyLength, b"\0\0\0\x7f"),
            (bodyLength, b"\0\0\0\x05"),
            (topicLength, b"\xff"),
            (topicLength + 2, b"\xff\xff"),
            (topicLength + 2, b"\0\0"),
            # Addresses that would be longer than there is room.
            (36, b"\0\0\0\x30"),
        ):
            bad = good[:at] + wrong + good[at + len(wrong) :]
            error = self.assertRaises(MalformedRecord, Records, good + bad, [0, len(good)])
            self.assertIn(f"record at {len(good)}", str(error))

    def test_unreadableBodyIsNamed(self) -> None:
        """
        A body that cannot be read is named, and is available as it is stored.
        """
        data = record(700, b"damaged", number=7, sysFlag=0x301)
        error = self.assertRaises(MalformedRecord, lambda: Records(data, [0]).body)
        self.assertIn("message 7 in queue 0 of topic T, at 700 in the log", str(error))
        self.assertEqual(Records(data, [0]).storedBody.to_pylist(), [b"damaged"])

    def test_topicNotUtf8IsError(self) -> None:
        """
        A topic that is not UTF-8 is an error.
        """
        data = record(0, topic="Topic").replace(b"Topic", b"\xff" * 5)
        self.assertRaises(MalformedRecord, lambda: Records(data, [0]).topic)


class PropertiesTests(SynchronousTestCase):
    """
    Properties of many messages.
    """

    @given(st.lists(properties, max_size=6))
    def test_propertiesSplitAsForOneMessage(self, given_: list[bytes]) -> None:
        """
        They are split as those of one message are.
        """
        found = PropertyColumns(pa.array(given_, pa.binary()))
        expected = [splitProperties(str(each, "utf-8", "replace")) for each in given_]
        maps = [dict(each) for each in found.maps.to_pylist()]
        self.assertEqual(maps, expected)
        for name in ("TAGS", "a"):
            self.assertEqual(found.named(name).to_pylist(), [each.get(name) for each in expected])

    def test_lastOfRepeatedNamesCounts(self) -> None:
        """
        Of two entries with one name the last counts, however many names there are.
        """
        for count in (5, 100):
            many = [b"n%d\x01%d" % (number, number) for number in range(count)]
            rows = [b"\x02".join(many), b"n3\x01x\x02n4\x01y\x02n3\x01z", b"", many[0]]
            found = PropertyColumns(pa.array(rows, pa.binary())).maps.to_pylist()
            self.assertEqual([len(each) for each in found], [count, 2, 0, 1])
            self.assertEqual(dict(found[1]), {"n3": "z", "n4": "y"})

    def test_slicedArrayIsSplit(self) -> None:
        """
        A part of an array is one, too.
        """
        array = pa.array([b"a\x011", b"b\x012\x02", b"", b"c\x013"], pa.binary())[1:3]
        self.assertEqual(PropertyColumns(array).maps.to_pylist(), [[("b", "2")], []])

    def test_emptyAndTouchingSlicesAreCopied(self) -> None:
        """
        Slices may be empty, and touch.
        """
        found = slices(b"abcdef", np.array([0, 2, 2, 5]), np.array([2, 2, 4, 6]))
        self.assertEqual(found.to_pylist(), [b"ab", b"", b"cd", b"f"])
        self.assertEqual(slices(b"", np.array([]), np.array([])).to_pylist(), [])
