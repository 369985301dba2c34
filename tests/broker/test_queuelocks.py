# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.clients.queuelocks}.
"""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.clients.queuelocks import Holder, QueueLocks
from txrocket.model import MessageQueue
from txrocket.protocol.bodies.inspect import HeldLock, LockList
from txrocket.protocol.fastjson import finish

Q0, Q1, Q2 = (MessageQueue("T", "broker-a", each) for each in range(3))

Step: TypeAlias = tuple[str, str, str, frozenset[MessageQueue], int]

steps = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock", "expire"]),
        st.sampled_from(["G", "H"]),
        st.sampled_from(["c1", "c2"]),
        st.frozensets(st.sampled_from([Q0, Q1])),
        st.sampled_from([0, 1, 59_999, 60_000, 60_001]),
    )
)


class LockTests(SynchronousTestCase):
    """
    L{QueueLocks}.
    """

    def setUp(self) -> None:
        self.locks = QueueLocks()

    def test_freeQueueIsLocked(self) -> None:
        """
        The first client to ask has the queues, and again whenever it asks.
        """
        self.assertEqual(self.locks.lock("G", [Q0, Q1], "c1", 0), {Q0, Q1})
        self.assertEqual(self.locks.lock("G", [Q1, Q2], "c1", 1), {Q1, Q2})

    def test_queueOfAnotherStaysLocked(self) -> None:
        """
        A consumer does not get queues that another one of the group holds; of the
        rest, all.
        """
        self.locks.lock("G", [Q0], "c1", 0)
        self.assertEqual(self.locks.lock("G", [Q0, Q1], "c2", 60_000), {Q1})

    def test_firstListsLocks(self) -> None:
        """
        The locks of all groups can be listed, or of one: their holders, for how long they
        hold them, and how long they are silent; up to a limit, and how many more there are.
        """
        self.locks.lock("G", [Q0, Q1], "c1", 0)
        self.locks.lock("H", [Q0], "c2", 50_000)
        self.locks.lock("G", [Q0], "c1", 40_000)
        told = finish(self.locks.first(10, 60_000))
        self.assertEqual(
            told,
            LockList(
                (
                    HeldLock("G", Q0, "c1", 60_000, 20_000),
                    HeldLock("G", Q1, "c1", 60_000, 60_000),
                    HeldLock("H", Q0, "c2", 10_000, 10_000),
                )
            ),
        )
        self.assertEqual(finish(self.locks.first(1, 60_000)), LockList(told.locks[:1], 2))
        self.assertEqual(finish(self.locks.first(9, 60_000, "H")), LockList(told.locks[2:]))
        self.assertEqual(finish(self.locks.first(9, 60_000, "I")), LockList())
        # Expired locks are not listed.
        self.assertEqual(len(finish(self.locks.first(9, 60_001)).locks), 2)

    def test_groupsHaveTheirOwnLocks(self) -> None:
        """
        Groups do not know each other's locks.
        """
        self.locks.lock("G", [Q0], "c1", 0)
        self.assertEqual(self.locks.lock("H", [Q0], "c2", 0), {Q0})
        self.locks.unlock("H", [Q0], "c1")
        self.assertEqual(self.locks.lock("H", [Q0], "c1", 0), set())

    def test_silentHolderLosesLock(self) -> None:
        """
        More than 60 seconds after its holder last asked, a lock is free, to the
        millisecond as in Java.
        """
        self.locks.lock("G", [Q0], "c1", 0)
        self.locks.lock("G", [Q0], "c1", 50_000)
        self.assertEqual(self.locks.lock("G", [Q0], "c2", 110_000), set())
        self.assertEqual(self.locks.lock("G", [Q0], "c2", 110_001), {Q0})
        self.assertEqual(self.locks.lock("G", [Q0], "c1", 110_002), set())

    def test_lockLivesForItsSetting(self) -> None:
        """
        The lifetime of a lock can be set.
        """
        locks = QueueLocks(maxLiveTime=5)
        locks.lock("G", [Q0], "c1", 0)
        self.assertEqual(locks.lock("G", [Q0], "c2", 5), set())
        self.assertEqual(locks.lock("G", [Q0], "c2", 6), {Q0})

    def test_onlyHolderUnlocks(self) -> None:
        """
        Only its holder releases a lock; queues that it does not hold do not matter.
        """
        self.locks.lock("G", [Q0, Q1], "c1", 0)
        self.locks.unlock("G", [Q0, Q2], "c2")
        self.assertEqual(self.locks.lock("G", [Q0], "c2", 0), set())
        self.locks.unlock("G", [Q0, Q2], "c1")
        self.assertEqual(self.locks.lock("G", [Q0, Q1], "c2", 0), {Q0})
        self.locks.unlock("none", [Q0], "c1")

    def test_holdersAreListedWithAges(self) -> None:
        """
        The holder of each lock can be listed, with how long it has had it and how
        long it has been silent; an expired lock has none.
        """
        self.locks.lock("G", [Q0, Q1], "c1", 1_000)
        self.locks.lock("G", [Q0], "c1", 21_000)
        self.locks.lock("G", [Q2], "c2", 22_000)
        self.assertEqual(
            self.locks.holders("G", 61_000),
            {
                Q0: Holder("c1", 60_000, 40_000),
                Q1: Holder("c1", 60_000, 60_000),
                Q2: Holder("c2", 39_000, 39_000),
            },
        )
        self.assertEqual(set(self.locks.holders("G", 61_001)), {Q0, Q2})
        self.assertEqual(self.locks.holders("none", 0), {})

    def test_expiredLockBeginsAnew(self) -> None:
        """
        A consumer that comes back for its own expired lock has it anew.
        """
        self.locks.lock("G", [Q0], "c1", 0)
        self.locks.lock("G", [Q0], "c1", 60_001)
        self.assertEqual(self.locks.holders("G", 60_002), {Q0: Holder("c1", 1, 1)})

    def test_emptyGroupsAreForgotten(self) -> None:
        """
        Nothing is kept of groups without locks: not of one that asked for none, gave
        all back, or fell silent.
        """
        self.assertEqual(self.locks.lock("G", [], "c1", 0), set())
        self.locks.lock("H", [Q0], "c1", 0)
        self.locks.unlock("H", [Q0], "c1")
        self.locks.lock("I", [Q0], "c1", 0)
        self.locks.lock("J", [Q0, Q1], "c1", 0)
        self.locks.lock("J", [Q1], "c1", 30_000)
        finish(self.locks.expire(60_001))
        self.assertEqual(self.locks._groups.keys(), {"J"})
        self.assertEqual(self.locks._groups["J"].keys(), {Q1})

    @given(steps)
    def test_locksMatchModel(
        self, steps: list[tuple[str, str, str, frozenset[MessageQueue], int]]
    ) -> None:
        """
        Whatever is requested in whatever order, the locks are those of a plain table of
        each queue's last consumer and time.
        """
        locks = QueueLocks()
        table: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
        now = 0
        for step, group, client, queues, pause in steps:
            now += pause
            table = {key: held for key, held in table.items() if now - held[1] <= 60_000}
            if step == "lock":
                free = {
                    each for each in queues if table.get((group, each), (client, 0))[0] == client
                }
                self.assertEqual(locks.lock(group, queues, client, now), free)
                table |= {(group, each): (client, now) for each in free}
            elif step == "unlock":
                locks.unlock(group, queues, client)
                for each in queues:
                    if table.get((group, each), ("", 0))[0] == client:
                        del table[group, each]
            else:
                finish(locks.expire(now))
            for asked in ("G", "H"):
                self.assertEqual(
                    {queue: who.clientId for queue, who in locks.holders(asked, now).items()},
                    {queue: held[0] for (name, queue), held in table.items() if name == asked},
                )
