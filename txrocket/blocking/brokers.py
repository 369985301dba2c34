# SPDX-License-Identifier: Apache-2.0
"""
Asking brokers, again if need be.

An error that is answered is worth another attempt only at another broker, a slave or
a master that has moved.  No answer is worth one at the same broker as well, after a
pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from txrocket.blocking.deadline import Deadline
from txrocket.blocking.links import Links
from txrocket.blocking.routes import Routes
from txrocket.client.topicroute import Route
from txrocket.errors import ConnectFailed, RemotingError, RocketError, TopicNotExist
from txrocket.model import MASTER_ID
from txrocket.protocol.command import RemotingCommand

__all__ = ["Brokers"]

_Result = TypeVar("_Result")

#: Makes a result of an answer and the address that it came from, or raises what it
#: tells of.
Read = Callable[[RemotingCommand, str], _Result]

_log = logging.getLogger(__name__)


class Brokers:
    """
    The brokers of a cluster.
    """

    def __init__(self, links: Links, routes: Routes, retries: int) -> None:
        """
        @param retries: how often something is tried again.
        """
        self._links = links
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
        Ask a broker of a topic.

        @param brokerId: the one to ask first.
        @param slaves: whether its others will do as well.
        @raise RocketError: the last of the errors.
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
            # Half of the time, lest none be left to ask the broker.
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
        Ask a broker of a topic for several things at once, and only once.

        @param brokerId: the one to ask, if it is there; else the master.
        @raise RocketError: the first of the errors.
        """
        there = self._routes.find(topic, deadline).brokers.get(brokerName, {})
        address = there.get(brokerId) or there.get(MASTER_ID)
        if address is None:
            raise ConnectFailed("", f"no broker {brokerName} is known to have topic {topic}")
        answers = self._links.askAll(address, requests, deadline)
        return [read(each, address) for each in answers]

    def askAt(
        self, address: str, request: RemotingCommand, read: Read[_Result], deadline: Deadline
    ) -> _Result:
        """
        Ask who is at an address.

        @raise RocketError: the last of the errors.
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
                answer = self._links.ask(address, request, deadline, deadline.share(tries))
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
                _log.info("Asking %s after attempt %d: %s", address, len(asked), error)


def _looked(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except RocketError:
        # What was known has to do.
        return []
