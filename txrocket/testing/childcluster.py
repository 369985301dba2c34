# SPDX-License-Identifier: Apache-2.0
"""
A cluster in a process of its own, for tests without a reactor, or tests that kill it.

The child is C{python -m txrocket.testing}.  It reads one line of JSON with its arguments
from standard input, and writes one with its addresses to standard output::

    test --> {"brokers": 1, "settings": {...}, "folder": ..., "ports": []} --> child
    test <-- {"nameServers": ["127.0.0.1:9876"], "brokers": [...]} <---------- child
    test --> end of file ----------------------------------------------------> stops

The child stops when its standard input ends, so it does not outlive the test, even if the
test is killed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from txrocket.remoting.addresses import parseAddress
from txrocket.testing.clustersettings import Setting

__all__ = ["ChildCluster", "ClusterFailed"]

# The last lines of the child's log that an error shows.
_SHOWN = 20


class ClusterFailed(Exception):
    """
    The child did not start, or did not stop properly.
    """


class ChildCluster:
    """
    Name servers and brokers on loopback, in a child process.  All methods block::

        with ChildCluster() as cluster:
            ...                              # cluster.nameServers, cluster.brokers

    After L{kill} and after L{stop} it can be started again, on the same ports.  The files
    of the last run are still there after L{kill}, or if the test named the folder.

    @ivar nameServers: the addresses of the name servers, once started.
    @ivar brokers: the addresses of the brokers, once started.
    @ivar folder: the folder of all files; the log is C{cluster.log} in it.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        nameServers: int = 1,
        settings: Mapping[str, Setting] | None = None,
        folder: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """
        @param brokers: the number of brokers.
        @param nameServers: the number of name servers.
        @param settings: settings by RocketMQ's names, for all servers that know them.
        @param folder: the folder of all files; by default a temporary folder, which is
            removed at the stop.
        @param timeout: the seconds that a start, or a stop, may take.
        """
        self._request = {
            "brokers": brokers,
            "nameServers": nameServers,
            "settings": dict(settings or {}),
        }
        self._fixedFolder = folder
        self.folder = folder or ""
        self._timeout = timeout
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []
        self.nameServers: list[str] = []
        self.brokers: list[str] = []

    def start(self) -> None:
        """
        Start the child, and wait until its name servers know its brokers.

        @raise ClusterFailed: if it does not start; it says why.
        """
        assert self._process is None, "it has been started"
        if self._fixedFolder is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="txrocket-")
            self.folder = self._temporary.name
        os.makedirs(self.folder, exist_ok=True)
        with open(self._logPath, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "txrocket.testing"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                # The child can then import all that this process can.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                # Ctrl-C is for the test, which then stops the child.
                start_new_session=True,
            )
        try:
            told = self._tell({**self._request, "folder": self.folder, "ports": self._ports})
            if "error" in told:
                raise ClusterFailed(told["error"])
        except BaseException:
            self.kill()
            raise
        self.nameServers, self.brokers = told["nameServers"], told["brokers"]
        self._ports = [parseAddress(each)[1] for each in (*self.nameServers, *self.brokers)]

    def stop(self) -> None:
        """
        Stop all servers gracefully.  Remove the files if the folder is temporary.

        @raise ClusterFailed: if they do not stop properly.
        """
        try:
            if self._process is not None:
                self._process.communicate(timeout=self._timeout)
                if self._process.returncode:
                    raise ClusterFailed(
                        f"the cluster ended with status {self._process.returncode}{self._log()}"
                    )
        except subprocess.TimeoutExpired:
            raise ClusterFailed(
                f"the cluster did not stop within {self._timeout:g} s{self._log()}"
            ) from None
        finally:
            self.kill()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = None

    def kill(self) -> None:
        """
        End the child at once, as C{kill -9} does.
        """
        if self._process is not None:
            self._process.kill()
            # This also closes the pipes.
            self._process.communicate()
            self._process = None

    def __enter__(self) -> ChildCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """
        The child's process id, while it runs.
        """
        return None if self._process is None else self._process.pid

    @property
    def _logPath(self) -> Path:
        return Path(self.folder, "cluster.log")

    def _log(self) -> str:
        lines = self._logPath.read_text(errors="replace").splitlines()
        return "\n".join([". The end of its log:", *lines[-_SHOWN:]])

    def _tell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """
        Send a request to the child and wait for its answer.
        """
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        deadline = time.monotonic() + self._timeout
        answer = b""
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            while not answer.endswith(b"\n"):
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._process.stdout], [], [], left)[0]:
                    raise ClusterFailed(
                        f"the cluster did not start within {self._timeout:g} s{self._log()}"
                    )
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    raise BrokenPipeError
                answer += data
        except BrokenPipeError:
            raise ClusterFailed(f"the cluster ended while it started{self._log()}") from None
        told: dict[str, Any] = json.loads(answer)
        return told
