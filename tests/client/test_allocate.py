# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.allocate}.  What Java's strategies give was recorded: see
C{tests/fixtures/assign.rst}.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tests.remoting.doubles import RemotingTests
from txrocket.client.consumer.allocate import (
    Strategy,
    averagely,
    averagelyByCircle,
    byConfig,
    byMachineRoom,
    consistentHash,
    nearby,
)
from txrocket.errors import AssignFailed, ConfigError
from txrocket.model import MessageQueue

RECORDED = Path(__file__).parent.parent / "fixtures" / "assign.json"


class Input(NamedTuple):
    """
    Queues and members to divide.
    """

    queues: list[MessageQueue]
    clientIds: list[str]


@functools.cache
def recorded() -> dict[str, Any]:
    """
    All that was recorded.
    """
    read: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return read


def inputs() -> list[Input]:
    """
    The inputs that Java's strategies were given.
    """
    return [
        Input(
            sorted(
                MessageQueue(topic, broker, queueId)
                for broker, count in brokers
                for queueId in range(count)
            ),
            clientIds,
        )
        for topic, brokers, clientIds in recorded()["inputs"]
    ]


def brokerRoom(queue: MessageQueue) -> str:
    """
    A broker's room, as in the recording.
    """
    return queue.brokerName.partition("@")[0]


def clientRoom(clientId: str) -> str:
    """
    A member's room, as in the recording.
    """
    return clientId.partition("-")[0]


def ours(name: str, parameter: Any) -> Strategy:
    """
    Our strategy in place of a recorded one.
    """
    if name == "AVG":
        return averagely
    if name == "AVG_BY_CIRCLE":
        return averagelyByCircle
    if name == "CONFIG":
        return byConfig(MessageQueue(*each) for each in parameter)
    if name == "MACHINE_ROOM":
        return byMachineRoom(parameter)
    if name == "CONSISTENT_HASH":
        return consistentHash(parameter)
    return nearby(ours(parameter, 10), brokerRoom, clientRoom)


class RecordedTests(SynchronousTestCase):
    """
    Java's strategies and ours, compared.
    """

    def check(self, name: str, variants: int) -> None:
        """
        Hold all that was recorded of a strategy against ours.
        """
        found = [each for each in recorded()["strategies"] if each["name"] == name]
        self.assertEqual(len(found), variants)
        for each in found:
            strategy = ours(name, each["parameter"])
            self.assertEqual(strategy.strategyName, name)
            given = inputs()
            self.assertGreater(len(given), 100)
            for (queues, clientIds), expected in zip(given, each["results"], strict=True):
                members = [*clientIds, recorded()["absent"]]
                if expected is None:
                    for clientId in clientIds:
                        with self.assertRaises(AssignFailed):
                            strategy("group", clientId, queues, clientIds)
                    continue
                known = (
                    [MessageQueue(*queue) for queue in each["parameter"]]
                    if name == "CONFIG"
                    else queues
                )
                self.assertEqual(
                    [list(strategy("group", own, queues, clientIds)) for own in members],
                    [[known[index] for index in indices] for indices in expected],
                    (name, each["parameter"], queues, clientIds),
                )

    def test_averagelyDividesAsJava(self) -> None:
        """
        L{averagely} divides as AllocateMessageQueueAveragely does.
        """
        self.check("AVG", 1)

    def test_byCircleDividesAsJava(self) -> None:
        """
        L{averagelyByCircle} divides as AllocateMessageQueueAveragelyByCircle does.
        """
        self.check("AVG_BY_CIRCLE", 1)

    def test_byConfigGivesConfiguredQueues(self) -> None:
        """
        L{byConfig} gives the configured queues, as AllocateMessageQueueByConfig does.
        """
        self.check("CONFIG", 1)

    def test_byMachineRoomDividesAsJava(self) -> None:
        """
        L{byMachineRoom} divides as AllocateMessageQueueByMachineRoom does, and finds a room
        in a broker's name in the same way.
        """
        self.check("MACHINE_ROOM", 4)

    def test_nearbyDividesAsJava(self) -> None:
        """
        L{nearby} divides as AllocateMachineRoomNearby does with any strategy inside a room,
        and refuses a broker without a room.
        """
        for within in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"):
            self.check(f"MACHINE_ROOM_NEARBY-{within}", 1)

    def test_consistentHashDividesAsJava(self) -> None:
        """
        L{consistentHash} divides as AllocateMessageQueueConsistentHash does, with few and
        many virtual nodes, and with a member listed twice.
        """
        self.check("CONSISTENT_HASH", 3)

    def test_badArgumentsAreRefusedAsByJava(self) -> None:
        """
        An empty client id, no queues or no members are refused where Java refuses them: by
        every strategy except CONFIG, which does not look at them.
        """
        queues, clientIds = inputs()[0]
        for each in recorded()["strategies"]:
            strategy = ours(each["name"], each["parameter"])
            for bad, thrown in zip(
                (
                    ("", queues, clientIds),
                    (clientIds[0], (), clientIds),
                    (clientIds[0], queues, ()),
                ),
                each["bad"],
                strict=True,
            ):
                if thrown is None:
                    self.assertEqual(each["name"], "CONFIG")
                    strategy("group", *bad)
                else:
                    self.assertEqual(thrown, "IllegalArgumentException")
                    error = self.assertRaises(AssignFailed, strategy, "orders", *bad)
                    self.assertIn("group orders: there is no ", str(error))


