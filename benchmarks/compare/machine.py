# SPDX-License-Identifier: Apache-2.0
"""
What the figures were measured on, and what the system tells about a process.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "PageCache",
    "describe",
    "freeBytes",
    "freeMemory",
    "processor",
    "residentOwn",
    "sizeOf",
    "totalMemory",
]

# How much memory is left free, and how much is filled at most at a time, in GB.
_LEFT = 0.5
_MOST = 32.0

_CHUNK = 4 * 1024 * 1024


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
    return _memory(meminfo, "MemTotal")


def freeMemory(meminfo: str) -> float:
    """
    What of the machine's memory nobody uses, not even for pages of files, in GB.
    """
    return _memory(meminfo, "MemFree")


def _memory(meminfo: str, wanted: str) -> float:
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == wanted:
            return int(rest.split()[0]) / 1024 / 1024
    raise ValueError(f"no {wanted}")


class PageCache:
    """
    Pages of a file that nobody needs, with which free memory is filled.

    Memory that a virtual machine has not touched for some seconds is its host's, and the
    first to write to a page of it waits for the host: 12 us for 4 KiB were seen, more than
    a message of 1 KiB costs.  A broker that gets much stored pays most of that.  On a
    machine that has run for a while memory is full of pages of files, and none is free:
    so it is made to be.
    """

    def __init__(self, path: Path, free: Callable[[], float] | None = None) -> None:
        """
        @param path: of the file; it takes no room on the disk.
        @param free: how much memory is free, in GB.
        """
        self._path = path
        self._free = free or (lambda: freeMemory(Path("/proc/meminfo").read_text()))
        self._position = 0

    def fill(self) -> float:
        """
        Leave hardly any memory free.

        @return: how much was filled, in GB.
        """
        begun = self._position
        buffer = bytearray(_CHUNK)
        with self._path.open("ab") as opened:
            # Further on each time: what was read before may still be in memory.
            opened.truncate(begun + int((_MOST + 1) * 1024**3))
        with self._path.open("rb", buffering=0) as opened:
            opened.seek(begun)
            while self._free() > _LEFT and self._position - begun < _MOST * 1024**3:
                for _ in range(16):
                    self._position += opened.readinto(buffer)
        return (self._position - begun) / 1024**3

    def close(self) -> None:
        """
        Give the memory back.
        """
        self._path.unlink(missing_ok=True)


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
