# SPDX-License-Identifier: Apache-2.0
"""
Tests for the twistd plugins and the drop-in package.
"""

from __future__ import annotations

from pathlib import Path

from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

import txrocket.plugins
from txrocket import echo


class PluginTests(SynchronousTestCase):
    """
    What twistd finds.
    """

    def test_rocketEcho(self) -> None:
        """
        twistd finds rocket-echo, once, and it leads to L{txrocket.echo}.
        """
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == "rocket-echo"]
        self.assertIs(maker.makeService, echo.makeService)
        self.assertIs(maker.options, echo.Options)

    def test_noInit(self) -> None:
        """
        The folder of plugins is no package of its own: with an C{__init__.py}
        it would hide Twisted's.
        """
        root = Path(__file__).parent.parent / "twisted"
        self.assertTrue((root / "plugins" / "txrocket_plugin.py").is_file())
        self.assertEqual(list(root.rglob("__init__.py")), [])

    def test_dropIn(self) -> None:
        """
        C{txrocket.plugins} is ours and exports nothing.
        """
        self.assertEqual(txrocket.plugins.__all__, [])
        self.assertIn(str(Path(echo.__file__).parent / "plugins"), list(txrocket.plugins.__path__))
