# SPDX-License-Identifier: Apache-2.0
"""
The settings of servers in a test cluster: their names, addresses and folders, and the
settings of the test on top.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import attrs

from txrocket.config import Configuration
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS

__all__ = ["Setting", "brokerSettings", "freePort", "namesrvSettings"]

#: A setting of a test: a text as in a C{broker.conf}, or a value.
Setting: TypeAlias = str | int | float | bool

# Below the ports of outgoing connections.  Otherwise a client that dials a stopped broker
# may get the broker's own port, and the broker could not start again.
_PORTS = range(15_000, 32_000)

_ATTEMPTS = 100


def namesrvSettings(
    settings: Mapping[str, Setting], host: str, port: int, folder: str
) -> Configuration:
    """
    A name server's settings.  Settings of the test that only brokers know are left out.

    @param folder: the folder of its files.
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
    number: int = 0,
) -> Configuration:
    """
    A broker's settings.  Settings of the test that only name servers know are left out.

    @param folder: the folder of its files.
    @param number: 0 for a master, else the number of a slave.
    @raise ConfigError: if a setting does not exist.
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
            **({"brokerRole": "SLAVE", "brokerId": str(number)} if number else {}),
        },
    )


def freePort(
    host: str, below: Collection[int] = (), choose: Callable[[int], int] = random.randrange
) -> int:
    """
    A free port.

    @param below: the distances down to further ports that must be free as well; up, if they
        are negative.
    @param choose: returns a number below its argument.
    @raise OSError: if no such port is found.
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
