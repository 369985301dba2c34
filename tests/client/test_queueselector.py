# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.sansio.queueselector}.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.client.sansio.faulttable import FaultTable
from txrocket.client.sansio.queueselector import byHash, byMachineRoom, byRandom, inTurn
from txrocket.message import Message
from txrocket.model import MessageQueue

RECORDED = Path(__file__).parent.parent / "fixtures" / "assign.json"

MESSAGE = Message("Orders", b"body")

# How a key of each of Java's classes was written down.
READ: dict[str, Callable[[str], object]] = {
    "String": str,
    "Integer": int,
    "Long": int,
    "Double": float,
    "Boolean": lambda text: text == "true",
}


def queuesOf(**counts: int) -> list[MessageQueue]:
    """
    Queues of brokers, with the number of each.
    """
    return [
        MessageQueue("Orders", broker, queueId)
        for broker, count in counts.items()
        for queueId in range(count)
    ]


class ByHashTests(SynchronousTestCase):
    """
    L{byHash}.
    """

    def test_keyGoesToJavasQueue(self) -> None:
        """
        A key goes to the queue of SelectMessageQueueByHash: text and numbers of all kinds,
        also if the hash is Integer.MIN_VALUE, which has no absolute value in Java.
        """
        recorded = json.loads(RECORDED.read_text("utf-8"))
        self.assertGreater(len(recorded["hashes"]), 80)
        for kind, text, chosen in recorded["hashes"]:
            key = READ[kind](text)
            ours = [
                byHash(queuesOf(a=count), MESSAGE, key).queueId for count in recorded["hashCounts"]
            ]
            self.assertEqual(ours, chosen, (kind, text))

    def test_nanIsOneKey(self) -> None:
        """
        Every NaN is the same key, whatever its bits, as in Java.
        """
        (odd,) = struct.unpack(">d", bytes.fromhex("fff8000000000001"))
        self.assertTrue(math.isnan(odd))
        queues = queuesOf(a=16)
        self.assertEqual(byHash(queues, MESSAGE, odd), byHash(queues, MESSAGE, math.nan))

    @given(st.one_of(st.text(), st.integers(), st.floats(), st.binary()), st.integers(1, 64))
    def test_everyKeyHasOneQueue(self, key: object, count: int) -> None:
        """
        Any key has a queue, and always the same.
        """
        queues = queuesOf(a=count)
        self.assertEqual(byHash(queues, MESSAGE, key), byHash(queues, MESSAGE, key))


class ByRandomTests(SynchronousTestCase):
    """
    L{byRandom}.
    """

    def test_chanceIgnoresKey(self) -> None:
        """
        Chance picks one of all queues, whatever the key.
        """
        asked = []

        def choose(below: int) -> int:
            asked.append(below)
            return below - 1

        queues = queuesOf(a=3, b=2)
        self.assertEqual(byRandom(choose)(queues, MESSAGE, "key"), queues[4])
        self.assertEqual(asked, [5])


class ByMachineRoomTests(SynchronousTestCase):
    """
    L{byMachineRoom}.
    """

    def setUp(self) -> None:
        self.queues = queuesOf(**{"hz@a": 2, "sh@a": 2, "hz@b": 1, "hz": 1})

    def test_onlyRoomsQueuesAreChosen(self) -> None:
        """
        Only queues of brokers named after one of the rooms are chosen, by the key's hash.
        A broker whose name is only like a room is not.
        """
        select = byMachineRoom({"hz", "bj"})
        near = [self.queues[0], self.queues[1], self.queues[4]]
        for key in range(6):
            self.assertEqual(select(self.queues, MESSAGE, key), near[key % 3])

    def test_otherSelectorChoosesInRoom(self) -> None:
        """
        Another selector may choose among them.
        """
        select = byMachineRoom({"sh"}, byRandom(lambda below: below - 1))
        self.assertEqual(select(self.queues, MESSAGE, None), self.queues[3])

    def test_emptyRoomsUseAnyBroker(self) -> None:
        """
        If the rooms have no broker, any is used: no message is lost for that.
        """
        self.assertEqual(byMachineRoom({"gz"})(self.queues, MESSAGE, 5), self.queues[5])


