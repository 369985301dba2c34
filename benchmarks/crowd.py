# SPDX-License-Identifier: Apache-2.0
"""
Servers in memory with 20,000 topics and 20,000 groups, and a clock whose turns can be
measured one by one.

A reactor reads from connections and then makes the calls that are due.  All of that is one
turn, and no other peer is served before it ends::

    bytes of a request --> dataReceived   a turn for each 64 KiB, as a socket gives them
    due calls          --> calls          a turn for all calls that are due at its beginning
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.broker.names import retryTopic
from txrocket.config import Configuration
from txrocket.model import DataVersion, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies import (
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    HeartbeatData,
    ProducerData,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.remoting import Remoting
from txrocket.server.environment import Environment
from txrocket.services import BROKER_SECTIONS, NAMESRV_SECTIONS, broker, nameServer
from txrocket.testing.memory.files import MemoryFiles

__all__ = [
    *("BUSY", "CROWDED", "SHARED", "WIDE", "Caller", "Crowd", "Host", "Measure", "TurnClock"),
    *("brokerHost", "heartbeat", "namesrvHost", "unmeasured"),
]

#: Runs a function and records its cost.
Measure = Callable[[Callable[[], object]], None]

_START = 1_700_000_000

# The bytes of one read from a socket.
_READ = 64 * 1024

#: The topic that all groups consume, and the topic with the most queues allowed.
SHARED, WIDE = "shared", "wide"
SHARED_QUEUES, WIDE_QUEUES = 1, 8192

#: The group that has consumed all topics, and the group with the most members.
BUSY, CROWDED = "group-00000", "group-00001"


@attrs.frozen
class Crowd:
    """
    The numbers of topics, groups and so on in a server's tables.
    """

    topics: int = 20_000
    groups: int = 20_000
    members: int = 500

    def topicNames(self) -> list[str]:
        """
        The names of the topics: the retry topics of the groups, and further ones up to the
        number.
        """
        names = [retryTopic(each) for each in self.groupNames()]
        names += [f"topic-{number:05d}" for number in range(self.topics - len(names))]
        return names[: self.topics]

    def groupNames(self) -> list[str]:
        """
        The names of the groups.
        """
        return [f"group-{number:05d}" for number in range(self.groups)]

    def topicConfigs(self) -> dict[str, TopicConfig]:
        """
        The topics.
        """
        configs = {name: TopicConfig(name, 4, 4) for name in self.topicNames()}
        configs[SHARED] = TopicConfig(SHARED, SHARED_QUEUES, SHARED_QUEUES)
        configs[WIDE] = TopicConfig(WIDE, WIDE_QUEUES, WIDE_QUEUES)
        return configs

    def files(self) -> dict[str, bytes]:
        """
        The tables of a broker.
        """
        groups = {name: SubscriptionGroupConfig(name) for name in self.groupNames()}
        shared = dict.fromkeys(range(SHARED_QUEUES), 0)
        offsets = {f"{SHARED}@{name}": shared for name in groups}
        offsets |= {f"{name}@{BUSY}": {0: 0} for name in self.topicNames()}
        offsets[f"{WIDE}@{CROWDED}"] = dict.fromkeys(range(WIDE_QUEUES), 0)
        version = DataVersion(_START * 1000, 1)
        return {
            "topics.json": encodeBody(TopicConfigSerializeWrapper(self.topicConfigs(), version)),
            "subscriptionGroup.json": encodeBody(SubscriptionGroupWrapper(groups, version)),
            "consumerOffset.json": encodeBody(ConsumerOffsetSerializeWrapper(offsets)),
        }


def unmeasured(turn: Callable[[], object]) -> None:
    """
    Run a turn without recording it.
    """
    turn()


class TurnClock(Clock):
    """
    A clock that goes turn by turn.

    @ivar measure: runs each turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.measure: Measure = unmeasured
        self.rightNow = float(_START)
        self._jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

    def inThread(self, function: Callable[[], None]) -> Deferred[None]:
        """
        Run a function that blocks, between turns.
        """
        done: Deferred[None] = Deferred()
        self._jobs.append((function, done))
        return done

    def _work(self) -> bool:
        jobs, self._jobs = self._jobs, []
        for function, done in jobs:
            result: Any = None
            try:
                function()
            except Exception:
                result = Failure()
            self.callLater(0, done.callback, result)
        return bool(jobs)

    def turn(self) -> bool:
        """
        Make the due calls.

        @return: whether there were any.
        """
        due = [each for each in self.calls if each.getTime() <= self.seconds()]
        if not due:
            return False

        def run() -> None:
            for call in due:
                if call.active():
                    self.calls.remove(call)
                    call.called = 1
                    call.func(*call.args, **call.kw)

        self.measure(run)
        return True

    def settle(self, seconds: float = 0.0) -> None:
        """
        Let time pass, and make the calls that are due by then.
        """
        end = self.seconds() + seconds
        while True:
            while self.turn() or self._work():
                pass
            coming = [each.getTime() for each in self.getDelayedCalls()]
            if not coming or min(coming) > end:
                break
            self.rightNow = min(coming)
        self.rightNow = end


