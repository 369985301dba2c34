# SPDX-License-Identifier: Apache-2.0
"""
Whether a broker leads, follows or rests, and what happens when that changes::

                     lead, serve, deliver, announce
      ( SUSPENDED ) ------------------------------> ( MASTER )
          |      ^  <------------------------------    |  ^
          |      rest, close, unlock, follow, withdraw |  |
          |                                            |  |
          | link, announce       rest, close, unlock,  |  | unlink, lead, serve,
          |                      follow, link, announce|  | deliver, announce
          v                                            v  |
      ( FOLLOWER ) <-----------------------------------+--+

A broker starts suspended: it takes no messages before its role is known.  A command of an
operator changes the role while the broker runs, and fail-over will do it in the same way.
Each change is a row of one table, so that its order can be read: a new master announces
itself last, and an old one delivers no message once its slaves cannot get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from twisted.logger import Logger

from txrocket.errors import StoreError

__all__ = ["BrokerRoleState", "Role", "RoleSteps"]


class Role(Enum):
    """
    What a broker is to its group at the moment.
    """

    MASTER = "MASTER"
    FOLLOWER = "FOLLOWER"
    SUSPENDED = "SUSPENDED"


class RoleSteps(Protocol):
    """
    The steps of which changes consist.
    """

    def lead(self) -> None:
        """
        Have the store take messages, in a new epoch.
        """

    def follow(self) -> None:
        """
        Have the store and the tables take only what a master sends.
        """

    def serve(self) -> None:
        """
        Let slaves connect.
        """

    def close(self) -> None:
        """
        End the connections of slaves, and let none connect.
        """

    def deliver(self) -> None:
        """
        Begin to deliver delayed messages, and to check transactions.
        """

    def rest(self) -> None:
        """
        Deliver and check no more.
        """

    def unlock(self) -> None:
        """
        Forget which consumers have locked queues: they ask the next master.
        """

    def link(self) -> None:
        """
        Follow the master, once its address is known.
        """

    def unlink(self) -> None:
        """
        Follow no master.
        """

    def announce(self) -> None:
        """
        Tell the name servers of the role.
        """

    def withdraw(self) -> None:
        """
        Have the name servers forget this broker.
        """


_CHANGES: Final[Mapping[tuple[Role, Role], tuple[str, ...]]] = {
    (Role.SUSPENDED, Role.MASTER): ("lead", "serve", "deliver", "announce"),
    (Role.SUSPENDED, Role.FOLLOWER): ("link", "announce"),
    (Role.FOLLOWER, Role.MASTER): ("unlink", "lead", "serve", "deliver", "announce"),
    (Role.FOLLOWER, Role.SUSPENDED): ("unlink", "withdraw"),
    (Role.MASTER, Role.FOLLOWER): ("rest", "close", "unlock", "follow", "link", "announce"),
    (Role.MASTER, Role.SUSPENDED): ("rest", "close", "unlock", "follow", "withdraw"),
}


class BrokerRoleState:
    """
    The role of a broker.

    @ivar role: as it is now.  A broker that becomes a master is one once its store takes
        messages; one that becomes something else is that from the first step on.
    @ivar changes: how often it has changed.
    """

    _log = Logger()

    def __init__(self, role: Role = Role.SUSPENDED) -> None:
        self.role = role
        self.changes = 0

    @property
    def isMaster(self) -> bool:
        """
        Whether the broker takes messages.
        """
        return self.role is Role.MASTER

    @property
    def isSuspended(self) -> bool:
        """
        Whether the broker takes nothing at all.
        """
        return self.role is Role.SUSPENDED

    def become(self, role: Role, steps: RoleSteps) -> None:
        """
        Change the role.  Nothing happens if it is the same.

        @param steps: does what the change consists of.
        @raise StoreError: if the store cannot take messages; the broker is what it was.
        """
        before = self.role
        if role is before:
            return
        names = _CHANGES[before, role]
        self._log.info(
            "This broker was {before} and becomes {now}", before=before.value, now=role.value
        )
        self.changes += 1
        if role is not Role.MASTER:
            self.role = role
        for name in names:
            if name == "lead":
                self._lead(before, steps)
            else:
                getattr(steps, name)()

    def _lead(self, before: Role, steps: RoleSteps) -> None:
        try:
            steps.lead()
        except StoreError:
            steps.follow()
            if before is Role.FOLLOWER:
                steps.link()
            raise
        self.role = Role.MASTER
