# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.admin.groups}.
"""

from __future__ import annotations

from typing import Any

from tests.processors.admincase import ADDRESS, BROKER, NOW, AdminCase
from tests.remoting.doubles import frame
from txrocket.model import MessageQueue, SubscriptionGroupConfig
from txrocket.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    SubscriptionGroupWrapper,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RESPONSE_FLAG, RemotingCommand, requestCommand
from txrocket.protocol.fastjson import finish
from txrocket.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from txrocket.protocol.messageid import encodeMessageId
from txrocket.protocol.record import decodeRecord


def queue(topic: str, queueId: int) -> MessageQueue:
    """
    A queue of the broker.
    """
    return MessageQueue(topic, BROKER, queueId)


class GroupTests(AdminCase):
    """
    Making, deleting and listing groups.
    """

    UPDATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP

    def test_groupIsCreatedAndChanged(self) -> None:
        """
        A group is made, and changed, as the body says.
        """
        for times in (3, 5):
            config = SubscriptionGroupConfig("G", consumeEnable=False, retryMaxTimes=times)
            answer = self.succeed(self.UPDATE, body=encodeBody(config))
            self.assertEqual(b"", answer.body)
            self.assertEqual(config, self.groups.find("G"))

    def test_invalidGroupIsRefused(self) -> None:
        """
        It must be able to have its name and its queues, and the body must be one.
        """
        before = dict(self.groups.table)
        for body in (
            encodeBody(SubscriptionGroupConfig("a b")),
            encodeBody(SubscriptionGroupConfig("x" * 256)),
            encodeBody(SubscriptionGroupConfig("G", retryQueueNums=-1)),
            encodeBody(SubscriptionGroupConfig("G", retryQueueNums=2**31 - 1)),
            b"{}",
            b"",
        ):
            self.refused(ResponseCode.SYSTEM_ERROR, self.UPDATE, body=body)
        self.assertEqual(before, self.groups.table)

    def test_notWritten(self) -> None:
        """
        One that cannot be written to the disk is no success.
        """
        self.disk.failing["pwrite"] = OSError("broken")
        body = encodeBody(SubscriptionGroupConfig("G"))
        self.refused(ResponseCode.SYSTEM_ERROR, self.UPDATE, body=body)

    def test_allGroupsAreReturned(self) -> None:
        """
        All groups, and the version of the table.
        """
        self.groups.find("G")
        answer = self.succeed(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        self.assertEqual(self.groups.wrapper(), decodeBody(SubscriptionGroupWrapper, answer.body))

    def test_deletedGroupLosesStatistics(self) -> None:
        """
        A group goes, and what was counted for it; its offsets too, if that is
        asked for.
        """
        for offsetsToo in (False, True):
            for group in ("G", "H"):
                self.groups.find(group)
                self.commit(group, "T", 5)
                self.stats.got(group, "T", 1, 1)
            header = DeleteSubscriptionGroupRequestHeader("G", offsetsToo)
            self.succeed(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            self.assertNotIn("G", self.groups.table)
            self.assertIn("H", self.groups.table)
            self.assertEqual({"H"} if offsetsToo else {"G", "H"}, self.offsets.groupsOf("T"))
            self.assertIsNone(self.stats.data("GROUP_GET_NUMS", "T@G"))
            self.assertIsNotNone(self.stats.data("GROUP_GET_NUMS", "T@H"))
        self.succeed(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("never")
        )


class ProgressTests(AdminCase):
    """
    How far groups have come.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()
        self.topic("U", 1, order=True)
        self.fill(5)
        self.fill(2, "U")

    def progress(self, group: str, topic: str | None = None) -> ConsumeStats:
        """
        How far a group has come.
        """
        header = GetConsumeStatsRequestHeader(group, topic)
        answer = self.succeed(RequestCode.GET_CONSUME_STATS, header)
        return decodeBody(ConsumeStats, answer.body)

    def test_progressListsEachQueue(self) -> None:
        """
        For each queue its end, the group's offset, and when the message before
        that was stored; for one in which the group has no offset 0.
        """
        self.commit("G", "T", 3)
        self.commit("G", "U", 2)
        self.assertEqual(
            {
                queue("T", 0): OffsetWrapper(5, 3, NOW + 2000),
                queue("T", 1): OffsetWrapper(0, 0, 0),
                queue("U", 0): OffsetWrapper(2, 2, NOW + 6000),
            },
            self.progress("G").offsetTable,
        )
        self.assertEqual({queue("U", 0)}, set(self.progress("G", "U").offsetTable))
        self.assertEqual({}, self.progress("new").offsetTable)
        self.assertEqual({queue("T", 0), queue("T", 1)}, set(self.progress("new", "T").offsetTable))

    def test_deletedTopicIsLeftOut(self) -> None:
        """
        Topics that are gone are left out; a message that is gone has no time.
        """
        self.commit("G", "missing", 3)
        self.commit("G", "U", 9)
        self.assertEqual({queue("U", 0): OffsetWrapper(2, 9, 0)}, self.progress("G").offsetTable)

    def test_unsubscribedTopicIsLeftOut(self) -> None:
        """
        Topics that a connected group does not subscribe to are left out; one that
        subscribes to nothing may consume anything.
        """
        self.commit("G", "T", 3)
        self.commit("G", "U", 2)
        one = self.join("G", "U")
        self.assertEqual({queue("U", 0)}, set(self.progress("G").offsetTable))
        self.assertEqual({}, self.progress("G", "T").offsetTable)
        one.lose()
        self.join("G")
        self.assertEqual(3, len(self.progress("G").offsetTable))

    def test_rateSumsTopics(self) -> None:
        """
        The rate is that of all topics together.
        """
        self.commit("G", "T", 3)
        self.commit("G", "U", 2)
        for topic, count in (("T", 70), ("U", 14), ("V", 700)):
            self.stats.got("G", topic, count, 1)
        finish(self.stats.sample())
        # Seven seconds have gone by.
        self.assertEqual(12.0, self.progress("G").consumeTps)
        self.assertEqual(2.0, self.progress("G", "U").consumeTps)

    def everything(self, ordered: bool = False) -> tuple[ConsumeStatsList, bytes]:
        """
        How far all groups have come.
        """
        answer = self.succeed(
            RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(ordered)
        )
        return decodeBody(ConsumeStatsList, answer.body), answer.body

    def test_allGroupsAreListed(self) -> None:
        """
        Each group that there is has a list, of one entry for each topic; all that
        they are behind is summed up.
        """
        self.groups.find("G")
        self.groups.find("H")
        self.commit("G", "T", 3)
        self.commit("G", "U", 1)
        self.commit("H", "U", 2)
        self.commit("unknown", "T", 1)
        told, body = self.everything()
        self.assertEqual((ADDRESS, 3), (told.brokerAddr, told.totalDiff))
        groups = {name: stats for each in told.consumeStatsList for name, stats in each.items()}
        self.assertEqual(set(self.groups.table), set(groups))
        self.assertEqual(
            (
                ConsumeStats(
                    {
                        queue("T", 0): OffsetWrapper(5, 3, NOW + 2000),
                        queue("T", 1): OffsetWrapper(0, 0, 0),
                    }
                ),
                ConsumeStats({queue("U", 0): OffsetWrapper(2, 1, NOW + 5000)}),
            ),
            groups["G"],
        )
        self.assertEqual(1, len(groups["H"]))
        self.assertEqual((), groups["TOOLS_CONSUMER"])
        # Written by parts, it is what it is when written as a whole.
        self.assertEqual(encodeBody(told), body)

    def test_orderedTopicsOnly(self) -> None:
        """
        One may ask for ordered topics only.
        """
        self.groups.find("G")
        self.commit("G", "T", 3)
        self.commit("G", "U", 1)
        told, _ = self.everything(ordered=True)
        (stats,) = next(each["G"] for each in told.consumeStatsList if "G" in each)
        self.assertEqual({queue("U", 0)}, set(stats.offsetTable))
        self.assertEqual(1, told.totalDiff)

    def test_unsubscribedTopicIsLeftOutOfAll(self) -> None:
        """
        What a connected group does not subscribe to is left out here too.
        """
        self.groups.find("G")
        self.commit("G", "T", 3)
        self.join("G", "U")
        told, _ = self.everything()
        self.assertEqual(0, told.totalDiff)


