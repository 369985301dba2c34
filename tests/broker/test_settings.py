# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.settings}.
"""

from __future__ import annotations

from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.distribution import distribution
from tests.javasettings import differences
from txrocket.broker.settings import (
    SECTIONS,
    BrokerRole,
    BrokerSettings,
    DelaySettings,
    PullSettings,
    RegistrationSettings,
    SendSettings,
    TopicSettings,
)
from txrocket.config import Configuration
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.services import BROKER_SECTIONS

# The limits of txrocket's own.
LIMITS = (
    *("maxTopicNum", "maxSubscriptionGroupNum", "maxConsumerOffsetNum", "maxConsumerFilterNum"),
    *("maxGroupNumPerClient", "maxGroupMemberNum", "maxSubscriptionNumPerGroup"),
    "maxQueueLockNum",
)


class SettingsTests(SynchronousTestCase):
    """
    The sections of a broker's configuration.
    """

    def test_defaultsAreRocketMQs(self) -> None:
        """
        Without a file a broker is what RocketMQ's is, value by value; some settings
        are of 5.x, with its defaults, and one is of 4.9.8; the limits are our own.
        """
        newer = {"timerWheelEnable": True, "timerMaxDelaySec": 259200, "timerFlushIntervalMs": 1000}
        others = {*newer, *LIMITS, "configBlackList"}
        for section in SECTIONS:
            found = differences(section, "BrokerConfig", "MessageStoreConfig")
            names = {each.name for each in attrs.fields(section)}
            self.assertEqual(found, dict.fromkeys(names & others, "not in RocketMQ"))
        self.assertEqual({each: getattr(DelaySettings(), each) for each in newer}, newer)
        self.assertEqual(len(SECTIONS), 13)

    def test_keysAreUnique(self) -> None:
        """
        No setting is in two sections.
        """
        names = [field.name for section in SECTIONS for field in attrs.fields(section)]
        self.assertEqual(len(names), len(set(names)))

    def test_namesAndAddressesAreNotLive(self) -> None:
        """
        No name, address or port may be changed while the broker runs.
        """
        live = {
            field.name
            for section in SECTIONS
            for field in attrs.fields(section)
            if field.metadata.get("live")
        }
        self.assertIn("brokerPermission", live)
        for word in ("Name", "IP", "Port", "Addr", "Path"):
            self.assertEqual([], [each for each in live if word in each])
        self.assertEqual(set(), live & set(LIMITS))

    def test_everyLiveSettingIsJudged(self) -> None:
        """
        A setting that may be changed while the broker runs is in the default
        C{configBlackList}, or is known not to weaken or destroy stored messages.
        """
        harmless = {
            *("autoCreateSubscriptionGroup", "autoCreateTopicEnable", "enablePropertyFilter"),
            *("filterSupportRetry", "longPollingEnable", "notifyConsumerIdsChangedEnable"),
            "offsetCheckInSlave",
            *("osPageCacheBusyTimeOutMills", "pullThreadPoolQueueCapacity"),
            *("sendThreadPoolQueueCapacity", "shortPollingTimeMills", "slaveReadEnable"),
            *("timerMaxDelaySec", "traceOn"),
            *("maxTransferBytesOnMessageInDisk", "maxTransferBytesOnMessageInMemory"),
            *("maxTransferCountOnMessageInDisk", "maxTransferCountOnMessageInMemory"),
        }
        live = {
            field.metadata.get("key", field.name)
            for section in BROKER_SECTIONS
            for field in attrs.fields(section)
            if field.metadata.get("live")
        }
        guarded = set(BrokerSettings().configBlackList.split(";"))
        self.assertEqual(live - guarded, harmless)
        for key in ("configBlackList", "brokerConfigPath", "storePathRootDir", "flushDiskType"):
            self.assertIn(key, guarded)

    def test_invalidValuesAreRefused(self) -> None:
        """
        Values that cannot be meant, or that promise what is not kept, are
        refused.
        """
        bad: list[tuple[Any, dict[str, Any]]] = [
            (BrokerSettings, {"brokerClusterName": " "}),
            (BrokerSettings, {"brokerName": "x" * 128}),
            (BrokerSettings, {"brokerRole": BrokerRole.SLAVE}),
            (BrokerSettings, {"brokerRole": BrokerRole.SLAVE, "brokerId": -1}),
            (BrokerSettings, {"brokerPermission": 8}),
            (BrokerSettings, {"brokerPermission": -1}),
            (RegistrationSettings, {"registerNameServerPeriod": 0}),
            (TopicSettings, {"defaultTopicQueueNums": -1}),
            (TopicSettings, {"msgTraceTopicName": ""}),
            (DelaySettings, {"timerMaxDelaySec": 0}),
            (DelaySettings, {"timerFlushIntervalMs": 0}),
            (SendSettings, {"sendThreadPoolQueueCapacity": 0}),
            (PullSettings, {"shortPollingTimeMills": 0}),
        ]
        for section, values in bad:
            with self.assertRaises(ValueError, msg=str(values)):
                section(**values)

    def test_valuesAtTheBoundsAreAccepted(self) -> None:
        """
        Values at the bounds are not refused.
        """
        self.assertEqual("x" * 127, BrokerSettings(brokerName="x" * 127).brokerName)
        self.assertEqual(0, BrokerSettings(brokerPermission=0).brokerPermission)
        self.assertEqual(1, TopicSettings(defaultTopicQueueNums=1).defaultTopicQueueNums)

    def test_aMasterHasNumber0(self) -> None:
        """
        A master's brokerId is 0, whatever its file says, as in Java.
        """
        for role in (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER):
            self.assertEqual(0, BrokerSettings(brokerRole=role, brokerId=3).brokerId)
        self.assertEqual(0, BrokerSettings(brokerId=-1).brokerId)

    def test_aSlaveNeedsANumber(self) -> None:
        """
        A slave keeps its brokerId; without one above 0 the error names the setting.
        """
        self.assertEqual(3, BrokerSettings(brokerRole=BrokerRole.SLAVE, brokerId=3).brokerId)
        with self.assertRaises(ValueError) as caught:
            BrokerSettings(brokerRole=BrokerRole.SLAVE)
        self.assertIn("brokerId=0", str(caught.exception))

    def test_theFilesOfADistributionAreRead(self) -> None:
        """
        The settings of RocketMQ's 2m-2s-sync, 2m-2s-async and 2m-noslave are taken unchanged.
        """
        for (folder, name), settings in distribution().items():
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            path = self.mktemp()
            with open(path, "w") as file:
                file.write(text)
            read = Configuration.read(BROKER_SECTIONS, BROKER_KEYS, path, {})
            own = read[BrokerSettings]
            self.assertEqual(
                (own.brokerName, str(own.brokerId), own.brokerRole.value),
                (settings["brokerName"], settings["brokerId"], settings["brokerRole"]),
                f"{folder}/{name}",
            )
            self.assertEqual([], read.warnings)
