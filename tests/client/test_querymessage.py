# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.querymessage}.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel

from tests.client.brokers import A1, A
from tests.client.network import routeTo
from tests.client.querycase import QueryCase, record
from txrocket.client.querymessage import queryMessages
from txrocket.errors import (
    ConnectFailed,
    MalformedRecord,
    RemoteSystemError,
    RequestTimedOut,
    TopicNotExist,
)
from txrocket.protocol.headers import QueryMessageRequestHeader


class QueryTests(QueryCase):
    """
    Messages of T with the key k, at two brokers.
    """

    def query(self, **options: Any) -> list[bytes]:
        """
        The bodies of what is found.
        """
        return [each.body for each in self.got(queryMessages(self.cluster, "T", "k", **options))]

    def test_messagesOfAllBrokersAreSorted(self) -> None:
        """
        The messages of all brokers are returned, the oldest first.
        """
        self.has("a", record(b"3", 3), record(b"1", 1))
        self.has("b", record(b"2", 2))
        found = self.got(queryMessages(self.cluster, "T", "k"))
        self.assertEqual([each.body for each in found], [b"1", b"2", b"3"])
        self.assertEqual([each.brokerName for each in found], ["a", "b", "a"])
        header = QueryMessageRequestHeader("T", "k", 64, 0, 2**63 - 1)
        self.assertEqual(self.asked, [("a", header), ("b", header)])

    def test_requestHasNumberAndTimes(self) -> None:
        """
        Brokers get the number and the times.
        """
        self.has("a", record(b"1", 1))
        self.assertEqual(self.query(most=3, begin=1.5, end=2.0), [b"1"])
        self.assertEqual(self.asked[0][1], QueryMessageRequestHeader("T", "k", 3, 1500, 2000))

    def test_otherKeysAndTopicsAreLeftOut(self) -> None:
        """
        A message that only has the hash of the key is left out, and so is one of another
        topic.
        """
        self.has(
            "a",
            record(b"1", 1, "x k y"),
            record(b"2", 2, "kk"),
            record(b"3", 3, "k", topic="U"),
        )
        self.assertEqual(self.query(), [b"1"])

    def test_noMatchGivesNone(self) -> None:
        """
        If no broker has a match, the list is empty.
        """
        self.assertEqual(self.query(), [])

    def test_slaveIsAskedWithoutMaster(self) -> None:
        """
        A slave is asked if there is no master.
        """
        self.ns.routes["T"] = routeTo(a={1: A1})
        self.has("a1", record(b"1", 1))
        self.assertEqual(self.query(), [b"1"])

    def test_oneFailureIsLogged(self) -> None:
        """
        If one broker fails, the messages of the others are returned, with a warning.
        """
        self.has("a", record(b"1", 1))
        self.fails("b", RemoteSystemError("broken"))
        self.assertEqual(self.query(), [b"1"])
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn("Messages of T with the key k may be missing", warning)
        self.assertIn("broken", warning)

    def test_oneSilentBrokerIsLogged(self) -> None:
        """
        The same holds if one does not answer in time.
        """
        self.has("a", record(b"1", 1))
        self.b.mute = True
        found = queryMessages(self.cluster, "T", "k", timeout=2.0)
        self.network.advance(1.9)
        self.assertNoResult(found)
        self.network.advance(0.1)
        self.network.advance(1)
        self.assertEqual([each.body for each in self.successResultOf(found)], [b"1"])

    def test_allFailuresAreError(self) -> None:
        """
        If all fail, the query fails.
        """
        self.fails("a", RemoteSystemError("broken"))
        self.fails("b", RemoteSystemError("broken"))
        self.failed(queryMessages(self.cluster, "T", "k"), RemoteSystemError)
        self.a.mute = self.b.mute = True
        found = queryMessages(self.cluster, "T", "k")
        self.network.advance(5)
        self.failureResultOf(found, RequestTimedOut)

    def test_malformedAnswerIsError(self) -> None:
        """
        If the answer of the only broker cannot be decoded, the query fails.
        """
        self.ns.routes["T"] = routeTo(a={0: A})
        self.has("a", record(b"1", 1)[:-1])
        self.failed(queryMessages(self.cluster, "T", "k"), MalformedRecord)

    def test_missingTopicIsError(self) -> None:
        """
        A topic without a route or a broker is an error.
        """
        self.failed(queryMessages(self.cluster, "U", "k"), TopicNotExist)
        self.ns.routes["T"] = routeTo(a={})
        self.failed(queryMessages(self.cluster, "T", "k"), ConnectFailed)
