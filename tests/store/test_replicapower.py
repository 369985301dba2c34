# SPDX-License-Identifier: Apache-2.0
"""
Power loss of replicas: whatever of the unsynced writes reached the disk, a log never has bytes of
another history than its epochs say.

Two brokers change roles, diverge, follow each other, are cut and set aside.  Of each epoch the
test knows the bytes that its master had.  At many moments, between any two operations on a disk,
disks are made as a power loss at that moment may leave them::

    A  lead --put--put--+           +-- follow: cut, append, append
    B  append --append--+- lead --put
                              |
                              +- power goes: start, hold each byte against its epoch,
                                 follow the other broker, have the same bytes and queues

The same is done with disks that leave out one kind of sync, and with the steps in the wrong
order: the test must then find a broken promise.
"""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random
from typing import ClassVar

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from tests.store.disk import Disk
from tests.store.ledger import HOST, ROOT, SMALL, START, HeldThreads, SweepTestCase, Violation
from tests.store.replicas import logOf
from txrocket.errors import StoreError
from txrocket.protocol.record import decodeRecords, encodeProperties
from txrocket.store.messagestore import MessageStore
from txrocket.store.replica import ReplicaLog
from txrocket.store.replica import cutter as cutterModule
from txrocket.store.replica.cutter import LogCutter
from txrocket.store.replica.epochs import EPOCH_FILE, Epoch, EpochFile, commonEnd

# make test-long asks for many more.
STATES = int(os.environ.get("TXROCKET_POWER_STATES", "600"))

# A control is expected to be caught within as many.
CONTROL_STATES = 3000

_FILE = SMALL.mappedFileSizeCommitLog
_TOPICS = ("Topic0", "Topic1")


class Broker:
    """
    A store and its epochs.
    """

    def __init__(self, disk: Disk, seconds: float, threads: HeldThreads | None = None) -> None:
        self.disk = disk
        self.clock = Clock()
        self.clock.advance(seconds)
        disk.now = seconds
        self.threads = threads
        self.store = MessageStore(
            SMALL, self.clock, threads or maybeDeferred, HOST, files=disk, memory=1 << 40
        )
        self.store.replica.follow()
        self.store.start()
        self.epochs = EpochFile(disk, f"{ROOT}/{EPOCH_FILE}")
        self.epochs.load()

    @property
    def log(self) -> ReplicaLog:
        """
        Its log as bytes.
        """
        return self.store.replica

    def lead(self, epoch: int) -> None:
        """
        Take messages.
        """
        self.log.lead()
        self.epochs.append(epoch, self.log.end)

    def meet(self, leader: Broker) -> None:
        """
        Follow another broker: find what is common, and forget the rest.
        """
        self.log.follow()
        common = commonEnd(self.epochs.entries, self.log.end, leader.epochs.entries, leader.log.end)
        if common is None or common < max(leader.log.first, self.log.first):
            self.epochs.cutAt(0)
            self.log.beginAt(leader.log.first)
        elif common < self.log.end:
            self.log.cut(common, self.epochs.entries[-1].epoch)
        self.epochs.cutAt(self.log.end)
        self.log.beginQueues(leader.log.queueBegins())

    def take(self, leader: Broker, most: int) -> bool:
        """
        Take the next bytes of another broker's log.

        @return: whether there were any.
        """
        at = self.log.end
        for epoch, start in leader.epochs.entries:
            last = self.epochs.last
            if start <= at and (last is None or epoch > last.epoch):
                self.epochs.append(epoch, start)
            elif start > at:
                most = min(most, start - at)
                break
        data = leader.log.read(at, most)
        if data:
            self.log.append(at, data)
        return bool(data)

    def takeAll(self, leader: Broker, random: Random) -> None:
        """
        Take all of another broker's log.
        """
        while self.take(leader, random.choice((37, 512, 4096))):
            pass


