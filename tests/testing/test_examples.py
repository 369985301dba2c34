# SPDX-License-Identifier: Apache-2.0
"""
The examples of tests: those for trial, which it finds here, and the one for pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from examples.testing_memory import GreetingTests as InMemoryTests
from examples.testing_real import GreetingTests as OnReactorTests

__all__ = ["InMemoryTests", "OnReactorTests", "WithPytestTests"]

ROOT = Path(__file__).parent.parent.parent


class WithPytestTests(SynchronousTestCase):
    """
    The example for pytest.
    """

    def test_pytestExamplePasses(self) -> None:
        """
        It passes.
        """
        arguments = ["-q", "-p", "no:cacheprovider", "examples/testing_pytest.py"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn("1 passed", ran.stdout)
