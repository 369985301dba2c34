# SPDX-License-Identifier: Apache-2.0
"""
Fixtures for pytest, in a C{conftest.py}::

    pytest_plugins = ["txrocket.testing.pytest"]

or::

    from txrocket.testing.pytest import rocketCluster

This is the only module that needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txrocket.testing.childcluster import ChildCluster

__all__ = ["rocketCluster"]


@pytest.fixture(scope="session")
def rocketCluster() -> Iterator[ChildCluster]:
    """
    A name server and a broker in a child process, for all tests of the session.
    """
    with ChildCluster() as cluster:
        yield cluster
