# SPDX-License-Identifier: Apache-2.0
"""
Roles that change while brokers run, and what starts do about them.
"""

from __future__ import annotations

from typing import Any

from tests.broker.replication.groupcase import GroupCase
from txrocket.broker.replication.role import Role
from txrocket.broker.replication.tables.payload import valuePayload
from txrocket.errors import ConfigError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies import ClusterInfo, DelayOffsetSerializeWrapper
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import (
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.services import broker
from txrocket.testing.clustersettings import brokerSettings


class PromotionTests(GroupCase):
    """
    A slave becomes the master.
    """

    slaveCount = 2

    def setUp(self) -> None:
        super().setUp()
        self.send(b"first")

    def addresses(self) -> dict[int, str]:
        """
        The addresses of the group, as the name server knows them.
        """
        nameServer = self.cluster.nameServers[0]
        answer = self.answer(nameServer, RequestCode.GET_BROKER_CLUSTER_INFO)
        return dict(decodeBody(ClusterInfo, answer.body).brokerAddrTable["broker-0"].brokerAddrs)

    def test_aSlaveIsNotPromotedWhileItsMasterAnswers(self) -> None:
        """
        A promotion is refused while the master answers, and names it.
        """
        answer = self.promote(self.slaves[0])
        self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
        self.assertIn(self.master, answer.remark or "")
        self.assertEqual("FOLLOWER", self.status(self.slaves[0]).role)
        self.assertEqual(0, self.send())

    def test_aSlaveIsPromotedWhenItsMasterIsGone(self) -> None:
        """
        After the master has crashed, a slave becomes the master: it takes messages in a new
        epoch, name servers know it as broker 0, and the other slave follows it.
        """
        self.cluster.crash(self.master)
        self.assertEqual(0, self.promote(self.slaves[0]).code)
        status = self.status(self.slaves[0])
        self.assertEqual(("MASTER", "SYNC_MASTER"), (status.role, status.brokerRole))
        self.assertGreater(status.epoch, 1)
        self.cluster.advance(10.0)
        self.assertEqual({0: self.slaves[0], 2: self.slaves[1]}, self.addresses())
        self.assertEqual(0, self.send(b"second", self.slaves[0]))
        self.assertEqualLogs(*self.slaves)
        self.assertEqual([b"first", b"second"], self.bodies(self.slaves[1]))

    def test_theOldMasterFollowsTheNewOne(self) -> None:
        """
        The old master comes back as a slave, with a number of its own, and gets what it
        missed.
        """
        self.cluster.crash(self.master)
        self.promote(self.slaves[0])
        self.cluster.advance(10.0)
        self.send(b"second", self.slaves[0])
        self.cluster.start(self.master)
        self.cluster.advance(5.0)
        status = self.status(self.master)
        self.assertEqual(("FOLLOWER", 3), (status.role, status.brokerId))
        self.assertEqualLogs(self.slaves[0], self.master, self.slaves[1])
        self.assertEqual({0: self.slaves[0], 2: self.slaves[1], 3: self.master}, self.addresses())

    def test_whatOnlyTheOldMasterHadIsCutAndKept(self) -> None:
        """
        Messages that no slave had are cut from the old master, and kept in a file; consumers
        are set back to the end of their queue.
        """
        self.cluster.advance(1.0)
        for slave in self.slaves:
            self.cluster.cut(self.master, slave)
        self.assertNotEqual(0, self.send(b"lost"))
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 2)
        self.answer(self.master, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self.cluster.crash(self.master)
        for slave in self.slaves:
            self.cluster.heal(self.master, slave)
        self.assertEqual(0, self.promote(self.slaves[0]).code)
        self.cluster.advance(10.0)
        self.assertEqual(0, self.send(b"kept", self.slaves[0]))
        self.cluster.start(self.master)
        self.cluster.advance(5.0)
        self.assertEqualLogs(self.slaves[0], self.master, self.slaves[1])
        self.assertEqual([b"first", b"kept"], self.bodies(self.master))
        cut = self.status(self.master).lastCut
        assert cut is not None
        self.assertEqual(1, cut.records)
        self.assertIn("cut", cut.path)
        offsets = self.cluster.broker(self.master).tables.offsets
        self.assertLessEqual(offsets.query("G", "T", 0), 1)

    def test_aForcedPromotionDemotesTheMaster(self) -> None:
        """
        If an operator insists, the present master becomes a slave, and only one leads.
        """
        self.assertEqual(0, self.promote(self.slaves[0], force=True).code)
        self.cluster.advance(10.0)
        roles = [self.status(each).role for each in (self.master, *self.slaves)]
        self.assertEqual(["FOLLOWER", "MASTER", "FOLLOWER"], roles)
        self.assertEqual(0, self.send(b"second", self.slaves[0]))
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.send(b"third"))
        self.cluster.advance(1.0)
        self.assertEqualLogs(self.master, *self.slaves)

    def test_twoMastersAreNoticedAndOneLogIsCut(self) -> None:
        """
        An old master that starts while it reaches nobody leads as well, and messages of the
        same size come to both.  Once an operator demotes it, its messages are cut and kept,
        and all logs are equal.
        """
        self.cluster.crash(self.master)
        self.promote(self.slaves[0])
        self.cluster.advance(10.0)
        others = [*self.slaves, *self.cluster.nameServers]
        for each in others:
            self.cluster.cut(self.master, each)
        self.cluster.start(self.master)
        self.assertEqual(ResponseCode.SLAVE_NOT_AVAILABLE, self.send(b"A"))
        self.assertEqual(0, self.send(b"B", self.slaves[0]))
        self.assertNotEqual(self.log(self.master), self.log(self.slaves[0]))
        for each in others:
            self.cluster.heal(self.master, each)
        self.assertEqual(0, self.demote(self.master, force=True).code)
        self.cluster.advance(60.0)
        self.assertEqualLogs(self.slaves[0], self.master, self.slaves[1])
        self.assertEqual([b"first", b"B"], self.bodies(self.master))
        cut = self.status(self.master).lastCut
        assert cut is not None
        self.assertEqual(1, cut.records)

    def test_rolesOutliveRestarts(self) -> None:
        """
        After a hand-over all brokers may be restarted, in any order: the roles stay.
        """
        self.promote(self.slaves[0], force=True)
        self.cluster.advance(10.0)
        for order in ((self.master, *self.slaves), (*self.slaves, self.master)):
            for each in order:
                self.cluster.stop(each)
            for each in order:
                self.cluster.start(each)
            self.cluster.advance(40.0)
            roles = [self.status(each).role for each in (self.master, *self.slaves)]
            self.assertEqual(["FOLLOWER", "MASTER", "FOLLOWER"], roles)
            self.assertEqual(0, self.send(b"again", self.slaves[0]))

    def test_queueOffsetsGoOn(self) -> None:
        """
        The first message at the new master gets the next offset of its queue.
        """
        self.send(b"second")
        self.cluster.crash(self.master)
        self.promote(self.slaves[0])
        self.cluster.advance(10.0)
        answer = self.cluster.resultOf(self.sending(b"third", self.slaves[0]))
        self.assertEqual(2, answer.decodeHeader(SendMessageResponseHeader).queueOffset)

    def test_delayedMessagesAreDeliveredByTheNewMaster(self) -> None:
        """
        A delayed message that the old master did not deliver is delivered by the new one,
        and one that it did is not delivered again.
        """
        self.send(b"soon", properties="DELAY\x011\x02")
        self.cluster.advance(12.0)
        self.send(b"later", properties="DELAY\x013\x02")
        self.cluster.advance(3.0)
        self.cluster.crash(self.master)
        self.assertEqual(0, self.promote(self.slaves[0]).code)
        self.cluster.advance(20.0)
        self.assertEqual([b"first", b"soon", b"later"], self.bodies(self.slaves[0]))

    def test_progressThatWaitsIsForgotten(self) -> None:
        """
        Progress that a slave has not come to yet does not count once it leads: its log grows
        by other messages.
        """
        slave = self.cluster.broker(self.slaves[0])
        links: Any = slave.replication.steps.links
        end = slave.store.replica.end
        links._sink.apply(valuePayload("delay", DelayOffsetSerializeWrapper({3: 17}), end + 10))
        self.cluster.crash(self.master)
        self.promote(self.slaves[0])
        self.cluster.advance(10.0)
        self.assertEqual(0, self.send(address=self.slaves[0]))
        self.assertNotEqual(17, slave.parts.delivery.delayLevels.offsets.get(3))

    def test_aMasterIsNotPromoted(self) -> None:
        """
        A broker that is a master already refuses to become one, and a slave to become a
        slave.
        """
        self.assertEqual(ResponseCode.SYSTEM_ERROR, self.promote(self.master).code)
        self.assertEqual(ResponseCode.SYSTEM_ERROR, self.demote(self.slaves[0]).code)


