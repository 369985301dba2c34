# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's store and ours take turns on one folder.  Not named C{test_...}: it
needs Java, and is run by C{make interop} only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.content import Content, comparable
from tests.interop.driven import Driven, java, ours
from tests.interop.samples import commands, small
from tests.store.support import HOST, abandon
from txrocket.broker.delivery.reroute import Reroutes, encodeSplit
from txrocket.broker.delivery.timers import Timers
from txrocket.broker.delivery.timerwheel import TimerWheel
from txrocket.broker.settings import DelaySettings
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.config import Live
from txrocket.protocol.record import decodeRecord
from txrocket.store.files import Files
from txrocket.store.jsontable import Table
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings
from txrocket.store.verify import Verifier
from txrocket.store.verify.readonly import inUse

Opener = Callable[[StoreSettings], Driven]


class Late:
    """
    Our store, and what delivers messages at their times.
    """

    def __init__(self, settings: StoreSettings, seconds: float) -> None:
        self.clock = Clock()
        self.clock.advance(seconds)
        self.store = MessageStore(settings, self.clock, maybeDeferred, HOST)
        table = Table(Files(), os.path.join(settings.storePathRootDir, "config", "timers.json"))
        self.timers = Timers(
            self.clock,
            self.store,
            TimerWheel(self.store),
            FlushedTable(self.store, table, maybeDeferred),
            Live(DelaySettings()),
            lambda topic, count, size: None,
        )
        self.timers.load()
        self.store.start()
        self.timers.start()

    def send(self, body: bytes, **properties: str) -> None:
        """
        Have a message wait.
        """
        place = Reroutes(self.timers.reroute).place("T", 0, properties)
        self.store.put(place.topic, place.queueId, body, encodeSplit(place.properties), 1, HOST)

    def wait(self, seconds: float) -> None:
        """
        Let time pass.
        """
        self.clock.pump([1.0] * int(seconds) + [seconds % 1])

    def delivered(self) -> list[bytes]:
        """
        What has come.
        """
        found = [self.store.get("T", 0, at, 1) for at in range(self.store.maxOffset("T", 0))]
        return [decodeRecord(each.data).body for each in found]

    def stop(self) -> None:
        """
        Close the folder.
        """
        self.timers.stop()
        self.timers.save()
        self.store.stop()

    def halt(self) -> None:
        """
        End as a process does that is killed.
        """
        abandon(self.store)


class TurnsCase(SynchronousTestCase):
    """
    The base: stores that take turns on a folder.
    """

    def setUp(self) -> None:
        self.settings = small(self.mktemp())
        self.settings = small(os.path.abspath(self.settings.storePathRootDir))

    def java(self, settings: StoreSettings) -> Driven:
        """
        RocketMQ's store, which does not outlive the test.
        """
        store = java(settings)
        self.addCleanup(store.kill)
        return store

    def ours(self, settings: StoreSettings) -> Driven:
        """
        txrocket's store, which does not outlive the test.
        """
        store = ours(settings)
        self.addCleanup(store.kill)
        return store

    def assertSame(self, expected: Content, found: Content) -> None:
        """
        Two dumps tell the same.
        """
        size = self.settings.mappedFileSizeConsumeQueue
        for one, other in zip(comparable(expected, size), comparable(found, size), strict=True):
            self.assertEqual(one, other)

    def write(self, store: Driven, name: str, before: int) -> Content:
        """
        Store one of everything, and read it back.
        """
        sent = list(commands(name))
        for answer in store.put(sent):
            self.assertEqual(answer["status"], "PUT_OK")
        written = store.dump()
        bodies = [each["body"] for each in written if each["kind"] == "record"][before:]
        expected = []
        for each in sent:
            expected += [part["body"] for part in each.get("messages", [each])]
        self.assertEqual(bodies, expected)
        return written

    def verify(self) -> None:
        """
        The folder is sound, and its files have the sizes that Java demands.
        """
        report = Verifier(self.settings.storePathRootDir, slots=50).run()
        abort = os.path.exists(os.path.join(self.settings.storePathRootDir, "abort"))
        # A crash leaves what the next start puts right.
        self.assertEqual([each for each in report.problems if not abort], [])
        for folder, _, names in os.walk(self.settings.storePathRootDir):
            for name in names:
                if len(name) == 20 and name.isdigit():
                    log = folder.endswith("commitlog")
                    self.assertEqual(
                        os.path.getsize(os.path.join(folder, name)),
                        self.settings.mappedFileSizeCommitLog
                        if log
                        else self.settings.mappedFileSizeConsumeQueue,
                    )


