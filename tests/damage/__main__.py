# SPDX-License-Identifier: Apache-2.0
"""
Run many cases, and print those that fail and a table::

    python -m tests.damage --cases 2000 --jobs 2
    python -m tests.damage --seed 7 --case 42

Cases run in processes of their own, so that one that crashes is told like any other.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.damage.case import Bench, faultOf
from tests.damage.fault import fileKind
from tests.damage.template import make

ROOT = Path(__file__).parents[2]
# Memory in place of a disk where there is such a folder: nothing here tests the disk itself.
FAST = "/dev/shm"
# How many seconds a case may take before it counts as one that hangs.
HANGS = 120
OUTCOMES = ("harmless", "told", "untellable", "failed")


def cases(seed: int, numbers: range, folder: str) -> Iterator[dict[str, Any]]:
    """
    Run cases in this process.

    @param folder: where files may be made.
    """
    templates = [make(f"{folder}/template", clean=clean) for clean in (True, False)]
    benches = {each.clean: Bench(each, f"{folder}/case") for each in templates}
    for bench in benches.values():
        _ = bench.baseline
    # What is there now stays, and need not be looked at after each case.
    gc.freeze()
    for number in numbers:
        template, fault = faultOf(seed, number, templates)
        about = {
            "number": number,
            "file": fault.name,
            "fault": str(fault),
            "clean": template.clean,
        }
        yield {**about, "begun": True}
        # The system ends a case that hangs, which counts as a crash.
        signal.alarm(HANGS)
        verdict = benches[template.clean].run(fault)
        signal.alarm(0)
        yield {
            **about,
            "outcome": verdict.outcome,
            "excuse": verdict.excuse,
            "failures": verdict.failures,
            "harm": verdict.harm,
            "told": verdict.told,
        }


def work(seed: int, numbers: range) -> Iterator[dict[str, Any]]:
    """
    Run cases in another process, and in a new one after each crash.
    """
    above = FAST if os.access(FAST, os.W_OK) else None
    while numbers:
        asked = [sys.executable, "-m", "tests.damage", "--seed", str(seed), "--worker"]
        asked += [str(each) for each in (numbers.start, numbers.stop, numbers.step)]
        begun: dict[str, Any] | None = None
        with (
            tempfile.TemporaryDirectory(prefix="txrocket-damage-", dir=above) as folder,
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [*asked, "--folder", folder],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                if told.pop("begun", False):
                    begun = told
                else:
                    yield told
                    begun = None
                    numbers = range(told["number"] + numbers.step, numbers.stop, numbers.step)
            process.wait()
            errors.seek(0)
            said = errors.read().strip().splitlines()[-1:]
        if process.returncode == 0:
            return
        if begun is None:
            raise RuntimeError(f"a worker ended with {process.returncode}: {said}")
        crash = f"crash: the process ended with {process.returncode}: {''.join(said)}"
        rest = {"excuse": "", "harm": [], "told": []}
        yield {**begun, **rest, "outcome": "failed", "failures": [crash]}
        numbers = range(begun["number"] + numbers.step, numbers.stop, numbers.step)


def runAll(
    seed: int, count: int, jobs: int, show: Callable[[str], None] = lambda said: None
) -> list[dict[str, Any]]:
    """
    Run cases in several processes.

    @param show: is given the line of a case that fails, at once, in any thread.
    @return: what became of each, in order.
    """

    def part(numbers: range) -> list[dict[str, Any]]:
        results = []
        for told in work(seed, numbers):
            results.append(told)
            if told["outcome"] == "failed":
                show(line(told))
        return results

    parts = [range(first, count, jobs) for first in range(min(jobs, count))]
    with ThreadPoolExecutor(jobs) as pool:
        each = list(pool.map(part, parts))
    return sorted((told for part in each for told in part), key=lambda told: told["number"])


def line(told: dict[str, Any]) -> str:
    """
    A case in one line.
    """
    stop = "clean" if told["clean"] else "unclean"
    said = "; ".join(told["failures"][:3])
    return f"case {told['number']} {stop} {told['fault']}: {said}"


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """
    How many cases of each kind of file came to what.
    """
    counts = Counter((fileKind(each["file"]), each["outcome"]) for each in results)
    kinds = sorted({kind for kind, _ in counts})
    yield f"{'file':28}" + "".join(f"{each:>12}" for each in OUTCOMES)
    for kind in [*kinds, "all"]:
        row = [
            sum(number for (k, o), number in counts.items() if kind in (k, "all") and o == outcome)
            for outcome in OUTCOMES
        ]
        yield f"{kind:28}" + "".join(f"{each:12}" for each in row)
    excuses = Counter(each["excuse"] for each in results if each["excuse"])
    for excuse, number in sorted(excuses.items()):
        yield f"untellable by the format: {excuse}: {number}"
    reasons = Counter(
        reason
        for each in results
        for reason in {failure.partition(":")[0] for failure in each["failures"]}
    )
    for reason, number in reasons.most_common():
        yield f"failed: {reason}: {number} cases"


def main(arguments: list[str]) -> int:
    """
    @return: 0 if no case failed.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.damage")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--case", type=int, help="this one alone, with all that is known of it")
    parser.add_argument("--worker", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        for told in cases(given.seed, range(*given.worker), given.folder):
            print(json.dumps(told), flush=True)
        return 0
    print(f"seed {given.seed}", flush=True)
    if given.case is not None:
        (told,) = work(given.seed, range(given.case, given.case + 1))
        print(json.dumps(told, indent=2))
        return int(told["outcome"] == "failed")
    results = runAll(given.seed, given.cases, given.jobs, lambda said: print(said, flush=True))
    for row in table(results):
        print(row)
    return int(any(each["outcome"] == "failed" for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
