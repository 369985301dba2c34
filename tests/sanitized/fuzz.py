# SPDX-License-Identifier: Apache-2.0
"""
A fuzzer of every function of the compiled module::

    python -m tests.sanitized.fuzz --seconds 600
    python -m tests.sanitized.fuzz --seed 7 --case 4711      one case again

Each case is made from the seed and its own number alone: valid arguments (L{arguments}), then
none or a few changes (L{mutation}).  A call may raise what it documents; all else, a crash
included, is a failure.  The number of the case under way is in the file of C{--mark}, where
whoever started the fuzzer finds it after a crash.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from mmap import mmap
from typing import Any, Final

from tests.sanitized.arguments import ARGUMENTS
from tests.sanitized.mutation import STRANGE, mutated
from txrocket.bulk import compiled
from txrocket.errors import RocketError

# What a function may raise.  SystemError and MemoryError are never right.
REFUSALS: Final = (
    TypeError,
    ValueError,
    OverflowError,
    KeyError,
    AttributeError,
    BufferError,
    ZeroDivisionError,
    RocketError,
    OSError,
)


def case(seed: int, number: int, names: list[str]) -> tuple[str, list[Any]]:
    """
    The function and the arguments of a case.
    """
    chance = random.Random(f"{seed}/{number}")
    name = names[number % len(names)]
    arguments = ARGUMENTS[name](chance)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 8))):
        if arguments:
            at = chance.randrange(len(arguments))
            arguments[at] = mutated(arguments[at], chance)
    if arguments and chance.randrange(100) == 0:
        del arguments[-1]
    if chance.randrange(100) == 0:
        arguments.append(chance.choice(STRANGE))
    return name, arguments


def run(name: str, arguments: list[Any]) -> str:
    """
    Call a function.

    @return: C{"refused"} or C{"served"}.
    """
    try:
        getattr(compiled, name)(*arguments)
    except REFUSALS:
        return "refused"
    return "served"


def fuzz(
    seed: int,
    names: list[str],
    numbers: Iterable[int],
    ended: Callable[[], bool],
    mark: Callable[[int], None] = lambda number: None,
) -> Counter[tuple[str, str]]:
    """
    Run cases until it is said to end.

    @return: how often each function served and refused.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        if number % 256 == 0 and ended():
            break
        mark(number)
        name, arguments = case(seed, number, names)
        try:
            counts[name, run(name, arguments)] += 1
        except BaseException:
            print(f"seed {seed}, case {number}: {name}{tuple(arguments)!r:.2000}", file=sys.stderr)
            raise
    return counts


def _marker(path: str | None) -> Callable[[int], None]:
    if path is None:
        return lambda number: None
    with open(path, "w+b") as opened:
        opened.write(bytes(8))
        opened.flush()
        mapped = mmap(opened.fileno(), 8)

    def mark(number: int) -> None:
        mapped[:] = number.to_bytes(8, "big")

    return mark


def main(arguments: list[str]) -> int:
    """
    Fuzz, and print what was done.
    """
    parser = argparse.ArgumentParser(description="A fuzzer of the compiled module.")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, help="so many, in place of a time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--without", action="append", default=[], choices=list(ARGUMENTS))
    parser.add_argument("--mark", help="a file for the number of the case under way")
    given = parser.parse_args(arguments)
    if compiled is None:
        print("skipped: the compiled module was not built")
        return 0
    names = [each for each in ARGUMENTS if hasattr(compiled, each) and each not in given.without]
    print(f"seed {given.seed}", flush=True)
    if given.case is not None:
        name, values = case(given.seed, given.case, names)
        print(f"{name}{tuple(values)!r}", flush=True)
        print(run(name, values))
        return 0
    end = time.monotonic() + given.seconds
    numbers = range(given.cases if given.cases is not None else sys.maxsize)
    counts = fuzz(
        *(given.seed, names, numbers),
        lambda: given.cases is None and time.monotonic() >= end,
        _marker(given.mark),
    )
    for name in names:
        served, refused = counts[name, "served"], counts[name, "refused"]
        print(f"{name:14} {served:9} served {refused:9} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
