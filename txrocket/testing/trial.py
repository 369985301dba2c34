# SPDX-License-Identifier: Apache-2.0
"""
For tests with trial: clusters that are stopped when the test is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from txrocket.testing.memory import MemoryCluster
from txrocket.testing.real import RealCluster

__all__ = ["memoryCluster", "realCluster"]


class _Case(Protocol):
    """
    What is used of a test case.
    """

    def addCleanup(self, function: Callable[[], object], /) -> None: ...


def memoryCluster(case: _Case, **options: Any) -> MemoryCluster:
    """
    For C{setUp}: a cluster in memory that has been started.

    @param options: those of L{MemoryCluster}.
    """
    cluster = MemoryCluster(**options)
    case.addCleanup(cluster.stop)
    cluster.start()
    return cluster


def realCluster(case: _Case, reactor: Any, **options: Any) -> Deferred[RealCluster]:
    """
    For C{setUp}: a Deferred of a cluster on the reactor that has been started.

    @param options: those of L{RealCluster}.
    """
    cluster = RealCluster(reactor, **options)
    case.addCleanup(cluster.stop)
    return cluster.start().addCallback(lambda none: cluster)
