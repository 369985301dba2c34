# SPDX-License-Identifier: Apache-2.0
"""
Checking a store's folder, without changing it.

The log is gone through once, from its first record on.  Queues and index were
filled in the log's order, so both are read beside it, each entry once::

    log    | a | b | c | d | e |
    queue    a       c   d   ?        e is missing
    index    a a b     x d d e        x points nowhere

A fault is reported once for each place and kind, with a count, because one damaged file
makes thousands of wrong entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import attrs

from txrocket.store.dispatch import Dispatcher
from txrocket.store.files.handles import Handles
from txrocket.store.log.commitlog import CommitLog
from txrocket.store.settings import StoreSettings, delayLevels
from txrocket.store.verify.checkpoint import CheckpointCheck
from txrocket.store.verify.index import IndexCheck
from txrocket.store.verify.log import LogCheck
from txrocket.store.verify.queues import QueuesCheck
from txrocket.store.verify.readonly import Note, ReadOnlyFiles, openLog
from txrocket.store.verify.replica import ReplicaCheck, ReplicaCounts
from txrocket.store.verify.tables import TablesCheck

__all__ = ["Problem", "Report", "Verifier", "summary"]

_DEFAULTS = StoreSettings("")
# How many records lie between two reports of progress.
_EVERY = 1024
# How much of a lock file is read.
_LOCK_SHOWN = 16


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
    The findings.

    @ivar closed: whether the last process has closed the folder.
    @ivar bad: the offset of the first bytes that are no record, and the fault.
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
    replica: ReplicaCounts = attrs.field(factory=ReplicaCounts)
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
        commitLog: str | None = None,
        slots: int = _DEFAULTS.maxHashSlotNum,
        levels: str | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """
        @param commitLog: C{storePathCommitLog}; C{commitlog} in the folder if not given.
        @param slots: C{maxHashSlotNum}, which index files do not tell.
        @param levels: C{messageDelayLevel}: the queues of delayed messages tell
            by it when each is due.  If not given, any delay may be right.
        @param progress: gets how many bytes are done, and how many there are.
        """
        self._root = root
        self._commitLog = commitLog
        self._slots = slots
        self._delaysKnown = levels is not None
        self._delays = delayLevels(levels or _DEFAULTS.messageDelayLevel)
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
        report = Report(closed=not os.path.exists(self._path("abort")))

        def note(where: str, kind: str, detail: str) -> None:
            if self._unsafe and kind.startswith("missing"):
                report.unfiled += 1
            else:
                report.note(os.path.relpath(where, self._root), kind, detail)

        try:
            self._run(report, note)
        finally:
            self._handles.close()
        return report

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _run(self, report: Report, note: Note) -> None:
        log = openLog(self._handles, self._root, note, self._commitLog)
        checkpoint = CheckpointCheck(self._handles, self._root, report.closed, note)
        tidy = checkpoint.tidy
        logCheck = LogCheck(log, note, tidy)
        queues = QueuesCheck(
            self._handles,
            self._path("consumequeue"),
            note,
            logCheck.unreadable,
            self._delaysKnown,
            tidy,
        )
        queues.load()
        index = IndexCheck(self._handles, self._path("index"), self._slots, log, note, tidy)
        self._log(log, logCheck, queues, index, checkpoint, report)
        queues.finish(log.first)
        index.finish()
        ends = dict(queues.ends())
        checkpoint.finish(
            log.first, logCheck.end, log.segments.end, sum(ends.values()), index.marks()
        )
        report.tables = TablesCheck(self._path("config"), ends, note).run()
        report.replica = ReplicaCheck(self._root, logCheck.end, report.closed, note).run()
        self._lock(note)
        report.queues, report.queueFiles, report.entries = queues.counts()
        report.indexFiles, report.indexEntries = index.counts()

    def _log(
        self,
        log: CommitLog,
        logCheck: LogCheck,
        queues: QueuesCheck,
        index: IndexCheck,
        checkpoint: CheckpointCheck,
        report: Report,
    ) -> None:
        follow = Dispatcher(queues, index, self._delays, lambda *each: None)
        bases = log.segments.bases
        report.first = log.first
        report.logFiles = len(bases)
        report.logBytes = sum(os.path.getsize(log.segments.pathOf(base)) for base in bases)
        total = log.segments.end - log.first
        safe = log.segments.end if report.closed else checkpoint.there.offset or 0
        for scanned in logCheck.records():
            self._unsafe = scanned.offset >= safe
            checkpoint.see(scanned.record)
            queues.record = scanned.record
            follow.file(scanned.record)
            report.records += 1
            if report.records % _EVERY == 0:
                self._progress(logCheck.end - log.first, total)
        self._unsafe = False
        self._progress(total, total)
        report.end, report.bad = logCheck.end, logCheck.bad

    def _lock(self, note: Note) -> None:
        path = self._path("lock")
        if os.path.exists(path):
            with open(path, "rb") as lock:
                data = lock.read(_LOCK_SHOWN)
            if data != b"lock":
                note(path, "wrong content", f"{data!r}, not b'lock'")


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
    epochs, cutFiles, cutRecords, asides = report.replica
    if epochs:
        yield f"epochs            {epochs}"
    if cutFiles:
        yield f"cut off           {cutFiles} files, {cutRecords} records"
    if asides:
        yield f"set aside         {asides} folders"
    if report.unfiled:
        yield f"to be made        {report.unfiled} entries of queues and index, by the next start"
    if report.bad is not None:
        yield f"first bad record  at {report.bad[0]}: {report.bad[1]}"
    for problem in report.problems:
        yield f"problem           {problem}"
    yield f"damaged: {len(report.problems)} problems" if report.problems else "sound"
