# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.role}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.replication.role import BrokerRoleState, Role, RoleSteps
from txrocket.errors import StoreError

MASTER, FOLLOWER, SUSPENDED = Role.MASTER, Role.FOLLOWER, Role.SUSPENDED


class Steps:
    """
    Notes each step, and the role at that time.
    """

    def __init__(self, state: BrokerRoleState) -> None:
        self._state = state
        self.taken: list[str] = []
        self.roles: dict[str, Role] = {}
        self.fails = ""

    def __getattr__(self, name: str) -> Callable[[], None]:
        def step() -> None:
            self.taken.append(name)
            self.roles[name] = self._state.role
            if name == self.fails:
                raise StoreError("no room")

        return step


class RoleTests(SynchronousTestCase):
    """
    What happens when a role changes, and in which order.
    """

    def setUp(self) -> None:
        self.state = BrokerRoleState()
        self.steps: Any = Steps(self.state)

    def become(self, *roles: Role) -> list[str]:
        """
        Change the role, and give the steps of the last change.
        """
        for role in roles:
            self.steps.taken.clear()
            self.state.become(role, cast(RoleSteps, self.steps))
        return list(self.steps.taken)

    def test_aBrokerStartsSuspended(self) -> None:
        """
        A broker takes nothing before its role is known.
        """
        self.assertIs(SUSPENDED, self.state.role)
        self.assertTrue(self.state.isSuspended)
        self.assertFalse(self.state.isMaster)

    def test_aMasterAnnouncesItselfLast(self) -> None:
        """
        A new master takes messages, lets slaves connect and delivers, and then tells the name
        servers.
        """
        expected = ["lead", "serve", "deliver", "announce"]
        self.assertEqual(expected, self.become(MASTER))
        self.assertEqual(["unlink", *expected], self.become(FOLLOWER, MASTER))
        self.assertIs(MASTER, self.steps.roles["deliver"])

    def test_aMasterThatFollowsDeliversNothingFirst(self) -> None:
        """
        An old master stops delivering before its slaves lose it, and is no master while it
        does.
        """
        self.assertEqual(
            ["rest", "close", "unlock", "follow", "link", "announce"],
            self.become(MASTER, FOLLOWER),
        )
        self.assertIs(FOLLOWER, self.steps.roles["rest"])

    def test_aSuspendedBrokerLeavesTheNameServers(self) -> None:
        """
        A suspended broker is not to be found.
        """
        self.assertEqual("withdraw", self.become(MASTER, SUSPENDED)[-1])
        self.assertEqual(["link", "announce"], self.become(FOLLOWER))
        self.assertEqual(["unlink", "withdraw"], self.become(SUSPENDED))

    def test_theSameRoleChangesNothing(self) -> None:
        """
        A broker that becomes what it is takes no step.
        """
        self.become(MASTER)
        self.assertEqual([], self.become(MASTER))
        self.assertEqual(1, self.state.changes)

    def test_aStoreThatCannotLeadStaysBehindItsMaster(self) -> None:
        """
        If the store cannot take messages, a slave goes on following.
        """
        self.become(FOLLOWER)
        self.steps.fails = "lead"
        self.assertRaises(StoreError, self.become, MASTER)
        self.assertEqual(["unlink", "lead", "follow", "link"], self.steps.taken)
        self.assertIs(FOLLOWER, self.state.role)
