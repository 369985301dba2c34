# SPDX-License-Identifier: Apache-2.0
"""
C{make interop}: what needs other people's programs to be tested.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from twisted.trial.reporter import VerboseTextReporter
from twisted.trial.runner import TestLoader, TrialRunner

from tests.interop.driven import build, missing

__all__ = ["main"]

_MODULES = ["tests.interop.live"]
_ROOT = Path(__file__).parents[2]


def main() -> int:
    """
    @return: the exit code: 0 if all is well, or cannot be tried here.
    """
    if absent := missing():
        print(f"interop skipped: {', '.join(absent)} not found; a JDK and Maven are needed")
        return 0
    build()
    suite = TestLoader().loadByNames(_MODULES)
    folder = str(_ROOT / "_trial_temp_interop")
    result: Any = TrialRunner(VerboseTextReporter, workingDirectory=folder).run(suite)
    failed = len(result.errors) + len(result.failures)
    print(f"\n{result.successes} passed, {failed} failed", flush=True)
    return 0 if result.successes and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
