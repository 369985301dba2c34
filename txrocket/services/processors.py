# SPDX-License-Identifier: Apache-2.0
"""
The processors of a broker, and the request codes that each serves.

Most requests are served in the reactor.  Searches, and requests of administrators that wait
for the disk or for name servers, take turns in an executor of their own, so that only a few
of them are in flight::

    messages, clients -----> inline
    search by key ---------> "query"  10 at a time
    administration --------> "admin"  adminBrokerThreadPoolNums at a time
    plugins ---------------> inline, or threads if they block
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from twisted.internet.defer import Deferred

from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.parts import BrokerParts
from txrocket.broker.plugins import CheckedPlugins
from txrocket.broker.pull.consumeprogress import ConsumeProgress
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.member.service import Replication
from txrocket.broker.replication.role import BrokerRoleState
from txrocket.broker.runtimeinfo import RuntimeInfo
from txrocket.broker.settings import BrokerSettings, PoolSettings, PullSettings, SendSettings
from txrocket.config import Configuration
from txrocket.processors.admin.broker import BrokerProcessor
from txrocket.processors.admin.consumercalls import ConsumerCallProcessor
from txrocket.processors.admin.consumestats import ConsumptionProcessor
from txrocket.processors.admin.groups import GroupProcessor
from txrocket.processors.admin.inspect import InspectProcessor
from txrocket.processors.admin.resetoffset import ResetOffsetProcessor
from txrocket.processors.admin.roles import RoleProcessor
from txrocket.processors.admin.settingchanges import SettingChanges
from txrocket.processors.admin.topics import TopicProcessor
from txrocket.processors.bodylimits import bounded
from txrocket.processors.clients.connections import ClientProcessor
from txrocket.processors.clients.heartbeat import HeartbeatProcessor
from txrocket.processors.clients.offsets import OffsetProcessor
from txrocket.processors.clients.queuelocks import LockProcessor
from txrocket.processors.cooperate import Slices
from txrocket.processors.messages.endtransaction import EndTransactionProcessor
from txrocket.processors.messages.pull import PullProcessor
from txrocket.processors.messages.pull.pullchecks import PullChecks
from txrocket.processors.messages.pull.pulltogether import PullTogether
from txrocket.processors.messages.query import QueryProcessor
from txrocket.processors.messages.reply import ReplyProcessor
from txrocket.processors.messages.send import SendProcessor
from txrocket.processors.messages.send.reroute import SendReroute
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.processors.messages.send.sendhooks import SendHooks
from txrocket.processors.messages.send.sendresponse import SendResponses
from txrocket.processors.messages.send.sendtogether import SendTogether
from txrocket.processors.messages.sendback import SendBackProcessor
from txrocket.processors.rolechecks import roleChecked
from txrocket.remoting.executors import InlineExecutor, TurnExecutor
from txrocket.remoting.interfaces import IExecutor, Process
from txrocket.remoting.remoting import BulkFunctionProcessor, FunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.settings import ServerSettings, TLSSettings
from txrocket.remoting.turn import ProcessAll
from txrocket.server.environment import Environment

__all__ = [
    "adminProcessors",
    "clientProcessors",
    "messageProcessors",
    "register",
    "registerProcessors",
    "serverFactory",
]

# Searches in threads at a time, as Java's queryMessageThreadPoolNums.
_QUERIES = 10

# Requests of plugins that block: at a time, and waiting.
_PLUGIN_THREADS = 4
_PLUGIN_QUEUE = 10_000


class _Processor(Protocol):
    """
    A processor of one or several codes.

    One that serves many requests at a time also has C{codesOfMany}, which gives a
    L{ProcessAll} for each such code.
    """

    def codes(self) -> Mapping[int, Process]: ...


def registerProcessors(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    plugins: CheckedPlugins,
    slices: Slices,
    replication: Replication,
) -> None:
    """
    Have a broker serve all requests.
    """
    remoting, inline, role = parts.core.remoting, InlineExecutor(), parts.core.role
    for processor in (
        *messageProcessors(environment, configuration, parts, plugins, replication.durability),
        *clientProcessors(environment, parts, slices),
    ):
        many: Mapping[int, ProcessAll] = getattr(processor, "codesOfMany", dict)()
        register(remoting, processor.codes(), inline, many=many, role=role)
    pools = configuration[PoolSettings]
    query = TurnExecutor(
        environment.clock,
        name="query",
        size=_QUERIES,
        queueLimit=pools.queryThreadPoolQueueCapacity,
    )
    store, filters = parts.core.store, parts.tables.filters
    search = QueryProcessor(store, parts.clients.consumers, filters.described)
    register(remoting, search.codes(), query)
    admin = TurnExecutor(environment.clock, name="admin", size=pools.adminBrokerThreadPoolNums)
    whenRegistered = replication.registration.whenTold
    for processor in (
        *adminProcessors(
            environment, configuration, parts, slices, whenRegistered, replication.durability
        ),
        RoleProcessor(replication),
    ):
        register(remoting, processor.codes(), admin, role=role)
    threads = environment.executor("plugins", _PLUGIN_THREADS, _PLUGIN_QUEUE)
    for codes, blocking in plugins.codes:
        # Only the author of a plugin knows how large a body may be.
        register(remoting, codes, threads if blocking else inline, bound=False)


def messageProcessors(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    plugins: CheckedPlugins,
    durability: Durability,
) -> Sequence[_Processor]:
    """
    The processors of messages: send, send back, reply, pull and the end of transactions.
    """
    core, tables, delivery = parts.core, parts.tables, parts.delivery
    store = core.store
    own, now = configuration.live(BrokerSettings), environment.now
    checks = SendChecks(
        durability, core.role, tables.topics, own, configuration.live(SendSettings), now
    )
    responses = SendResponses(core.storeHost, own)
    hooks = SendHooks(plugins.sendHooks, checks)
    send = SendProcessor(
        SendTogether(store, checks, responses, core.stats, core.remoting.turn),
        SendReroute(delivery.reroutes, delivery.halfMessages, delivery.retries, checks),
        hooks,
        choose=environment.choose,
    )
    subscriptions, pulls = parts.clients.subscriptions, configuration.live(PullSettings)
    mayPull = PullChecks(tables.topics, subscriptions, own, pulls, core.role)
    pull = PullProcessor(PullTogether(core, mayPull, tables.offsets), now)
    return (send, pull, *_storedAgain(environment, parts, checks, responses, hooks))


def _storedAgain(
    environment: Environment,
    parts: BrokerParts,
    checks: SendChecks,
    responses: SendResponses,
    hooks: SendHooks,
) -> Sequence[_Processor]:
    """
    The processors of messages that are stored already, or may be: messages sent back,
    replies, and halves of transactions.
    """
    delivery, store, stats = parts.delivery, parts.core.store, parts.core.stats
    # A retried message is parked by its delay level, and not by the time that it once had.
    byLevel = Reroutes(delivery.delayLevels.reroute)
    return (
        SendBackProcessor(store, delivery.retries, byLevel, stats, checks, environment.choose),
        ReplyProcessor(
            parts.core,
            parts.clients.producers,
            checks,
            responses,
            hooks,
            choose=environment.choose,
        ),
        EndTransactionProcessor(
            store, checks.durability, delivery.halfMessages, delivery.reroutes, stats.put
        ),
    )


def clientProcessors(
    environment: Environment, parts: BrokerParts, slices: Slices
) -> Sequence[_Processor]:
    """
    The processors of clients: heartbeats, connections, queue locks and offsets.
    """
    tables, clients = parts.tables, parts.clients
    levels = parts.delivery.delayLevels
    return (
        HeartbeatProcessor(clients, tables, environment.elapsed, slices),
        ClientProcessor(clients, slices),
        LockProcessor(clients.locks, environment.elapsed, slices),
        OffsetProcessor(parts.core.store, tables, clients.consumers, levels, slices),
    )


def adminProcessors(
    environment: Environment,
    configuration: Configuration,
    parts: BrokerParts,
    slices: Slices,
    whenRegistered: Callable[[], Deferred[None]],
    durability: Durability,
) -> Sequence[_Processor]:
    """
    The processors of administrators' requests.

    @param whenRegistered: gives a Deferred that fires once the name servers know of the
        last change.
    """
    core, tables, clients = parts.core, parts.tables, parts.clients
    identity, store, consumers = core.identity, core.store, clients.consumers
    progress = ConsumeProgress(identity.name, store, tables, consumers, core.stats)
    blackList = configuration[BrokerSettings].configBlackList
    host, _, port = identity.address.rpartition(":")
    return (
        ConsumptionProcessor(progress, tables.offsets, consumers, slices, environment.now),
        ResetOffsetProcessor(progress, consumers, slices),
        TopicProcessor(tables, progress, slices, whenRegistered, durability),
        GroupProcessor(tables, progress, slices, identity.address, durability),
        ConsumerCallProcessor(consumers, store, identity.name),
        InspectProcessor(
            lambda most, group: clients.locks.first(most, environment.elapsed(), group),
            parts.delivery.halfMessages.pending,
            consumers.differing.first,
            slices,
        ),
        BrokerProcessor(
            core.stats,
            RuntimeInfo(core, parts.delivery, configuration),
            configuration,
            SettingChanges(configuration, blackList, environment.now),
            {"brokerName": identity.name, "brokerIP1": host, "listenPort": port},
        ),
    )


def register(
    remoting: Remoting,
    codes: Mapping[int, Process],
    executor: IExecutor,
    *,
    many: Mapping[int, ProcessAll] = MappingProxyType({}),
    bound: bool = True,
    role: BrokerRoleState | None = None,
) -> None:
    """
    Have a processor's codes served.

    @param many: by code, the functions that serve many requests at a time.
    @param bound: whether to refuse requests whose bodies are too large.
    @param role: refuses the requests that a broker of this role does not serve.
    """
    for code, function in codes.items():
        process = bounded(code, function) if bound else function
        if role is not None:
            process = roleChecked(role, code, process)
        processAll = many.get(code)
        processor = (
            FunctionProcessor(process)
            if processAll is None
            else BulkFunctionProcessor(process, processAll)
        )
        remoting.registerProcessor(code, processor, executor)


def serverFactory(
    remoting: Remoting, listen: ServerSettings, configuration: Configuration
) -> RemotingServerFactory:
    """
    The factory of a server's connections.
    """
    return RemotingServerFactory(
        remoting,
        configuration[TLSSettings].server(),
        listen.serverChannelMaxIdleTimeSeconds,
        listen.serverMaxConnectionNum,
        listen.serverMaxConnectionNumPerAddress,
    )