class Histories:
    """
    The bytes of each epoch, as its master had them.
    """

    def __init__(self) -> None:
        self._logs: dict[int, bytearray] = {}

    def note(self, leader: Broker) -> None:
        """
        The log of a master has grown, or its epoch has begun.
        """
        last = leader.epochs.last
        assert last is not None
        log = self._logs.get(last.epoch)
        if log is None:
            # Before the first file nobody looks.
            log = self._logs[last.epoch] = bytearray(leader.log.first)
        log += logOf(leader.store, max(len(log), leader.log.first))

    def check(self, broker: Broker, *, leads: bool = False) -> None:
        """
        Hold the bytes of a log against the epochs that it says they are of.

        @param leads: whether it has just written more than was noted.
        """
        first, data = broker.log.first, logOf(broker.store)
        end = first + len(data)
        held = [each for each in broker.epochs.entries if each.start <= end]
        for (epoch, start), following in pairwise([*held, Epoch(0, end)]):
            low, high = max(start, first), following.start
            log = self._logs.get(epoch, bytearray())
            if leads:
                high = min(high, len(log))
            if low < high and data[low - first : high - first] != log[low:high]:
                raise Violation(f"bytes from {low} to {high} are not of epoch {epoch}")


class World:
    """
    Two brokers, and the power losses of both.

    @ivar states: how many were looked at.
    @ivar violation: the first promise that was found broken.
    """

    brokerClass: ClassVar[type[Broker]] = Broker

    def __init__(self, seed: int, limit: int, kind: type[Disk]) -> None:
        self._random = Random(seed)
        self._limit = limit
        self._chance = self._random.choice((0.3, 0.1, 0.03))
        self.states = 0
        self.violation: Violation | None = None
        self._seconds = START
        self._histories = Histories()
        self._epoch = 0
        self._busy = True
        self._brokers = [self._broker(kind()), self._broker(kind())]
        self._lead(0)
        self._follow()
        self._busy = False

    # --- the workload ----------------------------------------------------

    def run(self, steps: int) -> None:
        """
        Do something, many times.
        """
        random = self._random
        actions = [self._put] * 6 + [self._copy] * 6 + [self._pass] * 2 + [self._turn] * 6
        rare = [self._switch] * 4 + [self._restart, self._kill, self._retain, self._leadAgain]
        for _ in range(steps):
            if self.violation is not None or self.states >= self._limit:
                break
            try:
                random.choice(rare if random.random() < 0.12 else actions)()
            except Violation as violation:
                self.violation = violation
            except StoreError as error:
                self.violation = Violation(repr(error))

    @property
    def _leader(self) -> Broker:
        return self._brokers[0]

    @property
    def _follower(self) -> Broker:
        return self._brokers[1]

    def _broker(self, disk: Disk) -> Broker:
        disk.before = lambda operation, path: None
        broker = self.brokerClass(disk, self._seconds, HeldThreads())
        disk.before = lambda operation, path: self._moment(broker, operation)
        return broker

    def _lead(self, number: int) -> None:
        if number:
            self._brokers.reverse()
        self._epoch += 1
        self._leader.lead(self._epoch)
        self._histories.note(self._leader)

    def _follow(self) -> None:
        self._follower.meet(self._leader)
        self._histories.check(self._follower)

    def _put(self) -> None:
        random, store = self._random, self._leader.store
        for _ in range(random.choice((1, 1, 3))):
            body = random.randbytes(random.choice((0, 20, 200, 200, 1200)))
            properties = encodeProperties({"KEYS": f"k{random.randrange(9)}"})
            store.put(random.choice(_TOPICS), random.randrange(2), body, properties, 1, HOST)
        store.write()
        self._histories.note(self._leader)

    def _copy(self) -> None:
        for _ in range(self._random.choice((1, 2, 5))):
            self._follower.take(self._leader, self._random.choice((5, 100, 700, 4096)))

    def _pass(self) -> None:
        self._seconds += 1.1
        for each in self._brokers:
            each.disk.now = self._seconds
            each.clock.advance(1.1)

    def _turn(self) -> None:
        threads = self._random.choice(self._brokers).threads
        assert threads is not None
        for _ in range(self._random.choice((1, 1, 4))):
            threads.turn()

    def _checkpoint(self) -> None:
        broker = self._random.choice(self._brokers)
        broker.store.checkpointer.checkpoint().addErrback(lambda failure: None)
        while broker.threads is not None and broker.threads.turn():
            pass

    def _switch(self) -> None:
        """
        The follower leads, and the leader follows; of its last messages some are not copied.
        """
        for action in self._random.choice(((), (self._put,), (self._put, self._checkpoint))):
            action()
        self._lead(1)
        if self._random.random() < 0.7:
            self._put()
        self._follow()

    def _leadAgain(self) -> None:
        """
        The process of the leader dies; it leads again.
        """
        self._brokers[0] = self._again(self._leader)
        self._lead(0)
        self._follow()

    def _kill(self) -> None:
        self._brokers[1] = self._again(self._follower)
        self._follow()

    def _again(self, broker: Broker) -> Broker:
        broker.store.tasks.stop()
        broker.disk.kill()
        again = self._broker(broker.disk)
        self._histories.check(again)
        return again

    def _restart(self) -> None:
        broker = self._follower
        stopped = broker.store.stop()
        while not stopped.called:
            if broker.threads is None or not broker.threads.turn():
                raise Violation("the store does not stop")
        self._brokers[1] = self._broker(broker.disk)
        self._follow()

    def _retain(self) -> None:
        """
        The leader deletes old files.
        """
        store = self._leader.store
        self._leader.disk.free = self._leader.disk.total // 8
        store.retention.clean()
        self._leader.disk.free = self._leader.disk.total // 2
        store.retention.clean()
        # A follower that is too far behind begins anew.
        if self._follower.log.end < self._leader.log.first:
            self._follow()

    # --- the losses ------------------------------------------------------

    def _moment(self, broker: Broker, operation: str) -> None:
        if self._busy or operation == "pread" or self._random.random() > self._chance:
            return
        self._busy = True
        try:
            for _ in range(self._random.choice((1, 2))):
                if self.violation is None and self.states < self._limit:
                    self.states += 1
                    self._look(broker)
        except Violation as violation:
            # Not through the store, which would take it for its own.
            self.violation = violation
        finally:
            self._busy = False

    def _look(self, broker: Broker) -> None:
        random = self._random
        # Now and then only the process ends here, and the power goes later.
        killed = random.random() < 0.15
        disk = broker.disk.fork() if killed else broker.disk.crash(Random(random.getrandbits(64)))
        found = self._started(disk)
        self._histories.check(found, leads=broker is self._leader)
        other = self._brokers[0] if broker is self._brokers[1] else self._brokers[1]
        if broker is self._leader or not other.store.log.segments.bases:
            # It goes on alone.
            found.lead(self._epoch + 1)
            found.store.put("Topic0", 0, b"after", b"", 1, HOST)
            found.store.write()
            self._served(found, None)
            return
        self._follows(found, other)
        again = self._started(disk.crash(Random(random.getrandbits(64))))
        self._histories.check(again)
        self._follows(again, other)

    def _started(self, disk: Disk) -> Broker:
        try:
            return self.brokerClass(disk, self._seconds)
        except (StoreError, OSError, AssertionError, KeyError, IndexError) as error:
            raise Violation(f"the store does not start: {error!r}") from error

    def _follows(self, found: Broker, leader: Broker) -> None:
        try:
            found.meet(leader)
            self._histories.check(found)
            found.takeAll(leader, self._random)
        except (StoreError, OSError) as error:
            raise Violation(f"it does not follow: {error!r}") from error
        self._histories.check(found)
        first = max(found.log.first, leader.log.first)
        if logOf(found.store, first) != logOf(leader.store, first):
            raise Violation("the logs differ")
        self._served(found, leader)

    def _served(self, found: Broker, leader: Broker | None) -> None:
        """
        Compare the queues and keys of a broker with its log, and with those of another.
        """
        queues: dict[tuple[str, int], list[int]] = {}
        keys: dict[tuple[str, str], set[int]] = {}
        for each in found.store.log.records(found.log.first, strict=True):
            record = each.record
            queues.setdefault((record.topic, record.queueId), []).append(each.offset)
            for key in record.keys:
                keys.setdefault((record.topic, key), set()).add(each.offset)
        for (topic, queueId), offsets in queues.items():
            store = found.store
            low, high = store.minOffset(topic, queueId), store.maxOffset(topic, queueId)
            entries = store.entries(topic, queueId, low, high - low)
            while len(entries) < high - low:
                at = low + len(entries)
                entries += store.entries(topic, queueId, at, high - at)
            if [entry[0] for entry in entries] != offsets:
                raise Violation(f"{topic}-{queueId}: {entries} are not at {offsets}")
            if leader is not None and high != leader.store.maxOffset(topic, queueId):
                raise Violation(f"{topic}-{queueId} ends at {high}")
        for (topic, key), expected in keys.items():
            records = b"".join(found.store.query(topic, key, 0, 1 << 62, 64)[0])
            places = {each.commitLogOffset for each in decodeRecords(records)}
            if len(expected) <= 32 and places != expected:
                raise Violation(f"{topic} by {key}: {places} are not {expected}")


