# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{benchmarks.client}: what it measures is there to be measured.
"""

from __future__ import annotations

import contextlib
import io

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import client


class ClientTests(SynchronousTestCase):
    """
    All of it, with next to nothing to do.
    """

    def test_tiny(self) -> None:
        """
        Each kind of client sends or consumes, and a line tells what it costs; without
        the C++ client a line tells that it is missing.
        """
        self.patch(client, "BINDING", "no_such_package")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            client.main(client.Size(rounds=1, requests=512, consumed=100))
        _, *lines, missing = printed.getvalue().splitlines()
        self.assertEqual([line[0] for line in lines], [*"ababab", *"de"])
        for line in lines:
            self.assertRegex(line, r"\S  +\d+\.\d\d +\d+\.\d\d ")
        self.assertIn("no_such_package is not installed", missing)
