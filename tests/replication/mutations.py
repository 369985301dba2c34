# SPDX-License-Identifier: Apache-2.0
"""
C{python -m tests.replication.mutations [--count N] [names...]}: leaves something out of
replication, and tells which schedule is the first to find it.

A model that finds nothing proves nothing.  L{FOUND} has the seeds by which the tests see that
the most important rules are watched.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from twisted.internet.defer import Deferred, succeed

from tests.replication.runs import attempt
from txrocket.broker.replication import handshake
from txrocket.broker.replication.handshake import Beginning
from txrocket.broker.replication.interfaces import SlaveParts
from txrocket.broker.replication.master import protocol as masterProtocol
from txrocket.broker.replication.master.streams import FrameSource, PlainSource
from txrocket.broker.replication.member.mastersearch import MasterSearch
from txrocket.broker.replication.member.replicafile import ReplicaFile
from txrocket.broker.replication.replicas import Replica, Replicas
from txrocket.broker.replication.slave import preparation
from txrocket.broker.replication.slave.preparation import Preparation
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.protocol.ha.hello import MasterHello
from txrocket.store.replica import ReplicaLog
from txrocket.store.replica.cutter import LogCutter

__all__ = ["FOUND", "MUTATIONS", "mutated"]

#: The seed of a schedule that finds a mutation.
FOUND: Final = {"epochs": 3, "cut": 5, "first": 48, "tables": 0, "holes": 46}


def _blind(parts: SlaveParts, hello: MasterHello, lastFile: bool = False) -> Beginning:
    """
    Go on where the own log ends, as RocketMQ does.
    """
    log = parts.log
    if hello.first <= log.end <= hello.end:
        return Beginning(log.end, False)
    return handshake.whereToBegin(parts, hello, lastFile)


def _older(parts: SlaveParts, hello: MasterHello, lastFile: bool = False) -> Beginning:
    """
    Follow a master whose epoch is over.
    """
    own = parts.epochs.entries
    newest = max((each[0] for each in own), default=0)
    epochs = [*hello.epochs, (newest, hello.end)] if newest > hello.epochs[-1][0] else hello.epochs
    return handshake.whereToBegin(parts, hello._replace(epochs=tuple(epochs)), lastFile)


def _nothing(*arguments: Any) -> None:
    """
    Left out.
    """


def _nobody(*arguments: Any) -> Deferred[tuple[int, int]]:
    """
    No slave is further than a master that starts.
    """
    return succeed((0, 0))


def _plainInit(
    source: PlainSource, parts: Any, replicas: Any, write: Any, address: str, position: int
) -> None:
    """
    What a plain slave asks for counts as a report.
    """
    _PLAIN(source, parts, replicas, write, address, position)
    source.replica.counts = True


_PLAIN: Final[Callable[..., None]] = PlainSource.__init__


def _logFirst(source: FrameSource, most: int) -> bool:
    """
    Send the log before the tables.
    """
    return source._sendEpoch() or source._sendLog(most) or source._sendTable()


def _sendCounts(source: FrameSource, most: int) -> bool:
    """
    Count what is sent as what a slave has.
    """
    isSent = _SEND_LOG(source, most)
    source._replicas.reported(source.replica, source.position, source.position)
    return isSent


_SEND_LOG: Final[Callable[..., bool]] = FrameSource._sendLog


def _written(replicas: Replicas, replica: Replica) -> int:
    """
    Count what a slave has in its memory, though the master counts disks.
    """
    return replica.written if replica.counts else 0


#: By name, what is put in the place of what.
MUTATIONS: Final[Mapping[str, list[tuple[Any, str, Any]]]] = {
    "epochs": [(preparation, "whereToBegin", _blind), (masterProtocol, "checkSlave", _nothing)],
    "older": [(preparation, "whereToBegin", _older), (masterProtocol, "checkSlave", _nothing)],
    "cut": [(Preparation, "_cut", _nothing)],
    "first": [(PlainSource, "__init__", _plainInit)],
    "sent": [(FrameSource, "_sendLog", _sendCounts)],
    "tables": [(FrameSource, "send", _logFirst)],
    "flushed": [(Replicas, "_counted", _written)],
    # Samples of the logs find it as well, in logs as short as these.
    "holes": [
        (ReplicaFile, "hasCopies", False),
        (handshake, "_samples", lambda log, epochs: ()),
    ],
    "shorter": [(MasterSearch, "furthest", _nobody)],
    "offsets": [(ConsumerOffsets, "bringBack", lambda table, maxOffset: 0)],
    "numbers": [(LogCutter, "giveUpNumbers", _nothing)],
    "half": [(ReplicaLog, "dropHalf", _nothing)],
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """
    Leave something out.
    """
    with ExitStack() as stack:
        for place, attribute, replacement in MUTATIONS[name]:
            stack.enter_context(patch.object(place, attribute, replacement))
        yield


def main() -> int:
    """
    Try the mutations.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.replication.mutations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="how many schedules for each")
    parser.add_argument("names", nargs="*", default=list(MUTATIONS), help="which ones")
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.names:
        found = "not found"
        with mutated(name):
            for seed in range(arguments.first, arguments.first + arguments.count):
                error = attempt(seed)[1]
                if error is not None:
                    found = f"seed {seed}: {error!r}"[:160]
                    break
        missed += found == "not found"
        print(f"{name:8} {found}", flush=True)
    return min(1, missed)


if __name__ == "__main__":
    sys.exit(main())
