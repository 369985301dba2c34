# SPDX-License-Identifier: Apache-2.0
"""
Between a command's C{extFields}, a map of strings, and a typed header.

Java declares a header as a class whose fields are sent as text and read back by
reflection; a header here is a L{msgspec.Struct} whose fields carry the wire
names and types, so that a JSON header is decoded in C straight into the typed
one, without a map in between.  RocketMQ's peers disagree about the text: C++
and Node clients send some numbers and booleans bare, which fastjson accepts.
What the quick decoder refuses is therefore brought into Java's form and tried
once more, and only then is it an error, which names the field.

One reading differs from Java's on purpose.  A C++ producer marks a batch with
C{"batch":"1"}; Java takes every text but C{true} for false, and stores such a
batch as one broken message.  Here 1 and 0 mean what their sender meant.
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
    A typed header: what a request code's C{extFields} mean.  An attribute
    without a default must be there; L{None} is not sent.
    """

    def toFields(self) -> dict[str, str]:
        """
        The header as C{extFields}.
        """
        write = _writer(type(self))
        # From now on the class has a method that was made for it.
        type(self).toFields = write  # type: ignore[assignment, method-assign]
        return write(self)


_Header = TypeVar("_Header", bound=Header)

# What msgspec raises for a text: it leaves bytes that are no UTF-8 to Python's
# codec, whose error is not one of its own.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@functools.cache
def _names(header: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(header.__struct_encode_fields__, header.__struct_fields__, strict=True))


@functools.cache
def _writer(header: type[Header]) -> Callable[[Header], dict[str, str]]:
    """
    The body of L{Header.toFields} for one class, written out field by field as
    one would by hand, which takes a third of the time of a loop that asks each
    value for its type.
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
    A typed header from the JSON text of C{extFields}.

    @raise ProtocolError: naming the field that is missing or malformed.
    """
    try:
        decoded: _Header = _decoder(header)(raw)
    except UNREADABLE:
        return headerFromFields(header, decodeExtFields(raw))
    return decoded


def headerFromFields(header: type[_Header], fields: dict[str, str]) -> _Header:
    """
    A typed header from C{extFields}.

    @raise ProtocolError: naming the field that is missing or malformed.
    """
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError as error:
        raise _named(header, str(error)) from None


# At the start of the words, since a peer's own may be further on.
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_AT = re.compile(r"(?P<reason>.*) - at `\$\.(?P<field>[^`]*)`")


def _named(header: type[Header], said: str) -> ProtocolError:
    """
    msgspec's words as one of our errors: it names the field by its wire name.
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
    C{extFields} from its JSON text.  A field whose value is null is as good as
    absent to Java, and so it is left out.

    @raise ProtocolError: if it is no map of plain values.
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
