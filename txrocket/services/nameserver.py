# SPDX-License-Identifier: Apache-2.0
"""
A name server, built.
"""

from __future__ import annotations

import os
from functools import partial

from txrocket.config import Configuration
from txrocket.nameserver.kvconfig import KVConfig, decodeKVConfig
from txrocket.nameserver.routetable import RouteTable
from txrocket.nameserver.service import NameServer
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.processors.admin.settingchanges import SettingChanges
from txrocket.processors.cooperate import begun, cooperator
from txrocket.processors.nameserver.config import NamesrvConfigRequests
from txrocket.processors.nameserver.kvconfig import KVConfigRequests
from txrocket.processors.nameserver.registration import RegistrationRequests
from txrocket.processors.nameserver.routes import RouteRequests
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.settings import NamesrvServerSettings, TLSSettings
from txrocket.server.environment import Environment
from txrocket.services.processors import register, serverFactory
from txrocket.store.jsontable import Table

__all__ = ["NAMESRV_SECTIONS", "nameServer"]

#: The settings of a name server.
NAMESRV_SECTIONS: tuple[type, ...] = (NamesrvSettings, NamesrvServerSettings, TLSSettings)


def nameServer(environment: Environment, configuration: Configuration) -> NameServer:
    """
    Build a name server.

    @raise StoreCorrupt: if the file at C{kvConfigPath} is damaged.
    """
    settings = configuration.live(NamesrvSettings)
    listen = configuration[NamesrvServerSettings]
    table = Table(environment.files, os.path.abspath(settings.now.kvConfigPath))
    slices = cooperator(environment.clock)
    kvConfig = KVConfig(
        lambda data: environment.inThread(lambda: table.save(data)),
        table.load(decodeKVConfig),
        partial(begun, slices),
    )
    routes = RouteTable()
    remoting = Remoting(environment.clock, listen.limits)
    changes = SettingChanges(configuration, settings.now.configBlackList, environment.now)
    for processor in (
        RegistrationRequests(routes, kvConfig, environment.elapsed, slices),
        RouteRequests(routes, kvConfig, settings, slices),
        KVConfigRequests(kvConfig, slices),
        NamesrvConfigRequests(configuration, changes),
    ):
        register(remoting, processor.codes(), InlineExecutor())
    return NameServer(
        remoting,
        serverFactory(remoting, listen, configuration),
        [environment.listen(listen, listen.listenPort)],
        routes,
        kvConfig,
        environment.start,
        environment.stop,
    )
