# SPDX-License-Identifier: Apache-2.0
"""
JSON in the dialect of fastjson 1.2.69, which RocketMQ 4.9.7 writes into bodies and
files.  It differs from standard JSON::

    {0:"127.0.0.1:10911"}                                 integers as keys
    {{"brokerName":"a","queueId":0,"topic":"t"}:1}        objects as keys
    {"a":{"x":1},"b":{"$ref":"$.a"}}                      references to other values

L{parse} accepts all of that.  As fastjson does, it also accepts names in single quotes
or without quotes, single-quoted strings, bare control characters in strings (the Go
client sends stack traces so), trailing commas and a byte order mark.  orjson parses
standard JSON, which nearly all texts are.

L{write} returns the bytes that fastjson writes: members sorted by name, members that
are None omitted, integers and objects as keys, doubles as Java prints them.  With
C{standard=True} it writes as the name server does for clients that announce 4.9.4 or
newer (C{BrowserCompatible} with C{MapSortField}): all keys are strings, maps are sorted
and the text is ASCII.  It never writes C{$ref}, because no body needs it.

The parser of the dialect is slow.  Therefore L{parsing} is a generator, so that a
server can serve other requests between its steps.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from txrocket.errors import MalformedBody
from txrocket.protocol.fastjson.gradual import Gradual, finish
from txrocket.protocol.fastjson.reader import MAX_DEPTH, FastjsonReader, ObjectKey
from txrocket.protocol.fastjson.writer import write, writeKey

__all__ = [
    "MAX_DEPTH",
    "REFERENCE",
    "Gradual",
    "ObjectKey",
    "finish",
    "parse",
    "parsing",
    "write",
    "writeKey",
]

#: The bytes that every body with a reference contains.
REFERENCE = b"$ref"

# orjson converts an integer beyond 64 bits to a float, so such text is not given to it.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def parse(data: bytes, objectKey: ObjectKey) -> Any:
    """
    Parse one value at once; see L{parsing}.
    """
    return finish(parsing(data, objectKey))


def parsing(data: bytes, objectKey: ObjectKey) -> Gradual[Any]:
    """
    Parse one value in steps.

    @param data: UTF-8 text.
    @param objectKey: called with each object that is a map key; returns the key for the
        dict.
    @return: dicts, lists, strings, numbers, booleans and None.
    @raise MalformedBody: if the text cannot be parsed, is nested deeper than
        L{MAX_DEPTH}, or has an integer beyond 64 bits.
    """
    if REFERENCE not in data and _LONG_NUMBER.search(data) is None:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # perhaps fastjson's dialect
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}") from None
    return (yield from FastjsonReader(text, objectKey).read())
