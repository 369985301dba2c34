# SPDX-License-Identifier: Apache-2.0
"""
One damage to one file: a bit, a sector, or a cut.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Final

import attrs

from tests.damage.template import Template, Truth

SECTOR: Final = 512
KINDS: Final = ("bit", "zeros", "garbage", "cut")

# The parts of a record that have no checksum: flag, sysFlag, time of birth and sender, time of
# storage and broker, times tried, prepared offset.  The properties, at its end, have none either.
_UNCHECKED: Final = ((16, 20), (36, 40), (40, 56), (56, 72), (72, 84))
_BODY: Final = 88


def fileKind(name: str) -> str:
    """
    What a file is: its folder, or the name of what is in none of them.
    """
    first, _, rest = name.partition("/")
    return rest if first == "config" else first


@attrs.frozen
class Fault:
    """
    @ivar position: of the byte, the sector or the cut.
    @ivar detail: which bit, or the bytes that take a sector's place.
    """

    name: str
    kind: str
    position: int
    detail: bytes = attrs.field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"{self.name} {self.kind} at {self.position}"

    def apply(self, data: bytes) -> bytes:
        """
        The file as it is then.
        """
        at = self.position
        if self.kind == "cut":
            return data[:at]
        if self.kind == "bit":
            return data[:at] + bytes([data[at] ^ self.detail[0]]) + data[at + 1 :]
        changed = self.detail[: len(data) - at]
        return data[:at] + changed + data[at + len(changed) :]


def choose(template: Template, chance: random.Random) -> Fault:
    """
    A damage to a file; each kind of file comes as often, and what was written most of all.
    """
    kinds: dict[str, list[str]] = {}
    for name in sorted(template.files):
        kinds.setdefault(fileKind(name), []).append(name)
    # The log has most to lose.
    names = kinds[chance.choice([*kinds, "commitlog", "commitlog", "consumequeue", "index"])]
    name = chance.choice(names)
    data = template.files[name]
    kind = chance.choice(KINDS)
    if not data:
        return Fault(name, "cut", 0)
    written = len(data.rstrip(b"\0")) or 1
    limit = written if chance.random() < 0.9 else len(data)
    if kind == "bit":
        return Fault(name, kind, chance.randrange(limit), bytes([1 << chance.randrange(8)]))
    if kind == "cut":
        return Fault(name, kind, chance.randrange(limit))
    at = chance.randrange(limit) // SECTOR * SECTOR
    return Fault(name, kind, at, bytes(SECTOR) if kind == "zeros" else chance.randbytes(SECTOR))


class Impact:
    """
    What a damage does to the records of the log.

    @ivar touched: the records that are not what they were.
    """

    def __init__(self, template: Template, fault: Fault) -> None:
        self._template = template
        self.touched: list[Truth] = []
        self._base = 0
        if fault.name.startswith("commitlog/"):
            self._base = int(os.path.basename(fault.name))
            self._before = template.files[fault.name]
            self._after = fault.apply(self._before)
            self.touched = [each for each in template.truths if any(self._differences(each))]

    def _differences(self, truth: Truth) -> Iterator[int]:
        """
        The places in a record that differ, counted from 1.
        """
        if truth.offset // len(self._before) * len(self._before) != self._base:
            return
        start = truth.offset - self._base
        after = self._after[start : start + len(truth.data)]
        for at, byte in enumerate(truth.data):
            if at >= len(after) or after[at] != byte:
                yield at + 1

    @property
    def isTail(self) -> bool:
        """
        Whether it looks as if the broker had ended while it wrote: nothing sound lies behind
        it, and no checkpoint knows better.
        """
        if self._template.clean or not self.touched:
            return False
        first = self.touched[0].offset
        behind = [each for each in self._template.truths if each.offset > first]
        return first >= self._template.safe and all(each in self.touched for each in behind)

    def onlyUnchecked(self, truth: Truth) -> bool:
        """
        Whether a record differs only where the format has no checksum.
        """
        properties = len(truth.data) - len(truth.message.propertiesData)
        return all(
            at - 1 >= properties or any(a <= at - 1 < b for a, b in _UNCHECKED)
            for at in self._differences(truth)
        )
