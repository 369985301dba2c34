# SPDX-License-Identifier: Apache-2.0
from typing import Any

def batchRecords(
    data: bytes,
    topic: bytes,
    properties: bytes,
    queueId: int,
    queueOffset: int,
    physicalOffset: int,
    sysFlag: int,
    bornTimestamp: int,
    bornHost: bytes,
    storeTimestamp: int,
    storeHost: bytes,
    reconsumeTimes: int = 0,
) -> tuple[bytes, list[int], list[bytes]] | None: ...
def decodeSends(
    data: bytes, start: int, limit: int, known: dict[bytes, Any], cluster: bytes
) -> tuple[int, list[Any]]: ...
def sendRecords(
    sends: list[Any],
    fields: dict[str, Any],
    nexts: dict[tuple[str, int], int],
    offset: int,
    brim: int,
    mostBody: int,
    timestamp: int,
    bornHost: bytes,
    storeHost: bytes,
) -> tuple[bytes, list[Any], dict[str, tuple[int, int]]]: ...
def sendAnswers(sends: list[Any], puts: list[Any], head: bytes, tail: bytes) -> bytes: ...
def file(puts: list[Any]) -> tuple[list[int], list[tuple[int, int]]]: ...
def queueEntries(
    puts: list[Any], hashes: list[int]
) -> dict[tuple[str, int], tuple[int, bytearray]]: ...
def indexEntries(
    entries: list[tuple[int, int]],
    count: int,
    slots: int,
    seconds: int,
    changed: dict[int, int],
    sealed: dict[int, int],
    table: bytearray,
) -> tuple[bytes, int]: ...
