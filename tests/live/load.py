# SPDX-License-Identifier: Apache-2.0
"""
Load on a broker that may be killed at any time, and a record of the broker's answers, which
are checked afterwards.

Each message has a unique body and is sent once.  Afterwards each message must be::

    acknowledged           stored once, at the offset of the answer
    given to a consumer    the same, unless its topic is gone: the consumer was faster
                           than the disk
    any other              stored once, or not at all

Offsets of queues and groups must not go back::

    max offset told     never less again
    offset committed    kept once it was written, which it is soon
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random

import attrs
from twisted.internet.defer import DeferredSemaphore, gatherResults
from twisted.internet.task import deferLater

from tests.live.asking import (
    COMMIT,
    commit,
    committed,
    pull,
    query,
    sendBatch,
    sendOne,
)
from tests.live.servers import reactor
from txrocket.errors import RemotingError
from txrocket.message import Message
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import SendMessageResponseHeader
from txrocket.remoting.peers import Peers

__all__ = ["GROUP", "Load", "Queue", "Said"]

Queue = tuple[str, int]

GROUP = "pullers"

# Of a topic that comes into being by itself, as the sends here wish.
QUEUES = 4

# So many topics are in use at a time, and one send in so many is a batch.
_TOPICS = 6
_BATCH = 4

# How many seconds a producer waits before it sends again, at most.  Without, a check
# of all that was sent would take longer than all else.
_PAUSE = 0.03

# How large bodies are, in bytes, and one in how many is larger.
_SMALL = 300
_LARGE = 50_000
_LARGE_ONE_IN = 97

# How many pulls a check makes at a time, how many messages each wants, and how many
# messages it looks up by their keys.
_AT_ONCE = 50
_AT_A_TIME = 1000
_BY_KEY = 50


def bodyOf(number: int) -> bytes:
    """
    The body of a message: no other has the same.
    """
    size = number * 7919 % _SMALL if number % _LARGE_ONE_IN else _LARGE
    return b"%d:" % number + bytes(size)


def keyOf(number: int) -> str:
    """
    The key of a message: no other has the same.
    """
    return f"key{number}"


def _numberOf(body: bytes) -> int:
    number = int(body[: body.index(b":")])
    assert body == bodyOf(number), body
    return number


@attrs.define
class Said:
    """
    What a broker has said.

    @ivar topics: those that messages were sent to.
    @ivar sent: which queue each message was sent to.
    @ivar acknowledged: those messages of which their senders know.
    @ivar stored: at which offset a message is.
    @ivar reached: the greatest max offset of each queue.
    @ivar asked: the greatest offset of each queue that was committed.
    @ivar kept: the offset of each queue that is not to be less again.
    @ivar found: the messages of each queue, when it was last looked at.
    """

    topics: list[str] = attrs.Factory(list)
    sent: list[Queue] = attrs.Factory(list)
    acknowledged: set[int] = attrs.Factory(set)
    stored: dict[int, int] = attrs.Factory(dict)
    reached: dict[Queue, int] = attrs.Factory(dict)
    asked: dict[Queue, int] = attrs.Factory(dict)
    kept: dict[Queue, int] = attrs.Factory(dict)
    found: dict[Queue, list[int]] = attrs.Factory(dict)

    @property
    def queues(self) -> list[Queue]:
        """
        All queues that there may be.
        """
        return [(topic, queueId) for topic in self.topics for queueId in range(QUEUES)]

    def holds(self, number: int, offset: int) -> None:
        """
        A message is at an offset.

        @raise AssertionError: if it was said to be at another.
        """
        before = self.stored.setdefault(number, offset)
        assert before == offset, f"{number} was at {before} and now is at {offset}"

    def reaches(self, queue: Queue, maxOffset: int) -> None:
        """
        A queue reaches so far.

        @raise AssertionError: if it reached further before.
        """
        before = self.reached.get(queue, 0)
        assert maxOffset >= before, f"{queue} reached {before} and now {maxOffset}"
        self.reached[queue] = maxOffset

    def keeps(self, offsets: Mapping[Queue, int]) -> None:
        """
        A group has come so far in each queue.

        @raise AssertionError: if it was further before, or never came so far.
        """
        for queue, before in self.kept.items():
            # A group that has no offset begins with the first.
            now = offsets.get(queue, 0)
            assert now >= before, f"{queue}: the group was at {before} and now is at {now}"
        for queue, offset in offsets.items():
            assert offset <= self.asked[queue], f"{queue}: never came to {offset}"
            self.kept[queue] = offset

    async def check(self, peers: Peers, address: str, chance: Random, *, anew: bool) -> None:
        """
        Hold a broker to all of it.

        @param chance: picks the messages that are looked up by their keys.
        @param anew: whether to look at those again that were found before.

        @raise AssertionError: if it gives what was not sent, or something twice or
            elsewhere, or does not give what it said that it has.
        """
        if anew:
            self.found.clear()
        queues = self.queues
        room = DeferredSemaphore(_AT_ONCE)
        found = await gatherResults(
            [room.run(self._allOf, peers, address, queue) for queue in queues]
        )
        offsets: dict[int, int] = {}
        gone = set()
        for queue, numbers in zip(queues, found, strict=True):
            if numbers is None:
                gone.add(queue)
                continue
            for offset, number in enumerate(numbers):
                assert self.sent[number] == queue, f"{number} is in {queue}"
                before = offsets.setdefault(number, offset)
                assert before == offset, f"{number} is at {before} and at {offset} of {queue}"
        for number, offset in self.stored.items():
            queue, now = self.sent[number], offsets.get(number)
            if number in self.acknowledged or queue not in gone:
                assert now == offset, f"{number} of {queue} was at {offset}, now at {now}"
        known = sorted(self.acknowledged)
        for number in chance.sample(known, min(_BY_KEY, len(known))):
            got = await query(peers, address, self.sent[number][0], keyOf(number))
            assert [_numberOf(each.body) for each in got] == [number], (keyOf(number), got)
        self.keeps(await self._committed(peers, address))

    async def _committed(self, peers: Peers, address: str) -> dict[Queue, int]:
        """
        How far the group has come, as the broker tells.
        """
        queues = list(self.asked)
        room = DeferredSemaphore(_AT_ONCE)
        offsets = await gatherResults(
            [room.run(committed, peers, address, GROUP, *queue) for queue in queues]
        )
        return {queue: offset for queue, offset in zip(queues, offsets, strict=True) if offset >= 0}

    async def _allOf(self, peers: Peers, address: str, queue: Queue) -> list[int] | None:
        """
        All messages of a queue, by their offsets; L{None} if there is no such topic.
        """
        numbers = self.found.setdefault(queue, [])
        while True:
            got = await pull(
                peers, address, *queue, len(numbers), count=_AT_A_TIME, group="checkers"
            )
            if got.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            self.reaches(queue, got.maxOffset)
            if got.code == ResponseCode.PULL_NOT_FOUND:
                assert got.maxOffset == len(numbers), got
                return numbers
            assert got.code == ResponseCode.SUCCESS, got
            for each in got.messages:
                assert each.queueOffset == len(numbers), (queue, len(numbers), each)
                numbers.append(_numberOf(each.body))


class Load:
    """
    Producers and consumers, for as long as the broker lives.

    @ivar newTopic: of how many sends one is the first to its topic.
    @ivar refused: how many answers there were with each code but SUCCESS.
    """

    newTopic = 100

    def __init__(self, said: Said, address: str, chance: Random) -> None:
        self._said = said
        self._address = address
        self._chance = chance
        self._over = False
        self._commits: list[tuple[float, Queue, int]] = []
        self.refused: dict[int, int] = {}

    def expectEnd(self) -> None:
        """
        From now on the broker may be gone.
        """
        self._over = True

    def committedBefore(self, when: float) -> dict[Queue, int]:
        """
        What was committed, and answered before a time of C{time.monotonic}.
        """
        return {queue: offset for at, queue, offset in self._commits if at < when}

    # --- producers -------------------------------------------------------

    async def produce(self, peers: Peers) -> None:
        """
        Send message after message.
        """
        try:
            while True:
                await self._send(peers)
                await deferLater(reactor, self._chance.uniform(0, _PAUSE))
        except RemotingError:
            if not self._over:
                raise

    async def _send(self, peers: Peers) -> None:
        chance, topics = self._chance, self._said.topics
        if not topics or not chance.randrange(self.newTopic):
            topics.append(f"Topic{len(topics)}")
        queue = chance.choice(topics[-_TOPICS:]), chance.randrange(QUEUES)
        if chance.randrange(_BATCH):
            numbers = self._numbers(queue, 1)
            answer = await sendOne(
                peers,
                self._address,
                *queue,
                bodyOf(numbers[0]),
                {"KEYS": keyOf(numbers[0]), "TAGS": "single"},
            )
        else:
            numbers = self._numbers(queue, chance.randint(1, 10))
            answer = await sendBatch(
                peers,
                self._address,
                *queue,
                [
                    Message(queue[0], bodyOf(each), properties={"KEYS": keyOf(each)})
                    for each in numbers
                ],
            )
        self._answered(answer, queue, numbers)

    def _numbers(self, queue: Queue, count: int) -> Sequence[int]:
        sent = self._said.sent
        sent += [queue] * count
        return range(len(sent) - count, len(sent))

    def _answered(self, answer: RemotingCommand, queue: Queue, numbers: Sequence[int]) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self.refused[answer.code] = self.refused.get(answer.code, 0) + 1
            return
        told = answer.decodeHeader(SendMessageResponseHeader)
        assert told.queueId == queue[1], (told, queue)
        for place, number in enumerate(numbers):
            self._said.holds(number, told.queueOffset + place)
            self._said.acknowledged.add(number)

    # --- consumers -------------------------------------------------------

    async def consume(self, peers: Peers, offsets: Mapping[Queue, int]) -> None:
        """
        Pull from all queues in turn, and commit what the last pull got, with the
        next one or before it.

        @param offsets: how far the group has come.
        """
        following = dict(offsets)
        try:
            while True:
                for queue in self._said.queues[-_TOPICS * QUEUES :]:
                    following[queue] = await self._consume(peers, queue, following.get(queue, 0))
        except RemotingError:
            if not self._over:
                raise

    async def _consume(self, peers: Peers, queue: Queue, offset: int) -> int:
        asked = self._said.asked
        asked[queue] = max(offset, asked.get(queue, 0))
        flags = COMMIT if self._chance.randrange(2) else 0
        if not flags and offset:
            await commit(peers, self._address, GROUP, *queue, offset)
        got = await pull(
            peers, self._address, *queue, offset, flags=flags, commitOffset=offset, group=GROUP
        )
        if got.code == ResponseCode.TOPIC_NOT_EXIST:
            # Its first message is on its way.
            return offset
        assert got.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), got
        if flags or offset:
            self._commits.append((time.monotonic(), queue, offset))
        self._said.reaches(queue, got.maxOffset)
        for each in got.messages:
            number = _numberOf(each.body)
            assert self._said.sent[number] == queue, f"{number} is in {queue}"
            self._said.holds(number, each.queueOffset)
        return got.nextOffset
