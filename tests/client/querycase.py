# SPDX-License-Identifier: Apache-2.0
"""
The base of the tests that look messages up.
"""

from __future__ import annotations

from tests.client.brokers import A1, A, B, ConsumerTests, QueueBroker
from tests.client.network import routeTo
from txrocket.errors import QueryNotFound
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import QueryMessageRequestHeader, QueryMessageResponseHeader
from txrocket.protocol.record import encodeHost, encodeProperties, encodeRecord, encodeTopic

HOST = "192.0.2.11"


def record(
    body: bytes, stored: int, keys: str = "k", topic: str = "T", *, sysFlag: int = 0
) -> bytes:
    """
    A record of a broker.
    """
    host = encodeHost(HOST, 10911)
    properties = encodeProperties({"KEYS": keys})
    return encodeRecord(
        encodeTopic(topic), body, properties, 0, 0, 0, 0, sysFlag, 1, host, stored, host
    )


class QueryCase(ConsumerTests):
    """
    T at two brokers, of which one has a slave.

    @ivar asked: the brokers that were asked for messages, and how.
    """

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.cluster.stop)
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1}, b={0: B})
        self.asked: list[tuple[str, QueryMessageRequestHeader]] = []
        self._has: dict[str, tuple[bytes, ...] | Exception] = {}
        for name, broker in ("a", self.a), ("a1", self.a1), ("b", self.b):
            self._serve(name, broker)

    def _serve(self, name: str, broker: QueueBroker) -> None:
        def answer(request: RemotingCommand) -> RemotingCommand:
            self.asked.append((name, request.decodeHeader(QueryMessageRequestHeader)))
            has = self._has.get(name)
            if isinstance(has, Exception):
                raise has
            if not has:
                raise QueryNotFound("none")
            return responseCommand(header=QueryMessageResponseHeader(1, 2), body=b"".join(has))

        broker.answers[RequestCode.QUERY_MESSAGE] = answer

    def has(self, name: str, *records: bytes) -> None:
        """
        What a broker has, whatever it is asked for.
        """
        self._has[name] = records

    def fails(self, name: str, error: Exception) -> None:
        """
        A broker cannot say.
        """
        self._has[name] = error
