# SPDX-License-Identifier: Apache-2.0
"""
Numbers as Java parses them from text.

Properties are text, and an SQL92 expression compares them with numbers by
C{Integer.valueOf}, C{Long.valueOf} and C{Double.valueOf}.  Python accepts other texts
than these::

                   int of Java   int()     Double.valueOf   float()
    "+5"           yes           yes       yes              yes
    " 5 "          no            yes       yes              yes
    "1_000"        no            yes       no               yes
    "٥"            yes           yes       no               yes
    "5f", "0x1p3"                          yes              no
    "inf", "nan"                           no               yes
    "Infinity"                             yes              yes

and Java refuses integers beyond 32 or 64 bits.
"""

from __future__ import annotations

import re
from math import copysign, inf
from typing import Final
from unicodedata import decimal

__all__ = ["INT_MAX", "LONG_MAX", "compareDoubles", "readDouble", "readInt", "readLong"]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?\d+")

_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)

# The characters that Java's trim removes.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


def readInt(text: str) -> int:
    """
    C{Integer.valueOf}.

    @raise ValueError: if the text cannot be parsed.
    """
    # Digits only, because int() accepts more than Java; signs are handled by _read.
    value = int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else _read(text)
    if -INT_MAX - 1 <= value <= INT_MAX:
        return value
    raise ValueError("not an int")


def readLong(text: str) -> int:
    """
    C{Long.valueOf}.

    @raise ValueError: if the text cannot be parsed.
    """
    value = int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else _read(text)
    if -LONG_MAX - 1 <= value <= LONG_MAX:
        return value
    raise ValueError("not a long")


def _read(text: str) -> int:
    # Java parses UTF-16 units, so it does not accept digits beyond U+FFFF.
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":
        raise ValueError("not an integer")
    digits = "".join(str(decimal(each)) for each in text.lstrip("+-")).lstrip("0")
    # More digits than 64 bits have, for which int() would be slow.
    if len(digits) > 19:
        raise ValueError("not an integer")
    value = int(digits or "0")
    return -value if text[0] == "-" else value


def readDouble(text: str) -> float:
    """
    C{Double.valueOf}.

    @raise ValueError: if the text cannot be parsed.
    """
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text):
        # float() accepts NaN and Infinity, but no suffix.
        return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))
    if not _HEXADECIMAL.fullmatch(text):
        raise ValueError("not a double")
    try:
        return float.fromhex(text.rstrip("fFdD"))
    except OverflowError:
        return -inf if text[0] == "-" else inf


def compareDoubles(left: float, right: float) -> int:
    """
    C{Double.compare}: NaN is equal to itself and greater than all other numbers, and 0.0
    is greater than -0.0.
    """
    if left < right:
        return -1
    if left > right:
        return 1
    first, second = _rank(left), _rank(right)
    return (first > second) - (first < second)


def _rank(value: float) -> float:
    # Called if one is NaN, or if both are equal, possibly 0.0 and -0.0.
    return 2.0 if value != value else copysign(1.0, value)
