# SPDX-License-Identifier: Apache-2.0
"""
Fixtures for trial: clusters that stop when the test is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from txrocket.testing.memory.cluster import MemoryCluster
from txrocket.testing.realcluster import RealCluster

__all__ = ["memoryCluster", "realCluster"]


class _Case(Protocol):
    """
    The used part of a test case.
    """

    def addCleanup(self, function: Callable[[], object], /) -> None: ...


def memoryCluster(case: _Case, **options: Any) -> MemoryCluster:
    """
    Start a cluster in memory, in C{setUp}.

    @param options: arguments of L{MemoryCluster}.
    """
    cluster = MemoryCluster(**options)
    case.addCleanup(cluster.stop)
    cluster.start()
    return cluster


def realCluster(case: _Case, reactor: Any, **options: Any) -> Deferred[RealCluster]:
    """
    Start a cluster on the reactor, in C{setUp}.

    @param options: arguments of L{RealCluster}.
    @return: a Deferred that fires with the cluster once it has started.
    """
    cluster = RealCluster(reactor, **options)
    case.addCleanup(cluster.stop)
    return cluster.start().addCallback(lambda none: cluster)
