# SPDX-License-Identifier: Apache-2.0
"""
Profiles of our broker, which the page shows for missed aims.
"""

from __future__ import annotations

import subprocess

from benchmarks.compare.brokers import OurBroker, freePort
from benchmarks.compare.rounds import measure, prepare
from benchmarks.compare.scenarios import SCENARIOS

__all__ = ["cut", "profile"]

# The interpreter that wrote a profile reads it, because the format may differ.
_PRINT = """
import pstats, sys
pstats.Stats(sys.argv[1]).strip_dirs().sort_stats("tottime").print_stats(15)
"""

# The seconds of load on a profiled broker, which is a few times slower.
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

    @param name: the name of a scenario; any other name only starts and stops the broker.
    @return: the 15 functions with the most time of their own.
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
    A broker that writes its profile to its folder.
    """

    def _profiling(self) -> tuple[str, ...]:
        return ("--profile=profile", "--profiler=cprofile", "--savestats")
