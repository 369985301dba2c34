# SPDX-License-Identifier: Apache-2.0
"""
Requests that a broker refuses because of its role, as a table::

                                        slave                       suspended
    CONSUMER_SEND_MSG_BACK              SYSTEM_ERROR                SERVICE_NOT_AVAILABLE
    END_TRANSACTION                     SLAVE_NOT_AVAILABLE         SERVICE_NOT_AVAILABLE
    create, change or delete a          SYSTEM_ERROR                SERVICE_NOT_AVAILABLE
        topic or a group
    lock queues, commit offsets         served                      SERVICE_NOT_AVAILABLE

A slave's codes are Java's.  A suspended broker does not know whether there is a newer master,
so it promises nothing.  Sends and pulls are refused by checks of their own, because many of
them are served together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txrocket.broker.replication.role import BrokerRoleState
from txrocket.errors import (
    RemoteSystemError,
    ResponseError,
    ServiceNotAvailable,
    SlaveNotAvailable,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["roleChecked"]


def _notTakenBack() -> ResponseError:
    return RemoteSystemError("SERVICE_NOT_AVAILABLE: a slave takes no message back")


def _notEnded() -> ResponseError:
    return SlaveNotAvailable("a slave ends no transaction: the master does")


def _notChanged() -> ResponseError:
    return RemoteSystemError("a slave has the topics and groups of its master: change them there")


# By code, what a slave answers; the codes with None are served.
_BY_SLAVES: Final[dict[int, Callable[[], ResponseError] | None]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: _notTakenBack,
    RequestCode.END_TRANSACTION: _notEnded,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _notChanged,
    RequestCode.DELETE_TOPIC_IN_BROKER: _notChanged,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _notChanged,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _notChanged,
    RequestCode.LOCK_BATCH_MQ: None,
    RequestCode.UPDATE_CONSUMER_OFFSET: None,
}


def roleChecked(role: BrokerRoleState, code: int, process: Process) -> Process:
    """
    A function that serves a request code unless the broker's role forbids it.
    """
    if code not in _BY_SLAVES:
        return process
    refusal = _BY_SLAVES[code]

    def checked(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        if not role.isMaster:
            if role.isSuspended:
                raise ServiceNotAvailable("this broker has no role at the moment: try another one")
            if refusal is not None:
                raise refusal()
        return process(request, peer)

    return checked
