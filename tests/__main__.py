# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests [modules...]}: runs the tests with trial, in this process,
measures what they reach, and says on its last line how many passed.

Without arguments all tests are run, and txrocket must be covered to L{THRESHOLD} per
cent of its lines; a part of the tests is not held to that.  Nothing of txrocket may
be imported here before the measuring starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coverage import Coverage
from twisted.trial.reporter import Reporter, VerboseTextReporter
from twisted.trial.runner import TestLoader, TrialRunner

# What is measured in a child process is not seen, and a last few lines are for
# machines other than this one.
THRESHOLD = 95.0

ROOT = Path(__file__).parent.parent
MEASURED = [str(ROOT / "txrocket" / "*")]


def run(names: Sequence[str]) -> Any:
    """
    Run tests in alphabetical order.

    @param names: of packages, modules, classes or methods.
    @return: trial's reporter.
    """
    suite = TestLoader().loadByNames(list(names) or ["tests"], recurse=True)
    reporter = VerboseTextReporter if names else Reporter
    return TrialRunner(reporter, workingDirectory=str(ROOT / "_trial_temp")).run(suite)


def main(names: Sequence[str]) -> int:
    """
    @return: the exit code: 0 only if tests were run, none failed and, where all
        were run, enough was covered.
    """
    # In memory: two runs at a time do not meet in a file.
    coverage = Coverage(data_file=None, config_file=str(ROOT / "setup.cfg"))
    coverage.start()
    try:
        result = run(names)
    finally:
        coverage.stop()
    sufficient = True
    if not names:
        covered = coverage.report(include=MEASURED)
        sufficient = covered >= THRESHOLD
        if not sufficient:
            print(f"\n{covered:.1f} % of the lines are covered, {THRESHOLD:g} % are called for")
    if result.shouldStop:
        print("\nThe run was broken off")
    passed, skipped = result.successes, len(result.skips)
    failed = len(result.errors) + len(result.failures) + len(result.unexpectedSuccesses)
    counts = [f"{passed} passed", f"{failed} failed"] + [f"{skipped} skipped"] * bool(skipped)
    print("\n" + ", ".join(counts), flush=True)
    return 0 if passed and not failed and not result.shouldStop and sufficient else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
