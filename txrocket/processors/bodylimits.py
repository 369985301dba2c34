# SPDX-License-Identifier: Apache-2.0
"""
The limits of request bodies.

The reactor thread decodes a body, and serves no other request meanwhile.  So each request
may have a body as large as its use in RocketMQ needs, and no larger::

    request --> body within the limit of its code? --> processor
                else RemoteSystemError, which names the code and the limit

The bodies of sends are not bounded here: they are stored as they are, and
C{maxMessageSize} bounds them.  Headers are bounded where frames are parsed, by
C{com.rocketmq.remoting.headerMaxLength}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from txrocket.errors import RemoteSystemError
from txrocket.protocol.codes import RequestCode, requestName
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["BODY_LIMIT", "BODY_LIMITS", "STORED", "bounded"]

_KIB: Final = 1024

#: How many bytes the body of a request may have, if its code is not named below.
BODY_LIMIT: Final = 16 * _KIB

#: How many bytes the body of a request may have, by its code.
BODY_LIMITS: Final[Mapping[int, int]] = {
    # A client with some 4,000 subscriptions.
    RequestCode.HEART_BEAT: 512 * _KIB,
    # All 8,192 queues that a topic may have, with long names.
    RequestCode.LOCK_BATCH_MQ: 1024 * _KIB,
    RequestCode.UNLOCK_BATCH_MQ: 1024 * _KIB,
    # An expression of the greatest length, escaped.
    RequestCode.CHECK_CLIENT_CONFIG: 64 * _KIB,
    # All settings that there are take less than ten kilobytes.
    RequestCode.UPDATE_BROKER_CONFIG: 64 * _KIB,
    RequestCode.UPDATE_NAMESRV_CONFIG: 64 * _KIB,
    # Some 40,000 topics.
    RequestCode.REGISTER_BROKER: 6 * _KIB * _KIB,
}

#: The requests whose bodies are stored as they are.
STORED: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)


def bounded(code: int, process: Process) -> Process:
    """
    A processor that refuses requests whose bodies are too large.
    """
    if code in STORED:
        return process
    limit = BODY_LIMITS.get(code, BODY_LIMIT)

    def check(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        if len(request.body) > limit:
            raise RemoteSystemError(
                f"{requestName(code)} has a body of {len(request.body)} bytes: the limit is {limit}"
            )
        return process(request, peer)

    return check
