# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.delivery.delaylevels} and L{txrocket.broker.delivery.reroute}.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.broker import deliverycontract
from tests.broker.deliverycontract import FULL
from tests.broker.late import LateCase
from tests.store.support import HOST, LOG_SIZE, START, Held
from txrocket.broker.delivery import delaylevels as delay
from txrocket.broker.delivery.reroute import (
    Destination,
    Reroutes,
    encodeSplit,
    parkIn,
    realDestination,
)
from txrocket.errors import (
    InvalidMessage,
    MalformedRecord,
    MessageIllegal,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.offsets import DelayOffsetSerializeWrapper
from txrocket.protocol.record import decodeRecord, encodeProperties, encodeRecord, encodeTopic
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.jsontable import sealed
from txrocket.store.queue import consumequeues
from txrocket.store.settings import FlushDiskType

NOW = START * 1000


class RerouteTests(SynchronousTestCase):
    """
    L{Reroutes} and its functions.
    """

    def test_firstRerouteDecides(self) -> None:
        """
        Reroutes are asked in order, and the first that keeps a message has it.
        """
        asked = []

        def passing(place: Destination) -> None:
            asked.append("passing")

        def keeping(place: Destination) -> Destination:
            asked.append("keeping")
            return parkIn("rmq_sys_x", 7, place)

        reroutes = Reroutes(passing, keeping, passing)
        self.assertEqual(
            reroutes.place("T", 3, {"a": "b"}),
            ("rmq_sys_x", 7, {"a": "b", "REAL_TOPIC": "T", "REAL_QID": "3"}),
        )
        self.assertEqual(asked, ["passing", "keeping"])
        self.assertEqual(Reroutes(passing).place("T", 3, {}), ("T", 3, {}))

    def test_onlyWrittenDestinationIsRead(self) -> None:
        """
        The destination of a message is read as it was written, and nothing else is taken
        for it.
        """

        def place(**properties: str) -> tuple[str, int]:
            record = encodeRecord(
                *(encodeTopic("X"), b"", encodeProperties(properties), 0, 0, 0, 0, 0, 1, HOST),
                *(1, HOST, 0, 0),
            )
            return realDestination(decodeRecord(record))

        self.assertEqual(place(REAL_TOPIC="T", REAL_QID="12"), ("T", 12))
        for bad in (
            {},
            {"REAL_TOPIC": "T"},
            {"REAL_QID": "1"},
            {"REAL_TOPIC": "T", "REAL_QID": "-1"},
            {"REAL_TOPIC": "T", "REAL_QID": "1_0"},
            {"REAL_TOPIC": "T", "REAL_QID": "²"},
        ):
            with self.assertRaisesRegex(MalformedRecord, "does not say which topic"):
                place(**bad)

    def test_tooManyPropertiesAreRefused(self) -> None:
        """
        Properties are encoded as in a record, unless they are too long.
        """
        self.assertEqual(encodeSplit({"a": "b\x01c", "d": "é"}), "a\x01b\x01c\x02d\x01é".encode())
        with self.assertRaisesRegex(InvalidMessage, "32767"):
            encodeSplit({"a": "x" * 32766})


class LevelTests(LateCase):
    """
    When and how messages of levels are delivered.
    """

    def setUp(self) -> None:
        super().setUp()
        self.open()

    def test_messageWaitsForItsLevel(self) -> None:
        """
        A message waits as long as its level says, to the millisecond.
        """
        for level, seconds in enumerate((1, 5, 10, 30, 60), 1):
            body = b"%d" % level
            self.send(body, "T", level, DELAY=str(level))
            self.wait(seconds - 0.001)
            self.assertEqual(self.delivered(queueId=level), [])
            self.wait(0.001)
            self.assertEqual(self.delivered(queueId=level), [body])
        self.assertEqual([each[:2] for each in self.counted], [("T", 1)] * 5)

    def test_levelsAreIndependent(self) -> None:
        """
        Levels do not wait for each other.
        """
        for level in "54321":
            self.send(level.encode(), DELAY=level)
            self.wait(0.1)
        self.wait(70)
        self.assertEqual(self.delivered(), [b"1", b"2", b"3", b"4", b"5"])

    def damage(self, queueOffset: int, position: int, data: bytes) -> None:
        """
        Change an entry of the first level on the disk.
        """
        path = self.path("consumequeue", SCHEDULE_TOPIC, "0", f"{0:020d}")
        with open(path, "r+b") as file:
            file.seek(queueOffset * 20 + position)
            file.write(data)
        self.store.queues._ahead.clear()

    def test_damagedEntryDelivered(self) -> None:
        """
        A message whose entry names a wrong place, size or time is delivered when its
        record says, and the damage is told.
        """
        far = (NOW + 1000 | 1 << 60).to_bytes(8, "big")
        early = (NOW + 1000 & ~(1 << 38)).to_bytes(8, "big")
        for position, data in (
            (0, bytes(7) + b"\x01"),
            (0, b"\xff" * 8),
            (8, (200).to_bytes(4, "big")),
            (8, b"\x40"),
            (12, far),
            (12, early),
        ):
            with self.subTest(position=position, data=data):
                self.root = self.mktemp()
                self.open()
                bodies = [b"%d" % number for number in range(3)]
                for body in bodies:
                    self.send(body, DELAY="1")
                self.store.write()
                self.damage(1, position, data)
                with capturedLogs() as logs:
                    self.wait(0.999)
                    self.assertEqual(self.delivered(), [])
                    self.wait(0.001)
                    self.assertEqual(self.delivered(), bodies)
                told = [each for each in logs if each["log_level"] is LogLevel.error]
                self.assertEqual([each["queueOffset"] for each in told], [1])
                self.close()

    def test_orderOfLevelIsKept(self) -> None:
        """
        Messages of one level come in the order in which they were sent, also more than
        are delivered at a time.
        """
        bodies = [b"%d" % number for number in range(300)]
        for body in bodies:
            self.send(body, DELAY="1")
        self.wait(0.999)
        self.assertEqual(self.delivered(), [])
        self.wait(0.001)
        self.assertEqual(self.delivered(), bodies)
        self.assertEqual(self.delays.offsets, {1: 300})

    def test_manyMessagesTakeSeveralTurns(self) -> None:
        """
        Many messages, and long ones, are delivered in several turns of the reactor.
        """
        counts = self.watchReads()
        for _ in range(300):
            self.send(DELAY="1")
        self.wait(1)
        self.assertEqual(len(self.delivered()), 300)
        # They lie in files of 10 entries, and a read ends with a file.
        self.assertEqual(counts, [10] * 30)

    def test_longMessagesAreReadInPortions(self) -> None:
        """
        Of long messages few are held in memory at a time.
        """
        self.crash()
        self.open(mappedFileSizeCommitLog=1 << 24)
        counts = self.watchReads()
        for _ in range(5):
            self.send(bytes(300 * 1024), DELAY="1")
        self.wait(1)
        self.assertEqual(counts, [3, 2])
        # One that is longer than all that goes at a time goes as well.
        self.send(bytes(2 * 1024 * 1024), DELAY="1")
        self.wait(1)
        self.assertEqual(counts, [3, 2, 1])
        self.assertEqual(len(self.delivered()), 6)

    def test_levelAboveLastIsLast(self) -> None:
        """
        A level above the last becomes the last, in the stored property as well
        (C{CommitLog} of 4.9.7).
        """
        self.send(DELAY="6")
        self.send(DELAY="99999999999")
        self.wait(60)
        self.assertEqual([each.properties["DELAY"] for each in self.messages()], ["5", "5"])
        self.assertEqual(self.delays.offsets, {5: 2})

    def test_levelZeroIsNoLevel(self) -> None:
        """
        Level 0, and less, is no level.
        """
        self.send(b"a", DELAY="0")
        self.send(b"b", DELAY="-3")
        self.wait()
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.assertEqual(self.messages()[1].properties, {"DELAY": "-3"})

    def test_invalidLevelIsRefused(self) -> None:
        """
        A level that is not a number is refused.
        """
        for text in ("soon", "1.5", "9" * 5000):
            with self.assertRaisesRegex(MessageIllegal, "is no number"):
                self.send(DELAY=text)

    def test_deliveredMessageIsJavas(self) -> None:
        """
        A delivered message is that of RocketMQ 4.9.7's store: all as it was sent, C{DELAY}
        included, but without a transaction offset.
        """
        properties = {
            "DELAY": "1",
            "KEYS": "order-7 customer-0",
            "TAGS": "Tag2",
            "UNIQ_KEY": "n000000000000000000000007",
            "WAIT": "true",
        }
        real = {"REAL_QID": "1", "REAL_TOPIC": "Topic1"}
        born = bytes.fromhex("20010db8000000000000000000000007") + (50123).to_bytes(4, "big")
        place = self.reroutes.place("Topic1", 1, properties)
        self.assertEqual(place, (SCHEDULE_TOPIC, 0, {**properties, **real}))
        fields: Any = [1700000000007, born, 2, 0x18, 3, 55]
        self.store.put(place.topic, place.queueId, b"body", encodeSplit(place.properties), *fields)
        self.wait(1.5)
        [waiting] = self.messages(SCHEDULE_TOPIC)
        [message] = self.messages("Topic1", 1)
        for each in (waiting, message):
            self.assertEqual(each.properties, {**properties, **real})
            self.assertEqual(each.body, b"body")
            self.assertEqual((each.bornTimestamp, each.bornHostData), (1700000000007, born))
            self.assertEqual((each.flag, each.sysFlag, each.reconsumeTimes), (2, 0x18, 3))
        self.assertEqual(waiting.preparedTransactionOffset, 55)
        self.assertEqual(message.preparedTransactionOffset, 0)
        self.assertEqual((waiting.storeTimestamp, message.storeTimestamp), (NOW, NOW + 1000))

    def test_messageOfDeliveringTurnIsDelivered(self) -> None:
        """
        A message that comes in the turn in which another is delivered is not overlooked,
        before or after it.
        """
        for order in (0, 1):
            self.send(b"first", DELAY="1")
            self.clock.advance(0)
            if order:
                self.clock.callLater(1, self.send, b"second", DELAY="1")
            self.clock.advance(1)
            if not order:
                self.send(b"second", DELAY="1")
            # It is written, and what was delivered is, and that is told.
            self.clock.advance(0)
            self.wait(0.999)
            self.assertEqual(self.delivered()[-1], b"first")
            self.wait(0.001)
            self.assertEqual(self.delivered()[-1], b"second")

    def test_unwrittenMessageIsSeen(self) -> None:
        """
        A message that is not written yet when its level is looked at is seen all the
        same.
        """
        moved = self.delays._moved

        def sending(*args: Any) -> None:
            moved(*args)
            # The next look is under way already, and this is written after it.
            self.send(b"second", DELAY="1")
            self.delays._moved = moved  # type: ignore[method-assign]

        self.delays._moved = sending  # type: ignore
        self.send(b"first", DELAY="1")
        self.wait(1)
        self.assertEqual(self.delivered(), [b"first"])
        self.wait(1)
        self.assertEqual(self.delivered(), [b"first", b"second"])

    def test_undeliverableMessageIsSkipped(self) -> None:
        """
        A message that can never be delivered is skipped and logged, and the others are
        delivered: one without a destination, one with an invalid topic, half of a
        transaction.
        """
        places = [
            ("", "0"),
            ("T", "x"),
            ("a/b", "0"),
            ("RMQ_SYS_TRANS_HALF_TOPIC", "0"),
            ("T", "0"),
        ]
        for topic, queueId in places:
            properties: Any = {"DELAY": "1", "REAL_TOPIC": topic, "REAL_QID": queueId}
            self.put(self.store, topic.encode(), SCHEDULE_TOPIC, **properties)
        self.delays.look()
        self.wait(1)
        self.assertEqual(self.delivered(), [b"T"])
        self.assertEqual(self.delays.offsets, {1: 5})
        self.assertEqual(self.counted[0][0], "T")

    def test_fillersAreSkipped(self) -> None:
        """
        Entries that fill a gap in the queue are passed over.
        """
        self.send(b"a", DELAY="1")
        self.store.write()
        self.store.appender.nexts[SCHEDULE_TOPIC, 0] = 4
        self.send(b"b", DELAY="1")
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.assertEqual(self.delays.offsets, {1: 5})


class ClockTests(LateCase):
    """
    When the clock is set, and when levels are changed.
    """

    def setBack(self, seconds: float) -> None:
        """
        Set the time of day back: timers do not follow it.
        """
        self.shift -= seconds

    def test_clockSetBackLimitsWait(self) -> None:
        """
        After the clock was set back, waiting messages wait no longer than their level from
        then on.  (Java's are delivered at once.)
        """
        self.open()
        self.send(b"a", DELAY="3")
        self.wait(4)
        self.send(b"b", DELAY="3")
        self.wait(1)
        self.setBack(3600)
        self.delays.stop()
        self.delays.start()
        self.wait(9.999)
        self.assertEqual(self.delivered(), [])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_clockSetBackTwiceLimitsWait(self) -> None:
        """
        The same holds if it is set back again while they wait.
        """
        self.open()
        self.send(b"a", DELAY="3")
        self.wait(4)
        for _ in range(2):
            self.setBack(3600)
            self.delays.stop()
            self.delays.start()
            self.wait(9)
        self.assertEqual(self.delivered(), [])
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a"])

    def test_clockSetBackKeepsDelay(self) -> None:
        """
        A message from after the clock was set back waits for its level, though the store's
        times stand still until the clock is there again: not less, and not more than twice
        as long.
        """
        self.open()
        self.put(self.store)
        self.setBack(3600)
        sent: dict[bytes, float] = {}
        found: dict[bytes, float] = {}
        for number in range(100):
            body = b"%d" % number
            sent[body] = self.clock.seconds()
            self.send(body, DELAY="2")
            self.wait(0.7)
            for each in self.delivered()[1:]:
                found.setdefault(each, self.clock.seconds())
        self.assertEqual(list(found), list(sent)[: len(found)])
        self.assertGreater(len(found), 80)
        for body, time in found.items():
            self.assertTrue(5 <= time - sent[body] <= 10.7, time - sent[body])

    def test_clockSetBackAtMostDoublesDelay(self) -> None:
        """
        Messages that were sent before and after the clock was set back both come, and
        wait at most twice as long as their level.
        """
        self.open()
        self.send(b"a", DELAY="1")
        self.wait()
        self.setBack(3600)
        self.send(b"b", DELAY="1")
        self.wait(3)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_clockSetAheadDeliversOverdue(self) -> None:
        """
        After the clock was set ahead, overdue messages come at the next look, at most 10 s
        later, and others when it shows their time.
        """
        self.open()
        self.send(b"half a minute", DELAY="4")
        self.send(b"minute", DELAY="5")
        self.wait()
        self.shift += 40
        self.delays.look()
        self.wait()
        self.assertEqual(self.delivered(), [b"half a minute"])
        self.wait(19.999)
        self.assertEqual(self.delivered(), [b"half a minute"])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"half a minute", b"minute"])

    def test_clockSetAheadAndBackLimitsWait(self) -> None:
        """
        Messages that were sent while the clock was a year ahead, or after it was set right,
        wait for their level, and at most twice as long.
        """
        self.open()
        self.shift += 365 * 86_400
        self.send(b"ahead", DELAY="3")
        self.wait(1)
        self.shift -= 365 * 86_400
        self.delays.look()
        self.send(b"right", DELAY="2")
        self.wait(4.9)
        self.assertEqual(self.delivered(), [])
        self.wait(0.2)
        self.assertEqual(self.delivered(), [b"right"])
        self.wait(15)
        self.assertEqual(self.delivered(), [b"right", b"ahead"])

    def test_longerLevelAppliesToNewMessages(self) -> None:
        """
        A longer level counts for new messages; waiting ones are delivered at their promised
        time.
        """
        self.open()
        self.send(b"a", DELAY="2")
        self.close()
        self.open(messageDelayLevel="1s 1m")
        self.send(b"b", DELAY="2")
        self.wait(5)
        self.assertEqual(self.delivered(), [b"a"])
        self.wait(54.999)
        self.assertEqual(self.delivered(), [b"a"])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_shorterLevelAppliesToWaitingMessages(self) -> None:
        """
        If a level has become shorter, what waits does so no longer than that from then
        on.
        """
        self.open()
        self.send(b"a", DELAY="5")
        self.close()
        self.open(messageDelayLevel="1s 1s 1s 1s 7s")
        self.send(b"b", DELAY="5")
        self.wait(6.999)
        self.assertEqual(self.delivered(), [])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_removedLevelKeepsItsMessages(self) -> None:
        """
        Messages in a removed level wait until the level is there again, and its progress
        stays known.
        """
        self.open()
        self.send(b"a", DELAY="5")
        self.send(b"b", DELAY="1")
        self.wait(60)
        self.send(b"c", DELAY="5")
        self.close()
        self.open(messageDelayLevel="1s")
        self.wait(100)
        self.assertEqual(self.delays.offsets, {1: 1, 5: 1})
        self.assertEqual(self.delivered(), [b"b", b"a"])
        self.close()
        self.open()
        self.wait()
        self.assertEqual(self.delivered(), [b"b", b"a", b"c"])


