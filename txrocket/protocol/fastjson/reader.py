# SPDX-License-Identifier: Apache-2.0
"""
The parser of fastjson's dialect; see L{txrocket.protocol.fastjson}.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from typing import Any, Final, NoReturn

from txrocket.errors import MalformedBody
from txrocket.protocol.fastjson.gradual import Gradual
from txrocket.protocol.fastjson.references import MAX_DEPTH, STEP, Reference, Unfolding

__all__ = ["MAX_DEPTH", "FastjsonReader", "ObjectKey"]

#: Converts an object that is a map key to a hashable value.
ObjectKey = Callable[[dict[Any, Any]], Hashable]

# A reference may stand for a large value and be repeated.  Therefore the number of
# values after their replacement is limited to this multiple of the text's length.
_UNFOLD: Final = 8

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_COMMAS = re.compile(r"[ \t\r\n\f\b,]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]+")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile(r"[0-9a-fA-F]+")
_WORDS = {"true": True, "false": False, "null": None}
_SHORT = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}


class FastjsonReader:
    """
    A recursive parser with one method per kind of value.  C{at} is its position in the
    text; each method begins there and leaves it behind its value.
    """

    def __init__(self, text: str, objectKey: ObjectKey) -> None:
        self.text = text
        self.at = 0
        self.objectKey = objectKey
        self.referred = False
        self.steps = 0

    def read(self) -> Gradual[Any]:
        """
        Parse the whole text.
        """
        self.at = 1 if self.text.startswith("\ufeff") else 0
        value = yield from self.value(1)
        self.skip(_SPACE)
        if self.at < len(self.text):
            self.fail("text after the value")
        if self.referred:
            return (yield from Unfolding(value, _UNFOLD * len(self.text)).unfold(value, 1))
        return value

    def fail(self, reason: str) -> NoReturn:
        """
        Raise an error that names the current position.
        """
        raise MalformedBody(f"{reason} at character {self.at}")

    def skip(self, blank: re.Pattern[str]) -> str:
        """
        Skip blanks and return the next character; empty at the end of the text.
        """
        match = blank.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def step(self) -> bool:
        """
        Whether it is time to yield.
        """
        self.steps += 1
        return self.steps % STEP == 0

    def value(self, depth: int) -> Gradual[Any]:
        """
        Parse a value of any kind.
        """
        if depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH}")
        first = self.skip(_SPACE)
        if first in ('"', "'") and first:
            return (yield from self.string(first))
        if first == "{":
            return (yield from self.object(depth))
        if first == "[":
            return (yield from self.array(depth))
        if first.isdigit() or first == "-":
            return self.number()
        match = _NAME.match(self.text, self.at)
        if match is None or match.group() not in _WORDS:
            self.fail("a value was expected")
        self.at = match.end()
        return _WORDS[match.group()]

    def object(self, depth: int) -> Gradual[Any]:
        """
        Parse an object; one with the single member C{$ref} is a L{Reference}.
        """
        members: dict[Any, Any] = {}
        self.at += 1
        while (first := self.skip(_COMMAS)) != "}":
            key = yield from self.key(first, depth)
            if self.skip(_SPACE) != ":":
                self.fail("a colon was expected")
            self.at += 1
            members[key] = yield from self.value(depth + 1)
            if self.step():
                yield
            if self.skip(_SPACE) not in (",", "}"):
                self.fail("a comma or closing brace was expected")
        self.at += 1
        path = members.get("$ref")
        if path is None:
            return members
        if len(members) > 1 or not isinstance(path, str):
            self.fail("a reference with more than a path")
        self.referred = True
        return Reference(path)

    def key(self, first: str, depth: int) -> Gradual[Hashable]:
        """
        Parse a map key: a string, a name, an integer or an object.
        """
        if first in ('"', "'") and first:
            return (yield from self.string(first))
        if first == "{":
            if depth >= MAX_DEPTH:
                self.fail(f"nested deeper than {MAX_DEPTH}")
            start = self.at
            members = yield from self.object(depth + 1)
            if isinstance(members, Reference):
                self.at = start
                self.fail("a reference as a key")
            return self.objectKey(members)
        match = _INTEGER.match(self.text, self.at)
        if match is not None:
            number = self.integer(match.group())
            self.at = match.end()
            return number
        match = _NAME.match(self.text, self.at)
        if match is None:
            self.fail("a key was expected")
        self.at = match.end()
        return match.group()

    def array(self, depth: int) -> Gradual[list[Any]]:
        """
        Parse an array.
        """
        items: list[Any] = []
        self.at += 1
        while self.skip(_SPACE) != "]":
            items.append((yield from self.value(depth + 1)))
            if self.step():
                yield
            after = self.skip(_SPACE)
            if after == ",":
                self.at += 1
            elif after != "]":
                self.fail("a comma or closing bracket was expected")
        self.at += 1
        return items

    def integer(self, digits: str) -> int:
        """
        Convert digits to an integer of 64 bits.
        """
        # Check the length first, because int() is slow for very many digits.
        number = int(digits) if len(digits) <= 20 else 2**64
        if not -(2**63) <= number < 2**63:
            self.fail("an integer beyond 64 bits")
        return number

    def number(self) -> int | float:
        """
        Parse an integer or a double.
        """
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            self.fail("a number was expected")
        if match.group(1) is None and match.group(2) is None:
            integer = self.integer(match.group())
            self.at = match.end()
            return integer
        number = float(match.group())
        if math.isinf(number):
            self.fail("a number beyond a double")
        self.at = match.end()
        return number

    def string(self, quote: str) -> Gradual[str]:
        """
        Parse a string in the given quotes.
        """
        parts: list[str] = []
        self.at += 1
        while True:
            parts.append(self.plain(quote))
            stop = self.text[self.at : self.at + 1]
            self.at += 1
            if stop == quote:
                break
            if not stop:
                self.at -= 1
                self.fail("an unfinished string")
            parts.append(self.escape())
            if self.step():
                yield
        text = "".join(parts)
        # Escapes are UTF-16 units: surrogate pairs are joined, and a lone surrogate is
        # an error.
        if any("\ud800" <= part <= "\udfff" for part in parts if len(part) == 1):
            try:
                return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                self.fail("half a surrogate pair in the string")
        return text

    def plain(self, quote: str) -> str:
        """
        Parse the characters up to the next quote or escape.
        """
        match = _PLAIN[quote].match(self.text, self.at)
        assert match is not None  # it may be empty
        self.at = match.end()
        return match.group()

    def escape(self) -> str:
        """
        Parse an escape, from behind its backslash.
        """
        kind = self.text[self.at : self.at + 1]
        self.at += 1
        if kind in _SHORT:
            return _SHORT[kind]
        size = {"u": 4, "x": 2}.get(kind, 0)
        digits = self.text[self.at : self.at + size]
        if size == 0 or len(digits) < size or not _HEX.fullmatch(digits):
            self.fail("an unknown escape")
        self.at += size
        return chr(int(digits, 16))
