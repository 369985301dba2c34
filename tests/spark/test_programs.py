# SPDX-License-Identifier: Apache-2.0
"""
L{tests.spark.programs}.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.spark import programs
from tests.spark.programs import Ended, Hung, Program, descendants, startedProgram

# A program whose forked child hangs, and which waits for it.
_HANGING = """
import os, time

def sleepInChild(end):
    os.write(end, b".")
    time.sleep(600)

def waitForChild(start, child):
    os.read(start, 1)
    print("forked", flush=True)
    os.waitpid(child, 0)

start, end = os.pipe()
child = os.fork()
if child:
    waitForChild(start, child)
else:
    sleepInChild(end)
"""

_FAILING = """
import sys
print("begun", flush=True)
sys.exit("it has failed")
"""


class ProgramTests(SynchronousTestCase):
    """
    L{Program}.
    """

    def start(self, text: str) -> Program:
        """
        Start a program.
        """
        folder = self.mktemp()
        os.makedirs(folder)
        program = Program(["-c", text], folder)
        self.addCleanup(program.kill)
        return program

    def test_wordInLineOfItsOwnIsFound(self) -> None:
        """
        A line that only contains the word, among others, is not waited for.
        """
        program = self.start("print('was begun'); print('begun'); print('and ended')")
        program.until("begun", 60.0)
        self.assertRaises(Ended, program.until, "begun", 60.0)
        self.assertEqual(program.wait(60.0), 0)

    def test_endedProgramTellsItsLog(self) -> None:
        """
        If a program ends without the word, the error has its log.
        """
        program = self.start(_FAILING)
        error = self.assertRaises(Ended, program.until, "working", 60.0)
        self.assertIn("it has failed", str(error))
        self.assertEqual(program.wait(60.0), 1)

    def test_hangingProgramTellsStacksOfAllProcesses(self) -> None:
        """
        If a program says nothing for too long, the error says in which function each of its
        processes is, and the program is killed.
        """
        if not os.path.exists("/proc/self/stat"):
            raise SkipTest("this system has no /proc")
        program = self.start(_HANGING)
        program.until("forked", 60.0)
        self.assertEqual(len(descendants(program.pid)), 1)
        error = self.assertRaises(Hung, program.until, "working", 0.1)
        self.assertIn("in waitForChild", str(error))
        self.assertIn("in sleepInChild", str(error))
        self.assertIn("said: forked", str(error))
        self.assertRaises(ProcessLookupError, os.kill, program.pid, 0)


class StartedProgramTests(SynchronousTestCase):
    """
    L{startedProgram}.
    """

    def start(self, *outcomes: AssertionError | None) -> str:
        """
        Start a program.

        @param outcomes: of its starts.
        @return: the text that is printed.
        """
        left = list(outcomes)
        killed = []

        class Fake:
            def __init__(self, arguments: list[str], folder: str) -> None:
                """
                It starts.
                """

            def until(self, word: str, patience: float) -> None:
                """
                The next outcome.
                """
                if (error := left.pop(0)) is not None:
                    raise error

            def kill(self) -> None:
                """
                It is killed.
                """
                killed.append(self)

        self.patch(programs, "Program", Fake)
        folder = self.mktemp()
        os.makedirs(folder)
        with contextlib.redirect_stdout(printed := io.StringIO()):
            try:
                startedProgram([], folder, "begun", 60.0, excused="too slow")
            finally:
                self.assertEqual(left, [])
                self.assertEqual(len(killed), sum(each is not None for each in outcomes))
        return printed.getvalue()

    def test_goodProgramIsStartedOnce(self) -> None:
        """
        A program that says the word is not started again, and nothing is printed.
        """
        self.assertEqual(self.start(None), "")

    def test_hungProgramIsStartedOnceMore(self) -> None:
        """
        If a program hangs, its stacks are printed, and it is started once more.
        """
        self.assertIn("in sleep", self.start(Hung("in sleep"), None))

    def test_excusedErrorIsStartedOnceMore(self) -> None:
        """
        If a program ends with the excused error, that is printed, and it is started once
        more.
        """
        self.assertIn("it was too slow", self.start(Ended("it was too slow"), None))

    def test_programThatHangsTwiceFails(self) -> None:
        """
        Two starts in a row that fail are an error, whatever the reasons.
        """
        for first, second in itertools.product((Hung("h"), Ended("too slow")), repeat=2):
            self.assertRaises(type(second), self.start, first, second)

    def test_otherErrorFails(self) -> None:
        """
        A program that ends with another error is not started again.
        """
        self.assertRaises(Ended, self.start, Ended("broken"))
