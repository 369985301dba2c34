# SPDX-License-Identifier: Apache-2.0
"""
A folder that brokers of both kinds work on, one after the other::

    RocketMQ's -> ours -> RocketMQ's -> ours -> RocketMQ's -> ours -> RocketMQ's

and the same with ours first.  Each leaves something undone for the next: messages that
the group has not come to, messages that wait for their level's delay or to be tried
again, and halves of transactions of which nobody knows yet.  What waits for a time of its
own, which RocketMQ's broker knows nothing of, is there again when ours is.
"""

from __future__ import annotations

import time

from tests.interop.cells import Cell, Pairing, scenario, sleep
from tests.interop.driver import Consumer, Producer, Shown, received
from tests.interop.messages import PROPERTIES, check, checkResults, many

# Back and forth three times.
_TURNS = 7

# How many messages each turn adds.
_COUNT = 24

# How many seconds a half message is not asked about: until then, the next broker is up.
_UNASKED = 15

# After how many seconds a message is due that RocketMQ's broker would not wait with.
_TIMED = 25

_LONGER = 2.0

# After how many seconds offsets are surely kept; Java's broker begins with that only ten
# after it has started.
_KEPT = 1.5
_FIRST = 14.0

_PAIRINGS = [Pairing("ours", "ours", "ours", "java"), Pairing("ours", "ours", "ours", "ours")]

_OTHER = {"java": "ours", "ours": "java"}


@scenario(
    "Brokers in turn, closing the store",
    "sync transaction",
    "push",
    own=True,
    configuration="slow",
    limit=900.0,
    pairings=_PAIRINGS,
)
async def closed(cell: Cell) -> None:
    """
    Each broker ends as it should.
    """
    await _Turns(cell, "TERM").run()


@scenario(
    "Brokers in turn, killed",
    "sync transaction",
    "push",
    own=True,
    configuration="slow",
    limit=900.0,
    pairings=_PAIRINGS,
)
async def killed(cell: Cell) -> None:
    """
    Each broker is killed.
    """
    await _Turns(cell, "KILL").run()


