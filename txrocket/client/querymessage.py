# SPDX-License-Identifier: Apache-2.0
"""
Looking messages up by their keys; C{queryMessage} of Java's C{MQAdminImpl}.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.errors import ConnectFailed, QueryNotFound, RocketError
from txrocket.message import MessageExt
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import QueryMessageRequestHeader
from txrocket.protocol.record import decodeRecords

__all__ = ["MOST", "queryMessages"]

#: How many messages mqadmin asks each broker for.
MOST: Final = 64

_EVER: Final = 2**63 - 1

_log = Logger()


@inlineCallbacks
def queryMessages(
    cluster: Cluster,
    topic: str,
    key: str,
    most: int = MOST,
    *,
    begin: float = 0.0,
    end: float | None = None,
    timeout: float | None = None,
) -> Generator[Deferred[Any], Any, list[MessageExt]]:
    """
    The messages of a topic that have a key, the oldest first.

    @param most: how many at most, of each broker.
    @param begin: only those stored at this time or later, in seconds since 1970.
    @param end: only those stored at this time or earlier.
    @param timeout: of the brokers, in seconds.
    @return: a Deferred that fails with L{TopicNotExist<txrocket.errors.TopicNotExist>}
        if there is no such topic, and with what went wrong if no broker answers.  If
        only some do, there is a warning.
    """
    route = yield cluster.routes.refresh(topic)
    header = QueryMessageRequestHeader(
        topic, key, most, int(begin * 1000), _EVER if end is None else int(end * 1000)
    )
    asked = []
    for name, addresses in route.brokers.items():
        if addresses:
            # The master, if there is one.
            address = addresses[min(addresses)]
            request = requestCommand(RequestCode.QUERY_MESSAGE, header)
            asked.append(
                cluster.ask(address, request, timeout).addCallbacks(
                    _found, _notFound, callbackArgs=(name,)
                )
            )
    if not asked:
        raise ConnectFailed("", f"topic {topic} has no broker")
    results = yield DeferredList(asked, consumeErrors=True)
    failures = [each for answered, each in results if not answered]
    if len(failures) == len(results):
        failures[0].raiseException()
    for failure in failures:
        failure.trap(RocketError)
        _log.warn(
            "Messages of {topic} with the key {key} may be missing: {error}",
            topic=topic,
            key=key,
            error=failure.value,
        )
    found = [each for answered, messages in results if answered for each in messages]
    # Brokers look for the hash of topic and key.
    wanted = (each for each in found if each.topic == topic and key in each.keys)
    return sorted(wanted, key=lambda each: each.storeTimestamp)


def _found(answer: RemotingCommand, brokerName: str) -> list[MessageExt]:
    return list(decodeRecords(answer.body, brokerName=brokerName))


def _notFound(failure: Failure) -> list[MessageExt]:
    failure.trap(QueryNotFound)
    return []
