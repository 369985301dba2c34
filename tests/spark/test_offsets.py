# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.read.offsets}.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.read.offsets import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    Position,
    fromJson,
    toJson,
)
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import ConfigError
from txrocket.model import MessageQueue

queues = st.builds(
    MessageQueue, st.sampled_from("TUV"), st.sampled_from("abc"), st.integers(0, 2**31 - 1)
)
tables = st.dictionaries(queues, st.integers(0, 2**63 - 1))


class JsonTests(SynchronousTestCase):
    """
    The content of a checkpoint.
    """

    def test_jsonIsSorted(self) -> None:
        """
        The form is documented, and in the order of names and numbers.
        """
        offsets = {
            MessageQueue("U", "a", 0): 1,
            MessageQueue("T", "b", 10): 2,
            MessageQueue("T", "b", 9): 3,
            MessageQueue("T", "a", 0): 4,
        }
        self.assertEqual(
            json.dumps(toJson(offsets)),
            '{"v": 1, "offsets": {"T": {"a": {"0": 4}, "b": {"9": 3, "10": 2}},'
            ' "U": {"a": {"0": 1}}}}',
        )
        self.assertEqual(json.dumps(UNKNOWN), '{"v": 1}')

    @given(tables, st.randoms())
    def test_offsetsAreReadBack(self, offsets: dict[MessageQueue, int], chance: object) -> None:
        """
        Written offsets are read back, and equal offsets are equal texts, in whatever order
        they came to be known.
        """
        text = json.dumps(toJson(offsets))
        self.assertEqual(fromJson(json.loads(text)), offsets)
        items = list(offsets.items())
        chance.shuffle(items)  # type: ignore[attr-defined]
        self.assertEqual(json.dumps(toJson(dict(items))), text)

    def test_unknownOffsetsDifferFromNone(self) -> None:
        """
        Nothing known is not the same as no queues.
        """
        self.assertIsNone(fromJson(UNKNOWN))
        self.assertEqual(fromJson(toJson({})), {})

    def test_foreignOffsetsAreRefused(self) -> None:
        """
        The offsets of another source, or of a version to come, are refused.
        """
        for tree in (
            {"Orders": {"0": 1}},
            {"v": 2, "offsets": {}},
            {"v": 1, "offsets": {"T": 5}},
            {"v": 1, "offsets": {"T": {"a": {"x": 1}}}},
            {"v": 1, "offsets": {"T": {"a": {"0": None}}}},
        ):
            error = self.assertRaises(ConfigError, fromJson, tree)
            self.assertIn("the checkpoint's offsets", str(error))


class PositionTests(SynchronousTestCase):
    """
    Where to begin and end.
    """

    QUEUES = (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0))

    def test_wordsApplyToAllQueues(self) -> None:
        """
        Two words are good for all queues.
        """
        for word, value in (("earliest", EARLIEST), ("Latest", LATEST)):
            position = Position.word("startingOffsets", word)
            position.check(self.QUEUES)
            self.assertEqual({position.of(each) for each in self.QUEUES}, {value})

    def test_valueAppliesToQueueBrokerOrTopic(self) -> None:
        """
        A value counts for a queue, or for all of a broker, or of a topic.
        """
        position = Position.word("o", '{"T": {"a": {"0": 5, "1": -1}, "b": -2}}')
        position.check(self.QUEUES)
        self.assertEqual([position.of(each) for each in self.QUEUES], [5, -1, -2])
        position = Position.word("o", '{"T": 7, "U": {"a": 1}}')
        self.assertEqual([position.of(each) for each in self.QUEUES], [7, 7, 7])
        self.assertIsNone(position.of(MessageQueue("U", "b", 0)))
        self.assertIsNone(position.of(MessageQueue("W", "b", 0)))

    def test_missingAndExtraQueuesAreNamed(self) -> None:
        """
        A queue that nothing is said about is named, and a value for one that there is
        not.
        """
        position = Position.word("o", '{"T": {"a": {"0": 5}}}')
        error = self.assertRaises(ConfigError, position.check, self.QUEUES)
        self.assertEqual(str(error), "option o: has no value for T/a/1, T/b/0")
        many = [MessageQueue("T", "c", number) for number in range(9)]
        error = self.assertRaises(ConfigError, position.check, many)
        self.assertIn("T/c/4 and 4 more", str(error))
        # As Kafka has it, by topic and partition.
        position = Position.word("o", '{"T": {"0": 5, "a": 1, "b": {"0": 1, "7": 1}}}')
        error = self.assertRaises(ConfigError, position.check, self.QUEUES)
        self.assertEqual(str(error), "option o: T/0, T/b/7 is not among the queues to be read")

    def test_malformedPositionIsRefused(self) -> None:
        """
        A position that is neither a word nor such a table is refused, with its place.
        """
        for text, says in (
            ("newest", "neither earliest nor latest nor JSON"),
            ("{", "is not JSON"),
            ('{"T": 1' + "x" * 100, "..."),
            ("{}", "it is empty"),
            ('{"T": {}}', "T is empty"),
            ('{"T": -3}', "T: -3 is not a number from -2 on"),
            ('{"T": true}', "T: True is not a number"),
            ('{"T": {"a": "1"}}', "T/a: '1' is not a number"),
            ('{"T": {"a": {"x": 1}}}', "'x' is not a queue number"),
            ('{"T": {"a": {"0": {"1": 2}}}}', "T/a/0 is a queue and must have a number"),
            ('{"T": 9223372036854775808}', "is not a number"),
            ("{" + '"a":{' * 5000, "is not JSON"),
        ):
            error = self.assertRaises(ConfigError, Position.word, "startingOffsets", text)
            self.assertIn(says, str(error))
            self.assertTrue(str(error).startswith("option startingOffsets: "))
