# SPDX-License-Identifier: Apache-2.0
"""
C{twistd rocket-broker}.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor

from txrocket.config import Configuration
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.server.environment import Environment
from txrocket.server.instances import Instance, Instances, plan
from txrocket.server.launch import OrderedServices, exitIfCannotStart, installedPlugins
from txrocket.server.options import ServerOptions
from txrocket.services import BROKER_SECTIONS, broker

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
        ["instances", None, 1, "How many brokers to run, each in a process of its own.", int],
    ]
    shortForms = ("namesrvAddr",)
    instances: list[Instance]

    def read(self) -> Configuration:
        """
        The settings, and the brokers that have them.

        @raise ConfigError: naming all that is wrong with them.
        """
        configuration = super().read()
        self.instances = plan(configuration, self["instances"])
        return configuration

    def common(self) -> list[str]:
        """
        The options that all instances have.
        """
        file = self["configFile"]
        settings = [each for pair in self.given().items() for each in ("--set", "=".join(pair))]
        return [*(("-c", os.path.abspath(file)) if file else ()), *settings]


def makeService(options: Options) -> OrderedServices:
    """
    The broker as a service, or the service that keeps several.
    """
    if len(options.instances) > 1:
        return OrderedServices(reactor, Instances(reactor, options.instances, options.common()))
    around = Environment.real(reactor)
    with exitIfCannotStart():
        return OrderedServices(reactor, broker(around, options.configuration, installedPlugins()))
