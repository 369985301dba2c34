# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's broker reads the tables that ours has written.  Not named C{test_...}: it needs
Java, and is run by C{make interop} only.
"""

from __future__ import annotations

import json
import os
import subprocess

from tests.interop import programs
from tests.processors.support import sendHeader
from tests.test_services import HEARTBEAT, SEND, ServicesTests
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import CreateTopicRequestHeader, UpdateConsumerOffsetRequestHeader

TABLES = ("topics", "subscriptionGroup", "consumerOffset", "consumerFilter", "delayOffset")


class TablesTests(ServicesTests):
    """
    The tables of a folder that our broker has closed, read by RocketMQ's broker.
    """

    def prepare(self) -> None:
        """
        Let a broker have a topic, a group, an offset, a filter and a delayed message.
        """
        made = self.start(enablePropertyFilter="true", messageDelayLevel="1s 2h")
        caller = self.call()
        topic = CreateTopicRequestHeader(
            "Chosen",
            "TBW102",
            readQueueNums=3,
            writeQueueNums=3,
            perm=6,
            topicFilterType="SINGLE_TAG",
        )
        beat = HEARTBEAT.format("c").replace('"subString":"*"', '"subString":"a > 1"')
        beat = beat.replace('"subVersion":1', '"subVersion":1,"expressionType":"SQL92"')
        offset = UpdateConsumerOffsetRequestHeader("G", "T", 0, 1)
        for code, header, body in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, topic, b""),
            (SEND, sendHeader(), b"x"),
            (SEND, sendHeader(properties="DELAY\x011"), b"y"),
            (RequestCode.HEART_BEAT, None, beat.encode()),
            (RequestCode.UPDATE_CONSUMER_OFFSET, offset, b""),
        ):
            answer = self.ask(caller, code, header, body)
            self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)
        self.turn(30)
        stopped = made.stopService()
        self.turn(1)
        self.successResultOf(stopped)

    def test_tablesAreReadByJava(self) -> None:
        """
        RocketMQ's broker ignores the checksums of our tables, and finds all topics, groups,
        offsets, filters and delays in them.
        """
        self.prepare()
        config = os.path.join(self.root, "config")
        for name in TABLES:
            with open(os.path.join(config, f"{name}.json"), encoding="utf-8") as table:
                self.assertIn("txrocketCrc32", table.read(), name)
        command = programs.java("JavaTables", os.path.abspath(self.root), "4096", "200", "8", "40")
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = json.loads(ran.stdout)
        self.assertEqual(found["topics"]["Chosen"]["readQueueNums"], 3)
        self.assertIn("T", found["topics"])
        self.assertIn("%RETRY%G", found["topics"])
        self.assertIn("G", found["groups"])
        self.assertEqual(found["offsets"], {"T@G": {"0": 1}})
        self.assertEqual(found["delays"], {"offsetTable": {"1": 1}})
        self.assertEqual(found["filters"], {"T@G": "a > 1"})
