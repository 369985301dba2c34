# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.messageid}.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from tests.protocol.test_record import capturedBodies
from txrocket.errors import MalformedField
from txrocket.protocol.messageid import (
    UniqueId,
    UniqueIds,
    decodeMessageId,
    decodeUniqueId,
    encodeMessageId,
    monthStart,
)
from txrocket.protocol.record import decodeRecords, encodeHost

utcMonthStart = partial(monthStart, zone=UTC)


def utc(*date: int) -> int:
    """
    A date in UTC as milliseconds since the epoch.
    """
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type,misc]


class MessageIdTests(SynchronousTestCase):
    """
    The broker's id.
    """

    def test_messageIdIsJavas(self) -> None:
        """
        The id is that of C{MessageDecoder.createMessageId}.
        """
        for host, expected in (
            ("192.168.200.254", "C0A8C8FE00002A9F00000000075BCD15"),
            ("fe80::1", "FE80000000000000000000000000000100002A9F00000000075BCD15"),
        ):
            self.assertEqual(encodeMessageId(encodeHost(host, 10911), 123456789), expected)
            self.assertEqual(decodeMessageId(expected), (host, 10911, 123456789))

    def test_capturedIdNamesBroker(self) -> None:
        """
        The ids in captured responses to sends contain the broker's address.
        """
        ids = [
            one
            for frame in captures()
            if frame.requestCode in (10, 310, 320, 325) and frame.kind == "response"
            for one in (frame.header.get("extFields") or {}).get("msgId", "").split(",")
            if one
        ]
        self.assertGreater(len(ids), 100)
        for one in ids:
            host, port, offset = decodeMessageId(one)
            self.assertEqual((host, port), ("127.0.0.1", 21911))
            self.assertEqual(encodeMessageId(encodeHost(host, port), offset), one)

    def test_wrongDigitsAreRefused(self) -> None:
        """
        Any text but 32 or 56 hexadecimal digits is refused.
        """
        good = "C0A8C8FE00002A9F00000000075BCD15"
        self.assertEqual(decodeMessageId(good.lower()), decodeMessageId(good))
        for bad in ("", good[:-1], good[:-2], good + "00", "G" + good[1:], good[:-2] + "  "):
            self.assertRaises(MalformedField, decodeMessageId, bad)
            self.assertRaises(MalformedField, decodeUniqueId, bad)
        self.assertRaises(MalformedField, decodeMessageId, "\ud800" * 32)
        self.assertRaises(MalformedField, decodeMessageId, "１" * 32)

    @given(st.text())
    def test_anyTextRaisesOnlyMalformedField(self, text: str) -> None:
        """
        Any text is an id or raises MalformedField.
        """
        self.assertRaises(MalformedField, decodeMessageId, text)


