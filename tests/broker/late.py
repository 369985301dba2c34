# SPDX-License-Identifier: Apache-2.0
"""
Messages that are delivered late, and their store, on a L{Clock} and on a disk that
fails when it is told to: what the tests of delays have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from tests.store.support import HOST, Disk, StoreCase, abandon, atOnce
from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.delivery.reroute import Reroutes, encodeSplit
from txrocket.message import MessageExt
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import Appended, MessageStore
from txrocket.store.settings import delayLevels

LEVELS = "1s 5s 10s 30s 1m"


def _end(store: MessageStore) -> None:
    """
    End a store, unless it has ended.
    """
    if store.folder.isOpen:
        abandon(store)


class LateCase(StoreCase):
    """
    A store, and its late deliveries.

    @ivar counted: what was said to have been delivered.
    @ivar onDelivered: called with what was delivered; a test may set another.
    """

    options: dict[str, Any] = {"messageDelayLevel": LEVELS}
    store: MessageStore
    delays: DelayLevels

    def setUp(self) -> None:
        super().setUp()
        self.disk: Disk
        self.counted: list[tuple[str, int, int]] = []
        self.onDelivered: Callable[..., None] = lambda *told: self.counted.append(told)
        self.thread: Any = atOnce

    def table(self, name: str) -> Table:
        """
        A table of the broker's.
        """
        return Table(self.disk, self.path("config", name))

    def open(self, **options: Any) -> None:
        """
        Start all, as a broker does.
        """
        self.store = self.make(self.thread, **{**self.options, **options})
        self.deliveries = self.makeDeliveries()
        for each in self.deliveries:
            each.load()
        self.store.start()
        self.addCleanup(_end, self.store)
        for each in self.deliveries:
            each.start()

    def makeDeliveries(self) -> list[Any]:
        """
        Make the late deliveries.
        """
        self.delays = DelayLevels(
            self.clock,
            self.store,
            self.table("delayOffset.json"),
            self.thread,
            delayLevels(self.store.settings.messageDelayLevel),
            lambda *told: self.onDelivered(*told),
        )
        self.reroutes = Reroutes(self.delays.reroute)
        return [self.delays]

    def watchReads(self) -> list[int]:
        """
        How many messages are read at a time, from now on.
        """
        counts: list[int] = []
        messages = self.store.messages

        def watched(places: Any) -> Any:
            counts.append(len(places))
            return messages(places)

        self.store.messages = watched
        return counts

    def close(self) -> None:
        """
        Stop all, as a broker does.
        """
        for each in self.deliveries:
            each.stop()
        self.successResultOf(self.store.flushed())
        self.save()
        self.store.stop()

    def crash(self) -> None:
        """
        The process ends, and with it its calls; its files stay as written.
        """
        _end(self.store)
        now = self.clock.seconds()
        self.clock = Clock()
        self.clock.advance(now)

    def save(self) -> None:
        """
        Write the tables.
        """
        for each in self.deliveries:
            self.successResultOf(each.save())

    def send(
        self, body: bytes = b"x", topic: str = "T", queueId: int = 0, /, **properties: str
    ) -> Appended:
        """
        Put a message to where it goes now.
        """
        place = self.reroutes.place(topic, queueId, properties)
        return self.store.put(
            place.topic,
            place.queueId,
            body,
            encodeSplit(place.properties),
            bornTimestamp=1,
            bornHost=HOST,
        )

    def wait(self, seconds: float = 0) -> None:
        """
        Let time pass, with everything in its turn.
        """
        end = self.clock.seconds() + seconds
        while True:
            calls = self.clock.getDelayedCalls()
            due = min((each.getTime() for each in calls), default=end + 1)
            if due > end:
                break
            self.clock.advance(max(0.0, due - self.clock.seconds()))
        self.clock.advance(end - self.clock.seconds())

    def delivered(self, topic: str = "T", queueId: int = 0) -> list[bytes]:
        """
        The bodies of what has come to a queue.
        """
        return self.bodies(self.store, topic, queueId)

    def messages(self, topic: str = "T", queueId: int = 0) -> list[MessageExt]:
        """
        The messages that have come to a queue.
        """
        return self.all(self.store, topic, queueId)
