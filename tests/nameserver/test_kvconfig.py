# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.nameserver.kvconfig}.
"""

from __future__ import annotations

import json

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody, RemoteSystemError, StoreFailed
from txrocket.nameserver import kvconfig
from txrocket.nameserver.kvconfig import KVConfig, decodeKVConfig
from txrocket.protocol.bodies import KVTable


class Disk:
    """
    Stores files when the test says so.

    @ivar written: what it was given, and the Deferred that waits for it.
    """

    def __init__(self) -> None:
        self.written: list[tuple[bytes, Deferred[None]]] = []

    def save(self, data: bytes) -> Deferred[None]:
        """
        Begin to write.
        """
        done: Deferred[None] = Deferred()
        self.written.append((data, done))
        return done


class KVConfigTests(SynchronousTestCase):
    """
    The key-value table.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.kvConfig = KVConfig(self.disk.save, {"n": {"k": "v"}})

    def test_valueIsFoundByKey(self) -> None:
        """
        A value is found by namespace and key.
        """
        self.assertEqual(self.kvConfig.get("n", "k"), "v")
        self.assertIsNone(self.kvConfig.get("n", "l"))
        self.assertIsNone(self.kvConfig.get("m", "k"))

    def test_unknownNamespaceIsNone(self) -> None:
        """
        A namespace is a table; a namespace that was never set is L{None}.
        """
        self.assertEqual(self.kvConfig.namespace("n"), KVTable({"k": "v"}))
        self.assertIsNone(self.kvConfig.namespace("m"))

    def test_valueIsVisibleAfterWrite(self) -> None:
        """
        A value is visible once the file is written, and the file has Java's format.
        """
        done = self.kvConfig.put("m", "l", "harness-a:8")
        self.assertIsNone(self.kvConfig.get("m", "l"))
        ((data, writing),) = self.disk.written
        # KVConfigSerializeWrapper.toJson of 4.9.7.
        self.assertEqual(data, b'{"configTable":{"n":{"k":"v"},"m":{"l":"harness-a:8"}}}')
        self.assertNoResult(done)
        writing.callback(None)
        self.successResultOf(done)
        self.assertEqual(self.kvConfig.get("m", "l"), "harness-a:8")
        self.assertEqual(self.kvConfig.get("n", "k"), "v")

    def test_emptyNamespaceStays(self) -> None:
        """
        As in Java, a namespace stays when its last key is deleted, and deleting a missing
        key is no error.
        """
        kvConfig = KVConfig(lambda data: succeed(None), {"n": {"k": "v"}})
        for namespace, key in (("n", "k"), ("n", "k"), ("m", "k")):
            self.successResultOf(kvConfig.delete(namespace, key))
        self.assertEqual(kvConfig.namespace("n"), KVTable({}))
        self.assertIsNone(kvConfig.namespace("m"))

    def test_failedWriteChangesNothing(self) -> None:
        """
        A change whose write fails has no effect, and the next one may succeed.
        """
        done = self.kvConfig.put("n", "k", "new")
        self.disk.written.pop()[1].errback(StoreFailed("no"))
        self.failureResultOf(done, StoreFailed)
        self.assertEqual(self.kvConfig.get("n", "k"), "v")
        done = self.kvConfig.put("n", "l", "w")
        data, writing = self.disk.written.pop()
        self.assertEqual(json.loads(data), {"configTable": {"n": {"k": "v", "l": "w"}}})
        writing.callback(None)
        self.successResultOf(done)

    def test_changesAreWrittenInTurn(self) -> None:
        """
        Changes are written one after the other, and none is lost.
        """
        first = self.kvConfig.put("n", "k", "1")
        second = self.kvConfig.put("n", "l", "2")
        saved = self.kvConfig.saved()
        self.assertEqual(len(self.disk.written), 1)
        self.disk.written[0][1].callback(None)
        self.successResultOf(first)
        self.assertNoResult(second)
        self.assertNoResult(saved)
        data, writing = self.disk.written[1]
        self.assertEqual(json.loads(data), {"configTable": {"n": {"k": "1", "l": "2"}}})
        writing.callback(None)
        self.successResultOf(second)
        self.successResultOf(saved)

    def test_cancelledChangeIsStillWritten(self) -> None:
        """
        If the caller cancels, the write continues to its end, and the next change waits
        for it.
        """
        first = self.kvConfig.put("n", "k", "1")
        second = self.kvConfig.put("n", "k", "2")
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(len(self.disk.written), 1)
        self.disk.written[0][1].callback(None)
        self.assertEqual(self.kvConfig.get("n", "k"), "1")
        self.disk.written[1][1].callback(None)
        self.successResultOf(second)
        self.assertEqual(self.kvConfig.get("n", "k"), "2")

    def test_tableOverLimitIsRefused(self) -> None:
        """
        A change that makes the table too large for the response to a registration is
        refused.
        """
        self.patch(kvconfig, "_LIMIT", 60)
        kvConfig = KVConfig(lambda data: succeed(None))
        self.successResultOf(kvConfig.put("n", "k", "v" * 30))
        failure = self.failureResultOf(kvConfig.put("n", "l", "v"), RemoteSystemError)
        self.assertEqual(
            failure.value.remark, "the key-value table would have 68 bytes: the limit is 60"
        )
        self.assertIsNone(kvConfig.get("n", "l"))
        self.successResultOf(kvConfig.put("n", "k", "v"))

    def test_javaFileIsDecoded(self) -> None:
        """
        Java's file is decoded, and other bytes are refused.
        """
        self.assertEqual(
            decodeKVConfig(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:8"},"n":{}}}'),
            {"ORDER_TOPIC_CONFIG": {"T": "a:8"}, "n": {}},
        )
        for data in (b"", b"{", b"[]", b'{"configTable":{"n":"v"}}'):
            self.assertRaises(MalformedBody, decodeKVConfig, data)
