# SPDX-License-Identifier: Apache-2.0
"""
Encode and decode bodies::

    encodeBody(value)          -> bytes, as fastjson writes them
    decodeBody(Type, bytes)    -> value, or MalformedBody

The decoder is strict about types, with fastjson's exceptions: it accepts numbers and
booleans in strings, members that are null, missing or unknown, and enum members by
ordinal (C++, Go), in another case (Go) or unknown (newer peers, read as None).

Most bodies are standard JSON, which msgspec decodes in one step.  If msgspec refuses
the bytes, they are parsed in fastjson's dialect, which is many times slower::

    bytes --> msgspec -----------------------------------------------> value
                 | refused, or has references
                 +--> fastjson.parse --> normalize --> msgspec.convert --+

A large body would occupy a server's reactor for too long.  Therefore a server calls
L{encodeGradually} and L{decodeGradually}, which do the same and yield after a
millisecond or less.  One call of msgspec is not divided, so servers limit the size of
bodies.
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
from txrocket.protocol import configtext, fastjson
from txrocket.protocol.configtext import ConfigText
from txrocket.protocol.fastjson import Gradual, finish

__all__ = ["decodeBody", "decodeGradually", "encodeBody", "encodeGradually"]

_Body = TypeVar("_Body")
_Normalize = Callable[[Any], Any]
_ABSENT = object()

# Elements of a container per step.
_STEP: Final = 64

# From this size on, in bytes, one call of msgspec takes a step of its own.
_LARGE: Final = 32 * 1024

# Elements of a set that are sorted in one step.
_SORTED: Final = 4096

# The maximum size of a body that is decoded in steps and is not standard JSON.  Clients
# send only small bodies in fastjson's dialect.
_ODD_LIMIT: Final = 512 * 1024


def encodeBody(body: object, standard: bool = False) -> bytes:
    """
    Encode a body.

    @param body: a value of L{txrocket.protocol.bodies} or of L{txrocket.model}.
    @param standard: write standard JSON.  Only for GET_ROUTEINFO_BY_TOPIC, if the
        request's version is V4_9_4 or later or its header says
        C{acceptStandardJsonOnly}.
    """
    if isinstance(body, ConfigText):
        return configtext.write(body)
    return fastjson.write(body, standard)


def decodeBody(bodyType: type[_Body], data: bytes) -> _Body:
    """
    Decode a body.

    @param bodyType: a class of L{txrocket.protocol.bodies} or of L{txrocket.model}.
    @raise MalformedBody: if the bytes cannot be decoded as such a body; the error names
        the body and the member.
    """
    return finish(decodeGradually(bodyType, data, len(data)))


def decodeGradually(
    bodyType: type[_Body], data: bytes, oddLimit: int = _ODD_LIMIT
) -> Gradual[_Body]:
    """
    Do the same as L{decodeBody} in steps, apart from calls of msgspec.

    @param oddLimit: the maximum size of a body that is not standard JSON.
    """
    if bodyType is ConfigText:
        return configtext.parse(data)  # type: ignore[return-value]
    decoder, normalize = _plan(cast(Hashable, bodyType))
    if fastjson.REFERENCE not in data:
        try:
            body: _Body = decoder.decode(data)
            return body
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # perhaps fastjson's dialect
    name = getattr(bodyType, "__name__", str(bodyType))
    if len(data) > oddLimit:
        raise MalformedBody(
            f"{name}: {len(data)} bytes are not standard JSON, or not such a body;"
            f" the limit for other JSON is {oddLimit} bytes"
        )
    isLarge = len(data) > _LARGE
    if isLarge:
        yield
    try:
        value = yield from fastjson.parsing(data, _queue)
        if isLarge:
            yield
        value = yield from _normalized(normalize, value)
        if isLarge:
            yield
        return msgspec.convert(value, bodyType, strict=False)
    except (MalformedBody, msgspec.ValidationError) as error:
        raise MalformedBody(f"{name}: {error}") from None


def encodeGradually(body: object, standard: bool = False) -> Gradual[bytes]:
    """
    Do the same as L{encodeBody} in steps.  Maps that are members of the body may change
    between steps: they are written as they were at the first step.
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
    Append the text of a value, in pieces.
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
        pieces.append(fastjson.write(value, standard))
        return
    lead = opening
    for count, (label, member) in enumerate(labelled, 1):
        pieces.append(lead + label)
        lead = b","
        if _isLarge(member):
            yield from _write(member, standard, pieces)
        else:
            pieces.append(fastjson.write(member, standard))
        if count % _STEP == 0:
            yield
    pieces.append(closing if lead == b"," else opening + closing)


