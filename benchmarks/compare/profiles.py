# SPDX-License-Identifier: Apache-2.0
"""
Where the time of our broker goes, for the page to tell where an aim is missed.
"""

from __future__ import annotations

import subprocess

from benchmarks.compare.brokers import OurBroker, freePort
from benchmarks.compare.rounds import measure, prepare
from benchmarks.compare.scenarios import SCENARIOS

__all__ = ["cut", "profile"]

# Read by the interpreter that wrote it: the form may differ from one to the next.
_PRINT = """
import pstats, sys
pstats.Stats(sys.argv[1]).strip_dirs().sort_stats("tottime").print_stats(15)
"""

# Of a profiled broker, which is a few times slower than one that is not.
_SECONDS = 4.0


def cut(printed: str) -> str:
    """
    What L{pstats} prints, without the name of the file and empty lines.
    """
    lines = [each.rstrip() for each in printed.splitlines()]
    begin = next((at for at, each in enumerate(lines) if "function calls" in each), 0)
    return "\n".join(each for each in lines[begin:] if each)


def profile(python: str, name: str, pure: bool = False) -> str:
    """
    Run a scenario once more under C{cProfile}.

    @param name: of the scenario; a name of none has the broker started and stopped.
    @return: the 15 functions that took most time themselves.
    """
    scenario = next((each for each in SCENARIOS if each.name == name), None)
    settings = {} if scenario is None else {"flushDiskType": scenario.flush}
    port = freePort()
    broker = _Profiled(port, python=python, pure=pure, **settings)
    try:
        if scenario is not None:
            prepare(broker, scenario)
            measure(broker, scenario, _SECONDS, 0)
        broker.stop()
        written = broker.folder / "profile"
        done = subprocess.run(
            [python, "-c", _PRINT, str(written)], capture_output=True, text=True, check=True
        )
    finally:
        broker.close()
    return cut(done.stdout)


class _Profiled(OurBroker):
    """
    One that writes its profile to its own folder, where it is started.
    """

    def _profiling(self) -> tuple[str, ...]:
        return ("--profile=profile", "--profiler=cprofile", "--savestats")