def losses(kind: type[Disk], states: int, world: type[World] = World) -> int:
    """
    Look at so many states.

    @return: how many they were.
    @raise Violation: naming the seed.
    """
    seen = seed = 0
    while seen < states:
        found = world(seed, min(100, states - seen), kind)
        found.run(400)
        seen += found.states
        if found.violation is not None:
            raise Violation(f"seed {seed}, state {seen}: {found.violation}") from found.violation
        seed += 1
    return seen


class LazyLog(Disk):
    """
    Leaves out the sync of the log.
    """

    def sync(self, handle: int) -> None:
        if "/commitlog/" not in self._handles[handle][0]:
            super().sync(handle)


class LazyEpochs(Disk):
    """
    Leaves out the sync of the epochs before they are renamed.
    """

    def sync(self, handle: int) -> None:
        if EPOCH_FILE not in self._handles[handle][0]:
            super().sync(handle)


class HastyBroker(Broker):
    """
    Forgets epochs before their bytes are cut off.
    """

    def meet(self, leader: Broker) -> None:
        common = commonEnd(self.epochs.entries, self.log.end, leader.epochs.entries, leader.log.end)
        if common is not None:
            self.epochs.cutAt(common)
        super().meet(leader)


class HastyWorld(World):
    brokerClass = HastyBroker


