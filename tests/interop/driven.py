# SPDX-License-Identifier: Apache-2.0
"""
A store in a process of its own, RocketMQ's or ours, and what is needed to run
RocketMQ's: the library comes from Maven, and C{javac} compiles a small program.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.interop.content import Content
from txrocket.store.settings import StoreSettings

__all__ = ["Driven", "build", "java", "missing", "ours"]

_ROOT = Path(__file__).parents[2]
_SOURCE = Path(__file__).parent / "java"
_BUILD = _ROOT / "build" / "interop"

# RocketMQ 4.9.7 unmaps files by reflection, which newer JDKs forbid by default.
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


def missing() -> list[str]:
    """
    The programs that are needed and not there.
    """
    return [each for each in ("java", "javac", "mvn") if shutil.which(each) is None]


def build() -> None:
    """
    Get RocketMQ's store, and compile the program that drives it.
    """
    libraries, classes = _BUILD / "lib", _BUILD / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "mvn",
            *("--quiet", "--batch-mode", "--file", str(_SOURCE / "pom.xml")),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libraries}",
        ],
        check=True,
    )
    source = str(_SOURCE / "JavaStore.java")
    subprocess.run(
        ["javac", "-nowarn", "-cp", f"{libraries}/*", "-d", str(classes), source], check=True
    )


class Driven:
    """
    A process that holds a store open.
    """

    def __init__(self, argv: list[str], settings: StoreSettings) -> None:
        sizes = (
            settings.mappedFileSizeCommitLog,
            settings.mappedFileSizeConsumeQueue,
            settings.maxHashSlotNum,
            settings.maxIndexNum,
        )
        self._process = subprocess.Popen(
            [*argv, settings.storePathRootDir, *map(str, sizes)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._answer()

    def put(self, commands: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """
        Have messages stored.
        """
        return [self._ask(each) for each in commands]

    def dump(self) -> Content:
        """
        All that the store holds.
        """
        self._tell({"op": "dump"})
        return list(self._lines())

    def clean(self, topics: Iterable[str]) -> None:
        """
        Have Java's store delete the queues of all topics but these and its own.
        """
        self._ask({"op": "clean", "topics": list(topics)})

    def stop(self) -> None:
        """
        Close the store.
        """
        self._ask({"op": "stop"})
        self._end(0)

    def halt(self) -> None:
        """
        End the process at once, as a crash does.
        """
        self._tell({"op": "halt"})
        self._end(9)

    def _lines(self) -> Iterator[dict[str, Any]]:
        while "end" not in (line := self._answer()):
            yield line

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self._tell(command)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the store has ended: {self._process.stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self, code: int) -> None:
        _, errors = self._process.communicate(timeout=60)
        if self._process.returncode != code:
            raise AssertionError(f"exit code {self._process.returncode}: {errors}")


def java(settings: StoreSettings) -> Driven:
    """
    RocketMQ's store.
    """
    path = f"{_BUILD / 'lib'}/*:{_BUILD / 'classes'}"
    return Driven(["java", *_OPEN, "-cp", path, "JavaStore"], settings)


def ours(settings: StoreSettings) -> Driven:
    """
    txrocket's store.
    """
    return Driven([sys.executable, "-m", "tests.interop.ours"], settings)
