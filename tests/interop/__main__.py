# SPDX-License-Identifier: Apache-2.0
"""
C{make interop}: RocketMQ's own programs as judges of ours.

    python -m tests.interop [--only TEXT] [--pairing TEXT] [--jobs N]

Without arguments all scenarios are run in all pairings, and RocketMQ's store and ours
take turns on one folder; what came of it is printed, and written to
C{docs/interop.md}.  With arguments, only what has the text in its name is run, and
nothing is written.
"""

from __future__ import annotations

import argparse
import sys

from twisted.internet.defer import Deferred

from tests.interop.programs import build, missing
from tests.interop.run import Run
from tests.interop.spark import step
from tests.live.servers import reactor

__all__ = ["main"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop")
    parser.add_argument("--only", default="", help="scenarios that have this in their title")
    parser.add_argument("--pairing", default="", help="pairings, such as java-ours@ours-ours")
    parser.add_argument("--jobs", type=int, default=8, help="how many cells at a time")
    return parser.parse_args()


def main() -> int:
    """
    @return: the exit code: 0 if all is well, or cannot be tried here.
    """
    arguments = _arguments()
    absent = missing()
    absent |= build(absent)
    for client, why in absent.items():
        print(f"without {client}: {why}", flush=True)
    run = Run(absent, arguments.only, arguments.pairing, arguments.jobs)
    codes: list[int] = []

    def start() -> None:
        def ended(result: object) -> None:
            # First: nobody may be there any more to print to.
            reactor.stop()
            codes.append(result if isinstance(result, int) else 1)
            if not isinstance(result, int):
                print(result)

        Deferred.fromCoroutine(run.run()).addBoth(ended)

    reactor.callWhenRunning(start)
    reactor.run()
    if not arguments.only and not arguments.pairing:
        codes.append(step(absent))
    return max(codes) if codes else 1


if __name__ == "__main__":
    sys.exit(main())
