# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.member.mastersearch}.
"""

from __future__ import annotations

from tests.broker.replication.groupcase import GroupCase
from txrocket.broker.replication.member.mastersearch import MasterSearch
from txrocket.broker.replication.role import Role


class SearchTests(GroupCase):
    """
    A broker that looks for the master of its group.
    """

    slaveCount = 2

    def search(self, address: str) -> MasterSearch:
        """
        The search of a broker.
        """
        return MasterSearch(self.cluster.broker(address).registration)

    def test_theMasterIsFound(self) -> None:
        """
        A slave finds the master, its status, and the numbers of all members.
        """
        found = self.cluster.resultOf(self.search(self.slaves[0]).find())
        assert found is not None and found.status is not None
        self.assertEqual(self.master, found.address)
        self.assertEqual("MASTER", found.status.role)
        self.assertEqual({0, 1, 2}, found.taken)

    def test_aBrokerDoesNotFindItself(self) -> None:
        """
        The master finds no other one.
        """
        self.assertIsNone(self.cluster.resultOf(self.search(self.master).find()))

    def test_aMasterThatIsGoneIsNotFound(self) -> None:
        """
        A master that name servers still know, and that does not answer, does not count.
        """
        self.cluster.cut(self.master, self.slaves[0])
        before = self.cluster.clock.seconds()
        self.assertIsNone(self.cluster.resultOf(self.search(self.slaves[0]).find()))
        self.assertLess(self.cluster.clock.seconds() - before, 10.0)

    def test_aBrokerThatIsNoMasterIsNotFound(self) -> None:
        """
        A broker that answers that it is not a master is none, whatever name servers say.
        """
        search = self.search(self.slaves[0])
        self.assertIsNone(self.cluster.resultOf(search.ask(self.slaves[1])))
        steps = self.cluster.broker().replication.steps
        self.patch(steps, "withdraw", lambda: None)
        steps.become(Role.SUSPENDED)
        self.assertIsNone(self.cluster.resultOf(search.find()))
        steps.become(Role.MASTER)

    def test_silentNameServersAreNotWaitedForLong(self) -> None:
        """
        If no name server answers, there is no master to be known, after some seconds.
        """
        self.cluster.crash(self.cluster.nameServers[0])
        self.assertIsNone(self.cluster.resultOf(self.search(self.slaves[0]).find()))
        self.assertEqual(frozenset(), self.cluster.resultOf(self.search(self.slaves[0]).taken()))