def _isLarge(value: Any) -> bool:
    """
    Whether a value is too large to be written in one step.
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
    # Copy the items, because the map may change between steps.
    items = list(value.items())
    if standard:
        items.sort(key=lambda item: item[0])
    for key, member in items:
        yield fastjson.writeKey(key, standard) + b":", member


def _writeSet(
    value: set[Any] | frozenset[Any], standard: bool, pieces: list[bytes]
) -> Gradual[None]:
    sorts: list[list[bytes]] = [[]]
    for count, each in enumerate(list(value), 1):
        sorts[-1].append(fastjson.write(each, standard))
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
    # RocketMQ 4.9.7 uses no other object as a map key.
    return msgspec.convert(members, MessageQueue, strict=False)


@functools.cache
def _plan(bodyType: Any) -> tuple[msgspec.json.Decoder[Any], _Normalize]:
    return msgspec.json.Decoder(bodyType, strict=False), _normalizer(inspect.type_info(bodyType))


def _normalizer(kind: inspect.Type) -> _Normalize:
    """
    Create the function that normalizes a parsed value of one type: it converts the
    deviations that fastjson accepts.
    """
    if isinstance(kind, inspect.StructType):
        return functools.partial(
            _normalizeStruct, {each.encode_name: _normalizer(each.type) for each in kind.fields}
        )
    if isinstance(kind, inspect.DictType):
        return functools.partial(_normalizeMap, _normalizer(kind.value_type))
    if isinstance(kind, (inspect.VarTupleType, inspect.FrozenSetType)):
        return functools.partial(_normalizeArray, _normalizer(kind.item_type))
    if isinstance(kind, inspect.EnumType):
        return functools.partial(_normalizeEnum, list(kind.cls))
    if isinstance(kind, inspect.UnionType):
        # Always "... | None", and the container of the value omits None.
        (member,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
        return _normalizer(member)
    if isinstance(kind, inspect.StrType):
        return _normalizeString
    return _normalizeNumber


def _normalized(normalize: _Normalize, value: Any) -> Gradual[Any]:
    """
    Normalize a value, in steps if it is large.
    """
    function = getattr(normalize, "func", None)
    if function is _normalizeStruct and isinstance(value, dict):
        normalizers = normalize.args[0]  # type: ignore[attr-defined]
        struct = {}
        for name, each in value.items():
            if each is not None and name in normalizers:
                member = yield from _normalized(normalizers[name], each)
                if member is not _ABSENT:
                    struct[name] = member
        return struct
    if function is _normalizeArray and isinstance(value, list):
        items = []
        for count, each in enumerate(value, 1):
            items.append((yield from _normalized(normalize.args[0], each)))  # type: ignore[attr-defined]
            if count % _STEP == 0:
                yield
        return items
    return normalize(value)


def _normalizeStruct(normalizers: dict[str, _Normalize], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = {
        name: normalizers[name](member)
        for name, member in value.items()
        if member is not None and name in normalizers
    }
    return {name: member for name, member in members.items() if member is not _ABSENT}


def _normalizeMap(normalize: _Normalize, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: normalize(item) for key, item in value.items() if item is not None}


def _normalizeArray(normalize: _Normalize, value: Any) -> Any:
    return [normalize(item) for item in value] if isinstance(value, list) else value


def _normalizeEnum(members: list[enum.Enum], value: Any) -> Any:
    if type(value) is int and 0 <= value < len(members):
        return members[value].value
    if isinstance(value, str):
        name = value.upper()
        return name if any(name == each.name for each in members) else _ABSENT
    return value


def _normalizeString(value: Any) -> Any:
    # fastjson accepts numbers and booleans as text; java.util.Properties may hold them.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _normalizeNumber(value: Any) -> Any:
    return _ABSENT if value in ("", "null") else value
