# SPDX-License-Identifier: Apache-2.0
"""
A message's properties as the log gets them: without WAIT, with CLUSTER.

    UNIQ_KEY 01 7F00...0205 02 WAIT 01 true 02 TAGS 01 a 02      as they were sent
    UNIQ_KEY 01 7F00...0205 02 TAGS 01 a 02 CLUSTER 01 c         as they are stored

Most producers send messages whose properties differ in the unique id only.  What is
around it is a L{Shape}, which is worked out once and found again by what it was made
of: 0.4 us for each message, where the long way, with what the store would then have to
find out, takes 1.2.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from txrocket.message import PROPERTY_WAIT, splitProperties
from txrocket.store.follow import filed

__all__ = ["SPECIAL", "UNIQUE", "Shape", "Shapes", "storedProperties", "undelayed"]

_WAIT = re.compile("(?:\\A|(?<=\x02))WAIT\x01[^\x02]*\x02")
_CLUSTER = re.compile("(?:\\A|(?<=\x02))CLUSTER\x01[^\x02]*\x02")
_DELAY = re.compile("(?:\\A|(?<=\x02))DELAY\x01[^\x02]*\x02")
_TRUE = "\x02WAIT\x01true\x02"

#: Finds properties that may have a message go another way than into its topic: names
#: that end like these are found as well.
SPECIAL: Final = re.compile(
    "(?:TRAN_MSG|DELAY|TIMER_DELAY_MS|TIMER_DELAY_SEC|TIMER_DELIVER_MS|__STARTDELIVERTIME)\x01"
).search

# What is in front of a unique id.
UNIQUE: Final = "UNIQ_KEY\x01"

_MARK: Final = "\x03"

# How many shapes are kept, and how long what they are made of may be.
_KEPT: Final = 1024
_KEPT_SIZE: Final = 256


def storedProperties(properties: str | None, cluster: str) -> tuple[str, bool]:
    """
    A message's properties as the log gets them: without WAIT, with CLUSTER.

    @param cluster: C{CLUSTER \\x01} and the cluster's name.
    @return: the properties, and whether the sender waits for the disk.
    """
    if not properties:
        return cluster, True
    text = properties if properties[-1] == "\x02" else properties + "\x02"
    waits = True
    if "WAIT\x01" in text:
        # Java's producers send it so, always; a search is a tenth of the pattern's.
        text = text.replace(_TRUE, "\x02")
        if "WAIT\x01" in text:
            # Of several the last counts, which may be one that is gone now.
            waits = splitProperties(properties).get(PROPERTY_WAIT, "true").lower() == "true"
            text = _WAIT.sub("", text)
    if "CLUSTER\x01" in text:
        text = _CLUSTER.sub("", text)
    return text + cluster, waits


def undelayed(properties: str) -> str:
    """
    What L{storedProperties} gave, without a delay level.
    """
    return _DELAY.sub("", properties)


class Shape(NamedTuple):
    """
    What properties say beside the unique id.

    @ivar before: what is stored before the unique id.
    @ivar after: what is stored after it.
    @ivar hashed: the hash of the tag.
    @ivar keys: as the property has them.
    """

    before: bytes
    after: bytes
    hashed: int
    keys: str


class Shapes:
    """
    The shapes that messages of late had.
    """

    def __init__(self, cluster: str) -> None:
        """
        @param cluster: C{CLUSTER \\x01} and the cluster's name.
        """
        self._cluster = cluster
        self._table: dict[tuple[str, str | None], Shape | None] = {}
        self._once: set[tuple[str, str | None]] = set()

    def get(self, head: str, rest: str | None) -> Shape | None:
        """
        The shape of properties that consist of C{head}, C{UNIQ_KEY \\x01}, an id
        without C{\\x02}, C{\\x02} and C{rest}; of C{head} alone if C{rest} is L{None}.

        @return: L{None} if it is not known yet, or not ordinary.
        """
        key = head, rest
        try:
            return self._table[key]
        except KeyError:
            self._learn(key)
            return None

    def _learn(self, key: tuple[str, str | None]) -> None:
        head, rest = key
        if len(head) + len(rest or "") > _KEPT_SIZE:
            return
        if len(self._once) >= _KEPT:
            self._once.clear()
            self._table.clear()
        # To work out the shape of what does not come again would be in vain.
        if key in self._once:
            self._table[key] = self._make(head, rest)
        self._once.add(key)

    def _make(self, head: str, rest: str | None) -> Shape | None:
        properties = head
        if rest is not None:
            # The id stands where the mark is.
            if (head and head[-1] != "\x02") or UNIQUE in rest or _MARK in head + rest:
                return None
            properties = f"{head}{UNIQUE}{_MARK}\x02{rest}"
        text, _ = storedProperties(properties, self._cluster)
        if SPECIAL(text):
            return None
        try:
            data = text.encode()
        except UnicodeEncodeError:
            return None
        before, _, after = (data, b"", b"") if rest is None else data.partition(_MARK.encode())
        hashed, _, keys = filed(before + after)
        return Shape(before, after, hashed, keys)
