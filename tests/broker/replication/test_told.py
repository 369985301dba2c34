# SPDX-License-Identifier: Apache-2.0
"""
What operators are told of masters and slaves: each thing once, and with the names that they
know.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.broker.replication.fakes import MASTER, FakeLog, LinkCase, Logged
from tests.broker.replication.groupcase import GroupCase
from txrocket.admin.commands.ha import _followed
from txrocket.errors import DiskFull
from txrocket.protocol.bodies.replication import MasterStatus
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.ha.plain import encodeOffset


class _FullLog(FakeLog):
    """
    A log on a disk that is full.
    """

    def append(self, offset: int, data: bytes) -> None:
        raise DiskFull("no room")


class LinkTests(LinkCase):
    """
    The lines about a connection, on both of its ends.
    """

    def test_fullDiskIsToldOnce(self) -> None:
        """
        A slave that cannot write what its master sends says so once, follows again after
        pauses that grow to ten seconds, and does not say that it follows.
        """
        self.master(FakeLog(b"one"))
        with Logged(LogLevel.error) as errors, Logged(LogLevel.info) as infos:
            slave = self.slave(_FullLog(), follows=False)
            self.patch(slave.link, "_backoff", lambda failures: 0.1)
            slave.link.follow(MASTER)
            self.advance(120)
        self.assertEqual(len(errors.texts), 1)
        self.assertIn("no room", errors.texts[0])
        told = [each for each in infos.texts if each.startswith("Following")]
        self.assertEqual(told, [])
        gone = [each for each in infos.texts if each.endswith("is gone")]
        self.assertLess(len(gone), 25)
        slave.link.follow(None)

    def test_steadyLinkForgetsItsProblem(self) -> None:
        """
        A link that has followed for a while tells the same problem again.
        """
        self.master(FakeLog(b"one"))
        slave = self.slave()
        with Logged(LogLevel.error) as errors:
            for _ in range(2):
                self.advance(16)
                for each in list(slave.machine.transports):
                    each.abortConnection()
                self.advance(1)
        self.assertEqual(len(errors.texts), 2)
        self.assertIn("closed the connection", errors.texts[0])
        slave.link.follow(None)

    def test_closedConnectionIsAProblem(self) -> None:
        """
        A slave says why it does not follow if the broker at the address closes each
        connection, as a slave does.
        """
        self.listen()
        slave = self.slave()
        self.advance()
        with Logged(LogLevel.error) as errors:
            for each in list(slave.machine.transports):
                each.abortConnection()
            self.advance()
        self.assertIn("may not be the master", slave.link.status.problem)
        self.assertEqual(len(errors.texts), 1)
        slave.link.follow(None)

    def test_secondSlaveWithANumberIsRefused(self) -> None:
        """
        Of two slaves with one brokerId the second is refused, and both ends name the first.
        """
        master = self.master(FakeLog(b"one"))
        first = self.slave()
        self.advance()
        with Logged(LogLevel.warn) as warnings, Logged(LogLevel.info) as infos:
            second = self.slave(follows=False)
            second.identity.address = "10.0.1.99:10911"
            second.link.follow(MASTER)
            self.advance(30)
        self.assertEqual([each.clientAddress for each in master.replicas.all], ["10.0.1.1:10911"])
        self.assertEqual(len(warnings.texts), 1)
        self.assertIn("10.0.1.1:10911", warnings.texts[0])
        self.assertIn("10.0.1.1:10911", second.link.status.problem)
        self.assertEqual([each for each in infos.texts if each.startswith("Following")], [])
        self.assertEqual(first.link.status.problem, "")
        for each in (first, second):
            each.link.follow(None)

    def test_slaveIsNamedByItsNumberAndAddress(self) -> None:
        """
        The log names a slave by its brokerId and the address for clients, as it comes and as
        it goes.
        """
        self.master(FakeLog(b"one"))
        with Logged(LogLevel.info) as infos:
            slave = self.slave()
            self.advance()
            slave.link.follow(None)
            self.advance()
        self.assertIn("Slave 1 at 10.0.1.1:10911 follows from 0", infos.texts)
        self.assertIn("Slave 1 at 10.0.1.1:10911 is gone", infos.texts)

    def test_refusalIsToldAgainAfterASlaveWasAccepted(self) -> None:
        """
        A reason to refuse a host is told once, and once more after a slave of ours from there
        was accepted.
        """
        self.master(FakeLog(b"one"))
        tooLong = encodeOffset(4096)

        def refused() -> int:
            for _ in range(2):
                self.connect(host="10.0.0.2").say(tooLong)
                self.advance()
            return sum("is longer" in each for each in warnings.texts)

        with Logged(LogLevel.warn) as warnings:
            self.assertEqual(refused(), 1)
            slave = self.slave()
            self.assertEqual(slave.machine.host, "10.0.0.2")
            self.advance()
            self.assertEqual(refused(), 2)
        slave.link.follow(None)


class GroupTests(GroupCase):
    """
    The lines and answers of a group of brokers.
    """

    slaveCount = 2

    def test_messagesThatReachNoSlaveAreToldOnce(self) -> None:
        """
        A SYNC_MASTER says once that messages reach no slave, and that they do again.
        """
        self.send(b"first")
        for slave in self.slaves:
            self.cluster.crash(slave)
        self.cluster.advance(1.0)
        with Logged(LogLevel.error) as errors, Logged(LogLevel.info) as infos:
            for _ in range(3):
                self.assertEqual(ResponseCode.SLAVE_NOT_AVAILABLE, self.send())
            self.cluster.start(self.slaves[0])
            self.cluster.advance(10.0)
            self.assertEqual(0, self.send())
        told = [each for each in errors.texts if "reach no slave" in each]
        self.assertEqual(len(told), 1)
        self.assertIn("Messages reach a slave again", infos.texts)

    def test_slaveBehindAnotherIsNotPromoted(self) -> None:
        """
        A promotion is refused while another slave has more messages, and names it, unless it
        is forced.
        """
        behind, ahead = self.slaves
        self.cluster.cut(self.master, behind)
        self.assertEqual(0, self.send(b"acknowledged"))
        self.cluster.crash(self.master)
        self.cluster.heal(self.master, behind)
        answer = self.promote(behind)
        self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
        self.assertIn(ahead, answer.remark or "")
        self.assertEqual("FOLLOWER", self.status(behind).role)
        self.assertEqual(0, self.promote(ahead).code)
        self.cluster.advance(10.0)
        self.assertEqual([b"acknowledged"], self.bodies(behind))

    def test_forcePromotesASlaveBehind(self) -> None:
        """
        An operator may lose messages on purpose.
        """
        behind = self.slaves[0]
        self.cluster.cut(self.master, behind)
        self.assertEqual(0, self.send(b"acknowledged"))
        self.cluster.crash(self.master)
        self.assertEqual(0, self.promote(behind, force=True).code)
        self.assertEqual("MASTER", self.status(behind).role)

    def test_slaveThatFollowsIsNotPromoted(self) -> None:
        """
        A promotion is refused while the slave follows, even if no name server knows the master.
        """
        self.cluster.crash(self.cluster.nameServers[0])
        replication = self.cluster.broker(self.slaves[0]).replication
        replication.steps.master = ("", "")
        answer = self.promote(self.slaves[0])
        self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
        self.assertIn("still follows", answer.remark or "")

    def test_refusedPromotionIsLogged(self) -> None:
        """
        The log of a broker says that its role was to change, and why it does not.
        """
        with Logged(LogLevel.warn) as warnings:
            self.promote(self.slaves[0])
        self.assertIn(self.master, warnings.texts[-1])
        self.assertIn("does not change", warnings.texts[-1])

    def test_slaveWithoutAMasterSaysSoOnce(self) -> None:
        """
        A slave whose master no name server knows says so once.
        """
        self.cluster.stop(self.slaves[0])
        self.cluster.stop(self.master)
        with Logged(LogLevel.warn) as warnings:
            self.cluster.start(self.slaves[0])
            self.cluster.advance(60.0)
        told = [each for each in warnings.texts if "no master to follow" in each]
        self.assertEqual(len(told), 1)
        self.assertIn("brokerName=", told[0])


class StatusTests(LinkCase):
    """
    A slave's line of C{txrocket ha status}.
    """

    def test_lineTellsHowTheSlaveStandsToItsMaster(self) -> None:
        """
        A slave follows, does not, or knows no master.  How far it is behind is told only
        while it follows.
        """
        for status, expected in (
            (MasterStatus("m:1", "m:2", "FOLLOWING", False, 7), "follows m:1"),
            (MasterStatus("", "m:2", "PAUSED: no room", False, 0), "does not follow m:2"),
            (MasterStatus("m:1", "m:2", "PLAIN", True, 0), "as RocketMQ 4.9.7"),
            (MasterStatus("", "", "IDLE", False, 0), "knows no master"),
        ):
            told = _followed(status)
            self.assertIn(expected, told)
            self.assertEqual("7 bytes behind" in told, status.state == "FOLLOWING")
