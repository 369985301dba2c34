# SPDX-License-Identifier: Apache-2.0
"""
Other people's programs: which of them are there, getting them from their registries,
and how they are started.

All that is made lies in C{build/interop}, and is made again only if what it is made
from has changed::

    lib/       RocketMQ's servers, client and tools, from Maven
    classes/   what we wrote in Java to drive them
    godriver   what we wrote in Go, with RocketMQ's client in it
    node/      ali-ons, from npm
    home/      what RocketMQ's servers call ROCKETMQ_HOME
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import txrocket

__all__ = [
    "BUILD",
    "ROCKETMQ",
    "ROCKETMQ_GO",
    "ROOT",
    "Stamp",
    "build",
    "godriver",
    "java",
    "libraries",
    "missing",
    "node",
    "versions",
]

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "interop"

ROCKETMQ = "4.9.7"
ROCKETMQ_GO = "v2.1.2"

_HERE = Path(__file__).parent
_LIBRARIES = BUILD / "lib"
_CLASSES = BUILD / "classes"
_HOME = BUILD / "home"
_NODE = BUILD / "node"

godriver = str(BUILD / "godriver")

# RocketMQ 4.9.7 unmaps files by reflection, which newer JDKs forbid by default.
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)

# Threads that compile and collect would otherwise be as many as the machine has
# processors, in each of a dozen programs; and nobody runs long enough for C2.
_SMALL = ("-Xmx512m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOGBACK = """<?xml version="1.0" encoding="UTF-8"?>
<configuration>
  <appender name="STDERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %c{0} %m%n</pattern></encoder>
  </appender>
  <!-- Says so whenever there is no transaction to look at. -->
  <logger name="RocketmqTransaction" level="ERROR"/>
  <root level="WARN"><appender-ref ref="STDERR"/></root>
</configuration>
"""


def missing() -> dict[str, str]:
    """
    The clients that cannot be run here, and what they lack.  Without Java, there are
    no servers of RocketMQ's, either.
    """
    absent = {}
    without = [each for each in ("java", "javac", "mvn") if shutil.which(each) is None]
    if without:
        absent["java"] = f"{', '.join(without)} not found"
    if shutil.which("go") is None:
        absent["go"] = "go not found"
    without = [each for each in ("node", "npm") if shutil.which(each) is None]
    if without:
        absent["node"] = f"{', '.join(without)} not found"
    if importlib.util.find_spec("rocketmq") is None:
        absent["cpp"] = "the Python package rocketmq is not installed"
    return absent


def build(absent: Iterable[str]) -> dict[str, str]:
    """
    Get and compile what is there to be run.

    @return: the clients that could not be built, and why: a registry may be out of
        reach.
    """
    failed = {}
    for name, make in (("java", _buildJava), ("go", _buildGo), ("node", _buildNode)):
        if name not in absent:
            try:
                make()
            except subprocess.CalledProcessError as error:
                failed[name] = f"{' '.join(error.cmd[:2])} failed"
    return failed


def libraries() -> Path:
    """
    The folder with RocketMQ's libraries, which are got if they are not there.
    """
    pom = _HERE / "java" / "pom.xml"
    stamp = Stamp(BUILD / "lib-made-from", [pom])
    if not stamp.fresh or not _LIBRARIES.exists():
        shutil.rmtree(_LIBRARIES, ignore_errors=True)
        _LIBRARIES.mkdir(parents=True)
        _run(
            "mvn",
            *("--quiet", "--batch-mode", "--file", str(pom)),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={_LIBRARIES}",
        )
        stamp.write()
    return _LIBRARIES


def _buildJava() -> None:
    sources = [*sorted((_HERE / "java").glob("*")), Path(__file__)]
    stamp = Stamp(_CLASSES / "made-from", sources)
    if stamp.fresh:
        return
    libraries()
    shutil.rmtree(_CLASSES, ignore_errors=True)
    _CLASSES.mkdir(parents=True)
    programs = [str(each) for each in sources if each.suffix == ".java"]
    options = ("-nowarn", "-Xlint:none", "-cp", f"{_LIBRARIES}/*", "-d", str(_CLASSES))
    _run("javac", *options, *programs)
    configuration = _HOME / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    for program in ("namesrv", "broker", "tools"):
        (configuration / f"logback_{program}.xml").write_text(_LOGBACK)
    stamp.write()


def _buildGo() -> None:
    stamp = Stamp(BUILD / "godriver-made-from", sorted((_HERE / "go").glob("*")))
    if not stamp.fresh:
        BUILD.mkdir(parents=True, exist_ok=True)
        _run("go", "build", "-buildvcs=false", "-o", godriver, ".", folder=_HERE / "go")
        stamp.write()


def _buildNode() -> None:
    sources = [_HERE / "node" / name for name in ("package.json", "package-lock.json")]
    stamp = Stamp(_NODE / "made-from", sources)
    if not stamp.fresh:
        _NODE.mkdir(parents=True, exist_ok=True)
        for each in sources:
            shutil.copy(each, _NODE)
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=_NODE)
        stamp.write()


def _run(*command: str, folder: Path | None = None) -> None:
    subprocess.run(command, cwd=folder, check=True)


class Stamp:
    """
    Says whether something was made from files as they are now.
    """

    def __init__(self, path: Path, sources: Iterable[Path], also: str = "") -> None:
        """
        @param also: what else it was made from.
        """
        self._path = path
        digest = hashlib.sha256(also.encode())
        for each in sources:
            digest.update(each.name.encode() + each.read_bytes())
        self._now = digest.hexdigest()

    @property
    def fresh(self) -> bool:
        """
        Whether it was.
        """
        return self._path.exists() and self._path.read_text() == self._now

    def write(self) -> None:
        """
        It was, just now.
        """
        self._path.write_text(self._now)


def java(program: str, *arguments: str, properties: dict[str, str] | None = None) -> list[str]:
    """
    The command line of a program in Java.

    @param properties: of its system.
    """
    return [
        "java",
        *_OPEN,
        *_SMALL,
        f"-Drocketmq.home.dir={_HOME}",
        *(f"-D{name}={value}" for name, value in (properties or {}).items()),
        "-cp",
        f"{_LIBRARIES}/*{os.pathsep}{_CLASSES}",
        program,
        *arguments,
    ]


def node() -> list[str]:
    """
    The command line of what we wrote for Node.
    """
    return ["node", str(_HERE / "node" / "driver.js"), str(_NODE)]


def versions(absent: Iterable[str]) -> list[str]:
    """
    What takes part.
    """
    twisted = importlib.metadata.version("twisted")
    found = [
        f"txrocket {txrocket.__version__}, Python {platform.python_version()}, Twisted {twisted}"
    ]
    if "java" not in absent:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
        quoted = re.search(r'"([^"]+)"', told)
        found.append(
            f"RocketMQ {ROCKETMQ}: name server, broker, client and tools in Java"
            f" {quoted[1] if quoted else '?'}"
        )
    if "go" not in absent:
        told = subprocess.run(["go", "version"], capture_output=True, text=True).stdout
        found.append(f"rocketmq-client-go {ROCKETMQ_GO}, Go {told.split()[2].removeprefix('go')}")
    if "node" not in absent:
        told = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
        package = json.loads((_HERE / "node" / "package.json").read_text())
        number = package["dependencies"]["ali-ons"]
        found.append(f"ali-ons {number}, Node {told.strip().removeprefix('v')}")
    if "cpp" not in absent:
        number = importlib.metadata.version("rocketmq")
        found.append(f"RocketMQ's C++ client as the Python package rocketmq {number}")
    return found
