# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.nameserver.kvconfig}.
"""

from __future__ import annotations

from pathlib import Path

from twisted.logger import LogLevel

from tests.processors.namesrvcase import NameServerTests
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from txrocket.store.jsontable import sealed


class KVConfigTests(NameServerTests):
    """
    Values of applications.
    """

    def put(self, namespace: str, key: str, value: str) -> None:
        """
        Set a value.
        """
        header = PutKVConfigRequestHeader(namespace, key, value)
        answer = self.ask(RequestCode.PUT_KV_CONFIG, header)
        self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))

    def test_putOutlivesRestart(self) -> None:
        """
        What was answered is in the file, and there after a restart.
        """
        self.put("n", "k", "v")
        path = Path(self.path)
        self.assertEqual(path.read_bytes(), sealed(b'{"configTable":{"n":{"k":"v"}}}'))
        self.start()
        answer = self.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader("n", "k"))
        self.assertEqual((answer.code, answer.extFields), (0, {"value": "v"}))

    def test_changeIsLogged(self) -> None:
        """
        The log tells at warning level which address changed which key from what to
        what, on one line of bounded length.
        """
        self.put("n", "k\nl", "v")
        self.put("n", "k\nl", "w" * 1000)
        self.ask(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader("n", "k\nl"))
        long = f"{'w' * 200!r}... (1000 characters)"
        self.assertEqual(
            self.logged(LogLevel.warn),
            [
                f"192.0.2.7:10911 changes the key 'k\\nl' of the namespace 'n': {each}"
                for each in ("None -> 'v'", f"'v' -> {long}", f"{long} -> None")
            ],
        )

    def test_unknownKeyIsNotFound(self) -> None:
        """
        What is not there is QUERY_NOT_FOUND.
        """
        for answer in (
            self.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader("n", "k")),
            self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader("n")),
        ):
            self.assertEqual((answer.code, answer.extFields), (ResponseCode.QUERY_NOT_FOUND, {}))
            self.assertIn("namespace n", answer.remark or "")

    def test_deletedKeyIsGone(self) -> None:
        """
        What is deleted is gone, and it may be deleted again.
        """
        self.put("n", "k", "v")
        for _ in range(2):
            header = DeleteKVConfigRequestHeader("n", "k")
            answer = self.ask(RequestCode.DELETE_KV_CONFIG, header)
            self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))
        answer = self.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader("n", "k"))
        self.assertEqual(answer.code, ResponseCode.QUERY_NOT_FOUND)

    def test_namespaceIsListed(self) -> None:
        """
        A namespace is given as a whole.
        """
        self.put("n", "k", "v")
        self.put("n", "l", "w")
        self.put("m", "k", "x")
        header = GetKVListByNamespaceRequestHeader("n")
        answer = self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        self.assertEqual((answer.code, answer.body), (0, b'{"table":{"k":"v","l":"w"}}'))

    def test_diskFails(self) -> None:
        """
        A value that cannot be kept is not set, and the answer says why.
        """
        folder = Path(self.path).parent
        folder.parent.mkdir()
        folder.write_text("a file in the place of the folder")
        answer = self.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader("n", "k", "v"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("kvConfig.json", answer.remark or "")
        answer = self.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader("n", "k"))
        self.assertEqual(answer.code, ResponseCode.QUERY_NOT_FOUND)
