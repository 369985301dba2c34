# SPDX-License-Identifier: Apache-2.0
"""
A test with pytest, without a reactor: for a blocking client, or for any program that gets
the address of its name server::

    .venv/bin/python -m pytest examples/testing_pytest.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from txrocket.testing import ChildCluster
from txrocket.testing.pytest import rocketCluster

__all__ = ["rocketCluster"]

PROGRAM = Path(__file__).parent / "first_message.py"


def test_firstMessage(rocketCluster: ChildCluster) -> None:
    """
    The program prints the message that it has sent and pulled.
    """
    command = [sys.executable, str(PROGRAM), rocketCluster.nameServers[0]]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"sent to {rocketCluster.brokers[0]}" in ran.stdout
    assert "pulled b'hello', tagged english" in ran.stdout
