# SPDX-License-Identifier: Apache-2.0
"""
What was counted.
"""

from __future__ import annotations

from collections import Counter

from txrocket.bench.histogram import Histogram
from txrocket.errors import SendFailed

__all__ = ["Received", "Sent"]


class Sent:
    """
    What became of the messages that were sent.

    @ivar messages: those that a broker has; those handed to the network, if it is not
        asked.
    @ivar requests: that carried them.
    @ivar statuses: answers by which a message is not as safe as it should be, by their
        names.
    @ivar errors: requests that failed, by the kind of error.
    @ivar first: the first error of each kind, in words.
    @ivar latency: of requests, in microseconds.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.requests = 0
        self.statuses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.latency = Histogram()

    def failed(self, error: BaseException) -> None:
        """
        Count an error.
        """
        cause = error.error if isinstance(error, SendFailed) else error
        kind = type(cause).__name__
        self.errors[kind] += 1
        self.first.setdefault(kind, str(cause))


class Received:
    """
    What was received.

    @ivar messages: those of this run, or all if it sends none itself.
    @ivar others: those of other runs, and those that made the topic.
    @ivar latency: from send to receive, in microseconds.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.others = 0
        self.latency = Histogram()
