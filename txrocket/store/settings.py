# SPDX-License-Identifier: Apache-2.0
"""
The store's settings, by the names and with the defaults of RocketMQ's
C{MessageStoreConfig}.
"""

from __future__ import annotations

import os
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


_LIVE = {"live": True}

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
    Times are milliseconds and sizes bytes, as in RocketMQ.  What is marked
    C{live} may be changed while the store is open.

    @ivar storePathCommitLog: the folder of the log; C{commitlog} in
        C{storePathRootDir} if not set.
    @ivar openFiles: how many files may be open at a time (txrocket's own).
    """

    storePathRootDir: str = attrs.field(factory=lambda: os.path.expanduser("~/store"))
    storePathCommitLog: str | None = None
    mappedFileSizeCommitLog: int = 1024 * 1024 * 1024
    mappedFileSizeConsumeQueue: int = 300_000 * 20
    maxHashSlotNum: int = 5_000_000
    maxIndexNum: int = 20_000_000
    messageIndexEnable: bool = True
    maxMessageSize: int = 4 * 1024 * 1024
    checkCRCOnRecover: bool = True
    flushDiskType: FlushDiskType = attrs.field(default=FlushDiskType.ASYNC_FLUSH, metadata=_LIVE)
    flushIntervalCommitLog: int = 500
    flushCommitLogLeastPages: int = 4
    flushCommitLogThoroughInterval: int = 10_000
    flushIntervalConsumeQueue: int = 1000
    flushConsumeQueueLeastPages: int = 2
    flushConsumeQueueThoroughInterval: int = 60_000
    syncFlushTimeout: int = 5000
    cleanResourceInterval: int = 10_000
    fileReservedTime: int = attrs.field(default=72, metadata=_LIVE)
    deleteWhen: str = attrs.field(default="04", metadata=_LIVE)
    diskMaxUsedSpaceRatio: int = attrs.field(default=75, metadata=_LIVE)
    diskSpaceCleanForciblyRatio: float = 0.85
    diskSpaceWarningLevelRatio: float = 0.90
    cleanFileForciblyEnable: bool = attrs.field(default=True, metadata=_LIVE)
    maxTransferBytesOnMessageInMemory: int = attrs.field(default=256 * 1024, metadata=_LIVE)
    maxTransferCountOnMessageInMemory: int = attrs.field(default=32, metadata=_LIVE)
    maxTransferBytesOnMessageInDisk: int = attrs.field(default=64 * 1024, metadata=_LIVE)
    maxTransferCountOnMessageInDisk: int = attrs.field(default=8, metadata=_LIVE)
    accessMessageInMemoryMaxRatio: int = 40
    maxMsgsNumBatch: int = 64
    messageDelayLevel: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    openFiles: int = 512

    @property
    def commitLogFolder(self) -> str:
        """
        Where the log is.
        """
        return self.storePathCommitLog or os.path.join(self.storePathRootDir, "commitlog")
