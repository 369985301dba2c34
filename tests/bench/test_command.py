# SPDX-License-Identifier: Apache-2.0
"""
Tests for the command C{txrocket}, as a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.twistd import LIMIT, ROOT
from txrocket import __version__
from txrocket.testing.childcluster import ChildCluster

RUN = "import sys; from txrocket.server.main import main; sys.exit(main())"


class CommandTests(SynchronousTestCase):
    """
    Processes.
    """

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """
        Start one.
        """
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"},
            # What a shell has started in the background ignores this signal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_(self, *arguments: str) -> tuple[int, str, str]:
        """
        Run one to its end.

        @return: its status, and what it has printed.
        """
        process = self.start(*arguments)
        out, err = process.communicate(timeout=LIMIT)
        return process.returncode, out, err

    def test_helpListsTools(self) -> None:
        """
        The version and the tools are listed; an unknown tool is refused.
        """
        self.assertEqual(self.run_("--version"), (0, f"txrocket {__version__}\n", ""))
        code, out, _ = self.run_("--help")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"bench +measure a cluster")
        code, out, _ = self.run_("bench", "--help")
        self.assertEqual(code, 0)
        self.assertIn("--nameserver", out)
        for wrong in ([], ["nothing"]):
            self.assertEqual(self.run_(*wrong)[0], 2)

    def test_unreachableClusterExitsWithOne(self) -> None:
        """
        A cluster that is not there is told in one line, with status 1.
        """
        code, out, err = self.run_("bench", "produce", "-n", "127.0.0.1:1")
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^txrocket bench: .*127\.0\.0\.1:1.*refused[^\n]*\n$")

    def test_interruptedRunPrintsSummary(self) -> None:
        """
        With real servers, both ways; and Ctrl-C ends a run with what there is.
        """
        with ChildCluster() as cluster:
            where = ("-n", cluster.nameServers[0])
            code, out, err = self.run_("bench", "both", *where, "--count", "500", "--json")
            self.assertEqual((code, err), (0, ""))
            told: dict[str, Any] = json.loads(out)
            for each in (told["produced"], told["consumed"]):
                self.assertEqual(each["messages"], 500)
                latency = each["latencyMs"]
                self.assertTrue(0 < latency["p50"] <= latency["p99"] <= latency["max"])
            process = self.start("bench", "produce", *where, "--seconds", "600", "--rate", "50")
            assert process.stderr is not None
            # It runs.
            self.assertIn("sent", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 0)
            self.assertIn("ended by interrupted", out)
