# SPDX-License-Identifier: Apache-2.0
"""
Settings as text, the bodies of UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG and their
like at the name server; Java's C{MixAll.properties2String} and
C{java.util.Properties}::

    brokerName=broker-a\n
    fileReservedTime=72\n
    |  key         | value

It is a form of its own, with escapes, comments and joined lines that JSON has
not, and so it is read and written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from txrocket.errors import MalformedBody

__all__ = ["Properties", "parse", "write"]


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


_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
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
    table = Properties()
    for line in _logicalLines(text):
        match = _PAIR.fullmatch(line)
        # Every line matches: a backslash at its end was taken off with the line.
        assert match is not None
        table[_unescapeProperty(match["key"])] = _unescapeProperty(match["value"])
    return table


def _logicalLines(text: str) -> Iterator[str]:
    """
    Lines without comments and blanks, those that end in a backslash joined with
    the next.
    """
    pending: list[str] = []
    for line in _LINE_END.split(text):
        line = line.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending.append(line[:-1])
            continue
        joined = "".join([*pending, line])
        pending.clear()
        if joined:
            yield joined
    if joined := "".join(pending):
        yield joined


def _unescapeProperty(text: str) -> str:
    if "\\" not in text:
        return text
    text = _PROPERTY_ESCAPE.sub(_propertyCharacter, text)
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise MalformedBody("Properties: half a surrogate pair") from None


def _propertyCharacter(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] != "u":
        return _CONTROLS.get(escape, escape)
    if not _PROPERTY_HEX.fullmatch(escape[1:]):
        raise MalformedBody(f"Properties: malformed \\uxxxx escape {match.group()!r}")
    return chr(int(escape[1:], 16))
