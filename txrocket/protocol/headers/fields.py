# SPDX-License-Identifier: Apache-2.0
"""
Conversion between a command's C{extFields}, a map of strings, and a typed header::

    JSON text --> msgspec ----------------------------------> Header
                     | refused
                     +--> map of strings --> msgspec.convert ---+

Java sends the fields of a header class as text and reads them by reflection.  Here a
header is a L{msgspec.Struct} whose fields have the wire names and types, so msgspec
decodes JSON straight into it.  RocketMQ's peers disagree about the text: C++ and Node
clients send some numbers and booleans without quotes, which fastjson accepts.  If
msgspec refuses the text, all values are converted to strings and decoded again.  If
that fails too, the error names the field.

One rule differs from Java's on purpose.  A C++ producer marks a batch with
C{"batch":"1"}.  Java reads every text but C{true} as false, and stores the batch as
one broken message.  Here 1 means true and 0 false, as the producer intends.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from txrocket.errors import MalformedField, MalformedHeader, MissingField, ProtocolError

__all__ = ["UNREADABLE", "Header", "decodeExtFields", "decodeHeader", "headerFromFields"]


class Header(msgspec.Struct, gc=False):
    """
    A typed header: the C{extFields} of a request code.  An attribute without a default
    is required; an attribute that is L{None} is not sent.
    """

    def toFields(self) -> dict[str, str]:
        """
        Convert the header to C{extFields}.
        """
        write = _writer(type(self))
        # Later calls on this class go straight to the generated function.
        type(self).toFields = write  # type: ignore[assignment, method-assign]
        return write(self)


_Header = TypeVar("_Header", bound=Header)

#: The exceptions of msgspec's decoder.  Bytes that are not UTF-8 raise the error of
#: Python's codec, which is not a subclass of msgspec's own.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@functools.cache
def _names(header: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(header.__struct_encode_fields__, header.__struct_fields__, strict=True))


@functools.cache
def _writer(header: type[Header]) -> Callable[[Header], dict[str, str]]:
    """
    Generate L{Header.toFields} for one class, with one expression per field.  That
    avoids a loop that inspects the type of each value at each call.
    """
    types = typing.get_type_hints(header)
    always, perhaps = [], []
    for wireName, name in _names(header):
        kind = types[name]
        optional = type(None) in typing.get_args(kind)
        if optional:
            kind = next(each for each in typing.get_args(kind) if each is not type(None))
        if kind is bool:
            text = '"true" if {} else "false"'
        elif kind is int:
            text = 'f"{{{}}}"'
        else:
            text = "{}"
        if optional:
            perhaps.append(f"if (v := header.{name}) is not None: fields[{wireName!r}] = ")
            perhaps[-1] += text.format("v")
        else:
            always.append(f"{wireName!r}: {text.format(f'header.{name}')}")
    lines = [f"fields = {{{', '.join(always)}}}", *perhaps, "return fields"]
    scope: dict[str, Any] = {}
    exec("def write(header):\n " + "\n ".join(lines), scope)
    writer: Callable[[Header], dict[str, str]] = scope["write"]
    return writer


@functools.cache
def _decoder(header: type[_Header]) -> Callable[[bytes | msgspec.Raw], _Header]:
    return msgspec.json.Decoder(header, strict=False).decode


def decodeHeader(header: type[_Header], raw: bytes | msgspec.Raw) -> _Header:
    """
    Decode a typed header from the JSON text of C{extFields}.

    @raise ProtocolError: if a field is missing or malformed; the error names it.
    """
    try:
        decoded: _Header = _decoder(header)(raw)
    except UNREADABLE:
        return headerFromFields(header, decodeExtFields(raw))
    return decoded


def headerFromFields(header: type[_Header], fields: dict[str, str]) -> _Header:
    """
    Convert C{extFields} to a typed header.

    @raise ProtocolError: if a field is missing or malformed; the error names it.
    """
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError as error:
        raise _named(header, str(error)) from None


# Match at the start of the text only, because text from the peer may follow.
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_AT = re.compile(r"(?P<reason>.*) - at `\$\.(?P<field>[^`]*)`")


def _named(header: type[Header], said: str) -> ProtocolError:
    """
    Convert an error text of msgspec, which names the field by its wire name, to a
    L{ProtocolError}.
    """
    title = header.__name__
    attributes = dict(_names(header))

    def known(wireName: str) -> str:
        attribute = attributes.get(wireName, wireName)
        return wireName if attribute == wireName else f"{wireName} ({attribute})"

    if missing := _MISSING.match(said):
        return MissingField(title, known(missing[1]))
    if at := _AT.fullmatch(said):
        return MalformedField(title, known(at["field"]), at["reason"])
    return MalformedHeader(f"{title}: {said}")


_STRINGS = msgspec.json.Decoder(dict[str, str])
_ANYTHING = msgspec.json.Decoder(Any)


def decodeExtFields(raw: bytes | msgspec.Raw) -> dict[str, str]:
    """
    Decode C{extFields} from its JSON text.  A field whose value is null is omitted,
    because Java treats it as absent.

    @raise ProtocolError: if the text is not a map of strings, numbers and booleans.
    """
    try:
        return _STRINGS.decode(raw)
    except UNREADABLE:
        pass
    try:
        value = _ANYTHING.decode(raw)
    except UNREADABLE as error:
        raise MalformedHeader(f"extFields: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedHeader(f"extFields: a map was expected, not {type(value).__name__}")
    return {name: _text(name, each) for name, each in value.items() if each is not None}


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise MalformedField("extFields", name, f"a string was expected, not {type(value).__name__}")
