# SPDX-License-Identifier: Apache-2.0
"""
The clients: what each can do, and how its driver is started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from tests.interop.driver import Driver
from tests.interop.programs import ROOT, godriver, java, node

__all__ = ["CLIENTS", "Client", "Drivers", "Identity"]


@attrs.frozen
class Identity:
    """
    The files of a client's own certificate, and of those that it trusts.
    """

    authority: str
    certificate: str
    key: str


@attrs.frozen
class Client:
    """
    A client.

    @ivar key: its short name.
    @ivar title: its name in tables.
    @ivar lacks: what it cannot do, and why.
    @ivar shared: whether one process serves many cells.
    @ivar command: how its driver is started, for a configuration of the servers.
    """

    key: str
    title: str
    lacks: Mapping[str, str] = attrs.field(repr=False)
    shared: bool
    command: Callable[[str, Identity], list[str]] = attrs.field(repr=False)


def _java(configuration: str, identity: Identity) -> list[str]:
    properties = {
        "rocketmq.client.logLevel": "WARN",
        # Java does not ask HOME; the driver is started there.
        "user.home": os.curdir,
    }
    if configuration == "binary":
        properties["rocketmq.serialize.type"] = "ROCKETMQ"
    if configuration == "tls":
        properties |= {
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": identity.authority,
            "tls.client.certPath": identity.certificate,
            "tls.client.keyPath": identity.key,
        }
    return java("Driver", properties=properties)


_TOOL = "mqadmin is a program in Java, and is run where Java receives"

_GO = {
    "tls": "Go: its connections are plain TCP",
    "binary": "Go: it has a codec for binary headers, and no way to choose it",
    "byKey": "Go: it does not ask brokers for messages by key",
    "byId": "Go: it does not ask brokers for messages by id",
    "byTime": "Go: it does not ask brokers for the offset of a time",
    "commit": "Go: its pull consumer shows the offsets of its own memory only",
    "tool": _TOOL,
}

_CPP = {
    "queue": "C++: the package sends to no queue by its number",
    "transaction": "C++: the package has no producer of transactions",
    "request": "C++: it has no request and reply",
    "reply": "C++: it has no request and reply",
    "trace": "C++: the package does not switch traces on",
    "tls": "C++: the package does not switch TLS on",
    "binary": "C++: its headers are JSON",
    "sql": "C++: it subscribes by tags",
    "byKey": "C++: the package has no queries",
    "byId": "C++: the package has no queries",
    "byTime": "C++: the package has no queries",
    "commit": "C++: the package keeps the offsets of its pull consumer to itself",
    "tool": _TOOL,
}

_NODE = {
    "oneway": "Node: it waits for an answer to each message",
    "batch": "Node: it has no batches",
    "queue": "Node: it sends to no queue by its number",
    "transaction": "Node: it has no producer of transactions",
    "request": "Node: it has no request and reply",
    "reply": "Node: it has no request and reply",
    "trace": "Node: it writes no traces",
    "tls": "Node: its connections are plain TCP",
    "binary": "Node: its headers are JSON",
    "orderly": "Node: it locks no queues",
    "pull": "Node: it has no pull consumer",
    "commit": "Node: it has no pull consumer",
    "byKey": "Node: it has no queries",
    "byId": "Node: it has no queries",
    "byTime": "Node: it has no queries",
    "tool": _TOOL,
}


def _python(name: str) -> list[str]:
    return [sys.executable, "-m", f"tests.interop.{name}driver"]


CLIENTS = {
    each.key: each
    for each in (
        Client("ours", "txrocket", {"tool": _TOOL}, True, lambda *_: _python("tx")),
        Client("java", "Java", {}, True, _java),
        # It has one client for all traces, whatever servers they are for.
        Client("go", "Go", _GO, False, lambda *_: [godriver]),
        # It ends its process when it fails.
        Client("cpp", "C++", _CPP, False, lambda *_: _python("cpp")),
        # It has one producer for all messages that failed, whatever servers they are for.
        Client("node", "Node", _NODE, False, lambda *_: node()),
    )
}


class Drivers:
    """
    The drivers that run.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        """
        @param folder: where clients are at home, and write their logs.
        """
        self._folder = folder
        self._identity = identity
        self._shared: dict[tuple[str, str], Driver] = {}

    def find(self, client: Client, configuration: str) -> Driver:
        """
        The driver of a client for servers of a configuration.
        """
        if not client.shared:
            return self.start(client, configuration)
        key = client.key, configuration
        driver = self._shared.get(key)
        if driver is None or driver.ended:
            driver = self._shared[key] = self.start(client, configuration)
        return driver

    def start(self, client: Client, configuration: str) -> Driver:
        """
        A driver of its own.
        """
        home = self._folder / client.key
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "INTEROP_TLS": json.dumps(attrs.asdict(self._identity)),
        }
        if configuration == "binary":
            environment["INTEROP_SERIALIZE"] = "ROCKETMQ"
        driver = Driver()
        driver.start(client.command(configuration, self._identity), environment, str(home))
        return driver

    async def end(self) -> None:
        """
        End all of them.
        """
        while self._shared:
            await self._shared.popitem()[1].end()
