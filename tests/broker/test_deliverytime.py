# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.delivery.deliverytime}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker.delivery.deliverytime import RequestedTime, askedTime, withoutTimes, withTime
from txrocket.errors import MessageIllegal

NOW = 1_700_000_000


class TimesTests(SynchronousTestCase):
    """
    The requested times of messages.
    """

    def test_relativeTimesCountFromNow(self) -> None:
        """
        Seconds and milliseconds count from now on; the others are times.
        """
        for name, text, when in (
            ("TIMER_DELAY_SEC", "90", NOW * 1000 + 90_000),
            ("TIMER_DELAY_MS", "90", NOW * 1000 + 90),
            ("TIMER_DELIVER_MS", "1700000000123", 1_700_000_000_123),
            ("__STARTDELIVERTIME", "1700000000123", 1_700_000_000_123),
            ("TIMER_DELAY_MS", "+5", NOW * 1000 + 5),
            ("TIMER_DELAY_MS", "-5", NOW * 1000 - 5),
            ("TIMER_DELIVER_MS", "0", 0),
        ):
            self.assertEqual(askedTime({"a": "b", name: text}, NOW), (name, when))

    def test_firstPropertyCounts(self) -> None:
        """
        Of several the one counts that counts in 5.x: seconds, milliseconds, a time.
        """
        properties = {
            "__STARTDELIVERTIME": "4",
            "TIMER_DELIVER_MS": "3",
            "TIMER_DELAY_MS": "2",
            "TIMER_DELAY_SEC": "1",
        }
        found = []
        while (asked := askedTime(properties, 0)) is not None:
            found.append(asked)
            del properties[asked.name]
        self.assertEqual(
            found,
            [
                ("TIMER_DELAY_SEC", 1000),
                ("TIMER_DELAY_MS", 2),
                ("TIMER_DELIVER_MS", 3),
                ("__STARTDELIVERTIME", 4),
            ],
        )

    def test_fractionIsRoundedUp(self) -> None:
        """
        A message does not come early by a part of a millisecond.
        """
        asked = askedTime({"TIMER_DELAY_MS": "10"}, NOW + 0.0004)
        self.assertEqual(asked, ("TIMER_DELAY_MS", NOW * 1000 + 11))

    def test_invalidTimeIsRefused(self) -> None:
        """
        A time that C{Long.parseLong} would refuse, or that is beyond all times, is refused.
        """
        for text in ("soon", "1.5", "1_000", "٣", "²", "+", "-", " 1", "1" * 16, "9" * 5000):
            with self.assertRaisesRegex(MessageIllegal, "TIMER_DELIVER_MS .* is no number"):
                askedTime({"TIMER_DELIVER_MS": text}, NOW)

    def test_parkedMessageKeepsItsTime(self) -> None:
        """
        A message that waits says when it is due; a time that was asked for stays with
        it, and what counts from some moment on, or does not count at all, is taken off.
        """
        properties = {"TIMER_DELIVER_MS": "3", "TIMER_DELAY_MS": "2", "a": "b"}
        self.assertEqual(
            withTime(properties, RequestedTime("TIMER_DELAY_MS", 77)),
            {"a": "b", "TIMER_OUT_MS": "77"},
        )
        self.assertEqual(
            withTime(properties, RequestedTime("TIMER_DELIVER_MS", 3)),
            {"a": "b", "TIMER_DELIVER_MS": "3", "TIMER_OUT_MS": "3"},
        )
        self.assertEqual(
            withoutTimes({**properties, "__STARTDELIVERTIME": "1", "TIMER_DELAY_SEC": "1"}),
            {"a": "b"},
        )
