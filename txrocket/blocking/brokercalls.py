# SPDX-License-Identifier: Apache-2.0
"""
Requests to brokers, with retries.

If a broker answers with a retriable error, the request goes to another broker: a slave, or
a master that has moved.  If a broker does not answer, the request may also go to the same
broker again, after a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.routes import BlockingRoutes
from txrocket.client.sansio.topicroute import Route
from txrocket.errors import ConnectFailed, RemotingError, RocketError, TopicNotExist
from txrocket.model import MASTER_ID
from txrocket.protocol.command import RemotingCommand

__all__ = ["BrokerCalls"]

_Result = TypeVar("_Result")

#: Makes a result of an answer and the broker's address, or raises the error in the answer.
Read = Callable[[RemotingCommand, str], _Result]

_log = logging.getLogger(__name__)


class BrokerCalls:
    """
    Sends requests to the brokers of a cluster and repeats them after failures.
    """

    def __init__(
        self, connections: BlockingConnections, routes: BlockingRoutes, retries: int
    ) -> None:
        """
        @param retries: the most further attempts of a request.
        """
        self._connections = connections
        self._routes = routes
        self._retries = retries

    def ask(
        self,
        topic: str,
        brokerName: str,
        request: RemotingCommand,
        read: Read[_Result],
        deadline: Deadline,
        *,
        brokerId: int = MASTER_ID,
        slaves: bool = False,
    ) -> _Result:
        """
        Send a request to a broker of a topic.

        @param brokerId: the id of the broker to ask first.
        @param slaves: whether other ids of the broker may answer as well.
        @raise RocketError: the error of the last attempt.
        """

        def known(route: Route) -> list[str]:
            there = route.brokers.get(brokerName, {})
            ids = (
                sorted(there, key=lambda each: (each != brokerId, each)) if slaves else [MASTER_ID]
            )
            return [there[each] for each in ids if each in there]

        addresses = known(self._routes.find(topic, deadline))
        if not addresses:
            addresses = known(self._routes.refresh(topic, deadline))
        if not addresses:
            what = "broker" if slaves else "master of broker"
            raise ConnectFailed("", f"no {what} {brokerName} is known to have topic {topic}")

        def readIt(answer: RemotingCommand, address: str) -> _Result:
            try:
                result = read(answer, address)
            except TopicNotExist:
                self._routes.doubt(topic, brokerName)
                raise
            self._routes.trust(topic, brokerName)
            return result

        def look() -> list[str]:
            self._routes.doubt(topic, brokerName)
            # At most half of the time, so that some is left for the broker.
            return known(self._routes.refresh(topic, deadline.share(2)))

        return self._attempts(addresses, request, readIt, deadline, look)

    def askAll(
        self,
        topic: str,
        brokerName: str,
        requests: Sequence[RemotingCommand],
        read: Read[_Result],
        deadline: Deadline,
        *,
        brokerId: int = MASTER_ID,
    ) -> list[_Result]:
        """
        Send several requests to a broker of a topic at once, without retries.

        @param brokerId: the id of the broker to ask, if the route has it; else the master.
        @raise RocketError: the first error.
        """
        there = self._routes.find(topic, deadline).brokers.get(brokerName, {})
        address = there.get(brokerId) or there.get(MASTER_ID)
        if address is None:
            raise ConnectFailed("", f"no broker {brokerName} is known to have topic {topic}")
        answers = self._connections.askAll(address, requests, deadline)
        return [read(each, address) for each in answers]

    def askAt(
        self, address: str, request: RemotingCommand, read: Read[_Result], deadline: Deadline
    ) -> _Result:
        """
        Send a request to an address.

        @raise RocketError: the error of the last attempt.
        """
        return self._attempts([address], request, read, deadline, lambda: [address])

    def _attempts(
        self,
        addresses: Sequence[str],
        request: RemotingCommand,
        read: Read[_Result],
        deadline: Deadline,
        look: Callable[[], list[str]],
    ) -> _Result:
        address, *others = addresses
        asked: list[str] = []
        while True:
            asked.append(address)
            tries = min(len(others), self._retries + 1 - len(asked)) + 1
            try:
                answer = self._connections.ask(address, request, deadline, deadline.share(tries))
                return read(answer, address)
            except RocketError as error:
                if not error.retriable or len(asked) > self._retries or deadline.over:
                    raise
                silent = isinstance(error, RemotingError)
                addresses = (silent and _looked(look)) or addresses
                others = [each for each in addresses if each not in asked]
                if others:
                    address = others.pop(0)
                elif silent and deadline.pause(len(asked)):
                    address = addresses[len(asked) % len(addresses)]
                else:
                    raise
                _log.info("Retrying at %s after attempt %d: %s", address, len(asked), error)


def _looked(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except RocketError:
        # The caller then uses the addresses that it knows.
        return []
