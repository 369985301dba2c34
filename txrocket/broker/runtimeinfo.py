# SPDX-License-Identifier: Apache-2.0
"""
The state and the statistics of a broker: the table that GET_BROKER_RUNTIME_INFO returns.
The names are Java's, and tools and dashboards read each of them.

A value without a meaning here has that of an idle Java broker, because a tool that misses a
name gives up.
"""

from __future__ import annotations

from txrocket.broker.parts import Core, Delivery
from txrocket.broker.settings import PoolSettings, PullSettings, SendSettings
from txrocket.config import Configuration
from txrocket.protocol.codes import VERSION

__all__ = ["RuntimeInfo"]

# The release that the version stands for.
_VERSION_NAME = "V4_9_7"


class RuntimeInfo:
    """
    The table of a broker's state and statistics, for administrators.
    """

    def __init__(self, core: Core, delivery: Delivery, configuration: Configuration) -> None:
        self._store = core.store
        self._stats = core.stats
        self._longPoll = core.longPoll
        self._delivery = delivery
        self._role = core.role
        self._configuration = configuration

    def table(self) -> dict[str, str]:
        """
        All values by their names.

        @raise StoreError: if the disk does not tell how full it is.
        """
        own = {**self._files(), **self._waiting()}
        own |= self._delivery.delayLevels.runtime() | self._delivery.timers.runtime()
        return self._stats.runtime() | {name: str(value) for name, value in own.items()}

    def _files(self) -> dict[str, object]:
        store = self._store
        (total, free), (queueTotal, queueFree) = store.space()
        used = _ratio(total, free)
        first = store.firstTimestamp()
        unflushed = store.log.written - store.flusher.flushed.offset
        return {
            "commitLogDiskRatio": used,
            f"commitLogDiskRatio_{store.settings.commitLogFolder}": used,
            "consumeQueueDiskRatio": _ratio(queueTotal, queueFree),
            "commitLogDirCapacity": f"Total : {_human(total)}, Free : {_human(free)}.",
            "commitLogMinOffset": store.log.first,
            "commitLogMaxOffset": store.log.written,
            "dispatchBehindBytes": store.log.written - store.dispatcher.position,
            "remainHowManyDataToFlush": _human(unflushed),
            "earliestMessageTimeStamp": -1 if first is None else first,
            # Not one of Java's: places that reads have found damaged since the start.
            "damagedMessages": store.damage.count,
        }

    def _waiting(self) -> dict[str, object]:
        send = self._configuration[SendSettings]
        waiting, seconds = self._store.waiting
        return {
            "brokerVersionDesc": _VERSION_NAME,
            # Not one of Java's.
            "role": self._role.role.value,
            "brokerVersion": VERSION,
            "startAcceptSendRequestTimeStamp": send.startAcceptSendRequestTimeStamp,
            # Sends that wait for the disk.
            "sendThreadPoolQueueSize": waiting,
            "sendThreadPoolQueueCapacity": send.sendThreadPoolQueueCapacity,
            "sendThreadPoolQueueHeadWaitTimeMills": int(seconds * 1000),
            # Pulls that wait for messages.
            "pullThreadPoolQueueSize": len(self._longPoll),
            "pullThreadPoolQueueCapacity": self._configuration[
                PullSettings
            ].pullThreadPoolQueueCapacity,
            "pullThreadPoolQueueHeadWaitTimeMills": 0,
            "queryThreadPoolQueueSize": 0,
            "queryThreadPoolQueueCapacity": self._configuration[
                PoolSettings
            ].queryThreadPoolQueueCapacity,
            "queryThreadPoolQueueHeadWaitTimeMills": 0,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 100_000,
            "pageCacheLockTimeMills": 0,
            "remainTransientStoreBufferNumbs": 0,
        }


def _ratio(total: int, free: int) -> float:
    # Java rounds up to hundredths.
    return -(-(total - free) * 100 // total) / 100 if total else -1.0


def _human(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), 0
    while value >= 1024 and unit < 6:
        value /= 1024
        unit += 1
    return f"{value:.1f} {'KMGTPE'[unit - 1]}iB"