@implementer(IStreamServerEndpoint)
class _Endpoint:
    def __init__(self, factories: list[IProtocolFactory]) -> None:
        self._factories = factories

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        self._factories.append(protocolFactory)
        return Deferred()


class Caller:
    """
    A connection to a server.
    """

    def __init__(self, clock: TurnClock, factory: Any, number: int) -> None:
        self._clock = clock
        address = IPv4Address("TCP", f"192.0.2.{number % 250}", 1024 + number)
        self.protocol = factory.buildProtocol(address)
        self.wire = StringTransport(peerAddress=address)
        self.wire.abortConnection = self.wire.loseConnection  # type: ignore[method-assign]
        self.protocol.makeConnection(self.wire)

    def send(self, request: RemotingCommand) -> None:
        """
        Send a request, and run all turns that follow from it.
        """
        data = request.encode()
        for start in range(0, len(data), _READ):
            self._clock.measure(partial(self.protocol.dataReceived, data[start : start + _READ]))
        self._clock.settle()

    def answers(self) -> list[RemotingCommand]:
        """
        The answers since the last call.
        """
        data = self.wire.value()
        self.wire.clear()
        return [each for each in RemotingConnection().feed(data) if each.isResponse]


class Host:
    """
    A server in memory.
    """

    def __init__(
        self, make: Callable[[Environment], Any], clock: TurnClock, files: MemoryFiles
    ) -> None:
        self.clock = clock
        self._factories: list[IProtocolFactory] = []
        self._callers = 0
        around = Environment(
            clock=clock,
            wall=clock.seconds,
            inThread=clock.inThread,
            listen=lambda settings, port: _Endpoint(self._factories),
            connect=lambda tls: _noConnect,
            choose=lambda below: 0,
            files=files,
            executor=lambda name, size, queueLimit: InlineExecutor(),
        )
        self.service = make(around)
        self.service.startService()
        clock.settle()

    @property
    def remoting(self) -> Remoting:
        """
        The remoting that serves requests.
        """
        remoting: Remoting = self.service.remoting
        return remoting

    def call(self) -> Caller:
        """
        Connect to it.
        """
        self._callers += 1
        return Caller(self.clock, self._factories[0], self._callers)


def _noConnect(address: str) -> Any:
    raise AssertionError(f"a server in memory must not dial {address}")


def brokerHost(crowd: Crowd, **settings: str) -> Host:
    """
    A broker with a client in each of its groups.
    """
    clock = TurnClock()
    files = MemoryFiles(clock.seconds)
    files.makeFolder("/store/config")
    for name, data in crowd.files().items():
        handle = files.open(f"/store/config/{name}")
        files.pwrite(handle, data, 0)
        files.close(handle)
    given = {
        "brokerName": "b",
        "brokerIP1": "192.0.2.9",
        "namesrvAddr": "",
        "storePathRootDir": "/store",
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        **settings,
    }
    configuration = Configuration.read(BROKER_SECTIONS, (), None, given)
    host = Host(lambda around: broker(around, configuration), clock, files)
    for names in _portions(crowd.groupNames(), 1000):
        caller = host.call()
        caller.send(heartbeat("all", names, names))
    for number in range(crowd.members):
        host.call().send(heartbeat(f"member-{number}", [CROWDED], []))
    return host


def heartbeat(clientId: str, consumers: list[str], producers: list[str]) -> RemotingCommand:
    """
    A heartbeat of a client that is in groups.
    """
    data = HeartbeatData(
        clientId,
        frozenset(ProducerData(each) for each in producers),
        frozenset(ConsumerData(each) for each in consumers),
    )
    return requestCommand(RequestCode.HEART_BEAT, body=encodeBody(data))


def _portions(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def namesrvHost(**settings: str) -> Host:
    """
    A name server.
    """
    clock = TurnClock()
    files = MemoryFiles(clock.seconds)
    configuration = Configuration.read(
        NAMESRV_SECTIONS, (), None, {"kvConfigPath": "/namesrv/kvConfig.json", **settings}
    )
    return Host(lambda around: nameServer(around, configuration), clock, files)
