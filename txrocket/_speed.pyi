# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Container, Iterable
from mmap import mmap
from typing import Any, overload

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
    told: bool = True,
) -> tuple[bytes, list[int], list[bytes]] | None: ...
def decodeSends(
    data: bytes,
    start: int,
    limit: int,
    known: dict[bytes, Any],
    cluster: bytes,
    batch: bool = False,
) -> tuple[bool, list[Any]]: ...
def decodePulls(
    data: bytes, start: int, limit: int
) -> list[tuple[int, bytes, int, int, int, int, int]]: ...
def sendRecords(
    sends: list[Any],
    fields: dict[str, Any],
    nexts: dict[tuple[str, int], int],
    offset: int,
    brim: int,
    mostBody: int,
    timestamp: int,
    bornHosts: list[bytes],
    storeHost: bytes,
) -> tuple[bytes, list[Any], dict[str, tuple[int, int]]]: ...
@overload
def sendAnswers(
    sends: list[Any], puts: list[Any], head: bytes, tail: bytes, binary: bool
) -> bytes: ...
@overload
def sendAnswers(
    sends: list[Any], puts: list[Any], head: bytes, tail: bytes, binary: bool, apart: bool
) -> list[bytes]: ...
def suspect(records: bytes, sizes: list[int]) -> bool: ...
def soundRecords(data: bytes, position: int, offset: int, limit: int) -> int: ...
def fileRecords(
    data: bytes,
    offset: int,
    known: dict[tuple[str, int], Any],
    find: Callable[[tuple[str, int]], Any],
    awaited: Container[tuple[str, int]] | None,
) -> tuple[int, int, bytes, int, list[tuple[int, tuple[str, int], int, int]]]: ...
def indexEntries(
    pairs: bytes,
    count: int,
    slots: int,
    seconds: int,
    table: bytearray,
    dirty: bytearray,
    run: int,
) -> tuple[bytes, int]: ...
def guardBus() -> None: ...
def releaseBus() -> None: ...
def isGuarded() -> bool: ...
def collect(
    entries: bytes,
    source: mmap | int,
    base: int,
    written: int,
    near: int,
    most: int,
    mostBytes: int,
    matches: Callable[[int], bool] | None,
    topic: bytes,
    queueId: int,
    queueOffset: int,
    largest: int,
    checkBelow: int,
) -> tuple[bytes, int, int] | None: ...
def readableRecords(data: bytes) -> int: ...
def syncPaths(paths: Iterable[str]) -> int: ...
def batchIds(prefix: str, offset: int, sizes: tuple[int, ...]) -> str: ...
