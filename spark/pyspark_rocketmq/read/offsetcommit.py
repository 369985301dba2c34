# SPDX-License-Identifier: Apache-2.0
"""
Commits the offsets of a stream to the brokers, so that RocketMQ's own tools show how far
its group has come.

A stream continues from its checkpoint, never from these offsets.  If a commit fails, it is
therefore only logged, and the next batch commits again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from txrocket.blocking import Client
from txrocket.errors import RocketError
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.model import MessageQueue

__all__ = ["OffsetCommit"]

_log = logging.getLogger(__name__)

# Seconds between heartbeats, as in Java's clients.  Brokers drop a silent group after two
# minutes.
_BEAT = 30.0

# Seconds that a stream waits for a broker here.
_TIMEOUT = 3.0


class OffsetCommit:
    """
    Commits the offsets of a group and keeps the group known to the brokers.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        expression: str = EVERYTHING,
        expressionType: str = TAG,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param expression: the group's subscription to each topic.
        """
        self._client = client
        self._group = group
        self._expression = expression
        self._expressionType = expressionType
        self._now = now
        self._committed: dict[MessageQueue, int] = {}
        self._beat: float | None = None

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """
        Commit the offsets that have changed, after a heartbeat if one is due.
        """
        try:
            if self._beat is None or self._now() - self._beat >= _BEAT:
                self._client.heartbeat(
                    self._group,
                    {each.topic for each in offsets},
                    self._expression,
                    expressionType=self._expressionType,
                    timeout=_TIMEOUT,
                )
                self._beat = self._now()
            for queue, offset in offsets.items():
                if self._committed.get(queue) != offset:
                    self._client.commit(self._group, queue, offset, timeout=_TIMEOUT)
                    self._committed[queue] = offset
        except RocketError as error:
            _log.warning("Offsets of group %s were not committed: %s", self._group, error)
