# SPDX-License-Identifier: Apache-2.0
"""
The life that producers and consumers share: each is a service, a context, and can be
started and stopped by itself::

    start, startService, async with --> running --> stop, stopService, end of the block
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed

from txrocket.errors import RocketError

__all__ = ["MemberService"]

_Self = TypeVar("_Self", bound="MemberService")


class MemberService(Service, ABC):
    """
    A service that a L{Cluster<txrocket.client.cluster.Cluster>} is shared by.
    """

    def startService(self) -> None:
        """
        Start, as a service.

        @raise ConfigError: if the cluster has a member of this kind and group already.
        """
        Service.startService(self)

    def start(self) -> Deferred[None]:
        """
        Start.

        @return: a Deferred that fails as C{startService} raises.
        """
        try:
            self.startService()
        except RocketError:
            return fail()
        return succeed(None)

    def stop(self, within: float = 5.0) -> Deferred[None]:
        """
        Begin nothing new, wait for everything in flight, and leave the cluster.

        @param within: how many seconds to wait.
        """
        if not self.running:
            return succeed(None)
        Service.stopService(self)
        return self._shutDown(within)

    def stopService(self) -> Deferred[None]:
        """
        Stop, as a service.
        """
        return self.stop()

    @abstractmethod
    def _shutDown(self, within: float) -> Deferred[None]:
        """
        Stop, which the service no longer being C{running} announces.

        @param within: how many seconds to wait for everything in flight.
        """

    async def __aenter__(self: _Self) -> _Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()
