# SPDX-License-Identifier: Apache-2.0
"""
The command C{txrocket bench}.

Progress goes to standard error, the summary or the JSON object to standard output.  The exit
code is 0 if a message was sent or received, 1 if none was, and 2 if an argument is not valid.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react

from txrocket.bench.plan import Plan, readPlan
from txrocket.bench.report import ProgressLine, asJson, summary
from txrocket.bench.run import Bench, BenchFailed
from txrocket.client.cluster import Cluster
from txrocket.errors import RocketError
from txrocket.remoting.tls import ClientTLS

__all__ = ["bench", "main"]

_PROG = "txrocket bench"


def main(arguments: Sequence[str]) -> int:
    """
    Run the command.

    @return: the exit code.
    """
    plan = readPlan(arguments, _PROG)

    async def run(reactor: Any) -> None:
        tls = ClientTLS() if plan.tls else None
        code = await bench(reactor, plan, sys.stdout, sys.stderr, tls=tls)
        if code:
            raise SystemExit(code)

    try:
        react(lambda reactor: Deferred.fromCoroutine(run(reactor)))
    except SystemExit as ended:
        return int(ended.code or 0)


async def bench(reactor: Any, plan: Plan, out: TextIO, err: TextIO, **options: Any) -> int:
    """
    Run the benchmark, and print its report.

    @param options: arguments of the L{Cluster}.
    @return: the exit code.
    """

    def failed(why: object) -> int:
        progress.done()
        print(f"{_PROG}: {why}", file=err)
        return 1

    progress = ProgressLine(err)
    try:
        cluster = Cluster(plan.nameServers, reactor, **options)
        run = Bench(plan, cluster, os.urandom(4), progress.show)
    except RocketError as error:
        return failed(error)
    async with cluster:
        task = Deferred.fromCoroutine(run.run())
        handler = _Interrupt(reactor, run, task)
        reactor.callWhenRunning(handler.install)
        try:
            outcome = await task
        except BenchFailed as error:
            return failed(error)
        except CancelledError:
            return failed("interrupted before anything was measured")
        finally:
            handler.remove()
    progress.done()
    print(json.dumps(asJson(outcome), indent=2) if plan.json else summary(outcome), file=out)
    return 0 if outcome.messages else 1


class _Interrupt:
    """
    The handler of Ctrl-C: it ends the run, so that the program still prints its summary.
    """

    def __init__(self, reactor: Any, run: Bench, task: Deferred[Any]) -> None:
        self._reactor = reactor
        self._run = run
        self._task = task
        self._before: Any = None

    def install(self) -> None:
        """
        Set the handler.  Twisted sets its own when the reactor starts, and that one would
        not wait for the summary.
        """
        if not self._task.called:
            self._before = signal.signal(signal.SIGINT, self._received)

    def remove(self) -> None:
        """
        Restore the handler before.
        """
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _received(self, number: int, frame: object) -> None:
        # A second Ctrl-C ends the program at once.
        self.remove()
        self._reactor.callFromThread(self.interrupt)

    def interrupt(self) -> None:
        """
        End the run.  If it does not measure yet, cancel it.
        """
        if self._run.measuring:
            self._run.end("interrupted")
        elif not self._task.called:
            self._task.cancel()
