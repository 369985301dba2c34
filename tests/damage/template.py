# SPDX-License-Identifier: Apache-2.0
"""
The folder that is damaged: made by a working broker, with everything in it that a broker keeps.

L{Template} has the files as bytes, and as the truth the records of the log, which were all
acknowledged.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from typing import Any, Final

import attrs
from twisted.internet.defer import gatherResults

from tests.damage.world import World
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.client.producer.transaction import LocalTransactionState, TransactionProducer
from txrocket.message import Message, MessageExt
from txrocket.model import ConsumeFromWhere, MessageQueue
from txrocket.protocol.record import BLANK_SIZE, decodeRecord
from txrocket.store.files import Files
from txrocket.store.files.handles import Handles
from txrocket.store.flush.checkpoint import CheckpointFile

TOPICS: Final = ("Orders", "Events")
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TAGS: Final = ("red", "green", "blue")


@attrs.frozen
class Truth:
    """
    A record of the log.

    @ivar place: its topic, queue and queue offset.
    """

    offset: int
    data: bytes
    message: MessageExt = attrs.field(eq=False)

    @property
    def place(self) -> tuple[str, int, int]:
        return self.message.topic, self.message.queueId, self.message.queueOffset

    @property
    def end(self) -> int:
        """
        Where it ends in the log.
        """
        return self.offset + len(self.data)


@attrs.frozen
class Template:
    """
    A folder, and what is true of it.

    @ivar files: by path in the folder.
    @ivar age: how many seconds after the first start it was left.
    @ivar safe: up to which offset of the log the checkpoint knows of.
    """

    clean: bool
    files: dict[str, bytes]
    age: float
    safe: int
    truths: list[Truth]

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """
        Of each queue the offset of its next message.
        """
        ends: dict[tuple[str, int], int] = {}
        for each in self.truths:
            topic, queueId, number = each.place
            ends[topic, queueId] = max(ends.get((topic, queueId), 0), number + 1)
        return ends

    def copy(self, folder: str) -> None:
        """
        Write the files.
        """
        for name, data in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)


def _read(folder: str) -> dict[str, bytes]:
    files = {}
    for above, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(above, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    return files


def records(files: dict[str, bytes]) -> Iterator[Truth]:
    """
    The records of a sound log.
    """
    for name in sorted(each for each in files if each.startswith("commitlog/")):
        data, base, at = files[name], int(os.path.basename(name)), 0
        while at + BLANK_SIZE < len(data) and any(data[at : at + 4]):
            size = int.from_bytes(data[at : at + 4], "big")
            if data[at + 4 : at + 8] == b"\xcb\xd4\x31\x94":
                break
            one = data[at : at + size]
            yield Truth(base + at, one, decodeRecord(one, checkCrc=True))
            at += size


class _Work:
    """
    What a broker has to do before its folder is damaged.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(17)
        self._number = 0
        self._producer = world.join(Producer(world.client(), "makers"))

    def message(self, topic: str, **options: Any) -> Message:
        """
        A message with a body like no other.
        """
        self._number += 1
        body = b"%s %d " % (topic.encode(), self._number)
        body += self._chance.randbytes(self._chance.choice((0, 20, 90, 300)))
        number = self._number
        options.setdefault("tags", TAGS[number % 3])
        keys = (f"key{number}", f"shared{number % 5}")[: 1 + number % 2]
        return Message(topic, body, keys=keys, properties={"n": str(number)}, **options)

    def send(self, count: int) -> None:
        """
        Single messages to every queue in turn.
        """
        for each in range(count):
            topic = TOPICS[each % 5 == 0]
            queue = MessageQueue(topic, "broker-0", each % (4 if topic == "Orders" else 2))
            self._world.wait(self._producer.send(self.message(topic), queue))

    def begin(self) -> None:
        """
        Have the topics made.
        """
        made = [self._producer.send(self.message(topic)) for topic in TOPICS]
        self._world.wait(gatherResults(made))

    def batches(self) -> None:
        """
        Several messages at a time.
        """
        for count in (3, 7, 12):
            several = [self.message("Orders") for _ in range(count)]
            self._world.wait(self._producer.sendBatch(several))

    def delayed(self, level: int) -> None:
        """
        Messages that wait.
        """
        for _ in range(3):
            message = self.message("Events", delayTimeLevel=level)
            self._world.wait(self._producer.send(message))

    def transactions(self) -> None:
        """
        A committed transaction, a rolled back one, and an undecided one.
        """
        world = self._world
        state = LocalTransactionState
        producer = world.join(
            TransactionProducer(world.client(), "payers", lambda message: state.UNKNOW)
        )
        for each in (state.COMMIT_MESSAGE, state.ROLLBACK_MESSAGE, state.UNKNOW):
            world.wait(producer.sendInTransaction(self.message("Orders"), lambda half, s=each: s))
        world.leave(producer)

    def consume(self, group: str, seconds: float, *expression: str) -> None:
        """
        A group consumes for a while, and leaves.
        """
        world = self._world
        consumer = PushConsumer(world.client(), group, lambda message: None, consumeFromWhere=FIRST)
        consumer.subscribe("Orders", *expression)
        world.join(consumer)
        world.servers.advance(seconds)
        world.leave(consumer)


def make(folder: str, *, clean: bool) -> Template:
    """
    Have a broker make a folder.

    @param folder: where; it is removed.
    @param clean: whether the broker is stopped.  Otherwise it ends as by C{kill -9}.
    """
    world = World(folder)
    world.start()
    work = _Work(world)
    work.begin()
    work.send(60)
    work.batches()
    work.delayed(1)
    world.servers.advance(3)
    work.consume("workers", 12, "red || green")
    work.consume("choosers", 12, "n > 20", "SQL92")
    work.transactions()
    work.send(10)
    work.delayed(2)
    world.servers.advance(25)
    # A table's .bak is one save older, and lacks the topic and the group that come last.
    work.consume("latecomers", 6)
    work.consume("workers", 12, "red || green")
    work.consume("choosers", 12, "n > 30", "SQL92")
    # These the last checkpoint does not know of.
    work.send(40)
    work.delayed(3)
    work.batches()
    work.send(6)
    if clean:
        world.stop()
    else:
        world.crash()
    files = _read(folder)
    handles = Handles(Files(), 4)
    safe = CheckpointFile(handles, os.path.join(folder, "checkpoint")).read().offset or 0
    handles.close()
    shutil.rmtree(folder)
    return Template(clean, files, world.age, safe, list(records(files)))
