# SPDX-License-Identifier: Apache-2.0
"""
L{pyspark_rocketmq.jobs.command}, as far as it goes without Spark.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from pyspark_rocketmq.javahome import NoJava
from pyspark_rocketmq.jobs import command
from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[2]


class CommandTests(SynchronousTestCase):
    """
    C{txrocket-pipeline}.
    """

    def said(self, *given: str) -> tuple[int | None, str]:
        """
        What it says to arguments with which it does nothing.
        """
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            error = self.assertRaises(SystemExit, command.main, given)
        assert isinstance(error, SystemExit) and not isinstance(error.code, str)
        return error.code, printed.getvalue()

    def test_everyJobHasHelpAndFile(self) -> None:
        """
        Every job has help, and a file for spark-submit that runs it.
        """
        code, said = self.said("--help")
        self.assertEqual(code, 0)
        for name in command.JOBS:
            self.assertIn(name, said)
            code, own = self.said(name, "--help")
            self.assertEqual(code, 0)
            self.assertIn("--name-servers", own)
            file = ROOT / "spark" / "jobs" / f"{name.replace('-', '_')}.py"
            self.assertIn(f'main(["{name}", *sys.argv[1:]])', file.read_text())

    def test_invalidArgumentsAreNamed(self) -> None:
        """
        Arguments that are wrong are told by name.
        """
        archive = ("archive", "--topics", "T", "--folder", "f")
        for given, says in (
            (("archive",), "--topics"),
            ((*archive, "--batch", "0"), "'0' is not a whole number above 0"),
            ((*archive, "--option", "x"), "'x' is not NAME=VALUE"),
            (("compact", "--topics", "T", "--archive", "a", "--folder", "f"), "not allowed with"),
        ):
            code, said = self.said(*given)
            self.assertEqual(code, 2)
            self.assertIn(says, said)

    def test_missingJavaAndInterruptSetExitCode(self) -> None:
        """
        Without Java it says so, and an interrupt sets its exit code.
        """
        for raised, code, says in (
            (NoJava("no Java"), 1, "archive: no Java"),
            (KeyboardInterrupt(), 130, ""),
        ):

            def fail(arguments: object, raised: BaseException = raised) -> None:
                raise raised

            self.patch(command, "_session", fail)
            printed = io.StringIO()
            with contextlib.redirect_stderr(printed):
                found = command.main(["archive", "--topics", "T", "--folder", os.devnull])
            self.assertEqual(found, code)
            self.assertIn(says, printed.getvalue())
