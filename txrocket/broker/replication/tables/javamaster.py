# SPDX-License-Identifier: Apache-2.0
"""
The tables of a master that is RocketMQ 4.9.7's, which a slave asks for; Java's
C{SlaveSynchronize}::

    after 3 s, then every 10 s:
        GET_ALL_TOPIC_CONFIG --> GET_ALL_CONSUMER_OFFSET --> GET_ALL_DELAY_OFFSET
            --> GET_ALL_SUBSCRIPTIONGROUP_CONFIG --> GET_BROKER_RUNTIME_INFO

The last request is not Java's.  It tells where the master's log ended after the offsets were
read: they count once this slave's log has come there.  Offsets never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocket.broker.replication.tables.payload import (
    DELAY,
    GROUPS,
    OFFSETS,
    TOPICS,
    DelayPayload,
    GroupPayload,
    OffsetPayload,
    TopicPayload,
)
from txrocket.broker.replication.tables.sink import TableSink
from txrocket.errors import RocketError
from txrocket.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand

__all__ = ["JavaMasterTables"]

# Seconds until the first round, between two rounds, and for each answer: as in Java.
_FIRST: Final = 3.0
_PERIOD: Final = 10.0
_TIMEOUT: Final = 3.0

_Body = TypeVar("_Body")


class JavaMasterTables:
    """
    Asks a master for its tables.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        ask: Callable[[str, RemotingCommand, float], Deferred[RemotingCommand]],
        sink: TableSink,
        isWanted: Callable[[], bool],
    ) -> None:
        """
        @param ask: asks a broker, and fails with L{RocketError} if it refuses.
        @param isWanted: whether the master is one that does not send its tables.
        """
        self._isWanted = isWanted
        self._clock = clock
        self._ask = ask
        self._sink = sink
        self._address = ""
        self._timer: IDelayedCall | None = None
        self._failing = False

    def follow(self, address: str) -> None:
        """
        Ask this broker; none if the address is empty.
        """
        self._address = address
        if not address and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif address and self._timer is None:
            self._timer = self._clock.callLater(_FIRST, self._round)

    def _round(self) -> None:
        self._timer = self._clock.callLater(_PERIOD, self._round)
        if not self._isWanted():
            return
        self.synchronise().addErrback(
            lambda failure: self._log.failure("Asking the master for its tables failed", failure)
        )

    @inlineCallbacks
    def synchronise(self) -> Generator[Any, Any, None]:
        """
        Ask for all tables once.  A failure is logged once, until it has succeeded again.
        """
        address, sink = self._address, self._sink
        try:
            topics = yield self._table(
                RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper
            )
            yield sink.take(
                TopicPayload(
                    TOPICS, True, True, version=topics.dataVersion, put=topics.topicConfigTable
                )
            )
            offsets = yield self._table(
                RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper
            )
            delay = yield self._table(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper)
            groups = yield self._table(
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper
            )
            yield sink.take(
                GroupPayload(
                    GROUPS,
                    True,
                    True,
                    version=groups.dataVersion,
                    put=groups.subscriptionGroupTable,
                )
            )
            runtime = yield self._table(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)
            end = int(runtime.table.get("commitLogMaxOffset", 0))
            if address == self._address:
                sink.take(OffsetPayload(OFFSETS, True, True, end, put=offsets.offsetTable))
                sink.take(DelayPayload(DELAY, after=end, value=delay))
        except (RocketError, ValueError) as error:
            if not self._failing:
                self._failing = True
                self._log.error(
                    "The tables of master {address} cannot be read; the broker tries again every"
                    " {seconds} s: {error}",
                    address=address,
                    seconds=_PERIOD,
                    error=error,
                )
            return
        self._failing = False

    def _table(self, code: int, kind: type[_Body]) -> Deferred[_Body]:
        asked = self._ask(self._address, requestCommand(code), _TIMEOUT)
        return asked.addCallback(lambda answer: decodeBody(kind, answer.body))