class RestartTests(LateCase):
    """
    Ending and beginning again.
    """

    def setUp(self) -> None:
        super().setUp()
        self.open()

    def test_stopDeliversNothingTwice(self) -> None:
        """
        After a stop what was delivered is not delivered again, what is overdue is
        delivered at once and in order, and the rest when it is due.
        """
        self.send(b"a", DELAY="1")
        self.wait(2)
        self.send(b"b", DELAY="2")
        self.send(b"c", DELAY="4")
        self.wait(1)
        self.close()
        self.clock.advance(20)
        self.open()
        self.wait()
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.wait(8.999)
        self.assertEqual(self.delivered(), [b"a", b"b"])
        self.wait(0.001)
        self.assertEqual(self.delivered(), [b"a", b"b", b"c"])

    def test_missingFileDeliversAll(self) -> None:
        """
        Without C{delayOffset.json} all messages in the queues are delivered, also those
        delivered before, as by Java.
        """
        self.send(b"a", DELAY="1")
        self.wait(1)
        self.send(b"b", DELAY="1")
        self.close()
        os.remove(self.path("config", "delayOffset.json"))
        self.open()
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a", b"a", b"b"])

    def test_javasFileIsRead(self) -> None:
        """
        C{delayOffset.json} of RocketMQ 4.9.7, with numbers for names, is read.
        """
        for level in "1122":
            self.send(level.encode(), DELAY=level)
        self.close()
        os.makedirs(self.path("config"))
        with open(self.path("config", "delayOffset.json"), "w") as file:
            file.write('{\n\t"offsetTable":{1:1,2:2\n\t}\n}')
        self.open()
        self.assertEqual(self.delays.offsets, {1: 1, 2: 2})
        self.wait(5)
        self.assertEqual(self.delivered(), [b"1"])

    def test_fileIsReadableByJava(self) -> None:
        """
        RocketMQ 4.9.7 can read the written C{delayOffset.json}.
        """
        self.send(DELAY="3")
        self.wait(10)
        self.close()
        self.assertEqual(
            self.bytesOf("config", "delayOffset.json"), sealed(b'{"offsetTable":{3:1}}')
        )

    def test_offsetBeyondEndBecomesEnd(self) -> None:
        """
        An offset beyond the queue's end, which a crash of Java's may leave, becomes that
        end, so that no new message is skipped.
        """
        self.send(b"a", DELAY="1")
        self.wait(1)
        self.close()
        with open(self.path("config", "delayOffset.json"), "w") as file:
            file.write('{"offsetTable":{1:1000,2:5}}')
        self.open()
        self.assertEqual(self.delays.offsets, {1: 1, 2: 0})
        self.send(b"b", DELAY="1")
        self.wait(1)
        self.assertEqual(self.delivered(), [b"a", b"b"])

    def test_deletedFilesAreSkipped(self) -> None:
        """
        Messages whose files of the log are gone are passed over, on a start and while
        they wait.
        """
        size = LOG_SIZE // 3
        for number in range(9):
            self.send(b"%d" % number + bytes(size), DELAY="1")
        self.wait(0.5)
        self.remove()
        self.wait(0.5)
        self.assertEqual(self.gone(), 2)
        self.assertEqual(len(self.delivered()), 7)
        self.assertEqual(self.delays.offsets, {1: 9})
        self.successResultOf(self.store.checkpointer.checkpoint())
        self.remove()
        self.crash()
        self.open()
        self.assertEqual(self.delays.offsets, {1: 4})

    def remove(self) -> None:
        """
        Delete the first file of the log.
        """
        self.store.log.segments.removeFirst()
        self.store.retention.follow()

    def gone(self) -> int:
        """
        How many messages of level 1 are gone.
        """
        return self.store.minOffset(SCHEDULE_TOPIC, 0)


