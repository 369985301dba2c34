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
from typing import Any

from twisted.internet.defer import Deferred

from txrocket.broker.announce import Announcement, Identity
from txrocket.broker.clients import Consumers, Producers
from txrocket.broker.consumerfilters import SAVE_PERIOD, ConsumerFilters
from txrocket.broker.delay import DelayLevels
from txrocket.broker.detours import Detours
from txrocket.broker.groups import Groups
from txrocket.broker.locks import QueueLocks
from txrocket.broker.longpoll import LongPoll
from txrocket.broker.members import MemberLimits
from txrocket.broker.namesrvlink import shortBackoff
from txrocket.broker.offsets import Offsets
from txrocket.broker.plugged import Plugins, loadSQL92, plug
from txrocket.broker.progress import Progress
from txrocket.broker.reached import Reached
from txrocket.broker.removal import Removal
from txrocket.broker.retries import Retries
from txrocket.broker.runtime import RuntimeInfo
from txrocket.broker.service import Broker, Chore
from txrocket.broker.settings import (
    SECTIONS,
    AnnounceSettings,
    BrokerSettings,
    ClientSettings,
    DelaySettings,
    FilterSettings,
    GroupSettings,
    OffsetSettings,
    PoolSettings,
    PullSettings,
    SendSettings,
    TopicSettings,
    TransactionSettings,
)
from txrocket.broker.stats import SAMPLE_PERIOD, Stats
from txrocket.broker.subscriptions import Subscriptions
from txrocket.broker.timers import Timers
from txrocket.broker.topics import Topics
from txrocket.broker.transactioncheck import TransactionChecks
from txrocket.broker.transactions import Transactions
from txrocket.broker.wheel import Wheel
from txrocket.compiled import speed
from txrocket.config import Configuration
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.nameserver.kvconfig import KVConfig, decodeKVConfig
from txrocket.nameserver.routes import RouteTable
from txrocket.nameserver.service import NameServer
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.processors.admission import Admission
from txrocket.processors.blacklist import SettingChanges
from txrocket.processors.bounds import bounded
from txrocket.processors.broker import BrokerProcessor
from txrocket.processors.clients import ClientProcessor
from txrocket.processors.express import Express, inTurn
from txrocket.processors.expresspull import ExpressPull
from txrocket.processors.gradual import begun, cooperator, gradually
from txrocket.processors.groups import ConsumerCallProcessor, GroupProcessor
from txrocket.processors.heartbeat import HeartbeatProcessor
from txrocket.processors.inspect import InspectProcessor
from txrocket.processors.kvconfig import KVConfigRequests
from txrocket.processors.locks import LockProcessor
from txrocket.processors.namesrvconfig import NamesrvConfigRequests
from txrocket.processors.offsets import OffsetProcessor
from txrocket.processors.pull import PullProcessor
from txrocket.processors.query import ConsumptionProcessor, QueryProcessor
from txrocket.processors.registration import RegistrationRequests
from txrocket.processors.reply import ReplyProcessor
from txrocket.processors.resets import ResetProcessor
from txrocket.processors.routes import RouteRequests
from txrocket.processors.send import SendProcessor
from txrocket.processors.sendanswers import SendAnswers
from txrocket.processors.sendback import SendBackProcessor
from txrocket.processors.sendhooks import SendHooks
from txrocket.processors.topics import TopicProcessor
from txrocket.processors.transaction import TransactionProcessor
from txrocket.processors.ways import Ways
from txrocket.protocol.javajson import Gradual
from txrocket.protocol.parts import encodeHost
from txrocket.remoting.addresses import parseAddresses
from txrocket.remoting.executors import InlineExecutor, TurnExecutor
from txrocket.remoting.interfaces import IExecutor, Process
from txrocket.remoting.node import FunctionProcessor, Remoting
from txrocket.remoting.peers import Peers
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.settings import (
    BrokerServerSettings,
    NamesrvServerSettings,
    ServerSettings,
    TLSSettings,
)
from txrocket.store.messages import MessageStore
from txrocket.store.settings import StoreSettings, delayLevels
from txrocket.store.tables import Table
from txrocket.surroundings import Surroundings, freePort, localAddress

__all__ = ["BROKER_SECTIONS", "NAMESRV_SECTIONS", "Plugins", "broker", "nameServer"]

#: The settings of a broker, and of a name server.
BROKER_SECTIONS: tuple[type, ...] = (*SECTIONS, StoreSettings, BrokerServerSettings, TLSSettings)
NAMESRV_SECTIONS: tuple[type, ...] = (NamesrvSettings, NamesrvServerSettings, TLSSettings)

# The second port of a broker, for traffic that must not wait behind consumers',
# lies so far below the first.
_VIP = 2

