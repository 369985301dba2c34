# SPDX-License-Identifier: Apache-2.0
"""
Bringing traces to the brokers; Java's C{AsyncTraceDispatcher}::

    hooks --> records --> a message, when there are 100, or it is full, or the first is
                 |        500 ms old
                 |          '--> a producer of its own, which has no traces
            2,048 wait or are in flight already:
            dropped, and counted

No send waits for a trace, and a lost trace fails no send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.errors import MalformedTrace
from txrocket.message import KEY_SEPARATOR, Message
from txrocket.protocol.names import checkSendTopic
from txrocket.protocol.record.fields import PROPERTIES_LIMIT
from txrocket.protocol.tracebodies import TRACE_TOPIC, Trace, encodeTrace, traceKeys

__all__ = ["MAX_BODY", "TraceProducer", "Traces"]

#: How many bytes of records go into a message (C{maxMsgSize}).
MAX_BODY: Final = 128_000

# How many records (queueSize, batchSize).
_MAX_HELD: Final = 2048
_MAX_BATCH: Final = 100

# How old the first may become, in seconds (waitTimeThresholdMil).
_MAX_AGE: Final = 0.5

# The properties of a message have a limit, and more among them than the keys: the
# broker adds its own.
_MAX_KEYS: Final = PROPERTIES_LIMIT - 4096

# How often drops are spoken of, in seconds.
_SILENCE: Final = 60.0


class TraceProducer(Protocol):
    """
    The part of a producer that traces need.
    """

    def startService(self) -> None: ...

    def send(self, message: Message) -> Deferred[Any]: ...

    def stop(self, within: float = ...) -> Any: ...


class Traces:
    """
    Traces on their way.

    @ivar topic: where they go.
    @ivar dropped: how many were lost.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, topic: str | bool, produce: Callable[[], TraceProducer]
    ) -> None:
        """
        @param topic: L{True} for RocketMQ's own.
        @param produce: makes a producer for messages of L{MAX_BODY} bytes, at each
            start.
        @raise InvalidMessage: if nothing can be sent to that topic.
        """
        self.topic = topic if isinstance(topic, str) else TRACE_TOPIC
        checkSendTopic(self.topic)
        self.dropped = 0
        self._clock = clock
        self._produce = produce
        self._producer: TraceProducer | None = None
        self._records: list[bytes] = []
        self._keys: dict[str, None] = {}
        self._size = 0
        self._keysSize = 0
        self._inFlight = 0
        self._timer: IDelayedCall | None = None
        # Drops that were not spoken of yet, and when they may be.
        self._unsaid = 0
        self._silentUntil = 0.0

    def covers(self, topic: str) -> bool:
        """
        Whether messages of a topic are traced.  Traces are not: each would cause another.
        """
        return topic not in (self.topic, TRACE_TOPIC)

    def start(self) -> None:
        """
        Begin.
        """
        self._producer = self._produce()
        self._producer.startService()

    def stop(self, within: float) -> Deferred[None]:
        """
        Take no more, and send what there is.

        @param within: how many seconds to wait until it has arrived.
        """
        producer = self._producer
        if producer is None:
            return succeed(None)
        self._flush()
        self._producer = None
        stopped: Deferred[None] = producer.stop(within)
        return stopped.addCallback(lambda none: self._say("the client has stopped"))

    def add(self, trace: Trace) -> None:
        """
        Something became of a message.
        """
        if self._producer is None:
            return
        if len(self._records) + self._inFlight >= _MAX_HELD:
            self._drop(1, "brokers take them too slowly")
            return
        try:
            record = encodeTrace(trace).encode()
            keys = self._keysOf(trace)
        except (MalformedTrace, UnicodeEncodeError) as error:
            self._drop(1, error)
            return
        # With what divides them.
        keysSize = sum(keys.values()) + len(keys)
        if self._size + len(record) > MAX_BODY or self._keysSize + keysSize > _MAX_KEYS:
            self._flush()
        self._records.append(record)
        self._keys |= dict.fromkeys(keys)
        self._size += len(record)
        self._keysSize += keysSize
        if len(self._records) >= _MAX_BATCH:
            self._flush()
        elif self._timer is None:
            self._timer = self._clock.callLater(_MAX_AGE, self._flush)

    def _keysOf(self, trace: Trace) -> dict[str, int]:
        """
        The keys of a record, and how long each is: the message's id if all are too many.
        """
        keys = {each: len(each.encode()) for each in traceKeys(trace)}
        if sum(keys.values()) + len(keys) > _MAX_KEYS:
            keys = dict([next(iter(keys.items()))])
        return keys

    def _flush(self) -> None:
        """
        Send what there is.
        """
        if self._timer is not None:
            if self._timer.active():
                self._timer.cancel()
            self._timer = None
        if not self._records:
            return
        assert self._producer is not None
        message = Message(self.topic, b"".join(self._records), keys=KEY_SEPARATOR.join(self._keys))
        count = len(self._records)
        self._records, self._keys, self._size, self._keysSize = [], {}, 0, 0
        self._inFlight += count
        self._producer.send(message).addBoth(self._sent, count)

    def _sent(self, result: Any, count: int) -> None:
        self._inFlight -= count
        if isinstance(result, Failure):
            self._drop(count, result.value)

    def _drop(self, count: int, why: object) -> None:
        self.dropped += count
        self._unsaid += count
        if self._clock.seconds() >= self._silentUntil:
            self._say(why)

    def _say(self, why: object) -> None:
        if self._unsaid:
            self._log.warn(
                "{count} traces for {topic} were dropped, {dropped} in all: {why}",
                count=self._unsaid,
                topic=self.topic,
                dropped=self.dropped,
                why=why,
            )
            self._unsaid = 0
            self._silentUntil = self._clock.seconds() + _SILENCE
