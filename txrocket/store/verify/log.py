# SPDX-License-Identifier: Apache-2.0
"""
Checking the log: every record, every field for which the format has a rule, and the bytes
between and behind the records::

    | a | b | ????? | d |blank| e | f | 0 0 0 0 0
              |                         |
              unreadable: looked past   must be zeros

The CRC covers the body alone.  Queues and index confirm topic, queue, queue offset, tags and
keys, and are checked beside the log.  These fields are in the record alone, so a wrong value
of the right kind cannot be found:

  - flag, born timestamp, address and port of both hosts, reconsume times
  - the store timestamp of a record without keys
  - properties other than tags and keys
  - the bytes of a file behind the 8 bytes of a blank
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from txrocket.message import MessageExt
from txrocket.protocol.record import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BORNHOST_V6_FLAG,
    MESSAGE_MAGIC_CODE,
    MULTI_TAGS_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    decodeRecord,
)
from txrocket.store.log.commitlog import CommitLog, Scanned
from txrocket.store.verify.readonly import Note, firstData, whyNot

__all__ = ["LogCheck", "faults"]

_MAGIC = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
_CHUNK = 1024 * 1024

_COMPRESSED = 0x1
_COMPRESSION_TYPE = 0x700
# Compressions that need no other package: of old producers, and zlib by its name.
_ZLIB = (0x0, 0x300)
_KNOWN_FLAGS = (
    _COMPRESSED
    | _COMPRESSION_TYPE
    | MULTI_TAGS_FLAG
    | TRANSACTION_ROLLBACK_TYPE
    | BORNHOST_V6_FLAG
    | STOREHOSTADDRESS_V6_FLAG
)

# No clock is that late: the year 2248, in milliseconds.
_LATEST = 1 << 43
_MOST_QUEUES = 1 << 16
_MOST_TIMES = 1 << 20

# The bytes of a record beside body, topic and properties; more for each IPv6 address.
_FIXED = 91
_V6_MORE = 12


def faults(record: MessageExt) -> Iterator[str]:
    """
    The values that cannot be in a record, though it has a sound shape.
    """
    for name, value, least, most in (
        ("a queue id", record.queueId, 0, _MOST_QUEUES),
        ("a born timestamp", record.bornTimestamp, 0, _LATEST),
        ("a store timestamp", record.storeTimestamp, 1, _LATEST),
        ("reconsume times", record.reconsumeTimes, 0, _MOST_TIMES),
        ("a born host's port", int.from_bytes(record.bornHostData[-4:], "big"), 0, 65535),
        ("a store host's port", int.from_bytes(record.storeHostData[-4:], "big"), 0, 65535),
    ):
        if not least <= value <= most:
            yield f"{name} of {value}"
    flags = record.sysFlag
    if flags & ~_KNOWN_FLAGS:
        yield f"unknown flags {flags & ~_KNOWN_FLAGS:#x}"
    if flags & _COMPRESSION_TYPE and not flags & _COMPRESSED:
        yield f"a kind of compression, and is not compressed: flags {flags:#x}"
    prepared = record.preparedTransactionOffset
    inTransaction = flags & TRANSACTION_ROLLBACK_TYPE
    if not 0 <= prepared <= record.commitLogOffset or (prepared and not inTransaction):
        yield f"a prepared transaction at {prepared}"
    yield from _bodyFaults(record)
    yield from _propertyFaults(record.propertiesData)


def _bodyFaults(record: MessageExt) -> Iterator[str]:
    flags = record.sysFlag
    v6 = bool(flags & BORNHOST_V6_FLAG) + bool(flags & STOREHOSTADDRESS_V6_FLAG)
    around = _FIXED + v6 * _V6_MORE + len(record.topic.encode()) + len(record.propertiesData)
    # No reader checks the CRC of an empty body.
    if record.storeSize == around and record.bodyCRC:
        yield f"no body, and a CRC of {record.bodyCRC}"


def _propertyFaults(text: bytes) -> Iterator[str]:
    try:
        properties = text.decode()
    except UnicodeDecodeError as error:
        yield f"properties that are not UTF-8 at byte {error.start}"
        return
    for each in properties.removesuffix("\2").split("\2") if properties else ():
        name, separator, value = each.partition("\1")
        if not name or not separator or "\1" in value:
            yield f"a property that is not a name and a value: {each[:80]!r}"


class LogCheck:
    """
    A log that is gone through once, from its first record on.

    @ivar end: where the last record ends.
    @ivar bad: the first record that is not valid: its offset, and why.
    @ivar unreadable: the stretches of the log that hold no record and should.
    """

    def __init__(self, log: CommitLog, note: Note, tidy: bool) -> None:
        """
        @param tidy: whether all bytes behind the last record must be zeros.
        """
        self._log = log
        self._note = note
        self._tidy = tidy
        self.end = log.first
        self.bad: tuple[int, str] | None = None
        self.unreadable: list[tuple[int, int]] = []

    def records(self) -> Iterator[Scanned]:
        """
        All records, also behind unreadable stretches.
        """
        start: int | None = self._log.first
        while start is not None:
            self.end = start
            for scanned in self._log.records(start, strict=True):
                if scanned.offset != self.end:
                    self._blank(scanned.offset - self.end)
                self.end = scanned.offset + scanned.size
                self._fields(scanned)
                yield scanned
            start = self._lookOn()

    def _fields(self, scanned: Scanned) -> None:
        where = self._log.segments.folder
        for fault in faults(scanned.record):
            self._note(where, "wrong field", f"the record at {scanned.offset} has {fault}")
        flags = scanned.record.sysFlag
        if flags & _COMPRESSED and flags & _COMPRESSION_TYPE in _ZLIB:
            body = decodeRecord(self._log.segments.read(scanned.offset, scanned.size)).body
            try:
                inflate = zlib.decompressobj()
                while not inflate.eof:
                    if not inflate.decompress(body, _CHUNK) and not inflate.unconsumed_tail:
                        raise zlib.error("it ends too early")
                    body = inflate.unconsumed_tail
            except zlib.error as error:
                self._note(
                    where,
                    "wrong field",
                    f"the record at {scanned.offset} is marked as compressed: {error}",
                )

    def _blank(self, room: int) -> None:
        said = int.from_bytes(self._log.segments.read(self.end, 4), "big", signed=True)
        if said != room:
            self._note(
                self._log.segments.folder,
                "wrong blank",
                f"at {self.end}: {said} bytes, not {room}",
            )

    def _lookOn(self) -> int | None:
        """
        Find out why there are no more records.

        @return: where the next record is; L{None} if no record follows.
        """
        segments = self._log.segments
        stop = self.end
        if segments.read(stop, BLANK_SIZE)[4:] == BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True):
            base = segments.baseOf(stop)
            assert base is not None
            stop = base + segments.size
            self._blank(stop - self.end)
        reason = whyNot(self._log, stop)
        found = self._soundBehind(stop)
        more = ""
        if found is not None:
            reason = reason or "there are zeros"
            more = f"; the next record is {found - stop} bytes on, at {found}"
            self.unreadable.append((stop, found))
        if reason is not None:
            self.bad = self.bad or (stop, reason)
            self._note(segments.folder, "bad record", f"at {stop}: {reason}{more}")
        else:
            self._behind(stop)
        return found

    def _soundBehind(self, stop: int) -> int | None:
        """
        Where the next record is that is sound.
        """
        segments = self._log.segments
        at = stop + 1
        while at < segments.end:
            data = segments.read(at, _CHUNK)
            position = data.find(_MAGIC, 4)
            while position >= 0:
                start = at + position - 4
                scanned = next(self._log.records(start, strict=True), None)
                if scanned is not None and scanned.offset == start:
                    return start
                position = data.find(_MAGIC, position + 1)
            # Bytes that lie across two chunks are searched twice.
            at += len(data) if len(data) < _CHUNK else _CHUNK - BLANK_SIZE
            if not data:
                break
        return None

    def _behind(self, stop: int) -> None:
        segments = self._log.segments
        for base in segments.bases:
            start = max(base, stop)
            if start >= base + segments.size or (base < stop and not self._tidy):
                continue
            position = firstData(segments, start, base + segments.size if self._tidy else start + 8)
            if position is not None:
                self._note(
                    segments.folder,
                    "data behind the log's end",
                    f"{segments.nameOf(base)}, at {position}",
                )
