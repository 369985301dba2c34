# SPDX-License-Identifier: Apache-2.0
"""
The clients: what each can do, and how its driver is started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from tests.interop.driver import Driver
from tests.interop.programs import ROOT, godriver, java

__all__ = ["CLIENTS", "Client", "Drivers", "Identity"]


def _able(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SENDS = _able(
    "sync async oneway batch queue selector delay compress unicode transaction request trace"
    " tls binary"
)
_RECEIVES = _able(
    "push orderly pull broadcast tags sql retry reply unicode byKey byId byTime commit trace"
    " tls binary tool"
)


@attrs.frozen
class Identity:
    """
    The files by which a client proves who it is, and by whom it knows servers.
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
    @ivar sends: what its producers can do.
    @ivar receives: what its consumers can do.
    @ivar shared: whether one process serves many cells.
    @ivar command: how its driver is started, for a configuration of the servers.
    """

    key: str
    title: str
    sends: frozenset[str]
    receives: frozenset[str]
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


CLIENTS = {
    each.key: each
    for each in (
        Client("ours", "txrocket", _SENDS, _RECEIVES - {"tool"}, True, lambda *_: _python("tx")),
        Client("java", "Java", _SENDS, _RECEIVES, True, _java),
        Client(
            "go",
            "Go",
            _SENDS - {"tls", "binary"},
            _RECEIVES - {"byKey", "byId", "byTime", "commit", "tls", "binary", "tool"},
            # It has one client for all traces, whatever servers they are for.
            False,
            lambda *_: [godriver],
        ),
        Client(
            "cpp",
            "C++",
            _SENDS - {"queue", "transaction", "request", "trace", "tls", "binary"},
            _able("push orderly pull broadcast tags retry unicode"),
            # It ends its process when it fails.
            False,
            lambda *_: _python("cpp"),
        ),
    )
}


def _python(name: str) -> list[str]:
    return [sys.executable, "-m", f"tests.interop.{name}driver"]


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

    async def forget(self, configuration: str) -> None:
        """
        End the drivers of a configuration.
        """
        for key in [each for each in self._shared if each[1] == configuration]:
            await self._shared.pop(key).end()

    async def end(self) -> None:
        """
        End all of them.
        """
        while self._shared:
            await self._shared.popitem()[1].end()
