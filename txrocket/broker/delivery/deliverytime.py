# SPDX-License-Identifier: Apache-2.0
"""
The time at which a message asks to be delivered: by properties of RocketMQ 5.x, and
one of ali-ons::

    TIMER_DELAY_SEC, TIMER_DELAY_MS            counted from now
    TIMER_DELIVER_MS, __STARTDELIVERTIME       since 1970, in milliseconds

The first of them that a message has counts, as in C{HookUtils} of 5.x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from txrocket.errors import MessageIllegal
from txrocket.message import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_OUT_MS,
    TIMER_PROPERTIES,
)

__all__ = ["RequestedTime", "askedTime", "withTime", "withoutTimes"]

# The relative ones, and their units in milliseconds.
_RELATIVE: Final = {PROPERTY_TIMER_DELAY_SEC: 1000, PROPERTY_TIMER_DELAY_MS: 1}

# At most this many digits, so that a time fits 63 bits.
_DIGITS: Final = 15


class RequestedTime(NamedTuple):
    """
    @ivar name: the property.
    @ivar when: the time, in milliseconds.
    """

    name: str
    when: int


def askedTime(properties: Mapping[str, str], seconds: float) -> RequestedTime | None:
    """
    The time that a message asks for; L{None} if it asks for none.

    @param seconds: the time now.
    @raise MessageIllegal: if it is not a number.
    """
    for name in TIMER_PROPERTIES:
        text = properties.get(name)
        if text is not None:
            break
    else:
        return None
    # As Java's parseLong: int() accepts more.
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS:
        raise MessageIllegal(f"{name} {text[:20]!r} is no number, or too large a one")
    if name not in _RELATIVE:
        return RequestedTime(name, int(text))
    # Rounded up, because the message must not come early.
    return RequestedTime(name, math.ceil(seconds * 1000) + int(text) * _RELATIVE[name])


def withTime(properties: Mapping[str, str], asked: RequestedTime) -> dict[str, str]:
    """
    Properties with the requested time, and no other.

    A relative time is removed, because it would count again if the message is sent back.
    """
    result = withoutTimes(properties)
    if asked.name not in _RELATIVE:
        result[asked.name] = properties[asked.name]
    result[PROPERTY_TIMER_OUT_MS] = str(asked.when)
    return result


def withoutTimes(properties: Mapping[str, str]) -> dict[str, str]:
    """
    Properties without a requested time.
    """
    return {name: value for name, value in properties.items() if name not in TIMER_PROPERTIES}
