# SPDX-License-Identifier: Apache-2.0
"""
Telling brokers of a client's producers and consumers; C{sendHeartbeatToAllBroker} of
Java's C{MQClientInstance}::

    member added, route changed, every 30 s --> HEART_BEAT to each broker
                                                   |-- answered: heard
                                                   '-- failed: logged once, tried again
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.members import ConsumerMember, ProducerMember
from txrocket.errors import RocketError
from txrocket.model import MASTER_ID
from txrocket.protocol.bodies import HeartbeatData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand

if TYPE_CHECKING:
    from txrocket.client.cluster import Cluster

__all__ = ["Heartbeats"]


class Heartbeats:
    """
    The heartbeats of a client.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
    ) -> None:
        """
        @param producers: by group, as is C{consumers}; both change.
        """
        self._cluster = cluster
        self._producers = producers
        self._consumers = consumers
        self._due: IDelayedCall | None = None
        # Brokers that were sent a heartbeat, and those of them that failed to answer.
        self._sent: set[str] = set()
        self._silent: set[str] = set()
        # Heartbeats that are not answered yet, by broker.
        self._inFlight: dict[str, list[Deferred[None]]] = {}

    @property
    def heard(self) -> Collection[str]:
        """
        The brokers that know of this client, or may.
        """
        return self._sent - self._silent

    def answered(self, address: str) -> Deferred[None]:
        """
        A Deferred that fires once no heartbeat to a broker is in flight.
        """
        return DeferredList(self._inFlight.get(address, ())).addCallback(lambda results: None)

    def forget(self, there: Collection[str]) -> Collection[str]:
        """
        Forget the brokers that have left.

        @param there: the brokers of all routes.
        @return: those that have left.
        """
        gone = self._sent.difference(there)
        self._sent -= gone
        self._silent -= gone
        return gone

    def stop(self) -> None:
        """
        Send no more.  Brokers learn from their connections that this client is gone.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._sent.clear()
        self._silent.clear()

    def soon(self) -> None:
        """
        Send one in this turn: brokers are to learn of a member, or a new broker of all.
        """
        if self._due is None and (self._producers or self._consumers):
            self._due = self._cluster.reactor.callLater(0, self._now)

    def _now(self) -> None:
        self._due = None
        self._cluster.heartbeat()

    def send(self) -> Deferred[None]:
        """
        Send one to each broker; to slaves only if there are consumers.

        @return: a Deferred that fires once all have answered, or failed to.
        """
        beats = []
        if self._producers or self._consumers:
            body = encodeBody(
                HeartbeatData(
                    self._cluster.clientId,
                    frozenset(each.producerData() for each in self._producers.values()),
                    frozenset(each.consumerData() for each in self._consumers.values()),
                )
            )
            for addresses in self._cluster.routes.brokers.values():
                for brokerId, address in addresses.items():
                    if brokerId == MASTER_ID or self._consumers:
                        beats.append(self._beat(address, body))
        return DeferredList(beats).addCallback(lambda results: None)

    def _beat(self, address: str, body: bytes) -> Deferred[None]:
        def heard(answer: RemotingCommand) -> None:
            if address in self._silent:
                self._silent.remove(address)
                self._log.info("Broker {address} is there again", address=address)

        def failed(failure: Failure) -> None:
            failure.trap(RocketError)
            # Once, and not every half minute; and not of one that has left meanwhile.
            if address in self._sent - self._silent:
                self._silent.add(address)
                self._log.warn(
                    "Broker {address} does not take heartbeats, trying again: {error}",
                    address=address,
                    error=failure.value,
                )

        def over(result: Any) -> Any:
            self._inFlight[address].remove(done)
            if not self._inFlight[address]:
                del self._inFlight[address]
            done.callback(None)
            return result

        self._sent.add(address)
        done: Deferred[None] = Deferred()
        self._inFlight.setdefault(address, []).append(done)
        request = requestCommand(RequestCode.HEART_BEAT, None, body)
        return self._cluster.ask(address, request).addCallbacks(heard, failed).addBoth(over)
