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

    def test_settingsAreJavas(self) -> None:
        """
        Names, types and defaults are Java's, except for the home, which depends on the
        machine, and the black list of 4.9.8.
        """
        self.assertEqual(
            set(differences(NamesrvSettings, "NamesrvConfig")) - {"kvConfigPath"},
            {"configBlackList"},
        )
        self.assertEqual(
            NamesrvSettings().configBlackList, "configBlackList;configStorePath;kvConfigPath"
        )

    def test_fileIsInHome(self) -> None:
        """
        The file is in the home directory of the user, as in Java.
        """
        self.patch(os, "environ", {"HOME": "/home/rocket"})
        self.assertEqual(NamesrvSettings().kvConfigPath, "/home/rocket/namesrv/kvConfig.json")

    def test_onlySettingsWithoutPathAreLive(self) -> None:
        """
        Only settings that are not paths may be changed while the server runs.
        """
        live = [each.name for each in attrs.fields(NamesrvSettings) if each.metadata.get("live")]
        self.assertEqual(live, ["orderMessageEnable"])
