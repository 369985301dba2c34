# SPDX-License-Identifier: Apache-2.0
"""
A broker's rules, its store and the processors of administrators' requests, on a
clock, for the tests of these requests.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogEvent, LogLevel

from tests.broker.peers import Connected, consumer
from tests.processors.parts import environmentOf, identityOf, partsAround
from tests.remoting.doubles import connected, serving
from tests.store.support import HOST, START, StoreCase, atOnce
from txrocket.broker.clients.registry import ClientChannelInfo
from txrocket.broker.parts import Core
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.role import BrokerRoleState, Role
from txrocket.broker.settings import (
    SECTIONS,
    BrokerSettings,
    PullSettings,
)
from txrocket.broker.stats import Stats
from txrocket.config import Configuration
from txrocket.filters.expressions import ExpressionTypes
from txrocket.model import TopicConfig
from txrocket.processors.clients.offsets import OffsetProcessor
from txrocket.processors.cooperate import cooperator
from txrocket.processors.messages.query import QueryProcessor
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.remoting import Remoting
from txrocket.services.processors import adminProcessors
from txrocket.store.jsontable import Table
from txrocket.store.settings import StoreSettings

CLUSTER, BROKER = "HarnessCluster", "harness-a"
ADDRESS = "192.0.2.9:10911"
NOW = START * 1000


def warnings(events: Sequence[LogEvent]) -> list[str]:
    """
    What an operator is warned of, of all that was logged.
    """
    return [
        str(each["log_format"]).format_map(each)
        for each in events
        if each["log_level"] is LogLevel.warn
    ]


class AdminCase(StoreCase):
    """
    A broker, as far as an administrator sees it.

    @cvar OPTIONS: the store's settings.
    @cvar BLACK_LIST: the settings that no request may change.
    """

    BLACK_LIST = BrokerSettings().configBlackList

    OPTIONS: dict[str, Any] = {"mappedFileSizeCommitLog": 64 * 1024, "maxIndexNum": 1000}

    def setUp(self) -> None:
        super().setUp()
        self.store = self.start(**self.OPTIONS)
        self.addCleanup(self.store.stop)
        self.stats = Stats(CLUSTER, self.now)
        self.configuration = self.configure()
        self.longPoll = LongPoll(self.clock, self.configuration.live(PullSettings))
        self.slices = cooperator(self.clock)
        core = Core(
            identityOf(BROKER, CLUSTER, ADDRESS),
            HOST,
            Remoting(self.clock),
            self.store,
            self.longPoll,
            self.stats,
            BrokerRoleState(Role.MASTER),
        )
        self.environment = environmentOf(self.clock, atOnce, self.disk, lambda below: 0)
        self.parts = partsAround(
            core, self.environment, self.configuration, self.slices, ExpressionTypes()
        )
        tables = self.parts.tables
        self.topics, self.groups, self.offsets = tables.topics, tables.groups, tables.offsets
        self.consumers = self.parts.clients.consumers
        self.delays, self.timers = self.parts.delivery.delayLevels, self.parts.delivery.timers
        self.told: list[Deferred[None]] = []
        self.peer, self.wire = connected(serving(self.clock, self.codes()))

    def now(self) -> int:
        """
        The time in milliseconds.
        """
        return int(self.clock.seconds() * 1000)

    def table(self, name: str) -> Table:
        """
        One of the broker's tables.
        """
        return Table(self.disk, os.path.join(self.root, "config", name))

    def configure(self, **given: str) -> Configuration:
        """
        The broker's configuration.
        """
        own = {"notifyConsumerIdsChangedEnable": "false", "configBlackList": self.BLACK_LIST}
        return Configuration.read([*SECTIONS, StoreSettings], (), None, {**own, **given})

    def codes(self) -> dict[int, Any]:
        """
        The processors.
        """
        processors: tuple[Any, ...] = (
            QueryProcessor(self.store, self.consumers),
            OffsetProcessor(
                self.store, self.parts.tables, self.consumers, self.delays, self.slices
            ),
            *adminProcessors(
                self.environment,
                self.configuration,
                self.parts,
                self.slices,
                self.whenTold,
                Durability(self.store),
            ),
        )
        return {code: each for one in processors for code, each in one.codes().items()}

    def whenTold(self) -> Deferred[None]:
        """
        The name servers are told at once, if a test does not say otherwise.
        """
        return self.told.pop() if self.told else succeed(None)

    # --- asking ------------------------------------------------------------

    def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        **changes: Any,
    ) -> RemotingCommand:
        """
        Ask for something, and get the answer.
        """
        command = requestCommand(code, header, body)
        command.opaque = 7
        for name, value in changes.items():
            setattr(command, name, value)
        return self.answerTo(command.encode())

    def answerTo(self, frame: bytes) -> RemotingCommand:
        """
        The answer to a request.
        """
        self.peer.dataReceived(frame)
        answer = self.answer()
        assert answer is not None, "no answer"
        return answer

    def answer(self) -> RemotingCommand | None:
        """
        What is answered, if anything, once all that can be done has been done.
        """
        for _ in range(1000):
            if self.wire.value() or not self.clock.getDelayedCalls():
                break
            self.clock.advance(0)
        answers = self.wire.drain()
        assert len(answers) < 2, answers
        return answers[0] if answers else None

    def succeed(self, *args: Any, **changes: Any) -> RemotingCommand:
        """
        Ask for something that is given.
        """
        answer = self.ask(*args, **changes)
        self.assertEqual((ResponseCode.SUCCESS, None), (answer.code, answer.remark))
        return answer

    def refused(self, code: int, *args: Any, **changes: Any) -> str:
        """
        Ask for something that is not given.

        @param code: the response code.
        @return: why.
        """
        answer = self.ask(*args, **changes)
        self.assertEqual(code, answer.code, answer.remark)
        assert answer.remark
        return answer.remark

    # --- the state ---------------------------------------------------------

    def topic(self, name: str = "T", queues: int = 2, order: bool = False) -> None:
        """
        Make a topic.
        """
        self.topics.put(TopicConfig(name, queues, queues, order=order))

    def fill(self, count: int, topic: str = "T", queueId: int = 0, **properties: str) -> None:
        """
        Put messages into a queue, one a second.
        """
        for _ in range(count):
            self.put(self.store, b"x", topic, queueId, 0, **properties)
            self.clock.advance(1)

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """
        Let a group be at offsets in the queues of a topic.
        """
        for queueId, offset in enumerate(offsets):
            self.offsets.commit(group, topic, queueId, offset, "")

    def join(
        self,
        group: str,
        *topics: str,
        clientId: str = "a",
        language: str = "JAVA",
        version: int = 407,
    ) -> Connected:
        """
        A consumer that comes.
        """
        one = Connected(clock=self.clock)
        client = ClientChannelInfo(clientId, one.peer, language, version)
        self.consumers.register(consumer(group, *topics), client, self.now())
        self.clock.advance(0)
        return one
