# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.testing.clustersettings}.
"""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.settings import BrokerSettings, RegistrationSettings, TopicSettings
from txrocket.errors import ConfigError
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.remoting.settings import (
    BrokerServerSettings,
    NamesrvServerSettings,
    TLSSettings,
)
from txrocket.remoting.tls import TLSMode
from txrocket.store.settings import FlushDiskType, StoreSettings
from txrocket.testing.clustersettings import Setting, brokerSettings, freePort, namesrvSettings

SETTINGS: dict[str, Setting] = {
    "autoCreateTopicEnable": False,
    "defaultTopicQueueNums": 3,
    "flushDiskType": "SYNC_FLUSH",
    "orderMessageEnable": True,
    "rocketmq.broker.diskSpaceWarningLevelRatio": 0.5,
    "tls.server.mode": "enforcing",
}


class SettingsTests(SynchronousTestCase):
    """
    Settings of a test.
    """

    def test_nameServerGetsItsSettings(self) -> None:
        """
        A name server gets its folder, and those of the test's settings that it knows.
        """
        configuration = namesrvSettings(SETTINGS, "192.0.2.1", 9876, "/there")
        self.assertEqual(
            configuration[NamesrvSettings], NamesrvSettings("/there/kvConfig.json", True)
        )
        listen = configuration[NamesrvServerSettings]
        self.assertEqual((listen.bindAddress, listen.listenPort), ("192.0.2.1", 9876))
        self.assertIs(configuration[TLSSettings].tlsMode, TLSMode.ENFORCING)

    def test_brokerGetsItsPlaceAndSettings(self) -> None:
        """
        A broker gets its place, and all settings but those that only a name server
        has, be they texts, numbers or truths.
        """
        configuration = brokerSettings(
            SETTINGS, "a", "192.0.2.1", 10911, "/there", ["192.0.2.2:9876", "192.0.2.3:9876"]
        )
        self.assertEqual(
            configuration[BrokerSettings], BrokerSettings(brokerName="a", brokerIP1="192.0.2.1")
        )
        self.assertEqual(
            configuration[RegistrationSettings].namesrvAddr, "192.0.2.2:9876;192.0.2.3:9876"
        )
        listen = configuration[BrokerServerSettings]
        self.assertEqual((listen.bindAddress, listen.listenPort), ("192.0.2.1", 10911))
        store = configuration[StoreSettings]
        self.assertEqual(store.storePathRootDir, "/there/store")
        self.assertIs(store.flushDiskType, FlushDiskType.SYNC_FLUSH)
        self.assertEqual(store.diskSpaceWarningLevelRatio, 0.5)
        self.assertEqual(
            configuration[TopicSettings],
            TopicSettings(autoCreateTopicEnable=False, defaultTopicQueueNums=3),
        )

    def test_unknownSettingIsRefused(self) -> None:
        """
        An unknown setting is an error with the nearest one's name.
        """
        error = self.assertRaises(
            ConfigError,
            brokerSettings,
            {"flushDiskTyp": "SYNC_FLUSH"},
            *("a", "192.0.2.1", 10911, "/there", []),
        )
        self.assertIn("did you mean flushDiskType?", str(error))


class PortTests(SynchronousTestCase):
    """
    Tests for L{freePort}.
    """

    def test_freePortCanBeListenedOn(self) -> None:
        """
        A server can listen at the port and below it, and the system gives neither to a
        client.
        """
        port = freePort("127.0.0.1", (2,))
        for each in (port, port - 2):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", each))
        self.assertIn(port, range(15_000, 32_000))

    def test_portInUseIsSkipped(self) -> None:
        """
        A port is passed over if it is taken, or the one below it is.
        """
        free = freePort("127.0.0.1", (2, 4, 6))
        choices = iter([free - 15_000, free - 15_000 - 2, free - 15_000 - 4])
        with socket.socket() as other:
            other.bind(("127.0.0.1", free - 2))
            self.assertEqual(freePort("127.0.0.1", (2,), lambda bound: next(choices)), free - 4)

    def test_noFreePortIsError(self) -> None:
        """
        Where none is free, that is said.
        """
        free = freePort("127.0.0.1")
        with socket.socket() as other:
            other.bind(("127.0.0.1", free))
            error = self.assertRaises(
                OSError, freePort, "127.0.0.1", (), lambda bound: free - 15_000
            )
        self.assertEqual(str(error), "no free port was found on 127.0.0.1")
