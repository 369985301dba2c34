# SPDX-License-Identifier: Apache-2.0
"""
Two folders, byte for byte: the logs up to where they end, and the queues up to their last
entry.  Behind that, a file may be longer on one side, and has zeros.

RocketMQ's broker, when it makes entries again after a crash, does not know its delay levels
yet.  Entries of late messages then have the hash of the tag in place of the time, which both
kinds of broker can live with.  So with one of RocketMQ's these eight bytes do not count.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.interop.replicationpair import LOG_FILE
from txrocket.protocol.fastjson import parse

__all__ = ["differences", "dirtyPages", "logBytes", "queueBytes", "tableDifferences", "unsound"]

_ENTRY = 20

# The number of Linux's system call, which is the same on all processors.
_CACHESTAT = 451

# What of an entry RocketMQ's broker may write otherwise after a crash.
_TIME = slice(12, 20)
_LATE = "SCHEDULE_TOPIC_XXXX"
_FORGIVEN = f"consumequeue/{_LATE}/"


def logBytes(store: Path) -> dict[int, bytes]:
    """
    The files of a log by where each begins, without the zeros that follow what was written.
    """
    found = {}
    for each in sorted((store / "commitlog").iterdir()):
        if each.name.isdigit() and (data := each.read_bytes().rstrip(b"\0")):
            found[int(each.name)] = data
    return found


def _timeless(data: bytes) -> bytes:
    entries = bytearray(data)
    for start in range(0, len(entries), _ENTRY):
        entries[start + _TIME.start : start + _TIME.stop] = bytes(8)
    return bytes(entries)


def queueBytes(store: Path, isJava: bool) -> dict[tuple[str, str], bytes]:
    """
    The entries of all queues that have any.

    @param isJava: whether a broker of RocketMQ's made entries that they are compared with.
    """
    found = {}
    for queue in sorted((store / "consumequeue").glob("*/*")):
        if not queue.is_dir():
            continue
        data = b"".join(each.read_bytes() for each in sorted(queue.iterdir()))
        end = len(data.rstrip(b"\0"))
        # An entry may end with zeros: those of its tag's hash.
        end += -end % _ENTRY
        if end:
            isForgiven = isJava and queue.parent.name == _LATE
            found[queue.parent.name, queue.name] = (
                _timeless(data[:end]) if isForgiven else data[:end]
            )
    return found


def _firstDifference(one: bytes, two: bytes) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(two)),
    )


def differences(master: Path, slave: Path, end: int, isJava: bool) -> list[str]:
    """
    What is not the same in two folders.

    @param end: where both logs should end.
    @param isJava: whether a broker of RocketMQ's made either.
    """
    found = []
    ours, theirs = logBytes(master), logBytes(slave)
    for start in sorted({*ours, *theirs}):
        one, two = ours.get(start, b""), theirs.get(start, b"")
        if one != two:
            at = start + _firstDifference(one, two)
            found.append(f"the log at {at}: {len(one)} and {len(two)} bytes in the file {start}")
    last = max(theirs, default=0)
    # A record may end with zeros, if a body is its last part: then it has no properties.
    if not last <= end <= last + LOG_FILE or end < last + len(theirs.get(last, b"")):
        found.append(f"the log ends at {last + len(theirs.get(last, b''))}, not at {end}")
    queues, copies = queueBytes(master, isJava), queueBytes(slave, isJava)
    for key in sorted({*queues, *copies}):
        one, two = queues.get(key, b""), copies.get(key, b"")
        if one != two:
            at = _firstDifference(one, two) // _ENTRY
            found.append(f"{key}: {len(one) // _ENTRY} and {len(two) // _ENTRY} entries, from {at}")
    return found


def tableDifferences(tables: Mapping[str, bytes], slave: Path) -> list[str]:
    """
    What of a master's tables is otherwise in a slave's folder.

    @param tables: what the master answers, by the name of the file.
    """
    found = []
    for name, data in tables.items():
        try:
            there = parse((slave / "config" / name).read_bytes(), str)
        except (FileNotFoundError, ValueError):
            # RocketMQ's broker may be about to write it.
            there = {}
        for key, entries in parse(data, str).items():
            copies = there.get(key, {})
            if key != "dataVersion":
                found += [
                    f"{name} {each}: {value}, and the slave has {copies.get(each)}"
                    for each, value in entries.items()
                    if copies.get(each) != value
                ]
    return found


def unsound(store: Path, isJava: bool) -> list[str]:
    """
    What C{txrocket.store verify} finds wrong in a folder.

    @param isJava: whether a broker of RocketMQ's made it.
    """
    settings = store.with_suffix(".conf")
    command = [sys.executable, "-m", "txrocket.store", "verify", "--config", str(settings)]
    done = subprocess.run([*command, str(store)], capture_output=True, text=True)
    if done.returncode == 0:
        return []
    problems = [each for each in done.stdout.splitlines() if each.startswith("problem")]
    if not problems:
        return [f"{store.name}: {done.stdout[-1000:]}{done.stderr[-1000:]}"]
    return [f"{store.name}: {each}" for each in problems if not (isJava and _FORGIVEN in each)]


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent")
    )


def dirtyPages(folder: Path) -> int | None:
    """
    How many pages of a folder's files are in memory and not on the disk yet.

    @return: L{None} where the system does not tell, before Linux 6.5.
    """
    library, count = ctypes.CDLL(None, use_errno=True), 0
    for each in folder.iterdir():
        with each.open("rb") as opened:
            pages = _Pages()
            arguments = (opened.fileno(), ctypes.byref(_Range()), ctypes.byref(pages), 0)
            if library.syscall(_CACHESTAT, *arguments):
                return None
            count += pages.dirty + pages.writeback
    return count
