# SPDX-License-Identifier: Apache-2.0
"""
The queues that brokers have locked for a consumer which takes messages in order;
the locks of Java's C{RebalanceImpl}.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.errors import RocketError
from txrocket.model import MessageQueue

__all__ = ["ConsumerLocks", "LockResult"]


class LockResult(NamedTuple):
    """
    The answers of brokers.  A broker without an answer has said nothing of its queues.

    @ivar own: the queues that are locked for this consumer.
    @ivar others: those that another has.
    """

    own: frozenset[MessageQueue]
    others: frozenset[MessageQueue]


class ConsumerLocks:
    """
    A consumer's locks.

    @ivar held: the queues that may be locked for it: that were asked for, and
        neither refused nor given back.
    """

    _log = Logger()

    def __init__(self, requests: GroupCalls) -> None:
        self._requests = requests
        self.held: set[MessageQueue] = set()

    def lock(self, queues: Iterable[MessageQueue]) -> Deferred[LockResult]:
        """
        Have queues locked, or go on having them.
        """
        own: set[MessageQueue] = set()
        others: set[MessageQueue] = set()

        def answered(locked: frozenset[MessageQueue], asked: set[MessageQueue]) -> None:
            own.update(asked & locked)
            others.update(asked - locked)
            self.held -= asked - locked

        def failed(failure: Failure, name: str) -> None:
            failure.trap(RocketError)
            self._log.warn(
                "Broker {name} does not lock queues, trying again: {error}",
                name=name,
                error=failure.value,
            )

        locking = []
        for name, asked in _byBroker(queues).items():
            self.held |= asked
            locking.append(
                self._requests.lock(name, asked).addCallbacks(
                    answered, failed, callbackArgs=(asked,), errbackArgs=(name,)
                )
            )
        return DeferredList(locking).addCallback(
            lambda results: LockResult(frozenset(own), frozenset(others))
        )

    def unlock(self, queues: Iterable[MessageQueue]) -> Deferred[None]:
        """
        Give locks back.

        @return: a Deferred that fires once that is done, or has failed: a lock that is not
            renewed expires after a minute.
        """
        unlocking = []
        for name, own in _byBroker(queues).items():
            self.held -= own
            unlocking.append(
                self._requests.unlock(name, own).addErrback(
                    lambda failure: failure.trap(RocketError) and None
                )
            )
        return DeferredList(unlocking).addCallback(lambda results: None)


def _byBroker(queues: Iterable[MessageQueue]) -> dict[str, set[MessageQueue]]:
    grouped: dict[str, set[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.brokerName, set()).add(queue)
    return grouped
