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
    Takes files when it is told to.

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
    Values that are kept.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.kvConfig = KVConfig(self.disk.save, {"n": {"k": "v"}})

    def test_get(self) -> None:
        """
        A value is found by namespace and key.
        """
        self.assertEqual(self.kvConfig.get("n", "k"), "v")
        self.assertIsNone(self.kvConfig.get("n", "l"))
        self.assertIsNone(self.kvConfig.get("m", "k"))

    def test_namespace(self) -> None:
        """
        A namespace is a table; one that was never set is none.
        """
        self.assertEqual(self.kvConfig.namespace("n"), KVTable({"k": "v"}))
        self.assertIsNone(self.kvConfig.namespace("m"))

    def test_put(self) -> None:
        """
        A value is seen once the file is written, and the file is Java's.
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

    def test_delete(self) -> None:
        """
        As in Java, a namespace stays when its last key is deleted, and it is no
        error to delete what is not there.
        """
        kvConfig = KVConfig(lambda data: succeed(None), {"n": {"k": "v"}})
        for namespace, key in (("n", "k"), ("n", "k"), ("m", "k")):
            self.successResultOf(kvConfig.delete(namespace, key))
        self.assertEqual(kvConfig.namespace("n"), KVTable({}))
        self.assertIsNone(kvConfig.namespace("m"))

    def test_failed(self) -> None:
        """
        A change that cannot be written is none, and the next one may succeed.
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

    def test_inTurn(self) -> None:
        """
        One change is written after the other, and none is forgotten.
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

    def test_cancelled(self) -> None:
        """
        When the one who asked is gone, the change is written to its end all the
        same, and the next one waits for that.
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

    def test_limit(self) -> None:
        """
        What no longer fits the answer to a registration is refused.
        """
        self.patch(kvconfig, "_LIMIT", 60)
        kvConfig = KVConfig(lambda data: succeed(None))
        self.successResultOf(kvConfig.put("n", "k", "v" * 30))
        failure = self.failureResultOf(kvConfig.put("n", "l", "v"), RemoteSystemError)
        self.assertEqual(
            failure.value.remark, "the settings would take 68 bytes, and the limit is 60"
        )
        self.assertIsNone(kvConfig.get("n", "l"))
        self.successResultOf(kvConfig.put("n", "k", "v"))

    def test_decode(self) -> None:
        """
        Java's file is read, and what is none is refused.
        """
        self.assertEqual(
            decodeKVConfig(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:8"},"n":{}}}'),
            {"ORDER_TOPIC_CONFIG": {"T": "a:8"}, "n": {}},
        )
        for data in (b"", b"{", b"[]", b'{"configTable":{"n":"v"}}'):
            self.assertRaises(MalformedBody, decodeKVConfig, data)
