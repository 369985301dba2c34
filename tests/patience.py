# SPDX-License-Identifier: Apache-2.0
"""
An end for tests that get stuck.

Trial gives a Deferred two minutes, but can do nothing about a test that blocks: one that
waits for another program would keep continuous integration waiting, and the log would not
say for what.
"""

from __future__ import annotations

import faulthandler
from typing import Any

from twisted.trial.reporter import Reporter, VerboseTextReporter

__all__ = ["PATIENCE", "Impatient", "VerboseImpatient", "goOn"]

# What the longest test takes on a slow machine, several times over.
PATIENCE = 900.0

_waiting = False


def goOn() -> None:
    """
    A test of many steps has come a step further, and has its time anew.
    """
    if _waiting:
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=2)


class Impatient(Reporter):
    """
    Says where each thread is, and ends the process, if one test takes longer than
    L{PATIENCE}.
    """

    def startTest(self, method: Any) -> None:
        """
        A test begins.
        """
        global _waiting
        super().startTest(method)
        _waiting = True
        goOn()

    def stopTest(self, method: Any) -> None:
        """
        It is over.
        """
        global _waiting
        _waiting = False
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(method)


class VerboseImpatient(Impatient, VerboseTextReporter):
    """
    The same, with a line for each test.
    """
