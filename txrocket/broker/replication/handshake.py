# SPDX-License-Identifier: Apache-2.0
"""
The rules of the handshake between two brokers of ours: with whom to replicate, and from where.

The slave looks at the master's hello first, and makes its own log a beginning of the
master's::

    other group, other file size, older epoch      refused
    nothing in common                              begins anew with the master's first file
    common end before a first file                 begins anew
    common end before the slave's end              cuts the rest
    otherwise                                      goes on

The master trusts none of that.  It looks at the slave's hello and refuses a log that is not a
beginning of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from txrocket.broker.replication.interfaces import MasterParts, SlaveParts
from txrocket.errors import LogsDiverged, ReplicaRefused, StoreError
from txrocket.protocol.ha.hello import SAMPLE_LIMIT, MasterHello, Sample, SlaveHello
from txrocket.store.replica.epochs import Epoch, commonEnd

__all__ = [
    "Beginning",
    "checkPlain",
    "checkSlave",
    "masterHello",
    "nextEpoch",
    "slaveHello",
    "whereToBegin",
]

# How many brokers a group may have, so that no two make the same epoch.
_BROKERS: Final = 100

# The first minute of 2023, and the most numbers that epochs, which have 31 bits, can begin with:
# they are enough until 2063.
_MINUTES_BEFORE: Final = 27_875_520
_NUMBERS: Final = 0x7FFFFFFF // _BROKERS - 1

# A sample at the start of an epoch has its first record's times and host, in which two masters
# differ.  One at the end is there for all that nobody has thought of.
_HEAD_SAMPLE: Final = 4 * 1024


class _Bytes(Protocol):
    """
    A log that can be read.
    """

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    def read(self, offset: int, most: int) -> bytes: ...


class Beginning(NamedTuple):
    """
    What a slave does with its log before it follows.

    @ivar offset: where its log ends then.
    @ivar isAnew: whether it begins with an empty log there.
    """

    offset: int
    isAnew: bool


def nextEpoch(last: int, replicaId: int, promoted: int = 0) -> int:
    """
    The epoch of a broker that begins to lead, if nobody decides for all: above the last one,
    and never that of another broker.  If two masters had the same epoch, their logs would be
    taken for the same.

    A slave that is promoted may not have heard of other promotions, or of a master that is cut
    off and starts again and again, and must get ahead of them.  So the time is in its epoch::

        master, cut off     100   200   300
        promoted slave      100   46638101   46638201
                                  ^ minutes since 2023, number of the broker

    @param last: the newest epoch that the broker knows; 0 if none.
    @param replicaId: its number in the group.
    @param promoted: when an operator has promoted it, as the time of day in milliseconds; 0 if
        it was the master before.
    """
    number = max(last // _BROKERS + 1, min(promoted // 60_000 - _MINUTES_BEFORE, _NUMBERS))
    return number * _BROKERS + replicaId % _BROKERS


def masterHello(parts: MasterParts, countsFlushed: bool) -> MasterHello:
    """
    The hello of a master.
    """
    identity, log = parts.identity, parts.log
    return MasterHello(
        identity.groupId,
        identity.incarnation,
        countsFlushed,
        parts.fileSize,
        log.first,
        log.end,
        tuple(parts.epochs.entries),
    )


def slaveHello(parts: SlaveParts) -> SlaveHello:
    """
    The hello of a slave, whose log is a beginning of the master's.
    """
    identity, log, epochs = parts.identity, parts.log, parts.epochs.entries
    return SlaveHello(
        identity.groupId,
        identity.incarnation,
        identity.address,
        identity.replicaId,
        log.first,
        log.end,
        # The log may have been flushed further before it was cut.
        min(log.flushed, log.end),
        _samples(log, epochs),
        tuple(epochs),
    )


def whereToBegin(parts: SlaveParts, hello: MasterHello, lastFile: bool = False) -> Beginning:
    """
    What a slave does to follow a master.

    @param lastFile: whether a log that begins anew does so with the master's last file.
    @raise ReplicaRefused: if it must not follow that master.
    """
    log, epochs = parts.log, _epochs(parts.epochs.entries)
    theirs = _epochs(hello.epochs)
    own = parts.identity.groupId
    if not hello.groupId or own not in ("", hello.groupId):
        raise ReplicaRefused(
            "the master is of another group",
            f"{hello.groupId or 'none'}, and the messages here are of {own}; check haMasterAddress"
            " and brokerName, or set an empty storePathRootDir",
        )
    if hello.fileSize != parts.fileSize:
        raise ReplicaRefused(
            "mappedFileSizeCommitLog differs",
            f"{hello.fileSize} at the master, and {parts.fileSize} here",
        )
    isEmpty = log.first == log.end
    if not isEmpty and epochs and (not theirs or epochs[-1].epoch > theirs[-1].epoch):
        raise ReplicaRefused(
            "the master's epoch is over",
            f"its epochs end with {theirs[-1].epoch if theirs else 'none'}, and this broker has"
            f" followed epoch {epochs[-1].epoch}; if that master is the right one, start it again",
        )
    common = commonEnd(epochs, log.end, theirs, hello.end)
    if isEmpty or common is None or common < max(log.first, hello.first):
        start = hello.end - hello.end % hello.fileSize if lastFile else hello.first
        start = max(start, hello.first)
        return Beginning(start, not (isEmpty and log.end == start))
    return Beginning(common, False)


def checkSlave(parts: MasterParts, hello: SlaveHello) -> None:
    """
    Whether a slave may follow this master.

    @raise ReplicaRefused: if not.
    """
    log, identity = parts.log, parts.identity
    if hello.groupId != identity.groupId:
        raise ReplicaRefused(
            "the slave is of another group", f"{hello.groupId}, and this one of {identity.groupId}"
        )
    own, theirs = _epochs(parts.epochs.entries), _epochs(hello.epochs)
    if theirs and (not own or theirs[-1].epoch > own[-1].epoch):
        raise ReplicaRefused(
            "the slave has followed a newer master", f"it is in epoch {theirs[-1].epoch}"
        )
    _checkOffset(log, hello.end)
    if hello.first == hello.end:
        return
    common = commonEnd(own, log.end, theirs, hello.end)
    if common != hello.end:
        raise LogsDiverged(
            "the slave's log is not a beginning of this one",
            f"it ends at {hello.end}, and the same epochs end at {common}",
        )
    for each in hello.samples:
        if each.offset >= log.first and _sum(log, each.offset, each.size) != each.crc:
            raise LogsDiverged(
                "the slave's log has other bytes", f"{each.size} bytes at {each.offset}"
            )


def checkPlain(log: _Bytes, offset: int) -> int:
    """
    Where to begin for a slave that speaks RocketMQ 4.9.7's stream.

    @param offset: the offset that it asks for; 0 if it has no log.
    @return: the first file for a slave that has no log.  Java begins with its last file then.
    @raise ReplicaRefused: if it asks for what is not there.
    """
    if offset == 0:
        return log.first
    _checkOffset(log, offset)
    return offset


def _checkOffset(log: _Bytes, offset: int) -> None:
    if offset > log.end:
        raise ReplicaRefused(
            "the slave's log is longer", f"it ends at {offset}, and this one at {log.end}"
        )
    if offset < log.first:
        raise ReplicaRefused(
            "the slave's log ends before the first file",
            f"it ends at {offset}, and this one begins at {log.first}; empty the slave's folder",
        )


def _samples(log: _Bytes, epochs: Sequence[tuple[int, int]]) -> tuple[Sample, ...]:
    end = log.end
    start = max([log.first, *(each[1] for each in epochs if each[1] < end)])
    ranges = {
        (start, min(_HEAD_SAMPLE, end - start)),
        (max(log.first, end - SAMPLE_LIMIT), min(SAMPLE_LIMIT, end - log.first)),
    }
    return tuple(Sample(*each, _sum(log, *each)) for each in sorted(ranges) if each[1])


def _sum(log: _Bytes, offset: int, size: int) -> int:
    """
    The CRC-32 of some bytes, which may lie in two files.
    """
    crc, end = 0, min(offset + size, log.end)
    while offset < end:
        data = log.read(offset, end - offset)
        if not data:
            raise StoreError(f"the log cannot be read at {offset}")
        crc = zlib.crc32(data, crc)
        offset += len(data)
    return crc


def _epochs(entries: Sequence[tuple[int, int]]) -> list[Epoch]:
    return [Epoch(*each) for each in entries]
