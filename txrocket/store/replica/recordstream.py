# SPDX-License-Identifier: Apache-2.0
"""
The log of a master as a stream of pieces: which records are whole, and whether the bytes can be
those of a log at all::

    pieces    |------------|-----------|--------|------------|
    log       | record | record | rec ord | blank, pad ~~~~~~| record ...
                                ^ half

A piece ends anywhere: inside a record, inside the 8 bytes of a blank, inside the pad behind them
that fills the file.  Bytes that cannot be a record are found as soon as its head is there, and a
damaged body when the record is whole.

Half a record stays in memory until it is whole, because it must not be in a file.  If a power
loss took a middle part of a record that was written in two pieces, only zeros in its head
would tell, and the CRC of a record does not cover its head.
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
    The end of a stream.

    @ivar pieces: the bytes of a record of which the rest is still to come.
    @ivar size: how many bytes these are.
    @ivar need: how many there must be before there is more to check.
    @ivar pad: how many bytes of a pad are still to come; 0 outside of a pad.
    """

    pieces: tuple[bytes, ...] = ()
    size: int = 0
    need: int = BLANK_SIZE
    pad: int = 0


class Checked(NamedTuple):
    """
    What a piece is found to be.

    @ivar data: the bytes for the file: records that are whole now, a blank, its pad.
    @ivar isPad: whether these are a part of a pad, and no records.
    @ivar half: the end of the stream then.
    """

    data: bytes
    isPad: bool
    half: Half


class RecordStream:
    """
    Where a stream stands.

    @ivar half: its end.
    """

    def __init__(self, fileSize: int, limit: int) -> None:
        """
        @param fileSize: how many bytes a file of the log has.
        @param limit: how many bytes a record has at most.
        """
        self._fileSize = fileSize
        self._limit = limit
        self.half = Half()

    def check(self, start: int, piece: bytes) -> Checked:
        """
        Look at the next piece, which is within one file.  Nothing is changed.

        @param start: where in the log the half record begins, or where the piece does.
        @raise MalformedLog: if these bytes cannot be the next ones of a log.
        """
        pieces, size, need, pad = self.half
        if pad:
            return Checked(piece, True, Half(pad=pad - len(piece)))
        if size + len(piece) < need:
            return Checked(b"", False, Half((*pieces, piece), size + len(piece), need))
        return self._walk(start, b"".join((*pieces, piece)) if pieces else piece)

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
            if magic == BLANK_MAGIC_CODE:
                return Checked(data, False, Half(pad=size - rest))
            if rest >= _PLACE_END:
                self._checkPlace(start + position, data, position)
            if rest < size:
                need = _PLACE_END if rest < _PLACE_END else size
                break
            self._checkRecord(start + position, data, position)
            position += size
        kept = data[position:]
        return Checked(data[:position], False, Half((kept,) if kept else (), len(kept), need))

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