class InTurnTests(SynchronousTestCase):
    """
    L{inTurn}.
    """

    def test_queuesTakeTurns(self) -> None:
        """
        Each queue has its turn, and after the last the first.
        """
        queues = queuesOf(a=2, b=1)
        self.assertEqual([inTurn(queues, turn, None) for turn in range(6)], queues * 2)

    def test_failedBrokerIsSkipped(self) -> None:
        """
        The broker that has just failed is skipped, wherever the turn stands.
        """
        queues = queuesOf(a=2, b=2)
        self.assertEqual(
            [inTurn(queues, turn, "a") for turn in range(4)],
            [queues[2], queues[2], queues[2], queues[3]],
        )

    def test_onlyBrokerIsTriedAgain(self) -> None:
        """
        If there is no other broker, the failed one is tried again.
        """
        queues = queuesOf(a=3)
        self.assertEqual(inTurn(queues, 4, "a"), queues[1])


class FaultTableTests(SynchronousTestCase):
    """
    L{FaultTable}; the numbers are MQFaultStrategy's.
    """

    def rest(self, latency: int, *, failed: bool) -> int:
        """
        For how many milliseconds a broker is left alone.
        """
        table = FaultTable()
        table.add("a", latency, 1_000_000, failed=failed)
        rests = (0, 30_000, 60_000, 120_000, 180_000, 600_000)
        found = next(rest for rest in rests if table.isAvailable("a", 1_000_000 + rest))
        if found:
            self.assertFalse(table.isAvailable("a", 1_000_000 + found - 1))
        return found

    def test_slowerBrokerRestsLonger(self) -> None:
        """
        The slower a broker answered, the longer it is avoided, by Java's latencyMax and
        notAvailableDuration.
        """
        for latency, rest in (
            (0, 0),
            (50, 0),
            (100, 0),
            (549, 0),
            (550, 30_000),
            (999, 30_000),
            (1000, 60_000),
            (2000, 120_000),
            (2999, 120_000),
            (3000, 180_000),
            (14_999, 180_000),
            (15_000, 600_000),
        ):
            self.assertEqual(self.rest(latency, failed=False), rest, latency)

    def test_failureCountsAsThirtySeconds(self) -> None:
        """
        A broker that gave no answer is avoided as if it had taken 30 s, however quickly it
        failed.
        """
        self.assertEqual(self.rest(1, failed=True), 600_000)

    def test_unknownBrokerIsAvailable(self) -> None:
        """
        An unknown broker is available.
        """
        self.assertTrue(FaultTable().isAvailable("a", 0))

    def test_lastAnswerCounts(self) -> None:
        """
        The last answer counts.
        """
        table = FaultTable()
        table.add("a", 20_000, 0, failed=False)
        table.add("a", 10, 1000, failed=False)
        self.assertTrue(table.isAvailable("a", 1000))

    def test_availableQueuesTakeTurns(self) -> None:
        """
        Queues have their turns, except those of avoided brokers, until their time is over.
        """
        queues = queuesOf(a=1, b=1, c=1)
        table = FaultTable()
        table.add("b", 600, 0, failed=False)
        self.assertEqual(
            [table.select(queues, turn, 29_999).brokerName for turn in range(4)],
            ["a", "c", "c", "a"],
        )
        self.assertEqual(table.select(queues, 1, 30_000).brokerName, "b")

    def test_betterHalfIsUsedIfAllAreSlow(self) -> None:
        """
        If all brokers are avoided, those of the better half take turns by latency; brokers
        without a queue of the topic do not count.
        """
        table = FaultTable()
        for broker, latency in (("a", 900), ("b", 600), ("c", 800), ("d", 700), ("z", 560)):
            table.add(broker, latency, 0, failed=False)
        queues = queuesOf(a=2, b=2, c=2, d=2)
        chosen = [table.select(queues, turn, 1) for turn in range(4)]
        self.assertEqual([each.brokerName for each in chosen], ["d", "b", "d", "b"])
        self.assertEqual([each.queueId for each in chosen], [0, 1, 0, 1])

    def test_onlyBrokerIsUsedThoughSlow(self) -> None:
        """
        The only broker is used, however slow.
        """
        table = FaultTable()
        table.add("a", 0, 0, failed=True)
        queues = queuesOf(a=3)
        self.assertEqual([table.select(queues, turn, 1) for turn in range(3)], queues)