class TurnsTests(TurnsCase):
    """
    One writes and ends, the other reads what the first one had read itself, goes
    on writing and ends, and the first one reads all of it.
    """

    def turns(self, first: Opener, second: Opener, end: Callable[[Driven], None]) -> None:
        """
        Take turns, all ending in one way.
        """
        store = first(self.settings)
        written = self.write(store, "A", 0)
        end(store)
        self.verify()
        records = sum(each["kind"] == "record" for each in written)
        store = second(self.settings)
        self.assertSame(written, store.dump())
        written = self.write(store, "B", records)
        end(store)
        self.verify()
        store = first(self.settings)
        self.assertSame(written, store.dump())
        store.stop()
        self.verify()

    def test_javasFolderIsContinued(self) -> None:
        """
        A folder that Java wrote and closed is read and continued by us, and read
        again by Java.
        """
        self.turns(self.java, self.ours, Driven.stop)

    def test_ourFolderIsContinued(self) -> None:
        """
        A folder that we wrote and closed is read and continued by Java, and read
        again by us.
        """
        self.turns(self.ours, self.java, Driven.stop)

    def test_javasFolderIsContinuedAfterCrash(self) -> None:
        """
        The same holds if both end without closing the folder.
        """
        self.turns(self.java, self.ours, Driven.halt)

    def test_ourFolderIsContinuedAfterCrash(self) -> None:
        """
        The same holds if both end without closing the folder.
        """
        self.turns(self.ours, self.java, Driven.halt)

    def test_folderOpenInJavaIsRefused(self) -> None:
        """
        A folder that Java has open is refused, and C{verify} says so as well.
        """
        store = self.java(self.settings)
        self.write(store, "A", 0)
        with self.assertRaisesRegex(AssertionError, "StoreInUse"):
            self.ours(self.settings)
        self.assertTrue(inUse(self.settings.storePathRootDir))
        store.stop()
        self.assertFalse(inUse(self.settings.storePathRootDir))

    def test_folderOpenInOursIsRefused(self) -> None:
        """
        A folder that we have open is refused by Java.
        """
        store = self.ours(self.settings)
        self.write(store, "A", 0)
        with self.assertRaisesRegex(AssertionError, "Lock failed"):
            self.java(self.settings)
        store.stop()

    def test_staleCheckpointDoesNoHarm(self) -> None:
        """
        Our checkpoint, out of date since Java has worked on the folder and
        crashed, does no harm.
        """
        store = self.ours(self.settings)
        self.write(store, "A", 0)
        store.stop()
        store = self.java(self.settings)
        records = sum(each["kind"] == "record" for each in store.dump())
        written = self.write(store, "B", records)
        store.halt()
        store = self.ours(self.settings)
        self.assertSame(written, store.dump())
        store.stop()

    def test_timersAreLeftAloneByJava(self) -> None:
        """
        Messages that wait for times of their own are left alone by Java, also when it
        cleans up, and delivered by us when it is done with the folder.
        """
        self.timers(Late.stop, Driven.stop, 0)

    def test_timersSurviveCrashes(self) -> None:
        """
        The same with both ending without closing the folder.  Queues that Java has made
        again have no times, and they come at their times all the same.
        """
        self.timers(Late.halt, Driven.halt, 1)

    def timers(
        self, endOurs: Callable[[Late], None], endJava: Callable[[Driven], None], again: int
    ) -> None:
        """
        Have Java between us and us.

        @param again: how often what was delivered before comes once more.
        """
        start = time.time()
        late = Late(self.settings, start)
        delays = (1, 400, 3000, 90_000)
        for seconds in delays:
            late.send(b"%d" % seconds, TIMER_DELAY_SEC=str(seconds), TAGS="a")
        late.wait(2)
        self.assertEqual(late.delivered(), [b"1"])
        topics = [topic for topic, _, _ in late.store.queues]
        endOurs(late)
        if endOurs is Late.stop:
            self.verify()
        store = self.java(self.settings)
        store.put(commands("A", 5))
        store.clean([*topics, "Topic0", "Topic1", "Topic2"])
        records = [each for each in store.dump() if each["kind"] == "record"]
        self.assertEqual([each["topic"] for each in records].count("rmq_sys_timer"), len(delays))
        endJava(store)
        late = Late(self.settings, start + 5)
        for seconds in delays[1:]:
            late.wait(start + seconds - late.clock.seconds() - 0.5)
            self.assertNotIn(b"%d" % seconds, late.delivered())
            late.wait(1)
            self.assertEqual(late.delivered()[-1], b"%d" % seconds)
        self.assertEqual(len(late.delivered()), len(delays) + again)
        late.stop()

    def test_delayTableOfJavaIsFound(self) -> None:
        """
        Where Java keeps how far delayed messages are delivered, we find JSON.
        """
        store = self.java(self.settings)
        store.put(commands("A"))
        store.stop()
        path = os.path.join(self.settings.storePathRootDir, "config", "delayOffset.json")
        with open(path, encoding="utf-8") as table:
            self.assertIn("offsetTable", json.load(table))
