# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.names}.
"""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.broker.names import (
    NOT_SENT_TO,
    SYSTEM_TOPICS,
    checkGroup,
    checkNotSystem,
    checkSendable,
    checkTopic,
    isSystemGroup,
    isSystemTopic,
    retryTopic,
)
from txrocket.errors import NoPermission, RemoteSystemError

LEGAL = string.ascii_letters + string.digits + "_-%|"


class CheckTests(SynchronousTestCase):
    """
    L{checkTopic} and L{checkGroup}.
    """

    @given(st.text(alphabet=LEGAL, min_size=1, max_size=127))
    def test_validNameIsReturned(self, name: str) -> None:
        """
        Letters, digits and C{_-%|} make a name, which is given back.
        """
        self.assertEqual(checkTopic(name), name)
        self.assertEqual(checkGroup(name), name)

    @given(
        st.text(alphabet=LEGAL, max_size=20),
        st.characters().filter(lambda each: each not in LEGAL),
        st.text(alphabet=LEGAL, max_size=20),
    )
    def test_otherCharacterIsRefused(self, before: str, bad: str, after: str) -> None:
        """
        A single other character spoils a name, wherever it stands: a line feed
        at the end, a digit of another script, half of a surrogate pair.
        """
        self.assertRaises(RemoteSystemError, checkTopic, before + bad + after)
        self.assertRaises(RemoteSystemError, checkGroup, before + bad + after)

    def test_nameCannotLeaveTheStore(self) -> None:
        """
        No name leads out of the store's folder.
        """
        for name in (".", "..", "../a", "/etc", "a/b", "a\\b", "a\0"):
            self.assertRaises(RemoteSystemError, checkTopic, name)
            self.assertRaises(RemoteSystemError, checkGroup, name)

    def test_blankNameIsRefused(self) -> None:
        """
        No name is no name.
        """
        for name in (None, "", " ", "\t\n"):
            error = self.assertRaises(RemoteSystemError, checkTopic, name)
            self.assertEqual(error.remark, "the topic is blank")
            error = self.assertRaises(RemoteSystemError, checkGroup, name)
            self.assertEqual(error.remark, "the group is blank")

    def test_longNameIsRefused(self) -> None:
        """
        A topic has at most 127 characters, a group 255.
        """
        checkTopic("t" * 127)
        checkGroup("g" * 255)
        error = self.assertRaises(RemoteSystemError, checkTopic, "t" * 128)
        self.assertIn("has 128 characters, at most 127 are allowed", error.remark)
        error = self.assertRaises(RemoteSystemError, checkGroup, "g" * 256)
        self.assertIn("has 256 characters, at most 255 are allowed", error.remark)

    def test_remarkNamesTheFault(self) -> None:
        """
        The remark names what is wrong and stays short; the code is SYSTEM_ERROR,
        as Java's.
        """
        error = self.assertRaises(RemoteSystemError, checkTopic, "no spaces\n")
        self.assertEqual(
            error.remark,
            "the topic 'no spaces\\n' holds characters other than letters, digits and _-%|",
        )
        self.assertEqual(error.code, 1)
        error = self.assertRaises(RemoteSystemError, checkTopic, "x" * 1000000)
        self.assertLess(len(error.remark), 200)

    def test_namesOfRealClientsAreValid(self) -> None:
        """
        The names that real clients use are legal.
        """
        checked = set()
        for each in captures():
            fields = each.header.get("extFields") or {}
            if each.kind == "response":
                continue
            for key in ("topic", "originTopic", "defaultTopic"):
                if key in fields:
                    checkTopic(fields[key])
                    checked.add(fields[key])
            for key in ("consumerGroup", "producerGroup", "groupName", "group"):
                if fields.get(key):
                    checkGroup(fields[key])
                    checked.add(fields[key])
        self.assertGreater(len(checked), 10)


class SystemTests(SynchronousTestCase):
    """
    Names with a meaning of their own.
    """

    def test_systemTopicsAreKnown(self) -> None:
        """
        The nine topics of C{TopicValidator} and every topic that begins with C{rmq_sys_}
        are the broker's own, which no administrator may create or delete.
        """
        self.assertEqual(len(SYSTEM_TOPICS), 9)
        for topic in (*SYSTEM_TOPICS, "rmq_sys_", "rmq_sys_anything"):
            self.assertTrue(isSystemTopic(topic))
            error = self.assertRaises(RemoteSystemError, checkNotSystem, topic)
            self.assertIn(topic, error.remark)
        for topic in ("RMQ_SYS_ANYTHING", "Orders", "%RETRY%rmq_sys_"):
            self.assertFalse(isSystemTopic(topic))
            checkNotSystem(topic)

    def test_systemTopicsRefuseSends(self) -> None:
        """
        Six of them take no messages from clients: NO_PERMISSION.  The benchmark's
        and the trace's do.
        """
        self.assertEqual(len(NOT_SENT_TO), 6)
        for topic in NOT_SENT_TO:
            error = self.assertRaises(NoPermission, checkSendable, topic)
            self.assertIn(topic, error.remark)
        for topic in ("BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "TBW102", "Orders"):
            checkSendable(topic)

    def test_systemGroupsAreKnownByPrefix(self) -> None:
        """
        The broker's own groups are known by their prefix.
        """
        self.assertTrue(isSystemGroup("CID_RMQ_SYS_TRANS"))
        self.assertFalse(isSystemGroup("CID_ONSAPI_PULL"))

    def test_retryTopicHasJavasPrefix(self) -> None:
        """
        A retry topic is the group with RocketMQ's prefix.
        """
        self.assertEqual(retryTopic("G"), "%RETRY%G")
