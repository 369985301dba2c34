# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-broker}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor

from txrocket.javakeys import BROKER_KEYS
from txrocket.options import ServerOptions
from txrocket.running import InTurn, installedPlugins, orSayWhyNot
from txrocket.services import BROKER_SECTIONS, broker
from txrocket.surroundings import Surroundings

__all__ = ["Options", "makeService"]


class Options(ServerOptions):
    """
    The command line.
    """

    longdesc = "A broker that speaks RocketMQ's protocol and keeps its files."
    sections = BROKER_SECTIONS
    javaKeys = BROKER_KEYS
    optParameters: list[list[Any]] = [
        ["namesrvAddr", "n", None, "The name servers, as host:port;host:port."],
    ]
    shortForms = ("namesrvAddr",)


def makeService(options: Options) -> InTurn:
    """
    The broker as a service.
    """
    around = Surroundings.real(reactor)
    with orSayWhyNot():
        return InTurn(reactor, broker(around, options.configuration, installedPlugins()))
