# SPDX-License-Identifier: Apache-2.0
"""
Programs that tests start and kill, and that tell where they hang::

    start --> says a word --> says another --> killed, with all that it has started
          \\-> says nothing for too long: the stacks of all its processes --> killed --> Hung

Such a program may hang for a reason that no log tells, in a process that Spark has started.
A test that only kills it learns nothing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Ended", "Hung", "Program", "descendants", "startedProgram"]

_HOOK = Path(__file__).parent / "hook"

# The seconds that a process has to write its stacks, and the seconds without another byte
# after which the stacks are complete.
_WRITING = 10.0
_QUIET = 0.5

# The characters of a command line in a report.  Java's has thousands.
_SHOWN = 300


class Ended(AssertionError):
    """
    A program has ended without the word that the test waited for.
    """


class Hung(AssertionError):
    """
    A program has said nothing for too long.  The text has the stacks of its processes.
    """


class Program:
    """
    A Python program in a process group of its own.

    @ivar pid: the number of its first process.
    """

    def __init__(self, arguments: Sequence[str], folder: str) -> None:
        """
        Start it.

        @param arguments: Python's.
        @param folder: for its log and its stacks.
        """
        self._log = Path(folder, "log")
        self._stacks = Path(folder, "stacks")
        self._said: list[bytes] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        path = filter(None, [str(_HOOK), *sys.path])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path),
                    "TXROCKET_STACKS": str(self._stacks.absolute()),
                },
                start_new_session=True,
            )
        self.pid = self._process.pid
        # Always reads, because a Java process stands still while its stacks fill the pipe.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, word: str, patience: float) -> None:
        """
        Wait until it says a word, in a line of its own.

        @param patience: the seconds that it may take for the next line, whatever that is.
        @raise Ended: if it ends without the word.
        @raise Hung: if it says nothing for too long.  It is killed then.
        """
        while True:
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                self._askAll()
                self.kill()
                raise Hung(f"not {word} within {patience:g} s{self._report()}") from None
            if not line:
                raise Ended(f"not {word}: {self._text(self._log)}")
            if line.strip() == word.encode():
                return

    def wait(self, seconds: float) -> int:
        """
        Wait for its end.

        @return: its exit code.
        """
        return self._process.wait(seconds)

    def kill(self) -> None:
        """
        End it at once, with all that belongs to it.
        """
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        # Until the last process of the group is gone.
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._said.append(line)
                self._lines.put(line)
        self._lines.put(b"")

    def _askAll(self) -> None:
        """
        Have each of its processes write its stacks.
        """
        for process in [self.pid, *descendants(self.pid)]:
            with self._stacks.open("a") as file:
                print(f"\nprocess {process}: {_command(process)[:_SHOWN]}", file=file)
            if _command(process).partition(" ")[0].endswith("java"):
                # To its output, which is the program's.
                _ask(process, signal.SIGQUIT, lambda: len(self._said))
            elif _catches(process, signal.SIGUSR1):
                _ask(process, signal.SIGUSR1, lambda: self._stacks.stat().st_size)

    def _report(self) -> str:
        said = b"".join(self._said).decode(errors="replace")
        return f"\n{self._text(self._stacks)}\nsaid: {said}\nlog: {self._text(self._log)}"

    def _text(self, file: Path) -> str:
        return file.read_text(errors="replace")


def startedProgram(
    arguments: Sequence[str], folder: str, word: str, patience: float, excused: str
) -> Program:
    """
    Start a program and wait until it says a word.  If it hangs, or ends with an excused
    error, print the reason and start it once more.  Twice in a row is a failure.

    A start of Spark was silent for minutes, without any error, and was never explained.  A
    suite that fails of the machine's load is not believed; one that hides the stacks learns
    nothing.

    @param arguments: Python's.
    @param folder: has a folder for each start.
    @param patience: the seconds that it may be silent.
    @param excused: a text in the log of a program that may be started once more.
    """
    for last in (False, True):
        program = Program(arguments, tempfile.mkdtemp(dir=folder))
        try:
            program.until(word, patience)
            break
        except (Hung, Ended) as error:
            program.kill()
            if last or (isinstance(error, Ended) and excused not in str(error)):
                raise
            print(f"Started once more, because it was {error}", flush=True)
    return program


def descendants(process: int) -> list[int]:
    """
    The processes that a process has started, and those that they have.  None where the
    system has no C{/proc}.
    """
    children = defaultdict(list)
    for file in Path("/proc").glob("[0-9]*/stat"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            # The name of a program may have spaces and parentheses in it.
            parent = file.read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(file.parent.name))
    found = [process]
    for each in found:
        found += sorted(children[each])
    return found[1:]


def _command(process: int) -> str:
    """
    The command line of a process; empty if the process has ended.
    """
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _catches(process: int, number: int) -> bool:
    """
    Whether a process has a handler for a signal.  Else the signal would end it.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _ask(process: int, number: int, written: Callable[[], int]) -> None:
    """
    Send a signal, and wait until the process has written its answer.

    @param written: how much is written now.
    """
    before = last = written()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
    deadline = time.monotonic() + _WRITING
    while time.monotonic() < deadline:
        time.sleep(_QUIET)
        now = written()
        if now == last != before:
            return
        last = now
