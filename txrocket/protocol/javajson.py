# SPDX-License-Identifier: Apache-2.0
"""
JSON as fastjson 1.2.69 speaks it, which is what RocketMQ 4.9.7 puts into bodies
and files.  It is not quite JSON::

    {0:"127.0.0.1:10911"}                                 integers as keys
    {{"brokerName":"a","queueId":0,"topic":"t"}:1}        objects as keys
    {"a":{"x":1},"b":{"$ref":"$.a"}}                      an object told twice

Reading takes all of that and, as fastjson does, names without quotes or in
single ones, single-quoted strings, bare control characters in strings (the Go
client sends a stack trace so), commas with nothing behind them and a byte order
mark.  Standard JSON, nearly all there is, goes straight through orjson.

Writing gives the bytes that fastjson gives: members of a value by name, no
members that are None, integers and objects as keys, doubles as Java prints
them.  C{standard=True} is what the name server does for clients that announce
4.9.4 or newer (C{BrowserCompatible} with C{MapSortField}): all keys are
strings, maps are sorted and all is ASCII.  C{$ref} is never written: no body
needs it.

The reader of what is not standard takes a millisecond for two kilobytes.  So it is a
generator, L{parsing}: a server lets others have their turn wherever it yields.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import msgspec
import orjson

from txrocket.errors import MalformedBody

__all__ = [
    *("MAX_DEPTH", "REFERENCE", "Gradual", "ObjectKey"),
    *("finish", "parse", "parsing", "write", "writeKey"),
]

_T = TypeVar("_T")

#: Work that yields where something else may be done, and then returns its result.
Gradual: TypeAlias = Generator[None, None, _T]

#: Makes a key of an object that stands where a key is due.
ObjectKey = Callable[[dict[Any, Any]], Hashable]

#: RocketMQ's bodies are less than ten levels deep.
MAX_DEPTH = 64

#: The bytes that every body with a reference has in it.
REFERENCE = b"$ref"

# orjson makes a float of an integer beyond 64 bits; such text is read here instead.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")

# A reference may stand for a large value and be repeated: what a body unfolds
# to is held to this multiple of its own length.
_UNFOLD = 8

# The longest path of a reference: RocketMQ's have less than a hundred characters.
_PATH_LIMIT: Final = 1024

# The reader yields after so many values or escapes, which take less than a millisecond.
_STEPS: Final = 128


def finish(work: Gradual[_T]) -> _T:
    """
    Do some work without a pause.
    """
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: _T = stop.value
            return result


def parse(data: bytes, objectKey: ObjectKey) -> Any:
    """
    Read one value at once; see L{parsing}.
    """
    return finish(parsing(data, objectKey))


def parsing(data: bytes, objectKey: ObjectKey) -> Gradual[Any]:
    """
    Read one value.

    @param data: UTF-8 text.
    @param objectKey: given the object where an object is a key; returns what
        stands for it in the dict.
    @return: dicts, lists, strings, numbers, booleans and None.
    @raise MalformedBody: it is not in this language, is nested deeper than
        L{MAX_DEPTH}, or has an integer beyond 64 bits.
    """
    if REFERENCE not in data and _LONG_NUMBER.search(data) is None:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # not standard JSON: the reader below has the last word
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}") from None
    return (yield from _Reader(text, objectKey).read())


# --- reading ---------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_COMMAS = re.compile(r"[ \t\r\n\f\b,]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]+")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile(r"[0-9a-fA-F]+")
_SEGMENT = re.compile(r"\.((?:\\.|[^\\.\[])+)|\[([0-9]{1,10})\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
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


class _Reference:
    """
    A C{{"$ref": path}} that is not yet looked up.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class _Reader:
    """
    Reads one text.
    """

    def __init__(self, text: str, objectKey: ObjectKey) -> None:
        self.text = text
        self.at = 0
        self.objectKey = objectKey
        self.referred = False
        self.steps = 0

    def read(self) -> Gradual[Any]:
        """
        The text's one value.
        """
        self.at = 1 if self.text.startswith("\ufeff") else 0
        value = yield from self.value(1)
        self.skip(_SPACE)
        if self.at < len(self.text):
            self.fail("text after the value")
        if self.referred:
            return (yield from _Unfolding(value, _UNFOLD * len(self.text)).unfold(value, 1))
        return value

    def fail(self, reason: str) -> NoReturn:
        """
        Give up where the reader stands.
        """
        raise MalformedBody(f"{reason} at character {self.at}")

    def skip(self, blank: re.Pattern[str]) -> str:
        """
        Step over blanks to the next character, empty at the end of the text.
        """
        match = blank.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def step(self) -> bool:
        """
        Whether it is time to yield.
        """
        self.steps += 1
        return self.steps % _STEPS == 0

    def value(self, depth: int) -> Gradual[Any]:
        """
        Any value.
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
            self.fail("no value")
        self.at = match.end()
        return _WORDS[match.group()]

    def object(self, depth: int) -> Gradual[Any]:
        """
        An object, or the reference that it is.
        """
        members: dict[Any, Any] = {}
        self.at += 1
        while (first := self.skip(_COMMAS)) != "}":
            key = yield from self.key(first, depth)
            if self.skip(_SPACE) != ":":
                self.fail("no colon")
            self.at += 1
            members[key] = yield from self.value(depth + 1)
            if self.step():
                yield
            if self.skip(_SPACE) not in (",", "}"):
                self.fail("neither comma nor closing brace")
        self.at += 1
        path = members.get("$ref")
        if path is None:
            return members
        if len(members) > 1 or not isinstance(path, str):
            self.fail("a reference that is more than a path")
        self.referred = True
        return _Reference(path)

    def key(self, first: str, depth: int) -> Gradual[Hashable]:
        """
        A name, an integer or an object in a key's place.
        """
        if first in ('"', "'") and first:
            return (yield from self.string(first))
        if first == "{":
            if depth >= MAX_DEPTH:
                self.fail(f"nested deeper than {MAX_DEPTH}")
            start = self.at
            members = yield from self.object(depth + 1)
            if isinstance(members, _Reference):
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
            self.fail("no key")
        self.at = match.end()
        return match.group()

    def array(self, depth: int) -> Gradual[list[Any]]:
        """
        An array.
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
                self.fail("neither comma nor closing bracket")
        self.at += 1
        return items

    def integer(self, digits: str) -> int:
        """
        An integer of 64 bits.
        """
        # Length first: int() of a million digits takes long, then refuses.
        number = int(digits) if len(digits) <= 20 else 2**64
        if not -(2**63) <= number < 2**63:
            self.fail("an integer beyond 64 bits")
        return number

    def number(self) -> int | float:
        """
        An integer or a double.
        """
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            self.fail("no number")
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
        A string in these quotes.
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
        # Escapes come as UTF-16: halves are joined, and one alone is no text.
        if any("\ud800" <= part <= "\udfff" for part in parts if len(part) == 1):
            try:
                return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                self.fail("half a surrogate pair in the string")
        return text

    def plain(self, quote: str) -> str:
        """
        What comes before the next quote or escape.
        """
        match = _PLAIN[quote].match(self.text, self.at)
        assert match is not None  # it may be empty
        self.at = match.end()
        return match.group()

    def escape(self) -> str:
        """
        The character that follows a backslash stands for.
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


class _Unfolding:
    """
    Puts the values that references mean in their place.  What a reference means
    is copied, so there is neither sharing nor a cycle in the outcome.
    """

    def __init__(self, root: Any, room: int) -> None:
        self.root = root
        self.room = room
        self.found: dict[str, Any] = {}

    def unfold(self, value: Any, depth: int) -> Gradual[Any]:
        """
        The value without references.
        """
        self.room -= 1
        if self.room % _STEPS == 0:
            yield
        if self.room < 0:
            raise MalformedBody("references unfold to too much")
        if depth > MAX_DEPTH:
            # "$", "@" and ".." mean a value around the reference: no body has that.
            raise MalformedBody(f"references nest deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            members = {}
            for key, item in value.items():
                members[key] = yield from self.unfold(item, depth + 1)
            return members
        if isinstance(value, list):
            items = []
            for item in value:
                items.append((yield from self.unfold(item, depth + 1)))
            return items
        if isinstance(value, _Reference):
            return (yield from self.unfold(self.find(value.path, depth + 1), depth + 1))
        return value

    def find(self, path: str, depth: int) -> Any:
        """
        What a path leads to.
        """
        if path in self.found:
            return self.found[path]
        if depth > MAX_DEPTH:
            raise MalformedBody(f"references nest deeper than {MAX_DEPTH}")
        if len(path) > _PATH_LIMIT:
            raise MalformedBody(f"a reference of {len(path)} characters: {_PATH_LIMIT} may be")
        if not path.startswith("$"):
            raise MalformedBody(f"reference {path[:80]!r} means a value around itself")
        value, at = self.root, 1
        while at < len(path):
            match = _SEGMENT.match(path, at)
            if isinstance(value, _Reference):
                value = self.find(value.path, depth + 1)
            try:
                if match is None:
                    raise KeyError
                value = _step(value, match)
            except (LookupError, TypeError):
                raise MalformedBody(f"reference {path[:80]!r} leads nowhere") from None
            at = match.end()
        self.found[path] = value
        return value


def _step(value: Any, match: re.Match[str]) -> Any:
    if match.group(1) is None:
        return value[int(match.group(2))]
    name = _ESCAPED.sub(r"\1", match.group(1))
    return value[name]


# --- writing ---------------------------------------------------------------

_SPECIAL = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_SPECIAL_STANDARD = re.compile('[\x00-\x1f"\\\\/\x7f-\U0010ffff]')
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def write(value: Any, standard: bool = False) -> bytes:
    """
    Write one value.

    @param value: a L{msgspec.Struct}, dict, list, tuple, set, str, int, float,
        bool, enum member or None, and such within.  Sets are written in an
        order that depends on nothing but their elements.
    @param standard: strictly JSON, as described above.
    @return: UTF-8 text; half a surrogate pair comes out as C{?}, as in Java.
    """
    return _text(value, standard).encode("utf-8", "replace")


def writeKey(key: Any, standard: bool = False) -> bytes:
    """
    Write a key of a map; see L{write}.
    """
    return _key(key, standard).encode("utf-8", "replace")


def _text(value: Any, standard: bool) -> str:
    kind = type(value)
    if kind is str:
        return _string(value, standard)
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _double(value)
    if isinstance(value, msgspec.Struct):
        return _struct(value, standard)
    if isinstance(value, dict):
        return _map(value, standard)
    if isinstance(value, (list, tuple)):
        return _array(_text(each, standard) for each in value)
    if isinstance(value, (set, frozenset)):
        return _array(sorted(_text(each, standard) for each in value))
    if isinstance(value, enum.Enum):
        return _string(value.name, standard)
    raise TypeError(f"no JSON for {value!r}")


def _array(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


@functools.cache
def _members(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f'"{name}":') for name in sorted(kind.__struct_fields__))


def _struct(value: msgspec.Struct, standard: bool) -> str:
    parts = [
        label + _text(member, standard)
        for name, label in _members(type(value))
        if (member := getattr(value, name)) is not None
    ]
    return f"{{{','.join(parts)}}}"


def _map(value: dict[Any, Any], standard: bool) -> str:
    items: Iterable[tuple[Any, Any]] = value.items()
    if standard:
        items = sorted(items, key=lambda item: item[0])
    parts = [f"{_key(key, standard)}:{_text(item, standard)}" for key, item in items]
    return f"{{{','.join(parts)}}}"


def _key(key: Any, standard: bool) -> str:
    if type(key) is str:
        return _string(key, standard)
    return _string(_text(key, False), True) if standard else _text(key, False)


def _string(text: str, standard: bool) -> str:
    special = _SPECIAL_STANDARD if standard else _SPECIAL
    if special.search(text) is not None:
        text = special.sub(_escape, text)
    return f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    short = _ESCAPES.get(character)
    if short is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _double(number: float) -> str:
    if not math.isfinite(number):
        return "null"
    if number == 0.0:
        return "-0.0" if math.copysign(1.0, number) < 0 else "0.0"
    if 1e-3 <= abs(number) < 1e7:
        return repr(number)  # never an exponent in this range
    if abs(number) == 5e-324:
        # Java wants two digits, and these are nearer than 5.0.
        return "-4.9E-324" if number < 0 else "4.9E-324"
    mantissa, _, exponent = _scientific(number).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(number: float) -> str:
    # repr gives the fewest digits that mean the number, but writes out
    # exponents up to 16.
    digits = repr(number)
    if "e" in digits:
        return digits
    count = sum(each.isdigit() for each in digits.replace(".", "").lstrip("-0").rstrip("0"))
    return f"{number:.{max(count - 1, 0)}e}"
