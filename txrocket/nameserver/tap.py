# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-namesrv}.
"""

from __future__ import annotations

from twisted.internet import reactor

from txrocket.javakeys import NAMESRV_KEYS
from txrocket.options import ServerOptions
from txrocket.running import InTurn, orSayWhyNot
from txrocket.services import NAMESRV_SECTIONS, nameServer
from txrocket.surroundings import Surroundings

__all__ = ["Options", "makeService"]


class Options(ServerOptions):
    """
    The command line.
    """

    longdesc = "A name server that speaks RocketMQ's protocol."
    sections = NAMESRV_SECTIONS
    javaKeys = NAMESRV_KEYS


def makeService(options: Options) -> InTurn:
    """
    The name server as a service.
    """
    with orSayWhyNot():
        return InTurn(reactor, nameServer(Surroundings.real(reactor), options.configuration))
