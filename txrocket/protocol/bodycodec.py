# SPDX-License-Identifier: Apache-2.0
"""
Between the bytes of a body and its value::

    encodeBody(value)          -> bytes, as fastjson writes them
    decodeBody(Type, bytes)    -> value, or MalformedBody

Decoding is strict about types and forgives what fastjson forgives: numbers and
booleans in strings, members that are null, missing or unknown, and enum members
by ordinal (C++, Go), in another case (Go) or unknown (newer peers: None).

Most bodies are plain JSON and are decoded in C in one step.  What that refuses
goes the long way once more, which is many times slower and knows all oddities::

    bytes --> msgspec ----------------------------------------> value
                 | refused, or has references
                 +--> javajson.parse --> tame --> msgspec.convert -+
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from txrocket.errors import MalformedBody
from txrocket.model import MessageQueue
from txrocket.protocol import javajson, properties
from txrocket.protocol.properties import Properties

__all__ = ["decodeBody", "encodeBody"]

_Body = TypeVar("_Body")
_Tame = Callable[[Any], Any]
_ABSENT = object()


def encodeBody(body: object, standard: bool = False) -> bytes:
    """
    The bytes of a body.

    @param body: a value of L{txrocket.protocol.bodies} or of L{txrocket.model}.
    @param standard: for GET_ROUTEINFO_BY_TOPIC only: the request's version is
        V4_9_4 or later, or it says C{acceptStandardJsonOnly}.
    """
    if isinstance(body, Properties):
        return properties.write(body)
    return javajson.write(body, standard)


def decodeBody(bodyType: type[_Body], data: bytes) -> _Body:
    """
    The body that some bytes are.

    @param bodyType: a class of L{txrocket.protocol.bodies} or of L{txrocket.model}.
    @raise MalformedBody: the bytes are no such body; the error names the body
        and the member.
    """
    if bodyType is Properties:
        return properties.parse(data)  # type: ignore[return-value]
    decoder, tame = _plan(cast(Hashable, bodyType))
    if javajson.REFERENCE not in data:
        try:
            body: _Body = decoder.decode(data)
            return body
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # standard JSON with no oddity did not do: the long way decides
    name = getattr(bodyType, "__name__", str(bodyType))
    try:
        value = javajson.parse(data, _queue)
        return msgspec.convert(tame(value), bodyType, strict=False)
    except (MalformedBody, msgspec.ValidationError) as error:
        raise MalformedBody(f"{name}: {error}") from None


def _queue(members: dict[Any, Any]) -> MessageQueue:
    # The only object that is a key anywhere in RocketMQ 4.9.7.
    return msgspec.convert(members, MessageQueue, strict=False)


@functools.cache
def _plan(bodyType: Any) -> tuple[msgspec.json.Decoder[Any], _Tame]:
    return msgspec.json.Decoder(bodyType, strict=False), _tamer(inspect.type_info(bodyType))


def _tamer(kind: inspect.Type) -> _Tame:
    """
    What rids a value of the oddities that fastjson forgives, for one type.
    """
    if isinstance(kind, inspect.StructType):
        return functools.partial(
            _tameStruct, {each.encode_name: _tamer(each.type) for each in kind.fields}
        )
    if isinstance(kind, inspect.DictType):
        return functools.partial(_tameMap, _tamer(kind.value_type))
    if isinstance(kind, (inspect.VarTupleType, inspect.FrozenSetType)):
        return functools.partial(_tameArray, _tamer(kind.item_type))
    if isinstance(kind, inspect.EnumType):
        return functools.partial(_tameEnum, list(kind.cls))
    if isinstance(kind, inspect.UnionType):
        # Always "... | None", and None is dealt with around it.
        (member,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
        return _tamer(member)
    if isinstance(kind, inspect.StrType):
        return _tameString
    return _tameNumber


def _tameStruct(tamers: dict[str, _Tame], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = {
        name: tamers[name](member)
        for name, member in value.items()
        if member is not None and name in tamers
    }
    return {name: member for name, member in members.items() if member is not _ABSENT}


def _tameMap(tame: _Tame, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: tame(item) for key, item in value.items() if item is not None}


def _tameArray(tame: _Tame, value: Any) -> Any:
    return [tame(item) for item in value] if isinstance(value, list) else value


def _tameEnum(members: list[enum.Enum], value: Any) -> Any:
    if type(value) is int and 0 <= value < len(members):
        return members[value].value
    if isinstance(value, str):
        name = value.upper()
        return name if any(name == each.name for each in members) else _ABSENT
    return value


def _tameString(value: Any) -> Any:
    # fastjson takes a scalar for text; java.util.Properties may hold such.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _tameNumber(value: Any) -> Any:
    return _ABSENT if value in ("", "null") else value
