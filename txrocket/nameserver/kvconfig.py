# SPDX-License-Identifier: Apache-2.0
"""
Settings of applications, kept by the name server for them: Java's
C{KVConfigManager}, and its file C{kvConfig.json}::

    {"configTable":{"ORDER_TOPIC_CONFIG":{"OrderTopic":"broker-a:8;broker-b:8"}}}
                     namespace            key          value

A change is written to the file first and seen afterwards, so what was once
answered is not lost by a crash, and a change that could not be written was none.
Java answers in any case and logs that the file could not be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from twisted.internet.defer import Deferred, DeferredLock, succeed

from txrocket.errors import RemoteSystemError
from txrocket.protocol.bodies import KVTable
from txrocket.protocol.bodycodec import decodeBody, encodeGradually
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.protocol.javajson import Gradual, finish

__all__ = ["ORDER_TOPIC_CONFIG", "ConfigTable", "KVConfig", "decodeKVConfig"]

#: The namespace whose keys are topics, and its values their order: Java's
#: C{NAMESPACE_ORDER_TOPIC_CONFIG}.
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"

# A whole namespace is told in one frame, with every registration among others.
_LIMIT: Final = FRAME_LIMIT // 2

ConfigTable = dict[str, dict[str, str]]


class KVConfigSerializeWrapper(msgspec.Struct, frozen=True):
    """
    What is in the file.
    """

    configTable: dict[str, dict[str, str]] = {}


def decodeKVConfig(data: bytes) -> ConfigTable:
    """
    The table that a file's bytes are.

    @raise MalformedBody: if they are none.
    """
    return decodeBody(KVConfigSerializeWrapper, data).configTable


class KVConfig:
    """
    The settings.
    """

    def __init__(
        self,
        save: Callable[[bytes], Deferred[None]],
        configTable: ConfigTable | None = None,
        gradually: Callable[[Gradual[bytes]], Deferred[bytes]] = lambda work: succeed(finish(work)),
    ) -> None:
        """
        @param save: replaces the file; called for one change after the other.
        @param configTable: what the file had in it.
        @param gradually: does work that takes long.
        """
        self._gradually = gradually
        self._save = save
        self._configTable = configTable or {}
        self._turn = DeferredLock()

    def get(self, namespace: str, key: str) -> str | None:
        """
        A value, if there is one.
        """
        return self._configTable.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> KVTable | None:
        """
        The keys and values of a namespace, if there is one.  It stays when the last
        of its keys is deleted.
        """
        values = self._configTable.get(namespace)
        return KVTable(values) if values is not None else None

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """
        Set a value.

        @return: a Deferred that fires once it is kept.
        """
        return self._change(lambda table: table.setdefault(namespace, {}).update({key: value}))

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """
        Delete a value, if it is there.

        @return: a Deferred that fires once that is kept.
        """
        return self._change(lambda table: table.get(namespace, {}).pop(key, None))

    def saved(self) -> Deferred[None]:
        """
        A Deferred that fires once all that was changed so far is kept.
        """
        return self._turn.run(lambda: None)

    def _change(self, change: Callable[[ConfigTable], object]) -> Deferred[None]:
        # Apart from what goes on in the lock: who cancels this Deferred waits no
        # longer, and a file that is being written is written to its end.
        kept: Deferred[None] = Deferred()
        self._turn.run(self._keep, change).chainDeferred(kept)
        return kept

    def _keep(self, change: Callable[[ConfigTable], object]) -> Deferred[None]:
        table = {namespace: dict(values) for namespace, values in self._configTable.items()}
        change(table)
        written = self._gradually(encodeGradually(KVConfigSerializeWrapper(table)))

        def save(data: bytes) -> Deferred[None]:
            if len(data) > _LIMIT:
                raise RemoteSystemError(
                    f"the settings would take {len(data)} bytes, and the limit is {_LIMIT}"
                )
            return self._save(data)

        def keep(none: None) -> None:
            self._configTable = table

        return written.addCallback(save).addCallback(keep)
