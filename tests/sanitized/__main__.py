# SPDX-License-Identifier: Apache-2.0
"""
Build the compiled module with AddressSanitizer and UndefinedBehaviorSanitizer, run its tests,
and fuzz it::

    python -m tests.sanitized            TXROCKET_FUZZ_SECONDS=600 TXROCKET_FUZZ_SEED=7

The build is in build/sanitized, so that the package's own stays.  Python itself is not built with
the sanitizers: their library is loaded before it, and memory comes from malloc, which they watch.
Python does not free everything when it ends, so that leaks are not looked for.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "sanitized"
FLAGS = [
    *("-g", "-O1", "-fno-omit-frame-pointer", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-wrapv"),
]
TESTS = ["tests.bulk", "tests.store.test_dispatch", "tests.store.test_getmessage"]


def compiler() -> str | None:
    """
    The C compiler, or L{None}.
    """
    wanted = (os.environ.get("CC") or "gcc").split()[0]
    return shutil.which(wanted) or shutil.which("cc")


def lacks(compiler: str | None) -> str | None:
    """
    What a build needs and this machine lacks, or L{None}.
    """
    if compiler is None:
        return "there is no C compiler"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return f"there is no {header}: install Python's header files"
    if not libraries(compiler):
        return f"{compiler} has no AddressSanitizer: install its libasan"
    return None


def libraries(compiler: str) -> list[str]:
    """
    What must be loaded before Python: the sanitizer, and C++ for the programs that use it.
    """
    found = []
    for name in ("libasan.so", "libstdc++.so"):
        asked = [compiler, f"-print-file-name={name}"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        if os.path.isabs(said):
            found.append(os.path.realpath(said))
        elif name == "libasan.so":
            return []
    return found


def build(compiler: str) -> Path:
    """
    Compile the helper.

    @return: the module.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    target = BUILD / f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-I{sysconfig.get_path('include')}"
    source = ROOT / "txrocket" / "bulk" / "_compiled.c"
    subprocess.run([compiler, *FLAGS, include, str(source), "-o", str(target)], check=True)
    return target


def environment(compiler: str, module: Path) -> dict[str, str]:
    """
    The environment in which Python loads the module.
    """
    site = str(ROOT / "tests" / "sanitized" / "site")
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries(compiler)),
        # A test shows that a bus error ends a process as ever.
        "ASAN_OPTIONS": "detect_leaks=0:handle_sigbus=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([site, str(ROOT)]),
        "TXROCKET_SANITIZED": str(module),
    }


def main() -> int:
    """
    Build, test, fuzz.
    """
    found = compiler()
    lacking = lacks(found)
    if lacking is not None or found is None:
        print(f"skipped: {lacking}")
        return 0
    surroundings = environment(found, build(found))
    trial = ["twisted.trial", "--temp-directory", str(BUILD / "trial"), *TESTS]
    ended = subprocess.run([sys.executable, "-m", *trial], env=surroundings, check=False)
    if ended.returncode:
        return 1
    seed = os.environ.get("TXROCKET_FUZZ_SEED") or str(random.SystemRandom().randrange(10**9))
    mark = BUILD / "case"
    fuzz = ["tests.sanitized.fuzz", "--seed", seed, "--mark", str(mark), *sys.argv[1:]]
    seconds = os.environ.get("TXROCKET_FUZZ_SECONDS") or "30"
    asked = [sys.executable, "-m", *fuzz, "--seconds", seconds]
    ended = subprocess.run(asked, env=surroundings, check=False)
    if ended.returncode:
        case = int.from_bytes(mark.read_bytes(), "big")
        print(f"the fuzzer failed: --seed {seed} --case {case}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
