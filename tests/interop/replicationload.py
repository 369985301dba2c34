# SPDX-License-Identifier: Apache-2.0
"""
Messages for a master that may be killed meanwhile: single ones, batches, late ones and
transactions, each sent again until the master has answered::

    the master answers        what the load knows
    SEND_OK, 10, 11, 12       the message is at this offset of this queue
    anything else, nothing    it may be anywhere, and is sent again

Requests are made here instead of by a producer, because a producer would wait for a new
route when its broker is gone.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs
from twisted.internet.defer import Deferred, gatherResults

from tests.interop.cells import sleep
from tests.interop.replicationpair import Broker
from tests.live.servers import reactor
from txrocket.errors import RocketError, responseError
from txrocket.message import Message, MessageExt
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import decodeRecords, encodeProperties
from txrocket.protocol.record.batch import encodeBatch

__all__ = ["GROUP", "QUEUES", "TOPICS", "Content", "Load", "maxOffsets", "readAll", "sendOne"]

QUEUES = 4
TOPICS = ("Plain", "Batches", "Late", "Transactions")
GROUP = "pair-group"

# Of every twenty messages, twelve go singly, six in batches, one is late and one is sent
# in a transaction.
_SHARES = {"Plain": 12, "Batches": 6, "Late": 1, "Transactions": 1}
_BATCH = 30

# How many requests are in flight.
_WIDTH = 64

# The seconds until a message must have been taken: a master starts again meanwhile.
_PATIENCE = 120.0

# The sysFlags of a half message, and of what became of it.
_PREPARED, _COMMIT, _ROLLBACK = 4, 8, 12

# The stored message is located by answers of these codes.
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)

# Topic and queue, and the records in it as they came.
Content = dict[tuple[str, int], list[MessageExt]]


def _header(
    topic: str, queueId: int, properties: bytes, **more: int | bool
) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producerGroup=GROUP,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=QUEUES,
        queueId=queueId,
        sysFlag=int(more.get("sysFlag", 0)),
        bornTimestamp=int(time.time() * 1000),
        flag=0,
        properties=properties.decode(),
        batch=bool(more.get("batch", False)),
    )


async def sendOne(
    broker: Broker, topic: str, body: bytes, properties: Mapping[str, str] | None = None
) -> tuple[int, SendMessageResponseHeader | None]:
    """
    Send one message, once.

    @return: the code of the answer, and where the message is.
    """
    header = _header(topic, 0, encodeProperties(properties or {}))
    answer = await broker.ask(RequestCode.SEND_MESSAGE_V2, header, body)
    if answer.code in _STORED:
        return answer.code, answer.decodeHeader(SendMessageResponseHeader)
    return answer.code, None


@attrs.frozen
class Place:
    """
    Where a message was stored, by the master's answer.
    """

    topic: str
    queueId: int
    offset: int
    body: bytes


class Load:
    """
    What was sent to a master, and what it answered.

    @ivar places: of single messages and of those of batches.
    @ivar late: the bodies of late messages.
    @ivar committed: the bodies of messages whose transaction was committed.
    @ivar rolledBack: the bodies of the others.
    @ivar codes: how often each code was answered.
    """

    def __init__(self, master: Broker) -> None:
        self.places: list[Place] = []
        self.late: list[bytes] = []
        self.committed: list[bytes] = []
        self.rolledBack: list[bytes] = []
        self.codes: Counter[int] = Counter()
        self._master = master
        self._numbers = itertools.count()

    async def prepare(self) -> None:
        """
        Make the topics, once the broker has become the master.
        """
        for topic in TOPICS:
            header = CreateTopicRequestHeader(topic, "TBW102", QUEUES, QUEUES, 6, "SINGLE_TAG", 0)
            await self._until(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def send(self, count: int) -> None:
        """
        Send so many messages of all kinds, mixed.
        """
        jobs = self._jobs(count)

        async def work() -> None:
            for kind, bodies in jobs:
                if kind == "Batches":
                    await self._batch(bodies)
                elif kind == "Transactions":
                    await self._transaction(bodies[0])
                else:
                    await self._single(kind, bodies[0])

        await gatherResults([Deferred.fromCoroutine(work()) for _ in range(_WIDTH)])

    async def commit(self) -> None:
        """
        Commit offsets of a group.
        """
        for queueId in range(QUEUES):
            header = UpdateConsumerOffsetRequestHeader(GROUP, "Plain", queueId, 10 + queueId)
            answer = await self._master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            assert not answer.code, answer

    def _jobs(self, count: int) -> Iterator[tuple[str, list[bytes]]]:
        unit = sum(_SHARES.values())
        batches: list[bytes] = []
        for _ in range(count):
            number = next(self._numbers)
            # Of many sizes, so that records lie at all places of frames and files.
            body = b"message %06d " % number + b"x" * (number * 37 % 500)
            at = number % unit
            if at < _SHARES["Plain"]:
                yield "Plain", [body]
            elif at < _SHARES["Plain"] + _SHARES["Batches"]:
                batches.append(body)
                if len(batches) == _BATCH:
                    yield "Batches", batches
                    batches = []
            else:
                yield ("Late", "Transactions")[at % 2], [body]
        if batches:
            yield "Batches", batches

    async def _until(self, code: int, header: Header, body: bytes = b"") -> RemotingCommand:
        """
        Ask until the message is stored.
        """
        end = reactor.seconds() + _PATIENCE
        while True:
            why: RocketError
            try:
                answer = await self._master.ask(code, header, body)
                self.codes[answer.code] += 1
                if answer.code in _STORED:
                    return answer
                why = responseError(answer.code, answer.remark, self._master.address)
            except RocketError as error:
                why = error
            if reactor.seconds() > end:
                raise why
            await sleep(0.2)

    async def _stored(
        self, code: int, header: SendMessageRequestHeaderV2, body: bytes
    ) -> SendMessageResponseHeader:
        return (await self._until(code, header, body)).decodeHeader(SendMessageResponseHeader)

    async def _single(self, topic: str, body: bytes) -> None:
        number = int(body.split()[1])
        properties = {"KEYS": f"key{number}", "TAGS": f"Tag{number % 3}"}
        if topic == "Late":
            properties["DELAY"] = "1"
            self.late.append(body)
        header = _header(topic, number % QUEUES, encodeProperties(properties))
        found = await self._stored(RequestCode.SEND_MESSAGE_V2, header, body)
        # A late message is located in the queue in which it waits.
        if topic != "Late":
            self.places.append(Place(topic, found.queueId, found.queueOffset, body))

    async def _batch(self, bodies: list[bytes]) -> None:
        messages = [Message("Batches", each, keys=(str(each.split()[1]),)) for each in bodies]
        queueId = int(bodies[0].split()[1]) % QUEUES
        header = _header("Batches", queueId, b"", batch=True)
        found = await self._stored(RequestCode.SEND_BATCH_MESSAGE, header, encodeBatch(messages))
        self.places += [
            Place("Batches", found.queueId, found.queueOffset + at, body)
            for at, body in enumerate(bodies)
        ]

    async def _transaction(self, body: bytes) -> None:
        number = int(body.split()[1])
        unique = f"unique{number:08d}"
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": unique}
        header = _header(
            "Transactions", number % QUEUES, encodeProperties(properties), sysFlag=_PREPARED
        )
        found = await self._stored(RequestCode.SEND_MESSAGE_V2, header, body)
        isCommitted = number // sum(_SHARES.values()) % 2 == 0
        (self.committed if isCommitted else self.rolledBack).append(body)
        ending = EndTransactionRequestHeader(
            producerGroup=GROUP,
            tranStateTableOffset=found.queueOffset,
            commitLogOffset=decodeMessageId(found.msgId)[2],
            commitOrRollback=_COMMIT if isCommitted else _ROLLBACK,
            msgId=unique,
            transactionId=unique,
        )
        await self._until(RequestCode.END_TRANSACTION, ending)


# --- what a broker has ---------------------------------------------------


async def maxOffsets(broker: Broker, topic: str) -> list[int]:
    """
    The ends of a topic's queues.
    """
    found = []
    for queueId in range(QUEUES):
        header = GetMaxOffsetRequestHeader(topic, queueId)
        answer = await broker.ask(RequestCode.GET_MAX_OFFSET, header)
        if answer.code:
            raise responseError(answer.code, answer.remark, broker.address)
        found.append(answer.decodeHeader(GetMaxOffsetResponseHeader).offset)
    return found


async def _pull(broker: Broker, topic: str, queueId: int, offset: int) -> list[MessageExt]:
    header = PullMessageRequestHeader(
        consumerGroup=GROUP,
        topic=topic,
        queueId=queueId,
        queueOffset=offset,
        maxMsgNums=1000,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
        subscription="*",
    )
    answer = await broker.ask(RequestCode.PULL_MESSAGE, header)
    if answer.code:
        raise AssertionError(f"{broker.name}, {topic} {queueId} {offset}: {answer}")
    assert answer.decodeHeader(PullMessageResponseHeader).nextBeginOffset > offset
    return decodeRecords(answer.body, checkCrc=True)


async def readAll(broker: Broker) -> Content:
    """
    Pull all messages that a broker has in the load's topics.
    """
    found: Content = {}
    for topic in TOPICS:
        for queueId, end in enumerate(await maxOffsets(broker, topic)):
            messages = found[topic, queueId] = []
            while len(messages) < end:
                messages += await _pull(broker, topic, queueId, len(messages))
            offsets = [each.queueOffset for each in messages]
            assert offsets == list(range(end)), f"{broker.name}, {topic} {queueId}: {offsets}"
    return found
