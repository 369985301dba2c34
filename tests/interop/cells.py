# SPDX-License-Identifier: Apache-2.0
"""
A scenario in a pairing of clients and servers: a cell of the table, and what a
scenario works with.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.task import deferLater

from tests.interop.clients import CLIENTS, Client, Drivers
from tests.interop.driver import Consumer, Driver, Producer, Puller, Shown
from tests.interop.servers import Servers
from tests.live.servers import reactor
from txrocket.errors import RocketError, responseError
from txrocket.model import SubscriptionGroupConfig, TopicRouteData
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetRouteInfoRequestHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.peers import Peers

__all__ = ["PAIRINGS", "SCENARIOS", "Cell", "Pairing", "Scenario", "scenario", "sleep"]

# How many seconds a request of the harness may take, and a topic until its route is
# known.
_TIMEOUT = 30.0
_ROUTE = 60.0

# Why a scenario that is beyond RocketMQ's broker is.
_BEYOND = "RocketMQ 4.9.7's broker delivers late by levels only"

# Of what each program said, so many lines are told of a cell that failed.
_TOLD = 40


def sleep(seconds: float) -> Any:
    """
    A Deferred that fires later.
    """
    return deferLater(reactor, seconds)


@attrs.frozen
class Pairing:
    """
    The clients and servers of a run.

    @ivar producer: the client that sends.
    @ivar consumer: the client that receives.
    @ivar nameServer: C{ours} or C{java}.
    @ivar broker: C{ours} or C{java}.
    """

    producer: str
    consumer: str
    nameServer: str
    broker: str

    @property
    def kinds(self) -> tuple[str, str]:
        """
        Whose the servers are.
        """
        return self.nameServer, self.broker

    @property
    def title(self) -> str:
        """
        Its clients.
        """
        first, second = CLIENTS[self.producer].title, CLIENTS[self.consumer].title
        return first if first == second else f"{first} → {second}"

    def __str__(self) -> str:
        return f"{self.producer}-{self.consumer}@{self.nameServer}-{self.broker}"

    def lacks(self, absent: Iterable[str]) -> str | None:
        """
        A missing part, if any.
        """
        needed = {self.producer, self.consumer, self.nameServer, self.broker}
        return next((each for each in absent if each in needed), None)


def _pairings() -> list[Pairing]:
    others = ("java", "go", "cpp", "node")
    mixed = [pair for each in others for pair in ((each, "ours"), ("ours", each))]
    found = [Pairing(each, each, "ours", "ours") for each in others]
    found += [Pairing(*pair, "ours", "ours") for pair in mixed]
    found += [Pairing(*pair, "java", "java") for pair in [("ours", "ours"), *mixed]]
    for servers in (("ours", "java"), ("java", "ours")):
        found += [Pairing("java", "java", *servers), Pairing("ours", "ours", *servers)]
    return found


PAIRINGS = _pairings()


@attrs.frozen
class Scenario:
    """
    What is done in each pairing.

    @ivar title: its row.
    @ivar sends: what the producer's client must be able to do; see L{CLIENTS} for what
        each lacks.
    @ivar receives: what the consumer's must.
    @ivar configuration: the servers'.
    @ivar own: whether it needs servers of its own.
    @ivar limit: after how many seconds it has failed.
    @ivar beyond: whether RocketMQ's broker does not do it at all.
    @ivar pairings: those in which it is run; L{None} is all.
    @ivar excepted: where it cannot be done though the client offers it, and why: by
        the client and whose broker it is.
    """

    title: str
    run: Callable[[Cell], Awaitable[None]] = attrs.field(repr=False)
    sends: frozenset[str]
    receives: frozenset[str]
    configuration: str = "plain"
    own: bool = False
    limit: float = 300.0
    beyond: bool = False
    pairings: Sequence[Pairing] | None = None
    excepted: Mapping[tuple[str, str], str] = attrs.field(factory=dict)

    def hindrances(self, pairing: Pairing) -> list[str]:
        """
        Why the clients and servers of a pairing cannot do it at all, if they cannot.
        """
        found = [_BEYOND] if self.beyond and pairing.broker == "java" else []
        for needed, client in ((self.sends, pairing.producer), (self.receives, pairing.consumer)):
            lacks = CLIENTS[client].lacks
            found += [lacks[each] for each in sorted(needed) if each in lacks]
            if why := self.excepted.get((client, pairing.broker)):
                found.append(f"{CLIENTS[client].title}: {why}")
        return list(dict.fromkeys(found))


SCENARIOS: list[Scenario] = []


def scenario(
    title: str, sends: str, receives: str, **more: Any
) -> Callable[[Callable[[Cell], Awaitable[None]]], Callable[[Cell], Awaitable[None]]]:
    """
    Have a function run in each pairing.

    @param sends: what the producer's client must be able to do, divided by blanks.
    @param receives: what the consumer's must.
    @param more: other members of L{Scenario}.
    """

    def add(function: Callable[[Cell], Awaitable[None]]) -> Callable[[Cell], Awaitable[None]]:
        SCENARIOS.append(
            Scenario(title, function, frozenset(sends.split()), frozenset(receives.split()), **more)
        )
        return function

    return add


_numbers = itertools.count(1)


class Cell:
    """
    A scenario in a pairing, while it runs.

    @ivar name: a name that no other cell has.
    @ivar servers: the name server and the broker.
    @ivar peers: connections of the harness's own to them.
    @ivar absent: the clients that cannot be run here.
    """

    def __init__(
        self,
        scenario: Scenario,
        pairing: Pairing,
        servers: Servers,
        drivers: Drivers,
        peers: Peers,
        absent: Iterable[str],
    ) -> None:
        self.scenario = scenario
        self.pairing = pairing
        self.servers = servers
        self.peers = peers
        self.absent = frozenset(absent)
        self.name = f"cell{next(_numbers)}"
        self._drivers = drivers
        self._found: dict[str, Driver] = {}
        self._own: list[Driver] = []
        self._members: list[Producer | Consumer | Puller] = []
        self._count = itertools.count(1)

    # --- members ---------------------------------------------------------

    def _driver(self, client: Client) -> Driver:
        driver = self._found.get(client.key)
        if driver is None or driver.ended:
            driver = self._drivers.find(client, self.scenario.configuration)
            self._found[client.key] = driver
            if not client.shared:
                self._own.append(driver)
        return driver

    def _arguments(self, group: str | None, more: Shown) -> Shown:
        return {
            "group": group or self.group(),
            "nameServers": self.servers.nameServer,
            "tls": self.scenario.configuration == "tls",
            **more,
        }

    def named(self, what: str) -> str:
        """
        A name of this cell's own.
        """
        return f"{self.name}-{what}{next(self._count)}"

    def group(self) -> str:
        """
        A group of this cell's own.
        """
        return self.named("group")

    async def producer(
        self, group: str | None = None, client: str | None = None, **more: Any
    ) -> Producer:
        """
        Start a producer of the pairing's client.
        """
        driver = self._driver(CLIENTS[client or self.pairing.producer])
        made = Producer(driver, self.named("producer"), self._arguments(group, more))
        self._members.append(made)
        return await made.start()

    async def consumer(
        self,
        topic: str,
        expression: str = "*",
        type: str = "TAG",
        *,
        group: str | None = None,
        client: str | None = None,
        **more: Any,
    ) -> Consumer:
        """
        Start a consumer of the pairing's client.
        """
        driver = self._driver(CLIENTS[client or self.pairing.consumer])
        more.setdefault("properties", [])
        more["subscriptions"] = [{"topic": topic, "expression": expression, "type": type}]
        made = Consumer(driver, self.named("consumer"), self._arguments(group, more))
        self._members.append(made)
        return await made.start()

    async def puller(
        self, group: str | None = None, client: str | None = None, **more: Any
    ) -> Puller:
        """
        Start a consumer of the pairing's client that fetches messages.
        """
        driver = self._driver(CLIENTS[client or self.pairing.consumer])
        more.setdefault("properties", [])
        made = Puller(driver, self.named("puller"), self._arguments(group, more))
        self._members.append(made)
        return await made.start()

    async def close(self) -> None:
        """
        Stop all members.
        """
        try:
            for member in reversed(self._members):
                await member.stop()
        finally:
            for driver in self._own:
                await driver.end()

    @property
    def output(self) -> str:
        """
        What its clients and servers said, of this cell and then at all.
        """
        said = {
            **{key: driver.lines for key, driver in self._found.items()},
            **self.servers.lines,
        }
        parts = []
        for key, lines in said.items():
            own = [line for line in lines if f"{self.name}-" in line]
            parts += [f"--- {key}, of this cell", *own[-_TOLD:], f"--- {key}", *lines[-_TOLD:]]
        return "\n".join(parts)

    # --- topics ----------------------------------------------------------

    async def ask(
        self, address: str, code: int, header: Header | None, body: bytes = b""
    ) -> RemotingCommand:
        """
        Ask a server, as an administrator does.
        """
        answer = await self.peers.request(address, requestCommand(code, header, body), _TIMEOUT)
        if answer.code:
            raise responseError(answer.code, answer.remark, address)
        return answer

    async def topic(self, queues: int = 4, name: str | None = None, perm: int = 6) -> str:
        """
        Make a topic, and wait until the name server knows it.
        """
        topic = name or self.named("topic")
        header = CreateTopicRequestHeader(topic, "TBW102", queues, queues, perm, "SINGLE_TAG", 0)
        await self.ask(self.servers.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await self.known(topic)
        return topic

    async def tool(self, *arguments: str) -> str:
        """
        What RocketMQ's C{mqadmin} says.
        """
        driver = self._driver(CLIENTS["java"])
        said: str = await driver.ask(
            "tool", nameServers=self.servers.nameServer, arguments=arguments
        )
        return said

    async def retries(self, group: str, times: int) -> None:
        """
        Make a group whose messages come again so often.
        """
        config = SubscriptionGroupConfig(group, retryMaxTimes=times)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.ask(self.servers.broker, code, None, encodeBody(config))

    async def known(self, topic: str) -> TopicRouteData:
        """
        Wait until the name server knows a topic.
        """
        end = reactor.seconds() + _ROUTE
        while True:
            try:
                answer = await self.ask(
                    self.servers.nameServer,
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    GetRouteInfoRequestHeader(topic),
                )
                return decodeBody(TopicRouteData, answer.body)
            except RocketError:
                if reactor.seconds() > end:
                    raise
            await sleep(0.1)

    async def stored(self, topic: str, count: int, limit: float = 60.0) -> dict[int, int]:
        """
        Wait until a topic has this number of messages.

        @return: how many are in each queue.
        """
        [queues] = (await self.known(topic)).queueDatas
        end = reactor.seconds() + limit
        while True:
            found = {}
            for queueId in range(queues.readQueueNums):
                header = GetMaxOffsetRequestHeader(topic, queueId)
                answer = await self.ask(self.servers.broker, RequestCode.GET_MAX_OFFSET, header)
                found[queueId] = answer.decodeHeader(GetMaxOffsetResponseHeader).offset
            if sum(found.values()) >= count:
                assert sum(found.values()) == count, f"{found}, not {count} messages"
                return found
            if reactor.seconds() > end:
                raise AssertionError(f"{found}, not {count} messages")
            await sleep(0.1)

    async def read(self, topic: str, count: int, **more: Any) -> list[Shown]:
        """
        Fetch the messages of a topic, with the consumer's client.

        @param count: how many there should be.
        """
        stored = await self.stored(topic, count)
        puller = await self.puller(**more)
        assert await puller.queues(topic) == sorted(stored)
        found: list[Shown] = []
        for queueId, end in stored.items():
            offset = 0
            # Not where there is nothing: some clients wait there.
            while offset < end:
                result = await puller.pull(topic, queueId, offset)
                assert result["status"] == "FOUND", result
                assert [each["queueOffset"] for each in result["messages"]] == list(
                    range(offset, result["next"])
                ), result
                offset = result["next"]
                found += result["messages"]
        return found
