# SPDX-License-Identifier: Apache-2.0
"""
What scripts about weaknesses of replication find.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from txrocket.protocol.codes import ResponseCode

__all__ = ["Finding", "Script", "answerName"]


@attrs.frozen
class Finding:
    """
    What a script saw.

    @ivar isWeak: whether the broker has the weakness.
    """

    isWeak: bool
    seen: str


Script = Callable[[], Awaitable[Finding]]


def answerName(code: int) -> str:
    """
    What a producer calls the code of an answer to a send.
    """
    if code == ResponseCode.SUCCESS:
        return "SEND_OK"
    return ResponseCode(code).name
