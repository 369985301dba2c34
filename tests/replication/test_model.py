# SPDX-License-Identifier: Apache-2.0
"""
Schedules of a master and two slaves: links are cut, processes are killed, machines lose their
power, roles change, and all promises hold.

C{TXROCKET_SCHEDULES} is the number of schedules.  C{python -m tests.replication --first SEED
--count 1 --tell} shows what happens in one of them.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.replication.mutations import FOUND, mutated
from tests.replication.runs import attempt

SCHEDULES = int(os.environ.get("TXROCKET_SCHEDULES", "300"))


class ModelTests(SynchronousTestCase):
    """
    L{Schedule<tests.replication.schedule.Schedule>}.
    """

    def test_everyScheduleKeepsThePromises(self) -> None:
        """
        Once everything is healed, all logs are equal, queues, index and offsets agree with them,
        and nothing that a SYNC_MASTER acknowledged is lost.
        """
        broken = []
        for seed in range(SCHEDULES):
            error = attempt(seed)[1]
            if error is not None:
                broken.append(f"seed {seed}: {error!r}")
        self.assertEqual(broken, [])

    def test_ruleLeftOutIsFound(self) -> None:
        """
        Without the comparison of epochs, without the cut, or without another rule that
        L{FOUND} lists, a schedule breaks a promise.
        """
        for name, seed in FOUND.items():
            with mutated(name):
                self.assertIsNotNone(attempt(seed)[1], f"{name}: seed {seed} finds nothing")
