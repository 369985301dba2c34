# SPDX-License-Identifier: Apache-2.0
"""
What is installed: the list of packages in C{setup.cfg} is written by hand.
"""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

_ROOT = Path(__file__).parents[1]


class PackageListTests(SynchronousTestCase):
    """
    The list of packages.
    """

    def test_packageInTreeIsListed(self) -> None:
        """
        Every package of txrocket is listed: one that is not would be missing where txrocket
        is installed, and not in a checkout.
        """
        settings = ConfigParser()
        settings.read(_ROOT / "setup.cfg")
        listed = set(settings["options"]["packages"].split())
        there = {
            ".".join(each.parent.relative_to(_ROOT).parts)
            for each in (_ROOT / "txrocket").rglob("__init__.py")
        }
        self.assertEqual(there - listed, set())
