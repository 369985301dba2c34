# SPDX-License-Identifier: Apache-2.0
"""
Messages and pulls in any order, on connections that come and go, on a disk that
fills up and empties, against what was promised to clients:

  - A message whose sender was told so is in its queue, once, where it was told.
  - Every request that wants an answer gets one, and only one, while its connection
    is up.
  - A pull is never given anything but what is in its queue, in order, and wakes if
    there is something for it.
"""

from __future__ import annotations

import errno
import shutil
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.processors.support import BROUGHT, SUSPEND, BrokerTests, Client, pullHeader, sendHeader
from tests.store.support import Held
from txrocket.message import Message
from txrocket.model import SubscriptionGroupConfig
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand
from txrocket.protocol.headers import PullMessageRequestHeader
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")
BROKEN = OSError(errno.EIO, "broken")

# Small ones, and such as fill a file of the log.
sizes = st.sampled_from([1, 1, 1, 5, 900, 1800])
queueIds = st.integers(0, 1)
# One that is there, and one that is made by the first message to it.
topics = st.sampled_from(["T", "T", "new"])
tags = st.sampled_from(["a", "b"])


class Asked:
    """
    A request that was sent.

    @ivar bodies: of the messages that it sends.
    """

    def __init__(self, header: Any, bodies: list[bytes], oneway: bool) -> None:
        self.header = header
        self.bodies = bodies
        self.oneway = oneway
        self.answers = 0


class Traffic(BrokerTests):
    """
    A broker's parts, without a test.
    """

    sync = False

    def runTest(self) -> None:
        """
        There is none.
        """

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        if self.sync:
            self.storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}
        super().setUp()
        self.topic()
        saved = self.groups.put(SubscriptionGroupConfig("G"))
        self.work()
        self.successResultOf(saved)

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()
        self.clock.advance(0)


