# SPDX-License-Identifier: Apache-2.0
"""
The counters of a run.
"""

from __future__ import annotations

from collections import Counter

from txrocket.bench.histogram import Histogram
from txrocket.errors import SendFailed

__all__ = ["ReceiveCounter", "SendCounter"]


class SendCounter:
    """
    Counts sent messages and the outcomes of their requests.

    @ivar messages: messages that a broker has acknowledged; oneway, messages that were
        written to the network.
    @ivar requests: the requests that carried them.
    @ivar statuses: answers other than SEND_OK, by the name of their status.
    @ivar errors: failed requests, by the class of error.
    @ivar first: the text of the first error of each class.
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


class ReceiveCounter:
    """
    Counts received messages.

    @ivar messages: messages of this run, or all messages if it sends none itself.
    @ivar others: messages of other runs, and messages that created the topic.
    @ivar latency: from send to receive, in microseconds.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.others = 0
        self.latency = Histogram()
