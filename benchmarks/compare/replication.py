# SPDX-License-Identifier: Apache-2.0
"""
A master with slaves of its own kind, on one machine::

    generator --> master --HA port--> slave        sends in rounds, as without a slave
                  master --2 GB-----> slave        catching up, and sends meanwhile
    generator --> master --> slave, slave, a slave that is stopped       memory

Slaves are told where their master is, so no name server takes part.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable

from benchmarks.compare.brokers import Running
from benchmarks.compare.figures import Sample, settle
from benchmarks.compare.findings import Findings
from benchmarks.compare.rounds import Fleet, Plan, measure
from benchmarks.compare.scenarios import MAIN, REPLICATED, Scenario
from benchmarks.generator import run
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import decodeCommand, requestCommand

__all__ = ["Replicated", "logEnd"]

# The seconds until a slave has connected and caught up.
_PATIENCE = 300.0

# How often it is asked how far it has come.
_EVERY = 0.1

_FILL = {"connections": 4, "inflight": 4, "body": 1024, "batch": 100, "topic": "behind"}
_FILLED = 110 << 10

_SIZE = struct.Struct(">i")


def logEnd(port: int) -> int:
    """
    Ask a broker where its log ends.

    @return: -1 if it cannot tell yet.
    """
    command = requestCommand(RequestCode.GET_BROKER_RUNTIME_INFO, None)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(command.encode())
        data = b""
        while len(data) < 4 or len(data) < 4 + _SIZE.unpack_from(data)[0]:
            if not (more := connection.recv(1 << 16)):
                raise RuntimeError("the broker closed the connection")
            data += more
    answer = decodeCommand(data, 4, len(data))
    if answer.code:
        return -1
    return int(decodeBody(KVTable, answer.body).table["commitLogMaxOffset"])


def _until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {_PATIENCE:g} s")
        time.sleep(_EVERY)


class _Group:
    """
    A master and its slaves.
    """

    def __init__(self, fleet: Fleet, side: str, role: str, slaves: int) -> None:
        self.master = fleet.start(side, brokerRole=role, brokerId=0)
        self.slaves: list[Running] = []
        try:
            for number in range(1, slaves + 1):
                address = f"127.0.0.1:{self.master.port + 1}"
                self.slaves.append(
                    fleet.start(side, brokerRole="SLAVE", brokerId=number, haMasterAddress=address)
                )
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        run(self.master.port, "send", total=8, warm=0, connections=1, inflight=1)
        for each in self.slaves:
            self.wait(each)

    def wait(self, slave: Running) -> None:
        """
        Wait until a slave has all that the master has.
        """
        _until(lambda: logEnd(slave.port) == logEnd(self.master.port) > 0, "a slave catching up")

    def close(self) -> None:
        """
        Kill all.
        """
        for each in (*self.slaves, self.master):
            each.close()


class Replicated:
    """
    Each method measures one of the module's pictures.
    """

    def __init__(
        self, fleet: Fleet, plan: Plan, findings: Findings, say: Callable[[str], None]
    ) -> None:
        self._fleet = fleet
        self._plan = plan
        self._findings = findings
        self._say = say

    def run(self, scenario: Scenario, java: bool) -> None:
        """
        Run all rounds of a scenario.

        @param java: whether RocketMQ's brokers take part.
        """
        kept = self._findings.samples.setdefault(scenario.name, {"ours": [], "java": []})
        for side in ("ours", "java") if java else ("ours",):
            group = _Group(self._fleet, side, scenario.role, 1)
            try:
                self._settle(group, side, scenario)
                for turn in range(self._plan.rounds):
                    found = self._round(group, side, scenario)
                    kept[side].append(found)
                    self._say(
                        f"{scenario.name} {turn + 1} {group.master.name:8} {found.rate:11,.0f}/s"
                        f" {found.cpu:7.2f} us {found.p99:8.2f} ms p99 {found.errors or ''}"
                    )
            finally:
                group.close()

    def _settle(self, group: _Group, side: str, scenario: Scenario) -> None:
        plan = self._plan
        again = (plan.least // 2, plan.least) if side == "java" else (1, 1)
        settle(
            lambda: measure(group.master, scenario, plan.window, 0).rate, max(1, again[0]), again[1]
        )

    def _round(self, group: _Group, side: str, scenario: Scenario) -> Sample:
        plan = self._plan
        found = measure(group.master, scenario, plan.seconds, plan.warm)
        behind = logEnd(group.master.port) - logEnd(group.slaves[0].port)
        if scenario.role == "ASYNC_MASTER":
            self._findings.behind[side].append(behind / 1e6)
        # The next round begins with a slave that has everything.
        group.wait(group.slaves[0])
        return found

    def catchUp(self, side: str) -> None:
        """
        Measure a slave that is far behind, and the sends meanwhile.

        RocketMQ's slave would begin with the master's last file if it had nothing at all, so
        it has the beginning, and is away while the master gets more.
        """
        plan, findings = self._plan, self._findings
        group = _Group(self._fleet, side, "ASYNC_MASTER", 1)
        slave, master = group.slaves[0], group.master
        try:
            slave.stop()
            run(master.port, "batch", warm=0, total=max(1, plan.behind // _FILLED), **_FILL)
            self._caughtUp(group, side)
            # Once more, with senders.
            slave.stop()
            run(master.port, "batch", warm=0, total=max(1, plan.behind // _FILLED // 2), **_FILL)
            load = MAIN
            findings.sendsBefore[side].append(measure(master, load, plan.seconds, plan.warm).rate)
            self._first(slave)
            findings.sendsWhile[side].append(measure(master, load, plan.seconds, 0).rate)
            self._say(
                f"{master.name}: {findings.sendsBefore[side][-1]:,.0f} sends/s before,"
                f" {findings.sendsWhile[side][-1]:,.0f} while a slave catches up"
            )
        finally:
            group.close()

    def _first(self, slave: Running) -> int:
        """
        Start a slave, and wait for its first byte.

        @return: where its log ended before.
        """
        slave.start()
        _until(lambda: logEnd(slave.port) >= 0, "a slave's start")
        before = logEnd(slave.port)
        _until(lambda: logEnd(slave.port) > before, "a slave's first byte")
        return before

    def _caughtUp(self, group: _Group, side: str) -> None:
        findings, master, slave = self._findings, group.master, group.slaves[0]
        began = time.monotonic()
        self._first(slave)
        first, at = time.monotonic(), logEnd(slave.port)
        before = master.cpu(), slave.cpu()
        group.wait(slave)
        seconds = max(time.monotonic() - first, _EVERY)
        size = (logEnd(slave.port) - at) / 1e6
        findings.catchUp[side].append(size / seconds)
        findings.waits[side].append(first - began)
        findings.masterCpu[side].append((master.cpu() - before[0]) * 1000 / size)
        findings.slaveCpu[side].append((slave.cpu() - before[1]) * 1000 / size)
        self._say(
            f"{master.name}: caught up at {size / seconds:,.0f} MB/s, after {first - began:.1f} s;"
            f" CPU for a MB: master {findings.masterCpu[side][-1]:.2f} ms,"
            f" slave {findings.slaveCpu[side][-1]:.2f} ms"
        )

    def memory(self, side: str) -> None:
        """
        Measure the memory of a master with three slaves, one of which is stopped.
        """
        plan = self._plan
        group = _Group(self._fleet, side, "ASYNC_MASTER", 3)
        stopped = group.slaves[2]
        try:
            self._settle(group, side, REPLICATED[2])
            os.kill(stopped.pid, signal.SIGSTOP)
            for _ in range(plan.rounds):
                measure(group.master, REPLICATED[2], plan.seconds, plan.warm)
                self._findings.threeSlaves[side].append(group.master.memory())
            self._say(f"{group.master.name}: {group.master.memory():.0f} MB with three slaves")
        finally:
            group.close()
