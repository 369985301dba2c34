# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.stats}.

What is expected follows from Java's C{StatsItem}: a sample every 10 seconds, 10
minutes and hour; the sum is the last sample less the first, the rate that by the
time between the two, and C{avgpt} that by the calls between the two.
"""

from __future__ import annotations

import os
import time
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.stats import Stats
from txrocket.protocol.bodies import BrokerStatsData, BrokerStatsItem
from txrocket.protocol.fastjson import finish

# 14 November 2023, 22:13:20 UTC.
START = 1_700_000_000
NOTHING = BrokerStatsItem()


class StatsCase(SynchronousTestCase):
    """
    Statistics on a clock, in UTC.
    """

    def setUp(self) -> None:
        zone = patch.dict(os.environ, TZ="UTC")
        zone.start()
        time.tzset()
        self.addCleanup(time.tzset)
        self.addCleanup(zone.stop)
        self.now = START * 1000
        self.stats = Stats("C", lambda: self.now)

    def data(self, name: str, key: str) -> BrokerStatsData:
        """
        The counted data.
        """
        data = self.stats.data(name, key)
        assert data is not None
        return data

    def wait(self, seconds: int) -> None:
        """
        Let time go by.
        """
        for _ in range(seconds // 10):
            self.now += 10_000
            finish(self.stats.sample())


class WindowTests(StatsCase):
    """
    Sums of the last minute, hour and day.
    """

    def test_dataIsAsCaptured(self) -> None:
        """
        24 messages sent one by one, and pulled by four pulls, look as in an
        answer of Java's 4.9.7 some seconds later: only the minute was sampled.
        """
        for _ in range(24):
            self.stats.put("T", 1, 228)
        for _ in range(4):
            self.stats.got("G", "T", 6, 6 * 228)
        self.wait(10)
        self.assertEqual(
            BrokerStatsData(BrokerStatsItem(24, 2.4, 1.0), NOTHING, NOTHING),
            self.data("TOPIC_PUT_NUMS", "T"),
        )
        self.assertEqual(
            BrokerStatsData(BrokerStatsItem(24, 2.4, 6.0), NOTHING, NOTHING),
            self.data("GROUP_GET_NUMS", "T@G"),
        )

    def test_bytesAreCounted(self) -> None:
        """
        Bytes are counted beside messages; C{avgpt} is what a call brought.
        """
        self.stats.put("T", 10, 2000)
        self.stats.put("T", 20, 4000)
        self.stats.got("G", "T", 5, 500)
        self.wait(10)
        self.assertEqual(
            BrokerStatsItem(6000, 600.0, 3000.0), self.data("TOPIC_PUT_SIZE", "T").statsMinute
        )
        self.assertEqual(
            BrokerStatsItem(500, 50.0, 500.0), self.data("GROUP_GET_SIZE", "T@G").statsMinute
        )

    def test_countShowsWithNextSample(self) -> None:
        """
        A count shows with the next sample, not before.
        """
        self.stats.put("T", 1, 1)
        self.assertEqual(
            BrokerStatsData(NOTHING, NOTHING, NOTHING), self.data("TOPIC_PUT_NUMS", "T")
        )

    def test_minuteIsTheLastSixPeriods(self) -> None:
        """
        The minute is the last six periods; earlier counts are forgotten.
        """
        self.stats.put("T", 60, 1)
        self.wait(10)
        self.stats.put("T", 6, 1)
        self.wait(10)
        self.assertEqual(
            BrokerStatsItem(66, 3.3, 33.0), self.data("TOPIC_PUT_NUMS", "T").statsMinute
        )
        self.wait(50)
        self.assertEqual(BrokerStatsItem(6, 0.1, 6.0), self.data("TOPIC_PUT_NUMS", "T").statsMinute)
        self.wait(10)
        self.assertEqual(NOTHING, self.data("TOPIC_PUT_NUMS", "T").statsMinute)

    def test_hourIsTheLastSixSamples(self) -> None:
        """
        The hour is the last six samples of ten minutes each.
        """
        self.stats.put("T", 600, 1)
        self.wait(600)
        self.assertEqual(
            BrokerStatsItem(600, 1.0, 600.0), self.data("TOPIC_PUT_NUMS", "T").statsHour
        )
        self.wait(3000)
        self.assertEqual(
            BrokerStatsItem(600, 600 / 3600, 600.0), self.data("TOPIC_PUT_NUMS", "T").statsHour
        )
        self.wait(600)
        self.assertEqual(NOTHING, self.data("TOPIC_PUT_NUMS", "T").statsHour)

    def test_dayIsTheLast24Samples(self) -> None:
        """
        The day is the last 24 samples of an hour each.
        """
        self.stats.put("T", 3600, 1)
        self.wait(3600)
        self.assertEqual(
            BrokerStatsItem(3600, 1.0, 3600.0), self.data("TOPIC_PUT_NUMS", "T").statsDay
        )
        self.wait(23 * 3600)
        self.assertEqual(
            BrokerStatsItem(3600, 1 / 24, 3600.0), self.data("TOPIC_PUT_NUMS", "T").statsDay
        )

    def test_lateCounterBeginsAtZero(self) -> None:
        """
        A counter that begins later was at 0 at the sample before.
        """
        self.stats.put("old", 1, 1)
        self.wait(30)
        self.stats.put("T", 5, 1)
        self.wait(10)
        self.assertEqual(BrokerStatsItem(5, 0.5, 5.0), self.data("TOPIC_PUT_NUMS", "T").statsMinute)

    def test_sumsAreKeyedByCluster(self) -> None:
        """
        The sums of the broker are filed under the cluster's name; calls are not
        counted for them.
        """
        self.stats.put("T", 10, 1)
        self.stats.put("U", 20, 1)
        self.stats.got("G", "T", 40, 1)
        self.stats.got("H", "U", 50, 1)
        self.wait(10)
        self.assertEqual(
            BrokerStatsItem(30, 3.0, 0.0), self.data("BROKER_PUT_NUMS", "C").statsMinute
        )
        self.assertEqual(
            BrokerStatsItem(90, 9.0, 0.0), self.data("BROKER_GET_NUMS", "C").statsMinute
        )

    def test_sentBackIsCountedByTopicAndGroup(self) -> None:
        """
        Messages that groups send back are counted by topic and group, and not among the
        stored ones.
        """
        for _ in range(20):
            self.stats.sentBack("G", "T")
        self.stats.sentBack("H", "T")
        self.wait(10)
        self.assertEqual(
            BrokerStatsItem(20, 2.0, 1.0), self.data("SNDBCK_PUT_NUMS", "T@G").statsMinute
        )
        self.assertEqual("0", self.stats.runtime()["putMessageTimesTotal"])

    def test_unknownNameHasNoData(self) -> None:
        """
        There is nothing under other names and keys.
        """
        self.stats.put("T", 1, 1)
        self.stats.sentBack("G", "T")
        self.stats.got("G", "T", 1, 1)
        for name, key in (
            ("TOPIC_PUT_NUMS", "U"),
            ("TOPIC_PUT_LATENCY", "T"),
            ("GROUP_GET_NUMS", "T"),
            ("GROUP_GET_NUMS", "G@T"),
            ("GROUP_GET_LATENCY", "T@G"),
            ("SNDBCK_PUT_SIZE", "T@G"),
            ("SNDBCK_PUT_NUMS", "T@H"),
            ("GROUP_GET_FROM_DISK_NUMS", "T@G"),
            ("BROKER_PUT_NUMS", "T"),
            ("BROKER_PUT_SIZE", "C"),
            ("QUEUE_PUT_NUMS", "T@0"),
            ("", ""),
        ):
            self.assertIsNone(self.stats.data(name, key), name)

    def test_rateIsOfLastMinute(self) -> None:
        """
        A group's rate at a topic is that of the last minute; 0 without one.
        """
        self.stats.got("G", "T", 30, 1)
        self.assertEqual(0.0, self.stats.consumeTps("G", "T"))
        self.wait(10)
        self.assertEqual(3.0, self.stats.consumeTps("G", "T"))
        self.assertEqual(0.0, self.stats.consumeTps("H", "T"))

    def test_clockSetBackMakesNoRate(self) -> None:
        """
        A clock that is set back makes no rate of the counts.
        """
        self.stats.put("T", 7, 1)
        self.now -= 10_000
        finish(self.stats.sample())
        self.assertEqual(BrokerStatsItem(7, 0.0, 7.0), self.data("TOPIC_PUT_NUMS", "T").statsMinute)
        self.assertEqual("0.0  ", self.stats.runtime()["putTps"])

    def test_clockSetKeepsRates(self) -> None:
        """
        Rates and the time since the start follow a monotonic clock; the day
        ends by the time of day.
        """
        elapsed = 5000
        stats = Stats("C", lambda: self.now, lambda: elapsed)
        for step in (-3_600_000, 3_600_000, -365 * 86_400_000):
            self.now += step
            elapsed += 10_000
            stats.put("T", 20, 1)
            finish(stats.sample())
            self.assertEqual("2.0  ", f"{stats.runtime()['putTps'].split()[0]}  ")
        told = stats.runtime()
        self.assertEqual("[ 0 days, 0 hours, 0 minutes, 30 seconds ]", told["runtime"])
        self.assertEqual(str(START * 1000), told["bootTimestamp"])
        self.assertEqual("60", told["msgPutTotalTodayMorning"])


class ForgettingTests(StatsCase):
    """
    Counters do not stay for ever.
    """

    def test_removedTopicLosesCounters(self) -> None:
        """
        The counters of a removed topic and of all groups at this topic go, and no others.
        """
        for topic in ("T", "U"):
            self.stats.put(topic, 1, 1)
            self.stats.got("G", topic, 1, 1)
            self.stats.sentBack("G", topic)
        self.stats.forgetTopic("T")
        self.stats.forgetTopic("never")
        self.assertIsNone(self.stats.data("TOPIC_PUT_NUMS", "T"))
        self.assertIsNone(self.stats.data("GROUP_GET_NUMS", "T@G"))
        self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "U"))
        self.assertIsNotNone(self.stats.data("GROUP_GET_NUMS", "U@G"))
        self.assertIsNone(self.stats.data("SNDBCK_PUT_NUMS", "T@G"))
        self.assertIsNotNone(self.stats.data("SNDBCK_PUT_NUMS", "U@G"))

    def test_removedGroupLosesCounters(self) -> None:
        """
        With a group go its counters at all topics.
        """
        self.stats.put("T", 1, 1)
        self.stats.got("G", "T", 1, 1)
        self.stats.got("H", "T", 1, 1)
        self.stats.sentBack("G", "T")
        self.stats.sentBack("H", "T")
        self.stats.forgetGroup("G")
        self.assertIsNone(self.stats.data("SNDBCK_PUT_NUMS", "T@G"))
        self.assertIsNotNone(self.stats.data("SNDBCK_PUT_NUMS", "T@H"))
        self.assertIsNone(self.stats.data("GROUP_GET_NUMS", "T@G"))
        self.assertIsNotNone(self.stats.data("GROUP_GET_NUMS", "T@H"))
        self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "T"))

    def test_totalsNeverShrink(self) -> None:
        """
        The totals since the start do not shrink.
        """
        self.stats.put("T", 3, 30)
        self.stats.got("G", "T", 2, 20)
        self.stats.forgetTopic("T")
        runtime = self.stats.runtime()
        self.assertEqual("3", runtime["putMessageTimesTotal"])
        self.assertEqual("30", runtime["putMessageSizeTotal"])
        self.assertEqual("2", runtime["msgGetTotalTodayNow"])

    def test_idleCounterIsRemovedAfterADay(self) -> None:
        """
        A counter goes once nothing was counted for a whole day; one that moves
        stays.
        """
        self.stats.put("still", 1, 1)
        self.stats.got("G", "still", 1, 1)
        self.stats.sentBack("G", "still")
        for _ in range(24):
            self.stats.put("moving", 1, 1)
            self.wait(3600)
            self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "still"))
        self.wait(3600)
        self.assertIsNone(self.stats.data("TOPIC_PUT_NUMS", "still"))
        self.assertIsNone(self.stats.data("GROUP_GET_NUMS", "still@G"))
        self.assertIsNone(self.stats.data("SNDBCK_PUT_NUMS", "still@G"))
        self.assertIsNotNone(self.stats.data("TOPIC_PUT_NUMS", "moving"))
        self.assertEqual("25", self.stats.runtime()["putMessageTimesTotal"])

    def test_samplesAreBounded(self) -> None:
        """
        A counter has at most 7, 7 and 25 samples, however long it is there.
        """
        for _ in range(30):
            self.stats.put("T", 1, 1)
            self.wait(3600)
        samples = self.stats._topics["T"].samples
        self.assertEqual([7 * 3, 7 * 3, 25 * 3], [len(each) for each in samples])
        self.assertEqual(61, len(self.stats._history))


class RuntimeTests(StatsCase):
    """
    The figures for an operator.
    """

    def test_newBrokerHasNoRates(self) -> None:
        """
        A broker that has done nothing says so: no rate yet, and all totals 0.
        """
        runtime = self.stats.runtime()
        self.assertEqual(str(START * 1000), runtime["bootTimestamp"])
        self.assertEqual("[ 0 days, 0 hours, 0 minutes, 0 seconds ]", runtime["runtime"])
        self.assertEqual("  ", runtime["putTps"])
        self.assertEqual("0.0", runtime["putMessageAverageSize"])
        self.assertEqual("0", runtime["msgPutTotalTodayNow"])

    def test_runtimeIsFormatted(self) -> None:
        """
        The time since the start is in days, hours, minutes and seconds.
        """
        self.now += 1000 * (2 * 86400 + 3 * 3600 + 4 * 60 + 5)
        self.assertEqual(
            "[ 2 days, 3 hours, 4 minutes, 5 seconds ]", self.stats.runtime()["runtime"]
        )

    def test_totalsCountSinceStart(self) -> None:
        """
        Messages, bytes, failures and the average size since the start.
        """
        self.stats.put("T", 3, 300)
        self.stats.put("U", 1, 200)
        self.stats.failed()
        self.stats.got("G", "T", 2, 200)
        runtime = self.stats.runtime()
        self.assertEqual("4", runtime["putMessageTimesTotal"])
        self.assertEqual("500", runtime["putMessageSizeTotal"])
        self.assertEqual("125.0", runtime["putMessageAverageSize"])
        self.assertEqual("1", runtime["putMessageFailedTimes"])
        self.assertEqual("4", runtime["msgPutTotalTodayNow"])
        self.assertEqual("2", runtime["msgGetTotalTodayNow"])

    def test_ratesCoverThreeSpans(self) -> None:
        """
        Rates are over 10 seconds, a minute and ten minutes: of messages in, of
        pulls with and without success and both, and of messages out.
        """
        self.stats.put("T", 600, 1)
        self.stats.got("G", "T", 1200, 1)
        self.stats.missed()
        self.stats.missed()
        self.wait(10)
        runtime = self.stats.runtime()
        self.assertEqual("60.0  ", runtime["putTps"])
        self.assertEqual("0.1  ", runtime["getFoundTps"])
        self.assertEqual("0.2  ", runtime["getMissTps"])
        self.assertEqual("0.3  ", runtime["getTotalTps"])
        self.assertEqual("120.0  ", runtime["getTransferedTps"])
        self.wait(50)
        self.assertEqual("0.0 10.0 ", self.stats.runtime()["putTps"])
        self.wait(540)
        self.assertEqual("0.0 0.0 1.0", self.stats.runtime()["putTps"])

    def test_distributionHasJavasClasses(self) -> None:
        """
        How long puts took is in Java's 13 classes, which its tools take apart.
        """
        parts = self.stats.runtime()["putMessageDistributeTime"].split()
        self.assertEqual(13, len(parts))
        self.assertEqual(("[<=0ms]:0", "[10s~]:0"), (parts[0], parts[-1]))

    def test_midnightStartsANewDay(self) -> None:
        """
        At midnight, local time, today's beginning becomes yesterday's.
        """
        self.stats.put("T", 5, 1)
        self.stats.got("G", "T", 4, 1)
        # From 22:13:20 to 23:59:50.
        self.wait(6390)
        self.stats.put("T", 1, 1)
        self.assertEqual("0", self.stats.runtime()["msgPutTotalTodayMorning"])
        self.wait(10)
        self.stats.put("T", 10, 1)
        self.stats.got("G", "T", 10, 1)
        runtime = self.stats.runtime()
        self.assertEqual("0", runtime["msgPutTotalYesterdayMorning"])
        self.assertEqual("6", runtime["msgPutTotalTodayMorning"])
        self.assertEqual("16", runtime["msgPutTotalTodayNow"])
        self.assertEqual("4", runtime["msgGetTotalTodayMorning"])
        self.assertEqual("14", runtime["msgGetTotalTodayNow"])
        self.wait(86400)
        runtime = self.stats.runtime()
        self.assertEqual("6", runtime["msgPutTotalYesterdayMorning"])
        self.assertEqual("16", runtime["msgPutTotalTodayMorning"])
        self.assertEqual("4", runtime["msgGetTotalYesterdayMorning"])
