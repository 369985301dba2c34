# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket}: a name server and a broker in one process, on loopback, with
all data in one folder.  For trying things out, for a laptop, for the edge.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor
from twisted.python import usage

from txrocket.config import Configuration
from txrocket.javakeys import BROKER_KEYS
from txrocket.options import ServerOptions
from txrocket.propertiesfile import PropertiesFile
from txrocket.running import InTurn, installedPlugins
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS, broker, nameServer
from txrocket.surroundings import Surroundings

__all__ = ["Options", "makeService"]

_LOOPBACK = "127.0.0.1"


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
        data = os.path.abspath(self["data"])
        own = {
            "bindAddress": self["interface"],
            "brokerIP1": self["interface"],
            "brokerName": "broker-a",
            "namesrvAddr": f"{self['interface']}:{self['namesrvPort']}",
            "storePathRootDir": os.path.join(data, "store"),
        }
        path = self["configFile"]
        filed = {each.key for each in PropertiesFile(path).entries()} if path else set()
        left = {key: value for key, value in own.items() if key not in filed}
        return {**left, **super().given()}

    def postOptions(self) -> None:
        """
        Read the settings.
        """
        if not 0 < self["namesrvPort"] < 65536:
            raise usage.UsageError(f"--namesrvPort {self['namesrvPort']} is no port")
        super().postOptions()
        self.nameServer = Configuration.read(
            NAMESRV_SECTIONS,
            (),
            None,
            {
                "listenPort": str(self["namesrvPort"]),
                "bindAddress": self["interface"],
                "kvConfigPath": os.path.join(
                    os.path.abspath(self["data"]), "namesrv", "kvConfig.json"
                ),
            },
        )


def makeService(options: Options) -> InTurn:
    """
    Both servers as one service.
    """
    return InTurn(
        nameServer(Surroundings.real(reactor), options.nameServer),
        broker(Surroundings.real(reactor), options.configuration, installedPlugins()),
    )
