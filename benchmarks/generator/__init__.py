# SPDX-License-Identifier: Apache-2.0
"""
The load generator, C{load.c}, which is compiled on first use.
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

# The seconds after which a load counts as hung.
_PATIENCE = 300.0


@attrs.frozen
class Result:
    """
    The result of a load.

    @ivar messages: the messages sent or pulled with a right answer.
    @ivar errors: the number of wrong answers.
    @ivar cpu: the generator's seconds of CPU.
    @ivar server: the broker's seconds of CPU.
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
    Compile a program of this folder, if its source is newer than the program.

    @raise RuntimeError: if no compiler is installed.
    """
    source, built = _HERE / f"{name}.c", _BUILD / name
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("the load generator needs a C compiler, and none is installed")
        built.parent.mkdir(exist_ok=True)
        subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(built), str(source)], check=True)
    return built


def run(port: int, mode: str, **options: object) -> Result:
    """
    Load a broker.

    @param options: options of the generator by name; C{True} stands for a flag.
    @raise RuntimeError: if the generator fails or hangs.
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
