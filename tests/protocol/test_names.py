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
    The names that Java's C{Validators} accept and refuse.
    """

    def test_legalNamesAreAccepted(self) -> None:
        """
        Letters, digits and four other characters are accepted, at most 127 for a topic
        and 255 for a group.
        """
        for name in ("a", "%RETRY%group", "A-Z_09|", "t" * 127):
            checkTopicName(name)
            checkSendTopic(name)
            checkGroupName(name)
        checkGroupName("g" * 255)

    def test_illegalNameIsQuotedShortened(self) -> None:
        """
        The error of a name that is not valid has the reason, and no more of the name than
        fits into a line.
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

    def test_brokersOwnTopicsAreRefused(self) -> None:
        """
        Clients may not send to the topics that Java's C{TopicValidator} reserves; they
        may send to TBW102.
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
