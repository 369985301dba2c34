# SPDX-License-Identifier: Apache-2.0
"""
The properties of many messages at once, as L{txrocket.message.splitProperties} splits
those of one::

    TAGS 01 new 02 KEYS 01 a b 02|TAGS 01 old|UNIQ_KEY 01 7F00... 02 ...
    `--- entry ---'               row         row

An entry ends with an 02 or with its row.  It is a name and a value if there is an 01 with
something before it and something behind it, and else it is nothing.  Of two entries with
one name the last counts.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.slices import slices
from txrocket.message import splitProperties

__all__ = ["Properties"]


class Properties:
    """
    Names and values.
    """

    def __init__(self, rows: pa.Array) -> None:
        """
        @param rows: the properties of each message, as bytes.
        """
        self._count = len(rows)
        try:
            (self._split if self._count else self._splitPlainly)(rows)
        except pa.ArrowInvalid:
            self._splitPlainly(rows)

    def _split(self, rows: pa.Array) -> None:
        """
        @raise pa.ArrowInvalid: if something is no UTF-8.
        """
        _, offsets, values = rows.buffers()
        bounds = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + self._count + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        data = np.frombuffer(values or b"", np.uint8)[:last]
        ends = np.concatenate((np.flatnonzero(data[first:] == 2) + first, bounds[1:]))
        ends.sort(kind="stable")
        starts = np.empty_like(ends)
        starts[0] = first
        starts[1:] = ends[:-1]
        # Behind an 02.  Where it is the first byte of a row this takes an empty entry for
        # one that ends before it begins: both are nothing.
        behind = starts[1:] < last
        starts[1:][behind] += data[starts[1:][behind]] == 2
        middles = np.append(np.flatnonzero(data[first:] == 1) + first, last)
        middle = middles[np.searchsorted(middles[:-1], starts)]
        sound = (starts < middle) & (middle + 1 < ends)
        starts, middle, ends = starts[sound], middle[sound], ends[sound]
        texts = slices(
            values,
            np.stack((starts, middle + 1), 1).ravel(),
            np.stack((middle, ends), 1).ravel(),
        ).cast(pa.string())
        even = np.arange(0, len(texts), 2)
        self._name(texts.take(pa.array(even)))
        self._values = texts.take(pa.array(even + 1))
        self._rows = np.searchsorted(bounds[1:], starts, "right")

    def _splitPlainly(self, rows: pa.Array) -> None:
        """
        The same one by one.  Bytes that are no UTF-8 give U+FFFD, as in Java.
        """
        split = [splitProperties(str(each, "utf-8", "replace")) for each in rows.to_pylist()]
        self._name(pa.array([name for each in split for name in each], pa.string()))
        self._values = pa.array([value for each in split for value in each.values()], pa.string())
        self._rows = np.repeat(np.arange(self._count), np.array([*map(len, split)], np.int64))

    def _name(self, names: pa.Array) -> None:
        # There are few, and numbers are quick to compare.
        encoded = names.dictionary_encode()
        self._known: list[str] = encoded.dictionary.to_pylist()
        self._codes = encoded.indices.to_numpy()
        self._names = names

    def named(self, name: str) -> pa.Array:
        """
        A property of each message, or null.
        """
        if name not in self._known:
            return pa.nulls(self._count, pa.string())
        entries = np.flatnonzero(self._codes == self._known.index(name))
        chosen = np.full(self._count, -1)
        # Of several entries for one row the last stays.
        chosen[self._rows[entries]] = entries
        return self._values.take(pa.array(chosen, mask=chosen < 0))

    @cached_property
    def maps(self) -> pa.Array:
        """
        The properties of each message.
        """
        names, values, rows = self._names, self._values, self._rows
        pairs = rows * len(self._known) + self._codes
        # Each pair's last entry: the first of what is turned around.
        _, kept = np.unique(pairs[::-1], return_index=True)
        if len(kept) < len(pairs):
            left = pa.array(np.sort(len(pairs) - 1 - kept))
            names, values, rows = names.take(left), values.take(left), rows[left]
        bounds = np.searchsorted(rows, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values)
