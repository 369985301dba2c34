# SPDX-License-Identifier: Apache-2.0
"""
The log of a master as a stream of pieces: which records are whole, and whether the bytes can
be those of a log at all::

    pieces    |------------|-----------|--------|------------|
    log       | record | record | rec ord | blank ~~~~~~~~~~~~| record ...
                                ^ half    ^ spans its file

A piece ends anywhere: inside a record, inside the 8 bytes of a blank, behind them.  Bytes that
cannot be a record are found as soon as its head is there, and a damaged body when the record
is whole.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from txrocket.bulk import checkRecords
from txrocket.errors import MalformedLog, MalformedRecord
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    MESSAGE_MAGIC_CODE,
    PHYSICAL_OFFSET_POSITION,
    decodeRecord,
)

__all__ = ["Checked", "Half", "RecordStream"]

_SIZE_AND_MAGIC = struct.Struct(">2i")
_LONG = struct.Struct(">q")

# Up to here a record says its size, its magic code and its place.
_PLACE_END = PHYSICAL_OFFSET_POSITION + _LONG.size


class Half(NamedTuple):
    """
    The last record or blank of a stream, of which the end is still to come.

    @ivar start: where in the log it begins.
    @ivar pieces: its bytes; of a blank, those behind the first 8 are not kept.
    @ivar have: how many bytes of it are there.
    @ivar need: how many must be there before there is more to check.
    @ivar isBlank: whether it is a blank, of which at least the 8 bytes are there.
    """

    start: int
    pieces: tuple[bytes, ...]
    have: int
    need: int
    isBlank: bool = False


class Checked(NamedTuple):
    """
    What a piece is found to be.

    @ivar start: where in the log the whole records begin.
    @ivar whole: the records that are whole now, and the first bytes of a blank.
    """

    start: int
    whole: bytes
    half: Half


class RecordStream:
    """
    Where a stream stands.

    @ivar half: how many bytes before its end are of a record that is not whole.
    @ivar isPad: whether it stands inside a blank, behind the 8 bytes that are written of it.
    """

    def __init__(self, fileSize: int, limit: int) -> None:
        """
        @param fileSize: how many bytes a file of the log has.
        @param limit: how many bytes a record has at most.
        """
        self._fileSize = fileSize
        self._limit = limit
        self._half = Half(0, (), 0, BLANK_SIZE)

    @property
    def half(self) -> int:
        return self._half.have

    @property
    def start(self) -> int:
        """
        Where the record begins that is not whole.
        """
        return self._half.start

    @property
    def isPad(self) -> bool:
        return self._half.isBlank

    def begin(self, offset: int) -> None:
        """
        A record begins at an offset of the log.
        """
        self._half = Half(offset, (), 0, BLANK_SIZE)

    def check(self, data: bytes) -> Checked:
        """
        Look at the next piece, which is within one file.  Nothing is changed.

        @raise MalformedLog: if these bytes cannot be the next ones of a log.
        """
        start, pieces, have, need, isBlank = half = self._half
        have += len(data)
        if have < need:
            kept = pieces if isBlank else (*pieces, data)
            return Checked(start, b"", half._replace(pieces=kept, have=have))
        if isBlank:
            return Checked(start, b"".join(pieces), Half(start + need, (), 0, BLANK_SIZE))
        return self._walk(start, b"".join((*pieces, data)) if pieces else data)

    def accept(self, half: Half) -> Half:
        """
        Go on behind a piece.

        @param half: what L{check} has found at its end.
        @return: what there was before.
        """
        before, self._half = self._half, half
        return before

    def _walk(self, start: int, data: bytes) -> Checked:
        """
        Go from record to record.
        """
        position, length = 0, len(data)
        need = BLANK_SIZE
        while length - position >= BLANK_SIZE:
            end = checkRecords(data, position, start + position, self._limit)
            if end > position:
                position = end
                continue
            rest = length - position
            size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
            self._checkHead(start + position, size, magic)
            if magic == BLANK_MAGIC_CODE and rest < size:
                head = data[position : position + BLANK_SIZE]
                half = Half(start + position, (head,), rest, size, isBlank=True)
                return Checked(start, data[:position], half)
            if magic == BLANK_MAGIC_CODE:
                # Behind it another file begins, and with it another piece.
                position += size
                break
            if rest >= _PLACE_END:
                self._checkPlace(start + position, data, position)
            if rest < size:
                need = _PLACE_END if rest < _PLACE_END else size
                break
            self._checkRecord(start + position, data, position)
            position += size
        kept = data[position:]
        half = Half(start + position, (kept,) if kept else (), len(kept), need)
        return Checked(start, data[:position], half)

    def _checkHead(self, place: int, size: int, magic: int) -> None:
        room = self._fileSize - place % self._fileSize
        if magic == BLANK_MAGIC_CODE:
            if size != room:
                raise MalformedLog(
                    f"at {place} a blank of {size} bytes ends a file, and here {room} bytes are "
                    "left: is mappedFileSizeCommitLog the same on both brokers?"
                )
        elif magic != MESSAGE_MAGIC_CODE:
            raise MalformedLog(f"at {place} no record begins: magic code {magic & 0xFFFFFFFF:08X}")
        elif not 0 < size <= room - BLANK_SIZE:
            raise MalformedLog(
                f"a record of {size} bytes at {place} does not fit into its file, which has "
                f"{room} bytes left: is mappedFileSizeCommitLog the same on both brokers?"
            )
        elif size > self._limit:
            raise MalformedLog(
                f"a record of {size} bytes at {place} is longer than {self._limit}: raise "
                "maxMessageSize to what the master has"
            )

    @staticmethod
    def _checkPlace(place: int, data: bytes, position: int) -> None:
        (said,) = _LONG.unpack_from(data, position + PHYSICAL_OFFSET_POSITION)
        if said != place:
            raise MalformedLog(f"the record at {place} says that it is at {said}")

    @staticmethod
    def _checkRecord(place: int, data: bytes, position: int) -> None:
        """
        Look closer at a record that is not ordinary, or damaged.
        """
        try:
            decodeRecord(data, position, readBody=False, checkCrc=True)
        except MalformedRecord as error:
            raise MalformedLog(f"the record at {place} is damaged: {error}") from error
