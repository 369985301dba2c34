# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket}: a name server and a broker in one process, on loopback, with
all data in one folder.  For trying things out, for a laptop, for the edge.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor

from txrocket.config import Configuration
from txrocket.errors import ConfigError
from txrocket.javakeys import BROKER_KEYS
from txrocket.options import ServerOptions
from txrocket.propertiesfile import PropertiesFile
from txrocket.running import InTurn, installedPlugins, orSayWhyNot
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS, broker, nameServer
from txrocket.surroundings import Surroundings

__all__ = ["Options", "makeService"]

_LOOPBACK = "127.0.0.1"

# All interfaces, which cannot be dialled, and what can be instead.
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
        What the command line has, over what the file has, over this program's
        own defaults.
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

        @raise ConfigError: naming all that is wrong with them.
        """
        port = self["namesrvPort"]
        if not 0 < port < 65536:
            raise ConfigError(f"--namesrvPort {port}: 1 to 65535 was expected")
        configuration = super().read()
        # One certificate is for both.
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
    Where this machine reaches what listens at an interface.
    """
    host = _ALL.get(interface, interface)
    return f"[{host}]" if ":" in host else host


def makeService(options: Options) -> InTurn:
    """
    Both servers as one service.
    """
    with orSayWhyNot():
        return InTurn(
            reactor,
            nameServer(Surroundings.real(reactor), options.nameServer),
            broker(Surroundings.real(reactor), options.configuration, installedPlugins()),
        )