# How often clients are looked for that are silent, in seconds.
_SCAN_INTERVAL = 10.0

# How often it is made sure that delayed messages are waited for, in seconds.
_DELAY_LOOK = 10.0

# How often tables are written that could not be written before, in seconds.
_SAVE_AGAIN = 10.0

# How often it is seen what was decided about transactions, in seconds.
_DECISIONS_LOOK = 1.0

# Searches in threads at a time, as Java's queryMessageThreadPoolNums.
_QUERIES = 10

# Requests of plugins that block: at a time, and waiting.
_PLUGIN_THREADS = 4
_PLUGIN_QUEUE = 10_000


def nameServer(around: Surroundings, configuration: Configuration) -> NameServer:
    """
    A name server.

    @raise StoreCorrupt: if the file at C{kvConfigPath} is damaged.
    """
    settings = partial(configuration.__getitem__, NamesrvSettings)
    listen = configuration[NamesrvServerSettings]
    table = Table(around.files, os.path.abspath(settings().kvConfigPath))
    slices = cooperator(around.clock)
    kvConfig = KVConfig(
        lambda data: around.inThread(lambda: table.save(data)),
        table.load(decodeKVConfig),
        partial(begun, slices),
    )
    routes = RouteTable()
    remoting = Remoting(around.clock, listen.limits)
    inline = InlineExecutor()
    for codes in (
        RegistrationRequests(routes, kvConfig, around.elapsed, slices).codes(),
        RouteRequests(routes, kvConfig, settings, slices).codes(),
        KVConfigRequests(kvConfig, slices).codes(),
        NamesrvConfigRequests(
            configuration, SettingChanges(configuration, settings().configBlackList, around.now)
        ).codes(),
    ):
        _register(remoting, codes, inline)
    factory = _factory(remoting, listen, configuration)
    endpoints = [around.listen(listen, listen.listenPort)]
    return NameServer(remoting, factory, endpoints, routes, kvConfig, around.start, around.stop)