class CallTests(AdminCase):
    """
    Requests that are passed on to a consumer.
    """

    def begin(self, code: int, header: Any, **changes: Any) -> None:
        """
        Ask for what a consumer has to answer.
        """
        command = requestCommand(code, header)
        command.opaque = 7
        for name, value in changes.items():
            setattr(command, name, value)
        self.peer.dataReceived(command.encode())

    def got(self) -> RemotingCommand:
        """
        What the asker gets.
        """
        answer = self.answer()
        assert answer is not None
        self.assertEqual(7, answer.opaque)
        return answer

    def test_runningInfo(self) -> None:
        """
        The consumer is asked what was asked, and its answer is given, whatever it
        is, in the form that the asker speaks.
        """
        one = self.join("G", "T")
        other = self.join("G", "T", clientId="b")
        for form in (0, 1):
            self.begin(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader("G", "a", True),
                serializeType=form,
            )
            (command,) = one.wire.drain()
            self.assertEqual(RequestCode.GET_CONSUMER_RUNNING_INFO, command.code)
            self.assertEqual(
                {"consumerGroup": "G", "clientId": "a", "jstackEnable": "true"}, command.extFields
            )
            one.peer.dataReceived(
                frame(
                    9,
                    command.opaque,
                    b"all",
                    flag=RESPONSE_FLAG,
                    remark="so",
                    fields={"x": "y"},
                    language="GO",
                )
            )
            answer = self.got()
            self.assertEqual((9, "so", b"all"), (answer.code, answer.remark, answer.body))
            self.assertEqual(({"x": "y"}, form), (answer.extFields, answer.serializeType))
        self.assertEqual([], other.wire.drain())

    def test_consumeDirectly(self) -> None:
        """
        The consumer is given the message, and the broker's name.
        """
        one = self.join("G", "T")
        appended = self.put(self.store, b"try me")
        messageId = encodeMessageId(bytes(8), appended.offset)
        self.begin(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader("G", "a", messageId),
        )
        (command,) = one.wire.drain()
        self.assertEqual(RequestCode.CONSUME_MESSAGE_DIRECTLY, command.code)
        self.assertEqual(
            {"consumerGroup": "G", "clientId": "a", "msgId": messageId, "brokerName": BROKER},
            command.extFields,
        )
        self.assertEqual(b"try me", decodeRecord(command.body).body)
        one.peer.dataReceived(frame(0, command.opaque, b"{}", flag=RESPONSE_FLAG))
        answer = self.got()
        self.assertEqual((0, b"{}"), (answer.code, answer.body))

    def test_noMessage(self) -> None:
        """
        There must be the message, and the id must be one.
        """
        self.join("G", "T")
        for messageId in (encodeMessageId(bytes(8), 5), "nonsense", None):
            self.refused(
                ResponseCode.SYSTEM_ERROR,
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyResultRequestHeader("G", "a", messageId),
            )

    def test_notConnected(self) -> None:
        """
        The consumer must be there; Java has no code of its own for that here.
        """
        self.join("G", "T")
        appended = self.put(self.store)
        messageId = encodeMessageId(bytes(8), appended.offset)
        for group, clientId in (("H", "a"), ("G", "b")):
            header = GetConsumerRunningInfoRequestHeader(group, clientId)
            self.refused(ResponseCode.SYSTEM_ERROR, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        self.refused(
            ResponseCode.SYSTEM_ERROR,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader("G", None, messageId),
        )

    def test_tooOld(self) -> None:
        """
        It must not be older than these requests, whose ordinal is 62; C++ clients say 63.
        """
        self.join("G", "T", version=61)
        header = GetConsumerRunningInfoRequestHeader("G", "a")
        said = self.refused(
            ResponseCode.SYSTEM_ERROR, RequestCode.GET_CONSUMER_RUNNING_INFO, header
        )
        self.assertIn("61", said)
        self.join("H", "T", version=62)
        self.begin(
            RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("H", "a")
        )
        self.assertEqual(b"", self.wire.value())

    def test_silentConsumerTimesOut(self) -> None:
        """
        It has ten seconds to answer; the asker is told that it did not.
        """
        self.join("G", "T")
        self.begin(
            RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("G", "a")
        )
        self.clock.advance(9.9)
        self.assertEqual(b"", self.wire.value())
        self.clock.advance(0.1)
        self.assertEqual(ResponseCode.CONSUME_MSG_TIMEOUT, self.got().code)

    def test_lostConsumerIsReported(self) -> None:
        """
        Should it go away meanwhile, the asker is told at once.
        """
        one = self.join("G", "T")
        self.begin(
            RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("G", "a")
        )
        one.lose()
        self.assertEqual(ResponseCode.SYSTEM_ERROR, self.got().code)
