# SPDX-License-Identifier: Apache-2.0
"""
Records as columns: many at once, without a Python object for each.

A record (L{txrocket.protocol.record}) is a head and three parts with their lengths.  The
positions of the parts follow from a few additions on whole arrays::

    data       |head body topic properties|head body topic properties|head ...
    positions  ^                          ^                          ^
               at:  p+84+v  bodyAt     topicAt   propertiesAt    v: 24 with two IPv6
                    length                                          addresses

A number is gathered from all records by indexing a view of the data in which a number
begins at each byte.  Texts and bodies are copied by
L{slices<pyspark_rocketmq.columns.arrow.slices>}.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from mmap import mmap
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.columns.arrow import slices
from pyspark_rocketmq.columns.properties import PropertyColumns
from txrocket.errors import MalformedRecord, UnsupportedCompression
from txrocket.message import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    decodeHost,
)
from txrocket.protocol.compression import COMPRESSED_FLAG, inflate
from txrocket.protocol.record import (
    BORNHOST_V6_FLAG,
    PROPERTIES_LIMIT,
    STOREHOSTADDRESS_V6_FLAG,
    TOPIC_LIMIT,
)

__all__ = ["Records"]

_BYTE: Final = np.dtype("u1")
_SHORT: Final = np.dtype(">u2")
_INT: Final = np.dtype(">i4")
_LONG: Final = np.dtype(">i8")
_V6: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", _BYTE)


class Records:
    """
    Records within some bytes, with one attribute for each column.

    @ivar data: the bytes, less than 2 GiB.
    @ivar positions: where each record begins, ascending.
    """

    def __init__(self, data: bytes | mmap, positions: Sequence[int] | np.ndarray) -> None:
        """
        @param positions: as L{positionsIn<pyspark_rocketmq.columns.positions.positionsIn>} gives
            them: a record that begins there is within the data by its own size.
        @raise MalformedRecord: if the parts of one do not add up to its size.
        """
        self.data = data
        self.positions = at = np.asarray(positions, np.int64)
        self.sysFlag = sysFlag = self._gather(_INT, at + 36)
        # If no address is IPv6, as usual, numbers in place of arrays save time.
        born: Any = 8
        store: Any = 8
        if len(at) and np.any(sysFlag & _V6):
            born = np.where(sysFlag & BORNHOST_V6_FLAG, 20, 8)
            store = np.where(sysFlag & STOREHOSTADDRESS_V6_FLAG, 20, 8)
        self._bornHostAt = at + 48
        self._storeTimeAt = at + 48 + born
        self._storeHostAt = at + 56 + born
        self._tailAt = at + 56 + born + store
        self._bodyAt = self._tailAt + 16
        end = at + self._gather(_INT, at)
        self._sound(at, self._bodyAt + 3 <= end)
        bodyLength = self._gather(_INT, self._bodyAt - 4)
        self._topicAt = self._bodyAt + bodyLength
        self._sound(at, (bodyLength >= 0) & (self._topicAt + 3 <= end))
        topicLength = self._gather(_BYTE, self._topicAt)
        self._propertiesAt = self._topicAt + 1 + topicLength
        self._sound(at, (topicLength <= TOPIC_LIMIT) & (self._propertiesAt + 2 <= end))
        length = self._gather(_SHORT, self._propertiesAt).astype(np.int64)
        self._end = self._propertiesAt + 2 + length
        self._sound(at, (length <= PROPERTIES_LIMIT) & (self._end == end))

    def __len__(self) -> int:
        return len(self.positions)

    def where(self, wanted: np.ndarray) -> Records:
        """
        Some of the records.

        @param wanted: a truth value for each record.
        """
        return self if wanted.all() else Records(self.data, self.positions[wanted])

    def _gather(self, kind: np.dtype[Any], at: np.ndarray) -> np.ndarray:
        """
        Read a number of each record.

        @param at: the position of the number in each record.
        """
        if not len(at):
            return np.zeros(0, kind.newbyteorder("="))
        view = np.ndarray((len(self.data) - kind.itemsize + 1,), kind, self.data, 0, (1,))
        return view[at].astype(kind.newbyteorder("="), copy=False)

    def _sound(self, at: np.ndarray, sound: np.ndarray) -> None:
        if not sound.all():
            where = at[np.argmin(sound)]
            raise MalformedRecord(
                f"record at {where}: its size is not that of its body, topic and properties"
            )

    # --- numbers ---------------------------------------------------------

    @property
    def queueId(self) -> np.ndarray:
        """
        The queue's number, of each.
        """
        return self._gather(_INT, self.positions + 12)

    @property
    def flag(self) -> np.ndarray:
        """
        The application's flag, of each.
        """
        return self._gather(_INT, self.positions + 16)

    @cached_property
    def queueOffset(self) -> np.ndarray:
        """
        The queue offset of each.
        """
        return self._gather(_LONG, self.positions + 20)

    @cached_property
    def commitLogOffset(self) -> np.ndarray:
        """
        The log offset of each.
        """
        return self._gather(_LONG, self.positions + 28)

    @property
    def bornTimestamp(self) -> np.ndarray:
        """
        The time at which the producer made each, in milliseconds.
        """
        return self._gather(_LONG, self.positions + 40)

    @cached_property
    def storeTimestamp(self) -> np.ndarray:
        """
        The time at which the broker stored each, in milliseconds.
        """
        return self._gather(_LONG, self._storeTimeAt)

    @property
    def reconsumeTimes(self) -> np.ndarray:
        """
        How often consumers have tried each.
        """
        return self._gather(_INT, self._tailAt)

    @property
    def bodyCRC(self) -> np.ndarray:
        """
        The checksum that is in each.
        """
        return self._gather(_INT, self.positions + 8)

    # --- texts -----------------------------------------------------------

    @cached_property
    def topic(self) -> pa.Array:
        """
        The topic of each.

        @raise MalformedRecord: if a topic is not UTF-8.
        """
        try:
            return slices(self.data, self._topicAt + 1, self._propertiesAt).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise MalformedRecord(f"a topic is not UTF-8: {error}") from None

    @property
    def bornHost(self) -> pa.Array:
        """
        The producer's address, of each.
        """
        return self._hosts(self._bornHostAt, self._storeTimeAt)

    @property
    def storeHost(self) -> pa.Array:
        """
        The broker's address, of each.
        """
        return self._hosts(self._storeHostAt, self._tailAt)

    def _hosts(self, start: np.ndarray, stop: np.ndarray) -> pa.Array:
        # There are few different addresses, so each is decoded once.
        encoded = slices(self.data, start, stop).dictionary_encode()
        return pa.array(map(_hostText, encoded.dictionary.to_pylist()), pa.string()).take(
            encoded.indices
        )

    # --- properties ------------------------------------------------------

    @cached_property
    def split(self) -> PropertyColumns:
        """
        The properties of all.
        """
        return PropertyColumns(slices(self.data, self._propertiesAt + 2, self._end))

    @property
    def properties(self) -> pa.Array:
        """
        The properties of each, as a map.
        """
        return self.split.maps

    @cached_property
    def tags(self) -> pa.Array:
        """
        The tag of each, or null.
        """
        return self.split.named(PROPERTY_TAGS)

    @property
    def keys(self) -> pa.Array:
        """
        The keys of each, with spaces between them, or null.
        """
        return self.split.named(PROPERTY_KEYS)

    @property
    def msgId(self) -> pa.Array:
        """
        The producer's id of each; without one, the broker's.
        """
        ids = self.split.named(PROPERTY_UNIQ_KEY)
        return pc.coalesce(ids, self.offsetMsgId) if ids.null_count else ids

    @property
    def offsetMsgId(self) -> pa.Array:
        """
        The broker's id of each: its address and the log offset.
        """
        texts = np.full(len(self), None, object)
        v6 = (self.sysFlag & STOREHOSTADDRESS_V6_FLAG) != 0
        for size, chosen in ((8, ~v6), (20, v6)):
            if chosen.any():
                hosts = self._storeHostAt[chosen][:, None] + np.arange(size)
                places = self.positions[chosen][:, None] + np.arange(28, 36)
                data = np.frombuffer(self.data, _BYTE)[np.hstack((hosts, places))]
                digits = _DIGITS[np.stack((data >> 4, data & 15), 2)]
                texts[chosen] = digits.reshape(len(data), -1).view(f"S{size * 2 + 16}")[:, 0]
        return pa.array(texts, pa.binary()).cast(pa.string())

    # --- bodies ----------------------------------------------------------

    @property
    def body(self) -> pa.Array:
        """
        The decompressed body of each.

        @raise MalformedRecord: if a body is damaged; the text names the message.
        @raise UnsupportedCompression: if the library of a compression is not installed.
        """
        bodies = slices(self.data, self._bodyAt, self._topicAt)
        packed = (self.sysFlag & COMPRESSED_FLAG) != 0
        if not packed.any():
            return bodies
        listed = bodies.to_pylist()
        for index in np.flatnonzero(packed):
            try:
                # An empty body stays empty, because Java inflates only non-empty ones.
                listed[index] = listed[index] and inflate(listed[index], int(self.sysFlag[index]))
            except (MalformedRecord, UnsupportedCompression) as error:
                raise type(error)(
                    f"message {self.queueOffset[index]} in queue {self.queueId[index]} of topic"
                    f" {self.topic[index]}, at {self.commitLogOffset[index]} in the log: {error}"
                ) from None
        return pa.array(listed, pa.binary())

    @property
    def storedBody(self) -> pa.Array:
        """
        The body of each, as it is in the log.
        """
        return slices(self.data, self._bodyAt, self._topicAt)


def _hostText(data: bytes) -> str:
    host, port = decodeHost(data)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
