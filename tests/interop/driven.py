# SPDX-License-Identifier: Apache-2.0
"""
A store in a process of its own, RocketMQ's or ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tests.interop import programs
from tests.interop.content import Content
from tests.interop.programs import ROOT
from txrocket.store.settings import StoreSettings

__all__ = ["Driven", "java", "ours"]


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
            cwd=ROOT,
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

    def kill(self) -> None:
        """
        End the process, if it has not ended.
        """
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

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
    return Driven(programs.java("JavaStore"), settings)


def ours(settings: StoreSettings) -> Driven:
    """
    txrocket's store.
    """
    return Driven([sys.executable, "-m", "tests.interop.ours"], settings)
