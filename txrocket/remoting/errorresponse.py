# SPDX-License-Identifier: Apache-2.0
"""
The one place where what a processor or a hook raised becomes an answer.
"""

from __future__ import annotations

from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.errors import ProtocolError, RemoteSystemError, ResponseError, RocketError
from txrocket.protocol.codes import ResponseCode, requestName
from txrocket.protocol.command import RemotingCommand, responseCommand

__all__ = ["faultResponse", "internalError", "printableRemark"]

_log = Logger()

# A remark may quote what was asked; cut, it cannot make the answer too long as well.
_REMARK_LIMIT = 4096


def faultResponse(failure: Failure, request: RemotingCommand, address: str) -> RemotingCommand:
    """
    The answer that tells of a failure.

    A L{ResponseError} was meant for the peer.  A L{ProtocolError} is the peer's
    own doing, and what else we raise on purpose explains itself.  Everything
    else is a bug of ours: it is logged in full, and the peer learns its name.

    @param address: the peer.
    """
    error = failure.value
    if isinstance(error, ResponseError):
        return _fault(error.code, error.remark)
    if isinstance(error, ProtocolError):
        return _fault(ResponseCode.SYSTEM_ERROR, f"bad request: {error}")
    if isinstance(error, RocketError):
        return _fault(ResponseCode.SYSTEM_ERROR, str(error))
    _log.failure(
        "Serving {request} from {address} failed",
        failure,
        request=requestName(request.code),
        address=address,
    )
    return _fault(ResponseCode.SYSTEM_ERROR, internalError(failure, request.code).remark)


def internalError(failure: Failure, code: int) -> RemoteSystemError:
    """
    The error that tells a peer of a bug of ours, which is in the log in full.

    @param code: of the request.
    """
    return RemoteSystemError(
        f"internal error while serving {requestName(code)}: "
        f"{type(failure.value).__name__}: {failure.value}; the server's log has the details"
    )


def printableRemark(remark: str) -> str | None:
    """
    A remark that can be sent, whatever went into it.
    """
    # Surrogates come from file names; JSON has none.
    return remark[:_REMARK_LIMIT].encode(errors="replace").decode() or None


def _fault(code: int, remark: str) -> RemotingCommand:
    return responseCommand(code, printableRemark(remark))
