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
from txrocket.broker.clients import Consumers, Producers
from txrocket.broker.delay import DelayLevels
from txrocket.broker.detours import Detours
from txrocket.broker.groups import Groups
from txrocket.broker.interfaces import ISendHook
from txrocket.broker.longpoll import LongPoll
from txrocket.broker.offsets import Offsets
from txrocket.broker.reached import Reached
from txrocket.broker.retries import Retries
from txrocket.broker.settings import (
    BrokerSettings,
    DelaySettings,
    GroupSettings,
    PullSettings,
    SendSettings,
    TopicSettings,
)
from txrocket.broker.subscriptions import Subscriptions
from txrocket.broker.timers import Timers
from txrocket.broker.topics import Topics
from txrocket.broker.transactions import Transactions
from txrocket.broker.wheel import Wheel
from txrocket.compiled import speed
from txrocket.filters.expressions import ExpressionTypes
from txrocket.message import MessageExt
from txrocket.model import TopicConfig
from txrocket.processors.admission import Admission
from txrocket.processors.express import Way, inTurn
from txrocket.processors.pull import PullProcessor
from txrocket.processors.reply import ReplyProcessor
from txrocket.processors.send import SendProcessor
from txrocket.processors.sendanswers import SendAnswers
from txrocket.processors.sendback import SendBackProcessor
from txrocket.processors.sendhooks import SendHooks
from txrocket.processors.ways import Ways
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand, requestCommand
from txrocket.protocol.fields import Header
from txrocket.protocol.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.node import FunctionProcessor, Remoting
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.services import _gathering
from txrocket.store.messages import MessageStore
from txrocket.store.settings import StoreSettings, delayLevels
from txrocket.store.tables import Table

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
    # Whether answers wait for the end of the turn that they are given in.
    gathers = True

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(START)
        # By how much somebody has set the store's time of day, in seconds.
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
        self.remoting = Remoting(self.clock)
        self.topics = Topics(
            self.table("topics.json"), self.inThread, (CLUSTER, "b"), TopicSettings(), self.now
        )
        self.groups = Groups(
            self.table("subscriptionGroup.json"), self.inThread, GroupSettings(), self.now
        )
        self.offsets = Offsets(self.table("consumerOffset.json"), self.inThread)
        self.longPoll = LongPoll(self.clock, 100)
        self.store = self.makeStore(partial(_gathering, self.remoting, self.inThread))
        self.store.start()
        self.addCleanup(abandon, self.store)
        self.consumers = Consumers(self.clock, lambda group: True)
        self.expressions = ExpressionTypes()
        self.subscriptions = Subscriptions(
            self.groups, self.consumers, self.expressions, PullSettings()
        )
        self.delays = DelayLevels(
            self.clock,
            self.store,
            self.table("delayOffset.json"),
            atOnce,
            delayLevels(self.store.settings.messageDelayLevel),
            self.stats.put,
        )
        self.retries = Retries(self.topics, self.groups)
        self.admission = Admission(self.store, self.topics, self.settings, SendSettings(), self.now)
        self.answers = SendAnswers(HOST, self.settings)
        self.transactions = Transactions(self.store, self.topics, HOST, self.now)
        self.timers = Timers(
            self.clock,
            self.store,
            Wheel(self.store),
            Reached(self.store, self.table("timers.json"), atOnce),
            DelaySettings(),
            self.stats.put,
        )
        self.send = self.makeSend()
        self.sendBack = self.makeSendBack()
        self.producers = Producers()
        self.reply = self.makeReply()
        self.pull = self.makePull()
        self.remoting.settle = self.send.settle
        codes = self.send.codes() | self.sendBack.codes() | self.pull.codes()
        codes |= self.reply.codes()
        for code, function in codes.items():
            self.remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
        self.client = self.connect()

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
        )

    def makeSend(self) -> SendProcessor:
        """
        What takes messages.
        """
        stats: Any = self.stats
        return SendProcessor(
            self.store,
            Ways(
                Detours(self.delays.detour, self.timers.detour),
                self.transactions,
                self.retries,
                self.admission,
            ),
            stats,
            self.admission,
            self.answers,
            SendHooks(self.hooks, self.admission),
            choose=self.choose,
            gather=self.remoting.gatherTurn if self.gathers else lambda: None,
        )

    def makeSendBack(self) -> SendBackProcessor:
        """
        What takes messages back.
        """
        stats: Any = self.stats
        detours = Detours(self.delays.detour)
        return SendBackProcessor(
            self.store, self.retries, detours, stats, self.admission, self.choose
        )

    def makeReply(self) -> ReplyProcessor:
        """
        What brings replies.
        """
        stats: Any = self.stats
        return ReplyProcessor(
            self.store,
            self.producers,
            stats,
            self.admission,
            self.answers,
            SendHooks(self.hooks, self.admission),
            storeHost=HOST,
            now=self.now,
            choose=self.choose,
        )

    def makePull(self) -> PullProcessor:
        """
        What gives messages.
        """
        stats: Any = self.stats
        return PullProcessor(
            self.store,
            self.topics,
            self.subscriptions,
            self.offsets,
            self.longPoll,
            stats,
            self.settings,
            PullSettings(),
            brokerName="b",
            storeHost=HOST,
            now=self.now,
        )

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


class TogetherTests(BrokerTests):
    """
    The base: a broker that deals with what it can many at a time.

    @ivar express: whether it does.
    @ivar ways: what can.
    @ivar taken: how often something was dealt with so.
    """

    if speed is None:
        skip = "the compiled helper was not built"

    express = True
    ways: Sequence[Way] = ()

    def setUp(self) -> None:
        super().setUp()
        self.taken = 0
        if self.express:
            self.remoting.express = self._count

    def _count(self, peer: RemotingProtocol, data: bytes, start: int) -> int:
        end = inTurn(self.ways, peer, data, start)
        self.taken += end > start
        return end
