# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.handshake}: with whom to replicate, and from where.
"""

from __future__ import annotations

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.replication.fakes import (
    FILE,
    FakeEpochs,
    FakeIdentity,
    FakeLog,
    FakeSink,
    FakeTables,
)
from txrocket.broker.replication.handshake import (
    Beginning,
    checkPlain,
    checkSlave,
    masterHello,
    nextEpoch,
    slaveHello,
    whereToBegin,
)
from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.errors import LogsDiverged, ReplicaRefused

Epochs = tuple[tuple[int, int], ...]


def slave(log: FakeLog, *epochs: tuple[int, int], groupId: str = "group") -> SlaveParts:
    """
    A slave.
    """
    return SlaveParts(
        log,
        FakeEpochs(*epochs),
        FakeSink(log),
        FakeIdentity(groupId, 1),
        FILE,
        lambda: succeed(None),
        lambda cut: None,
        lambda offset, folder: None,
    )


def master(log: FakeLog, *epochs: tuple[int, int], groupId: str = "group") -> MasterParts:
    """
    A master.
    """
    return MasterParts(log, FakeEpochs(*epochs), FakeTables(), FakeIdentity(groupId), FILE)


class WhereToBeginTests(SynchronousTestCase):
    """
    What a slave does to follow.
    """

    def begin(
        self,
        mine: tuple[FakeLog, Epochs],
        theirs: tuple[FakeLog, Epochs],
        lastFile: bool = False,
    ) -> Beginning:
        """
        What the slave decides.
        """
        hello = masterHello(master(theirs[0], *theirs[1]), False)
        return whereToBegin(slave(mine[0], *mine[1]), hello, lastFile)

    def test_decisionFollowsTable(self) -> None:
        """
        Each row: the slave's log and epochs, the master's, where to begin, whether anew.
        """
        ten = FakeLog(bytes(10_000))
        late = FakeLog(bytes(2000), FILE)
        one: Epochs = ((1, 0),)
        for mine, theirs, offset, isAnew in (
            # The same history: goes on.
            ((FakeLog(bytes(500)), one), (ten, one), 500, False),
            ((ten, one), (ten, one), 10_000, False),
            # The master has gone on in another epoch, behind the slave's end or before.
            ((FakeLog(bytes(500)), one), (ten, ((1, 0), (2, 600))), 500, False),
            ((FakeLog(bytes(500)), one), (ten, ((1, 0), (2, 300))), 300, False),
            # W3: the old master has written what the new one does not have.
            ((FakeLog(bytes(500)), ((1, 0), (2, 400))), (ten, ((1, 0), (3, 450))), 400, False),
            # W4: the slave's log is longer.
            ((ten, one), (FakeLog(bytes(700)), one), 700, False),
            # A new slave begins with the first file, also if that is not the first any more.
            ((FakeLog(), ()), (ten, one), 0, False),
            ((FakeLog(), ()), (late, one), FILE, True),
            # W5: the slave's log ends before the master's first file.
            ((FakeLog(bytes(500)), one), (late, one), FILE, True),
            # Nothing in common.
            ((FakeLog(bytes(500)), ((1, 7),)), (ten, ((2, 0),)), 0, True),
            ((FakeLog(bytes(500)), ()), (ten, one), 0, True),
            # What is in common, the slave has deleted.
            ((FakeLog(bytes(9000), FILE), ((1, 0), (2, 5))), (ten, ((1, 0), (3, 5))), 0, True),
        ):
            self.assertEqual(self.begin(mine, theirs), Beginning(offset, isAnew), (mine, theirs))

    def test_newSlaveMayBeginWithLastFile(self) -> None:
        """
        With syncFromLastFile, a log that begins anew does so with the master's last file.
        """
        ten = FakeLog(bytes(10_000)), ((1, 0),)
        self.assertEqual(self.begin((FakeLog(), ()), ten, True), Beginning(8192, True))
        self.assertEqual(self.begin((FakeLog(bytes(5)), ((1, 0),)), ten, True), Beginning(5, False))

    def test_wrongMasterIsRefused(self) -> None:
        """
        A master of another group, or of none, or with other file sizes, or of an epoch that is
        over is not followed.
        """
        log = FakeLog(bytes(500))
        good = masterHello(master(log, (3, 0)), False)
        for hello, reason in (
            (good._replace(groupId="other"), "the master is of another group"),
            (good._replace(groupId=""), "the master is of another group"),
            (good._replace(fileSize=8192), "mappedFileSizeCommitLog differs"),
            (good._replace(epochs=((2, 0),)), "the master's epoch is over"),
            (good._replace(epochs=()), "the master's epoch is over"),
        ):
            error = self.assertRaises(ReplicaRefused, whereToBegin, slave(log, (3, 0)), hello)
            self.assertEqual(error.reason, reason)
        # A broker that is in no group takes any.
        whereToBegin(slave(log, (3, 0), groupId=""), good._replace(groupId="other"))


class NextEpochTests(SynchronousTestCase):
    """
    L{nextEpoch}.
    """

    def test_epochsGrowAndAreNeverShared(self) -> None:
        """
        An epoch is above the last one, whoever made that, and tells which broker made it.
        """
        for last in (0, 1, 99, 100, 101, 199, 2500):
            made = [nextEpoch(last, number) for number in range(100)]
            self.assertEqual(len(set(made)), 100)
            self.assertGreater(min(made), last)
            self.assertEqual([each % 100 for each in made], list(range(100)))


class CheckSlaveTests(SynchronousTestCase):
    """
    What a master refuses.
    """

    def setUp(self) -> None:
        """
        A master in its second epoch.
        """
        self.log = FakeLog(bytes(range(256)) * 40)
        self.parts = master(self.log, (1, 0), (2, 6000))

    def refusal(self, log: FakeLog, *epochs: tuple[int, int], groupId: str = "group") -> str:
        """
        Why a slave is refused.
        """
        hello = slaveHello(slave(log, *epochs, groupId=groupId))
        error = self.assertRaises(ReplicaRefused, checkSlave, self.parts, hello)
        return str(error.reason)

    def test_beginningOfLogIsAccepted(self) -> None:
        """
        A slave whose log is a beginning of the master's may follow, whatever its length.
        """
        for end, epochs in ((0, 0), (1, 1), (6000, 1), (6001, 2), (10_240, 2)):
            held = slave(FakeLog(self.log.data[:end]), *((1, 0), (2, 6000))[:epochs])
            checkSlave(self.parts, slaveHello(held))

    def test_newSlaveIsAccepted(self) -> None:
        """
        A slave that has no log has no epochs in common with anyone, and may follow.
        """
        checkSlave(self.parts, slaveHello(slave(FakeLog(b"", FILE))))

    def test_otherLogIsRefused(self) -> None:
        """
        Another group, a newer epoch, a longer log, a log that ends before the first file, and
        a log with bytes of another epoch are refused.
        """
        data = self.log.data
        long = FakeLog(data + b"x")
        self.assertIn("another group", self.refusal(FakeLog(), groupId="other"))
        self.assertIn("newer master", self.refusal(FakeLog(data), (1, 0), (3, 6000)))
        self.assertIn("longer", self.refusal(long, (1, 0), (2, 6000)))
        self.assertIn("not a beginning", self.refusal(FakeLog(data[:6001]), (1, 0)))
        self.assertIn("not a beginning", self.refusal(FakeLog(data[:50])))
        self.log.data, self.log.first = data[FILE:], FILE
        self.assertIn("before the first file", self.refusal(FakeLog(data[:100]), (1, 0)))

    def test_otherBytesInSameEpochAreFound(self) -> None:
        """
        Two masters that an operator has started with the same epoch are told apart by their
        bytes (W3), at the start of the epoch or at the end of the log.
        """
        for place in (6000, 10_239):
            data = bytearray(self.log.data)
            data[place] ^= 1
            hello = slaveHello(slave(FakeLog(bytes(data)), (1, 0), (2, 6000)))
            self.assertRaises(LogsDiverged, checkSlave, self.parts, hello)

    def test_deletedBytesAreNotCompared(self) -> None:
        """
        What the master has deleted meanwhile cannot be compared, and is no reason to refuse.
        """
        held = FakeLog(self.log.data[:5000])
        self.log.data, self.log.first = self.log.data[FILE:], FILE
        checkSlave(self.parts, slaveHello(slave(held, (1, 0))))

    def test_plainSlaveBeginsWhereItAsks(self) -> None:
        """
        A plain slave goes on where it asks, begins with the first file if it has no log, and
        is refused outside of the log.
        """
        log = FakeLog(bytes(100), FILE)
        self.assertEqual(checkPlain(log, 0), FILE)
        self.assertEqual(checkPlain(log, FILE), FILE)
        self.assertEqual(checkPlain(log, FILE + 100), FILE + 100)
        for offset in (1, FILE - 1, FILE + 101, 1 << 40):
            self.assertRaises(ReplicaRefused, checkPlain, log, offset)
