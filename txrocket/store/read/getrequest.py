# SPDX-License-Identifier: Apache-2.0
"""
The request of a pull, as the store sees it, and the limits of its answer::

    GetRequest: queue, offset, most, filters --> entries, until isFull --> answer

Both are apart from the readers because the quick way and the careful way share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txrocket.message import MessageExt
from txrocket.store.damage.recordcheck import Origin
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.settings import StoreSettings

__all__ = ["GetRequest", "isFull"]


class GetRequest(NamedTuple):
    """
    The request of a pull.

    @ivar offset: the queue offset to begin with.
    @ivar most: how many messages at most.
    @ivar matches: whether a message is wanted, by the hash of its tag.
    @ivar accepts: whether it is, by all of it but its body.
    """

    queue: ConsumeQueue
    origin: Origin
    offset: int
    most: int
    matches: Callable[[int], bool] | None
    accepts: Callable[[MessageExt], bool] | None


def isFull(settings: StoreSettings, count: int, size: int, old: bool) -> bool:
    """
    Whether a pull has as much as it may have.

    @param old: whether the next message is.
    """
    if old:
        return (
            size > settings.maxTransferBytesOnMessageInDisk
            or count >= settings.maxTransferCountOnMessageInDisk
        )
    return (
        size > settings.maxTransferBytesOnMessageInMemory
        or count >= settings.maxTransferCountOnMessageInMemory
    )
