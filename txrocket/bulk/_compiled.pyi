# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from mmap import mmap

from txrocket.bulk.interface import (
    AppendedRecord,
    BatchRecords,
    CollectedRecords,
    DecodedPull,
    DecodedSends,
    EncodedRecords,
    Frames,
    IndexEntries,
    QueueKey,
    QueueTail,
    ReadRecords,
    SentMessage,
)
from txrocket.protocol.frames import Run
from txrocket.protocol.record import TopicField

def encodeRecords(
    messages: list[SentMessage],
    fields: dict[str, TopicField],
    nexts: dict[QueueKey, int],
    offset: int,
    end: int,
    maxBody: int,
    timestamp: int,
    bornHosts: list[bytes],
    storeHost: bytes,
    /,
) -> EncodedRecords: ...
def batchRecords(
    data: bytes,
    topic: TopicField,
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
    /,
) -> BatchRecords: ...
def suspect(records: bytes, sizes: list[int], /) -> bool: ...
def checkRecords(data: bytes, position: int, offset: int, limit: int, /) -> int: ...
def readRecords(
    data: bytes,
    position: int,
    offset: int,
    known: Mapping[QueueKey, QueueTail],
    find: Callable[[QueueKey], QueueTail],
    awaited: Container[QueueKey] | None,
    /,
) -> ReadRecords: ...
def indexEntries(
    pairs: bytes,
    count: int,
    slots: int,
    seconds: int,
    table: bytearray,
    dirty: bytearray,
    run: int,
    /,
) -> IndexEntries: ...
def collectRecords(
    entries: bytes,
    source: mmap | bytes | int,
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
    /,
) -> CollectedRecords | None: ...
def readableRecords(data: bytes, /) -> int: ...
def syncPaths(paths: Iterable[str], /) -> int: ...
def messageIds(prefix: str, offset: int, sizes: tuple[int, ...], /) -> str: ...
def guardBus() -> None: ...
def releaseBus() -> None: ...
def isGuarded() -> bool: ...
def splitFrames(data: bytes, limit: int, headerLimit: int, /) -> tuple[list[Run], int]: ...
def decodeSends(
    calls: Sequence[Frames],
    known: dict[bytes, tuple[QueueKey, ...]],
    cluster: bytes,
    batch: bool,
    /,
) -> tuple[DecodedSends, DecodedSends]: ...
def decodePulls(data: bytes, start: int, end: int, /) -> list[DecodedPull]: ...
def encodeHeads(pieces: tuple[bytes, ...], rows: list[tuple[int | str, ...]], /) -> list[bytes]: ...
def encodeSendResponses(
    messages: list[SentMessage],
    appended: list[AppendedRecord],
    owners: list[tuple[int, int]],
    head: bytes,
    tail: bytes,
    binary: bool,
    /,
) -> list[bytes]: ...