class UniqueIdTests(SynchronousTestCase):
    """
    The client's id.
    """

    def ids(self, times: list[int], ip: bytes = bytes([10, 1, 2, 3])) -> list[str]:
        """
        The ids made at some times; the first time is that of the start.
        """
        clock = iter(times)
        source = UniqueIds(ip, 0x10B1F, -2, lambda: next(clock), utcMonthStart)
        return [source() for _ in times[1:]]

    def test_idHasItsFields(self) -> None:
        """
        The id has address, pid, loader, time since the month began, and counter.
        """
        now = utc(2023, 11, 1) + 0x1234ABCD
        [first, second] = self.ids([now, now, now + 1])
        self.assertEqual(first, "0A0102030B1FFFFFFFFE1234ABCD0000")
        self.assertEqual(second, "0A0102030B1FFFFFFFFE1234ABCE0001")
        self.assertEqual(decodeUniqueId(first), UniqueId("10.1.2.3", 0x0B1F, -2, 0x1234ABCD, 0))
        [long] = self.ids([now, now], ip=bytes(15) + b"\x01")
        self.assertEqual(len(long), 56)
        self.assertEqual(decodeUniqueId(long)[:2], ("::1", 0x0B1F))
        self.assertRaises(ValueError, self.ids, [now], b"\x01\x02")

    def test_givenTimeIsUsed(self) -> None:
        """
        A caller that knows the time can pass it.
        """
        now = utc(2023, 11, 1)
        source = UniqueIds(bytes(4), 1, 1, lambda: now, utcMonthStart)
        made = [source(), source.at(now + 7), source.at(now)]
        parts = [(each.elapsed, each.counter) for each in map(decodeUniqueId, made)]
        self.assertEqual(parts, [(0, 0), (7, 1), (0, 2)])

    def test_counterWrapsAfter16Bits(self) -> None:
        """
        The counter wraps after 16 bits, and consecutive ids differ.
        """
        source = UniqueIds(bytes(4), 1, 1, lambda: utc(2023, 11, 2), utcMonthStart)
        made = [source() for _ in range(0x10001)]
        self.assertEqual(made[0xFFFF][-4:], "FFFF")
        self.assertEqual(made[0x10000], made[0])
        self.assertEqual(len(set(made)), 0x10000)

    @given(st.lists(st.integers(0, 3), min_size=1, max_size=10))
    def test_idHasTheTimeOfItsCall(self, times: list[int]) -> None:
        """
        Each id has the time of its call, whether or not the call before had the same
        time.
        """
        start = utc(2023, 11, 1)
        made = self.ids([start, *[start + each for each in times]])
        self.assertEqual([decodeUniqueId(each).elapsed for each in made], times)
        self.assertEqual([int(each[-4:], 16) for each in made], list(range(len(times))))

    def test_newMonthRestartsTime(self) -> None:
        """
        With a new month the time starts from 0 again, also at a year's end and after a
        month without ids.
        """
        december = utc(2023, 12, 31, 23, 59, 59)
        made = self.ids([december, december, utc(2024, 1, 1), utc(2024, 3, 1) + 5])
        elapsed = [decodeUniqueId(one).elapsed for one in made]
        self.assertEqual(elapsed, [(31 * 24 * 3600 - 1) * 1000, 0, 5])

    def test_clockSetBackGivesZero(self) -> None:
        """
        If a clock is set back less than 1,000 s before the month's start, the time is 0;
        a larger jump gives a negative number, as in Java.
        """
        start = utc(2024, 5, 1)
        made = self.ids([start, start - 1, start - 999_999, start - 1_000_000])
        self.assertEqual([one[20:28] for one in made], ["00000000", "00000000", "FFF0BDC0"])

    def test_futureTimeIsOfPreviousMonth(self) -> None:
        """
        A time that is not before now is in the previous month. As in Java, even the
        current millisecond is.
        """
        # Made by MessageClientIDSetter in Asia/Shanghai at 1794829276396, and
        # dated by its getNearlyTimeFromID in the same millisecond.
        made = decodeUniqueId("FD00000000000000000000000000000216F930946E095178E0EC0000")
        self.assertEqual(made.host, "fd00::2")
        self.assertEqual(made.pid, 5881)
        shanghai = partial(monthStart, zone=timezone(timedelta(hours=8)))
        self.assertEqual(made.time(1794829276396, shanghai), 1792150876396)
        self.assertEqual(made.time(1794829276397, shanghai), 1794829276396)

    def test_capturedIdsHaveBornTime(self) -> None:
        """
        The ids in captured records have times within two seconds of the messages'
        bornTimestamp, on a machine in UTC.
        """
        seen = 0
        for _, body in capturedBodies():
            for message in decodeRecords(body):
                key = message.properties.get("UNIQ_KEY")
                if key is None or key.startswith("C0"):
                    continue  # Node gives none, and Go counts otherwise
                now = message.storeTimestamp + 1000
                made = decodeUniqueId(key).time(now, utcMonthStart)
                self.assertLess(abs(made - message.bornTimestamp), 2000)
                self.assertEqual(decodeUniqueId(key).host, "fd00::2")
                seen += 1
        self.assertGreater(seen, 10)

    def test_goClientsIdIsDecoded(self) -> None:
        """
        The Go client's ids, partly in lower case, are decoded.
        """
        made = decodeUniqueId("C00002022CA2000000004dfa1110012c")
        self.assertEqual((made.host, made.pid, made.counter), ("192.0.2.2", 0x2CA2, 0x012C))

    def test_monthStartsAtLocalMidnight(self) -> None:
        """
        A month begins at midnight of its first day in the given zone, or in the local
        one.
        """
        east = timezone(timedelta(hours=8))
        self.assertEqual(monthStart(utc(2024, 2, 29, 15), UTC), utc(2024, 2, 1))
        self.assertEqual(monthStart(utc(2024, 2, 29, 16), east), utc(2024, 2, 29, 16))
        self.assertEqual(monthStart(utc(2024, 2, 29, 16) - 1, east), utc(2024, 1, 31, 16))
        own = datetime.fromtimestamp(monthStart(utc(2024, 2, 15)) // 1000)
        self.assertEqual(own, datetime(2024, 2, 1))
