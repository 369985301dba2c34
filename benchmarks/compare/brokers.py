# SPDX-License-Identifier: Apache-2.0
"""
The two brokers: each a process on loopback with its own defaults, except for its port and
the folder of its files, which is removed afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.machine import cpuSeconds, residentOwn, sizeOf
from benchmarks.generator import run
from tests.interop.programs import ROOT, libraries
from txrocket.testing import clustersettings as plan

__all__ = ["JavaBroker", "OurBroker", "Running", "freePort", "javaMissing"]

# The seconds that a broker may take to start, and to stop.
_PATIENCE = 60.0

# RocketMQ 4.9.7 uses internals of the JDK, which newer ones forbid by default.
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)

# As in its start-up script, but without touching the whole heap first: its memory would
# then always be 2 GiB.
_HEAP = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")

_LOGBACK = """<configuration>
  <root level="ERROR"/>
</configuration>
"""


def javaMissing() -> list[str]:
    """
    The programs that RocketMQ's broker needs and that are not installed.
    """
    return [each for each in ("java", "mvn") if shutil.which(each) is None]


def freePort() -> int:
    """
    A free port whose neighbours, on which RocketMQ's broker also listens, are free as well.
    """
    return plan.freePort("127.0.0.1", (2, -1))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Running:
    """
    A running broker.

    @ivar startSeconds: the seconds from its start until it had answered a first send.
    @ivar prepared: the names of the scenarios whose topics it has.
    """

    name = ""

    def __init__(self, port: int, **settings: object) -> None:
        self.port = port
        self.prepared: set[str] = set()
        self.folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=ROOT))
        self._settings = {
            "brokerName": "measured",
            "listenPort": port,
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": self.folder / "store",
            "storePathCommitLog": self.folder / "store" / "commitlog",
            **settings,
        }
        self.start()

    def start(self) -> None:
        """
        Start it on its folder, anew if it has been stopped.
        """
        argv, environment = self._argv(), {**os.environ, **self._environment()}
        with (self.folder / "log").open("wb") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self.folder
            )
        try:
            self._await()
        except BaseException:
            self.close()
            raise
        self.startSeconds = time.monotonic() - started

    def _argv(self) -> Sequence[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def _file(self) -> Path:
        path = self.folder / "broker.conf"
        text = "".join(f"{name}={value}\n" for name, value in self._settings.items())
        path.write_text(text)
        return path

    def _await(self) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            if _listens(self.port) and self._answers():
                return
            time.sleep(0.01)
        said = (self.folder / "log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} does not listen: {said}")

    def _answers(self) -> bool:
        if self._settings.get("brokerRole", "ASYNC_MASTER") != "ASYNC_MASTER":
            # A slave takes no messages, and a synchronous master has no slave yet.
            return True
        try:
            done = run(self.port, "send", total=1, warm=0, connections=1, inflight=1, topic="begin")
        except RuntimeError:
            return False
        return done.messages == 1

    @property
    def pid(self) -> int:
        """
        The id of its process.
        """
        return self._process.pid

    @property
    def alive(self) -> bool:
        """
        Whether the process still runs.
        """
        return self._process.poll() is None

    def memory(self) -> float:
        """
        Its memory without the pages of files, in MB.
        """
        return residentOwn(Path(f"/proc/{self.pid}/status").read_text())

    def cpu(self) -> float:
        """
        The seconds of CPU that it has used.
        """
        return cpuSeconds(Path(f"/proc/{self.pid}/stat").read_text())

    def size(self) -> int:
        """
        The bytes of its files.
        """
        return sizeOf(self.folder)

    def stop(self) -> float:
        """
        Stop it gracefully.

        @return: the seconds that it took.
        """
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_PATIENCE)
        return time.monotonic() - started

    def close(self) -> None:
        """
        Kill it, and remove its files.
        """
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class OurBroker(Running):
    """
    C{twistd rocket-broker}.
    """

    name = "txrocket"

    def __init__(
        self,
        port: int,
        python: str = sys.executable,
        pure: bool = False,
        **settings: object,
    ) -> None:
        """
        @param python: the interpreter.
        @param pure: whether to do without the compiled helper.
        """
        self._python = python
        self._pure = pure
        super().__init__(port, **settings)

    def _argv(self) -> Sequence[str]:
        return [
            *(self._python, "-c", "from twisted.scripts.twistd import run; run()"),
            *("--nodaemon", "--pidfile=", *self._profiling()),
            *("rocket-broker", "-c", str(self._file())),
        ]

    def _profiling(self) -> tuple[str, ...]:
        return ()

    def _environment(self) -> dict[str, str]:
        return {"TXROCKET_PURE": "1" if self._pure else ""}


class JavaBroker(Running):
    """
    Apache RocketMQ's broker.
    """

    name = "RocketMQ"

    def _argv(self) -> Sequence[str]:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "logback_broker.xml").write_text(_LOGBACK)
        return [
            *("java", *_HEAP, *_OPEN, f"-Duser.home={self.folder}", "-cp", f"{libraries()}/*"),
            *("org.apache.rocketmq.broker.BrokerStartup", "-c", str(self._file())),
        ]

    def _environment(self) -> dict[str, str]:
        return {"ROCKETMQ_HOME": str(self.folder)}
