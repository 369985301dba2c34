# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.delivery.timers} and L{txrocket.broker.delivery.timerwheel}.
"""

from __future__ import annotations

import os
import shutil
import struct
from typing import Any

import attrs

from tests.broker import deliverycontract
from tests.broker.deliverycontract import FULL
from tests.broker.late import LEVELS, LateCase
from tests.store.support import LOG_SIZE, SLOTS, START, Held
from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.delivery.reroute import Reroutes, encodeSplit
from txrocket.broker.delivery.timers import TimerProgress, Timers
from txrocket.broker.delivery.timerwheel import TIMER_QUEUES, TimerWheel
from txrocket.broker.settings import DelaySettings
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.config import Live
from txrocket.errors import MessageIllegal, RemoteSystemError
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.store.dispatch import TIMER_TOPIC
from txrocket.store.queue import consumequeues
from txrocket.store.settings import FlushDiskType, delayLevels
from txrocket.store.verify import Verifier

NOW = START * 1000
HOUR = 3600
DAY = 24 * HOUR


# What a store does every so often, seldom: so that days pass in a second.
SELDOM: dict[str, Any] = {
    "flushIntervalCommitLog": 600_000,
    "flushIntervalConsumeQueue": 600_000,
    "cleanResourceInterval": 600_000,
}


class TimerCase(LateCase):
    """
    Timers on a wheel whose size a test says.
    """

    wheel: dict[str, Any] = {}
    settings = DelaySettings()
    timers: Timers

    def makeDeliveries(self) -> list[Any]:
        def counted(*told: Any) -> None:
            self.onDelivered(*told)

        levels = delayLevels(self.store.settings.messageDelayLevel)
        table = self.table("delayOffset.json")
        self.delays = DelayLevels(self.clock, self.store, table, self.thread, levels, counted)
        self.live = Live(self.settings)
        self.timers = Timers(
            self.clock,
            self.store,
            TimerWheel(self.store, **self.wheel),
            FlushedTable(self.store, self.table("timers.json"), self.thread),
            self.live,
            counted,
        )
        self.reroutes = Reroutes(self.delays.reroute, self.timers.reroute)
        return [self.delays, self.timers]

    def sendIn(self, milliseconds: int, body: bytes = b"x", /, **properties: str) -> None:
        """
        Send a message that is due in a number of milliseconds.
        """
        when = round(self.wall() * 1000) + milliseconds
        self.send(body, TIMER_DELIVER_MS=str(when), **properties)

    def progress(self) -> TimerProgress:
        """
        The saved progress.
        """
        return decodeBody(TimerProgress, self.bytesOf("config", "timers.json"))

    def waiting(self) -> dict[int, int]:
        """
        How many messages each queue has had.
        """
        return {
            queueId: end
            for queueId in range(TIMER_QUEUES)
            if (end := self.store.maxOffset(TIMER_TOPIC, queueId))
        }


class RequestedTimeTests(TimerCase):
    """
    Messages that are parked.
    """

    def setUp(self) -> None:
        super().setUp()
        self.open()

    def test_everyPropertyDelays(self) -> None:
        """
        By each property, of 5.x and of ali-ons, a message comes when it says.
        """
        for number, (name, text) in enumerate(
            (
                ("TIMER_DELAY_SEC", "2"),
                ("TIMER_DELAY_MS", "2000"),
                ("TIMER_DELIVER_MS", str(NOW + 2000)),
                ("__STARTDELIVERTIME", str(NOW + 2000)),
            )
        ):
            self.send(b"%d" % number, **{name: text})
        self.wait(1.999)
        self.assertEqual(self.delivered(), [])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"0", b"1", b"2", b"3"])
        self.assertEqual([each[:2] for each in self.counted], [("T", 1)] * 4)

    def test_messageComesInItsMillisecond(self) -> None:
        """
        Each comes in its millisecond.
        """
        for milliseconds in (7, 1, 300, 299_999, 300_000, 300_001, 3, 2):
            self.sendIn(milliseconds)
        self.wait(400)
        self.assertEqual(
            [each.storeTimestamp - NOW for each in self.messages()],
            [1, 2, 3, 7, 300, 299_999, 300_000, 300_001],
        )

    def test_deliveredMessageSaysWhenItWasDue(self) -> None:
        """
        A delivered message says when it was due, and where it waited; all else is as it was
        sent.
        """
        properties = {"TIMER_DELAY_MS": "1500", "TAGS": "a", "UNIQ_KEY": "u"}
        born = bytes.fromhex("20010db8000000000000000000000007") + (50123).to_bytes(4, "big")
        place = self.reroutes.place("T", 2, properties)
        fields: Any = [1700000000007, born, 2, 0x18, 3]
        self.store.put(place.topic, place.queueId, b"body", encodeSplit(place.properties), *fields)
        self.wait(2)
        [message] = self.messages("T", 2)
        self.assertEqual(
            message.properties,
            {
                "TAGS": "a",
                "UNIQ_KEY": "u",
                "TIMER_OUT_MS": str(NOW + 1500),
                "REAL_TOPIC": "T",
                "REAL_QID": "2",
            },
        )
        self.assertEqual(message.body, b"body")
        self.assertEqual((message.bornTimestamp, message.bornHostData), (1700000000007, born))
        self.assertEqual((message.flag, message.sysFlag, message.reconsumeTimes), (2, 0x18, 3))

    def test_pastTimeIsNotParked(self) -> None:
        """
        A message whose time is over is not parked.
        """
        for body, name, text in (
            (b"a", "TIMER_DELIVER_MS", str(NOW)),
            (b"b", "TIMER_DELIVER_MS", "1"),
            (b"c", "TIMER_DELAY_MS", "0"),
            (b"d", "TIMER_DELAY_SEC", "-7"),
            (b"e", "__STARTDELIVERTIME", "0"),
        ):
            self.send(body, **{name: text})
        self.wait()
        self.assertEqual(self.delivered(), [b"a", b"b", b"c", b"d", b"e"])
        self.assertEqual(self.waiting(), {})

    def test_messageDueInLongTurnHasLaterTime(self) -> None:
        """
        A message whose time comes during a turn of the reactor has no store time before it,
        although messages of one turn share theirs.
        """
        self.send(b"first")
        # The turn takes long: nothing else happens meanwhile.
        self.clock.rightNow += 0.05
        self.send(b"due", TIMER_DELIVER_MS=str(NOW + 30))
        self.send(b"later")
        self.wait()
        times = {each.body: each.storeTimestamp for each in self.messages()}
        self.assertEqual(times, {b"first": NOW, b"due": NOW + 50, b"later": NOW + 50})

    def test_tooFarTimeIsRefused(self) -> None:
        """
        As far away as timerMaxDelaySec is not too far; more is refused, and told why.
        """
        self.send(TIMER_DELAY_SEC=str(3 * DAY))
        self.sendIn(3 * DAY * 1000)
        for properties in (
            {"TIMER_DELAY_SEC": str(3 * DAY + 1)},
            {"TIMER_DELIVER_MS": str(NOW + 3 * DAY * 1000 + 1)},
            {"__STARTDELIVERTIME": "9" * 15},
        ):
            with self.assertRaisesRegex(MessageIllegal, "timerMaxDelaySec is 259200"):
                self.send(**properties)
        self.live.now = attrs.evolve(self.live.now, timerMaxDelaySec=10)
        with self.assertRaisesRegex(MessageIllegal, "TIMER_DELAY_SEC: .* in 11 s, .* is 10"):
            self.send(TIMER_DELAY_SEC="11")
        self.send(TIMER_DELAY_SEC="10")

    def test_disabledTimersRefuseMessages(self) -> None:
        """
        If timerWheelEnable is false no such message is taken; those that wait come all
        the same, and what is to be delivered now is not concerned, such as one that has
        come and is sent back.
        """
        self.sendIn(1000, b"before")
        self.live.now = attrs.evolve(self.live.now, timerWheelEnable=False)
        with self.assertRaisesRegex(RemoteSystemError, "timerWheelEnable is false"):
            self.send(TIMER_DELIVER_MS=str(NOW + 1))
        self.send(b"now", TIMER_DELIVER_MS=str(NOW))
        self.wait(1)
        self.assertEqual(self.delivered(), [b"now", b"before"])

    def test_invalidTimeIsRefused(self) -> None:
        """
        A time that is not a number is refused.
        """
        with self.assertRaisesRegex(MessageIllegal, "TIMER_DELAY_MS 'soon' is no number"):
            self.send(TIMER_DELAY_MS="soon")

    def test_levelTakesPrecedence(self) -> None:
        """
        A message of a level waits for its level, and its time does not count; level 0 is no
        level.
        """
        self.send(b"level", DELAY="2", TIMER_DELAY_MS="1")
        self.send(b"time", DELAY="0", TIMER_DELAY_MS="6000")
        self.wait(5)
        [message] = self.messages()
        self.assertEqual(message.body, b"level")
        self.assertNotIn("TIMER_DELAY_MS", message.properties)
        self.wait(1)
        self.assertEqual(self.delivered(), [b"level", b"time"])

    def test_deliveredMessageIsNotParkedAgain(self) -> None:
        """
        A delivered message that is sent again is not parked again.
        """
        for name, text in (("TIMER_DELAY_SEC", "1"), ("TIMER_DELIVER_MS", str(NOW + 1000))):
            self.send(b"x", **{name: text})
        self.wait(1)
        for message in self.messages():
            self.send(b"again", "R", **message.properties)
        self.wait()
        self.assertEqual(self.delivered("R"), [b"again", b"again"])


class WheelTests(TimerCase):
    """
    The queues in which messages are parked.
    """

    def test_sameFiveMinutesShareAQueue(self) -> None:
        """
        Messages of the same five minutes wait in the same queue, twelve hours around.
        """
        self.open()
        number = NOW // 300_000
        start = number * 300_000 - NOW
        for minutes in (4, 5, 9, 60, 700):
            self.sendIn(start + minutes * 60_000 + 30_000)
        self.wait()
        self.assertEqual(
            self.waiting(),
            {(number + each) % 144: 2 if each == 1 else 1 for each in (0, 1, 12, 140)},
        )

    def test_farMessageWaitsInAnEarlierBucket(self) -> None:
        """
        A message that is due beyond the wheel waits in a bucket before its end, and then in
        later ones; it comes in its millisecond.
        """
        self.open(**SELDOM)
        number = NOW // 300_000
        self.sendIn(2 * DAY * 1000 + 7, b"far")
        self.wait()
        self.assertEqual(self.waiting(), {(number + 140) % 144: 1})
        self.wait(12 * HOUR)
        self.assertEqual(sum(self.waiting().values()), 2)
        self.wait(36 * HOUR + 0.006)
        self.assertEqual(self.delivered(), [])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"far"])
        self.assertEqual(sum(self.waiting().values()), 5)

    def test_shortRetentionMovesEarlier(self) -> None:
        """
        Where files are kept for a shorter time messages are put anew before half of it
        is over, and so are never in a file that is deleted.
        """
        written: dict[str, float] = {}
        pwrite = self.disk.pwrite

        def watched(handle: int, data: bytes, offset: int) -> None:
            written[self.disk.opened[handle]] = self.clock.seconds()
            pwrite(handle, data, offset)

        self.disk.pwrite = watched  # type: ignore[method-assign]
        self.disk.modified = written.__getitem__  # type: ignore
        hours = ";".join(map(str, range(24)))
        self.open(**{**SELDOM, "fileReservedTime": 1, "deleteWhen": hours})
        sent = [b"%d" % number * (LOG_SIZE // 3) for number in range(9)]
        for number, body in enumerate(sent):
            self.sendIn((1 + number * 1500) * 1000, body)
        found: list[bytes] = []
        for _ in sent:
            self.wait(1500)
            found += self.delivered()[-1:]
        self.assertEqual(found, sent)
        # Where they waited first is gone.
        self.assertGreater(self.store.log.first, 9 * (LOG_SIZE // 3))

    def test_zeroRetentionStillDelivers(self) -> None:
        """
        If files are not kept at all, messages come all the same, as long as they are in
        one.
        """
        self.open(fileReservedTime=0)
        self.sendIn(40 * 60_000, b"x")
        self.wait(40 * 60)
        self.assertEqual(self.delivered(), [b"x"])

    def test_runtimeCountsParkedMessages(self) -> None:
        """
        How many wait can be told.
        """
        self.open()
        self.assertEqual(self.timers.runtime(), {"timerCongestNum": 0})
        for seconds in (1, 2, 600, 7000):
            self.sendIn(seconds * 1000)
        self.wait()
        self.assertEqual(self.timers.runtime(), {"timerCongestNum": 4})
        self.wait(600)
        self.assertEqual(self.timers.runtime(), {"timerCongestNum": 1})

    def test_javasEntryIsDelivered(self) -> None:
        """
        An entry that Java has made again, with the hash of a tag, is as good as any: the
        record has the time.
        """
        self.open()
        self.sendIn(750_000, b"tagged", TAGS="a")
        self.sendIn(850_000, b"bare")
        self.close()
        for name in os.listdir(self.path("consumequeue", TIMER_TOPIC)):
            path = self.path("consumequeue", TIMER_TOPIC, name, "0" * 20)
            with open(path, "r+b") as file:
                file.seek(12)
                file.write(struct.pack(">q", 97))
        self.open()
        self.wait(900)
        self.assertEqual(self.delivered(), [b"tagged", b"bare"])
        self.assertEqual(
            [each.storeTimestamp - NOW for each in self.messages()], [750_000, 850_000]
        )

    def test_damagedEntryDelivered(self) -> None:
        """
        A message whose entry names a wrong place, size or time is delivered, and not
        before its time.
        """
        for position, data in (
            (0, bytes(7) + b"\x01"),
            (0, b"\xff" * 8),
            (8, (200).to_bytes(4, "big")),
            (8, b"\xff"),
            (12, (NOW + 20_000 & ~(1 << 39)).to_bytes(8, "big")),
            (12, (NOW + 20_000 | 1 << 60).to_bytes(8, "big")),
        ):
            with self.subTest(position=position, data=data):
                self.root = self.mktemp()
                self.open()
                self.sendIn(20_000, b"a")
                self.close()
                [name] = os.listdir(self.path("consumequeue", TIMER_TOPIC))
                with open(self.path("consumequeue", TIMER_TOPIC, name, "0" * 20), "r+b") as file:
                    file.seek(position)
                    file.write(data)
                self.open()
                self.store.queues._ahead.clear()
                self.wait(19)
                self.assertEqual(self.delivered(), [])
                self.wait(900)
                self.assertEqual(self.delivered(), [b"a"])
                self.close()

    def test_undeliverableMessageIsSkipped(self) -> None:
        """
        A record that does not say where it belongs, or when, is passed over, and so is
        an entry that stands for nothing.
        """
        self.open()
        queueId = NOW // 300_000 % 144
        place: Any = {"topic": TIMER_TOPIC, "queueId": queueId}
        self.put(self.store, b"no place", **place, TIMER_OUT_MS=str(NOW + 10))
        self.put(self.store, b"no time", **place, REAL_TOPIC="T", REAL_QID="0")
        self.store.appender.nexts[TIMER_TOPIC, queueId] = 5
        self.sendIn(20, b"fine")
        self.wait(1)
        self.assertEqual(self.delivered(), [b"no time", b"fine"])

    def test_folderPassesVerify(self) -> None:
        """
        A folder with such messages is as it should be, also one that was not closed.
        """
        self.open()
        for seconds in (1, 60, 4000, 90_000):
            self.sendIn(seconds * 1000, TAGS="a")
        self.wait(2)
        self.close()
        self.assertEqual(Verifier(self.root, slots=SLOTS, levels=LEVELS).run().problems, [])
        self.open()
        self.sendIn(5000)
        self.wait(1)
        self.crash()
        self.open()
        self.close()
        self.assertEqual(Verifier(self.root, slots=SLOTS, levels=LEVELS).run().problems, [])


class ManyTests(TimerCase):
    """
    More messages than are held in memory, and all in their turn.
    """

    wheel = {"unit": 1000, "queues": 8, "most": 20}

    def setUp(self) -> None:
        super().setUp()
        self.open(mappedFileSizeConsumeQueue=20 * 300)

    def test_manyOfOneSecondKeepOrder(self) -> None:
        """
        Many messages of one second come in the order of their times, each in its
        millisecond.
        """
        numbers = [number * 7 % 500 for number in range(500)]
        for number in numbers:
            self.sendIn(2000 + number, b"%d" % number)
        self.wait(1.99)
        bucket = self.timers._coming
        assert bucket is not None
        self.assertEqual(len(bucket._heap), 20)
        self.wait(0.6)
        self.assertEqual(
            [(int(each.body), each.storeTimestamp - NOW) for each in self.messages()],
            [(number, 2000 + number) for number in range(500)],
        )

    def test_manyOfOneTimeTakeSeveralTurns(self) -> None:
        """
        Many messages of the same time come in the order of their sends, and not all in one
        turn.
        """
        bodies = [b"%d" % number for number in range(300)]
        for body in bodies:
            self.sendIn(700, body)
        counts = self.watchReads()
        self.wait(0.7)
        self.assertEqual(self.delivered(), bodies)
        self.assertEqual(counts, [20] * 15)

    def test_manyMessagesTakeSeveralTurns(self) -> None:
        """
        Many that are in memory, and long ones, are delivered in several turns.
        """
        self.crash()
        self.wheel = {}
        self.open(mappedFileSizeCommitLog=1 << 24)
        for _ in range(300):
            self.sendIn(700)
        for _ in range(5):
            self.sendIn(800, bytes(300 * 1024))
        counts = self.watchReads()
        self.wait(1)
        self.assertEqual(counts, [128, 128, 44, 3, 2])

    def test_manyFarMessagesKeepOrder(self) -> None:
        """
        Many far messages are put into other buckets in several turns, and come in order.
        """
        bodies = [b"%d" % number for number in range(300)]
        for number, body in enumerate(bodies):
            self.sendIn(20_000 + number, body)
        self.wait(30)
        self.assertEqual(self.delivered(), bodies)

    def test_newMessageIsDeliveredInOrder(self) -> None:
        """
        A new message that is due before the next of the others comes before it.
        """
        for milliseconds in range(100, 400, 10):
            self.sendIn(milliseconds, b"old %d" % milliseconds)
        self.wait(0.15)
        for milliseconds in (5, 15, 1):
            self.sendIn(milliseconds, b"new %d" % (milliseconds + 150))
        self.wait(1)
        found = [int(each.split()[1]) for each in self.delivered()]
        self.assertEqual(found, sorted(found))
        self.assertEqual(len(found), 33)

    def test_steadySendsDoNotDelayDelivery(self) -> None:
        """
        Where messages come all the time, others are delivered all the same.
        """
        for number in range(2000):
            self.sendIn(5, b"%d" % number)
            self.clock.advance(0.001)
        self.assertEqual(len(self.delivered()), 1995)


class ClockTests(TimerCase):
    """
    When the clock is set.
    """

    def setBack(self, seconds: float) -> None:
        """
        Set the time of day back: timers do not follow it.
        """
        self.shift -= seconds

    def test_clockSetBackKeepsTimes(self) -> None:
        """
        After the clock was set back, messages come when it shows their time, also those
        whose bucket was over already.
        """
        self.open()
        self.sendIn(2000 * 1000, b"later")
        self.wait(1900)
        self.setBack(1800)
        self.sendIn(1000, b"soon")
        self.sendIn(600_000, b"ten minutes")
        for seconds, found in (
            (0.999, []),
            (0.001, [b"soon"]),
            (598.999, [b"soon"]),
            (0.001, [b"soon", b"ten minutes"]),
            (1299.999, [b"soon", b"ten minutes"]),
            (0.001, [b"soon", b"ten minutes", b"later"]),
        ):
            self.wait(seconds)
            self.assertEqual(self.delivered(), found)

    def test_clockSetBackAndRestartKeepTimes(self) -> None:
        """
        The same holds with a restart between.
        """
        self.open()
        self.sendIn(2000 * 1000, b"later")
        self.wait(1900)
        self.setBack(1800)
        self.sendIn(600_000, b"ten minutes")
        self.close()
        self.open()
        self.sendIn(1000, b"soon")
        self.wait(3000)
        self.assertEqual(self.delivered(), [b"soon", b"ten minutes", b"later"])

    def test_clockSetAheadDeliversOverdue(self) -> None:
        """
        If the clock jumps ahead, all overdue messages come, in order.
        """
        self.open()
        for seconds in (86_000, 4000, 400, 4, 90_000):
            self.sendIn(seconds * 1000, b"%d" % seconds)
        self.wait(1)
        self.shift += 87_000
        self.timers.look()
        self.wait()
        self.assertEqual(self.delivered(), [b"4", b"400", b"4000", b"86000"])

    def test_clockSetAheadAndBackKeepsTimes(self) -> None:
        """
        After the clock was a year ahead for a while, messages come when it shows their
        time, also over a restart.
        """
        self.open()
        self.wait(1)
        self.shift += 365 * DAY
        self.timers.look()
        self.sendIn(5000, b"ahead")
        self.wait(6)
        self.assertEqual(self.delivered(), [b"ahead"])
        self.shift -= 365 * DAY
        self.timers.look()
        self.sendIn(5000, b"soon")
        self.sendIn(1000 * 1000, b"later")
        self.wait(4.9)
        self.assertEqual(self.delivered(), [b"ahead"])
        self.wait(0.2)
        self.assertEqual(self.delivered(), [b"ahead", b"soon"])
        self.close()
        self.open()
        self.wait(994)
        self.assertEqual(self.delivered(), [b"ahead", b"soon"])
        self.wait(2)
        self.assertEqual(self.delivered(), [b"ahead", b"soon", b"later"])

    def test_correctedClockGoesOnAtOnce(self) -> None:
        """
        A broker that began with a clock years behind goes on at once when it is set
        right, and what has come since is not handed around for long.
        """
        self.open()

        def delivered(*told: Any) -> None:
            # It is not yet known that there is nothing else.
            if len(self.counted) < 3:
                self.sendIn(1000, b"new")
            self.counted.append(told)

        self.onDelivered = delivered
        self.sendIn(5000, b"old")
        self.wait(1)
        self.shift += 5 * 365 * DAY
        self.timers.look()
        self.wait(1)
        self.assertEqual(self.delivered()[:2], [b"old", b"new"])
        self.assertLess(sum(self.waiting().values()), 20)


class RestartTests(TimerCase):
    """
    Ending and beginning again.
    """

    def test_stopDeliversNothingTwice(self) -> None:
        """
        After a stop what was delivered is not delivered again, what is overdue comes at
        once and in order, and the rest when it is due.
        """
        self.options = {**self.options, **SELDOM}
        self.open()
        for seconds in (1, 3000, 500, 2, 100_000, 90_000, 5):
            self.sendIn(seconds * 1000, b"%d" % seconds)
        self.wait(3)
        self.close()
        self.clock.advance(4000)
        self.open()
        self.wait()
        self.assertEqual(self.delivered(), [b"1", b"2", b"5", b"500", b"3000"])
        self.close()
        self.open()
        self.wait(85_996)
        self.assertEqual(self.delivered()[5:], [])
        self.wait(1)
        self.assertEqual(self.delivered()[5:], [b"90000"])
        self.wait(10_000)
        self.assertEqual(self.delivered()[6:], [b"100000"])

    def test_longStopKeepsOrder(self) -> None:
        """
        After a stop of weeks all that is overdue comes in the order of its times.
        """
        self.open()
        seconds = [1, 70_000, 300, 172_800, 500, 50_000, 259_200, 42_300, 100_000, 42_600]
        for each in seconds:
            self.sendIn(each * 1000, b"%d" % each)
        self.close()
        self.clock.advance(30 * DAY)
        self.open()
        self.sendIn(1000, b"new")
        self.wait()
        self.assertEqual(self.delivered(), [b"%d" % each for each in sorted(seconds)])
        self.wait(1)
        self.assertEqual(self.delivered()[-1], b"new")

    def test_crashAfterMoveDeliversMovedMessage(self) -> None:
        """
        A message that was put into another bucket just before a crash may be in both, and
        comes.
        """
        self.wheel = {"unit": 1000, "queues": 8}
        self.open()
        self.sendIn(15_000, b"far")
        self.save()
        self.wait(6)
        self.assertEqual(sum(self.waiting().values()), 2)
        self.crash()
        self.open()
        self.wait(10)
        self.assertEqual(set(self.delivered()), {b"far"})
        self.assertEqual({each.storeTimestamp - NOW for each in self.messages()}, {15_000})

    def test_missingFileDeliversOverdue(self) -> None:
        """
        Without C{timers.json} all overdue messages in the queues are delivered, also those
        delivered before, and the rest when it is due.
        """
        self.options = {**self.options, **SELDOM}
        self.open()
        for seconds in (1, 2000, 20_000, 50_000):
            self.sendIn(seconds * 1000, b"%d" % seconds)
        self.wait(10)
        self.close()
        os.remove(self.path("config", "timers.json"))
        self.clock.advance(3000)
        self.open()
        self.wait(10)
        self.assertEqual(self.delivered(), [b"1", b"1", b"2000"])
        self.wait(16_979)
        self.assertEqual(self.delivered(), [b"1", b"1", b"2000"])
        self.wait(33_000)
        self.assertEqual(self.delivered(), [b"1", b"1", b"2000", b"20000", b"50000"])

    def test_deletedQueueCountsFromZero(self) -> None:
        """
        A deleted queue, as of a Java broker whose messages are all too old, counts from 0
        again, and so does its progress.
        """
        self.open()
        for _ in range(3):
            self.sendIn(1000)
            self.sendIn(400_000)
        self.wait(500)
        self.close()
        self.assertEqual([each for each in self.progress().offsets.values() if each], [3, 3])
        for name in os.listdir(self.root):
            if name != "config":
                shutil.rmtree(self.path(name), ignore_errors=True)
        os.remove(self.path("checkpoint"))
        self.clock.advance(12 * HOUR - 500)
        self.open()
        self.sendIn(1000, b"a")
        self.sendIn(400_000, b"b")
        self.wait(500)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_deletedFilesAreSkipped(self) -> None:
        """
        Messages whose files of the log are gone are passed over, and the others come.
        """
        self.open()
        for number in range(30):
            self.sendIn(10_000 + number, b"%02d" % number * (LOG_SIZE // 10))
        self.wait(1)
        for _ in range(3):
            self.store.log.segments.removeFirst()
        self.store.retention.follow()
        [queueId] = self.waiting()
        gone = self.store.minOffset(TIMER_TOPIC, queueId)
        # And a file of the queue with them.
        self.assertGreater(gone, 10)
        self.crash()
        self.open()
        self.wait(10)
        found = [int(each[:2]) for each in self.delivered()]
        self.assertEqual(found, list(range(gone, 30)))

    def test_unusedTimersWriteNothing(self) -> None:
        """
        A broker that has never had such a message writes nothing.
        """
        self.open()
        self.wait(1000)
        self.close()
        self.assertFalse(os.path.exists(self.path("config", "timers.json")))

    def test_startReadsNoLaterMessages(self) -> None:
        """
        A start reads nothing of messages that are due later.
        """
        self.open()
        for number in range(500):
            self.sendIn(400_000 + number * 60_000)
        self.close()
        self.disk.preads.clear()
        self.open()
        started = len(self.disk.preads)
        self.wait(60)
        self.assertLess(len(self.disk.preads) - started, 5)


class ContractTests(TimerCase, deliverycontract.DeliveryContract):
    """
    Timers keep the rules of late delivery.
    """

    tableName = "timers.json"
    later = 400
    unreadable = ("{", "{}", '{"bucket":"x"}')

    @property
    def delivery(self) -> Timers:
        return self.timers

    def sendLate(self, seconds: int, body: bytes = b"x", /) -> int:
        offset = self.store.log.end
        self.sendIn(seconds * 1000, body)
        return offset

    def savedCount(self) -> int:
        return self.progress().state.base

    def test_fullDiskDelaysFarMessages(self) -> None:
        """
        Messages for another bucket wait for the disk as well, and are put once.
        """
        self.wheel = {"unit": 1000, "queues": 8}
        self.open()
        bodies = [b"%d" % number * (LOG_SIZE // 3) for number in range(6)]
        for body in bodies:
            self.sendIn(9500, body)
        self.wait(3)
        self.disk.failing["pwrite"] = FULL
        self.disk.only = f"{self.store.log.segments.end + LOG_SIZE:020d}"
        self.wait(3)
        self.disk.failing.clear()
        self.wait(4)
        self.assertEqual(self.delivered(), bodies)
        self.assertEqual(sum(self.waiting().values()), 12)

    def bucket(self) -> int:
        """
        The number of the bucket that is being delivered, as it is saved.
        """
        self.save()
        return self.progress().bucket

    def test_undispatchedBucketIsNotLeft(self) -> None:
        """
        While a full disk keeps messages from their queue, its bucket is not left; so
        they come after the next look.
        """
        self.patch(consumequeues, "TAILS", 0)
        self.open()
        self.wait(1)
        left = (NOW // 300_000 + 1) * 300 - START
        self.wait(left - 10)
        number = NOW // 300_000
        self.disk.failing["pwrite"] = FULL
        self.disk.only = "consumequeue"
        self.sendIn(1000, b"a")
        self.wait(30)
        self.assertEqual(self.bucket(), number)
        self.disk.failing.clear()
        self.wait(3)
        self.timers.look()
        self.wait()
        self.assertEqual(self.delivered(), [b"a"])
        self.assertEqual(self.bucket(), number + 1)

    def test_deliveryWaitsForDisk(self) -> None:
        """
        SYNC_FLUSH: what is delivered is so once it is on the disk, or has waited for it
        as long as may be.
        """
        self.thread = held = Held()
        self.open(flushDiskType=FlushDiskType.SYNC_FLUSH)
        for _ in range(200):
            self.sendIn(1000)
        self.wait(0.5)
        while held.jobs:
            held.work()
        self.wait(0.5)
        self.assertEqual(len(self.delivered()), 128)
        self.sendIn(1)
        self.wait(4)
        self.assertEqual(len(self.delivered()), 128)
        self.wait(1)
        self.assertEqual(len(self.delivered()), 201)
