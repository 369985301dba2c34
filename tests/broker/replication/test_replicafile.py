# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.member.replicafile}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.replication.member.replicafile import ReplicaFile
from txrocket.broker.replication.role import Role
from txrocket.broker.settings import BrokerRole
from txrocket.store.jsontable import Table
from txrocket.testing.memory.files import MemoryFiles

PATH = "/store/config/replica.json"


class ReplicaFileTests(SynchronousTestCase):
    """
    What a member of a group knows of itself, over restarts.
    """

    def setUp(self) -> None:
        self.files = MemoryFiles(lambda: 0.0)

    def opened(self, role: BrokerRole, brokerId: int = 0) -> ReplicaFile:
        """
        The file, as a broker with a role in its settings reads it.
        """
        file = ReplicaFile(
            Table(self.files, PATH), "192.0.2.9:10911", role, brokerId, lambda: "made"
        )
        file.load()
        return file

    def test_aGroupIsMadeOnce(self) -> None:
        """
        The first master makes the group's id, and later starts have the same.
        """
        file = self.opened(BrokerRole.ASYNC_MASTER)
        self.assertEqual("", file.groupId)
        file.makeGroup()
        self.assertEqual("made", self.opened(BrokerRole.ASYNC_MASTER).groupId)
        file.join("other")
        file.makeGroup()
        self.assertEqual("other", self.opened(BrokerRole.SLAVE, 1).groupId)

    def test_withoutAnOperatorTheSettingsDecide(self) -> None:
        """
        The role is that of the settings, if no operator has changed it.
        """
        for role, expected in (
            (BrokerRole.ASYNC_MASTER, Role.MASTER),
            (BrokerRole.SYNC_MASTER, Role.MASTER),
            (BrokerRole.SLAVE, Role.FOLLOWER),
        ):
            self.assertIs(expected, self.opened(role, 1).role)

    def test_aChangedRoleOutlivesARestart(self) -> None:
        """
        A master that was demoted does not lead after a restart, until its settings are
        others.
        """
        self.opened(BrokerRole.ASYNC_MASTER).changed(Role.FOLLOWER)
        self.assertIs(Role.FOLLOWER, self.opened(BrokerRole.ASYNC_MASTER).role)
        self.assertIs(Role.MASTER, self.opened(BrokerRole.SYNC_MASTER).role)

    def test_aPromotedSlaveWaitsAsItsMasterDid(self) -> None:
        """
        A slave that becomes a master waits for its slaves if its former master did.
        """
        slave = self.opened(BrokerRole.SLAVE, 1)
        self.assertFalse(slave.isSync)
        slave.groupRole(BrokerRole.SYNC_MASTER)
        self.assertTrue(self.opened(BrokerRole.SLAVE, 1).isSync)
        self.assertTrue(self.opened(BrokerRole.SYNC_MASTER).isSync)
        self.assertFalse(self.opened(BrokerRole.ASYNC_MASTER).isSync)

    def test_aDamagedFileCostsNoGroup(self) -> None:
        """
        If the file is damaged, the older one has the same group.
        """
        self.opened(BrokerRole.ASYNC_MASTER).makeGroup()
        handle = self.files.open(PATH)
        self.files.pwrite(handle, b"????????", 4)
        self.files.close(handle)
        self.assertEqual("made", self.opened(BrokerRole.ASYNC_MASTER).groupId)

    def test_theNumberIsTheSettingsOrTheOneItGot(self) -> None:
        """
        A slave has the number of its settings; a former master the one that it was given.
        """
        self.assertEqual(0, self.opened(BrokerRole.ASYNC_MASTER).replicaId)
        self.opened(BrokerRole.ASYNC_MASTER).number(4)
        self.assertEqual(4, self.opened(BrokerRole.ASYNC_MASTER).replicaId)
        self.assertEqual(2, self.opened(BrokerRole.SLAVE, 2).replicaId)
