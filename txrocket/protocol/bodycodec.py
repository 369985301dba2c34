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

A large body takes longer than a server may keep others waiting.  For its requests and
answers there are L{encodeGradually} and L{decodeGradually}, which give the same and
yield after each millisecond or less; what is decoded in C is not divided, so servers
bound the size of bodies.
"""

from __future__ import annotations

import enum
import functools
import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from txrocket.errors import MalformedBody
from txrocket.model import MessageQueue
from txrocket.protocol import javajson, properties
from txrocket.protocol.javajson import Gradual, finish
from txrocket.protocol.properties import Properties

__all__ = ["decodeBody", "decodeGradually", "encodeBody", "encodeGradually"]

_Body = TypeVar("_Body")
_Tame = Callable[[Any], Any]
_ABSENT = object()

# Elements of a container that are dealt with at once.
_STEP: Final = 64

# Bytes from which on it takes C a millisecond and more.
_LARGE: Final = 32 * 1024

# Elements of a set that are sorted at once.
_SORTED: Final = 4096

# How many bytes a body may have that is read bit by bit and is not standard JSON.  Those
# that clients send so are small; C alone takes 20 ms for so many.
_ODD_LIMIT: Final = 512 * 1024


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
    return finish(decodeGradually(bodyType, data, len(data)))


def decodeGradually(
    bodyType: type[_Body], data: bytes, oddLimit: int = _ODD_LIMIT
) -> Gradual[_Body]:
    """
    The same as L{decodeBody}, bit by bit where it is not C that does it.

    @param oddLimit: how many bytes a body may have that is not standard JSON.
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
    if len(data) > oddLimit:
        raise MalformedBody(
            f"{name}: {len(data)} bytes that are not standard JSON, or not such a body;"
            f" the limit for what is not standard is {oddLimit}"
        )
    isLarge = len(data) > _LARGE
    if isLarge:
        yield
    try:
        value = yield from javajson.parsing(data, _queue)
        if isLarge:
            yield
        value = yield from _tamed(tame, value)
        if isLarge:
            yield
        return msgspec.convert(value, bodyType, strict=False)
    except (MalformedBody, msgspec.ValidationError) as error:
        raise MalformedBody(f"{name}: {error}") from None


def encodeGradually(body: object, standard: bool = False) -> Gradual[bytes]:
    """
    The same as L{encodeBody}, bit by bit.  The maps that are members of the body may
    change meanwhile: they are written as they were at the beginning.
    """
    if isinstance(body, msgspec.Struct):
        members = {each: getattr(body, each) for each in body.__struct_fields__}
        changing = {name: dict(each) for name, each in members.items() if isinstance(each, dict)}
        body = msgspec.structs.replace(body, **changing)
    pieces: list[bytes] = []
    yield from _write(body, standard, pieces)
    return b"".join(pieces)


def _write(value: Any, standard: bool, pieces: list[bytes]) -> Gradual[None]:
    """
    Add the pieces of which a value's text is made.
    """
    if isinstance(value, msgspec.Struct):
        opening, closing, labelled = b"{", b"}", _members(value)
    elif isinstance(value, dict) and value:
        opening, closing, labelled = b"{", b"}", _items(value, standard)
    elif isinstance(value, (list, tuple)) and value:
        opening, closing, labelled = b"[", b"]", ((b"", each) for each in value)
    elif isinstance(value, (set, frozenset)) and len(value) > _STEP:
        yield from _writeSet(value, standard, pieces)
        return
    else:
        pieces.append(javajson.write(value, standard))
        return
    lead = opening
    for count, (label, member) in enumerate(labelled, 1):
        pieces.append(lead + label)
        lead = b","
        if _isLarge(member):
            yield from _write(member, standard, pieces)
        else:
            pieces.append(javajson.write(member, standard))
        if count % _STEP == 0:
            yield
    pieces.append(closing if lead == b"," else opening + closing)


def _isLarge(value: Any) -> bool:
    """
    Whether writing a value at once may take long.
    """
    if isinstance(value, msgspec.Struct):
        return any(map(_isLarge, (getattr(value, each) for each in value.__struct_fields__)))
    if isinstance(value, (list, tuple, set, frozenset)):
        return len(value) > _STEP or any(map(_isLarge, value))
    if isinstance(value, dict):
        return len(value) > _STEP or any(map(_isLarge, value.values()))
    return False


def _members(value: msgspec.Struct) -> Iterable[tuple[bytes, Any]]:
    for name in sorted(value.__struct_fields__):
        member = getattr(value, name)
        if member is not None:
            yield f'"{name}":'.encode(), member


def _items(value: dict[Any, Any], standard: bool) -> Iterable[tuple[bytes, Any]]:
    # The map may change while it is written.
    items = list(value.items())
    if standard:
        items.sort(key=lambda item: item[0])
    for key, member in items:
        yield javajson.writeKey(key, standard) + b":", member


def _writeSet(
    value: set[Any] | frozenset[Any], standard: bool, pieces: list[bytes]
) -> Gradual[None]:
    sorts: list[list[bytes]] = [[]]
    for count, each in enumerate(list(value), 1):
        sorts[-1].append(javajson.write(each, standard))
        if len(sorts[-1]) == _SORTED:
            sorts[-1].sort()
            sorts.append([])
        if count % _STEP == 0:
            yield
    sorts[-1].sort()
    lead = b"["
    for count, text in enumerate(heapq.merge(*sorts), 1):
        pieces.append(lead + text)
        lead = b","
        if count % (8 * _STEP) == 0:
            yield
    pieces.append(b"]")


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


def _tamed(tame: _Tame, value: Any) -> Gradual[Any]:
    """
    What a tamer makes of a value, bit by bit where that is large.
    """
    function = getattr(tame, "func", None)
    if function is _tameStruct and isinstance(value, dict):
        tamers = tame.args[0]  # type: ignore[attr-defined]
        struct = {}
        for name, each in value.items():
            if each is not None and name in tamers:
                member = yield from _tamed(tamers[name], each)
                if member is not _ABSENT:
                    struct[name] = member
        return struct
    if function is _tameArray and isinstance(value, list):
        items = []
        for count, each in enumerate(value, 1):
            items.append((yield from _tamed(tame.args[0], each)))  # type: ignore[attr-defined]
            if count % _STEP == 0:
                yield
        return items
    return tame(value)


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
