# SPDX-License-Identifier: Apache-2.0
"""
The key-value table of the name server, which holds settings for applications: Java's
C{KVConfigManager}, and its file C{kvConfig.json}::

    {"configTable":{"ORDER_TOPIC_CONFIG":{"OrderTopic":"broker-a:8;broker-b:8"}}}
                     namespace            key          value

A change takes effect only after it is written to the file.  So a crash never loses a
change that was answered, and a change whose write failed has no effect.  Java answers
in any case, and logs the failed write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from twisted.internet.defer import Deferred, DeferredLock, succeed

from txrocket.errors import RemoteSystemError
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodies.codec import decodeBody, encodeGradually
from txrocket.protocol.fastjson import Gradual, finish
from txrocket.protocol.frames import FRAME_LIMIT

__all__ = ["ORDER_TOPIC_CONFIG", "ConfigTable", "KVConfig", "decodeKVConfig"]

#: The namespace of ordered topics, from topic to C{broker:queues;...}: Java's
#: C{NAMESPACE_ORDER_TOPIC_CONFIG}.
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"

# A response holds a whole namespace in one frame, and so does each registration's.
_LIMIT: Final = FRAME_LIMIT // 2

ConfigTable = dict[str, dict[str, str]]


class KVConfigSerializeWrapper(msgspec.Struct, frozen=True):
    """
    The content of the file.
    """

    configTable: dict[str, dict[str, str]] = {}


def decodeKVConfig(data: bytes) -> ConfigTable:
    """
    Decode the content of the file.

    @raise MalformedBody: if it cannot be parsed.
    """
    return decodeBody(KVConfigSerializeWrapper, data).configTable


class KVConfig:
    """
    The key-value table.
    """

    def __init__(
        self,
        save: Callable[[bytes], Deferred[None]],
        configTable: ConfigTable | None = None,
        gradually: Callable[[Gradual[bytes]], Deferred[bytes]] = lambda work: succeed(finish(work)),
    ) -> None:
        """
        @param save: replaces the file.  It is not called again before its Deferred has
            fired.
        @param configTable: the content of the file.
        @param gradually: does the steps of a long work in several turns.
        """
        self._gradually = gradually
        self._save = save
        self._configTable = configTable or {}
        self._turn = DeferredLock()

    def get(self, namespace: str, key: str) -> str | None:
        """
        The value of a key; L{None} if it does not exist.
        """
        return self._configTable.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> KVTable | None:
        """
        The keys and values of a namespace; L{None} if it does not exist.  A namespace
        still exists after its last key is deleted.
        """
        values = self._configTable.get(namespace)
        return KVTable(values) if values is not None else None

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """
        Set a value.

        @return: a Deferred that fires once the change is saved.
        """
        return self._change(lambda table: table.setdefault(namespace, {}).update({key: value}))

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """
        Delete a value, if it exists.

        @return: a Deferred that fires once the change is saved.
        """
        return self._change(lambda table: table.get(namespace, {}).pop(key, None))

    def saved(self) -> Deferred[None]:
        """
        Return a Deferred that fires once all changes so far are saved.
        """
        return self._turn.run(lambda: None)

    def _change(self, change: Callable[[ConfigTable], object]) -> Deferred[None]:
        # A Deferred of its own: if the caller cancels it, the write in the lock goes on
        # to its end.
        saved: Deferred[None] = Deferred()
        self._turn.run(self._saveChange, change).chainDeferred(saved)
        return saved

    def _saveChange(self, change: Callable[[ConfigTable], object]) -> Deferred[None]:
        table = {namespace: dict(values) for namespace, values in self._configTable.items()}
        change(table)
        encoded = self._gradually(encodeGradually(KVConfigSerializeWrapper(table)))

        def save(data: bytes) -> Deferred[None]:
            if len(data) > _LIMIT:
                raise RemoteSystemError(
                    f"the key-value table would have {len(data)} bytes: the limit is {_LIMIT}"
                )
            return self._save(data)

        def replaceTable(none: None) -> None:
            self._configTable = table

        return encoded.addCallback(save).addCallback(replaceTable)