class TrafficMachine(RuleBasedStateMachine):
    """
    What clients and the disk may do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.case = Traffic("runTest")
        self.asked: dict[Client, dict[int, Asked]] = {}
        self.pending: dict[Client, list[RemotingCommand]] = {}
        # Where each message is, of which a sender was told.
        self.promised: dict[tuple[str, int, int], bytes] = {}
        self.count = 0

    @initialize(sync=st.booleans(), together=st.booleans())
    def begin(self, sync: bool, together: bool) -> None:
        """
        Start.
        """
        self.case.sync = sync
        self.case.together = together
        self.case.setUp()
        for _ in range(3):
            self.connect()

    def teardown(self) -> None:
        """
        See that everybody is answered, and leave nothing behind.
        """
        if not self.asked:
            return
        self.case.disk.failing.clear()
        for client in list(self.asked):
            self.flush(client)
        for _ in range(4):
            self.case.clock.advance(0)
            self.case.work()
            self.case.clock.advance(16)
        for client, asked in self.asked.items():
            self.look(client)
            for each in asked.values():
                assert each.answers == (0 if each.oneway else 1), each.header
        case: Any = self.case
        assert len(case.longPoll) == 0
        self.allThere()
        while case._cleanups:
            function, args, kwargs = case._cleanups.pop()
            function(*args, **kwargs)
        shutil.rmtree(case.root, ignore_errors=True)

    def connect(self) -> Client:
        """
        A further client.
        """
        client = self.case.connect()
        self.asked[client] = {}
        self.pending[client] = []
        return client

    def client(self, index: int) -> Client:
        """
        One of those that are connected.
        """
        clients = list(self.asked)
        return clients[index % len(clients)]

    def ask(
        self, index: int, code: int, header: Any, bodies: list[bytes], body: bytes, oneway: bool
    ) -> None:
        """
        Make a request; it is sent with the next C{read}.
        """
        client = self.client(index)
        request = client.request(code, header, body, flag=ONEWAY_FLAG if oneway else 0)
        self.asked[client][request.opaque] = Asked(header, bodies, oneway)
        self.pending[client].append(request)

    def body(self, size: int) -> bytes:
        """
        A body like no other.
        """
        self.count += 1
        return b"%06d" % self.count + b"x" * size

    @rule(
        index=st.integers(0, 5),
        topic=topics,
        queueId=queueIds,
        size=sizes,
        tag=tags,
        wait=st.booleans(),
        oneway=st.sampled_from([False, False, True]),
    )
    def message(
        self, index: int, topic: str, queueId: int, size: int, tag: str, wait: bool, oneway: bool
    ) -> None:
        """
        Send a message.
        """
        properties = f"TAGS\x01{tag}\x02WAIT\x01{'true' if wait else 'false'}"
        body = self.body(size)
        header = sendHeader(topic, queueId=queueId, properties=properties)
        self.ask(index, RequestCode.SEND_MESSAGE_V2, header, [body], body, oneway)

    @rule(index=st.integers(0, 5), queueId=queueIds, size=sizes, count=st.integers(1, 4))
    def batch(self, index: int, queueId: int, size: int, count: int) -> None:
        """
        Send a batch.
        """
        bodies = [self.body(size // count) for _ in range(count)]
        batch = encodeBatch([Message("T", each, "a") for each in bodies])
        header = sendHeader(queueId=queueId)
        self.ask(index, RequestCode.SEND_BATCH_MESSAGE, header, bodies, batch, False)

    @rule(
        index=st.integers(0, 5),
        topic=topics,
        queueId=queueIds,
        back=st.integers(-1, 4),
        subscription=st.sampled_from(["*", "a", "b"]),
        hold=st.booleans(),
    )
    def pull(
        self, index: int, topic: str, queueId: int, back: int, subscription: str, hold: bool
    ) -> None:
        """
        Pull near the end of a queue.
        """
        offset = max(0, self.case.store.maxOffset(topic, queueId) - back)
        header = pullHeader(
            topic,
            queueId=queueId,
            queueOffset=offset,
            subscription=subscription,
            sysFlag=BROUGHT | (SUSPEND if hold else 0),
        )
        self.ask(index, RequestCode.PULL_MESSAGE, header, [], b"", False)

    @rule(index=st.integers(0, 5))
    def read(self, index: int) -> None:
        """
        The broker reads all that a client has sent.
        """
        self.flush(self.client(index))

    def flush(self, client: Client) -> None:
        pending, self.pending[client] = self.pending[client], []
        if pending:
            client.write(*pending)

    @rule(index=st.integers(0, 5))
    def lose(self, index: int) -> None:
        """
        A connection ends, and another begins.
        """
        client = self.client(index)
        self.look(client)
        client.lose()
        del self.asked[client], self.pending[client]
        self.connect()

    @rule(seconds=st.sampled_from([0, 0, 0, 0.5, 6, 16]))
    def turn(self, seconds: float) -> None:
        """
        Time passes.
        """
        self.case.clock.advance(seconds)

    @precondition(lambda self: self.case.held.jobs)
    @rule()
    def work(self) -> None:
        """
        A thread is done.
        """
        self.case.held.work()

    @rule(
        operation=st.sampled_from(["pwrite", "allocate"]),
        where=st.sampled_from(["commitlog", "commitlog", "consumequeue"]),
    )
    def fill(self, operation: str, where: str) -> None:
        """
        The disk is full, for the log or for the queues.
        """
        self.case.disk.failing = {operation: FULL}
        self.case.disk.only = where

    @precondition(lambda self: self.count > 5)
    @rule(operation=st.sampled_from(["pwrite", "allocate", "sync"]))
    def broken(self, operation: str) -> None:
        """
        The disk of the log fails; after that nothing is taken.
        """
        self.case.disk.failing = {operation: BROKEN}
        self.case.disk.only = "commitlog"

    @rule()
    def empty(self) -> None:
        """
        It has room again.
        """
        self.case.disk.failing.clear()

    @invariant()
    def answered(self) -> None:
        """
        Whatever is said is true.
        """
        for client in list(self.asked):
            self.look(client)

    def look(self, client: Client) -> None:
        for answer in client.answers():
            asked = self.asked[client][answer.opaque]
            asked.answers += 1
            assert asked.answers == 1 and not asked.oneway, "answered twice, or unasked"
            if isinstance(asked.header, PullMessageRequestHeader):
                self.lookAtPull(asked.header, answer)
            else:
                self.lookAtSend(asked, answer)

    def lookAtSend(self, asked: Asked, answer: RemotingCommand) -> None:
        """
        Remember what was promised; or it was said that there is no room.
        """
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
            queueId = int(answer.extFields["queueId"])
            first = int(answer.extFields["queueOffset"])
            assert len(answer.extFields["msgId"].split(",")) == len(asked.bodies)
            for at, body in enumerate(asked.bodies):
                place = asked.header.topic, queueId, first + at
                assert place not in self.promised, "one place for two messages"
                self.promised[place] = body
        else:
            assert answer.code in (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                ResponseCode.SYSTEM_BUSY,
            ), (answer.code, answer.remark)

    def lookAtPull(self, header: PullMessageRequestHeader, answer: RemotingCommand) -> None:
        """
        What a pull is given is what is promised, or at least not something else.
        """
        offset = header.queueOffset
        for record in decodeRecords(answer.body, checkCrc=True):
            assert (record.topic, record.queueId) == (header.topic, header.queueId)
            assert record.queueOffset >= offset, "not in order"
            assert header.subscription in ("*", record.tags)
            place = record.topic, record.queueId, record.queueOffset
            assert self.promised.get(place, record.body) == record.body, (
                "another message than was promised"
            )
            offset = record.queueOffset + 1
        if answer.code == ResponseCode.SUCCESS:
            assert offset <= int(answer.extFields["nextBeginOffset"])

    def allThere(self) -> None:
        """
        All that was promised is there, and nothing is there twice.
        """
        # The queues are put right if they fell behind the log.
        self.case.clock.pump([1.0] * 3)
        self.case.work()
        found: dict[tuple[str, int], list[bytes]] = {}
        for topic, queueId, _ in self.promised:
            found[topic, queueId] = self.case.bodies(topic, queueId)
        for bodies in found.values():
            assert len(bodies) == len(set(bodies)), "a message is there twice"
        for (topic, queueId, offset), body in self.promised.items():
            assert found[topic, queueId][offset:][:1] == [body], "what was acknowledged is lost"


class ModelTests(SynchronousTestCase):
    """
    Traffic against promises.
    """

    def test_model(self) -> None:
        """
        Whatever clients and the disk do, promises are kept.
        """
        run_state_machine_as_test(
            TrafficMachine,
            settings=settings(
                max_examples=150,
                stateful_step_count=40,
                suppress_health_check=list(HealthCheck),
                deadline=None,
            ),
        )
