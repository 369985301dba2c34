# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests.replication [--first SEED] [--count N] [--tell]}: tries schedules, and tells of
those that break a promise.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.replication.runs import attempt


def main() -> int:
    """
    Try schedules.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.replication")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="how many schedules")
    parser.add_argument("--tell", action="store_true", help="tell what happens in each")
    parser.add_argument("--most", type=int, default=10, help="end after so many failures")
    arguments = parser.parse_args()
    failures = 0
    began = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.count):
        schedule, error = attempt(seed)
        if arguments.tell and schedule is not None:
            print("\n".join(schedule.told))
        if error is not None:
            failures += 1
            print(f"seed {seed}: {error!r}", flush=True)
            if arguments.tell:
                traceback.print_exception(error)
        if failures >= arguments.most:
            break
    print(f"{failures} failures, seeds to {seed}, {time.monotonic() - began:.1f} s")
    return min(1, failures)


if __name__ == "__main__":
    sys.exit(main())
