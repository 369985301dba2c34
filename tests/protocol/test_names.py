# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.names}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import InvalidMessage
from txrocket.protocol.names import checkGroupName, checkSendTopic, checkTopicName


class NameTests(SynchronousTestCase):
    """
    What Java's C{Validators} let pass, and what not.
    """

    def test_legal(self) -> None:
        """
        Letters, digits and four other characters, 127 for a topic and 255 for a
        group at most.
        """
        for name in ("a", "%RETRY%group", "A-Z_09|", "t" * 127):
            checkTopicName(name)
            checkSendTopic(name)
            checkGroupName(name)
        checkGroupName("g" * 255)

    def test_illegal(self) -> None:
        """
        What is wrong with a name is told, with no more of it than fits a line.
        """
        for check, what, limit in (
            (checkTopicName, "topic", 127),
            (checkSendTopic, "topic", 127),
            (checkGroupName, "group", 255),
        ):
            for name, reason in (
                ("", "is blank"),
                (" \t", "is blank"),
                ("a b", "'a b' holds characters"),
                ("a\n", "holds characters"),
                ("größe", "holds characters"),
                ("x" * (limit + 1), f"has {limit + 1} characters, at most {limit}"),
            ):
                error = self.assertRaises(InvalidMessage, check, name)
                self.assertIn(f"the {what}", str(error))
                self.assertIn(reason, str(error))
                self.assertLess(len(str(error)), 200)

    def test_brokersOwn(self) -> None:
        """
        The topics that Java's C{TopicValidator} keeps from senders are kept from
        them here; what they inherit from is a topic like others.
        """
        for name in (
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
        ):
            checkTopicName(name)
            error = self.assertRaises(InvalidMessage, checkSendTopic, name)
            self.assertIn(name, str(error))
        for name in ("TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"):
            checkSendTopic(name)
