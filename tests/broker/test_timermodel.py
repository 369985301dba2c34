# SPDX-License-Identifier: Apache-2.0
"""
L{txrocket.broker.delivery.timers} against a model.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.latemodel import LateMachine
from tests.store.ledger import ROOT
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.delivery.timers import Timers
from txrocket.broker.delivery.timerwheel import TimerWheel
from txrocket.broker.settings import DelaySettings
from txrocket.broker.tables.flushedtable import FlushedTable
from txrocket.config import Live
from txrocket.store.dispatch import TIMER_TOPIC

# A wheel of 8 seconds, with room for 4 messages in memory.
UNIT, QUEUES, MOST = 1000, 8, 4

# make test-long asks for many more.
EXAMPLES = int(os.environ.get("TXROCKET_EXAMPLES", "80"))


class TimerMachine(LateMachine):
    """
    Messages of all times, on a wheel so small that they go around it several times.
    """

    longest = 60.0
    forgot = False

    def make(self) -> tuple[list[Any], Reroutes]:
        timers = Timers(
            self.clock,
            self.store,
            TimerWheel(self.store, unit=UNIT, queues=QUEUES, most=MOST),
            FlushedTable(self.store, self.table("timers.json"), maybeDeferred),
            Live(DelaySettings()),
            lambda *told: None,
        )
        return [timers], Reroutes(timers.reroute)

    def waiting(self) -> list[tuple[str, int]]:
        return [(TIMER_TOPIC, queueId) for queueId in range(QUEUES)]

    def parked(self) -> Counter[int]:
        """
        Once a past was forgotten, messages went around the wheel anew, and their copies are
        due at other turns of it.
        """
        if not self.forgot:
            return Counter()
        return Counter(number for place in self.waiting() for number in self.found(place))

    @rule(
        delays=st.lists(
            st.one_of(st.integers(1, 3000), st.integers(1, 40_000), st.sampled_from([999, 1000])),
            min_size=1,
            max_size=8,
        )
    )
    def sendTimes(self, delays: list[int]) -> None:
        for delay in delays:
            due = round(self.clock.seconds() * 1000) + delay
            self.send(0, {"TIMER_DELIVER_MS": str(due)}, due)

    @rule(count=st.integers(5, 30), delay=st.integers(1, 20_000))
    def sendMany(self, count: int, delay: int) -> None:
        self.sendTimes([delay] * count)

    @precondition(lambda self: not self.forgot)
    @rule()
    def forget(self) -> None:
        """
        What was known of the past is lost; once, for each time there is twice as much
        to deliver.
        """
        self.end()
        for name in self.disk.names(f"{ROOT}/config"):
            self.disk.remove(f"{ROOT}/config/{name}")
        self.settled.clear()
        self.open()
        self.crashed()
        self.forgot = self.disordered = True


class TimerModelTests(SynchronousTestCase):
    """
    Times, crashes and restarts.
    """

    def test_timersMatchModel(self) -> None:
        """
        No message is lost or early, the order of times is kept, and only after a crash a
        message comes twice.
        """
        run_state_machine_as_test(
            TimerMachine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
