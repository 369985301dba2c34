# SPDX-License-Identifier: Apache-2.0
"""
Tests for the fuzzer of the compiled module, and a short run of it on the ordinary build.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.sanitized import __main__ as sanitized
from tests.sanitized import fuzz
from tests.sanitized.arguments import ARGUMENTS
from tests.sanitized.mutation import STRANGE, mutated
from txrocket.bulk import compiled

ROOT = Path(__file__).parents[2]
CASES = 3000


class FuzzTests(SynchronousTestCase):
    """
    What the fuzzer does.
    """

    if compiled is None:
        skip = "the compiled module was not built"

    def test_everyFunctionFuzzed(self) -> None:
        """
        Every function of the compiled module has a maker of arguments.
        """
        functions = {each for each in dir(compiled) if not each.startswith("_")}
        self.assertEqual(functions - set(ARGUMENTS), set())

    def test_seedRepeatsCase(self) -> None:
        """
        A seed and a number make the same case again, and other numbers other cases.
        """
        names = ["suspect", "messageIds", "decodePulls"]
        first, again = ([fuzz.case(7, each, names) for each in range(30)] for _ in range(2))
        self.assertEqual(repr(first), repr(again))
        self.assertNotEqual(repr(first), repr([fuzz.case(8, each, names) for each in range(30)]))

    def test_shortRunSilent(self) -> None:
        """
        A short run ends without a crash, and each function has served and refused.
        """
        program = [sys.executable, "-m", "tests.sanitized.fuzz", "--cases", str(CASES)]
        ended = subprocess.run(
            [*program, "--seed", "20261118"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)
        rows = [line.split() for line in ended.stdout.splitlines()[1:]]
        self.assertEqual({row[0] for row in rows} - set(ARGUMENTS), set())
        self.assertEqual(sum(int(row[1]) + int(row[3]) for row in rows), CASES)
        self.assertGreater(sum(int(row[1]) for row in rows), CASES // 4)

    def test_unexpectedErrorTold(self) -> None:
        """
        An error that no function may raise ends the run, and the case is printed.
        """

        class Broken:
            @staticmethod
            def suspect(*arguments: object) -> None:
                raise SystemError("unexpected")

        self.patch(fuzz, "compiled", Broken)
        with patch("sys.stderr") as printed:
            self.assertRaises(
                SystemError, fuzz.fuzz, 3, ["suspect"], range(5), lambda: False
            )  # fmt: skip
        said = "".join(str(call.args[0]) for call in printed.write.call_args_list)
        self.assertIn("seed 3, case 0: suspect(", said)

    def test_valuesChange(self) -> None:
        """
        A change makes another value, as a rule of the same type.
        """
        chance = random.Random(1)
        for value in (7, "text", b"some bytes", [1, b"x"], (1, "y"), {1: b"z"}, bytearray(b"w")):
            changed = [mutated(value, chance) for _ in range(200)]
            same = sum(type(each) is type(value) for each in changed)
            self.assertGreater(same, 120, value)
            self.assertGreater(sum(each != value for each in changed), 100, value)
        self.assertIn(mutated(None, chance), STRANGE)


class SanitizedTests(SynchronousTestCase):
    """
    When the sanitized build is left out.
    """

    def test_noCompilerSkips(self) -> None:
        """
        Without a C compiler nothing is run, and the reason is printed.
        """
        with patch.object(sanitized, "compiler", lambda: None), patch("sys.stdout") as printed:
            self.assertEqual(sanitized.main(), 0)
        said = "".join(str(call.args[0]) for call in printed.write.call_args_list)
        self.assertIn("skipped: there is no C compiler", said)

    def test_noSanitizerSkips(self) -> None:
        """
        A compiler without AddressSanitizer is told by what to install.
        """
        with patch.object(sanitized, "libraries", lambda compiler: []):
            self.assertIn("libasan", str(sanitized.lacks(sys.executable)))
