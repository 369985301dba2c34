# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-namesrv}.
"""

from __future__ import annotations

from twisted.internet import reactor

from txrocket.config.javakeys import NAMESRV_KEYS
from txrocket.server.environment import Environment
from txrocket.server.launch import OrderedServices, exitIfCannotStart
from txrocket.server.options import ServerOptions
from txrocket.services import NAMESRV_SECTIONS, nameServer

__all__ = ["Options", "makeService"]


class Options(ServerOptions):
    """
    The options of C{twistd rocket-namesrv}.
    """

    longdesc = "A name server that speaks RocketMQ's protocol."
    sections = NAMESRV_SECTIONS
    javaKeys = NAMESRV_KEYS


def makeService(options: Options) -> OrderedServices:
    """
    Build the name server.
    """
    with exitIfCannotStart():
        return OrderedServices(
            reactor, nameServer(Environment.real(reactor), options.configuration)
        )
