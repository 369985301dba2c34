# SPDX-License-Identifier: Apache-2.0
"""
Logs in a broker's format, for tests that read them without a broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from txrocket.protocol.record import (
    encodeBlank,
    encodeHost,
    encodeProperties,
    encodeRecord,
    encodeTopic,
)

__all__ = ["record", "writeLog"]

HOST = encodeHost("192.0.2.1", 10911)


def record(
    offset: int,
    body: bytes = b"body",
    *,
    topic: str = "T",
    number: int = 0,
    stored: int = 0,
    sysFlag: int = 0,
    queueId: int = 0,
    host: bytes = HOST,
    **properties: str,
) -> bytes:
    """
    A record.

    @param offset: its place in the log.
    @param number: its number in its queue.
    """
    return encodeRecord(
        *(encodeTopic(topic), body, encodeProperties(properties), queueId, 0, number, offset),
        *(sysFlag, 1_700_000_000_000, host, stored, host),
    )


def writeLog(
    folder: str, messages: Iterable[dict[str, Any]], size: int, base: int = 0
) -> list[int]:
    """
    Write a log.

    @param messages: arguments of L{record}.
    @param size: the size of the files.
    @param base: the offset of the first file.
    @return: the offsets of all records.
    """
    where = os.path.join(folder, "commitlog")
    os.makedirs(where, exist_ok=True)
    files = [bytearray()]
    offsets = []
    for number, message in enumerate(messages):
        at = base + (len(files) - 1) * size + len(files[-1])
        data = record(at, **{"number": number, **message})
        # As in Java, a record leaves room for a blank behind it.
        if len(files[-1]) + len(data) + 8 > size:
            files[-1] += encodeBlank(size - len(files[-1]))
            at = base + len(files) * size
            data = record(at, **{"number": number, **message})
            files.append(bytearray())
        files[-1] += data
        offsets.append(at)
    for number, written in enumerate(files):
        with open(os.path.join(where, f"{base + number * size:020d}"), "wb") as file:
            file.write(written)
            file.truncate(size)
    return offsets