class DemotionTests(GroupCase):
    """
    A master becomes a slave.
    """

    def test_theSlaveHasEverything(self) -> None:
        """
        A demoted master waits until a slave has all messages, and then takes none.
        """
        self.send(b"first")
        self.assertEqual(0, self.demote(self.master).code)
        status = self.status(self.master)
        self.assertEqual(("FOLLOWER", 2), (status.role, status.brokerId))
        self.assertEqualLogs(self.master, self.slaves[0])
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.send())
        self.assertEqual(0, self.promote(self.slaves[0]).code)
        self.cluster.advance(10.0)
        self.assertEqual(0, self.send(b"second", self.slaves[0]))
        self.assertEqual([b"first", b"second"], self.bodies(self.master))

    def test_withoutASlaveAMasterStays(self) -> None:
        """
        A master whose slave does not have all refuses to be demoted, and goes on.
        """
        self.send(b"first")
        self.cluster.cut(self.master, self.slaves[0])
        self.send(b"second")
        answer = self.demote(self.master)
        self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
        self.assertEqual("MASTER", self.status(self.master).role)
        self.cluster.heal(self.master, self.slaves[0])
        self.cluster.advance(30.0)
        self.assertEqual(0, self.send(b"third"))
        self.assertEqualLogs(self.master, self.slaves[0])

    def test_anOperatorMayInsist(self) -> None:
        """
        A forced demotion does not wait for a slave.
        """
        self.cluster.stop(self.slaves[0])
        self.assertEqual(ResponseCode.SYSTEM_ERROR, self.demote(self.master).code)
        self.assertEqual(0, self.demote(self.master, force=True).code)
        self.assertEqual("FOLLOWER", self.status(self.master).role)

    def test_locksAreForgotten(self) -> None:
        """
        A master that follows gives its locks up: the next master gives them.
        """
        locks: Any = self.cluster.broker().parts.clients.locks
        locks.lock("G", [], "c", 0)
        cleared: list[bool] = []
        self.patch(locks, "clear", lambda: cleared.append(True))
        self.demote(self.master)
        self.assertEqual([True], cleared)


