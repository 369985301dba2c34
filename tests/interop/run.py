# SPDX-License-Identifier: Apache-2.0
"""
Runs the cells of the table: several at a time, with few servers up at once.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from twisted.internet.defer import (
    Deferred,
    DeferredSemaphore,
    gatherResults,
)

from tests.certificates import identity
from tests.interop import scenarios
from tests.interop.cells import PAIRINGS, SCENARIOS, Cell, Pairing, Scenario
from tests.interop.clients import Drivers, Identity
from tests.interop.programs import BUILD, ROOT, versions
from tests.interop.replication import Replication
from tests.interop.servers import SLOW, Configuration, Servers
from tests.interop.table import FAIL, LACKING, NONE, PASS, Notes, document, storesTable, table
from tests.live.servers import Child, reactor
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.tls import ClientTLS

__all__ = ["Run"]

# How many kinds of servers are up at once, and how many that only one cell uses: these
# mostly wait.
_UP = 2
_UP_ALONE = 5

# How many seconds a cell's clients have to stop.
_CLOSE = 150.0

_FAILURES = BUILD / "failures.log"
_TURNS = "tests.interop.live"
_STORES = (_TURNS, "tests.interop.livedamage", "tests.interop.livetables")
_PAGE = ROOT / "docs" / "interop.md"

# Scenarios are found by their having been imported.
assert scenarios.__all__


class Run:
    """
    A run.
    """

    def __init__(self, absent: Mapping[str, str], only: str, pairing: str, jobs: int) -> None:
        """
        @param absent: the clients that cannot be run here.
        @param only: what is in the titles of the scenarios to run.
        @param pairing: what is in the names of the pairings to run.
        @param jobs: how many cells may run at a time.
        """
        self._absent = absent
        self._scenarios = [each for each in SCENARIOS if only.lower() in each.title.lower()]
        self._wanted = pairing
        self._pairings = [each for each in PAIRINGS if pairing in str(each)]
        self._whole = not only and not pairing
        self._jobs = DeferredSemaphore(jobs)
        self._results: dict[tuple[str, Pairing], str] = {}
        self._failures: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="txrocket-interop-"))
        self._identity = self._certificates()
        self._drivers = Drivers(self._folder / "clients", self._identity)
        self._began = time.monotonic()
        self._stores = LACKING
        # Alone, it is asked for by its name.
        wanted = self._whole or (bool(only) and only.lower() in "replication")
        self._replication = Replication(absent if wanted else {"java": "", "ours": ""})

    def _certificates(self) -> Identity:
        authority = identity("authority", authority=True)
        folder = str(self._folder)
        authorityPath, _ = authority.write(folder, "authority")
        identity("server", authority).write(folder, "server")
        return Identity(authorityPath, *identity("client", authority).write(folder, "client"))

    def _configuration(self, name: str) -> Configuration:
        if name == "binary":
            return Configuration(name, system={"rocketmq.serialize.type": "ROCKETMQ"})
        if name == "tls":
            server, client = self._folder / "server", self._identity
            return Configuration(
                name,
                system={
                    "tls.server.mode": "enforcing",
                    "tls.test.mode.enable": "false",
                    "tls.server.certPath": f"{server}.pem",
                    "tls.server.keyPath": f"{server}.key",
                    "tls.server.need.client.auth": "require",
                    "tls.server.authClient": "true",
                    "tls.server.trustCertPath": client.authority,
                    "tls.client.authServer": "true",
                    "tls.client.trustCertPath": client.authority,
                    "tls.client.certPath": client.certificate,
                    "tls.client.keyPath": client.key,
                    "tls.enable": "true",
                },
            )
        if name == "slow":
            return Configuration(name, settings=SLOW)
        return Configuration(name)

    # --- all of it -------------------------------------------------------

    async def run(self) -> int:
        """
        Run all cells.

        @return: the exit code.
        """
        _FAILURES.unlink(missing_ok=True)
        try:
            turns = Deferred.fromCoroutine(self._turns())
            await self._groups()
            await turns
            # Afterwards: brokers that must start again in time share the machine with few.
            await self._replication.run()
            self._failures += self._replication.failures
        finally:
            await self._drivers.end()
            if not self._failures:
                shutil.rmtree(self._folder, ignore_errors=True)
        return self._report()

    async def _turns(self) -> None:
        """
        RocketMQ's store and ours on one folder, without brokers: tests as all others,
        but for that they need Java.
        """
        if not self._whole or "java" in self._absent:
            return
        child = Child()
        folder = str(self._folder / "turns")
        command = [sys.executable, "-m", "twisted.trial", f"--temp-directory={folder}", *_STORES]
        reactor.spawnProcess(child, command[0], command, env=dict(os.environ), path=str(ROOT))
        if await child.whenEnded():
            self._failures.append(f"{_TURNS}:\n{child.output}")
        found = re.search(r"Ran (\d+) tests", child.output)
        outcome = re.findall(r"^(?:PASSED|FAILED).*", child.output, re.MULTILINE)
        self._stores = f"{found[1] if found else 0} checks: {outcome[-1] if outcome else FAIL}"
        print(f"{time.monotonic() - self._began:5.0f} s  {_TURNS}  {self._stores}", flush=True)

    async def _groups(self) -> None:
        """
        Cells that share servers, one group after the other, and beside them those that
        need servers of their own, some at a time of both.
        """
        groups: dict[tuple[tuple[str, str], str], list[tuple[Scenario, Pairing]]] = {}
        alone: list[tuple[Scenario, Pairing]] = []
        for scenario, pairing in self._cells():
            if scenario.hindrances(pairing):
                self._results[scenario.title, pairing] = NONE
            elif pairing.lacks(self._absent):
                self._results[scenario.title, pairing] = LACKING
            elif scenario.own:
                alone.append((scenario, pairing))
            else:
                key = pairing.kinds, scenario.configuration
                groups.setdefault(key, []).append((scenario, pairing))
        # Those that take longest begin.
        alone.sort(key=lambda cell: -cell[0].limit)
        up, upAlone = DeferredSemaphore(_UP), DeferredSemaphore(_UP_ALONE)
        running = [up.run(_coroutine(self._group, *key, cells)) for key, cells in groups.items()]
        for cell in alone:
            key = cell[1].kinds, cell[0].configuration
            running.append(upAlone.run(_coroutine(self._group, *key, [cell])))
        await gatherResults(running)

    def _cells(self) -> Iterator[tuple[Scenario, Pairing]]:
        for pairing in self._pairings:
            for scenario in self._scenarios:
                if scenario.pairings is None:
                    yield scenario, pairing
        for scenario in self._scenarios:
            for pairing in scenario.pairings or ():
                if self._wanted in str(pairing):
                    yield scenario, pairing

    async def _group(
        self, kinds: tuple[str, str], name: str, cells: Iterable[tuple[Scenario, Pairing]]
    ) -> None:
        """
        Cells that share servers.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"{'-'.join(kinds)}-{name}-", dir=self._folder))
        servers = Servers(kinds, self._configuration(name), folder)
        peers = self._peers(name)
        try:
            await servers.start()
            await gatherResults(
                [
                    self._jobs.run(_coroutine(self._cell, scenario, pairing, servers, peers))
                    for scenario, pairing in cells
                ]
            )
            if servers.faults:
                self._failures.append(f"{kinds} said:\n" + "\n".join(servers.faults[:20]))
        except Exception:
            self._failures.append(f"{kinds}, {name}: {traceback.format_exc()}")
            for scenario, pairing in cells:
                self._results.setdefault((scenario.title, pairing), FAIL)
        finally:
            await peers.stop()
            await servers.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _peers(self, configuration: str) -> Peers:
        tls = None
        if configuration == "tls":
            own = self._identity
            tls = ClientTLS(
                authServer=True,
                trustCertPath=own.authority,
                certPath=own.certificate,
                keyPath=own.key,
            )
        return Peers(Remoting(reactor), endpoints(reactor, tls))

    # --- a cell ----------------------------------------------------------

    async def _cell(
        self, scenario: Scenario, pairing: Pairing, servers: Servers, peers: Peers
    ) -> None:
        cell = Cell(scenario, pairing, servers, self._drivers, peers, self._absent)
        began = time.monotonic()
        problem: Exception | None = None
        for limit, doing in ((scenario.limit, scenario.run), (_CLOSE, Cell.close)):
            try:
                await _within(limit, doing(cell))
            except Exception as error:
                problem = problem or error
        self._results[scenario.title, pairing] = FAIL if problem else PASS
        now = time.monotonic()
        said = f"FAIL  {problem!r}"[:300] if problem else "pass"
        times = f"{now - self._began:5.0f} s  {now - began:5.1f} s"
        print(f"{times}  {scenario.title}  {pairing}  {said}", flush=True)
        if problem:
            told = "".join(traceback.format_exception(problem, limit=-8))
            self._failures.append(f"{scenario.title}, {pairing}: {said}\n{told}\n{cell.output}")

    # --- what came of it -------------------------------------------------

    def _report(self) -> int:
        general = [each for each in self._scenarios if each.pairings is None]
        notes = Notes()
        tables = table(general, self._pairings, self._results, notes)
        stores = storesTable(
            [each for each in self._scenarios if each.pairings is not None], self._results
        )
        counts = [list(self._results.values()).count(each) for each in (PASS, FAIL, LACKING)]
        minutes = (time.monotonic() - self._began) / 60
        summary = (
            f"{counts[0]} cells passed, {counts[1]} failed, {counts[2]} could not be run;"
            f" it took {minutes:.0f} minutes."
        )
        replication = self._replication.page
        print(f"\n{tables}\n{notes}\n\n{stores}\n{replication}\n{summary}", flush=True)
        # Without Java there is hardly anything in it.
        if self._whole and "java" not in self._absent:
            stores += f"\nRocketMQ's store and ours on one folder, without brokers: {self._stores}"
            today = datetime.date.today()
            named = versions(self._absent)
            _PAGE.write_text(document(tables, notes, named, stores, replication, today, summary))
        if self._failures:
            _FAILURES.write_text(f"\n{'=' * 78}\n".join(self._failures))
            failed = "\n".join(each.partition("\n")[0] for each in self._failures)
            print(f"\nFailed, with more in {_FAILURES}:\n{failed}", flush=True)
        return 1 if self._failures else 0


def _coroutine(
    function: Callable[..., Awaitable[None]], *arguments: object
) -> Callable[[], Deferred[None]]:
    return lambda: Deferred.fromCoroutine(function(*arguments))  # type: ignore[arg-type]


async def _within(seconds: float, doing: Awaitable[None]) -> None:
    await Deferred.fromCoroutine(doing).addTimeout(seconds, reactor)  # type: ignore[arg-type]