class ContractTests(deliverycontract.DeliveryContract):
    """
    Delay levels keep the rules of late delivery.
    """

    tableName = "delayOffset.json"
    later = 5
    unreadable = ("{",)

    @property
    def delivery(self) -> delay.DelayLevels:
        return self.delays

    def sendLate(self, seconds: int, body: bytes = b"x", /) -> int:
        return self.send(body, DELAY={1: "1", 5: "2"}[seconds]).offset

    def savedCount(self) -> int:
        table = self.bytesOf("config", self.tableName)
        return decodeBody(DelayOffsetSerializeWrapper, table).offsetTable[1]

    def test_undispatchedMessageIsDeliveredOnce(self) -> None:
        """
        A message that a full disk keeps from its queue's file is delivered all the same,
        once.
        """
        self.patch(consumequeues, "TAILS", 0)
        self.open()
        self.wait(1)
        self.disk.failing["pwrite"] = FULL
        self.disk.only = "consumequeue"
        self.send(b"a", DELAY="1")
        self.wait(3)
        self.disk.failing.clear()
        self.wait(3)
        self.assertEqual(self.delivered(), [b"a"])
        self.delays.look()
        self.wait()
        self.assertEqual(self.delivered(), [b"a"])
        calls = self.clock.getDelayedCalls()
        self.delays.look()
        self.assertEqual(self.clock.getDelayedCalls(), calls)

    def test_deliveryWaitsForDisk(self) -> None:
        """
        A message is delivered once it is on the disk, and only then more are.
        """
        self.patch(delay, "_BATCH", 10)
        self.thread = Held()
        self.open(flushDiskType=FlushDiskType.SYNC_FLUSH)
        for number in range(20):
            self.send(b"%d" % number, DELAY="1")
        self.wait(0.5)
        self.work()
        self.wait(0.5)
        self.assertEqual((len(self.delivered()), self.delays.offsets), (10, {}))
        # A message meanwhile.
        self.send(b"20", DELAY="1")
        self.wait()
        self.work()
        self.wait()
        self.assertEqual((len(self.delivered()), self.delays.offsets), (20, {1: 10}))
        self.work()
        self.wait(1)
        self.work()
        self.wait()
        self.assertEqual((len(self.delivered()), self.delays.offsets), (21, {1: 21}))
