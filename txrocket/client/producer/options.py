# SPDX-License-Identifier: Apache-2.0
"""
The settings of a producer as one value, which each part of the producer is given; the
fields of Java's C{DefaultMQProducer}.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txrocket.client.producer.sendcontext import ISendMessageHook
from txrocket.client.sansio.faulttable import FaultTable

__all__ = ["ProducerOptions"]


@attrs.frozen(kw_only=True)
class ProducerOptions:
    """
    How a producer sends.

    @ivar timeout: how many seconds a send may take, all attempts included.
    @ivar retries: how many more attempts a send has after the first.
    @ivar compressOver: bodies of this many bytes, or more, are compressed.
    @ivar defaultTopicQueueNums: how many queues a topic gets at each broker if this
        producer creates it.
    @ivar retryNotStored: whether to try another broker if one has the message but reports
        that it is not flushed or not replicated.
    @ivar faults: the brokers to avoid because they are slow; L{None} avoids none.
    @ivar hooks: are shown each message before and after the send.
    """

    timeout: float = 3.0
    retries: int = 2
    compressOver: int = 4096
    maxMessageSize: int = 4 * 1024 * 1024
    defaultTopicQueueNums: int = 4
    retryNotStored: bool = False
    faults: FaultTable | None = None
    hooks: Sequence[ISendMessageHook] = ()
