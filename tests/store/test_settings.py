# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.settings}.
"""

from __future__ import annotations

from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.javasettings import differences
from txrocket.store.settings import FlushDiskType, StoreSettings, delayLevels


class SettingsTests(SynchronousTestCase):
    """
    Tests for L{StoreSettings}.
    """

    def test_defaultsAreThoseOfRocketMQ(self) -> None:
        """
        The defaults are those of 4.9.7's C{MessageStoreConfig}.
        """
        settings = StoreSettings("root")
        for name, expected in {
            "mappedFileSizeCommitLog": 1073741824,
            "mappedFileSizeConsumeQueue": 6000000,
            "maxHashSlotNum": 5000000,
            "maxIndexNum": 20000000,
            "messageIndexEnable": True,
            "maxMessageSize": 4194304,
            "checkCRCOnRecover": True,
            "flushDiskType": FlushDiskType.ASYNC_FLUSH,
            "flushIntervalCommitLog": 500,
            "flushCommitLogLeastPages": 4,
            "flushCommitLogThoroughInterval": 10000,
            "flushIntervalConsumeQueue": 1000,
            "flushConsumeQueueLeastPages": 2,
            "flushConsumeQueueThoroughInterval": 60000,
            "syncFlushTimeout": 5000,
            "cleanResourceInterval": 10000,
            "fileReservedTime": 72,
            "deleteWhen": "04",
            "diskMaxUsedSpaceRatio": 75,
            "diskSpaceCleanForciblyRatio": 0.85,
            "diskSpaceWarningLevelRatio": 0.90,
            "cleanFileForciblyEnable": True,
            "maxTransferBytesOnMessageInMemory": 262144,
            "maxTransferCountOnMessageInMemory": 32,
            "maxTransferBytesOnMessageInDisk": 65536,
            "maxTransferCountOnMessageInDisk": 8,
            "accessMessageInMemoryMaxRatio": 40,
            "maxMsgsNumBatch": 64,
        }.items():
            self.assertEqual(expected, getattr(settings, name), name)

    def test_namesAndTypesAreThoseOfJava(self) -> None:
        """
        Names, types and defaults are those that Java says C{MessageStoreConfig}
        has, but for two ratios that are system properties in Java, and for
        txrocket's own.
        """
        self.assertEqual(
            differences(StoreSettings, "MessageStoreConfig"),
            {
                "rocketmq.broker.diskSpaceCleanForciblyRatio": "not in RocketMQ",
                "rocketmq.broker.diskSpaceWarningLevelRatio": "not in RocketMQ",
                "openFiles": "not in RocketMQ",
            },
        )

    def test_invalidSettingsRefused(self) -> None:
        """
        An impossible value is refused, and a value that Java rounds is rounded.
        """
        bad: list[tuple[str, Any]] = [
            ("mappedFileSizeCommitLog", 2**31),
            ("storePathCommitLog", "a,b"),
            ("deleteWhen", "25"),
            ("deleteWhen", "at four"),
            ("messageDelayLevel", "1s soon"),
            ("diskMaxUsedSpaceRatio", 101),
        ]
        for name, value in bad:
            with self.assertRaises(ValueError, msg=name):
                StoreSettings("root", **{name: value})
        self.assertEqual(
            StoreSettings("root", mappedFileSizeConsumeQueue=41).mappedFileSizeConsumeQueue, 60
        )

    def test_settingsAreFrozen(self) -> None:
        """
        Settings do not change while a store uses them.
        """
        settings = StoreSettings("root")
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            settings.openFiles = 1  # type: ignore[misc]


class DelayLevelTests(SynchronousTestCase):
    """
    Tests for L{delayLevels}.
    """

    def test_defaultHasEighteenLevels(self) -> None:
        """
        The default has RocketMQ's 18 levels.
        """
        levels = delayLevels(StoreSettings("root").messageDelayLevel)
        self.assertEqual(18, len(levels))
        self.assertEqual([1000, 5000, 10_000, 30_000, 60_000], levels[:5])
        self.assertEqual(7_200_000, levels[-1])

    def test_allUnitsAreRead(self) -> None:
        """
        Seconds, minutes, hours and days can be used.
        """
        self.assertEqual([2000, 120_000, 7_200_000, 172_800_000], delayLevels(" 2s 2m  2h 2d "))

    def test_invalidDelayNamed(self) -> None:
        """
        The error names the text that is no delay.
        """
        for text in ("1s 5", "1s x", "1s 5w", "-1s"):
            error = self.assertRaises(ValueError, delayLevels, text)
            self.assertIn(repr(text.split()[-1]), str(error))