class _Turns:
    """
    What was sent, and what the next broker owes.
    """

    def __init__(self, cell: Cell, signal: str) -> None:
        """
        @param signal: that ends each broker.
        """
        self._cell = cell
        self._signal = signal
        self._kind = cell.pairing.broker
        self._began = time.time()
        self._sent: list[Shown] = []
        self._results: list[Shown] = []
        self._owed: list[Shown] = []
        self._late: list[Shown] = []
        self._again: list[Shown] = []
        self._halves: list[Shown] = []
        self._timed: list[Shown] = []

    async def run(self) -> None:
        """
        Let brokers take turns.
        """
        cell = self._cell
        self._all, self._delayed, self._failing, self._transactions, self._atTimes = [
            await cell.topic() for _ in range(5)
        ]
        self._groups = [cell.group() for _ in range(6)]
        for turn in range(_TURNS):
            if turn:
                await self._receive(turn)
            # What a broker that is killed would not have kept.
            await sleep(max(0, self._began + _FIRST - time.time()))
            await self._leave(turn)
            await sleep(_KEPT)
            await cell.servers.stopBroker(self._signal)
            if turn < _TURNS - 1:
                self._kind = _OTHER[self._kind]
                self._began = time.time()
                await cell.servers.startBroker(self._kind)

    async def _consumer(self, topic: str, place: int, turn: int) -> Consumer:
        return await self._cell.consumer(
            topic,
            group=self._groups[place],
            client=("ours", "java")[turn // 2 % 2],
            properties=PROPERTIES,
        )

    async def _producer(self, turn: int, **more: bool) -> Producer:
        group = self._groups[4] if more else None
        return await self._cell.producer(group, ("java", "ours")[turn // 2 % 2], **more)

    # --- what the last one left ------------------------------------------

    async def _receive(self, turn: int) -> None:
        asked = await self._producer(turn, transactional=True)
        consumers = [
            await self._consumer(topic, place, turn)
            for place, topic in enumerate(
                (self._all, self._delayed, self._failing, self._transactions)
            )
        ]
        committed = [
            each for each in self._halves if each["properties"]["check"] == "COMMIT_MESSAGE"
        ]
        owed = [self._owed, self._late, self._again, committed]
        for consumer, messages in zip(consumers, owed, strict=True):
            await consumer.until(len(messages), 120.0)
        await sleep(_LONGER)
        if self._kind == "ours":
            # RocketMQ's broker puts a half that is not to be asked about yet at the end of
            # its queue again and again, and keeps only now and then how far it has come;
            # nor does it wait for that when it is stopped.
            once = {each["body"]: each for each in consumers[3].got}
            consumers[3].got = list(once.values())
        for consumer, messages in zip(consumers, owed, strict=True):
            check(messages, consumer.got)
            await consumer.stop()
        await asked.stop()
        for each in consumers[1].got:
            assert each["storeTimestamp"] >= self._began * 1000, "late, but not from this broker"
        for each in consumers[2].got:
            assert each["reconsumeTimes"] == 1, each
        if self._kind == "ours":
            await self._inTime(turn)
        await self._read(turn)

    async def _inTime(self, turn: int) -> None:
        """
        What our last broker kept for a time, across RocketMQ's.
        """
        consumer = await self._consumer(self._atTimes, 5, turn)
        await consumer.until(len(self._timed), 120.0)
        await sleep(_LONGER)
        check(self._timed, consumer.got)
        for each in consumer.got:
            assert each["storeTimestamp"] >= self._began * 1000, "not from this broker"
        await consumer.stop()
        self._timed = []

    async def _read(self, turn: int) -> None:
        """
        All that was ever sent is where it was.
        """
        client = ("java", "ours")[turn % 2]
        got = await self._cell.read(
            self._all, len(self._sent), client=client, properties=PROPERTIES
        )
        check(self._sent, got)
        checkResults(self._sent, self._results, got)
        puller = await self._cell.puller(client=client)
        old = self._sent[_COUNT // 2]
        found = await puller.ask("byKey", topic=self._all, key=old["keys"][0])
        check([old], [received(each) for each in found])
        await puller.stop()

    # --- what this one leaves --------------------------------------------

    async def _leave(self, turn: int) -> None:
        producer = await self._producer(turn)
        start = turn * 100
        # The group comes to half of them.
        first = many(self._all, _COUNT // 2, start=start)
        await self._send(producer, first)
        consumer = await self._consumer(self._all, 0, turn + 1)
        await consumer.until(_COUNT // 2)
        await sleep(_LONGER)
        check(first, consumer.got)
        await consumer.stop()
        self._owed = many(self._all, _COUNT // 2, start=start + 50)
        await self._send(producer, self._owed)
        await self._fail(producer, turn)
        self._late = many(self._delayed, 6, start=start, delay=2)
        await producer.send(self._late)
        if self._kind == "ours":
            self._timed = many(self._atTimes, 4, start=start)
            for each in self._timed:
                each["properties"]["TIMER_DELAY_SEC"] = str(_TIMED)
            await producer.send(self._timed)
        await self._begin(turn)
        await producer.stop()

    async def _send(self, producer: Producer, messages: list[Shown]) -> None:
        self._results += await producer.send(messages)
        self._sent += messages

    async def _fail(self, producer: Producer, turn: int) -> None:
        self._again = many(self._failing, 2, start=turn * 100)
        for each in self._again:
            each["properties"]["failTimes"] = "1"
        await producer.send(self._again)
        consumer = await self._consumer(self._failing, 2, turn + 1)
        await consumer.until(2)
        await sleep(_LONGER)
        await consumer.stop()
        check(self._again, consumer.got)

    async def _begin(self, turn: int) -> None:
        """
        Transactions of which the broker does not hear what became.
        """
        producer = await self._producer(turn, transactional=True)
        self._halves = many(self._transactions, 6, start=turn * 100)
        for number, each in enumerate(self._halves):
            each["properties"] |= {
                "local": "UNKNOW",
                "check": ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")[number % 2],
                "CHECK_IMMUNITY_TIME_IN_SECONDS": str(_UNASKED),
            }
        await producer.send(self._halves, "transaction")
        await producer.stop()
