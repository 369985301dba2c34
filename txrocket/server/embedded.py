# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket}: a name server and a broker in one process, on loopback, with all data in
one folder.  It is for first steps, laptops and edge devices.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor

from txrocket.config import Configuration
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.config.propertiesfile import PropertiesFile
from txrocket.errors import ConfigError
from txrocket.server.environment import Environment
from txrocket.server.launch import OrderedServices, exitIfCannotStart, installedPlugins
from txrocket.server.options import ServerOptions
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS, broker, nameServer

__all__ = ["Options", "makeService"]

_LOOPBACK = "127.0.0.1"

# The addresses for all interfaces, and the address to dial in place of each.
_ALL = {"0.0.0.0": _LOOPBACK, "::": "::1"}


class Options(ServerOptions):
    """
    The command line: the broker's settings, with other defaults, and the few that
    its name server needs.
    """

    longdesc = (
        "A name server and a broker in one process. Settings are the broker's;"
        " those of clients are nameserver 127.0.0.1:9876 and nothing else."
    )
    sections = BROKER_SECTIONS
    javaKeys = BROKER_KEYS
    optParameters: list[list[Any]] = [
        ["data", "d", "data", "The folder for all data."],
        ["namesrvPort", None, 9876, "The name server's port.", int],
        ["interface", "i", _LOOPBACK, "Where to listen, and where clients are told to go."],
    ]

    def given(self) -> dict[str, str]:
        """
        The settings of the command line, and this program's defaults for settings that the
        file does not have.
        """
        interface = self["interface"]
        own = {
            "bindAddress": interface,
            "brokerName": "broker-a",
            "namesrvAddr": f"{_dialled(interface)}:{self['namesrvPort']}",
            "storePathRootDir": os.path.join(os.path.abspath(self["data"]), "store"),
        }
        if interface not in _ALL:
            own["brokerIP1"] = interface
        left = {key: value for key, value in own.items() if key not in self._filed()}
        return {**left, **super().given()}

    def read(self) -> Configuration:
        """
        The settings of both servers.

        @raise ConfigError: if a setting is not valid; it lists all problems.
        """
        port = self["namesrvPort"]
        if not 0 < port < 65536:
            raise ConfigError(f"--namesrvPort {port}: 1 to 65535 was expected")
        configuration = super().read()
        # Both servers use the same certificate.
        both = {**self._filed(), **super().given()}
        self.nameServer = Configuration.read(
            NAMESRV_SECTIONS,
            (),
            None,
            {
                **{key: value for key, value in both.items() if key.startswith("tls.")},
                "listenPort": str(port),
                "bindAddress": self["interface"],
                "kvConfigPath": os.path.join(
                    os.path.abspath(self["data"]), "namesrv", "kvConfig.json"
                ),
            },
        )
        return configuration

    def _filed(self) -> dict[str, str]:
        path = self["configFile"]
        return {each.key: each.value for each in PropertiesFile(path).entries()} if path else {}


def _dialled(interface: str) -> str:
    """
    The address at which this machine reaches a server that listens on an interface.
    """
    host = _ALL.get(interface, interface)
    return f"[{host}]" if ":" in host else host


def makeService(options: Options) -> OrderedServices:
    """
    Both servers as one service.
    """
    with exitIfCannotStart():
        return OrderedServices(
            reactor,
            nameServer(Environment.real(reactor), options.nameServer),
            broker(Environment.real(reactor), options.configuration, installedPlugins()),
        )