def broker(
    around: Surroundings, configuration: Configuration, plugins: Plugins | None = None
) -> Broker:
    """
    A broker.

    @raise ConfigError: if an address in the configuration is none, or a plugin is
        not what it should be.
    """
    plugged = plug(plugins or Plugins())
    own = configuration[BrokerSettings]
    listen = configuration[BrokerServerSettings]
    tls = configuration[TLSSettings]
    port = listen.listenPort or freePort(_VIP)
    identity, storeHost = _identity(own, port)
    folder = configuration[StoreSettings].storePathRootDir

    def table(name: str) -> Table:
        return Table(around.files, os.path.join(folder, "config", name))

    remoting = Remoting(around.clock, listen.limits)
    slices = cooperator(around.clock)
    backoff = shortBackoff(around.choose)
    peers = Peers(Remoting(around.clock), around.connect(tls.client()), backoff)
    stats = Stats(identity.cluster, around.now, around.elapsed)
    names = identity.cluster, identity.name
    topics = Topics(
        table("topics.json"),
        around.inThread,
        names,
        configuration[TopicSettings],
        around.now,
        slices,
    )
    groups = Groups(
        table("subscriptionGroup.json"),
        around.inThread,
        configuration[GroupSettings],
        around.now,
        slices,
    )
    offsets = Offsets(
        table("consumerOffset.json"),
        around.inThread,
        slices,
        configuration[OffsetSettings].maxConsumerOffsetNum,
    )
    longPoll = LongPoll(around.clock, configuration[PullSettings].pullThreadPoolQueueCapacity)
    store = MessageStore(
        configuration[StoreSettings],
        around.clock,
        partial(_gathering, remoting, around.inThread),
        storeHost,
        longPoll.arrived,
        around.files,
        syncInThread=partial(_gathering, remoting, around.inOwnThread or around.inThread),
        awaited=longPoll.awaited,
        wall=around.wall,
    )
    delays = DelayLevels(
        around.clock,
        store,
        table("delayOffset.json"),
        around.inThread,
        delayLevels(configuration[StoreSettings].messageDelayLevel),
        stats.put,
    )
    timers = Timers(
        around.clock,
        store,
        Wheel(store),
        Reached(store, table("timers.json"), around.inThread),
        configuration[DelaySettings],
        stats.put,
    )
    detours = Detours(delays.detour, timers.detour)
    store.retention.needed = lambda: min(delays.needed(), timers.needed())
    clients = configuration[ClientSettings]
    memberLimits = MemberLimits(clients.maxGroupNumPerClient, clients.maxGroupMemberNum)
    consumers = Consumers(
        around.clock,
        partial(_notifies, configuration, groups),
        around.now,
        memberLimits,
        clients.maxSubscriptionNumPerGroup,
        slices,
    )
    producers = Producers(around.timeOf, memberLimits, slices.cooperate)
    transactions = Transactions(store, topics, storeHost, around.now)
    checks = TransactionChecks(
        around.clock,
        store,
        offsets,
        transactions,
        producers,
        configuration[TransactionSettings],
    )
    configuration.follow(TransactionSettings, partial(setattr, checks, "settings"))
    locks = QueueLocks(limit=clients.maxQueueLockNum)
    expressions = plugged.expressionTypes
    filters = ConsumerFilters(
        table("consumerFilter.json"),
        around.inThread,
        consumers,
        expressions,
        configuration[FilterSettings],
        around.now,
        slices,
        lambda: configuration[PullSettings].enablePropertyFilter,
    )
    subscriptions = Subscriptions(
        groups, consumers, expressions, configuration[PullSettings], filters.subscription
    )
    announcement = Announcement(
        around.clock,
        peers,
        identity,
        configuration[AnnounceSettings],
        topics,
        _nameServers(configuration),
        backoff,
        partial(begun, slices),
    )
    announcement.permit(own.brokerPermission)
    retries = Retries(topics, groups)
    admission = Admission(store, topics, own, configuration[SendSettings], around.now)
    answers = SendAnswers(storeHost, own)
    hooks = SendHooks(plugged.sendHooks, admission)
    send = SendProcessor(
        store,
        Ways(detours, transactions, retries, admission),
        stats,
        admission,
        answers,
        hooks,
        choose=around.choose,
        gather=remoting.gatherTurn,
    )
    reply = ReplyProcessor(
        store,
        producers,
        stats,
        admission,
        answers,
        hooks,
        storeHost=storeHost,
        now=around.now,
        choose=around.choose,
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
    if speed is not None:
        limit = listen.limits.frame
        ways = [ExpressPull(store, pull, offsets, stats, limit).take]
        if not plugged.sendHooks:
            sends = Express(store, send, answers, stats, limit)
            ways = [sends.take, sends.takeBatches, *ways]
            remoting.together = sends.takeTogether
        remoting.express = partial(inTurn, ways)
    inline = InlineExecutor()
    # A message that comes again waits by its level, and not by what it once was.
    later = Detours(delays.detour)
    for traffic in (
        send,
        SendBackProcessor(store, retries, later, stats, admission, around.choose),
        reply,
        pull,
        TransactionProcessor(store, transactions, detours, stats.put),
        HeartbeatProcessor(consumers, producers, groups, topics, around.elapsed, slices),
        ClientProcessor(consumers, producers, subscriptions, slices),
        LockProcessor(locks, around.elapsed, slices),
        OffsetProcessor(offsets, delays, store, topics, consumers, slices),
    ):
        _register(remoting, traffic.codes(), inline)
    progress = Progress(identity.name, store, topics, offsets, consumers, stats)
    removal = Removal(topics, groups, offsets, store, stats)
    runtime = RuntimeInfo(store, stats, longPoll, configuration, [delays.runtime, timers.runtime])
    pools = configuration[PoolSettings]
    # Keys are searched for in threads, and administrators wait for the disk and for
    # name servers: so many at a time, and the rest in their turn.
    query = TurnExecutor(
        around.clock,
        name="query",
        size=_QUERIES,
        queueLimit=pools.queryThreadPoolQueueCapacity,
    )
    _register(remoting, QueryProcessor(store, consumers, filters.described).codes(), query)
    admin = TurnExecutor(around.clock, name="admin", size=pools.adminBrokerThreadPoolNums)
    for rare in (
        ConsumptionProcessor(progress, offsets, consumers, slices, around.now),
        ResetProcessor(progress, consumers, slices),
        TopicProcessor(topics, removal, progress, slices, announcement.whenTold),
        GroupProcessor(groups, removal, progress, slices, identity.address),
        ConsumerCallProcessor(consumers, store, identity.name),
        InspectProcessor(
            lambda most, group: locks.first(most, around.elapsed(), group),
            transactions.pending,
            consumers.differing.first,
            slices,
        ),
        BrokerProcessor(
            stats,
            runtime,
            configuration,
            SettingChanges(configuration, own.configBlackList, around.now),
            _found(identity, port),
        ),
    ):
        _register(remoting, rare.codes(), admin)
    threads = around.executor("plugins", _PLUGIN_THREADS, _PLUGIN_QUEUE)
    for codes, blocking in plugged.codes:
        # What these are, and how large, their makers know.
        _register(remoting, codes, threads if blocking else inline, bound=False)
    _follow(configuration, send, pull, subscriptions, topics, groups, announcement, longPoll, store)
    configuration.follow(DelaySettings, lambda settings: setattr(timers, "settings", settings))
    _prepareSQL92(configuration, around.inThread)

    def expire() -> Gradual[None]:
        now = around.elapsed()
        yield from producers.expire(now)
        yield from consumers.expire(now)
        yield from locks.expire(now)

    def keepFilters() -> Deferred[None]:
        return gradually(slices, filters.follow()).addCallback(lambda none: filters.write())

    chores = [
        Chore("Sampling the statistics", SAMPLE_PERIOD, lambda: gradually(slices, stats.sample())),
        Chore("Forgetting silent clients", _SCAN_INTERVAL, lambda: gradually(slices, expire())),
        Chore(
            "Writing the consumers' offsets",
            configuration[OffsetSettings].flushConsumerOffsetInterval / 1000,
            offsets.save,
        ),
        Chore(
            "Writing how far delayed messages were delivered",
            configuration[DelaySettings].flushDelayOffsetInterval / 1000,
            delays.save,
        ),
        Chore(
            "Writing how far messages that have a time were delivered",
            configuration[DelaySettings].timerFlushIntervalMs / 1000,
            timers.save,
        ),
        Chore("Looking for delayed messages", _DELAY_LOOK, delays.look),
        Chore("Writing the consumers' filters", SAVE_PERIOD, keepFilters),
        Chore("Writing topics that were not written", _SAVE_AGAIN, topics.stop),
        Chore("Writing groups that were not written", _SAVE_AGAIN, groups.stop),
        Chore("Looking at decisions about transactions", _DECISIONS_LOOK, checks.look),
        Chore(
            "Asking about undecided transactions",
            configuration[TransactionSettings].transactionCheckInterval / 1000,
            checks.check,
        ),
        Chore("Looking for messages that have a time", _DELAY_LOOK, timers.look),
    ]

    factory = _factory(remoting, listen, configuration)
    ports = [port, port - _VIP] if port > _VIP else [port]
    return Broker(
        remoting,
        factory,
        [around.listen(listen, each) for each in ports],
        store,
        topics,
        groups,
        offsets,
        filters,
        longPoll,
        announcement,
        peers,
        [delays, timers, checks],
        chores,
        around.start,
        around.stop,
    )


def _prepareSQL92(
    configuration: Configuration, inThread: Callable[[Callable[[], None]], Deferred[None]]
) -> None:
    """
    Load what reads SQL92 expressions, now or as soon as C{enablePropertyFilter} is set.
    """

    def changed(settings: PullSettings) -> None:
        if settings.enablePropertyFilter:
            # The broker serves others meanwhile.
            inThread(loadSQL92)

    if configuration[PullSettings].enablePropertyFilter:
        loadSQL92()
    configuration.follow(PullSettings, changed)


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


def _factory(
    remoting: Remoting, listen: ServerSettings, configuration: Configuration
) -> RemotingServerFactory:
    return RemotingServerFactory(
        remoting,
        configuration[TLSSettings].server(),
        listen.serverChannelMaxIdleTimeSeconds,
        listen.serverMaxConnectionNum,
        listen.serverMaxConnectionNumPerAddress,
    )


def _register(
    remoting: Remoting, codes: Mapping[int, Process], executor: IExecutor, *, bound: bool = True
) -> None:
    for code, function in codes.items():
        process = bounded(code, function) if bound else function
        remoting.registerProcessor(code, FunctionProcessor(process), executor)


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
        # Java's, whatever haListenPort says.
        f"{settings.brokerIP2 or shown}:{port + 1}",
        settings.brokerId,
    )
    return identity, storeHost


