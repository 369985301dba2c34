# SPDX-License-Identifier: Apache-2.0
"""
Apache RocketMQ 4.x in Python on Twisted.

Here are the values that all clients take and give; the clients themselves are in
L{txrocket.client} and L{txrocket.blocking}.  To import this costs next to nothing:
each name is looked up when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from txrocket.message import Message, MessageExt
    from txrocket.model import ConsumeFromWhere, MessageModel, MessageQueue

__version__ = "0.1.0"

__all__ = [
    "ConsumeFromWhere",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "__version__",
]

_MODULES: Final = {
    "ConsumeFromWhere": "txrocket.model",
    "Message": "txrocket.message",
    "MessageExt": "txrocket.message",
    "MessageModel": "txrocket.model",
    "MessageQueue": "txrocket.model",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
