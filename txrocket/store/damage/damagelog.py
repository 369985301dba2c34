# SPDX-License-Identifier: Apache-2.0
"""
The damaged places that a store has met while it was read::

    pull, query, timer --> no sound record --> DamageLog --> one line in the log
                                                        \\--> a count for operators

A consumer group may come to the same damage a thousand times, and so may a thousand
groups: each place is logged once.
"""

from __future__ import annotations

from twisted.logger import Logger

__all__ = ["DamageLog"]

# How many places are remembered, and so logged.
_MOST = 1000


class DamageLog:
    """
    Counts and logs damaged places.

    @ivar count: how many places there were.  Once more are met than are remembered, a
        place may count more than once.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[str, int, int]] = set()
        self._silent = False

    def message(self, topic: str, queueId: int, queueOffset: int, place: int, fault: str) -> None:
        """
        A queue's entry and the log do not give a sound message.

        @param place: the offset in the log that the entry names.
        @param fault: the fault, as text.
        """
        if self._isNew((topic, queueId, queueOffset)):
            self._log.error(
                "Message {queueOffset} in queue {queueId} of topic {topic} is damaged and is not"
                " delivered: the record at {place} in the commit log is not sound: {fault}",
                queueOffset=queueOffset,
                queueId=queueId,
                topic=topic,
                place=place,
                fault=fault,
            )

    def record(self, place: int, fault: str) -> None:
        """
        The record at an offset of the log is not sound.
        """
        if self._isNew(("", 0, place)):
            self._log.error(
                "The record at {place} in the commit log is damaged and is not delivered: {fault}",
                place=place,
                fault=fault,
            )

    def entry(self, topic: str, queueId: int, queueOffset: int, place: int) -> None:
        """
        An entry of a queue was damaged, and its message was found in the log.

        @param place: where it was found.
        """
        if self._isNew((topic, queueId, queueOffset)):
            self._log.error(
                "Entry {queueOffset} of queue {queueId} of topic {topic} is damaged: its message"
                " was found at {place} in the commit log and is delivered",
                queueOffset=queueOffset,
                queueId=queueId,
                topic=topic,
                place=place,
            )

    def _isNew(self, place: tuple[str, int, int]) -> bool:
        if place in self._known:
            return False
        self.count += 1
        if len(self._known) < _MOST:
            self._known.add(place)
            return True
        if not self._silent:
            self._silent = True
            self._log.error(
                "More than {most} places are damaged: no more are listed here, verify lists all",
                most=_MOST,
            )
        return False
