# SPDX-License-Identifier: Apache-2.0
"""
The text of a table, kept in pieces, so that a change costs what it changes::

    {"dataVersion":...,"topicConfigTable":{   "A":{...}   "B":{...}   "C":{...}   }}
     frame, made each time                    members, kept        B is stale   frame

To encode a member takes 10 us, and a broker may have 20,000 topics, or as many groups
with offsets.  So only members that have changed are encoded again, a few hundred in one
turn of the reactor, and a thread joins the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

__all__ = ["Pieces", "Source", "Whole"]

_Key = TypeVar("_Key")

#: Members that are encoded in one go, which takes 1 ms.
SLICE = 128


class Source(Protocol):
    """
    Where a table's text comes from.
    """

    def refresh(self, most: int = SLICE) -> bool:
        """
        Encode some of what has changed.

        @return: whether nothing is left to be encoded.
        """

    def text(self) -> Callable[[], bytes]:
        """
        The table as it is now.

        @return: a function that makes the text.  A thread may call it.
        """


class Whole:
    """
    A small table, encoded as a whole.
    """

    def __init__(self, encode: Callable[[], bytes]) -> None:
        self._encode = encode

    def refresh(self, most: int = SLICE) -> bool:
        """
        Nothing is kept.
        """
        return True

    def text(self) -> Callable[[], bytes]:
        """
        The table as it is now.
        """
        data = self._encode()
        return lambda: data


class Pieces(Generic[_Key]):
    """
    A table that is one large map.

    @ivar stale: the keys of members that have changed since they were encoded, in order.
    @ivar encoded: how many members were encoded, ever.
    """

    def __init__(
        self, member: Callable[[_Key], bytes | None], frame: Callable[[], tuple[bytes, bytes]]
    ) -> None:
        """
        @param member: encodes a key and its value; L{None} if it is gone.
        @param frame: what comes before the members, and what after.
        """
        self._member = member
        self._frame = frame
        self._texts: dict[_Key, bytes] = {}
        self.stale: dict[_Key, None] = {}
        self.encoded = 0

    def touch(self, keys: Iterable[_Key]) -> None:
        """
        Members have come, changed or gone.
        """
        self.stale.update(dict.fromkeys(keys))

    def refresh(self, most: int = SLICE) -> bool:
        """
        Encode some of the members that have changed.

        @return: whether none is left.
        """
        stale = self.stale
        # The oldest first, so that none waits for ever.
        for key in list(islice(stale, most)):
            del stale[key]
            text = self._member(key)
            if text is None:
                self._texts.pop(key, None)
            else:
                self._texts[key] = text
                self.encoded += 1
        return not stale

    def text(self, before: bytes = b"", after: bytes = b"") -> Callable[[], bytes]:
        """
        The table as it is now.  What is stale is encoded first.

        @param before: comes before it: to add it later would copy the whole text.
        @param after: comes after it.
        """
        self.refresh(len(self.stale))
        head, tail = self._frame()
        # Ends and all in one join, which copies each byte once.
        texts = list(self._texts.values()) or [b""]
        texts[0] = before + head + texts[0]
        texts[-1] += tail + after
        return lambda: b",".join(texts)
