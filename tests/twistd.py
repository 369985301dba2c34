# SPDX-License-Identifier: Apache-2.0
"""
C{twistd} as a child of a test: what it prints, within a time limit, and its end.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.connection import RemotingConnection

ROOT = Path(__file__).parent.parent

# How long a child may take for anything, in seconds; it takes one.
LIMIT = 240.0


class Twistd:
    """
    A child.

    @ivar printed: what it has printed so far, standard error included.
    """

    def __init__(
        self, case: SynchronousTestCase, *arguments: str, env: Mapping[str, str] | None = None
    ) -> None:
        """
        @param case: at its end the child is ended, if it has not.
        @param arguments: what comes after C{twistd}.
        """
        self.folder = Path(case.mktemp()).absolute()
        self.folder.mkdir()
        self.printed = ""
        path = os.pathsep.join([str(ROOT), *(env or {}).get("PYTHONPATH", "").split(os.pathsep)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env={**os.environ, **(env or {}), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            # What a shell has started in the background ignores this signal, and so would
            # its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        case.addCleanup(self.kill)

    def kill(self) -> None:
        """
        End the child.
        """
        self.process.kill()
        self.process.communicate()

    def waitFor(self, pattern: str) -> re.Match[str]:
        """
        Wait until something is printed.
        """
        deadline = time.monotonic() + LIMIT
        while (found := re.search(pattern, self.printed)) is None:
            if not self._read(deadline):
                raise AssertionError(f"{pattern} was not printed:\n{self.printed}")
        return found

    def signal(self, number: int) -> None:
        """
        Send a signal.
        """
        self.process.send_signal(number)

    def stop(self) -> int:
        """
        Ask it to stop, as an operator's machine does.

        @return: its status.
        """
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """
        Wait for its end.

        @return: its status.
        """
        deadline = time.monotonic() + LIMIT
        while self._read(deadline):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        """
        @return: whether anything more may come.
        """
        assert self.process.stdout is not None
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self.process.stdout], [], [], left)[0]:
            raise AssertionError(f"it took longer than {LIMIT:g} s:\n{self.printed}")
        data = os.read(self.process.stdout.fileno(), 65536)
        self.printed += data.decode()
        return bool(data)


def terminate(pidFile: Path) -> None:
    """
    Ask a process that is no child of the test to stop, and wait until it has.
    """
    handle = os.pidfd_open(int(pidFile.read_text()))
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], LIMIT)[0]:
            raise AssertionError(f"it did not stop within {LIMIT:g} s")
    finally:
        os.close(handle)


def waitUntilSaid(log: Path, words: str) -> None:
    """
    Wait until a process that is no child of the test has written some words to its log.
    """
    deadline = time.monotonic() + LIMIT
    while words not in log.read_text():
        if time.monotonic() > deadline:
            raise AssertionError(f"{words} is not in {log} within {LIMIT:g} s")
        time.sleep(0.01)


def waitUntilGone(path: Path) -> None:
    """
    Wait until a process that is no child of the test has removed a file: one that
    cannot start tells its parent first.
    """
    deadline = time.monotonic() + LIMIT
    while path.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"{path} was not removed within {LIMIT:g} s")
        time.sleep(0.01)


def killLeft(pidFile: Path) -> None:
    """
    End a process that has not removed its pidfile.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pidFile.read_text()), signal.SIGKILL)


def ask(address: str, request: RemotingCommand) -> RemotingCommand:
    """
    The answer to a request.
    """
    host, _, port = address.rpartition(":")
    frames = RemotingConnection()
    with socket.create_connection((host, int(port)), LIMIT) as connection:
        connection.sendall(request.encode())
        while True:
            data = connection.recv(65536)
            assert data, "the connection was closed"
            for answer in frames.feed(data):
                return answer
