# SPDX-License-Identifier: Apache-2.0
"""
A broker in memory with queues that can be pulled, for the tests of consumers, and
what these tests begin with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.client.network import FakeBroker, FakeNameServer, Network, routeTo
from tests.remoting.doubles import RemotingTests
from txrocket.client.cluster import Cluster
from txrocket.errors import QueryNotFound, RemoteSystemError
from txrocket.filters.tags import tagSubscription
from txrocket.message import PROPERTY_TAGS
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.record import encodeHost, encodeProperties, encodeRecord, encodeTopic

NS, A, A1, B = "192.0.2.10:9876", "192.0.2.11:10911", "192.0.2.12:10911", "192.0.2.13:10911"

SUSPEND = 2


class QueueBroker(FakeBroker):
    """
    A broker whose queues have messages.

    @ivar records: the records of each topic and queue id.
    @ivar low: the offset of a queue's first record, where it is not 0.
    @ivar pulls: the pulls that it was sent.
    @ivar offsets: by group, topic and queue id.
    @ivar updates: the offsets that it was told, in their order.
    @ivar ids: the members of all groups; none is known to it if L{None}.
    @ivar locked: the queues of others, which it does not lock.
    @ivar unlocked: what it was asked to unlock.
    @ivar backs: what was sent back.
    @ivar checks: the subscriptions that it was to try.
    @ivar suggested: the broker id that it suggests.
    @ivar failing: what it raises for a code.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.records: dict[tuple[str, int], list[tuple[str, bytes]]] = {}
        self.low: dict[tuple[str, int], int] = {}
        self.pulls: list[PullMessageRequestHeader] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.updates: list[tuple[int, int]] = []
        self.ids: tuple[str, ...] | None = ("me",)
        self.asked: list[str] = []
        self.locked: set[MessageQueue] = set()
        self.unlocked: list[UnlockBatchRequestBody] = []
        self.backs: list[ConsumerSendMsgBackRequestHeader] = []
        self.checks: list[CheckClientRequestBody] = []
        self.suggested = 0
        self.failing: dict[int, Exception] = {}
        self._held: list[Callable[[], None]] = []

    def functions(self) -> dict[int, Callable[[RemotingCommand], RemotingCommand]]:
        code = RequestCode
        own: dict[int, Callable[[RemotingCommand], Any]] = {
            code.PULL_MESSAGE: self._pull,
            code.QUERY_CONSUMER_OFFSET: self._queryOffset,
            code.UPDATE_CONSUMER_OFFSET: self.updateOffset,
            code.GET_MIN_OFFSET: self._minOffset,
            code.GET_MAX_OFFSET: self._maxOffset,
            code.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            code.GET_EARLIEST_MSG_STORETIME: self._earliest,
            code.GET_CONSUMER_LIST_BY_GROUP: self._ids,
            code.LOCK_BATCH_MQ: self.lockQueues,
            code.UNLOCK_BATCH_MQ: self._unlock,
            code.CONSUMER_SEND_MSG_BACK: self._back,
            code.CHECK_CLIENT_CONFIG: self._check,
        }
        return {
            **super().functions(),
            **{number: self._unless(number, function) for number, function in own.items()},
        }

    def _unless(
        self, code: int, function: Callable[[RemotingCommand], Any]
    ) -> Callable[[RemotingCommand], Any]:
        def answer(request: RemotingCommand) -> Any:
            if code in self.failing:
                raise self.failing[code]
            return self.answers.get(code, function)(request)

        return answer

    # --- what it holds ---------------------------------------------------

    def put(
        self,
        *bodies: bytes,
        topic: str = "T",
        queueId: int = 0,
        tags: str = "",
        sysFlag: int = 0,
    ) -> None:
        """
        Messages come.
        """
        records = self.records.setdefault((topic, queueId), [])
        host = encodeHost("192.0.2.11", 10911)
        for body in bodies:
            record = encodeRecord(
                encodeTopic(topic),
                body,
                encodeProperties({PROPERTY_TAGS: tags} if tags else {}),
                queueId,
                0,
                self.high(topic, queueId),
                1000 + len(records),
                sysFlag,
                1,
                host,
                self._milliseconds(),
                host,
            )
            records.append((tags, record))
        held, self._held = self._held, []
        for release in held:
            release()

    def cut(self, low: int, topic: str = "T", queueId: int = 0) -> None:
        """
        The records before an offset are gone.
        """
        records = self.records[topic, queueId]
        del records[: low - self.low.get((topic, queueId), 0)]
        self.low[topic, queueId] = low

    def high(self, topic: str, queueId: int) -> int:
        """
        The offset of the next message.
        """
        key = topic, queueId
        return self.low.get(key, 0) + len(self.records.get(key, ()))

    def _milliseconds(self) -> int:
        return int(self._clock.seconds() * 1000)

    # --- pulls -----------------------------------------------------------

    def _pull(self, request: RemotingCommand) -> Any:
        header = request.decodeHeader(PullMessageRequestHeader)
        self.pulls.append(header)
        return self._pulled(header, mayHold=bool(header.sysFlag & SUSPEND))

    def _pulled(self, header: PullMessageRequestHeader, *, mayHold: bool) -> Any:
        key = header.topic, header.queueId
        low, high = self.low.get(key, 0), self.high(*key)
        at = header.queueOffset
        if not low <= at <= high:
            given = low if at < low else high
            return self.answerPull(ResponseCode.PULL_OFFSET_MOVED, given, low, high)
        if at == high and mayHold:
            return self._hold(header)
        if at == high:
            return self.answerPull(ResponseCode.PULL_NOT_FOUND, at, low, high)
        wanted = tagSubscription("T", header.subscription).codeSet
        found = [
            record
            for tags, record in self.records[key][at - low : at - low + header.maxMsgNums]
            if not wanted or tagSubscription("T", tags).codeSet & wanted
        ]
        following = min(high, at + header.maxMsgNums)
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self.answerPull(code, following, low, high, b"".join(found))

    def _hold(self, header: PullMessageRequestHeader) -> Deferred[RemotingCommand]:
        held: Deferred[RemotingCommand] = Deferred(lambda held: release())

        def release() -> None:
            if late.active():
                late.cancel()
            if not held.called:
                held.callback(self._pulled(header, mayHold=False))

        late = self._clock.callLater(header.suspendTimeoutMillis / 1000, release)
        self._held.append(release)
        return held

    def answerPull(
        self, code: int, following: int, low: int, high: int, body: bytes = b""
    ) -> RemotingCommand:
        header = PullMessageResponseHeader(self.suggested, following, low, high)
        return responseCommand(code, None, header, body)

    # --- offsets ---------------------------------------------------------

    def _queryOffset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(QueryConsumerOffsetRequestHeader)
        key = header.consumerGroup, header.topic, header.queueId
        if key not in self.offsets:
            raise QueryNotFound("no offset")
        return responseCommand(header=QueryConsumerOffsetResponseHeader(self.offsets[key]))

    def updateOffset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(UpdateConsumerOffsetRequestHeader)
        self.offsets[header.consumerGroup, header.topic, header.queueId] = header.commitOffset
        self.updates.append((header.queueId, header.commitOffset))
        return responseCommand()

    def _minOffset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(GetMinOffsetRequestHeader)
        return responseCommand(
            header=GetMinOffsetResponseHeader(self.low.get((header.topic, header.queueId), 0))
        )

    def _maxOffset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(GetMaxOffsetRequestHeader)
        return responseCommand(
            header=GetMaxOffsetResponseHeader(self.high(header.topic, header.queueId))
        )

    def _search(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(SearchOffsetRequestHeader)
        # Each message is taken to be a second older than the next.
        return responseCommand(header=SearchOffsetResponseHeader(header.timestamp // 1000))

    def _earliest(self, request: RemotingCommand) -> RemotingCommand:
        header = request.decodeHeader(GetEarliestMsgStoretimeRequestHeader)
        stored = 1500 if self.records.get((header.topic, header.queueId)) else -1
        return responseCommand(header=GetEarliestMsgStoretimeResponseHeader(stored))

    # --- the group -------------------------------------------------------

    def _check(self, request: RemotingCommand) -> RemotingCommand:
        self.checks.append(decodeBody(CheckClientRequestBody, request.body))
        return responseCommand()

    def _ids(self, request: RemotingCommand) -> RemotingCommand:
        group = request.decodeHeader(GetConsumerListByGroupRequestHeader).consumerGroup
        self.asked.append(group)
        if self.ids is None:
            raise RemoteSystemError(f"no consumer of {group}")
        return responseCommand(body=encodeBody(GetConsumerListByGroupResponseBody(self.ids)))

    def lockQueues(self, request: RemotingCommand) -> RemotingCommand:
        wanted = decodeBody(LockBatchRequestBody, request.body)
        assert wanted.clientId == "me", wanted
        return responseCommand(body=encodeBody(LockBatchResponseBody(wanted.mqSet - self.locked)))

    def _unlock(self, request: RemotingCommand) -> RemotingCommand:
        self.unlocked.append(decodeBody(UnlockBatchRequestBody, request.body))
        return responseCommand()

    def _back(self, request: RemotingCommand) -> RemotingCommand:
        self.backs.append(request.decodeHeader(ConsumerSendMsgBackRequestHeader))
        return responseCommand()


class ConsumerTests(RemotingTests):
    """
    A client, a name server, a broker with four queues of T, a slave that comes if it
    is wanted, and another broker.
    """

    def setUp(self) -> None:
        super().setUp()
        # Times of day are far from 0 outside of tests, too.
        self.clock.advance(1000)
        self.network = Network(self.clock)
        self.ns = FakeNameServer()
        self.a, self.a1, self.b = (QueueBroker(self.clock) for _ in range(3))
        self.network.listeners = {NS: self.ns, A: self.a, A1: self.a1, B: self.b}
        self.ns.routes["T"] = routeTo(a={0: A})
        self.cluster = Cluster(
            NS,
            self.clock,
            clientId="me",
            connect=self.network.endpoint,
            choose=lambda below: 0,
        )
        self.queues = [MessageQueue("T", "a", queueId) for queueId in range(4)]
        self.queue = self.queues[0]

    def got(self, deferred: Deferred[Any]) -> Any:
        """
        The result of what needs nothing but the network.
        """
        self.network.flush()
        return self.successResultOf(deferred)

    def failed(self, deferred: Deferred[Any], *errors: type[Exception]) -> str:
        """
        The text of the error of what fails by nothing but the network.
        """
        self.network.flush()
        return str(self.failureResultOf(deferred, *errors).value)
