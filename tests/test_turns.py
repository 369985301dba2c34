# SPDX-License-Identifier: Apache-2.0
"""
No request keeps others waiting: the largest request of every code, counted in work.

The time that a turn takes depends on the machine and on what else it does, so it decides
nothing here; C{python -m benchmarks.turns} tells it.  Counted are the calls of functions,
and what C does with whole buffers by their sizes, in units of about a tenth of a
microsecond::

    call or return of a function, of Python or C     1
    a JSON body that C decodes                       a quarter for each byte
    bytes and text that a function returns           a 500th for each byte
    lists, tuples and sets that it returns           a half for each element

A loop that calls nothing is not seen.  Nor is the collector of garbage.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from twisted.internet.task import Cooperator
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.crowd import Crowd, Host, brokerHost, namesrvHost, unmeasured
from benchmarks.largest import brokerRequests, namesrvRequests
from txrocket import bulk
from txrocket.processors import cooperate
from txrocket.processors.cooperate import Slices
from txrocket.protocol import configtext
from txrocket.protocol.bodies import codec, registerbroker
from txrocket.protocol.codes import RequestCode, requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.store.log.append import Appender

# Units of 10 ms, after which work that is done bit by bit is interrupted, and of 50 ms.
SLICE: Final = 100_000
LIMIT: Final = 5 * SLICE

# Python's half of bulk takes 130 ms for the largest batch: docs/guide/limits.rst has it.
IN_PYTHON: Final = (
    {requestName(RequestCode.SEND_BATCH_MESSAGE): 3 * LIMIT} if bulk.compiled is None else {}
)

# What a function returns, for each byte or element.
_WEIGHTS: Final[dict[type, float]] = {
    **dict.fromkeys((bytes, str), 1 / 500),
    **dict.fromkeys((list, tuple, frozenset, set), 1 / 2),
}


def _decoded(found: dict[str, Any]) -> float:
    # To find the end of a value takes a tenth of what it takes to make one.
    isPassedOver = found["bodyType"] is registerbroker._Shell
    return len(found["data"]) / (40 if isPassedOver else 4)


# The units of what C reads as a whole, by the function that gives it to C.
_READ: Final[dict[CodeType, Callable[[dict[str, Any]], float]]] = {
    codec.decodeGradually.__code__: _decoded,
    registerbroker._decodePlain.__code__: lambda found: len(found["data"]) / 20,
    configtext.parse.__code__: lambda found: len(found["data"]) / 4,
    Appender._expand.__code__: lambda found: len(found["message"][2]) / 4,
}


class Work:
    """
    Counts what is done.
    """

    def __init__(self) -> None:
        self._units = [0.0]
        self.longest = 0.0

        def count(frame: FrameType, event: str, argument: Any, units: Any = self._units) -> None:
            # Called a hundred million times: nothing is looked up that need not be.
            units[0] += 1
            if event == "return":
                kind = type(argument)
                if kind in _WEIGHTS:
                    units[0] += len(argument) * _WEIGHTS[kind]
            elif event == "call" and frame.f_code in _READ and frame.f_lasti <= 4:
                # The first call of a generator, and not one that it goes on with.
                units[0] += _READ[frame.f_code](frame.f_locals)

        self._count = count

    @property
    def units(self) -> float:
        """
        The work of this turn.
        """
        return self._units[0]

    def measure(self, turn: Callable[[], object]) -> None:
        """
        Count what a turn does.
        """
        self._units[0] = 0.0
        sys.setprofile(self._count)
        try:
            turn()
        finally:
            sys.setprofile(None)
        self.longest = max(self.longest, self.units)

    def slice(self) -> Callable[[], bool]:
        """
        What tells when work that is done bit by bit is to be interrupted.
        """
        end = self.units + SLICE
        return lambda: self.units >= end


class TurnTests(SynchronousTestCase):
    """
    Brokers and name servers with 20,000 topics and 20,000 groups.
    """

    crowd = Crowd(members=100)

    def setUp(self) -> None:
        self.work = Work()

        def slices(clock: Any) -> Slices:
            made = Slices(clock)
            # By work and not by time, as all is here.
            Cooperator.__init__(
                made,
                terminationPredicateFactory=self.work.slice,
                scheduler=lambda function: clock.callLater(0, function),
            )
            return made

        self.patch(cooperate, "Slices", slices)
        gc.disable()
        self.addCleanup(gc.enable)
        # Coverage would follow a hundred million calls; other tests reach the same lines.
        self.addCleanup(sys.settrace, sys.gettrace())
        sys.settrace(None)

    def longest(self, host: Host, requests: list[RemotingCommand]) -> dict[str, float]:
        """
        The work of the longest turn of each code, and of what a server does by itself.
        """
        found: dict[str, float] = {}
        caller = host.call()
        for request in requests:
            host.clock.measure = self.work.measure
            self.work.longest = 0.0
            caller.send(request)
            host.clock.measure = unmeasured
            name = requestName(request.code)
            found[name] = max(found.get(name, 0.0), self.work.longest)
            host.clock.settle(0 if caller.answers() else 11)
            self.assertTrue(caller.protocol.connected, name)
        self.work.longest = 0.0
        host.clock.measure = self.work.measure
        host.clock.settle(11)
        found["by itself"] = self.work.longest
        return found

    def assertBounded(self, host: Host, requests: list[RemotingCommand]) -> None:
        """
        Check that there is a request of each code, and that no turn does too much.
        """
        served = set(host.remoting.processorTable)
        lacking = served - {request.code for request in requests}
        self.assertEqual([], sorted(map(requestName, lacking)), "no largest request of these")
        late = {
            name: round(units)
            for name, units in self.longest(host, requests).items()
            if units > IN_PYTHON.get(name, LIMIT)
        }
        self.assertEqual({}, late, f"turns of more than {LIMIT} units")

    def test_largestRequestsToBrokerKeepNobodyWaiting(self) -> None:
        """
        The largest request of every code that a broker serves, and what it does by
        itself, takes no turn of 50 ms.
        """
        self.assertBounded(brokerHost(self.crowd), list(brokerRequests(self.crowd)))

    def test_largestRequestsToNameServerKeepNobodyWaiting(self) -> None:
        """
        The largest request of every code that a name server serves takes no turn of 50 ms.
        """
        self.assertBounded(namesrvHost(), list(namesrvRequests(self.crowd)))
