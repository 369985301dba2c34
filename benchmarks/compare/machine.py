# SPDX-License-Identifier: Apache-2.0
"""
Facts about the machine, its memory and its processes, from C{/proc}.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "PageCache",
    "cpuSeconds",
    "describe",
    "freeBytes",
    "freeMemory",
    "processor",
    "residentOwn",
    "sizeOf",
    "totalMemory",
]

# The memory that is left free, and the most that is filled at a time, in GB.
_LEFT = 0.5
_MOST = 32.0

_CHUNK = 4 * 1024 * 1024


def residentOwn(status: str) -> float:
    """
    The memory of a process without the pages of files, in MB.

    @param status: the text of C{/proc/PID/status}.
    @raise ValueError: if the text does not have it, because the process has ended.
    """
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name == "RssAnon":
            return int(rest.split()[0]) / 1024
    raise ValueError("no RssAnon")


def cpuSeconds(stat: str) -> float:
    """
    The seconds of CPU that a process has used, of the user's and of the system's.

    @param stat: the text of C{/proc/PID/stat}.
    """
    # The name in brackets may have blanks; times are the 14th and 15th field of all.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    The memory that is not even used for pages of files, in GB.
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
    Fills free memory with pages of an unused file.

    If a virtual machine has not touched a page for some seconds, the page belongs to its
    host.  The first write to it waits for the host, which can take longer than storing a
    message.  A broker that stores much would pay most of that.  On a machine that has run
    for a while, memory is full of pages of files, and this makes it so.
    """

    def __init__(self, path: Path, free: Callable[[], float] | None = None) -> None:
        """
        @param path: the path of the file, which takes no space on the disk.
        @param free: returns the free memory in GB.
        """
        self._path = path
        self._free = free or (lambda: freeMemory(Path("/proc/meminfo").read_text()))
        self._position = 0

    def fill(self) -> float:
        """
        Fill the free memory.

        @return: the memory that was filled, in GB.
        """
        begun = self._position
        buffer = bytearray(_CHUNK)
        with self._path.open("ab") as opened:
            # Continue behind the last fill, whose pages may still be in memory.
            opened.truncate(begun + int((_MOST + 1) * 1024**3))
        with self._path.open("rb", buffering=0) as opened:
            opened.seek(begun)
            while self._free() > _LEFT and self._position - begun < _MOST * 1024**3:
                for _ in range(16):
                    self._position += opened.readinto(buffer)
        return (self._position - begun) / 1024**3

    def close(self) -> None:
        """
        Remove the file, which frees the memory.
        """
        self._path.unlink(missing_ok=True)


def describe() -> str:
    """
    A line about the machine.
    """
    name = processor(Path("/proc/cpuinfo").read_text())
    memory = totalMemory(Path("/proc/meminfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {name}, {memory:.0f} GB of memory, Linux {platform.release()}"


def sizeOf(folder: Path) -> int:
    """
    The bytes that a folder takes on the disk, without holes.
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
