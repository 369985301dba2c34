# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.durability}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.replication.durability import Durability
from txrocket.errors import (
    FlushDiskTimeout,
    FlushSlaveTimeout,
    SlaveNotAvailable,
    StoreError,
)
from txrocket.store.settings import FlushDiskType, StoreSettings


class Waits:
    """
    A store, or slaves, whose waits a test ends.
    """

    def __init__(self) -> None:
        self.asked: list[Deferred[None]] = []
        self.waiting: Any = 0
        self.settings = StoreSettings("/store")

    def stored(self, end: int) -> Deferred[None]:
        """
        Wait.
        """
        self.asked.append(Deferred())
        return self.asked[-1]

    def tablesStored(self) -> Deferred[None]:
        """
        Wait.
        """
        return self.stored(0)


class DurabilityTests(SynchronousTestCase):
    """
    What a message waits for, and which failure is told.
    """

    def setUp(self) -> None:
        self.store, self.slaves = Waits(), Waits()
        self.store.waiting = 0, 0.0
        self.sync = True
        store: Any = self.store
        self.durability = Durability(store, self.slaves, lambda: self.sync)

    def ended(self, disk: Exception | None, slave: Exception | None) -> Deferred[None]:
        """
        A wait that has ended with two outcomes.
        """
        wait = self.durability.stored(10)
        for waits, outcome in ((self.store, disk), (self.slaves, slave)):
            if outcome is None:
                waits.asked[-1].callback(None)
            else:
                waits.asked[-1].errback(outcome)
        return wait

    def test_anAsynchronousMasterWaitsForNoSlave(self) -> None:
        """
        An ASYNC_MASTER's message is stored when its own store says so, and so are its tables.
        """
        self.sync = False
        wait = self.durability.stored(10)
        self.store.asked[0].callback(None)
        self.assertIsNone(self.successResultOf(wait))
        self.assertIsNone(self.successResultOf(self.durability.tablesStored()))
        self.assertEqual([], self.slaves.asked)

    def test_aSynchronousMasterWaitsForBoth(self) -> None:
        """
        A SYNC_MASTER's message is stored once it is on both.
        """
        for first, second in ((self.store, self.slaves), (self.slaves, self.store)):
            wait = self.durability.stored(10)
            first.asked[-1].callback(None)
            self.assertNoResult(wait)
            second.asked[-1].callback(None)
            self.assertIsNone(self.successResultOf(wait))

    def test_theSlavesFailureIsTold(self) -> None:
        """
        If disk and slave are late, the sender is told of the slave, as in RocketMQ.
        """
        slow, alone = FlushDiskTimeout("disk"), SlaveNotAvailable("none")
        late = FlushSlaveTimeout("slave")
        for disk, slave, told in (
            (None, alone, alone),
            (None, late, late),
            (slow, None, slow),
            (slow, alone, alone),
            (slow, late, late),
        ):
            self.assertIs(told, self.failureResultOf(self.ended(disk, slave)).value)

    def test_aLostMessageIsToldOfAtOnce(self) -> None:
        """
        A message that is lost does not wait for a slave, whatever that says later.
        """
        lost = StoreError("lost")
        wait = self.durability.stored(10)
        self.store.asked[0].errback(lost)
        self.assertIs(lost, self.failureResultOf(wait).value)
        self.slaves.asked[0].errback(FlushSlaveTimeout("slave"))

    def test_syncIsDiskOrSlave(self) -> None:
        """
        An answer has to wait with SYNC_FLUSH, with SYNC_MASTER, and with both.
        """
        for flush in FlushDiskType:
            for self.sync in (False, True):
                self.store.settings = StoreSettings("/store", flushDiskType=flush)
                expected = self.sync or flush is FlushDiskType.SYNC_FLUSH
                self.assertEqual(expected, self.durability.isSync)

    def test_thoseThatWaitAreCounted(self) -> None:
        """
        Messages that wait for disk and slave are counted once, so that a bound holds.
        """
        self.store.waiting = 3, 0.5
        self.slaves.waiting = 7
        self.assertEqual((7, 0.5), self.durability.waiting)
