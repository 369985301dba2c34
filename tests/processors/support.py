# SPDX-License-Identifier: Apache-2.0
"""
A broker's rules, store and processors behind connections in memory, on a L{Clock},
on a disk that fails when it is told to: what the tests of sending and pulling have
in common.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone

from tests.processors.parts import environmentOf, identityOf, partsAround, settingsOf
from tests.remoting.doubles import RemotingTests, Wire, lose
from tests.store.support import (
    HOST,
    INDEX_ENTRIES,
    LOG_SIZE,
    QUEUE_ENTRIES,
    SLOTS,
    START,
    Disk,
    abandon,
    atOnce,
)
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.interfaces import ISendHook
from txrocket.broker.parts import Core
from txrocket.broker.pull.longpoll import LongPoll
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.role import BrokerRoleState, Role
from txrocket.broker.settings import BrokerSettings, PullSettings, SendSettings
from txrocket.config.live import Live
from txrocket.filters.expressions import ExpressionTypes
from txrocket.message import MessageExt
from txrocket.model import TopicConfig
from txrocket.processors.cooperate import cooperator
from txrocket.processors.messages.pull import PullProcessor
from txrocket.processors.messages.pull.pullchecks import PullChecks
from txrocket.processors.messages.pull.pulltogether import PullTogether
from txrocket.processors.messages.reply import ReplyProcessor
from txrocket.processors.messages.send import SendProcessor
from txrocket.processors.messages.send.reroute import SendReroute
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.processors.messages.send.sendhooks import SendHooks
from txrocket.processors.messages.send.sendresponse import SendResponses
from txrocket.processors.messages.send.sendtogether import SendTogether
from txrocket.processors.messages.sendback import SendBackProcessor
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import BulkFunctionProcessor, FunctionProcessor, Remoting
from txrocket.remoting.turn import Call, ProcessAll
from txrocket.services.core import flushingTurn
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings

# Where the tests' clients are.
CLIENT = IPv4Address("TCP", "192.0.2.7", 50001)

CLUSTER = "DefaultCluster"

# Bits of a pull's sysFlag.
COMMIT, SUSPEND, BROUGHT = 1, 2, 4


class Counted:
    """
    Statistics that remember what was counted.
    """

    def __init__(self) -> None:
        self.puts: list[tuple[str, int, int]] = []
        self.gots: list[tuple[str, str, int, int]] = []
        self.backs: list[tuple[str, str]] = []
        self.misses = self.failures = 0

    def missed(self) -> None:
        self.misses += 1

    def failed(self) -> None:
        self.failures += 1

    def put(self, *counted: Any) -> None:
        self.puts.append(counted)

    def got(self, *counted: Any) -> None:
        self.gots.append(counted)

    def sentBack(self, *counted: Any) -> None:
        self.backs.append(counted)


class Client:
    """
    A client of the broker, connected in memory.

    @ivar peer: the broker's end.
    @ivar wire: what the broker writes on.
    """

    def __init__(self, remoting: Remoting, address: IPv4Address) -> None:
        self.peer = RemotingProtocol(remoting, accepted=True)
        self.wire = Wire()
        self.wire.peerAddr = address
        self.peer.makeConnection(self.wire)
        self._opaque = 0

    def request(
        self, code: int, header: Header | None, body: bytes = b"", **changes: Any
    ) -> RemotingCommand:
        """
        A request with a number of its own.
        """
        self._opaque += 1
        request = requestCommand(code, header, body)
        request.opaque = self._opaque
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def write(self, *requests: RemotingCommand) -> None:
        """
        Send requests, all in what the broker reads at once.
        """
        self.peer.dataReceived(b"".join(each.encode() for each in requests))

    def answers(self) -> list[RemotingCommand]:
        """
        What the broker has written since it was last asked.
        """
        return self.wire.drain()

    def lose(self) -> None:
        """
        The connection ends.
        """
        lose(self.peer, ConnectionDone())


def sendHeader(topic: str = "T", **changes: Any) -> SendMessageRequestHeaderV2:
    """
    The header of a message.
    """
    header = SendMessageRequestHeaderV2(
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1_600_000_000_000,
        flag=0,
    )
    for name, value in changes.items():
        setattr(header, name, value)
    return header


def longHeader(header: SendMessageRequestHeaderV2) -> SendMessageRequestHeader:
    """
    The same header in the form of SEND_MESSAGE.
    """
    names = SendMessageRequestHeader.__struct_fields__
    return SendMessageRequestHeader(**{each: getattr(header, each) for each in names})


def pullHeader(topic: str = "T", **changes: Any) -> PullMessageRequestHeader:
    """
    The header of a pull that brings its subscription, to everything, along.
    """
    header = PullMessageRequestHeader(
        consumerGroup="G",
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=BROUGHT,
        commitOffset=0,
        suspendTimeoutMillis=15000,
        subVersion=0,
        subscription="*",
        expressionType="TAG",
    )
    for name, value in changes.items():
        setattr(header, name, value)
    return header


class BrokerTests(RemotingTests):
    """
    The base: a broker's parts, and C{self.client} connected to them.
    """

    inThread: Callable[[Callable[[], None]], Deferred[None]] = staticmethod(atOnce)
    hooks: Sequence[ISendHook] = ()
    storeOptions: dict[str, Any] = {}
    settings = BrokerSettings()
    liveSettings: dict[str, str] = {"pullThreadPoolQueueCapacity": "100"}
    # Whether requests of one code that come together are served together.
    together = True

    def setUp(self) -> None:
        super().setUp()
        # How often requests were served together.
        self.taken = 0
        self.clock.advance(START)
        # By how much the store's time of day is set ahead, in seconds.
        self.shift = 0.0
        self.root = self.mktemp()
        self.disk = Disk()
        self.stats = Counted()
        self.chosen: list[int] = []
        self.build()

    def build(self) -> None:
        """
        Make the broker's parts, of what is in its folder.
        """
        self.configuration = settingsOf(self.root, **self.liveSettings)
        self.remoting = Remoting(self.clock)
        self.longPoll = LongPoll(self.clock, self.configuration.live(PullSettings))
        self.store = self.makeStore(partial(flushingTurn, self.remoting, self.inThread))
        self.store.start()
        self.addCleanup(abandon, self.store)
        self.expressions = ExpressionTypes()
        stats: Any = self.stats
        identity = identityOf("b", CLUSTER)
        self.role = BrokerRoleState(Role.MASTER)
        self.durability = self.makeDurability()
        core = Core(identity, HOST, self.remoting, self.store, self.longPoll, stats, self.role)
        environment = environmentOf(self.clock, self.inThread, self.disk, self.choose)
        slices = cooperator(self.clock)
        self.parts = partsAround(core, environment, self.configuration, slices, self.expressions)
        self.topics, self.groups = self.parts.tables.topics, self.parts.tables.groups
        self.offsets = self.parts.tables.offsets
        self.consumers, self.producers = self.parts.clients.consumers, self.parts.clients.producers
        self.subscriptions = self.parts.clients.subscriptions
        self.delays, self.timers = self.parts.delivery.delayLevels, self.parts.delivery.timers
        self.retries = self.parts.delivery.retries
        self.transactions = self.parts.delivery.halfMessages
        self.brokerSettings = Live(self.settings)
        self.sendSettings = Live(SendSettings())
        self.pullSettings = Live(PullSettings())
        self.sendChecks = SendChecks(
            self.durability,
            self.role,
            self.topics,
            self.brokerSettings,
            self.sendSettings,
            self.now,
        )
        self.responses = SendResponses(HOST, self.brokerSettings)
        self.send = self.makeSend()
        self.sendBack = self.makeSendBack()
        self.reply = self.makeReply()
        self.pull = self.makePull()
        codes = self.send.codes() | self.sendBack.codes() | self.pull.codes()
        codes |= self.reply.codes()
        for code, function in codes.items():
            self.remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
        if self.together:
            many = self.send.codesOfMany() | self.pull.codesOfMany()
            for code, processAll in many.items():
                processor = BulkFunctionProcessor(codes[code], partial(self._count, processAll))
                self.remoting.registerProcessor(code, processor, InlineExecutor())
        self.client = self.connect()

    def _count(self, processAll: ProcessAll, calls: list[Call], starts: list[int]) -> None:
        processAll(calls, starts)
        self.taken += starts != [call.start for call in calls]

    def turns(self) -> None:
        """
        Let the turn end, and what it has begun.
        """
        self.remoting.turn.end()
        self.clock.advance(0)
        self.remoting.turn.end()

    def change(self, **changes: str) -> None:
        """
        Change settings while the broker runs.
        """
        self.configuration.update(changes, 0)

    def table(self, name: str) -> Table:
        """
        A table of the broker's.
        """
        return Table(self.disk, os.path.join(self.root, "config", name))

    def makeStore(self, inThread: Callable[[Callable[[], None]], Deferred[None]]) -> MessageStore:
        """
        A store of small files.
        """
        sizes: dict[str, Any] = {
            "mappedFileSizeCommitLog": LOG_SIZE,
            "mappedFileSizeConsumeQueue": QUEUE_ENTRIES * 20,
            "maxHashSlotNum": SLOTS,
            "maxIndexNum": INDEX_ENTRIES,
        }
        settings = StoreSettings(self.root, **sizes | self.storeOptions)
        return MessageStore(
            settings,
            self.clock,
            inThread,
            HOST,
            self.longPoll.arrived,
            self.disk,
            awaited=self.longPoll.awaited,
            wall=lambda: self.clock.seconds() + self.shift,
            writeSoon=self.remoting.turn.wake,
        )

    def makeSend(self) -> SendProcessor:
        """
        The processor of sends.
        """
        stats: Any = self.stats
        return SendProcessor(
            SendTogether(self.store, self.sendChecks, self.responses, stats, self.remoting.turn),
            SendReroute(
                self.parts.delivery.reroutes, self.transactions, self.retries, self.sendChecks
            ),
            SendHooks(self.hooks, self.sendChecks),
            choose=self.choose,
        )

    def makeSendBack(self) -> SendBackProcessor:
        """
        What takes messages back.
        """
        stats: Any = self.stats
        reroutes = Reroutes(self.delays.reroute)
        return SendBackProcessor(
            self.store, self.retries, reroutes, stats, self.sendChecks, self.choose
        )

    def makeDurability(self) -> Durability:
        """
        What tells when a message is stored.
        """
        return Durability(self.store)

    def makeReply(self) -> ReplyProcessor:
        """
        What brings replies.
        """
        return ReplyProcessor(
            self.parts.core,
            self.producers,
            self.sendChecks,
            self.responses,
            SendHooks(self.hooks, self.sendChecks),
            choose=self.choose,
        )

    def makePull(self) -> PullProcessor:
        """
        What gives messages.
        """
        checks = PullChecks(
            self.topics, self.subscriptions, self.brokerSettings, self.pullSettings, self.role
        )
        self.pullTogether = PullTogether(self.parts.core, checks, self.offsets)
        return PullProcessor(self.pullTogether, self.now)

    def now(self) -> int:
        """
        The time in milliseconds.
        """
        return int(self.clock.seconds() * 1000)

    def choose(self, below: int) -> int:
        """
        A number below another, always the last.
        """
        self.chosen.append(below)
        return below - 1

    def connect(self, address: IPv4Address = CLIENT) -> Client:
        """
        A further client.
        """
        return Client(self.remoting, address)

    def topic(self, name: str = "T", queues: int = 4, **options: Any) -> None:
        """
        Have a topic.
        """
        saved = self.topics.put(TopicConfig(name, queues, queues, **options))
        self.work()
        self.clock.advance(0)
        self.successResultOf(saved)

    def work(self) -> None:
        """
        Let threads do all that they were asked for, where a test holds them.
        """

    def answerTo(self, request: RemotingCommand, client: Client | None = None) -> RemotingCommand:
        """
        The one answer to a request, given at the end of the turn that it came in.
        """
        client = client or self.client
        client.write(request)
        self.clock.advance(0)
        [answer] = client.answers()
        self.assertEqual(answer.opaque, request.opaque)
        return answer

    def message(
        self, header: SendMessageRequestHeaderV2 | None = None, body: bytes = b"x", **changes: Any
    ) -> RemotingCommand:
        """
        A request to take a message.
        """
        header = header or sendHeader()
        return self.client.request(RequestCode.SEND_MESSAGE_V2, header, body, **changes)

    def oneway(
        self, header: SendMessageRequestHeaderV2 | None = None, body: bytes = b"x"
    ) -> RemotingCommand:
        """
        The same, and no answer is wanted.
        """
        return self.message(header, body, flag=ONEWAY_FLAG)

    def sent(self, body: bytes = b"x", **changes: Any) -> RemotingCommand:
        """
        The answer to a message.
        """
        return self.answerTo(self.message(sendHeader(**changes), body))

    def pulled(self, client: Client | None = None, **changes: Any) -> RemotingCommand:
        """
        The answer to a pull.
        """
        request = self.client.request(RequestCode.PULL_MESSAGE, pullHeader(**changes))
        return self.answerTo(request, client)

    def stored(self, topic: str = "T", queueId: int = 0) -> list[MessageExt]:
        """
        All messages of a queue.
        """
        found: list[MessageExt] = []
        offset = self.store.minOffset(topic, queueId)
        while offset < self.store.maxOffset(topic, queueId):
            got = self.store.get(topic, queueId, offset, 32)
            found += decodeRecords(got.data, checkCrc=True)
            offset = got.nextOffset
        return found

    def bodies(self, topic: str = "T", queueId: int = 0) -> list[bytes]:
        """
        The bodies of all messages of a queue.
        """
        return [each.body for each in self.stored(topic, queueId)]


def binary(request: RemotingCommand) -> RemotingCommand:
    """
    The same request with a binary header.
    """
    request.serializeType = int(SerializeType.ROCKETMQ)
    return request
