# SPDX-License-Identifier: Apache-2.0
"""
What the servers of a cluster for tests are told: their names, addresses and
folders, and over that the settings of the test.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import attrs

from txrocket.config import Configuration
from txrocket.javakeys import BROKER_KEYS
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS

__all__ = ["Setting", "brokerSettings", "freePort", "namesrvSettings"]

#: What a test may set: a text as in a C{broker.conf}, or a value.
Setting: TypeAlias = str | int | float | bool

# Below those that the system gives to whoever dials: a client that dials a broker
# that is down may be given the broker's own port, and then keeps it from coming back.
_PORTS = range(15_000, 32_000)

_ATTEMPTS = 100


def namesrvSettings(
    settings: Mapping[str, Setting], host: str, port: int, folder: str
) -> Configuration:
    """
    A name server's settings: of the test's, those that it knows.

    @param folder: where it may keep files.
    """
    known = _keys(NAMESRV_SECTIONS)
    return Configuration.read(
        NAMESRV_SECTIONS,
        (),
        None,
        {
            "kvConfigPath": f"{folder}/kvConfig.json",
            **_texts({key: value for key, value in settings.items() if key in known}),
            "bindAddress": host,
            "listenPort": str(port),
        },
    )


def brokerSettings(
    settings: Mapping[str, Setting],
    name: str,
    host: str,
    port: int,
    folder: str,
    nameServers: Sequence[str],
) -> Configuration:
    """
    A broker's settings: all of the test's but for those that only a name server
    knows.

    @param folder: where it may keep files.
    @raise ConfigError: if there is no such setting.
    """
    others = _keys(NAMESRV_SECTIONS) - _keys(BROKER_SECTIONS)
    return Configuration.read(
        BROKER_SECTIONS,
        BROKER_KEYS,
        None,
        {
            "bindAddress": host,
            "brokerIP1": host,
            "brokerName": name,
            "listenPort": str(port),
            "namesrvAddr": ";".join(nameServers),
            "storePathRootDir": f"{folder}/store",
            **_texts({key: value for key, value in settings.items() if key not in others}),
        },
    )


def freePort(
    host: str, below: Collection[int] = (), choose: Callable[[int], int] = random.randrange
) -> int:
    """
    A port on which nobody listens, nor on those so far below it.

    @param choose: picks a number below the one it is given.
    @raise OSError: if none is found.
    """
    for _ in range(_ATTEMPTS):
        port = _PORTS[choose(len(_PORTS))]
        if all(_isFree(host, port - each) for each in (0, *below)):
            return port
    raise OSError(f"no free port was found on {host}")


def _isFree(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _keys(sections: Sequence[type]) -> set[str]:
    return {
        each.metadata.get("key", each.name)
        for section in sections
        for each in attrs.fields(section)
    }


def _texts(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
