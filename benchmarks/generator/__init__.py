# SPDX-License-Identifier: Apache-2.0
"""
The load generator, C{load.c}: compiled when it is first used, and run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import attrs

__all__ = ["Result", "compiled", "run"]

_HERE = Path(__file__).parent
_BUILD = Path(__file__).parents[2] / "build"

# A load that takes longer than so many seconds hangs.
_PATIENCE = 300.0


@attrs.frozen
class Result:
    """
    What a load came to.

    @ivar messages: how many were sent or pulled, with an answer that was checked.
    @ivar errors: how many answers were wrong.
    @ivar cpu: the seconds of CPU that the generator itself took.
    @ivar server: those that the process took whose id it was given.
    @ivar p50: microseconds from request to answer.
    @ivar error: the first wrong answer.
    """

    requests: int
    messages: int
    errors: int
    seconds: float
    cpu: float
    server: float
    p50: float
    p99: float
    p999: float
    error: str


def compiled(name: str = "load") -> Path:
    """
    A program of this folder, compiled if it is new.

    @raise RuntimeError: if there is no compiler.
    """
    source, built = _HERE / f"{name}.c", _BUILD / name
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("the load generator needs a C compiler, and there is none")
        built.parent.mkdir(exist_ok=True)
        subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(built), str(source)], check=True)
    return built


def run(port: int, mode: str, **options: object) -> Result:
    """
    Load a broker.

    @param options: the generator's, by name; one that is true has no value.
    @raise RuntimeError: if it cannot.
    """
    argv = [str(compiled()), "--port", str(port), "--mode", mode]
    for name, value in options.items():
        if value is True:
            argv.append(f"--{name}")
        elif value is not False:
            argv += [f"--{name}", str(value)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(argv[1:])}: no end in {_PATIENCE:g} s") from None
    if not done.stdout:
        raise RuntimeError(f"{' '.join(argv[1:])}: {done.stderr.strip()}")
    return Result(**json.loads(done.stdout))
