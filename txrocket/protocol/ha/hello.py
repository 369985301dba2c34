# SPDX-License-Identifier: Apache-2.0
"""
The handshake between two brokers of ours::

      slave                                   master
        | ---- int64 -1 ----------------------> |     Java's master waits for another offset
        | <--- hello of the master ------------ |     group, epochs, where its log is
        |  cuts what the master does not have   |
        | ---- hello of the slave ------------> |     who it is, epochs, where its log ends
        | <--- frames --- reports ------------> |     L{txrocket.protocol.ha.frames}

A hello begins like a file, so that neither end takes anything else for it::

      0        4         5      6          8                  8 + size     12 + size
      +--------+---------+------+----------+------------- - -+------------+
      | "TXHA" | version | kind |   size   |     body        |   CRC-32   |
      +--------+---------+------+----------+------------- - -+------------+

The sum is that of all before it.  The body has, with texts as a 2-byte length and UTF-8::

      master (kind 1)  groupId text, incarnation text, flags 1, fileSize 4, first 8, end 8,
                       epochs
      slave  (kind 2)  groupId text, incarnation text, address text, replicaId 8, first 8,
                       end 8, flushed 8, samples, epochs
      samples          count 1, then offset 8, size 4 and CRC-32 4 of each
      epochs           count 2, then epoch 4 and start 8 of each

A sample is the sum of some bytes of the slave's log.  Operators can make two epochs with one
number: the samples show that their bytes differ.  The size has two bytes, so a stranger makes
this end hold 64 KiB at most.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from txrocket.errors import InvalidMessage, MalformedReplication

__all__ = [
    "EPOCH_LIMIT",
    "MAGIC",
    "SAMPLE_LIMIT",
    "Epochs",
    "HelloReader",
    "MasterHello",
    "Sample",
    "SlaveHello",
]

MAGIC: Final = b"TXHA"
_VERSION: Final = 1
_MASTER: Final = 1
_SLAVE: Final = 2

#: The most epochs in a hello: the newest are sent.  A slave that shares none of them with its
#: master begins anew, which is always safe.
EPOCH_LIMIT: Final = 4096

#: The most bytes of a sample.  The master reads them for anyone who sends a hello.
SAMPLE_LIMIT: Final = 64 * 1024

# The most samples of a hello.
_SAMPLES: Final = 4

# The longest text: a group's id, an incarnation, an address.
_TEXT_LIMIT = 1024

# Counts flushed bytes, not written ones.
_COUNTS_FLUSHED: Final = 1

_HEAD = Struct(">4sBBH")
_SUM = Struct(">I")
_SHORT = Struct(">H")
_EPOCH = Struct(">iq")
_SAMPLE = Struct(">qII")
_MASTER_FIELDS = Struct(">BIqq")
_SLAVE_FIELDS = Struct(">qqqqB")

#: Each epoch and its start, the oldest first.
Epochs: TypeAlias = tuple[tuple[int, int], ...]


class Sample(NamedTuple):
    """
    The CRC-32 of some bytes of a slave's log.
    """

    offset: int
    size: int
    crc: int


class MasterHello(NamedTuple):
    """
    What a master says of itself.

    @ivar countsFlushed: whether messages wait until they are on a slave's disk.
    @ivar fileSize: the size of a file of its log.
    @ivar first: where the oldest file of its log begins.
    @ivar end: where its log ends.
    """

    groupId: str
    incarnation: str
    countsFlushed: bool
    fileSize: int
    first: int
    end: int
    epochs: Epochs

    def encode(self) -> bytes:
        """
        @raise InvalidMessage: if a text is too long.
        """
        flags = _COUNTS_FLUSHED if self.countsFlushed else 0
        return _encode(
            _MASTER,
            _text(self.groupId),
            _text(self.incarnation),
            _MASTER_FIELDS.pack(flags, self.fileSize, self.first, self.end),
            _epochs(self.epochs),
        )


class SlaveHello(NamedTuple):
    """
    What a slave says of itself, after it has cut what the master does not have.

    @ivar groupId: empty if it is new.
    @ivar address: where clients reach it.
    """

    groupId: str
    incarnation: str
    address: str
    replicaId: int
    first: int
    end: int
    flushed: int
    samples: tuple[Sample, ...]
    epochs: Epochs

    def encode(self) -> bytes:
        """
        @raise InvalidMessage: if a text is too long.
        """
        return _encode(
            _SLAVE,
            _text(self.groupId),
            _text(self.incarnation),
            _text(self.address),
            _SLAVE_FIELDS.pack(
                self.replicaId, self.first, self.end, self.flushed, len(self.samples)
            ),
            *(_SAMPLE.pack(*each) for each in self.samples),
            _epochs(self.epochs),
        )


class HelloReader:
    """
    A hello from the other end.  At most one is held.
    """

    def __init__(self) -> None:
        self._partial = bytearray()

    @property
    def held(self) -> int:
        """
        How many bytes wait for the rest of the hello.
        """
        return len(self._partial)

    def feed(self, data: bytes) -> tuple[MasterHello | SlaveHello, bytes] | None:
        """
        Take bytes from the stream.

        @return: the hello and the bytes behind it, once it is whole.
        @raise MalformedReplication: if it is not a hello of this version, or damaged.  What
            cannot become one is noticed with its first wrong byte.
        """
        partial = self._partial
        partial += data
        start = bytes(partial[: len(MAGIC)])
        if not MAGIC.startswith(start):
            raise MalformedReplication(f"a hello does not begin with {start!r}")
        if len(partial) < _HEAD.size:
            return None
        _, version, kind, size = _HEAD.unpack_from(partial)
        if version != _VERSION or kind not in (_MASTER, _SLAVE):
            raise MalformedReplication(f"a hello of version {version} and kind {kind}")
        end = _HEAD.size + size
        if len(partial) < end + _SUM.size:
            return None
        said = bytes(partial[:end])
        if _SUM.unpack_from(partial, end)[0] != zlib.crc32(said):
            raise MalformedReplication("a hello does not match its CRC")
        rest = bytes(partial[end + _SUM.size :])
        partial.clear()
        body = _Body(said, _HEAD.size)
        return body.master() if kind == _MASTER else body.slave(), rest


class _Body:
    """
    The body of a hello, read from its begin to its end.
    """

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start

    def master(self) -> MasterHello:
        groupId, incarnation = self._text(), self._text()
        flags, fileSize, first, end = self._fields(_MASTER_FIELDS)
        epochs = self._epochs()
        if not 0 <= first <= end:
            raise MalformedReplication(f"a hello with a log from {first} to {end}")
        isFlushed = bool(flags & _COUNTS_FLUSHED)
        return MasterHello(groupId, incarnation, isFlushed, fileSize, first, end, epochs)

    def slave(self) -> SlaveHello:
        groupId, incarnation, address = self._text(), self._text(), self._text()
        replicaId, first, end, flushed, count = self._fields(_SLAVE_FIELDS)
        if count > _SAMPLES:
            raise MalformedReplication(f"a hello with {count} samples")
        samples = tuple(Sample._make(self._fields(_SAMPLE)) for _ in range(count))
        epochs = self._epochs()
        if not 0 <= first <= end or not 0 <= flushed <= end or replicaId < 0:
            raise MalformedReplication(
                f"a hello of slave {replicaId} with a log from {first} to {end}, flushed to"
                f" {flushed}"
            )
        for each in samples:
            if not first <= each.offset <= each.offset + each.size <= end:
                raise MalformedReplication(f"{each} is not in a log from {first} to {end}")
            if each.size > SAMPLE_LIMIT:
                raise MalformedReplication(f"{each} has more than {SAMPLE_LIMIT} bytes")
        return SlaveHello(
            *(groupId, incarnation, address, replicaId, first, end, flushed, samples, epochs)
        )

    def _take(self, size: int) -> bytes:
        taken = self._data[self._start : self._start + size]
        if len(taken) < size:
            raise MalformedReplication("a hello ends too early")
        self._start += size
        return taken

    def _fields(self, fields: Struct) -> tuple[int, ...]:
        return fields.unpack(self._take(fields.size))

    def _text(self) -> str:
        (size,) = self._fields(_SHORT)
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedReplication(f"a text of a hello: {error}") from None

    def _epochs(self) -> Epochs:
        """
        The epochs, which are the end of each hello.
        """
        (count,) = self._fields(_SHORT)
        data = self._take(count * _EPOCH.size)
        if self._start != len(self._data):
            raise MalformedReplication("a hello has more bytes than its fields")
        epochs: Epochs = tuple(_EPOCH.iter_unpack(data))
        before = (0, -1)
        for each in epochs:
            if each[0] <= before[0] or each[1] <= before[1]:
                raise MalformedReplication(f"epoch {each} cannot follow {before}")
            before = each
        return epochs


def _encode(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    data = _HEAD.pack(MAGIC, _VERSION, kind, len(body)) + body
    return data + _SUM.pack(zlib.crc32(data))


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > _TEXT_LIMIT:
        raise InvalidMessage(f"a text of {len(data)} bytes in a hello: at most {_TEXT_LIMIT}")
    return _SHORT.pack(len(data)) + data


def _epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    newest = epochs[-EPOCH_LIMIT:]
    return _SHORT.pack(len(newest)) + b"".join(_EPOCH.pack(*each) for each in newest)
