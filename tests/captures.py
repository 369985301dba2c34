# SPDX-License-Identifier: Apache-2.0
"""
The captured frames: what Apache RocketMQ 4.9.7's servers and its Java, Go, C++
and Node clients said to each other on a wire, one JSON object a line in
C{fixtures/frames.jsonl}.  Where a test needs truth, it is here.
"""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

FRAMES = Path(__file__).with_name("fixtures") / "frames.jsonl"


class Capture(NamedTuple):
    """
    One captured frame.

    @ivar requestCode: the request's code; for a response, of the request it answers.
    @ivar kind: C{request}, C{oneway} or C{response}.
    @ivar form: C{json} or C{binary}: the header's serialisation.
    @ivar sender: C{client}, C{ns}, C{broker} or C{vip}.
    @ivar pair: equal for a request and its response.
    @ivar header: the header as the capturing program decoded it.
    @ivar frame: the whole frame, length prefix included.
    """

    requestCode: int
    kind: str
    form: str
    sender: str
    receiver: str
    pair: str
    header: dict[str, Any]
    frame: bytes

    @property
    def headerBytes(self) -> bytes:
        """
        The header, as it was on the wire.
        """
        return self.frame[8 : 8 + self._headerLength]

    @property
    def body(self) -> bytes:
        """
        What follows the header.
        """
        return self.frame[8 + self._headerLength :]

    @property
    def _headerLength(self) -> int:
        return int.from_bytes(self.frame[5:8], "big")


@functools.cache
def captures() -> tuple[Capture, ...]:
    """
    All captured frames.
    """
    with FRAMES.open(encoding="utf-8") as lines:
        return tuple(_capture(json.loads(line)) for line in lines)


def _capture(row: dict[str, Any]) -> Capture:
    return Capture(
        row["requestCode"],
        row["kind"],
        row["form"],
        row["from"],
        row["to"],
        row["pair"],
        row["header"],
        base64.b64decode(row["frame"]),
    )
