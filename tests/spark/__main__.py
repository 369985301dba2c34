# SPDX-License-Identifier: Apache-2.0
"""
C{make test-spark}: what needs Spark.  C{python -m tests.spark [modules...]} runs some of it.

Nothing of the package may be imported here before the measuring starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coverage import Coverage
from twisted.trial.runner import TestLoader, TrialRunner

from tests.patience import VerboseImpatient

__all__ = ["main"]

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "spark" / "pyspark_rocketmq"

# In this order: what is quick to fail goes first.
_MODULES = ("columns", "losses", "direct", "sessions", "chosen", "jobs", "kills")

# The part of it that runs without Spark is tested by C{make test} as well.
_THRESHOLD = 95.0


def main(names: Sequence[str]) -> int:
    """
    @param names: of modules; all if there are none.
    @return: the exit code: 0 if all is well.
    """
    coverage = Coverage(data_file=None, config_file=False, source=[str(_PACKAGE)])
    coverage.start()
    from pyspark_rocketmq.javahome import NoJava, findJava

    try:
        print(f"Java: {findJava()}")
    except NoJava as error:
        print(error)
        return 1
    modules = [f"tests.spark.{each}" for each in names or _MODULES]
    loader = TestLoader()
    suite = loader.loadByNames([*modules, *([] if names else _light())])
    folder = str(_ROOT / "_trial_temp_spark")
    try:
        result: Any = TrialRunner(VerboseImpatient, workingDirectory=folder).run(suite)
    finally:
        from tests.spark.running import stopAll

        stopAll()
    coverage.stop()
    failed = len(result.errors) + len(result.failures)
    sufficient = bool(names) or coverage.report(show_missing=True) >= _THRESHOLD
    print(f"\n{result.successes} passed, {failed} failed", flush=True)
    return 0 if result.successes and not failed and sufficient else 1


def _light() -> list[str]:
    """
    The tests that need no Spark, for what they reach.
    """
    found = sorted(Path(__file__).parent.glob("test_*.py"))
    return [f"tests.spark.{each.stem}" for each in found]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
