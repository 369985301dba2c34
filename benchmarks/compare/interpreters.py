# SPDX-License-Identifier: Apache-2.0
"""
The interpreter for our broker: the fastest on the machine, by measurement.

An interpreter with profile-guided optimisation is 1.2 to 1.6 times faster than one
without.  Its configuration shows that only in part, because distributions use build rules
of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from tests.interop.programs import ROOT, Stamp

__all__ = ["Interpreter", "candidates", "environment", "fastest", "found", "helperIn"]

# The oldest version that txrocket runs on.
_OLDEST = (3, 11)

_NAME = re.compile(r"python3(\.\d+)?$")

# A loop of the operations that a broker does most: calls, attributes, dicts, bytes and
# struct.  The best of three turns counts, of 0.1 s each.
_ASK = """
import json, os, platform, struct, sys, sysconfig, time
class Thing:
    __slots__ = ("size", "seen")
    def __init__(self, size): self.size = size; self.seen = {}
    def take(self, data, at): self.seen[at & 63] = data[at:at + 4]; return at + self.size
def turn(thing, data, pack):
    at = 0
    for each in range(500):
        at = thing.take(data, at)
        pack(1, at, each)
        text = b"%d:%s" % (each, data[:8])
thing, data, pack = Thing(4), bytes(4096), struct.Struct(">iqi").pack
best = 0
for each in range(3):
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + 0.1:
        turn(thing, data, pack); count += 1
    best = max(best, count / (time.perf_counter() - began))
print(json.dumps({
    "path": os.path.realpath(sys.executable), "version": list(sys.version_info[:3]),
    "kind": platform.python_implementation(), "compiler": platform.python_compiler(),
    "arguments": sysconfig.get_config_var("CONFIG_ARGS") or "", "speed": best,
    "free": not getattr(sys, "_is_gil_enabled", lambda: True)(),
}))
"""


@attrs.frozen
class Interpreter:
    """
    An interpreter of the machine.

    @ivar arguments: the arguments of its configure script.
    @ivar speed: turns of a small loop in a second.
    """

    path: str
    version: tuple[int, ...]
    kind: str
    compiler: str
    arguments: str
    speed: float
    free: bool = False

    @property
    def optimized(self) -> bool:
        """
        Whether it was configured with profile-guided optimisation.
        """
        return "--enable-optimizations" in self.arguments

    def describe(self) -> str:
        """
        Its version and build, without its path.
        """
        number = ".".join(map(str, self.version))
        flags = [
            each for each in ("--enable-optimizations", "--with-lto") if each in self.arguments
        ]
        return (
            f"{self.kind} {number} ({self.compiler}), configured"
            f" {'with ' + ' and '.join(flags) if flags else 'without --enable-optimizations'}"
        )


def candidates(folders: Iterable[str]) -> list[str]:
    """
    The programs in some folders that are named like a Python, each once.
    """
    listed = []
    for folder in folders:
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if _NAME.match(name) and os.access(path, os.X_OK):
                    listed.append(path)
    return list(dict.fromkeys(listed))


def ask(path: str) -> Interpreter | None:
    """
    Ask an interpreter about itself; L{None} if it does not run.
    """
    try:
        done = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=20)
        told = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter(**{**told, "version": tuple(told["version"])})


def fastest(those: Sequence[Interpreter]) -> Interpreter:
    """
    The fastest one that txrocket runs on.

    @raise ValueError: if there is no such interpreter.
    """
    able = [
        each
        for each in those
        if each.kind == "CPython" and each.version[:2] >= _OLDEST and not each.free
    ]
    if not able:
        raise ValueError("there is no CPython 3.11 or newer")
    return max(able, key=lambda each: each.speed)


def found() -> list[Interpreter]:
    """
    All interpreters of the machine, also the one that runs this.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    folders = [*os.get_exec_path(), "/usr/bin", "/usr/local/bin"]
    there: dict[str, Interpreter] = {}
    for path in [base, *candidates(folders)]:
        told = ask(path)
        if told is not None:
            known = there.get(told.path)
            if known is None or told.speed > known.speed:
                there[told.path] = told
    return list(there.values())


def environment(chosen: Interpreter) -> str:
    """
    Make a virtual environment with this txrocket installed as a user would install it,
    with the compiled helper if it can be built.

    @return: its interpreter.
    """
    folder = ROOT / "build" / "compare" / f"python{'.'.join(map(str, chosen.version))}"
    python = folder / "bin" / "python"
    sources = [ROOT / "setup.cfg", ROOT / "setup.py"]
    sources += sorted(
        each for each in (ROOT / "txrocket").rglob("*") if each.suffix in (".py", ".c", ".h")
    )
    stamp = Stamp(folder / "made-from", [*sources, Path(__file__)], also=chosen.path)
    if not stamp.fresh:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([chosen.path, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
        subprocess.run([*pip, "--python", str(python), "install", str(ROOT)], check=True)
        stamp.write()
    return str(python)


def helperIn(python: str) -> bool:
    """
    Whether txrocket has its compiled helper in an environment.
    """
    asked = "from txrocket.bulk import compiled; print(compiled is not None)"
    done = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True)
    return done.stdout.strip() == "True"
