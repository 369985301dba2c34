# SPDX-License-Identifier: Apache-2.0
"""
Requests for the key-value configuration that a name server stores for applications.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.errors import QueryNotFound
from txrocket.nameserver.kvconfig import KVConfig
from txrocket.processors.cooperate import Slices, promptly, telling
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["KVConfigRequests"]

# More of a key or a value would hide the rest of a line of the log.
_SHOWN: Final = 200


class KVConfigRequests:
    """
    Set, read and delete values.
    """

    _log = Logger()

    def __init__(self, kvConfig: KVConfig, slices: Slices) -> None:
        self._kvConfig = kvConfig
        self._slices = slices

    def codes(self) -> dict[int, Process]:
        """
        The function for each request code.
        """
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list,
        }

    def put(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        PUT_KV_CONFIG: answered once the value is kept.
        """
        header = request.decodeHeader(PutKVConfigRequestHeader)
        self._tell(peer, header.namespace, header.key, header.value)
        kept = self._kvConfig.put(header.namespace, header.key, header.value)
        return kept.addCallback(lambda none: responseCommand())

    def get(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        GET_KV_CONFIG.
        """
        header = request.decodeHeader(GetKVConfigRequestHeader)
        value = self._kvConfig.get(header.namespace, header.key)
        if value is None:
            raise QueryNotFound(f"namespace {header.namespace} has no key {header.key}")
        return responseCommand(header=GetKVConfigResponseHeader(value))

    def delete(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        DELETE_KV_CONFIG: SUCCESS also if there was nothing to delete.
        """
        header = request.decodeHeader(DeleteKVConfigRequestHeader)
        self._tell(peer, header.namespace, header.key, None)
        kept = self._kvConfig.delete(header.namespace, header.key)
        return kept.addCallback(lambda none: responseCommand())

    def list(self, request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        GET_KVLIST_BY_NAMESPACE.
        """
        header = request.decodeHeader(GetKVListByNamespaceRequestHeader)
        table = self._kvConfig.namespace(header.namespace)
        if table is None:
            raise QueryNotFound(f"there is no namespace {header.namespace}")
        return promptly(self._slices, telling(table))

    def _tell(self, peer: RemotingProtocol, namespace: str, key: str, value: str | None) -> None:
        self._log.warn(
            "{peer} changes the key {key} of the namespace {namespace}: {before} -> {after}",
            peer=peer.address,
            key=_shown(key),
            namespace=_shown(namespace),
            before=_shown(self._kvConfig.get(namespace, key)),
            after=_shown(value),
        )


def _shown(text: str | None) -> str:
    """
    As much of a text as a line of the log has room for, on one line.
    """
    if text is None:
        return "None"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"