def _found(identity: Identity, port: int) -> dict[str, str]:
    """
    The values of settings that need not be set.
    """
    return {
        "brokerName": identity.name,
        "brokerIP1": identity.address.rpartition(":")[0],
        "listenPort": str(port),
    }


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


def _follow(
    configuration: Configuration,
    send: SendProcessor,
    pull: PullProcessor,
    subscriptions: Subscriptions,
    topics: Topics,
    groups: Groups,
    announcement: Announcement,
    longPoll: LongPoll,
    store: MessageStore,
) -> None:
    """
    Hand each new section to its owners.
    """

    def brokerChanged(settings: BrokerSettings) -> None:
        send.broker = pull.broker = settings
        announcement.permit(settings.brokerPermission)

    def pullChanged(settings: PullSettings) -> None:
        pull.settings = subscriptions.settings = settings
        longPoll.limit = settings.pullThreadPoolQueueCapacity

    configuration.follow(BrokerSettings, brokerChanged)
    configuration.follow(PullSettings, pullChanged)
    configuration.follow(SendSettings, lambda settings: setattr(send, "settings", settings))
    configuration.follow(TopicSettings, lambda settings: setattr(topics, "settings", settings))
    configuration.follow(GroupSettings, lambda settings: setattr(groups, "settings", settings))
    configuration.follow(StoreSettings, store.apply)
