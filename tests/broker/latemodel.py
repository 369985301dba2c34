# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered late against a model: whatever happens to the broker, none
is lost, none comes early, and none comes twice unless something crashed.

One process after the other works on a disk in memory, and ends in one of three ways::

    stop     all is written
    kill     what was written to the files stays, what was not is gone
    power    of what was not synced, any part may be gone
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from twisted.internet.task import Clock

from tests.store.disk import Disk, full
from tests.store.ledger import HOST, ROOT, SMALL, START, opened
from txrocket.broker.delivery.reroute import Reroutes, encodeSplit
from txrocket.errors import StoreError
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecords
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus
from txrocket.store.settings import FlushDiskType


@attrs.define
class Sent:
    """
    A message that was sent.

    @ivar due: when it may come, in milliseconds.
    @ivar at: when it was sent.
    @ivar owed: whether its sender was told that it will come.
    """

    due: int
    at: int
    kind: int
    owed: bool = False


class LateMachine(RuleBasedStateMachine):
    """
    The base: what sends is for subclasses.

    @cvar longest: for how many seconds a message may wait.
    """

    longest = 0.0

    deliveries: list[Any]
    reroutes: Reroutes
    clock: Clock
    store: MessageStore

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.seconds = START
        self.sent: list[Sent] = []
        self.crashes = 0
        # How often those have come that must not come again.
        self.settled: Counter[int] = Counter()
        # Those that may come again after a crash, and how often they had come by then.
        self.doubt: Counter[int] = Counter()
        self.full = False
        # Whether messages came to their queues late, and so in another order.
        self.disordered = False

    # --- for subclasses ----------------------------------------------------

    def make(self) -> tuple[list[Any], Reroutes]:
        """
        What delivers late, and what has messages wait for it.
        """
        raise NotImplementedError

    def waiting(self) -> list[tuple[str, int]]:
        """
        The queues in which messages wait.
        """
        raise NotImplementedError

    def parked(self) -> Counter[int]:
        """
        How often each message may come whatever is known of it: by how many copies of it
        were put aside.
        """
        return Counter()

    # --- the process -------------------------------------------------------

    @initialize(sync=st.booleans())
    def begin(self, sync: bool) -> None:
        kind = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
        self.settings = attrs.evolve(SMALL, flushDiskType=kind, messageDelayLevel="1s 5s 20s")
        self.open()

    def open(self) -> None:
        self.clock = Clock()
        self.clock.advance(self.seconds)
        self.disk.now = self.saved = self.seconds
        self.full = False
        self.store = opened(self.disk, self.clock, settings=self.settings)
        self.deliveries, self.reroutes = self.make()
        for each in self.deliveries:
            each.load()
            each.start()

    def table(self, name: str) -> Table:
        """
        A table of the broker's.
        """
        return Table(self.disk, f"{ROOT}/config/{name}")

    def send(self, kind: int, properties: dict[str, str], due: int) -> None:
        """
        Send a message.
        """
        number = len(self.sent)
        now = int(self.clock.seconds() * 1000)
        sent = Sent(due, now, kind)
        self.sent.append(sent)
        place = self.reroutes.place("T", 0, properties)
        body = b"%d " % number + bytes(number % 7 * 100)
        try:
            appended = self.store.put(
                *(place.topic, place.queueId, body, encodeSplit(place.properties), now, HOST)
            )
        except StoreError:
            return

        def told(none: None) -> None:
            sent.owed = True

        self.store.stored(appended.end).addCallbacks(told, lambda failure: None)
        self.clock.advance(0)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 1.0, 1.0, 4.0, 12.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.passing(seconds)

    def passing(self, seconds: float) -> None:
        """
        Let time pass, and everything happen in its turn.
        """
        self.seconds += seconds
        while True:
            due = min(each.getTime() for each in self.clock.getDelayedCalls())
            if due > self.seconds:
                break
            self.clock.advance(max(0.0, due - self.clock.seconds()))
            self.disk.now = self.clock.seconds()
            if self.disk.now - self.saved >= 2.0:
                self.save()
        self.clock.advance(self.seconds - self.clock.seconds())

    @rule()
    def look(self) -> None:
        for each in self.deliveries:
            each.look()
        self.clock.advance(0)

    @rule()
    def save(self) -> None:
        self.saved = self.clock.seconds()
        for each in self.deliveries:
            each.save()
        if not self.full:
            self.settle()

    def settle(self) -> None:
        """
        What has come is known to have, also after a crash.
        """
        counts = self.counts()
        for number, count in counts.items():
            if count > self.doubt.get(number, 0):
                self.settled[number] = count

    def crashed(self) -> None:
        """
        What has come is not known to have, unless that was written.
        """
        self.crashes += 1
        self.doubt = Counter(
            {each: count for each, count in self.counts().items() if each not in self.settled}
        )

    @precondition(lambda self: not self.full)
    @rule(where=st.sampled_from(["", "consumequeue", "config"]))
    def fill(self, where: str) -> None:
        self.full = True
        self.disordered = self.disordered or where != "config"

        def before(operation: str, path: str) -> None:
            if operation in ("pwrite", "allocate", "create", "truncate") and where in path:
                raise full()

        self.disk.before = before

    @rule()
    def clean(self) -> None:
        self.full = False
        self.disk.before = lambda operation, path: None

    @rule(away=st.sampled_from([0.0, 0.0, 3.0, 30.0, 300.0]))
    def stop(self, away: float) -> None:
        self.end()
        self.seconds += away
        self.open()

    def end(self) -> None:
        """
        Stop gracefully.
        """
        self.clean()
        for each in self.deliveries:
            each.stop()
        self.store.flushed()
        for each in self.deliveries:
            each.save()
        self.settle()
        self.store.stop()

    @rule()
    def kill(self) -> None:
        self.clean()
        self.disk.kill()
        self.open()
        self.crashed()

    @rule(seed=st.integers(0, 1 << 32))
    def power(self, seed: int) -> None:
        self.disk = self.disk.crash(Random(seed))
        self.lost()

    @precondition(lambda self: not self.full)
    @rule(
        seconds=st.sampled_from([0.0, 0.3, 1.0, 4.0]),
        count=st.integers(1, 40),
        seed=st.integers(0, 1 << 32),
    )
    def powerMeanwhile(self, seconds: float, count: int, seed: int) -> None:
        """
        The power goes between any two operations on the disk, in the middle of
        something.
        """
        left: list[tuple[Disk, list[bool], Counter[int], float]] = []

        def before(operation: str, path: str) -> None:
            nonlocal count
            count -= operation != "pread"
            if not count and not left:
                owed = [each.owed for each in self.sent]
                disk = self.disk.crash(Random(seed))
                left.append((disk, owed, self.settled.copy(), self.clock.seconds()))

        self.disk.before = before
        self.passing(seconds)
        self.save()
        self.clean()
        if left:
            # All that happened later never did.
            self.disk, owed, self.settled, self.seconds = left[0]
            for sent, each in zip(self.sent, owed, strict=True):
                sent.owed = each
        else:
            self.disk = self.disk.crash(Random(seed))
        self.lost()

    def lost(self) -> None:
        """
        Begin again after a power loss.
        """
        self.open()
        self.crashed()
        if self.settings.flushDiskType is FlushDiskType.ASYNC_FLUSH:
            places = [("T", 0), *self.waiting()]
            there = {number for place in places for number in self.found(place)}
            for number, sent in enumerate(self.sent):
                sent.owed = number in there
        for number in self.settled:
            assert number in self.counts(), f"{number} was delivered, and is gone"

    # --- what must be ------------------------------------------------------

    def records(self, place: tuple[str, int]) -> list[MessageExt]:
        """
        All messages of a queue.
        """
        found: list[MessageExt] = []
        offset = self.store.minOffset(*place)
        while offset < self.store.maxOffset(*place):
            got = self.store.get(*place, offset, 32)
            assert got.nextOffset > offset, got
            if got.nextOffset - offset > got.count:
                # A record that a power loss tore before sound ones keeps its number.  What
                # was delivered there comes again, after what lies behind it.
                assert self.crashes, got
                self.disordered = True
            else:
                assert got.status is GetMessageStatus.FOUND, got
            found += decodeRecords(got.data, checkCrc=True)
            offset = got.nextOffset
        return found

    def found(self, place: tuple[str, int] = ("T", 0)) -> list[int]:
        """
        The numbers of all messages of a queue.
        """
        return [int(each.body.split()[0]) for each in self.records(place)]

    def counts(self) -> Counter[int]:
        """
        How often each message has come.
        """
        return Counter(self.found())

    @invariant()
    def inTime(self) -> None:
        """
        Nothing comes early, and nothing twice without a reason.
        """
        if not hasattr(self, "store"):
            return
        for record in self.records(("T", 0)):
            sent = self.sent[int(record.body.split()[0])]
            assert record.storeTimestamp >= sent.due, (record.body, record.storeTimestamp, sent)
        for number, count in self.counts().items():
            assert count == 1 or self.crashes, f"{number} came {count} times"
            if number in self.settled and count > self.settled[number]:
                assert count <= self.parked()[number], f"{number} came again"

    def inOrder(self) -> None:
        """
        Messages of a kind come in the order in which they are due, unless one was sent
        after the other had come.
        """
        if self.disordered:
            return
        first: dict[int, int] = {}
        for record in self.records(("T", 0)):
            first.setdefault(int(record.body.split()[0]), record.storeTimestamp)
        came = [(self.sent[number], time) for number, time in first.items()]
        for index, (before, time) in enumerate(came):
            for after, _ in came[index + 1 :]:
                assert after.kind != before.kind or after.due >= before.due or after.at >= time, (
                    before,
                    after,
                )

    def teardown(self) -> None:
        """
        In the end all has come.
        """
        if not hasattr(self, "store"):
            return
        self.clean()
        for _ in range(2):
            self.look()
            self.passing(self.longest)
            self.look()
        self.inTime()
        counts = self.counts()
        for number, sent in enumerate(self.sent):
            assert number in counts or not sent.owed, f"{number} is lost: {sent}"
        self.inOrder()
