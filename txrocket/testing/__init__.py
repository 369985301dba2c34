# SPDX-License-Identifier: Apache-2.0
"""
Clusters for tests, of users of txrocket and our own.

  - L{MemoryCluster}: in memory, on a Clock.
  - L{RealCluster}: in this process, on the reactor, on free ports.
  - L{ChildCluster}: in a child process, without a reactor in the test.

L{txrocket.testing.trial} and L{txrocket.testing.pytest} have fixtures.
"""

from txrocket.testing.child import ChildCluster, ClusterFailed
from txrocket.testing.memory import MemoryCluster
from txrocket.testing.real import RealCluster

__all__ = ["ChildCluster", "ClusterFailed", "MemoryCluster", "RealCluster"]
