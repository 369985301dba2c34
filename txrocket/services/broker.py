# SPDX-License-Identifier: Apache-2.0
"""
A broker, built of its parts.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.interfaces import IProtocolFactory

from txrocket.broker.nameserverlink import shortBackoff
from txrocket.broker.parts import BrokerParts
from txrocket.broker.plugins import Plugins, checkPlugins, loadSQL92
from txrocket.broker.registration import NameServerRegistration
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.service import Broker, Listener, PeriodicTask
from txrocket.broker.settings import SECTIONS, BrokerSettings, PullSettings, RegistrationSettings
from txrocket.config import Configuration
from txrocket.processors.cooperate import Slices, begun, cooperator
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.settings import BrokerServerSettings, TLSSettings
from txrocket.server.environment import Environment
from txrocket.services.clients import buildClients
from txrocket.services.core import HA_DISTANCE, VIP_DISTANCE, buildCore, listenPort
from txrocket.services.delivery import buildDelivery
from txrocket.services.processors import registerProcessors, serverFactory
from txrocket.services.replication import buildReplication
from txrocket.services.tables import buildTables
from txrocket.services.tasks import MASTER_LOOK, periodicTasks
from txrocket.store.flush.flusher import InThread
from txrocket.store.settings import StoreSettings

__all__ = ["BROKER_SECTIONS", "broker"]

#: The settings of a broker.
BROKER_SECTIONS: tuple[type, ...] = (
    *SECTIONS,
    StoreSettings,
    ReplicationSettings,
    BrokerServerSettings,
    TLSSettings,
)


def broker(
    environment: Environment, configuration: Configuration, plugins: Plugins | None = None
) -> Broker:
    """
    Build a broker.  Nothing is opened before it starts.

    @raise ConfigError: if an address in the configuration is not valid, or a plugin does
        not provide its interface.
    """
    checked = checkPlugins(plugins or Plugins())
    types = checked.expressionTypes
    port = listenPort(configuration)
    slices = cooperator(environment.clock)
    # Two parts need one that is built later: each asks for it only once the broker runs.
    core = buildCore(environment, configuration, port, lambda: delivery.oldestNeeded())
    tables = buildTables(
        environment, configuration, core, slices, types, lambda: clients.consumers.subscriptions()
    )
    clients = buildClients(environment, configuration, tables, slices, types)
    delivery = buildDelivery(environment, configuration, core, tables, clients)
    parts = BrokerParts(core, tables, clients, delivery)
    registration = _registration(environment, configuration, parts, slices)
    replication = buildReplication(environment, configuration, parts, registration)
    registerProcessors(environment, configuration, parts, checked, slices, replication)
    _prepareSQL92(configuration, environment.inThread)
    return Broker(
        parts,
        replication,
        _listener(environment, configuration, core.remoting, port, replication.steps.links.gate),
        [
            *periodicTasks(environment, configuration, parts, slices),
            PeriodicTask("Looking for the master", MASTER_LOOK, replication.look),
        ],
        environment.start,
        environment.stop,
    )


def _registration(
    environment: Environment, configuration: Configuration, parts: BrokerParts, slices: Slices
) -> NameServerRegistration:
    backoff = shortBackoff(environment.choose)
    connect = environment.connect(configuration[TLSSettings].client())
    registration = NameServerRegistration(
        environment.clock,
        Peers(Remoting(environment.clock), connect, backoff),
        parts.core.identity,
        configuration[RegistrationSettings],
        parts.tables.topics,
        backoff,
        partial(begun, slices),
    )
    registration.permit(configuration[BrokerSettings].brokerPermission)
    configuration.follow(
        BrokerSettings, lambda settings: registration.permit(settings.brokerPermission)
    )
    return registration


def _listener(
    environment: Environment,
    configuration: Configuration,
    remoting: Remoting,
    port: int,
    slaves: IProtocolFactory,
) -> Listener:
    listen = configuration[BrokerServerSettings]
    ports = [port, port - VIP_DISTANCE] if port > VIP_DISTANCE else [port]
    return Listener(
        serverFactory(remoting, listen, configuration),
        [environment.listen(listen, each) for each in ports],
        slaves,
        environment.listen(listen, port + HA_DISTANCE),
    )


def _prepareSQL92(configuration: Configuration, inThread: InThread) -> None:
    """
    Load the parser of SQL92 expressions, now or as soon as C{enablePropertyFilter} is set.
    """

    def changed(settings: PullSettings) -> None:
        if settings.enablePropertyFilter:
            # Loading takes long, and the broker serves requests meanwhile.
            inThread(loadSQL92)

    if configuration[PullSettings].enablePropertyFilter:
        loadSQL92()
    configuration.follow(PullSettings, changed)
