# SPDX-License-Identifier: Apache-2.0
"""
The text of a table as a text per member, so that a change encodes only what it changes::

    {"dataVersion":...,"topicConfigTable":{   "A":{...}   "B":{...}   "C":{...}   }}
     frame, made each time                    members, kept        B is stale   frame

A broker may have 20,000 topics, or as many groups with offsets, and to encode all of them
would block the reactor.  So only changed members are encoded again, a few hundred in one
turn, and a thread joins the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

__all__ = ["Source", "TableText", "Whole"]

_Key = TypeVar("_Key")

#: Members that are encoded in one slice.
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
        Nothing to do: L{text} encodes the whole table.
        """
        return True

    def text(self) -> Callable[[], bytes]:
        """
        The table as it is now.
        """
        data = self._encode()
        return lambda: data


class TableText(Generic[_Key]):
    """
    A table that is one large map.

    @ivar stale: the keys of members that have changed since they were encoded, in order.
    @ivar encoded: how many members were encoded, ever.
    """

    def __init__(
        self, member: Callable[[_Key], bytes | None], frame: Callable[[], tuple[bytes, bytes]]
    ) -> None:
        """
        @param member: encodes a key and its value; L{None} if it was removed.
        @param frame: the text before the members, and the text after them.
        """
        self._member = member
        self._frame = frame
        self._texts: dict[_Key, bytes] = {}
        self.stale: dict[_Key, None] = {}
        self.encoded = 0

    def touch(self, keys: Iterable[_Key]) -> None:
        """
        Mark members that are new, changed or removed.
        """
        self.stale.update(dict.fromkeys(keys))

    def refresh(self, most: int = SLICE) -> bool:
        """
        Encode some of the members that have changed.

        @return: whether none is left.
        """
        stale = self.stale
        # The oldest first, so that every member has its turn.
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
        The table as it is now.  Stale members are encoded first.

        @param before: a prefix; to add it later would copy the whole text.
        @param after: a suffix.
        """
        self.refresh(len(self.stale))
        head, tail = self._frame()
        # One join copies each byte once.
        texts = list(self._texts.values()) or [b""]
        texts[0] = before + head + texts[0]
        texts[-1] += tail + after
        return lambda: b",".join(texts)