class StartTests(GroupCase):
    """
    What a broker does before it leads.
    """

    def test_aSecondMasterWithOtherMessagesIsRefused(self) -> None:
        """
        A broker that is to lead a group which has a master, and whose folder has messages of
        another group, takes no role and says why.
        """
        self.send()
        [other] = self.slaves
        slave = self.cluster.broker(other)
        slave.replication.steps.file.join("another")
        self.cluster.stop(other)
        # The same folder, with settings that make it a master.
        self.cluster._machines[other]._make = self.maker()
        caught = self.assertRaises(ConfigError, self.cluster.start, other)
        self.assertIn(self.master, str(caught))
        self.cluster.crash(other)
        self.assertEqual("MASTER", self.status(self.master).role)

    def test_aSecondMasterWithTheSameMessagesFollows(self) -> None:
        """
        A broker that is to lead a group which has a master follows it, if its messages are
        the group's.
        """
        self.send()
        [other] = self.slaves
        self.cluster.stop(other)
        self.cluster._machines[other]._make = self.maker()
        self.cluster.start(other)
        self.cluster.advance(5.0)
        self.assertEqual("FOLLOWER", self.status(other).role)
        self.assertEqual(0, self.send())
        self.assertEqualLogs(self.master, other)

    def maker(self) -> Any:
        """
        What makes the slave's broker as a master.
        """
        host = self.slaves[0].rpartition(":")[0]

        def make(environment: Any) -> Any:
            names = self.cluster.nameServers
            settings = brokerSettings({}, "broker-0", host, 10911, "", names)
            return broker(environment, settings)

        return make

    def test_aMasterWithoutNameServersLeadsAtOnce(self) -> None:
        """
        A master whose name servers do not answer leads all the same.
        """
        self.cluster.stop(self.master)
        self.cluster.crash(self.cluster.nameServers[0])
        self.cluster.start(self.master)
        self.assertEqual("MASTER", self.status(self.master).role)

    def test_aSuspendedBrokerPromisesNothing(self) -> None:
        """
        While a broker does not know its role, it refuses what only a master may do, and
        pulls.
        """
        self.send()
        role = self.cluster.broker().parts.core.role
        steps = self.cluster.broker().replication.steps
        steps.become(Role.SUSPENDED)
        self.assertTrue(role.isSuspended)
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 1)
        codes = {
            self.send(),
            self.pull(self.master).code,
            self.answer(self.master, RequestCode.UPDATE_CONSUMER_OFFSET, header).code,
        }
        self.assertEqual({ResponseCode.SERVICE_NOT_AVAILABLE}, codes)
        steps.become(Role.MASTER)
        self.cluster.advance(40.0)
        self.assertEqual(0, self.send())
        self.assertEqual(MASTER_ID, self.status(self.master).brokerId)
