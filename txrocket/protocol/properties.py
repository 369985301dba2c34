# SPDX-License-Identifier: Apache-2.0
"""
Settings as text, the bodies of UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG and their
like at the name server; Java's C{MixAll.properties2String} and
C{java.util.Properties}::

    brokerName=broker-a\n
    fileReservedTime=72\n
    |  key         | value

It is a form of its own, with escapes, comments and joined lines that JSON has
not, and so it is read and written here.  Servers' configuration files have it
too: there people write as well, so errors name lines, and L{amend} changes a
value and leaves the rest as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from txrocket.errors import MalformedBody

__all__ = ["Entry", "Properties", "amend", "entries", "parse", "write"]


class Properties(dict[str, str]):
    """
    Settings as text: C{key=value} and a newline each.

    Java's writer (C{MixAll.properties2String}) escapes nothing, its reader is
    C{java.util.Properties.load}, which takes each byte beyond ASCII for a
    character of its own.  Here what must be escaped for that reader is escaped,
    so that what is written is what is read; text that needs no escape is written
    as Java writes it.  Bytes beyond ASCII are read as UTF-8, which is what their
    writer meant.
    """


class Entry(NamedTuple):
    """
    A key and its value where they stand in a text.

    @ivar first: the number of its first line; the text's first is 1.
    @ivar last: the number of its last line, which is another one if lines end in
        backslashes.
    """

    first: int
    last: int
    key: str
    value: str


_BLANK = " \t\f"
_LINE_END = re.compile(r"(\r\n|\r|\n)")
_PAIR = re.compile(
    r"(?P<key>(?:\\.|[^\\ \t\f=:])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL
)
_PROPERTY_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_PROPERTY_HEX = re.compile(r"[0-9a-fA-F]{4}")
_UNSAFE_KEY = re.compile(r"[\\\s=:#!]|[^ -~]")
_UNSAFE_VALUE = re.compile(r"\\|\A[ \t\f]|[^ -~]")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_NAMES = {character: name for name, character in _CONTROLS.items()}


def write(table: Mapping[str, str]) -> bytes:
    lines = [
        f"{_UNSAFE_KEY.sub(_escapeProperty, key)}={_UNSAFE_VALUE.sub(_escapeProperty, value)}\n"
        for key, value in table.items()
    ]
    return "".join(lines).encode("ascii")


def _escapeProperty(match: re.Match[str]) -> str:
    character = match.group()
    if " " <= character <= "~":
        return f"\\{character}"
    if character in _CONTROL_NAMES:
        return f"\\{_CONTROL_NAMES[character]}"
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def parse(data: bytes) -> Properties:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"Properties: not UTF-8 at byte {error.start}") from None
    return Properties({each.key: each.value for each in entries(text)})


def entries(text: str) -> Iterator[Entry]:
    """
    All keys and values in their order.  Of a key that is there twice the last one
    counts.

    @raise MalformedBody: naming the line.
    """
    for first, last, line in _logicalLines(text):
        match = _PAIR.fullmatch(line)
        # Every line matches: a backslash at its end was taken off with the line.
        assert match is not None
        try:
            key, value = _unescapeProperty(match["key"]), _unescapeProperty(match["value"])
        except MalformedBody as error:
            raise MalformedBody(f"Properties, line {first}: {error}") from None
        yield Entry(first, last, key, value)


def amend(text: str, changes: Mapping[str, str]) -> str:
    """
    A text with some values changed.  A key that is not in it is appended; comments,
    order and all other lines stay as they are.

    @raise MalformedBody: naming a line that cannot be read.
    """
    places = {each.key: each for each in entries(text)}
    parts = _LINE_END.split(text)
    lines, ends = parts[::2], [*parts[1::2], ""]
    newline = ends[0] or "\n"
    added = []
    for key, value in changes.items():
        place = places.get(key)
        if place is None:
            added.append(write({key: value}).decode("ascii").removesuffix("\n"))
            continue
        at = slice(place.first - 1, place.last)
        # What is emptied here is a line of this entry, so no number shifts.
        lines[at] = [_amended(lines[at], key, value), *[""] * (place.last - place.first)]
        ends[at] = [*[""] * (place.last - place.first), ends[place.last - 1]]
    body = "".join(line + end for line, end in zip(lines, ends, strict=True))
    if added and body and body[-1] not in "\r\n":
        body += newline
    if added and body.rstrip("\r\n").endswith("\\"):
        # What comes next would belong to the line that ends so.  After \r, \n would be
        # a part of the same line end.
        body += "\r" if body[-1] == "\r" else newline
    return body + "".join(f"{line}{newline}" for line in added)


def _amended(old: list[str], key: str, value: str) -> str:
    """
    One line for a key, spaced as its old one was.
    """
    new = write({key: value}).decode("ascii").removesuffix("\n")
    if len(old) > 1:
        return new
    match = _PAIR.fullmatch(old[0].lstrip(_BLANK))
    assert match is not None
    spaced = old[0].removesuffix(match["value"]) + _UNSAFE_VALUE.sub(_escapeProperty, value)
    # Without a = or a : a value that begins with one would be misread.
    read = [(each.key, each.value) for each in entries(spaced)]
    return spaced if read == [(key, value)] else new


def _logicalLines(text: str) -> Iterator[tuple[int, int, str]]:
    """
    Lines without comments and blanks, those that end in a backslash joined with
    the next, each after the numbers of its first and last line.
    """
    pending: list[str] = []
    number = 0
    for number, line in enumerate(_LINE_END.split(text)[::2], 1):
        line = line.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending.append(line[:-1])
            continue
        joined = "".join([*pending, line])
        if joined:
            yield number - len(pending), number, joined
        pending.clear()
    if joined := "".join(pending):
        yield number - len(pending) + 1, number, joined


def _unescapeProperty(text: str) -> str:
    if "\\" not in text:
        return text
    text = _PROPERTY_ESCAPE.sub(_propertyCharacter, text)
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise MalformedBody("half a surrogate pair") from None


def _propertyCharacter(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] != "u":
        return _CONTROLS.get(escape, escape)
    if not _PROPERTY_HEX.fullmatch(escape[1:]):
        raise MalformedBody(f"malformed \\uxxxx escape {match.group()!r}")
    return chr(int(escape[1:], 16))
