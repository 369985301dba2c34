# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.settings}.
"""

from __future__ import annotations

import os

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.javasettings import differences
from txrocket.nameserver.settings import NamesrvSettings


class SettingsTests(SynchronousTestCase):
    """
    RocketMQ's names and defaults.
    """

    def test_java(self) -> None:
        """
        Names, types and defaults are Java's; but where the home is, is another
        matter on each machine, and the black list is 4.9.8's.
        """
        self.assertEqual(
            set(differences(NamesrvSettings, "NamesrvConfig")) - {"kvConfigPath"},
            {"configBlackList"},
        )
        self.assertEqual(
            NamesrvSettings().configBlackList, "configBlackList;configStorePath;kvConfigPath"
        )

    def test_home(self) -> None:
        """
        The file lies in the home of whoever starts the server, as in Java.
        """
        self.patch(os, "environ", {"HOME": "/home/rocket"})
        self.assertEqual(NamesrvSettings().kvConfigPath, "/home/rocket/namesrv/kvConfig.json")

    def test_live(self) -> None:
        """
        Only what is no path may be changed while the server runs.
        """
        live = [each.name for each in attrs.fields(NamesrvSettings) if each.metadata.get("live")]
        self.assertEqual(live, ["orderMessageEnable"])
