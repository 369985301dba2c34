# SPDX-License-Identifier: Apache-2.0
"""
The store's settings, by the names and with the defaults of RocketMQ's
C{MessageStoreConfig}.
"""

from __future__ import annotations

import re
from enum import Enum

import attrs

__all__ = ["FlushDiskType", "StoreSettings", "delayLevels"]


class FlushDiskType(Enum):
    """
    When a message is safe enough to tell its sender.
    """

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d+)([smhd])")


def delayLevels(text: str) -> list[int]:
    """
    The delays of C{messageDelayLevel} in milliseconds; level 1 is the first.

    @raise ValueError: naming what is no delay.
    """
    levels = []
    for each in text.split():
        match = _LEVEL.fullmatch(each)
        if match is None:
            raise ValueError(f"messageDelayLevel: {each!r} is no delay such as 10s, 5m, 2h")
        levels.append(int(match[1]) * _UNITS[match[2]])
    return levels


@attrs.frozen
class StoreSettings:
    """
    Times are milliseconds and sizes bytes, as in RocketMQ.

    @ivar openFiles: how many files may be open at a time (txrocket's own).
    """

    storePathRootDir: str
    mappedFileSizeCommitLog: int = 1024 * 1024 * 1024
    mappedFileSizeConsumeQueue: int = 300_000 * 20
    maxHashSlotNum: int = 5_000_000
    maxIndexNum: int = 20_000_000
    messageIndexEnable: bool = True
    maxMessageSize: int = 4 * 1024 * 1024
    checkCRCOnRecover: bool = True
    flushDiskType: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flushIntervalCommitLog: int = 500
    flushCommitLogLeastPages: int = 4
    flushCommitLogThoroughInterval: int = 10_000
    flushIntervalConsumeQueue: int = 1000
    flushConsumeQueueLeastPages: int = 2
    flushConsumeQueueThoroughInterval: int = 60_000
    syncFlushTimeout: int = 5000
    cleanResourceInterval: int = 10_000
    fileReservedTime: int = 72
    deleteWhen: str = "04"
    diskMaxUsedSpaceRatio: int = 75
    diskSpaceCleanForciblyRatio: float = 0.85
    diskSpaceWarningLevelRatio: float = 0.90
    cleanFileForciblyEnable: bool = True
    maxTransferBytesOnMessageInMemory: int = 256 * 1024
    maxTransferCountOnMessageInMemory: int = 32
    maxTransferBytesOnMessageInDisk: int = 64 * 1024
    maxTransferCountOnMessageInDisk: int = 8
    accessMessageInMemoryMaxRatio: int = 40
    maxMsgsNumBatch: int = 64
    messageDelayLevel: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    openFiles: int = 512
