# SPDX-License-Identifier: Apache-2.0
"""
The two ids of a message, both in upper-case hexadecimal: RocketMQ's C{MessageDecoder}
and C{MessageClientIDSetter}.

The broker's id is the place of the record (C{offsetMsgId}, or C{msgId} in the response
to a send)::

    | IP 4 or 16 | port 4 | offset in the log 8 |

The client makes its id before it sends the message (property C{UNIQ_KEY})::

    | IP 4 or 16 | pid 2 | loader 4 | time 4 | counter 2 |

C{loader} is the hash of Java's class loader, a number that differs between two clients
in one process.  C{time} is the number of milliseconds since the month began in local
time.  An id has 32 digits with an IPv4 address, 56 with an IPv6 address.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from txrocket.errors import MalformedField
from txrocket.message import decodeHost

__all__ = [
    "UniqueId",
    "UniqueIds",
    "decodeMessageId",
    "decodeUniqueId",
    "encodeMessageId",
    "monthStart",
]

# The number of digits of an id, by the length of its IP address.
_DIGITS: Final = {4: 32, 16: 56}

_HEX: Final = [f"{number:02X}" for number in range(0x100)]

# A month's first day plus 32 days is always in the next month, and before its end.
_INTO_NEXT_MONTH: Final = 32 * 24 * 3600 * 1000

# If the clock is less than this time before the month's start (1,000 s), a time server
# has set it back, and the id gets time 0.
_SET_BACK: Final = 1_000_000


def encodeMessageId(storeHost: bytes, offset: int) -> str:
    """
    Encode the broker's id of a record.

    @param storeHost: the broker's address, from L{txrocket.protocol.record.encodeHost}.
    @param offset: the record's offset in the commit log.
    """
    return (storeHost + offset.to_bytes(8, "big", signed=True)).hex().upper()


def decodeMessageId(messageId: str) -> tuple[str, int, int]:
    """
    Decode the broker's id of a message.

    @return: the broker's IP address, its port, and the record's offset in the commit log.
    @raise MalformedField: if the id is not valid.
    """
    data = _unhex(messageId)
    host, port = decodeHost(data[:-8])
    return host, port, int.from_bytes(data[-8:], "big", signed=True)


class UniqueId(NamedTuple):
    """
    The parts of a client's id.

    @ivar elapsed: milliseconds since the month began.
    """

    host: str
    pid: int
    loaderHash: int
    elapsed: int
    counter: int

    def time(self, now: int, monthStart: Callable[[int], int]) -> int:
        """
        Compute when the id was made.  The id does not contain the month.  As in Java, a
        time that is not before C{now} is in the previous month, so even the current
        millisecond counts as a month ago.

        @param now: milliseconds since the epoch.
        @param monthStart: see L{UniqueIds}.
        """
        start = monthStart(now)
        if start + self.elapsed >= now:
            start = monthStart(start - 1)
        return start + self.elapsed


def decodeUniqueId(uniqueId: str) -> UniqueId:
    """
    Decode a client's id.

    @raise MalformedField: if the id is not valid.
    """
    data = _unhex(uniqueId)
    # Append a port, because decodeHost expects one and the id has none.
    host, _ = decodeHost(data[:-12] + bytes(4))
    rest = data[-12:]
    return UniqueId(
        host,
        int.from_bytes(rest[:2], "big"),
        int.from_bytes(rest[2:6], "big", signed=True),
        int.from_bytes(rest[6:10], "big"),
        int.from_bytes(rest[10:], "big"),
    )


class UniqueIds:
    """
    The generator of a client's ids.  Each call returns a new id.
    """

    def __init__(
        self,
        ip: bytes,
        pid: int,
        loaderHash: int,
        now: Callable[[], int],
        monthStart: Callable[[int], int],
    ) -> None:
        """
        @param ip: the client's address, 4 or 16 bytes.
        @param pid: the process id; its lower 16 bits are used.
        @param loaderHash: a number that differs from other generators of the same
            process; its lower 32 bits are used.
        @param now: returns the time in milliseconds since the epoch.
        @param monthStart: returns the start of the month of a time, both in milliseconds
            since the epoch, such as L{monthStart}.
        """
        if len(ip) not in _DIGITS:
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        self._prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{loaderHash & 0xFFFFFFFF:08X}"
        self._now = now
        self._monthStart = monthStart
        self._counter = 0
        self._renew(now())
        self._time, self._stamp = -1, ""

    def _renew(self, time: int) -> None:
        self._start = self._monthStart(time)
        self._nextStart = self._monthStart(self._start + _INTO_NEXT_MONTH)

    def __call__(self) -> str:
        """
        Make a new id.
        """
        return self.at(self._now())

    def at(self, time: int) -> str:
        """
        Make a new id at a time that the caller knows.

        @param time: milliseconds since the epoch.
        """
        # All ids of a millisecond differ only in the counter, and a busy producer makes
        # many of them.
        if time != self._time:
            self._time, self._stamp = time, self._stamped(time)
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        # Faster than formatting the number.
        return f"{self._stamp}{_HEX[counter >> 8]}{_HEX[counter & 0xFF]}"

    def _stamped(self, time: int) -> str:
        if time >= self._nextStart:
            self._renew(time)
        elapsed = time - self._start
        if -_SET_BACK < elapsed < 0:
            elapsed = 0
        return f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}"


def monthStart(time: int, zone: tzinfo | None = None) -> int:
    """
    The start of the month of a time.

    @param time: milliseconds since the epoch.
    @param zone: the time zone; L{None} for the local one.
    @return: milliseconds since the epoch.
    """
    day = datetime.fromtimestamp(time // 1000, zone)
    return int(datetime(day.year, day.month, 1, tzinfo=zone).timestamp()) * 1000


def _unhex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    # fromhex ignores blanks, so compare the lengths.
    if len(text) not in _DIGITS.values() or 2 * len(data) != len(text):
        reason = f"{text[:60]!r} does not consist of 32 or 56 hexadecimal digits"
        raise MalformedField("message id", "msgId", reason)
    return data
