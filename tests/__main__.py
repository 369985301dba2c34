# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests [modules...]}: runs the tests with trial, measures what they reach, and
says on its last line how many passed.

All tests, without arguments, take a process for each core and one more, since some modules
mostly wait.  The names of the modules are in a pipe, the longest first, so that none of
these is left for the end; a worker that is free takes the next::

    names ==> pipe ==> worker: trial, coverage ==> report, counts, lines reached
                  \\==> worker                 ==> ...

txrocket must then be covered to L{THRESHOLD} per cent of its lines; a part of the tests,
which is run in this process, is not held to that.  Nothing of txrocket may be imported
before the measuring starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO
from unittest import TestResult, TestSuite

from coverage import Coverage
from twisted.python.modules import getModule
from twisted.trial.itrial import ITestCase
from twisted.trial.reporter import Reporter
from twisted.trial.runner import TestLoader, TrialRunner
from twisted.trial.unittest import decorate

from tests.patience import Impatient, VerboseImpatient

# What is measured in a child process is not seen, and a last few lines are for
# machines other than this one.
THRESHOLD = 95.0

ROOT = Path(__file__).parent.parent
MEASURED = [str(ROOT / "txrocket" / "*")]

# How the names of modules begin that take long, the longest first.  Those that wait for
# processes come before others that take as long, which fill the time.
LONGEST = (
    "tests.test_turns",
    "tests.live.test_clock",
    "tests.store.test_power",
    "tests.live.",
    "tests.store.test_crash",
    "tests.damage.",
    "tests.test_taps",
    "tests.broker.test_delaymodel",
    "tests.broker.test_timermodel",
    "tests.store.test_model",
    "tests.test_examples",
    "tests.test_instances",
    "tests.blocking.test_live",
    "tests.broker.test_timers",
    "tests.broker.test_clockcluster",
)

# What a name takes in the pipe: a read gives one of them, whole, to one worker.  The
# pipe holds 64 KiB, and so all of them before the first worker starts.
_NAME = 128


class Waiting(TestSuite):
    """
    The tests of the modules whose names wait in a pipe.
    """

    def __init__(self, names: int) -> None:
        super().__init__()
        self._names = names

    def run(self, result: TestResult, debug: bool = False) -> TestResult:
        """
        Take modules until there are no more.
        """
        while not result.shouldStop and (name := os.read(self._names, _NAME)):
            module = name.decode().strip()
            print(module, flush=True)
            begun = time.monotonic()
            decorate(TestLoader().loadByName(module, recurse=True), ITestCase)(result)
            print(f"{module}: {time.monotonic() - begun:.1f} s", flush=True)
        return result


def run(suite: TestSuite, reporter: type[Reporter], stream: TextIO) -> dict[str, int]:
    """
    Run tests.

    @return: how many passed, failed and were skipped, and whether it was broken off.
    """
    runner = TrialRunner(reporter, stream=stream, workingDirectory=str(ROOT / "_trial_temp"))
    result: Any = runner.run(suite)
    failed = len(result.errors) + len(result.failures) + len(result.unexpectedSuccesses)
    return {
        "passed": result.successes,
        "failed": failed,
        "skipped": len(result.skips),
        "stopped": int(result.shouldStop),
    }


def work(names: int, folder: Path) -> None:
    """
    Be a worker.

    @param folder: where to leave the report, the counts and the lines that were reached.
    """
    coverage = Coverage(
        data_file=str(folder / "lines"), data_suffix=True, config_file=str(ROOT / "setup.cfg")
    )
    coverage.start()
    try:
        # By lines, so that nothing is missing if a test gets stuck.
        with (folder / f"{os.getpid()}.report").open("w", buffering=1) as stream:
            counts = run(Waiting(names), Impatient, stream)
    finally:
        coverage.stop()
        coverage.save()
    (folder / f"{os.getpid()}.counts").write_text(json.dumps(counts))


def ordered(names: Sequence[str]) -> list[str]:
    """
    Names of modules, those that take longest first.
    """

    def rank(name: str) -> int:
        beginnings = enumerate(LONGEST)
        return next((at for at, each in beginnings if name.startswith(each)), len(LONGEST))

    return sorted(names, key=lambda name: (rank(name), name))


def runAll(folder: Path) -> tuple[list[dict[str, int]], bool]:
    """
    Run all tests in processes of their own.

    @return: what each of them counted, and whether enough was covered.
    """
    found = [each.name for each in getModule("tests").walkModules(importPackages=True)]
    names = ordered([each for each in found if each.rpartition(".")[2].startswith("test_")])
    reading, writing = os.pipe()
    os.write(writing, b"".join(each.encode().ljust(_NAME) for each in names))
    os.close(writing)
    command = [sys.executable, "-m", "tests", "--worker", str(reading), str(folder)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, pass_fds=[reading])
        for _ in range((os.cpu_count() or 1) + 1)
    ]
    counts = []
    for worker in workers:
        code = worker.wait()
        report = folder / f"{worker.pid}.report"
        if report.exists():
            print(report.read_text())
        if code:
            print(f"A worker ended with exit code {code}")
        left = folder / f"{worker.pid}.counts"
        counts.append(json.loads(left.read_text()) if left.exists() else {"stopped": 1})
    os.close(reading)
    coverage = Coverage(data_file=str(folder / "all"), config_file=str(ROOT / "setup.cfg"))
    coverage.combine([str(each) for each in folder.glob("lines.*")])
    covered = coverage.report(include=MEASURED)
    if covered < THRESHOLD:
        print(f"\n{covered:.1f} % of the lines are covered, {THRESHOLD:g} % are called for")
    return counts, covered >= THRESHOLD


def main(names: Sequence[str]) -> int:
    """
    @return: the exit code: 0 only if tests were run, none failed and, where all
        were run, enough was covered.
    """
    sufficient = True
    if names:
        suite = TestLoader().loadByNames(list(names), recurse=True)
        counts = [run(suite, VerboseImpatient, sys.stdout)]
    else:
        with tempfile.TemporaryDirectory(prefix="txrocket-tests-") as folder:
            counts, sufficient = runAll(Path(folder))
    passed, failed, skipped, stopped = (
        sum(each.get(name, 0) for each in counts)
        for name in ("passed", "failed", "skipped", "stopped")
    )
    if stopped:
        print("\nThe run was broken off")
    said = [f"{passed} passed", f"{failed} failed"] + [f"{skipped} skipped"] * bool(skipped)
    print("\n" + ", ".join(said), flush=True)
    return 0 if passed and not failed and not stopped and sufficient else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
