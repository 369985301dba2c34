# SPDX-License-Identifier: Apache-2.0
"""
Makes a Python process tell its stacks, and start quickly: for processes that a test does not
start itself.

Python imports this module at its start if the folder is in C{PYTHONPATH}.  Spark starts its
workers as it likes, but hands them the environment::

    test --> program --> Java --> planner, daemon --> worker
      SIGUSR1 to any of them --> its stacks at the end of the file TXROCKET_STACKS

L{tests.spark.programs} sends the signal.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

if "TXROCKET_STACKS" in os.environ:
    # A forked process has the handler and the file as well.
    _file = open(os.environ["TXROCKET_STACKS"], "ab")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=_file, all_threads=True)
    # Spark puts its own archive first.  To compile the modules in it takes each process a
    # second, and Spark gives it ten on a busy machine.  The installed modules are the same.
    sys.path[:] = [each for each in sys.path if os.path.basename(each) != "pyspark.zip"]
