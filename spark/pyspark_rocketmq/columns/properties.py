# SPDX-License-Identifier: Apache-2.0
"""
The properties of many messages at once, by the rules of
L{txrocket.message.splitProperties}, which splits the properties of one::

    TAGS 01 new 02 KEYS 01 a b 02|TAGS 01 old|UNIQ_KEY 01 7F00... 02 ...
    `--- entry ---'               row         row

An entry ends with an 02 or with its row.  It is a name and a value if it has an 01 with at
least one byte on each side; any other entry is ignored.  Of two entries with one name the
last counts.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.columns.arrow import sliceAll
from txrocket.message import splitProperties

__all__ = ["PropertyColumns"]


class PropertyColumns:
    """
    The names and values of all properties of many messages.
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
        @raise pa.ArrowInvalid: if a row is not UTF-8.
        """
        _, offsets, values = rows.buffers()
        bounds = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + self._count + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        data = np.frombuffer(values or b"", np.uint8)[:last]
        ends = np.concatenate((np.flatnonzero(data[first:] == 2) + first, bounds[1:]))
        # A stable sort merges the two sorted runs.
        ends.sort(kind="stable")
        starts = np.empty_like(ends)
        starts[0] = first
        starts[1:] = ends[:-1]
        # Begin behind the 02.  If a row begins with 02, its empty entry then ends before it
        # begins, and is ignored like any empty entry.
        behind = starts[1:] < last
        starts[1:][behind] += data[starts[1:][behind]] == 2
        some = starts < ends
        starts, ends = starts[some], ends[some]
        middles = np.flatnonzero(data[first:] == 1) + first
        if len(middles) != len(starts) or not ((starts <= middles) & (middles < ends)).all():
            # An entry has no 01, or several: use the first one at or behind its start.
            middles = np.append(middles, last)
            middles = middles[np.searchsorted(middles[:-1], starts)]
        sound = (starts < middles) & (middles + 1 < ends)
        if not sound.all():
            starts, middles, ends = starts[sound], middles[sound], ends[sound]
        # Four pieces for each entry: name, 01, value, and the gap up to the next name.
        cuts = np.empty(4 * len(starts), np.int32)
        cuts[0::4], cuts[1::4], cuts[2::4], cuts[3::4] = starts, middles, middles + 1, ends
        self._name(sliceAll(values, cuts, 4).cast(pa.string()))
        self._values = sliceAll(values, cuts, 4, 2).cast(pa.string())
        self._ends = np.searchsorted(starts, bounds).astype(np.int32)

    def _splitPlainly(self, rows: pa.Array) -> None:
        """
        Split the rows one by one.  Bytes that are not UTF-8 become U+FFFD, as in Java.
        """
        split = [splitProperties(str(each, "utf-8", "replace")) for each in rows.to_pylist()]
        self._name(pa.array([name for each in split for name in each], pa.string()))
        self._values = pa.array([value for each in split for value in each.values()], pa.string())
        self._ends = np.cumsum([0, *map(len, split)], dtype=np.int32)

    def _name(self, names: pa.Array) -> None:
        # There are few different names, and comparing their codes is fast.
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
        # Of several entries of one row the last assignment wins.
        chosen[self._rows[entries]] = entries
        return self._values.take(pa.array(chosen, mask=chosen < 0))

    @cached_property
    def _rows(self) -> np.ndarray:
        """
        For each entry, the number of its message.
        """
        return np.repeat(np.arange(self._count), np.diff(self._ends))

    @cached_property
    def maps(self) -> pa.Array:
        """
        The properties of each message as a map.
        """
        names, values, ends = self._names, self._values, self._ends
        if self._repeated():
            pairs = self._rows * len(self._known) + self._codes
            # The last entry of each pair is the first one in reverse order.
            _, kept = np.unique(pairs[::-1], return_index=True)
            left = np.sort(len(pairs) - 1 - kept)
            names, values = names.take(pa.array(left)), values.take(pa.array(left))
            ends = np.searchsorted(left, ends).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(ends), names, values)

    def _repeated(self) -> bool:
        """
        Whether a message has a name twice.
        """
        if not len(self._codes):
            return False
        if len(self._known) > 62:
            pairs = self._rows * len(self._known) + self._codes
            return len(np.unique(pairs)) < len(pairs)
        # With a bit for each name, the sum of a row's bits differs from their union only if
        # a name is there twice.  This is faster than sorting.
        bits = np.left_shift(1, self._codes.astype(np.int64))
        begins = self._ends[:-1][np.diff(self._ends) > 0]
        together = np.bitwise_or.reduceat(bits, begins)
        return bool((np.add.reduceat(bits, begins) != together).any())
