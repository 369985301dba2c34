# SPDX-License-Identifier: Apache-2.0
"""
Telling brokers how far a stream has come, for those who watch groups with RocketMQ's own
tools.

It is for them only: a stream goes by its checkpoint.  So what fails here is logged, and
told again with the next batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from txrocket.blocking import Client
from txrocket.errors import RocketError
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.model import MessageQueue

__all__ = ["Progress"]

_log = logging.getLogger(__name__)

# As often as Java's clients, in seconds.  Brokers forget a group after two minutes.
_BEAT = 30.0

# A stream does not wait longer for that.
_TIMEOUT = 3.0


class Progress:
    """
    A group's offsets at the brokers.
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
        @param expression: what the group wants of each topic.
        """
        self._client = client
        self._group = group
        self._expression = expression
        self._expressionType = expressionType
        self._now = now
        self._told: dict[MessageQueue, int] = {}
        self._beat: float | None = None

    def tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        """
        Tell what has changed.
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
                if self._told.get(queue) != offset:
                    self._client.commit(self._group, queue, offset, timeout=_TIMEOUT)
                    self._told[queue] = offset
        except RocketError as error:
            _log.warning("Brokers were not told how far %s has come: %s", self._group, error)
