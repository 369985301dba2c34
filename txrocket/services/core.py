# SPDX-License-Identifier: Apache-2.0
"""
The core of a broker: its identity, remoting, store, long polls and statistics.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from txrocket.broker.parts import Core
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.registration import Identity
from txrocket.broker.replication.role import BrokerRoleState
from txrocket.broker.settings import BrokerSettings, PullSettings
from txrocket.broker.stats import Stats
from txrocket.config import Configuration
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.protocol.record.fields import encodeHost
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.settings import BrokerServerSettings
from txrocket.server.environment import Environment, freePort, localAddress
from txrocket.store.flush.flusher import InThread
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings

__all__ = [
    "HA_DISTANCE",
    "VIP_DISTANCE",
    "brokerIdentity",
    "buildCore",
    "flushingTurn",
    "listenPort",
]

#: How far above its port a broker has one for its slaves.
HA_DISTANCE = 1

#: How far below its port a broker has a second one, for traffic that must not wait behind
#: that of consumers.
VIP_DISTANCE = 2


def listenPort(configuration: Configuration) -> int:
    """
    The port that a broker listens on: the configured one, or a free one if that is 0.
    """
    return configuration[BrokerServerSettings].listenPort or freePort(VIP_DISTANCE, HA_DISTANCE)


def brokerIdentity(settings: BrokerSettings, port: int) -> tuple[Identity, bytes]:
    """
    The name and the addresses of a broker, and its address as records hold it.

    @raise ConfigError: if C{brokerIP1} cannot be resolved.
    """
    host = settings.brokerIP1 or localAddress()
    try:
        # Records hold an address, even if clients connect to a name.
        storeHost = encodeHost(socket.gethostbyname(host) if ":" not in host else host, port)
    except (OSError, InvalidMessage) as error:
        raise ConfigError(f"brokerIP1={host}: {error}") from None
    shown = f"[{host}]" if ":" in host else host
    identity = Identity(
        settings.brokerClusterName,
        settings.brokerName or socket.gethostname(),
        f"{shown}:{port}",
        # As Java, whatever haListenPort says.
        f"{settings.brokerIP2 or shown}:{port + HA_DISTANCE}",
        settings.brokerId,
    )
    return identity, storeHost


def buildCore(
    environment: Environment,
    configuration: Configuration,
    port: int,
    oldestNeeded: Callable[[], int],
) -> Core:
    """
    Build the core.

    @param oldestNeeded: where in the log the first message lies that must not be deleted.
    @raise ConfigError: if the broker's address cannot be resolved.
    """
    identity, storeHost = brokerIdentity(configuration[BrokerSettings], port)
    remoting = Remoting(environment.clock, configuration[BrokerServerSettings].limits)
    longPoll = LongPoll(environment.clock, configuration.live(PullSettings))
    store = MessageStore(
        configuration[StoreSettings],
        environment.clock,
        partial(flushingTurn, remoting, environment.inThread),
        storeHost,
        longPoll.arrived,
        environment.files,
        awaited=longPoll.awaited,
        syncInThread=partial(
            flushingTurn, remoting, environment.inOwnThread or environment.inThread
        ),
        wall=environment.wall,
        needed=oldestNeeded,
        writeSoon=remoting.turn.wake,
    )
    configuration.follow(StoreSettings, store.apply)
    stats = Stats(identity.cluster, environment.now, environment.elapsed)
    return Core(identity, storeHost, remoting, store, longPoll, stats, BrokerRoleState())


def flushingTurn(
    remoting: Remoting, inThread: InThread, function: Callable[[], None]
) -> Deferred[None]:
    """
    Run a function that blocks, and write the responses that its end allows at once.

    A sync of the disk ends for many sends together, so their responses go out in one
    write per connection.
    """

    def gather(result: Any) -> Any:
        remoting.turn.gather()
        return result

    return inThread(function).addBoth(gather)
