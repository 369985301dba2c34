# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.write.rowmessages}.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.write.rowmessages import RowIds, RowMessage, checkColumns, rowMessages
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import ConfigError, InvalidMessage
from txrocket.message import splitProperties
from txrocket.protocol.record.batch import decodeBatch, encodeItem

places = st.tuples(st.text(max_size=3), st.integers(0, 50), st.integers(0, 50), st.integers(0, 500))


class IdsTests(SynchronousTestCase):
    """
    The ids of rows.
    """

    @given(places, places)
    def test_idFollowsFromPlace(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
        """
        Rows have the same id if they are at the same place, and else not.
        """
        first, second = (RowIds(*place[:3]).of(place[3]) for place in (one, other))
        self.assertEqual(first == second, one == other)
        self.assertRegex(first, re.compile(r"[0-9A-F]{32}\Z"))

    def test_idHasZerosForTime(self) -> None:
        """
        Digits 20 to 28, in which clients have a time, are near 0: tools look from that time
        on, and no messages are before it.
        """
        self.assertEqual(RowIds("job", 1, 2).of(65_535)[20:], "00000000FFFF")
        self.assertEqual(RowIds("job", 1, 2).of(65_536)[20:28], "00000001")


class ColumnsTests(SynchronousTestCase):
    """
    The columns of the sink.
    """

    def test_columnsAreMatchedByName(self) -> None:
        """
        Those that there are are used, by the names that they have; those of the source
        that say nothing to the sink are not.
        """
        used = checkColumns(
            [("Body", "string"), ("topic", "string"), ("storeTimestamp", "timestamp")], None
        )
        self.assertEqual(used, {"body": "Body", "topic": "topic"})
        used = checkColumns([("body", "binary"), ("topic", "string")], "T")
        self.assertEqual(used, {"body": "body"})

    def test_allProblemsAreListed(self) -> None:
        """
        All that is wrong is told: unknown names, other types, what is missing.
        """
        error = self.assertRaises(
            ConfigError,
            checkColumns,
            [("tag", "string"), ("keys", "int"), ("KEYS", "string")],
            None,
        )
        unknown, kind, twice, body, topic = error.problems
        self.assertIn("no column tag; it has body, topic, tags", unknown)
        self.assertEqual(kind, "the column keys must be of type string or array<string>, not int")
        self.assertEqual(twice, "the column keys is there twice")
        self.assertEqual(body, "the column body is missing")
        self.assertIn("give the option topic", topic)


class RowMessagesTests(SynchronousTestCase):
    """
    Rows as messages.
    """

    def rows(
        self, columns: dict[str, list[Any]], topic: str | None = "T", first: int = 0
    ) -> list[RowMessage]:
        """
        The messages of some rows.
        """
        count = len(columns["body"])
        return list(rowMessages(columns, count, topic, RowIds("j", 0, 0), first))

    def properties(self, each: RowMessage) -> dict[str, str]:
        """
        A message's properties but for its id.
        """
        table = splitProperties(each.properties.decode())
        self.assertEqual(table.pop("UNIQ_KEY"), each.msgId)
        return table

    def test_columnsBecomeMessageFields(self) -> None:
        """
        Each column says something, and null says nothing.
        """
        first, second = self.rows(
            {
                "body": [b"x", "ü"],
                "topic": ["A", "B"],
                "tags": ["t", None],
                "keys": ["k1 k2", ["k3", None, "k4"]],
                "properties": [[("a", "1"), ("b", ""), ("c", None)], None],
                "queueId": [3, None],
                "brokerName": ["b", None],
                "delayLevel": [2, None],
                "flag": [9, None],
            },
            topic=None,
            first=7,
        )
        self.assertEqual(first[:6], ("A", "b", 3, 2, 9, b"x"))
        self.assertEqual(self.properties(first), {"a": "1", "TAGS": "t", "KEYS": "k1 k2"})
        self.assertEqual(first.msgId, RowIds("j", 0, 0).of(7))
        self.assertEqual(second[:6], ("B", None, None, 0, 0, "ü".encode()))
        self.assertEqual(self.properties(second), {"KEYS": "k3 k4"})
        self.assertEqual(second.msgId, RowIds("j", 0, 0).of(8))

    def test_reservedPropertiesAreDropped(self) -> None:
        """
        Of the properties by which RocketMQ says something only tags and keys are sent
        again, and columns go before them.
        """
        told = [
            *(("UNIQ_KEY", "old"), ("DELAY", "3"), ("TRAN_MSG", "true"), ("REAL_TOPIC", "X")),
            *(("MIN_OFFSET", "0"), ("WAIT", "false"), ("TAGS", "t"), ("KEYS", "k"), ("own", "1")),
        ]
        (each,) = self.rows({"body": [b"x"], "properties": [told]})
        self.assertEqual(self.properties(each), {"TAGS": "t", "KEYS": "k", "own": "1"})
        (each,) = self.rows({"body": [b"x"], "properties": [told], "tags": ["u"]})
        self.assertEqual(self.properties(each)["TAGS"], "u")

    def test_encodedItemIsDecodedEqual(self) -> None:
        """
        An encoded one is read as the message that it is.
        """
        (each,) = self.rows({"body": [b"x"], "tags": ["t"], "flag": [5]})
        (message,) = decodeBatch(encodeItem(each.body, each.properties, each.flag), "T")
        self.assertEqual((message.body, message.tags, message.flag), (b"x", "t", 5))

    def test_invalidRowIsNamed(self) -> None:
        """
        A row that cannot be sent is named.
        """
        cases: list[tuple[dict[str, list[Any]], str]] = [
            ({"body": [b"x", None]}, "row 1 of the partition cannot be sent: the body is null"),
            ({"body": [b"x", b""]}, "the body is null or empty"),
            ({"body": [b"x", b"x"], "tags": ["t", "\x01"]}, "row 1 of the partition"),
            ({"body": [b"x"], "properties": [[("a", "b" * 40_000)]]}, "properties of 40"),
        ]
        for columns, says in cases:
            error = self.assertRaises(InvalidMessage, self.rows, columns)
            self.assertIn(says, str(error))
        for topic in (None, "", "a b", "SCHEDULE_TOPIC_XXXX"):
            columns = {"body": [b"x"], "topic": [topic]}
            error = self.assertRaises(InvalidMessage, self.rows, columns, None)
            self.assertIn("row 0", str(error))
