# SPDX-License-Identifier: Apache-2.0
r"""
What a slave does to its log before it follows a master of ours.

The order is what makes a crash harmless.  The group is joined first, so that the bytes of one
group never lie in the folder of another.  The log is cut before the epochs are: an epoch that
is forgotten while its bytes are there would be taken for the one before it.  A log that begins
anew has no epoch before, and so has nothing in common with any other::

    join --> cut the log --> forget the epochs behind ---+--> take over the master's epochs
         \-> forget all epochs --> set the log aside ---/
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txrocket.broker.replication.handshake import whereToBegin
from txrocket.broker.replication.interfaces import SlaveParts
from txrocket.protocol.ha.hello import MasterHello
from txrocket.store.replica.cut import Cut

__all__ = ["Preparation"]


@attrs.define
class Preparation:
    """
    Makes a slave's log a beginning of its master's.

    @ivar lastCut: what was cut last.
    @ivar lastAside: the folder that keeps the content that was set aside last; empty if none.
    """

    parts: SlaveParts
    lastCut: Cut | None = None
    lastAside: str = ""

    def prepare(self, hello: MasterHello, lastFile: bool) -> None:
        """
        Cut what the master does not have, or begin anew.

        @param lastFile: whether a log that begins anew does so with the master's last file.
        @raise ReplicaRefused: if this broker must not follow that master.
        @raise StoreError: if the disk fails.
        """
        parts = self.parts
        # Half a record is in no file, so it can be compared with nothing.
        parts.log.dropHalf()
        beginning = whereToBegin(parts, hello, lastFile)
        if parts.identity.groupId != hello.groupId:
            parts.identity.join(hello.groupId)
        if beginning.isAnew:
            self.beginAnew(beginning.offset)
        elif beginning.offset < parts.log.end:
            self._cut(beginning.offset)
        else:
            # An empty log is of no epoch, whatever a crash has left in the file.
            isEmpty = parts.log.first == parts.log.end
            parts.epochs.cutAt(0 if isEmpty else beginning.offset)
        self.takeEpochs(hello.epochs, parts.log.end)

    def beginAnew(self, offset: int) -> None:
        """
        Set everything aside, and begin with an empty log.

        @raise StoreError: if the disk fails.
        """
        parts = self.parts
        parts.epochs.cutAt(0)
        aside = parts.log.beginAt(offset)
        self.lastAside = aside or self.lastAside
        parts.startedAnew(offset, aside)

    def cutEpoch(self, first: int) -> None:
        """
        The newest epoch has other bytes at the master: cut them off.  The epochs before it
        stay, because they may have the only other copy of what was acknowledged; the next
        handshake compares them.

        @param first: where the master's log begins.
        @raise StoreError: if the disk fails.
        """
        log = self.parts.log
        log.dropHalf()
        starts = [start for _, start in self.parts.epochs.entries if start < log.end]
        if starts and starts[-1] > max(log.first, first):
            self._cut(starts[-1])
        else:
            self.beginAnew(first)

    def takeEpochs(self, epochs: Sequence[tuple[int, int]], offset: int) -> None:
        """
        Take over the master's epochs that start up to an offset.

        @raise StoreError: if the disk fails.
        """
        own = self.parts.epochs
        for epoch, start in epochs:
            if start <= offset and (not own.entries or epoch > own.entries[-1][0]):
                own.append(epoch, start)

    def _cut(self, offset: int) -> None:
        parts = self.parts
        entries = parts.epochs.entries
        cut = parts.log.cut(offset, entries[-1][0] if entries else 0)
        parts.epochs.cutAt(cut.offset)
        self.lastCut = cut
        parts.cutBack(cut)
