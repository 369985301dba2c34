# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.read.pushdown}.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from pyspark_rocketmq.read.planning import Range
from pyspark_rocketmq.read.pushdown import PushedFilters
from twisted.trial.unittest import SynchronousTestCase

from txrocket.model import MessageQueue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Spark's filters, by their names and members; Spark itself need not be there.
class EqualTo(NamedTuple):
    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo):
    pass


class GreaterThanOrEqual(EqualTo):
    pass


class LessThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


class In(EqualTo):
    pass


class StringStartsWith(EqualTo):
    pass


class IsNotNull(NamedTuple):
    attribute: tuple[str, ...]


class Not(NamedTuple):
    child: Any


def matches(wanted: Any, value: Any) -> bool:
    """
    What a filter means.
    """
    kind, other = type(wanted), wanted.value
    if kind is In:
        return value in other
    return bool(
        {
            EqualTo: value == other,
            GreaterThan: value > other,
            GreaterThanOrEqual: value >= other,
            LessThan: value < other,
            LessThanOrEqual: value <= other,
        }[kind]
    )


# A message's place: its store time in milliseconds is three times its offset.
def storedAt(offset: int) -> datetime:
    """
    When a message was stored.
    """
    return EPOCH + timedelta(milliseconds=3 * offset)


def firstAt(queue: MessageQueue, when: int, low: int, high: int) -> int:
    """
    The first message at a time or later.
    """
    return next((each for each in range(low, high) if 3 * each >= when), high)


comparisons = st.sampled_from((EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual))
small = st.integers(-1, 12)
instants = st.integers(-2000, 40_000).map(lambda each: EPOCH + timedelta(microseconds=each))


def filtersOn(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """
    Filters on a column.
    """
    one = st.builds(lambda kind, value: kind((column,), value), comparisons, values)
    several = st.lists(values, min_size=1, max_size=3).map(lambda each: In((column,), tuple(each)))
    return one | several


names = st.sampled_from("TUab")
filters = st.one_of(
    filtersOn("queueId", small),
    filtersOn("queueOffset", small),
    filtersOn("storeTimestamp", instants),
    st.builds(lambda name: EqualTo(("topic",), name), names),
    st.builds(lambda name: EqualTo(("brokerName",), name), names),
    st.lists(names, max_size=2).map(lambda each: In(("topic",), tuple(each))),
)

QUEUES = [MessageQueue(topic, broker, n) for topic in "TU" for broker in "ab" for n in (0, 1)]
RANGES = [Range(queue, 2, 10) for queue in QUEUES]


class PushedFiltersTests(SynchronousTestCase):
    """
    What is left to be read.
    """

    def applied(self, *wanted: Any) -> list[Range]:
        """
        What filters leave.
        """
        filters = PushedFilters()
        for each in wanted:
            filters = filters.add(each)
        return filters.apply(RANGES, firstAt)

    @given(st.lists(filters, max_size=4))
    def test_nothingLost(self, wanted: list[Any]) -> None:
        """
        Every message that matches all filters is still read.
        """

        def row(queue: MessageQueue, offset: int) -> dict[str, Any]:
            return {
                "topic": queue.topic,
                "brokerName": queue.brokerName,
                "queueId": queue.queueId,
                "queueOffset": offset,
                "storeTimestamp": storedAt(offset),
            }

        expected = {
            (each.queue, offset)
            for each in RANGES
            for offset in range(each.start, each.end)
            if all(matches(one, row(each.queue, offset)[one.attribute[0]]) for one in wanted)
        }
        found = self.applied(*wanted)
        left = {(each.queue, at) for each in found for at in range(each.start, each.end)}
        self.assertLessEqual(expected, left)
        self.assertTrue(all(len(each) for each in found))
        # Of comparisons nothing is read that does not match.
        if not any(isinstance(each, In) for each in wanted):
            self.assertEqual(expected, left)

    def test_eachColumnNarrowsRanges(self) -> None:
        """
        Each column narrows what is read.
        """
        for wanted, count in (
            (EqualTo(("topic",), "T"), 4),
            (EqualTo(("TOPIC",), "T"), 4),
            (In(("topic",), ("T", "V")), 4),
            (EqualTo(("brokerName",), "none"), 0),
            (GreaterThan(("queueId",), 0), 4),
            (LessThan(("queueOffset",), 2), 0),
        ):
            self.assertEqual(len(self.applied(wanted)), count)
        (each, *_) = self.applied(
            GreaterThanOrEqual(("storeTimestamp",), storedAt(4)),
            LessThan(("storeTimestamp",), storedAt(7)),
        )
        self.assertEqual((each.start, each.end), (4, 7))

    def test_otherFiltersLeaveAll(self) -> None:
        """
        A filter that says nothing about a place leaves all.
        """
        for wanted in (
            EqualTo(("tags",), "x"),
            EqualTo(("properties", "topic"), "T"),
            EqualTo(("topic",), 5),
            EqualTo(("queueId",), True),
            EqualTo(("queueId",), "0"),
            EqualTo(("storeTimestamp",), 5),
            # Without a zone it is no point in time.
            LessThan(("storeTimestamp",), datetime(1970, 1, 1)),
            In(("queueId",), ()),
            In(("queueId",), (0, None)),
            StringStartsWith(("topic",), "T"),
            IsNotNull(("topic",)),
            IsNotNull(("queueId",)),
            Not(EqualTo(("topic",), "T")),
        ):
            self.assertEqual(self.applied(wanted), RANGES)
