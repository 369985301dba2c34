# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.replicas}: which slaves count, and what waits for them.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.replication.fakes import FakeLog
from txrocket.broker.replication.replicas import Replica, Replicas
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.errors import FlushSlaveTimeout, SlaveNotAvailable


class ReplicasTests(SynchronousTestCase):
    """
    The slaves of a master with a log of 1000 bytes.
    """

    def setUp(self) -> None:
        """
        Begin without slaves.
        """
        self.clock = Clock()
        self.log = FakeLog(bytes(1000))
        self.replicas = self.make()

    def make(self, countsFlushed: bool = False, **settings: Any) -> Replicas:
        """
        No slaves yet.
        """
        return Replicas(self.clock, self.log, ReplicationSettings(**settings), countsFlushed)

    def ours(self, written: int = 0, flushed: int = 0, number: int = 1) -> Replica:
        """
        A slave of ours, whose handshake is done.
        """
        replica = Replica("a:1", written, flushed, False, number, counts=True)
        self.replicas.add(replica)
        return replica

    def test_noSlaveFailsAtOnce(self) -> None:
        """
        A send without a slave gets SLAVE_NOT_AVAILABLE at once (11), as in Java.
        """
        error = self.failureResultOf(self.replicas.stored(1000), SlaveNotAvailable)
        self.assertIn("no slave is connected", str(error.value))

    def test_reportAcknowledgesWhatItReaches(self) -> None:
        """
        Each send fires when a slave has its end, and not before.
        """
        replica = self.ours(500)
        waiting = [self.replicas.stored(end) for end in (500, 800, 1000)]
        self.successResultOf(waiting[0])
        self.replicas.reported(replica, 999, 0)
        self.successResultOf(waiting[1])
        self.assertNoResult(waiting[2])
        self.replicas.reported(replica, 1000, 0)
        self.successResultOf(waiting[2])

    def test_lateSlaveTimesOut(self) -> None:
        """
        A send waits slaveTimeout, 3 s, and gets FLUSH_SLAVE_TIMEOUT (12); the slave's later
        report harms nothing.
        """
        replica = self.ours(500)
        waiting = self.replicas.stored(1000)
        self.clock.advance(2.9)
        self.assertNoResult(waiting)
        self.clock.advance(0.2)
        self.failureResultOf(waiting, FlushSlaveTimeout)
        self.replicas.reported(replica, 1000, 1000)
        self.successResultOf(self.replicas.stored(1000))

    def test_slaveThatIsFarBehindIsNone(self) -> None:
        """
        Slaves that all lack haSlaveFallbehindMax bytes or more do not count.
        """
        self.replicas = self.make(haSlaveFallbehindMax=300)
        self.ours(700)
        error = self.failureResultOf(self.replicas.stored(1000), SlaveNotAvailable)
        self.assertIn("haSlaveFallbehindMax", str(error.value))
        self.ours(701, number=2)
        waiting = self.replicas.stored(1000)
        self.clock.advance(4)
        self.failureResultOf(waiting, FlushSlaveTimeout)

    def test_goneSlaveDoesNotCount(self) -> None:
        """
        The mark falls when the furthest slave goes: Java's stays high for ever.  A send that
        waits goes on waiting, because the slave may come back.
        """
        first, second = self.ours(900), self.ours(400, number=2)
        self.assertEqual(self.replicas.replicated, 900)
        waiting = self.replicas.stored(1000)
        self.replicas.remove(first)
        self.assertEqual(self.replicas.replicated, 400)
        other = self.replicas.stored(800)
        self.assertNoResult(other)
        # What a connection says after it is gone counts for nothing.
        self.replicas.reported(first, 1000, 1000)
        self.assertNoResult(waiting)
        self.replicas.reported(second, 1000, 0)
        self.successResultOf(waiting)
        self.successResultOf(other)
        self.replicas.remove(second)
        self.replicas.remove(second)
        self.assertEqual(self.replicas.replicated, 0)

    def test_comebackAcknowledges(self) -> None:
        """
        A slave that comes back with a send's end acknowledges it with its handshake.
        """
        replica = self.ours(500)
        waiting = self.replicas.stored(1000)
        self.replicas.remove(replica)
        self.ours(1000)
        self.successResultOf(waiting)

    def test_flushedCountsForSyncFlush(self) -> None:
        """
        If the master's flushDiskType is SYNC_FLUSH, what counts is on the slave's disk; a
        plain slave says only one number.
        """
        self.replicas = self.make(countsFlushed=True)
        replica = self.ours(1000, 500)
        waiting = self.replicas.stored(800)
        self.assertNoResult(waiting)
        self.replicas.reported(replica, 1000, 800)
        self.successResultOf(waiting)

    def test_requestOfPlainSlaveDoesNotCount(self) -> None:
        """
        What a plain slave asks for is no acknowledgement; what it says next is.
        """
        replica = Replica("a:1", 1000, 1000)
        self.replicas.add(replica)
        waiting = self.replicas.stored(1000)
        self.assertNoResult(waiting)
        self.replicas.reported(replica, 1000, 1000)
        self.successResultOf(waiting)

    def test_tablesWaitForSlaveOfOurs(self) -> None:
        """
        A change of a topic waits until a slave of ours has it, and for no plain one, which
        asks in its own time.
        """
        self.successResultOf(self.replicas.tablesStored(1))
        self.replicas.add(Replica("a:1", 1000, 1000))
        self.successResultOf(self.replicas.tablesStored(1))
        replica = self.ours(1000)
        waiting, late = self.replicas.tablesStored(1), self.replicas.tablesStored(2)
        self.assertNoResult(waiting)
        self.replicas.hasTables(replica, 1)
        self.successResultOf(waiting)
        self.clock.advance(3)
        self.failureResultOf(late, FlushSlaveTimeout)
        self.replicas.remove(replica)
        other = self.ours(1000, number=2)
        self.assertNoResult(again := self.replicas.tablesStored(1))
        self.replicas.hasTables(other, 1)
        self.successResultOf(again)

    def test_stopFailsWhatWaits(self) -> None:
        """
        When the broker is no master any more, what waits fails and no timer is left.
        """
        self.ours(0)
        waiting = self.replicas.stored(1000), self.replicas.tablesStored(9)
        self.replicas.stop()
        for each in waiting:
            self.failureResultOf(each, SlaveNotAvailable)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lagIsInBytesAndSeconds(self) -> None:
        """
        A slave's lag is 0 if it has all.  Under load it is the time since the log ended where
        the slave has come to, and not the time since it had all.
        """
        replica = self.ours(1000)
        self.assertEqual(replica.lag(1000, self.clock.seconds()), (0, 0.0))
        for _ in range(5):
            self.clock.advance(1)
            before = self.log.end
            self.log.put(bytes(100))
            self.replicas.reported(replica, before, before)
        behind, seconds = replica.lag(self.log.end, self.clock.seconds())
        self.assertEqual(behind, 100)
        self.assertLessEqual(seconds, 2)
        self.clock.advance(10)
        self.assertGreaterEqual(replica.lag(self.log.end, self.clock.seconds())[1], 10)
        self.assertEqual(self.replicas.all, (replica,))
