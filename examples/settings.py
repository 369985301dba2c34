# SPDX-License-Identifier: Apache-2.0
"""
Settings of a program's own part: declared, read, changed and followed.
"""

from enum import Enum

import attrs

from txrocket.config import Configuration, atLeast


class Colour(Enum):
    """
    One of a few words.
    """

    RED = "RED"
    GREEN = "GREEN"


@attrs.frozen
class LampSettings:
    """
    A section.
    """

    lampName: str
    lampColour: Colour = attrs.field(default=Colour.GREEN, metadata={"live": True})
    blinkMillis: int = attrs.field(
        default=500, validator=atLeast(1), metadata={"key": "lamp.blink.millis", "live": True}
    )


def readLamp(path: str | None, given: dict[str, str]) -> Configuration:
    """
    The settings of a file and of options; raises ConfigError if one is not valid.
    """
    return Configuration.read([LampSettings], (), path, given)


def paint(configuration: Configuration, colour: str, now: int) -> list[LampSettings]:
    """
    Change a setting, and return the values that its followers get.
    """
    told: list[LampSettings] = []
    configuration.follow(LampSettings, told.append)
    configuration.update({"lampColour": colour}, now)
    return told
