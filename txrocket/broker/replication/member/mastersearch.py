# SPDX-License-Identifier: Apache-2.0
"""
Whether a group has a master already: asked by a broker that starts as one, and before a slave
is promoted::

    name servers: who is broker 0 of my name?  --> an address that is not mine
    that address: HA_STATUS                    --> it answers, and is a master

RocketMQ lets a second master register, and routes then change with each heartbeat.  A name
server may know a master that is gone, so only one that answers counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks

from txrocket.broker.registration import NameServerRegistration
from txrocket.errors import MalformedBody, ResponseError, RocketError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies import ClusterInfo
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.replication import HAStatus
from txrocket.protocol.codes import ReplicationCode, RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand

__all__ = ["FoundMaster", "MasterSearch"]

#: How long a name server, and then a broker, has to answer, in seconds.
SEARCH_TIMEOUT: Final = 3.0


@attrs.frozen
class FoundMaster:
    """
    Another broker that is the master of the group.

    @ivar status: L{None} if it is not one of ours.
    @ivar taken: the numbers that members of the group have.
    """

    address: str
    status: HAStatus | None
    taken: frozenset[int]


class MasterSearch:
    """
    Looks for a master other than this broker.
    """

    def __init__(self, registration: NameServerRegistration) -> None:
        self._registration = registration
        self._ask: Callable[[str, RemotingCommand, float], Deferred[RemotingCommand]]
        self._ask = registration.ask

    @inlineCallbacks
    def taken(self) -> Generator[Deferred[Any], Any, frozenset[int]]:
        """
        The numbers of the group's members that name servers know.
        """
        tables = yield DeferredList([self._known(each) for each in self._registration.addresses])
        return frozenset(number for _, table in tables for number in table)

    @inlineCallbacks
    def find(self) -> Generator[Deferred[Any], Any, FoundMaster | None]:
        """
        Ask all name servers for a master, and the master whether it is one.

        @return: a Deferred of L{None} if none answers.
        """
        asking = [self._known(each) for each in self._registration.addresses]
        tables: list[tuple[bool, dict[int, str]]] = yield DeferredList(asking)
        taken = frozenset(number for _, table in tables for number in table)
        for address in dict.fromkeys(table.get(MASTER_ID, "") for _, table in tables):
            if address and address != self._registration.identity.address:
                found: FoundMaster | None = yield self.ask(address)
                if found is not None:
                    status = found.status
                    replicas = [] if status is None else [each.brokerId for each in status.replicas]
                    own = [] if status is None else [status.replicaId, *status.members]
                    return attrs.evolve(found, taken=taken.union(replicas, own))
        return None

    @inlineCallbacks
    def furthest(self, groupId: str) -> Generator[Deferred[Any], Any, tuple[int, int]]:
        """
        The newest epoch that another member of a group has followed, and how far it has come
        there; zeros if none answers.
        """
        others: dict[str, HAStatus] = yield self.others()
        return max(
            ((each.epoch, each.end) for each in others.values() if each.groupId == groupId),
            default=(0, 0),
        )

    @inlineCallbacks
    def ask(self, address: str) -> Generator[Deferred[Any], Any, FoundMaster | None]:
        """
        Ask a broker whether it is a master.

        @return: a Deferred of L{None} if it does not answer or says that it is not.
        """
        try:
            status = yield self._statusOf(address)
        except ResponseError:
            # A broker of RocketMQ, which does not know the question.
            return FoundMaster(address, None, frozenset())
        except (RocketError, ValueError):
            return None
        name = self._registration.identity.name
        if status.role != "MASTER" or status.brokerName != name:
            return None
        return FoundMaster(address, status, frozenset())

    @inlineCallbacks
    def others(self) -> Generator[Deferred[Any], Any, dict[str, HAStatus]]:
        """
        The other members of the group that name servers know and that answer, by address.
        Those of RocketMQ do not tell.
        """
        tables = yield DeferredList([self._known(each) for each in self._registration.addresses])
        addresses = {address for _, table in tables for address in table.values()}
        addresses.discard(self._registration.identity.address)
        asked = sorted(addresses)
        answers = yield DeferredList([self._status(each) for each in asked])
        return {
            address: status
            for address, (_, status) in zip(asked, answers, strict=True)
            if status is not None
        }

    @inlineCallbacks
    def _status(self, address: str) -> Generator[Deferred[Any], Any, HAStatus | None]:
        """
        The status of a broker; L{None} if it does not answer, or is RocketMQ's.
        """
        try:
            status: HAStatus = yield self._statusOf(address)
        except (RocketError, ValueError):
            return None
        return status

    @inlineCallbacks
    def _statusOf(self, address: str) -> Generator[Deferred[Any], Any, HAStatus]:
        request = requestCommand(ReplicationCode.HA_STATUS)
        answer = yield self._ask(address, request, SEARCH_TIMEOUT)
        return decodeBody(HAStatus, answer.body)

    @inlineCallbacks
    def _known(self, nameServer: str) -> Generator[Deferred[Any], Any, dict[int, str]]:
        """
        The addresses of the group that a name server knows.
        """
        try:
            request = requestCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = yield self._ask(nameServer, request, SEARCH_TIMEOUT)
            table = decodeBody(ClusterInfo, answer.body).brokerAddrTable
        except (RocketError, MalformedBody):
            return {}
        data = table.get(self._registration.identity.name)
        return {} if data is None else dict(data.brokerAddrs)
