# SPDX-License-Identifier: Apache-2.0
"""
L{txrocket.broker.delivery.delaylevels} against a model.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.latemodel import LateMachine
from txrocket.broker.delivery.delaylevels import DelayLevels
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.store.dispatch import SCHEDULE_TOPIC

DELAYS = [1000, 5000, 20_000]

# make test-long asks for many more.
EXAMPLES = int(os.environ.get("TXROCKET_EXAMPLES", "150"))


class DelayMachine(LateMachine):
    """
    Messages of three levels.
    """

    longest = 30.0

    def make(self) -> tuple[list[Any], Reroutes]:
        table = self.table("delayOffset.json")
        delays = DelayLevels(
            self.clock, self.store, table, maybeDeferred, DELAYS, lambda *told: None
        )
        return [delays], Reroutes(delays.reroute)

    def waiting(self) -> list[tuple[str, int]]:
        return [(SCHEDULE_TOPIC, queueId) for queueId in range(3)]

    @rule(levels=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def sendLevels(self, levels: list[int]) -> None:
        for level in levels:
            # A time of the store may be a little older than the message.
            now = int(self.clock.seconds() * 1000)
            self.send(level, {"DELAY": str(level)}, now + DELAYS[level - 1])


class DelayModelTests(SynchronousTestCase):
    """
    Levels, crashes and restarts.
    """

    def test_delaysMatchModel(self) -> None:
        """
        No message is lost or early, the order of a level is kept, and only after a crash a
        message comes twice.
        """
        run_state_machine_as_test(
            DelayMachine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
