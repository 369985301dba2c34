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
from tests.remoting.doubles import connected, serving
from tests.store.support import START, StoreCase, atOnce
from txrocket.broker.clients import Consumers
from txrocket.broker.delay import DelayLevels
from txrocket.broker.groups import Groups
from txrocket.broker.longpoll import LongPoll
from txrocket.broker.members import Client
from txrocket.broker.offsets import Offsets
from txrocket.broker.progress import Progress
from txrocket.broker.reached import Reached
from txrocket.broker.removal import Removal
from txrocket.broker.runtime import RuntimeInfo
from txrocket.broker.settings import (
    SECTIONS,
    BrokerSettings,
    DelaySettings,
    GroupSettings,
    TopicSettings,
)
from txrocket.broker.stats import Stats
from txrocket.broker.timers import Timers
from txrocket.broker.topics import Topics
from txrocket.broker.wheel import Wheel
from txrocket.config import Configuration
from txrocket.model import TopicConfig
from txrocket.processors.blacklist import SettingChanges
from txrocket.processors.broker import BrokerProcessor
from txrocket.processors.gradual import cooperator
from txrocket.processors.groups import ConsumerCallProcessor, GroupProcessor
from txrocket.processors.offsets import OffsetProcessor
from txrocket.processors.query import ConsumptionProcessor, QueryProcessor
from txrocket.processors.resets import ResetProcessor
from txrocket.processors.topics import TopicProcessor
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.fields import Header
from txrocket.store.settings import StoreSettings
from txrocket.store.tables import Table

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
        self.topics = Topics(
            self.table("topics.json"), atOnce, (CLUSTER, BROKER), TopicSettings(), self.now
        )
        self.groups = Groups(
            self.table("subscriptionGroup.json"), atOnce, GroupSettings(), self.now
        )
        self.offsets = Offsets(self.table("consumerOffset.json"), atOnce)
        self.delays = DelayLevels(
            self.clock,
            self.store,
            self.table("delayOffset.json"),
            atOnce,
            [1000, 5000],
            lambda topic, count, size: None,
        )
        self.timers = Timers(
            self.clock,
            self.store,
            Wheel(self.store),
            Reached(self.store, self.table("timers.json"), atOnce),
            DelaySettings(),
            lambda topic, count, size: None,
        )
        self.consumers = Consumers(self.clock, lambda group: False)
        self.stats = Stats(CLUSTER, self.now)
        self.longPoll = LongPoll(self.clock, 100)
        self.configuration = self.configure()
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
        return Configuration.read([*SECTIONS, StoreSettings], (), None, given)

    def codes(self) -> dict[int, Any]:
        """
        The processors.
        """
        progress = Progress(
            BROKER, self.store, self.topics, self.offsets, self.consumers, self.stats
        )
        removal = Removal(self.topics, self.groups, self.offsets, self.store, self.stats)
        runtime = RuntimeInfo(
            self.store,
            self.stats,
            self.longPoll,
            self.configuration,
            [self.delays.runtime, self.timers.runtime],
        )
        self.cooperator = cooperator(self.clock)
        processors: tuple[Any, ...] = (
            OffsetProcessor(
                self.offsets, self.delays, self.store, self.topics, self.consumers, self.cooperator
            ),
            ResetProcessor(progress, self.consumers, self.cooperator),
            QueryProcessor(self.store, self.consumers),
            ConsumptionProcessor(progress, self.offsets, self.consumers, self.cooperator, self.now),
            TopicProcessor(self.topics, removal, progress, self.cooperator, self.whenTold),
            GroupProcessor(self.groups, removal, progress, self.cooperator, ADDRESS),
            ConsumerCallProcessor(self.consumers, self.store, BROKER),
            BrokerProcessor(
                self.stats,
                runtime,
                self.configuration,
                SettingChanges(self.configuration, self.BLACK_LIST, self.now),
                {"brokerName": BROKER},
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
        client = Client(clientId, one.peer, language, version)
        self.consumers.register(consumer(group, *topics), client, self.now())
        self.clock.advance(0)
        return one
