# SPDX-License-Identifier: Apache-2.0
"""
Tests that what administrators change over the network is logged as a warning.
"""

from __future__ import annotations

from twisted.logger import capturedLogs

from tests.processors.admincase import AdminCase, warnings
from txrocket.model import SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    ResetOffsetRequestHeader,
)
from txrocket.protocol.headers.fields import Header


class AdminLogTests(AdminCase):
    """
    The warnings of a broker.
    """

    def warned(self, code: int, header: Header | None = None, body: bytes = b"") -> str:
        """
        The one warning that a request leaves, after the address of the peer.
        """
        with capturedLogs() as events:
            self.succeed(code, header, body)
        [said] = warnings(events)
        address, _, rest = said.partition(" ")
        self.assertEqual(self.peer.address, address)
        return rest

    def test_topicChangesAreLogged(self) -> None:
        """
        A topic that is made, changed or deleted is logged as it was and as it is.
        """

        def create(queues: int) -> CreateTopicRequestHeader:
            return CreateTopicRequestHeader(
                "T", "TBW102", queues, queues, 6, "SINGLE_TAG", 0, False
            )

        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        one, two = TopicConfig("T", 1, 1), TopicConfig("T", 2, 2)
        self.assertEqual(self.warned(code, create(1)), f"made topic T: None -> {one}")
        self.assertEqual(self.warned(code, create(2)), f"changed topic T: {one} -> {two}")
        self.assertEqual(
            self.warned(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T")),
            f"deletes topic T and its queues: {two} -> None",
        )

    def test_groupChangesAreLogged(self) -> None:
        """
        A group that is made, changed or deleted is logged as it was and as it is.
        """
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        one = SubscriptionGroupConfig("G")
        two = SubscriptionGroupConfig("G", consumeEnable=False)
        self.assertEqual(
            self.warned(code, body=encodeBody(one)), f"made consumer group G: None -> {one}"
        )
        self.assertEqual(
            self.warned(code, body=encodeBody(two)), f"changed consumer group G: {one} -> {two}"
        )
        header = DeleteSubscriptionGroupRequestHeader("G", True)
        self.assertEqual(
            self.warned(RequestCode.DELETE_SUBSCRIPTIONGROUP, header),
            f"deletes consumer group 'G' and its offsets: {two} -> None",
        )

    def test_clonedOffsetsAreLogged(self) -> None:
        """
        Offsets that a group is given are logged as they were and as they are.
        """
        self.topic()
        self.fill(5)
        self.commit("G", "T", 4, 0)
        self.commit("H", "T", 2)
        header = CloneGroupOffsetRequestHeader("G", "H", "T", True)
        self.assertEqual(
            self.warned(RequestCode.CLONE_GROUP_OFFSET, header),
            "gives group H the offsets of 'G' in T: {0: 2} -> {0: 4, 1: 0}",
        )
        self.join("G", "T")
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        with capturedLogs() as events:
            self.ask(code, ResetOffsetRequestHeader("T", "G", 0, True))
        [said] = warnings(events)
        self.assertEqual(
            said,
            f"{self.peer.address} takes group G to other offsets in 2 queues of T: {{0: 0, 1: 0}}",
        )

    def test_fileDeletionIsLogged(self) -> None:
        """
        A request to delete old files is logged with what came of it.
        """
        self.assertEqual(
            self.warned(RequestCode.DELETE_EXPIRED_COMMITLOG),
            "had files of the log deleted that are older than fileReservedTime: 0",
        )
