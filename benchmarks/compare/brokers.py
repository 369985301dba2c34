# SPDX-License-Identifier: Apache-2.0
"""
The two brokers: each a process of its own, on loopback, with its files in a folder that
is removed afterwards, and with its own defaults but for where it listens and keeps its
files.
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

__all__ = ["JavaBroker", "OurBroker", "Running", "javaMissing"]

_ROOT = Path(__file__).parents[2]
_LIBRARIES = _ROOT / "build" / "interop" / "lib"
_POM = _ROOT / "tests" / "interop" / "java" / "pom.xml"

# How long a broker may take to listen, in seconds.
_PATIENCE = 60.0

_TICKS = os.sysconf("SC_CLK_TCK")

# RocketMQ 4.9.7 reaches into the JDK, which newer ones forbid by default.
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)

# What its start-up script asks for, with a heap that fits beside others.
_HEAP = (*("-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g"),)

_LOGBACK = """<configuration>
  <root level="ERROR"/>
</configuration>
"""


def javaMissing() -> list[str]:
    """
    The programs that RocketMQ's broker needs and that are not there.
    """
    return [each for each in ("java", "mvn") if shutil.which(each) is None]


class Running:
    """
    A broker.

    @ivar startSeconds: how long it took from its start until it accepted connections.
    """

    name = ""

    def __init__(self, port: int, **settings: object) -> None:
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=_ROOT))
        self._settings = {
            "brokerName": "measured",
            "listenPort": port,
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": self.folder / "store",
            "storePathCommitLog": self.folder / "store" / "commitlog",
            **settings,
        }
        argv, environment = self._argv(), {**os.environ, **self._environment()}
        with (self.folder / "log").open("wb") as log:
            started = time.monotonic()
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT, env=environment
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
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        said = (self.folder / "log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} does not listen: {said}")

    def cpu(self) -> float:
        """
        The seconds of CPU that it has taken.
        """
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> float:
        """
        Its memory of its own, without that of files, in MB.
        """
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> float:
        """
        Have it stop by itself.

        @return: how long it took.
        """
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_PATIENCE)
        return time.monotonic() - started

    def close(self) -> None:
        """
        End it, and remove its files.
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

    def _argv(self) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "twisted", "--log-level=warn", "rocket-broker"),
            *("-c", str(self._file())),
        ]


class JavaBroker(Running):
    """
    Apache RocketMQ's.
    """

    name = "RocketMQ"

    @staticmethod
    def fetch() -> None:
        """
        Get its libraries.
        """
        if not list(_LIBRARIES.glob("rocketmq-broker-*.jar")):
            subprocess.run(
                [
                    *("mvn", "--quiet", "--batch-mode", "--file", str(_POM)),
                    *("dependency:copy-dependencies", f"-DoutputDirectory={_LIBRARIES}"),
                ],
                check=True,
            )

    def _argv(self) -> Sequence[str]:
        self.fetch()
        conf = self.folder / "conf"
        conf.mkdir()
        (conf / "logback_broker.xml").write_text(_LOGBACK)
        return [
            *("java", *_HEAP, *_OPEN, f"-Duser.home={self.folder}", "-cp", f"{_LIBRARIES}/*"),
            *("org.apache.rocketmq.broker.BrokerStartup", "-c", str(self._file())),
        ]

    def _environment(self) -> dict[str, str]:
        return {"ROCKETMQ_HOME": str(self.folder)}
