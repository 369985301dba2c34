# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.settings}.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.replication.settings import ReplicationSettings


class SettingsTests(SynchronousTestCase):
    """
    The settings of replication.
    """

    def test_defaultsAreJavas(self) -> None:
        """
        The defaults are those of RocketMQ 4.9.7.
        """
        settings = ReplicationSettings()
        self.assertEqual(settings.haSendHeartbeatInterval, 5000)
        self.assertEqual(settings.haHousekeepingInterval, 20_000)
        self.assertEqual(settings.haTransferBatchSize, 32_768)
        self.assertEqual(settings.haSlaveFallbehindMax, 268_435_456)
        self.assertEqual(settings.slaveTimeout, 3000)
        self.assertIsNone(settings.haMasterAddress)
        self.assertIsNone(settings.plainHosts)

    def test_wrongValueIsRefused(self) -> None:
        """
        Sizes that no slave takes, times and addresses that cannot be are refused.
        """
        wrong: dict[str, list[Any]] = {
            "haTransferBatchSize": [0, 4 * 1024 * 1024],
            "haMasterAddress": ["nowhere", "host:0"],
            "haPlainAddresses": ["a;;b", ""],
            "haListenPort": [-1, 65_536],
            "haSendHeartbeatInterval": [0],
            "haHousekeepingInterval": [0],
        }
        for name, values in wrong.items():
            for value in values:
                with self.assertRaises(ValueError, msg=name):
                    ReplicationSettings(**{name: value})

    def test_plainHostsAreListed(self) -> None:
        """
        haPlainAddresses has hosts with semicolons between them.
        """
        settings = ReplicationSettings(haPlainAddresses="10.0.0.7; 10.0.0.8")
        self.assertEqual(settings.plainHosts, {"10.0.0.7", "10.0.0.8"})
