# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.filters.sql92.javanumbers}. The expectations are those of JDK 17;
C{sql92.jsonl} has more of them.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.filters.sql92.javanumbers import compareDoubles, readDouble, readInt, readLong

NO_INTEGERS = (
    *("", " ", "+", "-", "+-5", "--5", " 5", "5 ", "5\n", "5.0", "5L", "1_000", "0x5", "1e2"),
    *("five", "٥x", "\U0001d7d3", "½", "²", "99999999999999999999", "9" * 5000),
)
NO_DOUBLES = (
    *("", " ", "+", "-", ".", "e5", "1e", "1e+", "5L", "1_000", "0x5", "0xp1", "0x.p1", "٥"),
    *("inf", "nan", "infinity", "+-5", "\u00a05", "5 5", "1.2.3", "1ff", "Infinityd", "NaNf"),
)


class IntegerTests(SynchronousTestCase):
    """
    L{readInt} and L{readLong}.
    """

    def test_digitsOfAnyScriptAreRead(self) -> None:
        """
        Digits of any script are read, with a sign and with leading zeros.
        """
        for read in (readInt, readLong):
            for text, value in (
                *(("0", 0), ("5", 5), ("+5", 5), ("-5", -5), ("-0", 0), ("007", 7)),
                *(("0" * 5000 + "5", 5), ("-" + "0" * 5000, 0), ("٥", 5), ("-５", -5), ("٤2", 42)),
            ):
                self.assertEqual(read(text), value, text)

    def test_integersHaveJavasRange(self) -> None:
        """
        An int has 32 bits and a long 64, both signed.
        """
        for read, bits in ((readInt, 31), (readLong, 63)):
            for value in (-(2**bits), 2**bits - 1):
                self.assertEqual(read(str(value)), value)
            for value in (-(2**bits) - 1, 2**bits):
                self.assertRaises(ValueError, read, str(value))

    def test_textThatJavaRefusesIsRefused(self) -> None:
        """
        Text that Java refuses is refused, although C{int()} may accept it.
        """
        for text in NO_INTEGERS:
            self.assertRaises(ValueError, readInt, text)
            self.assertRaises(ValueError, readLong, text)

    @given(st.integers(-(2**63), 2**63 - 1))
    def test_everyLongIsRead(self, value: int) -> None:
        """
        Every long is read.
        """
        self.assertEqual(readLong(str(value)), value)


class DoubleTests(SynchronousTestCase):
    """
    L{readDouble} and L{compareDoubles}.
    """

    def test_decimalAndHexadecimalAreRead(self) -> None:
        """
        Decimal and hexadecimal numbers are read, with a suffix and with blanks around
        them, as are NaN and Infinity.
        """
        for text, value in (
            *(("5", 5.0), ("5.", 5.0), (".5", 0.5), ("-5.5E-1", -0.55), ("1e5", 1e5)),
            *(("5f", 5.0), ("5D", 5.0), (" 5 ", 5.0), ("\x005\x1f", 5.0), ("+5", 5.0)),
            *(("0x1p3", 8.0), ("0X.8P1", 1.0), ("0x1.p3", 8.0), ("-0x1.8p-2f", -0.375)),
            *(("1e400", math.inf), ("-1e400", -math.inf), ("1e-400", 0.0)),
            *(("0x1p9999", math.inf), ("-0x1p9999", -math.inf), ("0x1p-9999", 0.0)),
            *(("Infinity", math.inf), ("+Infinity", math.inf), ("-Infinity", -math.inf)),
        ):
            self.assertEqual(readDouble(text), value, text)
        for text in ("NaN", "+NaN", "-NaN"):
            self.assertTrue(math.isnan(readDouble(text)))

    def test_textThatJavaRefusesIsRefused(self) -> None:
        """
        Text that Java refuses is refused, although C{float()} may accept it.
        """
        for text in NO_DOUBLES:
            self.assertRaises(ValueError, readDouble, text)

    def test_doublesAreOrderedAsInJava(self) -> None:
        """
        All doubles have an order: -0.0 before 0.0, and NaN after all others.
        """
        row = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
        for first, left in enumerate(row):
            for second, right in enumerate(row):
                self.assertEqual(
                    compareDoubles(left, right), (first > second) - (first < second), (left, right)
                )

    @given(st.floats(allow_nan=False))
    def test_everyDoubleIsRead(self, value: float) -> None:
        """
        Every double is read.
        """
        text = repr(value).replace("inf", "Infinity")
        self.assertEqual(compareDoubles(readDouble(text), value), 0)

    @given(st.text("0123456789+-.eExpPfdNaIinty_ ٥\x00", max_size=12))
    def test_anyTextRaisesOnlyValueError(self, text: str) -> None:
        """
        Any text is a number or a L{ValueError}, for each of the three functions.
        """
        for read in (readInt, readLong, readDouble):
            try:
                value = read(text)
            except ValueError:
                continue
            self.assertIsInstance(value, float if read is readDouble else int)
