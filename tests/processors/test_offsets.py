# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.clients.offsets}.
"""

from __future__ import annotations

from tests.processors.admincase import NOW, AdminCase
from txrocket.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)


class GroupOffsetTests(AdminCase):
    """
    A group's own offsets.
    """

    def query(self, group: str = "G", topic: str = "T", queueId: int = 0) -> str:
        """
        A group's offset, as it stands in the answer.
        """
        header = QueryConsumerOffsetRequestHeader(group, topic, queueId)
        answer = self.succeed(RequestCode.QUERY_CONSUMER_OFFSET, header)
        self.assertEqual({"offset"}, set(answer.extFields))
        return answer.extFields["offset"]

    def test_committedOffsetIsReturned(self) -> None:
        """
        What a group commits it is told when it asks.
        """
        self.topic(queues=4)
        self.fill(4, queueId=3)
        header = UpdateConsumerOffsetRequestHeader("G", "T", 3, 4)
        answer = self.succeed(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self.assertEqual(({}, b""), (answer.extFields, answer.body))
        self.assertEqual("4", self.query(queueId=3))

    def test_beyondMaximumIsRefused(self) -> None:
        """
        An offset that the queue has not come to is refused, and the group stays where it
        is; the log tells of it once.
        """
        self.topic()
        self.fill(4)
        self.commit("G", "T", 2)
        for offset in (5, 1_048_627, 2**63 - 1):
            header = UpdateConsumerOffsetRequestHeader("G", "T", 0, offset)
            remark = self.refused(
                ResponseCode.SYSTEM_ERROR, RequestCode.UPDATE_CONSUMER_OFFSET, header
            )
            self.assertIn("the next message in queue 0 of T gets 4", remark)
            command = requestCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=True)
            self.peer.dataReceived(command.encode())
            self.assertIsNone(self.answer())
            self.assertEqual("2", self.query())

    def test_beyondMaximumIsLeftAgain(self) -> None:
        """
        A group whose offset is beyond the maximum, because messages are gone, can go back.
        """
        self.topic()
        self.fill(4)
        self.commit("G", "T", 900)
        self.assertEqual("900", self.query())
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 4)
        self.succeed(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self.assertEqual("4", self.query())

    def test_onewayCommitGetsNoResponse(self) -> None:
        """
        Most clients commit without waiting for an answer, and get none.
        """
        self.topic()
        self.fill(4)
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 4)
        command = requestCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=True)
        self.peer.dataReceived(command.encode())
        self.assertIsNone(self.answer())
        self.assertEqual("4", self.query())

    def test_newGroupBeginsAtFirstMessage(self) -> None:
        """
        A new group begins with the first message of a queue that still has all
        its messages, of one that has none, and of one that is not there.
        """
        self.topic()
        self.fill(3)
        self.assertEqual("0", self.query())
        self.assertEqual("0", self.query(queueId=1))
        self.assertEqual("0", self.query(topic="missing"))

    def test_notAll(self) -> None:
        """
        Where messages are gone already a new group has to know itself where to
        begin.
        """
        self.fill(3)
        queue = self.store.queues.get("T", 0)
        assert queue is not None
        queue.minOffset = 1
        header = QueryConsumerOffsetRequestHeader("G", "T", 0)
        self.refused(ResponseCode.QUERY_NOT_FOUND, RequestCode.QUERY_CONSUMER_OFFSET, header)

    def test_oldQueueLeavesStartToClient(self) -> None:
        """
        So it has where the first message is so old that it would be read from the
        disk.
        """
        self.fill(3)
        self.store.reader.messages.near = 200
        header = QueryConsumerOffsetRequestHeader("G", "T", 0)
        self.refused(ResponseCode.QUERY_NOT_FOUND, RequestCode.QUERY_CONSUMER_OFFSET, header)
        self.commit("G", "T", 1)
        self.assertEqual("1", self.query())

    def test_invalidNameIsRefused(self) -> None:
        """
        No offset is kept under a name that no topic or group can have: the file
        could not tell where one ends and the other begins.
        """
        for group, topic in (("a@b", "T"), ("G", "a@b"), ("", "T"), ("G", "x" * 128)):
            header = UpdateConsumerOffsetRequestHeader(group, topic, 0, 1)
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self.assertEqual({}, self.offsets.wrapper().offsetTable)

    def test_missingFieldIsNamed(self) -> None:
        """
        A request that lacks a field is refused, and the answer names it.
        """
        self.assertIn(
            "commitOffset",
            self.refused(
                ResponseCode.SYSTEM_ERROR,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader("G", "T", 0),
            ),
        )


class QueueTests(AdminCase):
    """
    Where queues begin and end.
    """

    def test_minAndMaxOffsetAreReturned(self) -> None:
        """
        The offset of the first message and the one that the next will get.
        """
        self.fill(5)
        for code, header, offset in (
            (RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 0), "5"),
            (RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader("T", 0), "0"),
            (RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 1), "0"),
            (RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader("U", 0), "0"),
        ):
            self.assertEqual({"offset": offset}, self.succeed(code, header).extFields)

    def test_byTime(self) -> None:
        """
        The offset of what was stored at a time.
        """
        self.fill(5)
        for timestamp, offset in ((0, "0"), (NOW + 2000, "2"), (NOW + 99_000, "4")):
            header = SearchOffsetRequestHeader("T", 0, timestamp)
            answer = self.succeed(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            self.assertEqual({"offset": offset}, answer.extFields)

    def test_earliestTimeIsReturned(self) -> None:
        """
        When the first message was stored; -1 if the queue is empty.
        """
        self.fill(2)
        for queueId, timestamp in ((0, str(NOW)), (1, "-1")):
            header = GetEarliestMsgStoretimeRequestHeader("T", queueId)
            answer = self.succeed(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            self.assertEqual({"timestamp": timestamp}, answer.extFields)


class AllTests(AdminCase):
    """
    Offsets of many groups.
    """

    def test_wholeTableIsReturned(self) -> None:
        """
        A slave gets the whole table.
        """
        self.commit("G", "T", 1, 2)
        answer = self.succeed(RequestCode.GET_ALL_CONSUMER_OFFSET)
        body = decodeBody(ConsumerOffsetSerializeWrapper, answer.body)
        self.assertEqual({"T@G": {0: 1, 1: 2}}, body.offsetTable)

    def test_delayOffsetsAreReturned(self) -> None:
        """
        And the table of delays, first without one delivered, then with some.
        """
        for offsets, text in (
            ({}, b'{"offsetTable":{}}'),
            ({1: 7, 18: 2}, b'{"offsetTable":{1:7,18:2}}'),
        ):
            self.delays.offsets = offsets
            answer = self.succeed(RequestCode.GET_ALL_DELAY_OFFSET)
            self.assertEqual(text, answer.body)
            table = decodeBody(DelayOffsetSerializeWrapper, answer.body).offsetTable
            self.assertEqual(offsets, table)

    def corrections(self, group: str, without: str | None = None) -> dict[int, int]:
        """
        What a group is to be corrected to.
        """
        header = QueryCorrectionOffsetHeader(group, "T", without)
        answer = self.succeed(RequestCode.QUERY_CORRECTION_OFFSET, header)
        return decodeBody(QueryCorrectionOffsetBody, answer.body).correctionOffsets

    def test_leastOffsetsAreReturned(self) -> None:
        """
        The least offset of all groups in each queue, some left out; where the
        group that is compared with is before it, there is nothing to correct.
        """
        self.commit("G", "T", 5, 9)
        self.commit("H", "T", 7, 6)
        self.commit("I", "T", 1)
        self.assertEqual({0: 1, 1: 6}, self.corrections("J"))
        self.assertEqual({0: 5, 1: 6}, self.corrections("J", "I"))
        self.assertEqual({0: 2**63 - 1, 1: 6}, self.corrections("I", "I"))
        self.assertEqual({0: 7, 1: 6}, self.corrections("J", "I,G"))

    def test_correctionsWithinQueue(self) -> None:
        """
        An offset before the queue's first message does not count.
        """
        self.commit("G", "T", 5, 9)
        self.commit("I", "T", 1)
        self.patch(self.store, "minOffset", lambda topic, queueId: 5)
        self.assertEqual({0: 5, 1: 9}, self.corrections("J"))

    def clone(self, topic: str | None = None, offline: bool = False) -> set[str]:
        """
        Clone G's offsets to a new group.

        @return: the topics in which it has some then.
        """
        header = CloneGroupOffsetRequestHeader("G", "new", topic, offline)
        self.succeed(RequestCode.CLONE_GROUP_OFFSET, header)
        topics = self.offsets.topicsOf("new")
        self.offsets.removeGroup("new")
        return topics

    def test_cloneCopiesExistingTopics(self) -> None:
        """
        A group gets another's offsets in one topic or in all, of those that are
        there.
        """
        for topic in ("T", "U"):
            self.topic(topic)
            self.commit("G", topic, 3, 4)
        self.commit("G", "gone", 1)
        self.assertEqual({"T", "U"}, self.clone())
        self.assertEqual({"U"}, self.clone("U"))
        self.assertEqual(set(), self.clone("gone"))
        header = CloneGroupOffsetRequestHeader("G", "new", "T")
        self.succeed(RequestCode.CLONE_GROUP_OFFSET, header)
        self.assertEqual({0: 3, 1: 4}, self.offsets.of("new", "T"))

    def test_cloneOnline(self) -> None:
        """
        Of a group that is online only what it subscribes to is cloned, unless all
        is asked for.
        """
        for topic in ("T", "U"):
            self.topic(topic)
            self.commit("G", topic, 3)
        self.join("G", "T")
        self.assertEqual({"T"}, self.clone())
        self.assertEqual({"T", "U"}, self.clone(offline=True))

    def test_cloneName(self) -> None:
        """
        The new group must be able to have its name.
        """
        header = CloneGroupOffsetRequestHeader("G", "a@b")
        self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.CLONE_GROUP_OFFSET, header)
