# SPDX-License-Identifier: Apache-2.0
"""
Checking a store's folder, without changing it.

The log is gone through once, from its first record on.  Queues and index were
filled in the log's order, so both are read beside it, each entry once::

    log    | a | b | c | d | e |
    queue    a       c   d   ?        e is missing
    index    a a b     x d d e        x points nowhere

What is wrong is told once for each place and kind, with a count: one damaged file
makes thousands of wrong entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import attrs

from txrocket.errors import ProtocolError
from txrocket.protocol.javajson import parse
from txrocket.store.checkpoint import CheckpointFile
from txrocket.store.commitlog import CommitLog
from txrocket.store.files import Handles
from txrocket.store.follow import Follow
from txrocket.store.readonly import ReadOnlyFiles, openLog, whyNot
from txrocket.store.settings import StoreSettings, delayLevels
from txrocket.store.verifyindex import IndexCheck
from txrocket.store.verifyqueues import QueuesCheck

__all__ = ["Problem", "Report", "Verifier", "summary"]

_DEFAULTS = StoreSettings("")
# How often progress is told, in records.
_EVERY = 1024


@attrs.define
class Problem:
    """
    Something that is wrong.

    @ivar detail: of the first time that it was seen.
    """

    where: str
    kind: str
    detail: str
    count: int = 1

    def __str__(self) -> str:
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{self.where}: {self.kind}: {self.detail}{more}"


@attrs.define
class Report:
    """
    What was found.

    @ivar closed: whether the last process has closed the folder.
    @ivar bad: the first record that is none: its offset, and why.
    @ivar unfiled: how many entries of queues and index the next start will make,
        because the folder was not closed and they were not known to be safe.
    """

    closed: bool = True
    first: int = 0
    end: int = 0
    logFiles: int = 0
    logBytes: int = 0
    records: int = 0
    queues: int = 0
    queueFiles: int = 0
    entries: int = 0
    indexFiles: int = 0
    indexEntries: int = 0
    tables: int = 0
    unfiled: int = 0
    bad: tuple[int, str] | None = None
    _problems: dict[tuple[str, str], Problem] = attrs.field(factory=dict)

    @property
    def problems(self) -> list[Problem]:
        """
        All that is wrong.
        """
        return list(self._problems.values())

    def note(self, where: str, kind: str, detail: str) -> None:
        """
        Something is wrong.
        """
        problem = self._problems.get((where, kind))
        if problem is None:
            self._problems[where, kind] = Problem(where, kind, detail)
        else:
            problem.count += 1


class Verifier:
    """
    Checks one folder.
    """

    def __init__(
        self,
        root: str,
        *,
        slots: int = _DEFAULTS.maxHashSlotNum,
        levels: str = _DEFAULTS.messageDelayLevel,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """
        @param slots: C{maxHashSlotNum}, which index files do not tell.
        @param levels: C{messageDelayLevel}: the queues of delayed messages tell
            by it when each is due.
        @param progress: told how many bytes of how many are done.
        """
        self._root = root
        self._slots = slots
        self._delays = delayLevels(levels)
        self._progress = progress
        self._handles = Handles(ReadOnlyFiles(), 64)
        # Whether records are looked at that a start after a crash will file again.
        self._unsafe = False

    def run(self) -> Report:
        """
        Check everything.

        @raise StoreError: if there is no store.
        @raise OSError: if it cannot be read.
        """
        report = Report(closed=not os.path.exists(os.path.join(self._root, "abort")))

        def note(where: str, kind: str, detail: str) -> None:
            if self._unsafe and kind.startswith("missing"):
                report.unfiled += 1
            else:
                report.note(os.path.relpath(where, self._root), kind, detail)

        try:
            log = openLog(self._handles, self._root, note)
            queues = QueuesCheck(self._handles, os.path.join(self._root, "consumequeue"), note)
            queues.load()
            index = IndexCheck(
                self._handles, os.path.join(self._root, "index"), self._slots, log, note
            )
            self._log(log, Follow(queues, index, self._delays, lambda *each: None), report)
            queues.finish(log.first)
            index.finish()
            self._checkpoint(report)
            self._tables(report)
        finally:
            self._handles.close()
        report.queues, report.queueFiles, report.entries = queues.counts()
        report.indexFiles, report.indexEntries = index.counts()
        return report

    def _log(self, log: CommitLog, follow: Follow, report: Report) -> None:
        bases = log.segments.bases
        report.first = report.end = log.first
        report.logFiles = len(bases)
        report.logBytes = sum(os.path.getsize(log.segments.pathOf(base)) for base in bases)
        total = log.segments.end - log.first
        safe = log.segments.end if report.closed else self._safeOffset()
        for scanned in log.scan(log.first, strict=True):
            if scanned.offset != report.end:
                self._blank(log, report, scanned.offset - report.end)
            self._unsafe = scanned.offset >= safe
            follow.file(scanned.record)
            report.records += 1
            report.end = scanned.offset + scanned.size
            if report.records % _EVERY == 0:
                self._progress(report.end - log.first, total)
        self._unsafe = False
        self._progress(total, total)
        reason = whyNot(log, report.end)
        if reason is not None:
            report.bad = report.end, reason
            report.note("commitlog", "bad record", f"at {report.end}: {reason}")
        for base in bases:
            if base > report.end and any(log.segments.read(base, 8)):
                report.note("commitlog", "data behind the log's end", log.segments.nameOf(base))

    def _blank(self, log: CommitLog, report: Report, room: int) -> None:
        said = int.from_bytes(log.segments.read(report.end, 4), "big", signed=True)
        if said != room:
            report.note("commitlog", "wrong blank", f"at {report.end}: {said} bytes, not {room}")

    def _safeOffset(self) -> int:
        path = os.path.join(self._root, "checkpoint")
        if not os.path.exists(path):
            return 0
        return CheckpointFile(self._handles, path).read().offset or 0

    def _checkpoint(self, report: Report) -> None:
        path = os.path.join(self._root, "checkpoint")
        if not os.path.exists(path):
            return
        size = os.path.getsize(path)
        if size != 4096:
            report.note("checkpoint", "wrong size", f"{size} bytes, not 4096")
        offset = CheckpointFile(self._handles, path).read().offset
        if offset is not None and offset > report.end:
            report.note("checkpoint", "ahead of the log", f"{offset}, the log ends at {report.end}")

    def _tables(self, report: Report) -> None:
        folder = os.path.join(self._root, "config")
        for name in self._handles.files.names(folder):
            if name.endswith((".json", ".json.bak")):
                report.tables += 1
                with open(os.path.join(folder, name), "rb") as table:
                    data = table.read()
                try:
                    parse(data, _objectKey)
                except ProtocolError as error:
                    report.note(os.path.join("config", name), "does not parse", str(error))


def _objectKey(members: dict[object, object]) -> tuple[str, ...]:
    return tuple(sorted(map(str, members.items())))


def summary(report: Report) -> Iterable[str]:
    """
    A report as lines of text.
    """
    yield f"closed cleanly    {'yes' if report.closed else 'no: the next start will check it'}"
    yield f"commit log        {report.logFiles} files, {report.logBytes} bytes"
    yield f"  records         {report.records}, from {report.first} to {report.end}"
    yield f"consume queues    {report.queues} queues, {report.queueFiles} files"
    yield f"  entries         {report.entries}"
    yield f"index             {report.indexFiles} files"
    yield f"  entries         {report.indexEntries}"
    yield f"tables            {report.tables}"
    if report.unfiled:
        yield f"to be made        {report.unfiled} entries of queues and index, by the next start"
    if report.bad is not None:
        yield f"first bad record  at {report.bad[0]}: {report.bad[1]}"
    for problem in report.problems:
        yield f"problem           {problem}"
    yield f"damaged: {len(report.problems)} problems" if report.problems else "sound"
