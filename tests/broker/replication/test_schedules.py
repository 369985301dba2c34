# SPDX-License-Identifier: Apache-2.0
"""
Seeded schedules of three brokers with real stores: messages, links that break, processes that
are killed, machines that lose power, and masters that are replaced.

What must hold in the end, whatever happened: the three logs have the same bytes, and each
message that was acknowledged is there once.  It does not hold without the check of epochs, as
the last test shows.
"""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred

from tests.broker.replication.storebrokers import StoreBroker, StoreCase
from tests.store.replicas import bodies, logOf, put
from txrocket.broker.replication import handshake
from txrocket.broker.replication.master import protocol

# Each is short.
SCHEDULES = 80


class ScheduleTests(StoreCase):
    """
    A master and two slaves.

    @ivar isNumbered: whether each broker makes epochs of its own.
    """

    isNumbered = True

    def begin(self, seed: int) -> None:
        """
        Start three brokers.
        """
        self.random = Random(seed)
        self.tearDown()
        self.setUp()
        self.count = 0
        self.acknowledged: set[int] = set()
        for _ in range(2):
            broker = self.broker()
            broker.isNumbered = self.isNumbered
            broker.link.follow(self.master.address)

    def send(self) -> None:
        """
        A producer sends a message, and notes it once it is acknowledged.
        """
        self.count += 1
        number = self.count
        # Messages of the same size, as in W3, and others.
        body = (b"%d." % number).ljust(self.random.choice((30, 30, 700, 1500)), b"x")
        end = put(self.master.store, body).end
        # As with SYNC_FLUSH: otherwise one disk that fails may have the only copy.
        self.master.store.flusher.flush()
        waiting: Deferred[None] = self.master.replicas.stored(end)
        waiting.addCallbacks(lambda done: self.acknowledged.add(number), lambda failure: None)

    def breakLink(self) -> None:
        """
        A connection is lost, and whatever is under way in it.
        """
        broker = self.random.choice(self.brokers)
        for transport in list(broker.machine.transports):
            transport.abortConnection()

    def restartSlave(self) -> None:
        """
        A slave is killed or loses power, and comes back.
        """
        broker = self.random.choice([each for each in self.brokers if each is not self.master])
        self.restart(broker)
        broker.link.follow(self.master.address)

    def restart(self, broker: StoreBroker) -> None:
        """
        End a broker in one of several ways, and start it.
        """
        broker.kill(self.random if self.random.random() < 0.5 else None)
        broker.start()

    def replaceMaster(self) -> None:
        """
        The master is gone, and comes back as a slave.  The slave that has most leads, as an
        operator would have it: it has all that was acknowledged, and perhaps not all that the
        old master has.
        """
        old = self.master
        old.kill(self.random if self.random.random() < 0.5 else None)
        slaves = [each for each in self.brokers if each is not old]
        for each in slaves:
            each.link.follow(None)
        self.master = max(slaves, key=lambda each: (self.epochOf(each), each.end))
        self.master.lead()
        for _ in range(self.random.randint(0, 3)):
            self.send()
        old.start()
        # The old master's epoch may be above: then it does not follow, and an operator has the
        # new one begin another.
        if self.epochOf(old) > self.epochOf(self.master):
            self.master.beginEpoch(self.epochOf(old))
        for each in self.brokers:
            if each is not self.master:
                each.link.follow(self.master.address)

    def epochOf(self, broker: StoreBroker) -> int:
        """
        The newest epoch of a broker.
        """
        return broker.epochs.last.epoch if broker.epochs.last is not None else 0

    def runSchedule(self, seed: int) -> None:
        """
        Make a schedule, heal everything, and check.
        """
        self.begin(seed)
        actions = (self.breakLink, self.restartSlave, self.replaceMaster)
        for _ in range(self.random.randint(5, 25)):
            for _ in range(self.random.randint(0, 4)):
                self.send()
            for _ in range(self.random.randint(0, 60)):
                self.step()
            if self.random.random() < 0.5:
                self.random.choice(actions)()
            if self.random.random() < 0.3:
                self.advance(self.random.choice((0.0, 0.3, 4.0)))
        self.advance(30)
        self.check(seed)

    def check(self, seed: int) -> None:
        """
        The logs are equal, and nothing that was acknowledged is lost.
        """
        said = f"seed {seed}"
        first = max(each.store.replica.first for each in self.brokers)
        logs = {logOf(each.store, first) for each in self.brokers}
        self.assertEqual(len(logs), 1, said)
        for each in self.brokers:
            found = [int(body.partition(b".")[0]) for body in bodies(each.store)]
            self.assertEqual(len(found), len(set(found)), said)
            if self.isNumbered:
                self.assertEqual(self.acknowledged - set(found), set(), said)
            if each is not self.master:
                self.assertEqual(each.link.status.problem, "", said)

    def test_logsAgreeAfterAnySchedule(self) -> None:
        """
        After healing all logs are equal, and no acknowledgement is lost.
        """
        acknowledged = 0
        for seed in range(SCHEDULES):
            self.runSchedule(seed)
            acknowledged += len(self.acknowledged)
        self.assertGreater(acknowledged, SCHEDULES)

    def test_logsAgreeAlthoughEpochsAreMadeTwice(self) -> None:
        """
        If two brokers make the same epoch, the logs are equal after healing all the same: the
        bytes show which is which.
        """
        self.isNumbered = False
        for seed in range(SCHEDULES):
            self.runSchedule(seed)

    def test_missingEpochCheckIsFound(self) -> None:
        """
        If slaves only compare lengths, as Java's do, the schedules find logs that differ.
        """
        self.patch(
            handshake,
            "commonEnd",
            lambda mine, mineEnd, theirs, theirsEnd: min(mineEnd, theirsEnd),
        )
        self.patch(protocol, "checkSlave", lambda parts, hello: None)
        for seed in range(SCHEDULES):
            try:
                self.runSchedule(seed)
            except self.failureException:
                return
        self.fail("no schedule has found it")
