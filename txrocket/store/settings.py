# SPDX-License-Identifier: Apache-2.0
"""
The store's settings, by the names and with the defaults of RocketMQ's
C{MessageStoreConfig}.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import Any

import attrs

from txrocket.config import atLeast, between

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

    @raise ValueError: with the text that is no delay.
    """
    levels = []
    for each in text.split():
        match = _LEVEL.fullmatch(each)
        if match is None:
            raise ValueError(f"messageDelayLevel: {each!r} is no delay such as 10s, 5m, 2h")
        levels.append(int(match[1]) * _UNITS[match[2]])
    return levels


# A file of Java's is one mapping, which an int counts.
_fileSize = between(256, 2**31 - 1)


def _wholeEntries(size: int) -> int:
    # As Java does: entries have 20 bytes, and none lies in two files.
    return -(-size // 20) * 20


def _oneFolder(section: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and "," in value:
        raise ValueError("a log in several folders is not supported")


def _hours(section: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not all(each.strip().isdecimal() and int(each) < 24 for each in value.split(";")):
        raise ValueError("hours of the day such as 04 or 04;16 were expected")


def _levels(section: object, attribute: attrs.Attribute[Any], value: str) -> None:
    delayLevels(value)


@attrs.frozen
class StoreSettings:
    """
    Times are milliseconds and sizes bytes, as in RocketMQ.  Settings
    that are marked C{live} may be changed while the store is open.

    @ivar storePathCommitLog: the folder of the log; C{commitlog} in
        C{storePathRootDir} if not set.
    @ivar openFiles: how many files may be open at a time (txrocket's own).
    """

    storePathRootDir: str = attrs.field(factory=lambda: os.path.expanduser("~/store"))
    storePathCommitLog: str | None = attrs.field(default=None, validator=_oneFolder)
    mappedFileSizeCommitLog: int = attrs.field(default=1024 * 1024 * 1024, validator=_fileSize)
    mappedFileSizeConsumeQueue: int = attrs.field(
        default=300_000 * 20, converter=_wholeEntries, validator=atLeast(20)
    )
    maxHashSlotNum: int = attrs.field(default=5_000_000, validator=atLeast(1))
    maxIndexNum: int = attrs.field(default=20_000_000, validator=atLeast(1))
    messageIndexEnable: bool = True
    maxMessageSize: int = attrs.field(default=4 * 1024 * 1024, validator=atLeast(1))
    checkCRCOnRecover: bool = True
    flushDiskType: FlushDiskType = attrs.field(default=FlushDiskType.ASYNC_FLUSH, metadata=_LIVE)
    flushIntervalCommitLog: int = attrs.field(default=500, validator=atLeast(1))
    flushCommitLogLeastPages: int = attrs.field(default=4, validator=atLeast(0))
    flushCommitLogThoroughInterval: int = attrs.field(default=10_000, validator=atLeast(0))
    flushIntervalConsumeQueue: int = attrs.field(default=1000, validator=atLeast(1))
    flushConsumeQueueLeastPages: int = attrs.field(default=2, validator=atLeast(0))
    flushConsumeQueueThoroughInterval: int = attrs.field(default=60_000, validator=atLeast(0))
    syncFlushTimeout: int = attrs.field(default=5000, validator=atLeast(1))
    cleanResourceInterval: int = attrs.field(default=10_000, validator=atLeast(1))
    fileReservedTime: int = attrs.field(default=72, validator=atLeast(0), metadata=_LIVE)
    deleteWhen: str = attrs.field(default="04", validator=_hours, metadata=_LIVE)
    diskMaxUsedSpaceRatio: int = attrs.field(default=75, validator=between(0, 100), metadata=_LIVE)
    diskSpaceCleanForciblyRatio: float = attrs.field(
        default=0.85,
        validator=between(0, 1),
        metadata={"key": "rocketmq.broker.diskSpaceCleanForciblyRatio"},
    )
    diskSpaceWarningLevelRatio: float = attrs.field(
        default=0.90,
        validator=between(0, 1),
        metadata={"key": "rocketmq.broker.diskSpaceWarningLevelRatio"},
    )
    cleanFileForciblyEnable: bool = attrs.field(default=True, metadata=_LIVE)
    maxTransferBytesOnMessageInMemory: int = attrs.field(
        default=256 * 1024, validator=atLeast(1), metadata=_LIVE
    )
    maxTransferCountOnMessageInMemory: int = attrs.field(
        default=32, validator=atLeast(1), metadata=_LIVE
    )
    maxTransferBytesOnMessageInDisk: int = attrs.field(
        default=64 * 1024, validator=atLeast(1), metadata=_LIVE
    )
    maxTransferCountOnMessageInDisk: int = attrs.field(
        default=8, validator=atLeast(1), metadata=_LIVE
    )
    accessMessageInMemoryMaxRatio: int = attrs.field(default=40, validator=between(0, 100))
    maxMsgsNumBatch: int = attrs.field(default=64, validator=atLeast(1))
    defaultQueryMaxNum: int = attrs.field(default=32, validator=atLeast(1))
    messageDelayLevel: str = attrs.field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", validator=_levels
    )
    openFiles: int = attrs.field(default=512, validator=atLeast(1))

    @property
    def commitLogFolder(self) -> str:
        """
        Where the log is.
        """
        return self.storePathCommitLog or os.path.join(self.storePathRootDir, "commitlog")
