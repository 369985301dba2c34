# SPDX-License-Identifier: Apache-2.0
"""
What the figures were measured on, and what the system tells about a process.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

__all__ = ["describe", "freeBytes", "processor", "residentOwn", "sizeOf", "totalMemory"]


def residentOwn(status: str) -> float:
    """
    The memory of its own that a process has, without that of files, in MB.

    @param status: the text of C{/proc/PID/status}.
    @raise ValueError: if it is not in it: a process that has ended has none.
    """
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name == "RssAnon":
            return int(rest.split()[0]) / 1024
    raise ValueError("no RssAnon")


def processor(cpuinfo: str) -> str:
    """
    The name of the processor.

    @param cpuinfo: the text of C{/proc/cpuinfo}.
    """
    for line in cpuinfo.splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware"):
            return rest.strip()
    return "unknown"


def totalMemory(meminfo: str) -> float:
    """
    The machine's memory, in GB.

    @param meminfo: the text of C{/proc/meminfo}.
    """
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) / 1024 / 1024
    raise ValueError("no MemTotal")


def describe() -> str:
    """
    The machine, in one line.
    """
    name = processor(Path("/proc/cpuinfo").read_text())
    memory = totalMemory(Path("/proc/meminfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {name}, {memory:.0f} GB of memory, Linux {platform.release()}"


def sizeOf(folder: Path) -> int:
    """
    The bytes that a folder takes on the disk, those of holes not counted.
    """
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def freeBytes(folder: Path) -> int:
    """
    The bytes that are free on the disk that a folder is on.
    """
    return shutil.disk_usage(folder).free
