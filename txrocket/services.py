# SPDX-License-Identifier: Apache-2.0
"""
The composition root: what a server is made of, put together.

Nothing else builds these parts for one another, and nothing is looked up: what a
part works with it was given here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred

from txrocket.broker.announce import Announcement, Identity
from txrocket.broker.clients import Consumers, Producers
from txrocket.broker.groups import Groups
from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
from txrocket.broker.longpoll import LongPoll
from txrocket.broker.offsets import Offsets
from txrocket.broker.service import Broker
from txrocket.broker.settings import (
    AnnounceSettings,
    BrokerSettings,
    ClientSettings,
    GroupSettings,
    PullSettings,
    SendSettings,
    TopicSettings,
)
from txrocket.broker.stats import Stats
from txrocket.broker.subscriptions import Subscriptions
from txrocket.broker.topics import Topics
from txrocket.config import Configuration
from txrocket.errors import ConfigError, InvalidMessage, SubscriptionParseFailed
from txrocket.filters.expressions import ExpressionTypes, MessageFilter
from txrocket.model import SubscriptionData
from txrocket.processors.pull import PullProcessor
from txrocket.processors.send import SendProcessor
from txrocket.protocol.parts import encodeHost
from txrocket.remoting.addresses import parseAddresses
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import IExecutor, Process
from txrocket.remoting.node import FunctionProcessor, Remoting
from txrocket.remoting.peers import Peers
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.settings import BrokerServerSettings, TLSSettings
from txrocket.store.messages import MessageStore
from txrocket.store.settings import StoreSettings
from txrocket.store.tables import Table
from txrocket.surroundings import Surroundings, freePort, localAddress

__all__ = ["Plugins", "broker"]

_Section = TypeVar("_Section")

# The second port of a broker, for traffic that must not wait behind consumers',
# lies so far below the first.
_VIP = 2


@attrs.frozen
class Plugins:
    """
    What is plugged into a broker.
    """

    processors: Sequence[IBrokerProcessor] = ()
    filters: Sequence[IMessageFilter] = ()
    sendHooks: Sequence[ISendHook] = ()


def broker(
    around: Surroundings, configuration: Configuration, plugins: Plugins | None = None
) -> Broker:
    """
    A broker.

    @raise ConfigError: if an address in the configuration is none.
    """
    plugins = plugins or Plugins()
    own = configuration[BrokerSettings]
    listen = configuration[BrokerServerSettings]
    tls = configuration[TLSSettings]
    port = listen.listenPort or freePort(_VIP)
    identity, storeHost = _identity(own, port)
    folder = configuration[StoreSettings].storePathRootDir

    def table(name: str) -> Table:
        return Table(around.files, os.path.join(folder, "config", name))

    remoting = Remoting(around.clock, listen.limits)
    peers = Peers(Remoting(around.clock), around.connect(tls.client()))
    stats = Stats(identity.cluster, around.now)
    names = identity.cluster, identity.name
    topics = Topics(
        table("topics.json"), around.inThread, names, configuration[TopicSettings], around.now
    )
    groups = Groups(
        table("subscriptionGroup.json"), around.inThread, configuration[GroupSettings], around.now
    )
    offsets = Offsets(table("consumerOffset.json"), around.inThread)
    longPoll = LongPoll(around.clock, configuration[PullSettings].pullThreadPoolQueueCapacity)
    store = MessageStore(
        configuration[StoreSettings],
        around.clock,
        partial(_gathering, remoting, around.inThread),
        storeHost,
        longPoll.arrived,
        around.files,
    )
    consumers = Consumers(around.clock, partial(_notifies, configuration, groups))
    producers = Producers()
    subscriptions = Subscriptions(
        groups, consumers, _expressionTypes(plugins.filters), configuration[PullSettings]
    )
    announcement = Announcement(
        around.clock,
        peers,
        identity,
        configuration[AnnounceSettings],
        topics,
        _nameServers(configuration),
    )
    announcement.permit(own.brokerPermission)
    send = SendProcessor(
        store,
        topics,
        stats,
        own,
        configuration[SendSettings],
        storeHost=storeHost,
        now=around.now,
        choose=around.choose,
        hooks=plugins.sendHooks,
    )
    pull = PullProcessor(
        store,
        topics,
        subscriptions,
        offsets,
        longPoll,
        stats,
        own,
        configuration[PullSettings],
        brokerName=identity.name,
        storeHost=storeHost,
        now=around.now,
    )
    remoting.settle = send.settle
    inline = InlineExecutor()
    for processor in (send, pull):
        _register(remoting, processor.codes(), inline)

    factory = RemotingServerFactory(remoting, tls.server(), listen.serverChannelMaxIdleTimeSeconds)
    ports = [port, port - _VIP] if port > _VIP else [port]
    return Broker(
        remoting,
        factory,
        [around.listen(listen, each) for each in ports],
        store,
        topics,
        groups,
        offsets,
        longPoll,
        announcement,
        peers,
        [],
        around.start,
        around.stop,
    )


def _gathering(
    remoting: Remoting,
    inThread: Callable[[Callable[[], None]], Deferred[None]],
    function: Callable[[], None],
) -> Deferred[None]:
    """
    Run what blocks.  When a sync is done, all who waited for it are answered, and
    their answers are written together.
    """

    def gather(result: Any) -> Any:
        remoting.gatherTurn()
        return result

    return inThread(function).addBoth(gather)


def _register(remoting: Remoting, codes: Mapping[int, Process], executor: IExecutor) -> None:
    for code, function in codes.items():
        remoting.registerProcessor(code, FunctionProcessor(function), executor)


def _identity(settings: BrokerSettings, port: int) -> tuple[Identity, bytes]:
    host = settings.brokerIP1 or localAddress()
    try:
        # Records hold an address, where clients may be told a name.
        storeHost = encodeHost(socket.gethostbyname(host) if ":" not in host else host, port)
    except (OSError, InvalidMessage) as error:
        raise ConfigError(f"brokerIP1={host}: {error}") from None
    shown = f"[{host}]" if ":" in host else host
    identity = Identity(
        settings.brokerClusterName,
        settings.brokerName or socket.gethostname(),
        f"{shown}:{port}",
        f"{settings.brokerIP2 or shown}:{settings.haListenPort}",
        settings.brokerId,
    )
    return identity, storeHost


def _nameServers(configuration: Configuration) -> Sequence[str]:
    text = configuration[AnnounceSettings].namesrvAddr or ""
    try:
        return parseAddresses(text)
    except ValueError as error:
        raise ConfigError(f"namesrvAddr={text}: {error}") from None


def _notifies(configuration: Configuration, groups: Groups, group: str) -> bool:
    """
    Whether a group's members are told when one comes or goes.
    """
    config = groups.table.get(group)
    own = config is None or config.notifyConsumerIdsChangedEnable
    return own and configuration[ClientSettings].notifyConsumerIdsChangedEnable


def _expressionTypes(filters: Sequence[IMessageFilter]) -> ExpressionTypes:
    types = ExpressionTypes()
    for each in filters:
        types.register(each.expressionType, partial(_filter, each))
    return types


def _filter(plugin: IMessageFilter, subscription: SubscriptionData) -> MessageFilter:
    try:
        return MessageFilter(accepts=plugin.compile(subscription.subString))
    except ValueError as error:
        raise SubscriptionParseFailed(
            f"{plugin.expressionType} expression for {subscription.topic}: {error}"
        ) from None
