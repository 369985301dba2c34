# SPDX-License-Identifier: Apache-2.0
"""
The time that the largest request of every code keeps other peers waiting.

    python -m benchmarks.turns

A broker and a name server in this process, on a clock of their own, with 20,000 topics and
20,000 groups, get the largest request of every code that they serve.  For each code the
longest turn of the reactor is printed, and the sum of all turns.  The aim is 50 ms for a
turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

from benchmarks.crowd import Crowd, Host, brokerHost, namesrvHost, unmeasured
from benchmarks.largest import brokerRequests, namesrvRequests
from txrocket.protocol.codes import requestName
from txrocket.protocol.command import RemotingCommand

__all__ = ["main"]

#: The milliseconds that a turn may take.
AIM = 50.0

# In two minutes each periodic task of a server runs at least twice.
_PERIODS = 120.0


class Timed:
    """
    The turns of one code.
    """

    def __init__(self) -> None:
        self.longest = self.total = 0.0
        self.turns = 0

    def measure(self, turn: Callable[[], object]) -> None:
        """
        Run a turn and record its time.
        """
        # The time of this thread, so that other programs do not count.
        began = time.thread_time()
        turn()
        taken = 1e3 * (time.thread_time() - began)
        self.longest = max(self.longest, taken)
        self.total += taken
        self.turns += 1


def _measured(host: Host, requests: Iterable[RemotingCommand]) -> dict[str, Timed]:
    found: dict[str, Timed] = {}
    caller = host.call()
    # Garbage collection is not part of a turn, and is printed separately.
    gc.disable()
    for request in requests:
        timed = found.setdefault(requestName(request.code), Timed())
        host.clock.measure = timed.measure
        caller.send(request)
        host.clock.measure = unmeasured
        # The broker gives up a consumer that does not answer after a while.
        if not caller.answers():
            host.clock.settle(11)
        assert caller.protocol.connected, request
    timed = found["what it does by itself"] = Timed()
    host.clock.measure = timed.measure
    host.clock.settle(_PERIODS)
    host.clock.measure = unmeasured
    timed = found["a collection of garbage"] = Timed()
    timed.measure(gc.collect)
    gc.enable()
    return found


def _show(server: str, found: dict[str, Timed]) -> None:
    print(f"{server + ', largest request of each code':44} longest turn   all turns   (ms)")
    for name, timed in sorted(found.items(), key=lambda item: -item[1].longest):
        late = "" if timed.longest <= AIM else f"  (aim {AIM:g})"
        told = f"{timed.longest:13.2f} {timed.total:11.1f} {timed.turns:6}"
        print(f"{name:44} {told}{late}")


def main(crowd: Crowd | None = None) -> None:
    """
    Measure, and print a line for each code.
    """
    crowd = crowd or Crowd()
    _show("broker", _measured(brokerHost(crowd), brokerRequests(crowd)))
    print()
    _show("name server", _measured(namesrvHost(), namesrvRequests(crowd)))


if __name__ == "__main__":
    main()
