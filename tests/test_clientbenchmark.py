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

    def test_eachClientIsMeasured(self) -> None:
        """
        Each kind of client sends or consumes, and a line tells its cost; without the C++
        client a line says that it is missing.
        """
        self.patch(client, "BINDING", "no_such_package")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            client.main(client.Size(rounds=1, requests=512, consumed=100))
        _, *lines, missing = printed.getvalue().splitlines()
        self.assertEqual([line[0] for line in lines], [*"ababab", *"cdefg"])
        for line in lines:
            self.assertRegex(line, r"\S  +\d+\.\d\d( +\d+\.\d\d +\d*)? +[\d,]+\Z")
        self.assertIn("no_such_package is not installed", missing)

    def test_cppClientIsCompared(self) -> None:
        """
        With the C++ client, its figures stand below ours, with the median of the rounds'
        ratios.
        """
        ours, echo, cpp = [(2.0, 10.0), (3.0, 20.0), (4.0, 90.0)], [(1.0, 1.0)] * 3, [(6.0, 5.0)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            client.Line("b  send", ours, echo, 3 * cpp, 5).show()
        first, second = printed.getvalue().splitlines()
        self.assertEqual(first.split(), ["b", "send", "3.00", "3.00", "5", "20"])
        self.assertRegex(second, r"\A   the same in C\+\+ +6\.00 +5  2\.00 x ours\Z")
