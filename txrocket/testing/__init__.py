# SPDX-License-Identifier: Apache-2.0
"""
Clusters for tests, for users of txrocket and for its own tests.

  - L{MemoryCluster}: in memory, on a Clock.
  - L{RealCluster}: in this process, on the reactor, on free ports.
  - L{ChildCluster}: in a child process, without a reactor in the test.

L{txrocket.testing.trial} and L{txrocket.testing.pytest} have fixtures.
"""

from txrocket.testing.childcluster import ChildCluster, ClusterFailed
from txrocket.testing.memory.cluster import MemoryCluster
from txrocket.testing.realcluster import RealCluster

__all__ = ["ChildCluster", "ClusterFailed", "MemoryCluster", "RealCluster"]
