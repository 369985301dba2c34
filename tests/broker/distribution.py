# SPDX-License-Identifier: Apache-2.0
"""
The settings in the properties files of RocketMQ's distribution: two masters with a slave
each, replicated synchronously or not, and two masters alone.
"""

from __future__ import annotations

__all__ = ["distribution"]

# By folder, the role of its masters and whether they have slaves.
_FOLDERS = {
    "2m-2s-sync": ("SYNC_MASTER", True),
    "2m-2s-async": ("ASYNC_MASTER", True),
    "2m-noslave": ("ASYNC_MASTER", False),
}


def distribution() -> dict[tuple[str, str], dict[str, str]]:
    """
    The settings of each file, by its folder and name.
    """
    found = {}
    for folder, (role, hasSlaves) in _FOLDERS.items():
        for letter in "ab":
            found[folder, f"broker-{letter}"] = _file(f"broker-{letter}", "0", role)
            if hasSlaves:
                found[folder, f"broker-{letter}-s"] = _file(f"broker-{letter}", "1", "SLAVE")
    return found


def _file(name: str, number: str, role: str) -> dict[str, str]:
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": number,
        "deleteWhen": "04",
        "fileReservedTime": "48",
        "brokerRole": role,
        "flushDiskType": "ASYNC_FLUSH",
    }