class BlindBroker(Broker):
    """
    Goes on where its own log ends, as RocketMQ does.
    """

    def meet(self, leader: Broker) -> None:
        if leader.log.first <= self.log.end <= leader.log.end:
            self.log.follow()
        else:
            super().meet(leader)


class BlindWorld(World):
    brokerClass = BlindBroker


class LateBroker(Broker):
    """
    Takes an epoch after its first bytes.
    """

    def take(self, leader: Broker, most: int) -> bool:
        at = self.log.end
        data = leader.log.read(at, most)
        if data:
            self.log.append(at, data)
        for epoch, start in leader.epochs.entries:
            last = self.epochs.last
            if start <= at and (last is None or epoch > last.epoch):
                self.epochs.append(epoch, start)
        return bool(data)


class LateWorld(World):
    brokerClass = LateBroker


class ReplicaPowerTests(SweepTestCase):
    """
    Losing power.
    """

    def test_oneHistory(self) -> None:
        """
        After a power loss at any moment a broker starts, has no byte of another epoch than its
        epochs say, follows the other broker, and has its bytes, queues and keys then.
        """
        self.assertGreaterEqual(losses(Disk, STATES), STATES)

    def test_controlDisks(self) -> None:
        """
        Without a sync of the log or of the epochs, this test finds a broken promise.
        """
        for kind in (LazyLog, LazyEpochs):
            self.assertRaises(Violation, losses, kind, CONTROL_STATES)

    def test_controlOrder(self) -> None:
        """
        With the steps of a follower in another order, or without the comparison, this test
        finds a broken promise.
        """
        for world in (HastyWorld, BlindWorld, LateWorld):
            self.assertRaises(Violation, losses, Disk, CONTROL_STATES, world)

    def test_controlCheckpoint(self) -> None:
        """
        If the checkpoint does not go back before the log is cut, this test finds it.
        """
        self.patch(cutterModule, "lowerCheckpoint", lambda *arguments: None)
        self.assertRaises(Violation, losses, Disk, CONTROL_STATES)

    def test_controlRecovery(self) -> None:
        """
        If the log is cut, and queues and index do not follow, this test finds it.
        """

        def cut(cutter: LogCutter, offset: int, epoch: int, failed: object) -> object:
            log = cutter._commitLog
            log.segments.clearFrom(offset)
            log.end = log.written = cutter._dispatcher.position = offset
            return None

        self.patch(LogCutter, "cut", cut)
        self.assertRaises(Violation, losses, Disk, CONTROL_STATES)
