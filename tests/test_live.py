# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.config.live}.
"""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from txrocket.config import Configuration, Live
from txrocket.errors import ConfigError


@attrs.frozen
class Section:
    """
    Settings.
    """

    most: int = attrs.field(default=1, metadata={"live": True})


class LiveTests(SynchronousTestCase):
    """
    The cells of a configuration.
    """

    def setUp(self) -> None:
        self.configuration = Configuration.read([Section], (), None, {})

    def test_updateReplacesSection(self) -> None:
        """
        A cell holds the section as it is now, before and after a change.
        """
        cell = self.configuration.live(Section)
        self.assertEqual(Section(1), cell.now)
        self.configuration.update({"most": "2"}, 0)
        self.assertEqual(Section(2), cell.now)
        self.assertEqual(Section(2), self.configuration[Section])

    def test_partsShareOneCell(self) -> None:
        """
        All parts that read a section hold the same cell.
        """
        self.assertIs(self.configuration.live(Section), self.configuration.live(Section))

    def test_refusedUpdateKeepsSection(self) -> None:
        """
        A change that is refused leaves the section as it was.
        """
        with self.assertRaises(ConfigError):
            self.configuration.update({"most": "many"}, 0)
        self.assertEqual(Section(1), self.configuration.live(Section).now)

    def test_followerSeesNewSection(self) -> None:
        """
        A follower that is called after a change finds the new section in the cell.
        """
        cell: Live[Section] = self.configuration.live(Section)
        seen: list[int] = []
        self.configuration.follow(Section, lambda section: seen.append(cell.now.most))
        self.configuration.update({"most": "3"}, 0)
        self.assertEqual([3], seen)