class ArgumentTests(RemotingTests):
    """
    Arguments that a strategy cannot use.
    """

    def test_unknownMemberGetsNoQueue(self) -> None:
        """
        A member that is not in the list gets no queue, and a log line says so.
        """
        got = averagely("orders", "c", [MessageQueue("T", "b", 0)], ["a", "b"])
        self.assertEqual(list(got), [])
        self.assertEqual(
            self.logged(LogLevel.info),
            ["c is not among the 2 members of group orders: it gets no queue"],
        )

    def test_memberWithoutRoomIsRefused(self) -> None:
        """
        A member without a room is refused by name, with any strategy inside a room.
        """
        strategy = nearby(averagely, brokerRoom, clientRoom)
        error = self.assertRaises(
            AssignFailed, strategy, "g", "hz-a", [MessageQueue("T", "hz@b", 0)], ["-b", "hz-a"]
        )
        self.assertEqual(str(error), "-b is in no machine room")

    def test_ringWithoutNodesIsRefused(self) -> None:
        """
        A ring without virtual nodes cannot be made: no queue would have an owner.
        """
        for count in (0, -1):
            self.assertRaises(ConfigError, consistentHash, count)


# --- properties ----------------------------------------------------------

ROOMS = ("hz", "sh", "bj")

queueLists = st.lists(
    st.builds(
        MessageQueue,
        st.just("Orders"),
        st.builds("{}@{}".format, st.sampled_from(ROOMS), st.sampled_from("abc")),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=40,
    unique=True,
).map(sorted)
memberLists = st.lists(
    st.builds(
        "{}-10.0.0.{}@{}".format,
        st.sampled_from((*ROOMS, "gz")),
        st.integers(1, 254),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
    unique=True,
).map(sorted)

# CONFIG is not among them: what each member is given has nothing to do with the
# others.  MACHINE_ROOM is not: queues outside of its rooms are nobody's.
COMPLETE = (
    averagely,
    averagelyByCircle,
    consistentHash(),
    consistentHash(1),
    nearby(averagely, brokerRoom, clientRoom),
    nearby(averagelyByCircle, brokerRoom, clientRoom),
    nearby(consistentHash(), brokerRoom, clientRoom),
)


def divided(
    strategy: Strategy, queues: Sequence[MessageQueue], clientIds: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    """
    The queues of each member.
    """
    return {each: list(strategy("g", each, queues, clientIds)) for each in clientIds}


class PropertyTests(SynchronousTestCase):
    """
    Rules that hold for all queues and members.
    """

    @given(queueLists, memberLists)
    def test_everyQueueHasOneMember(self, queues: list[MessageQueue], clientIds: list[str]) -> None:
        """
        Each queue is given to exactly one member.
        """
        for strategy in COMPLETE:
            shares = divided(strategy, queues, clientIds).values()
            given = sorted(queue for share in shares for queue in share)
            self.assertEqual(given, queues, strategy)

    @given(queueLists, memberLists, st.sets(st.sampled_from(ROOMS)))
    def test_everyQueueInRoomsHasOneMember(
        self, queues: list[MessageQueue], clientIds: list[str], rooms: set[str]
    ) -> None:
        """
        By machine room, each queue in the rooms is given to exactly one member, and no
        other queue is given to any.
        """
        shares = divided(byMachineRoom(rooms), queues, clientIds).values()
        given = sorted(queue for share in shares for queue in share)
        self.assertEqual(given, [each for each in queues if brokerRoom(each) in rooms])

    @given(queueLists, memberLists)
    def test_queuesAreDividedEvenly(self, queues: list[MessageQueue], clientIds: list[str]) -> None:
        """
        By number, no member gets two queues more than another.  AVG gives each member
        neighbouring queues.
        """
        for strategy in (averagely, averagelyByCircle, byMachineRoom(ROOMS)):
            counts = [len(share) for share in divided(strategy, queues, clientIds).values()]
            self.assertLessEqual(max(counts) - min(counts), 1, strategy)
        inLine = [
            queue for share in divided(averagely, queues, clientIds).values() for queue in share
        ]
        self.assertEqual(inLine, queues)

    @given(queueLists, memberLists)
    def test_queueLeavesRoomOnlyIfEmpty(
        self, queues: list[MessageQueue], clientIds: list[str]
    ) -> None:
        """
        Nearby, a queue leaves its room only if the room has no member.
        """
        manned = {clientRoom(each) for each in clientIds}
        for strategy in COMPLETE[-3:]:
            for clientId, share in divided(strategy, queues, clientIds).items():
                rooms = {brokerRoom(each) for each in share}
                self.assertLessEqual(rooms & manned, {clientRoom(clientId)})

    @given(queueLists, memberLists, st.randoms(use_true_random=False))
    def test_ringIgnoresOrderOfMembers(
        self, queues: list[MessageQueue], clientIds: list[str], chance: Any
    ) -> None:
        """
        By hash, members agree even if their lists are in different orders.  By number they
        need not agree, so the lists are sorted.
        """
        mixedQueues, mixedIds = queues[:], clientIds[:]
        chance.shuffle(mixedQueues)
        chance.shuffle(mixedIds)
        for strategy in (consistentHash(), nearby(consistentHash(), brokerRoom, clientRoom)):
            mixed = divided(strategy, mixedQueues, mixedIds)
            for clientId, share in divided(strategy, queues, clientIds).items():
                self.assertEqual(sorted(mixed[clientId]), sorted(share))

    @given(queueLists, memberLists, st.data())
    def test_leavingMemberMovesItsQueuesOnly(
        self, queues: list[MessageQueue], clientIds: list[str], data: st.DataObject
    ) -> None:
        """
        By hash, when a member leaves only its own queues move.
        """
        gone = data.draw(st.sampled_from(clientIds))
        left = [each for each in clientIds if each != gone]
        before = divided(consistentHash(), queues, clientIds)
        for clientId, share in divided(consistentHash(), queues, left).items():
            self.assertLessEqual(set(before[clientId]), set(share))

    def test_manyNodesSpreadQueues(self) -> None:
        """
        By hash with many virtual nodes, none of ten members has three times its share.
        """
        queues = [
            MessageQueue("Orders", f"broker-{name}", at) for name in "abcd" for at in range(64)
        ]
        clientIds = [f"10.0.0.{number}@4711#1" for number in range(10)]
        shares = divided(consistentHash(200), queues, clientIds)
        counts = Counter({each: len(share) for each, share in shares.items()})
        self.assertLess(counts.most_common(1)[0][1], 3 * len(queues) / len(clientIds))
