# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.config.javakeys}, and for L{tests.javasettings}.
"""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.javasettings import differences, javaSettings
from txrocket.config import Configuration, javakeys
from txrocket.config.javakeys import BROKER_KEYS, NAMESRV_KEYS
from txrocket.store.settings import FlushDiskType

# The settings of a broker.conf as many have it.
COPIED = """
brokerClusterName brokerName brokerId namesrvAddr brokerIP1 defaultTopicQueueNums
autoCreateTopicEnable autoCreateSubscriptionGroup listenPort haListenPort deleteWhen
fileReservedTime mapedFileSizeCommitLog mapedFileSizeConsumeQueue
destroyMapedFileIntervalForcibly redeleteHangedFileInterval diskMaxUsedSpaceRatio
storePathRootDir storePathCommitLog storePathConsumeQueue storePathIndex storeCheckpoint
abortFile maxMessageSize flushCommitLogLeastPages flushConsumeQueueLeastPages
flushCommitLogThoroughInterval flushConsumeQueueThoroughInterval brokerRole flushDiskType
checkTransactionMessageEnable sendMessageThreadPoolNums pullMessageThreadPoolNums
"""


class ListTests(SynchronousTestCase):
    """
    The sets of keys.
    """

    def test_setsAreJavasSetters(self) -> None:
        """
        The set of a class has exactly the names of its setters.
        """
        for listed, name, count in (
            (javakeys.BROKER_CONFIG, "BrokerConfig", 80),
            (javakeys.MESSAGE_STORE_CONFIG, "MessageStoreConfig", 78),
            (javakeys.NETTY_SERVER_CONFIG, "NettyServerConfig", 14),
            (javakeys.NETTY_CLIENT_CONFIG, "NettyClientConfig", 14),
            (javakeys.NAMESRV_CONFIG, "NamesrvConfig", 6),
        ):
            self.assertEqual(listed, javaSettings(name).keys())
            self.assertEqual(len(listed), count)

    def test_serversAcceptKeysOfTheirClasses(self) -> None:
        """
        Each server accepts the keys of its own classes, and those that Java writes back.
        """
        broker = ("BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig")
        for keys, names in ((BROKER_KEYS, broker), (NAMESRV_KEYS, ("NamesrvConfig",))):
            for name in names:
                for key, each in javaSettings(name).items():
                    self.assertLessEqual({key, each.field}, keys)
        self.assertNotIn("kvConfigPath", BROKER_KEYS)
        self.assertNotIn("brokerName", NAMESRV_KEYS)
        for keys in (BROKER_KEYS, NAMESRV_KEYS):
            self.assertLessEqual({"listenPort", "tls.server.mode", "rocketmqHome"}, keys)

    def test_formerKeysAreUnknownToJava(self) -> None:
        """
        4.9.7 does not know the keys that are listed as former ones.
        """
        known = BROKER_KEYS - javakeys.FORMER
        self.assertEqual(len(known), len(BROKER_KEYS) - len(javakeys.FORMER))
        for name in ("BrokerConfig", "MessageStoreConfig"):
            self.assertEqual(javaSettings(name).keys() & javakeys.FORMER, set())

    def test_copiedFileIsAccepted(self) -> None:
        """
        A file as many descriptions of RocketMQ have it is accepted, although 4.9.7 itself
        ignores half of its paths.
        """
        read = Configuration.read([], BROKER_KEYS, None, dict.fromkeys(COPIED.split(), "1"))
        (warning,) = read.warnings
        for key in COPIED.split():
            self.assertIn(key, warning)


@attrs.frozen
class Section:
    """
    A section with mistakes.
    """

    deleteWhen: str
    fileReservedTime: int = 48
    flushDiskType: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    haMasterAddress: str | None = None
    maxMessageSize: str = "4194304"
    storePathRootDir: str = "store"
    transientStorePoolSize: int | None = None
    mapedFileSizeCommitLog: int = 1


class DifferenceTests(SynchronousTestCase):
    """
    Tests for L{differences}.
    """

    def test_differencesAreFound(self) -> None:
        """
        A name, type or default that differs from Java's is found; a default that depends
        on the machine may differ.
        """
        self.assertEqual(
            differences(Section, "NettyServerConfig", "MessageStoreConfig"),
            {
                "deleteWhen": "no default",
                "fileReservedTime": "48, not 72",
                "maxMessageSize": "<class 'str'>, not int",
                "transientStorePoolSize": ", not 5",
                "mapedFileSizeCommitLog": "not in RocketMQ",
            },
        )
