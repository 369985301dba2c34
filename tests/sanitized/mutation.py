# SPDX-License-Identifier: Apache-2.0
"""
Changes to valid arguments: the values that a damaged file, a stranger or a wrong caller gives.

Most arguments stay valid, so that a call comes far into the function before it meets the change::

    bytes       bits flipped, cut, spliced, a number of 2, 4 or 8 bytes written over them
    int         at the limits of 16, 31, 32, 63 and 64 bits
    containers  an element changed, dropped, doubled
    anything    a value of another type
"""

from __future__ import annotations

import random
from typing import Any

LIMITS = [
    each + off for each in (0, 91, 2**15, 2**16, 2**31, 2**32, 2**63, 2**64) for off in (-1, 0, 1)
]
STRANGE = [
    *(None, 1.5, True, "", "é", "\udcff", b"", b"x", bytearray(b"y"), (), [], {}, object, 2**70),
    *(memoryview(b"xyz"), ("T", 0), [1], {1: 2}, "T\0"),
]


def limit(chance: random.Random) -> int:
    """
    A number near a limit.
    """
    return chance.choice(LIMITS) * chance.choice((1, 1, 1, -1))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """
    Bytes with one change.
    """
    changed = bytearray(data)
    kind = chance.randrange(6)
    at = chance.randrange(len(changed)) if changed else 0
    if kind == 0 and changed:
        changed[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        del changed[at : at + chance.randrange(1, 40)]
    elif kind == 3:
        start = chance.randrange(len(changed)) if changed else 0
        changed[at:at] = changed[start : start + chance.randrange(1, 200)]
    elif kind == 4:
        size = chance.choice((2, 4, 8))
        changed[at : at + size] = (limit(chance) % (1 << 8 * size)).to_bytes(size, "big")
    else:
        changed[at : at + chance.randrange(1, 30)] = chance.randbytes(chance.randrange(30))
    return bytes(changed)


def _several(values: list[Any], chance: random.Random) -> list[Any]:
    if not values:
        return [chance.choice(STRANGE)]
    at = chance.randrange(len(values))
    kind = chance.randrange(6)
    if kind == 0:
        del values[at]
    elif kind == 1:
        values.insert(at, values[at])
    else:
        values[at] = mutated(values[at], chance)
    return values


def mutated(value: Any, chance: random.Random) -> Any:
    """
    A value with one change.
    """
    if chance.randrange(12) == 0:
        return chance.choice(STRANGE)
    match value:
        case bool():
            return not value
        case int():
            return limit(chance) if chance.randrange(3) else value + chance.choice((-1, 1))
        case bytes():
            return damaged(value, chance)
        case bytearray():
            return bytearray(damaged(bytes(value), chance))
        case str():
            return chance.choice(("", value * 2, value[1:], "é", "\udcff", "a\0b", "🚀" * 60))
        case list():
            return _several(list(value), chance)
        case tuple():
            return tuple(_several(list(value), chance))
        case dict():
            pairs = _several(list(value.items()), chance)
            try:
                return dict(pairs)
            except (TypeError, ValueError):
                return value
    return chance.choice(STRANGE)
