# SPDX-License-Identifier: Apache-2.0
"""
Settings as text: the bodies of UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG and of the same
requests to the name server; Java's C{MixAll.properties2String} and
C{java.util.Properties}::

    brokerName=broker-a\n
    fileReservedTime=72\n
    |  key         | value

The format has escapes, comments and joined lines.  Servers' configuration files have it
too.  Since operators edit those files, errors name lines, and L{amend} changes a value
and leaves all other text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from txrocket.errors import MalformedBody

__all__ = ["ConfigEntry", "ConfigText", "amend", "entries", "parse", "write"]


class ConfigText(dict[str, str]):
    """
    Settings by their keys, which are text on the wire: C{key=value} and a newline each.

    Java's writer (C{MixAll.properties2String}) escapes nothing, but its reader
    (C{java.util.Properties.load}) unescapes, and reads each byte beyond ASCII as one
    character.  Therefore L{write} escapes what that reader would change; other text is
    written as Java writes it.  L{parse} reads bytes beyond ASCII as UTF-8, which is what
    Java's writer sends.
    """


class ConfigEntry(NamedTuple):
    """
    A key and its value, with their place in a text.

    @ivar first: the number of its first line; the text's first line is 1.
    @ivar last: the number of its last line, which is greater if lines end in
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
    """
    Write settings as text.
    """
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


def parse(data: bytes) -> ConfigText:
    """
    Parse settings.

    @raise MalformedBody: if the text cannot be parsed.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"Properties: not UTF-8 at byte {error.start}") from None
    return ConfigText({each.key: each.value for each in entries(text)})


def entries(text: str) -> Iterator[ConfigEntry]:
    """
    List all keys and values in their order.  If a key occurs twice, the caller must use
    the last one.

    @raise MalformedBody: if a line cannot be parsed; the error names it.
    """
    for first, last, line in _logicalLines(text):
        match = _PAIR.fullmatch(line)
        # Every line matches, because a backslash at its end is already removed.
        assert match is not None
        try:
            key, value = _unescapeProperty(match["key"]), _unescapeProperty(match["value"])
        except MalformedBody as error:
            raise MalformedBody(f"Properties, line {first}: {error}") from None
        yield ConfigEntry(first, last, key, value)


def amend(text: str, changes: Mapping[str, str]) -> str:
    """
    Change some values in a text.  A new key is appended; comments, order and all other
    lines stay as they are.

    @raise MalformedBody: if a line cannot be parsed; the error names it.
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
        # Empty the other lines of the entry instead of removing them, so that the numbers
        # of the following lines stay valid.
        lines[at] = [_amended(lines[at], key, value), *[""] * (place.last - place.first)]
        ends[at] = [*[""] * (place.last - place.first), ends[place.last - 1]]
    body = "".join(line + end for line, end in zip(lines, ends, strict=True))
    if added and body and body[-1] not in "\r\n":
        body += newline
    if added and body.rstrip("\r\n").endswith("\\"):
        # End the line, because a backslash would join the appended line to it.  After \r,
        # use \r again: \n would be part of the same line end.
        body += "\r" if body[-1] == "\r" else newline
    return body + "".join(f"{line}{newline}" for line in added)


def _amended(old: list[str], key: str, value: str) -> str:
    """
    Write one line for a key, with the spacing of its old line.
    """
    new = write({key: value}).decode("ascii").removesuffix("\n")
    if len(old) > 1:
        return new
    match = _PAIR.fullmatch(old[0].lstrip(_BLANK))
    assert match is not None
    spaced = old[0].removesuffix(match["value"]) + _UNSAFE_VALUE.sub(_escapeProperty, value)
    # If the old line has no = or :, a value that begins with one would be misread.
    read = [(each.key, each.value) for each in entries(spaced)]
    return spaced if read == [(key, value)] else new


def _logicalLines(text: str) -> Iterator[tuple[int, int, str]]:
    """
    List the lines without comments and blank lines.  A line that ends in a backslash is
    joined with the next one.

    @return: the numbers of the first and the last line, and the joined text.
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
