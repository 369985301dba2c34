# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.admin.broker} and L{txrocket.broker.runtimeinfo}.
"""

from __future__ import annotations

from unittest.mock import patch

from twisted.logger import capturedLogs

from tests.processors.admincase import BROKER, CLUSTER, NOW, AdminCase, warnings
from tests.store.support import Held
from txrocket.broker.settings import BrokerSettings, SendSettings
from txrocket.model import DataVersion
from txrocket.protocol.bodies import BrokerStatsData, BrokerStatsItem, KVTable
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.configtext import ConfigText
from txrocket.protocol.fastjson import finish
from txrocket.protocol.headers import (
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocket.store.settings import FlushDiskType

# What Java's 4.9.7 gives, but for what depends on a setting that is off.
KEYS = {
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferedTps",
    "putLatency99",
    "putLatency999",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "brokerVersionDesc",
    "brokerVersion",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
}


class StatsTests(AdminCase):
    """
    VIEW_BROKER_STATS_DATA.
    """

    def test_countedDataIsReturned(self) -> None:
        """
        What was counted is told.
        """
        self.stats.put("T", 20, 2000)
        self.clock.advance(10)
        finish(self.stats.sample())
        for name, key, item in (
            ("TOPIC_PUT_NUMS", "T", BrokerStatsItem(20, 2.0, 20.0)),
            ("BROKER_PUT_NUMS", CLUSTER, BrokerStatsItem(20, 2.0, 0.0)),
        ):
            header = ViewBrokerStatsDataRequestHeader(name, key)
            answer = self.succeed(RequestCode.VIEW_BROKER_STATS_DATA, header)
            self.assertEqual(item, decodeBody(BrokerStatsData, answer.body).statsMinute)

    def test_uncountedKeyIsRefused(self) -> None:
        """
        Where nothing was counted there is an error.
        """
        header = ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T")
        self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.VIEW_BROKER_STATS_DATA, header)


class RuntimeTests(AdminCase):
    """
    GET_BROKER_RUNTIME_INFO.
    """

    def runtime(self) -> dict[str, str]:
        """
        How the broker fares.
        """
        answer = self.succeed(RequestCode.GET_BROKER_RUNTIME_INFO)
        return decodeBody(KVTable, answer.body).table

    def test_javasKeysArePresent(self) -> None:
        """
        All of Java's names are there, for tools that look for them; one more has
        the log's folder in it, one is of 5.x, and two tell of damage and of the role.
        """
        more = {
            f"commitLogDiskRatio_{self.path('commitlog')}",
            "timerCongestNum",
            "damagedMessages",
            "role",
        }
        self.assertEqual(KEYS | more, set(self.runtime()))

    def test_damageCounts(self) -> None:
        """
        Messages that were found damaged are counted.
        """
        self.assertEqual("0", self.runtime()["damagedMessages"])
        self.store.damage.message("T", 0, 5, 500, "no record")
        self.assertEqual("1", self.runtime()["damagedMessages"])

    def test_delayLevelsAreListed(self) -> None:
        """
        For each level of which something was delivered: how far, and where its queue
        ends; C{buildRunningStats} of Java's C{ScheduleMessageService}.
        """
        for _ in range(3):
            self.put(self.store, topic="SCHEDULE_TOPIC_XXXX", queueId=1, DELAY="2")
        self.delays.offsets = {2: 1, 18: 0}
        found = {
            name: value
            for name, value in self.runtime().items()
            if name.startswith("scheduleMessageOffset")
        }
        self.assertEqual(
            {"scheduleMessageOffset_2": "1,3", "scheduleMessageOffset_18": "0,0"}, found
        )

    def test_parkedMessagesAreCounted(self) -> None:
        """
        How many messages wait for a time of their own.
        """
        self.assertEqual("0", self.runtime()["timerCongestNum"])
        for queueId in (0, 143, 143):
            self.put(self.store, topic="rmq_sys_timer", queueId=queueId)
        self.assertEqual("3", self.runtime()["timerCongestNum"])

    def test_idleBrokerHasNumbers(self) -> None:
        """
        What tools take for numbers are numbers, in a broker that has done nothing.
        """
        runtime = self.runtime()
        for name in KEYS - {
            *("runtime", "putMessageDistributeTime", "brokerVersionDesc", "commitLogDirCapacity"),
            *("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps"),
            "remainHowManyDataToFlush",
        }:
            float(runtime[name])
        self.assertEqual(
            ("V4_9_7", "407"), (runtime["brokerVersionDesc"], runtime["brokerVersion"])
        )
        self.assertEqual("-1", runtime["earliestMessageTimeStamp"])

    def test_logPositionsAreListed(self) -> None:
        """
        Where the log begins and ends, how much of it is not on the disk, and how
        full that is.
        """
        self.disk.used = 0.251
        self.fill(2)
        runtime = self.runtime()
        end = self.store.log.written
        self.assertEqual(
            ("0", str(end)), (runtime["commitLogMinOffset"], runtime["commitLogMaxOffset"])
        )
        self.assertEqual(str(NOW), runtime["earliestMessageTimeStamp"])
        self.assertEqual("0", runtime["dispatchBehindBytes"])
        # Java rounds up.
        self.assertEqual(
            ("0.26", "0.26"), (runtime["commitLogDiskRatio"], runtime["consumeQueueDiskRatio"])
        )
        self.assertEqual("Total : 1000 B, Free : 749 B.", runtime["commitLogDirCapacity"])
        self.put(self.store, b"x" * 3000)
        size = (self.store.log.written - self.store.flusher.flushed.offset) / 1024
        self.assertEqual(f"{size:.1f} KiB", self.runtime()["remainHowManyDataToFlush"])

    def test_sizesAreFormattedAsJava(self) -> None:
        """
        Sizes are written for people, as Java writes them.
        """
        for total, free, text in (
            (2 * 1024**4, 1536 * 1024**2, "Total : 2.0 TiB, Free : 1.5 GiB."),
            (1024, 1023, "Total : 1.0 KiB, Free : 1023 B."),
            (2**62, 2**70, "Total : 4.0 EiB, Free : 1024.0 EiB."),
        ):
            with patch.object(self.disk, "space", return_value=(total, free)):
                self.assertEqual(text, self.runtime()["commitLogDirCapacity"])

    def test_noDisk(self) -> None:
        """
        A disk without a size has no ratio; one that cannot be asked is an error.
        """
        with patch.object(self.disk, "space", return_value=(0, 0)):
            self.assertEqual("-1.0", self.runtime()["commitLogDiskRatio"])
        with patch.object(self.disk, "space", side_effect=OSError("broken")):
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.GET_BROKER_RUNTIME_INFO)

    def test_waitingRequestsAreCounted(self) -> None:
        """
        Pulls that are held, and sends that wait for the disk and for how long.
        """
        self.longPoll.hold("T", 0, 0, 10)
        runtime = self.runtime()
        self.assertEqual(
            ("1", "100000"),
            (runtime["pullThreadPoolQueueSize"], runtime["pullThreadPoolQueueCapacity"]),
        )
        self.assertEqual(
            ("0", "10000"),
            (runtime["sendThreadPoolQueueSize"], runtime["sendThreadPoolQueueCapacity"]),
        )

    def test_statisticsAreIncluded(self) -> None:
        """
        What was counted is among it.
        """
        self.stats.put("T", 7, 700)
        self.assertEqual("7", self.runtime()["msgPutTotalTodayNow"])


class SyncTests(AdminCase):
    """
    A broker whose senders wait for the disk.
    """

    def setUp(self) -> None:
        self.held = Held()
        self.OPTIONS = {"inThread": self.held, "flushDiskType": FlushDiskType.SYNC_FLUSH}
        super().setUp()

    def test_waitingSendsAreCounted(self) -> None:
        """
        How many wait for the disk, and how long the first has.
        """
        appended = self.put(self.store)
        self.store.stored(appended.end)
        self.store.stored(appended.end)
        self.clock.advance(0.4)
        answer = self.succeed(RequestCode.GET_BROKER_RUNTIME_INFO)
        runtime = decodeBody(KVTable, answer.body).table
        waiting, _ = self.store.waiting
        self.assertGreaterEqual(waiting, 2)
        self.assertEqual(str(waiting), runtime["sendThreadPoolQueueSize"])
        self.assertEqual("400", runtime["sendThreadPoolQueueHeadWaitTimeMills"])
        while self.held.jobs:
            self.held.work()


class SettingsTests(AdminCase):
    """
    GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG.
    """

    def settings(self) -> tuple[ConfigText, DataVersion]:
        """
        The settings and their version.
        """
        answer = self.succeed(RequestCode.GET_BROKER_CONFIG)
        header = answer.decodeHeader(GetBrokerConfigResponseHeader)
        return (
            decodeBody(ConfigText, answer.body),
            decodeBody(DataVersion, header.version.encode()),
        )

    def update(self, **changes: str) -> bytes:
        """
        The body that changes settings.
        """
        return encodeBody(ConfigText(changes))

    def test_allSettingsAreReturned(self) -> None:
        """
        All settings by RocketMQ's names, and their version.
        """
        settings, version = self.settings()
        self.assertEqual("DefaultCluster", settings["brokerClusterName"])
        self.assertEqual("72", settings["fileReservedTime"])
        self.assertEqual(DataVersion(), version)

    def test_foundSettingIsReturned(self) -> None:
        """
        A setting that was found out, and not set, has its value.
        """
        self.assertEqual(BROKER, self.settings()[0]["brokerName"])

    def test_exportedSettingsArePresent(self) -> None:
        """
        All settings are there without which RocketMQ's C{ExportConfigsCommand}
        fails.
        """
        settings, _ = self.settings()
        for name in (
            *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime"),
            *("filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel"),
            *("msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS"),
            *("autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
        ):
            self.assertTrue(settings.get(name), name)

    def test_updateRaisesVersion(self) -> None:
        """
        What is changed is so at once, with a new version.
        """
        body = self.update(timerMaxDelaySec="7", traceOn="false")
        answer = self.succeed(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        self.assertEqual(b"", answer.body)
        settings, version = self.settings()
        self.assertEqual(("7", "false"), (settings["timerMaxDelaySec"], settings["traceOn"]))
        self.assertEqual(DataVersion(NOW, 1), version)
        self.assertFalse(self.configuration[BrokerSettings].traceOn)

    def test_invalidChangeIsRefused(self) -> None:
        """
        Settings that may not be changed, and values that are none, are refused by
        name, and then nothing is changed; nor is it by a body that is not valid.
        """
        before = self.settings()
        for changes, named in (
            ({"defaultTopicQueueNums": "1"}, "defaultTopicQueueNums"),
            ({"traceOn": "false", "sendThreadPoolQueueCapacity": "many"}, "sendThread"),
            ({"traceOn": "false", "nonsense": "1"}, "nonsense"),
        ):
            said = self.refused(
                ResponseCode.SYSTEM_ERROR,
                RequestCode.UPDATE_BROKER_CONFIG,
                body=self.update(**changes),
            )
            self.assertIn(named, said)
        self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.UPDATE_BROKER_CONFIG, body=b"a=\\uXYZW")
        self.assertEqual(before, self.settings())

    def test_blackListedSettingIsRefused(self) -> None:
        """
        A setting that can weaken or destroy stored messages is refused with Java's
        code and remark, by name, and nothing that came with it is changed.
        """
        before = self.settings()
        for key, value in (
            ("flushDiskType", "ASYNC_FLUSH"),
            ("brokerPermission", "0"),
            ("fileReservedTime", "1"),
            ("deleteWhen", "12"),
            ("diskMaxUsedSpaceRatio", "1"),
            ("cleanFileForciblyEnable", "true"),
            ("transactionCheckMax", "1"),
            ("storePathRootDir", "/tmp"),
            ("configBlackList", ""),
            ("brokerConfigPath", "/tmp/broker.conf"),
            ("rocketmqHome", "/tmp"),
        ):
            body = self.update(**{"traceOn": "false", key: value})
            said = self.refused(
                ResponseCode.NO_PERMISSION, RequestCode.UPDATE_BROKER_CONFIG, body=body
            )
            self.assertIn(f"Can not update config in black list. {key}: change it in", said)
        self.assertEqual(before, self.settings())

    def test_changeIsLogged(self) -> None:
        """
        The log tells at warning level which address changed which setting from what to
        what, and which address was refused.
        """
        with capturedLogs() as events:
            self.succeed(RequestCode.UPDATE_BROKER_CONFIG, body=self.update(traceOn="false"))
            self.refused(
                ResponseCode.NO_PERMISSION,
                RequestCode.UPDATE_BROKER_CONFIG,
                body=self.update(fileReservedTime="1"),
            )
        self.assertEqual(
            warnings(events),
            [
                f"{self.peer.address} changed the setting traceOn: true -> false",
                (
                    f"Refused to change settings for {self.peer.address}: configBlackList has"
                    " fileReservedTime"
                ),
            ],
        )

    def test_emptyUpdateIsAccepted(self) -> None:
        """
        A body without settings changes nothing, and is no error.
        """
        self.succeed(RequestCode.UPDATE_BROKER_CONFIG)
        self.assertEqual(DataVersion(), self.settings()[1])

    def test_followerSeesChange(self) -> None:
        """
        Whoever works with a section is told.
        """
        told: list[SendSettings] = []
        self.configuration.follow(SendSettings, told.append)
        body = self.update(sendThreadPoolQueueCapacity="5")
        self.succeed(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        self.assertEqual([5], [each.sendThreadPoolQueueCapacity for each in told])


class FreedTests(SettingsTests):
    """
    A broker whose operator has RocketMQ 4.9.8's own list.
    """

    BLACK_LIST = "configBlackList;brokerConfigPath"

    def test_blackListedSettingIsRefused(self) -> None:
        """
        The operator's list decides; but the list itself is not to be had.
        """
        self.succeed(RequestCode.UPDATE_BROKER_CONFIG, body=self.update(fileReservedTime="71"))
        self.assertEqual("71", self.settings()[0]["fileReservedTime"])
        self.refused(
            ResponseCode.NO_PERMISSION,
            RequestCode.UPDATE_BROKER_CONFIG,
            body=self.update(configBlackList=""),
        )

    def test_changeIsLogged(self) -> None:
        """
        A setting that the operator has freed is logged as any other.
        """
        with capturedLogs() as events:
            self.succeed(RequestCode.UPDATE_BROKER_CONFIG, body=self.update(fileReservedTime="71"))
        self.assertEqual(
            warnings(events),
            [f"{self.peer.address} changed the setting fileReservedTime: 72 -> 71"],
        )
