# SPDX-License-Identifier: Apache-2.0
"""
The captured requests to RocketMQ 4.9.7's broker that are neither sends nor pulls
nor a client's own, byte for byte, to ours, in the state that its answers speak of:
our answers are the same, but for times, offsets in the log, and the words of
remarks.

Most were captured while C{mqadmin}'s commands were run one after the other, on a
topic of four queues into which a program had sent 24 numbered messages.
"""

from __future__ import annotations

import os
from typing import Any

from tests.captures import Capture, captures
from tests.processors.admincase import BROKER, CLUSTER, AdminCase
from tests.processors.replay import requests, responseTo
from txrocket.broker.settings import BrokerSettings
from txrocket.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.bodies import (
    BODIES,
    ConsumeStatsList,
    KVTable,
    ResetOffsetBody,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.configtext import ConfigText
from txrocket.protocol.fastjson import finish, parse
from txrocket.protocol.headers import (
    HEADERS,
    CreateTopicRequestHeader,
    GetMaxOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.record import decodeRecord
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings

# Before the captured answers were given, in seconds.
THEN = 1_794_799_118

# Members of bodies that are times, or places in the log.
ELSEWHERE = {"lastUpdateTimestamp", "lastTimestamp", "physicOffset", "subVersion"}

# Served by these processors, and not captured: nobody asked.
NEVER_ASKED = {
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
}


def decode(capture: Capture) -> RemotingCommand:
    """
    The command of a captured frame.
    """
    return decodeCommand(capture.frame, 4, len(capture.frame))


def content(body: bytes) -> Any:
    """
    What is in a body of fastjson's, but for times and places.  Java's maps and sets
    come in any order, so lists are sorted.
    """

    def tame(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tame(str(key), each) for key, each in value.items()}
        if isinstance(value, list):
            return sorted((tame("", each) for each in value), key=repr)
        return type(value) if name in ELSEWHERE else value

    return tame("", parse(body, lambda key: tuple(sorted(key.items())))) if body else None


def asked(code: int) -> list[Capture]:
    """
    The captured requests of a code to the broker.
    """
    return requests(code, "broker", "vip")


class ReplayCase(AdminCase):
    """
    The broker that was captured.
    """

    OPTIONS = {"mappedFileSizeCommitLog": 64 * 1024, "mappedFileSizeConsumeQueue": 100 * 20}

    def setUp(self) -> None:
        super().setUp()
        self.clock.rightNow = float(THEN)

    def harness(self, topic: str) -> None:
        """
        24 messages in the four queues of a topic, as they were sent.
        """
        self.topics.put(TopicConfig(topic, 4, 4))
        for number in range(24):
            self.put(
                self.store,
                b"m_body%d" % number,
                topic,
                number % 4,
                KEYS=f"m_key{number}",
                UNIQ_KEY=f"FD000000000000000000000000000002701E30946E094DF54157{number:04X}",
                CLUSTER=CLUSTER,
                TAGS=f"Tag{number % 3}",
                n=str(number),
            )
            self.clock.advance(0.001)

    def replay(self, request: Capture) -> RemotingCommand:
        """
        Our answer to a captured request, held against the captured one.
        """
        ours = self.answerTo(request.frame)
        theirs = responseTo(request)
        if theirs is None:
            # It was not captured: then it shall be one that Java could have given.
            self.assertEqual(ResponseCode.SUCCESS, ours.code, ours.remark)
            header = HEADERS[request.requestCode].response
            fields = set(header.__struct_encode_fields__) if header else set()
            self.assertEqual(fields, set(ours.extFields))
            kind = BODIES.get(request.requestCode, (None, None))[1]
            if kind is not None:
                decodeBody(kind, ours.body)
            else:
                self.assertEqual(b"", ours.body)
        else:
            self.compare(ours, theirs)
        return ours

    def compare(self, ours: RemotingCommand, theirs: Capture) -> None:
        """
        Hold an answer against a captured one.
        """
        header = theirs.header
        self.assertEqual(
            (header["code"], header["flag"], header["opaque"], header["version"]),
            (ours.code, ours.flag, ours.opaque, ours.version),
        )
        self.assertEqual(theirs.form, "binary" if ours.serializeType else "json")
        if ours.code != ResponseCode.SUCCESS:
            self.assertTrue(header["remark"] and ours.remark)
        self.compareFields(header.get("extFields") or {}, ours.extFields)
        self.compareBodies(theirs.body, ours.body)

    def compareFields(self, theirs: dict[str, str], ours: dict[str, str]) -> None:
        """
        Hold the fields of an answer against captured ones.
        """
        self.assertEqual(theirs, ours)

    def compareBodies(self, theirs: bytes, ours: bytes) -> None:
        """
        Hold the body of an answer against a captured one.
        """
        self.assertEqual(content(theirs), content(ours))

    def passOn(self, request: Capture, theirs: Capture) -> None:
        """
        Replay a request that a consumer has to answer.
        """
        fields = decode(request).extFields
        one = self.join(fields["consumerGroup"], "T", clientId=fields["clientId"])
        self.peer.dataReceived(request.frame)
        (command,) = one.wire.drain()
        captured = next(
            each
            for each in captures()
            if each.requestCode == request.requestCode
            and each.sender == "broker"
            and each.kind == "request"
            and decode(each).extFields["clientId"] == fields["clientId"]
        )
        self.assertEqual(decode(captured).extFields, command.extFields)
        self.assertEqual(captured.body, command.body)
        said = responseTo(captured)
        assert said is not None
        answer = decode(said)
        answer.opaque, answer.body = command.opaque, theirs.body
        one.peer.dataReceived(answer.encode())
        ours = self.answer()
        assert ours is not None
        self.compare(ours, theirs)
        self.assertEqual(theirs.header["remark"], ours.remark)


class CapturedTests(ReplayCase):
    """
    A test for each code, named after it.
    """

    BLACK_LIST = "configBlackList;brokerConfigPath"

    def replayAll(self, code: int, answered: int) -> None:
        """
        Send all captured requests of a code that need nothing to be there.

        @param answered: how many of the answers were captured.
        """
        found = [each for each in asked(code) if each.kind == "request"]
        self.assertTrue(found)
        self.assertEqual(answered, sum(responseTo(each) is not None for each in found))
        for each in found:
            self.replay(each)

    def test_complete(self) -> None:
        """
        Every code of RocketMQ that is served and was captured has a test.
        """
        captured = {each.requestCode for each in captures() if each.receiver in ("broker", "vip")}
        served = {each for each in self.codes() if each in set(RequestCode)}
        self.assertEqual(NEVER_ASKED, served - captured)
        for code in served & captured:
            first, *rest = RequestCode(code).name.lower().split("_")
            name = f"test_{first}{''.join(each.title() for each in rest)}"
            self.assertTrue(hasattr(CapturedTests, name) or hasattr(RecordTests, name), name)

    # --- offsets -----------------------------------------------------------

    def test_queryConsumerOffset(self) -> None:
        """
        Groups without offsets begin at 0, in both forms of the header, and whether
        a C++, Go or Java client asks.
        """
        self.replayAll(RequestCode.QUERY_CONSUMER_OFFSET, 6)

    def test_updateConsumerOffset(self) -> None:
        """
        Offsets that clients commit are kept, whether they want an answer or not.
        """
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        for each in asked(code):
            header = decode(each).decodeHeader(UpdateConsumerOffsetRequestHeader)
            self.topic(header.topic, 16)
            while self.store.maxOffset(header.topic, header.queueId) < header.commitOffset:
                self.put(self.store, b"x", header.topic, header.queueId)
        self.replayAll(code, 6)
        oneways = [each for each in asked(code) if each.kind == "oneway"]
        self.assertEqual(12, len(oneways))
        for each in oneways:
            self.peer.dataReceived(each.frame)
            self.assertIsNone(self.answer())
        for each in asked(code):
            header = decode(each).decodeHeader(UpdateConsumerOffsetRequestHeader)
            self.assertEqual(
                header.commitOffset,
                self.offsets.query(header.consumerGroup, header.topic, header.queueId),
            )

    def test_getMinOffset(self) -> None:
        """
        Queues that have lost nothing begin at 0.
        """
        self.replayAll(RequestCode.GET_MIN_OFFSET, 6)

    def test_getMaxOffset(self) -> None:
        """
        Queues end after their last messages.
        """
        for each in asked(RequestCode.GET_MAX_OFFSET):
            header = decode(each).decodeHeader(GetMaxOffsetRequestHeader)
            theirs = responseTo(each)
            wanted = 0 if theirs is None else int(theirs.header["extFields"]["offset"])
            while self.store.maxOffset(header.topic, header.queueId) < wanted:
                self.put(self.store, b"x", header.topic, header.queueId)
            self.replay(each)

    def test_searchOffsetByTimestamp(self) -> None:
        """
        Of 30 messages the one that was stored at the time is found.
        """

        def timestamp(capture: Capture) -> int:
            return decode(capture).decodeHeader(SearchOffsetRequestHeader).timestamp

        found = sorted(asked(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP), key=timestamp)
        self.assertEqual(6, len(found))
        for each in found:
            header = decode(each).decodeHeader(SearchOffsetRequestHeader)
            for number in range(30):
                # In the middle of the millisecond: the clock's are not exact.
                self.clock.rightNow = (header.timestamp + (number - 15) * 5 + 0.5) / 1000
                self.put(self.store, b"x", header.topic, header.queueId)
            self.assertEqual("15", self.replay(each).extFields["offset"])

    def test_invokeBrokerToResetOffset(self) -> None:
        """
        A group that is not online cannot be taken back; one that is, is told what
        Java tells it.
        """
        offline, online = sorted(
            asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET),
            key=lambda each: -(responseTo(each) or each).header["code"],
        )
        topic, group = "hcadm_T_e25d148e", "hcadm_G_e25d148e"
        self.harness(topic)
        self.commit(group, topic, 5, 6, 5, 6)
        self.assertEqual(ResponseCode.CONSUMER_NOT_ONLINE, self.replay(offline).code)
        one = self.join(group, topic)
        ours = self.replay(online)
        queues = [MessageQueue(topic, BROKER, each) for each in range(4)]
        self.assertEqual(
            dict.fromkeys(queues, 0), decodeBody(ResetOffsetBody, ours.body).offsetTable
        )
        (told,) = one.wire.drain()
        (captured,) = (
            each
            for each in captures()
            if each.requestCode == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            and decode(each).extFields["group"] == group
        )
        theirs = decode(captured)
        self.assertEqual((theirs.code, theirs.flag), (told.code, told.flag))
        self.assertEqual(theirs.extFields, told.extFields)
        self.assertEqual(content(theirs.body), content(told.body))

    # --- topics ------------------------------------------------------------

    def test_updateAndCreateTopic(self) -> None:
        """
        Topics are made and changed as clients and tools want them, those of
        RocketMQ 5 among them.
        """
        self.replayAll(RequestCode.UPDATE_AND_CREATE_TOPIC, 6)
        last = {}
        for each in asked(RequestCode.UPDATE_AND_CREATE_TOPIC):
            header = decode(each).decodeHeader(CreateTopicRequestHeader)
            last[header.topic] = TopicConfig(
                header.topic, header.readQueueNums, header.writeQueueNums, header.perm
            )
        self.assertEqual(last, {name: self.topics.get(name) for name in last})

    def test_deleteTopicInBroker(self) -> None:
        """
        Topics that are not there can be deleted.
        """
        self.replayAll(RequestCode.DELETE_TOPIC_IN_BROKER, 2)

    def test_getAllTopicConfig(self) -> None:
        """
        All topics are told.
        """
        for each in asked(RequestCode.GET_ALL_TOPIC_CONFIG):
            body = decodeBody(TopicConfigSerializeWrapper, self.replay(each).body)
            self.assertEqual(self.topics.wrapper(), body)

    def test_getTopicStatsInfo(self) -> None:
        """
        The four queues have six messages each, and later seven.
        """
        self.harness("hcadm_T_e25d148e")
        found = sorted(
            asked(RequestCode.GET_TOPIC_STATS_INFO),
            key=lambda each: b'"maxOffset":7' in (responseTo(each) or each).body,
        )
        self.assertEqual(2, len(found))
        self.replay(found[0])
        for queueId in range(4):
            self.put(self.store, b"x", "hcadm_T_e25d148e", queueId)
        self.replay(found[1])

    def test_getSystemTopicListFromBroker(self) -> None:
        """
        The same topics are the broker's own, but for one that Java has not.
        """
        self.topics.own -= {"rmq_sys_timer"}
        self.replayAll(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, 2)

    def test_cleanUnusedTopic(self) -> None:
        """
        Unused topics are cleaned.
        """
        self.replayAll(RequestCode.CLEAN_UNUSED_TOPIC, 2)

    def test_cleanExpiredConsumequeue(self) -> None:
        """
        Expired queues are cleaned.
        """
        self.replayAll(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, 2)

    def test_deleteExpiredCommitlog(self) -> None:
        """
        Old files are deleted.
        """
        self.replayAll(RequestCode.DELETE_EXPIRED_COMMITLOG, 2)

    # --- groups ------------------------------------------------------------

    def test_updateAndCreateSubscriptiongroup(self) -> None:
        """
        Groups are made as C{mqadmin} wants them.
        """
        self.replayAll(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 2)
        self.assertEqual(
            SubscriptionGroupConfig(
                "hcadm_G_e25e7ac4",
                consumeFromMinEnable=False,
                consumeBroadcastEnable=False,
                retryMaxTimes=3,
            ),
            self.groups.find("hcadm_G_e25e7ac4"),
        )

    def test_getAllSubscriptiongroupConfig(self) -> None:
        """
        All groups are told.
        """
        for each in asked(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            body = decodeBody(SubscriptionGroupWrapper, self.replay(each).body)
            self.assertEqual(self.groups.wrapper(), body)

    def test_deleteSubscriptiongroup(self) -> None:
        """
        One group goes with its offsets, the other without.
        """
        groups = ("hcadm_G2_e25d148e", "hcadm_G3_e25d148e")
        for group in groups:
            self.groups.find(group)
            self.commit(group, "T", 1)
        self.replayAll(RequestCode.DELETE_SUBSCRIPTIONGROUP, 2)
        self.assertEqual(set(), set(groups) & set(self.groups.table))
        self.assertEqual({"hcadm_G3_e25d148e"}, self.offsets.groupsOf("T"))

    def test_getConsumeStats(self) -> None:
        """
        The group is one message behind in two of the four queues.
        """
        for suffix in ("e25d148e", "e25e7ac4"):
            self.harness(f"hcadm_T_{suffix}")
            self.commit(f"hcadm_G_{suffix}", f"hcadm_T_{suffix}", 5, 6, 5, 6)
        self.replayAll(RequestCode.GET_CONSUME_STATS, 2)

    def test_getBrokerConsumeStats(self) -> None:
        """
        All groups are told of; the answers of Java were not captured.
        """
        self.harness("hcadm_T_e25d148e")
        self.groups.find("hcadm_G_e25d148e")
        self.commit("hcadm_G_e25d148e", "hcadm_T_e25d148e", 5, 6, 5, 6)
        for each in asked(RequestCode.GET_BROKER_CONSUME_STATS):
            self.assertEqual(2, decodeBody(ConsumeStatsList, self.replay(each).body).totalDiff)

    def test_queryTopicConsumeByWho(self) -> None:
        """
        A group that only subscribes is listed, and a topic without groups has an empty list.
        """
        self.join("__MONITOR_CONSUMER", "OFFSET_MOVED_EVENT")
        self.replayAll(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, 2)

    def test_queryConsumeQueue(self) -> None:
        """
        Three entries of a queue, with the sizes and the tags' hashes that Java has.
        """
        for suffix in ("e25d148e", "e25e7ac4"):
            self.harness(f"hcadm_T_{suffix}")
            self.join(f"hcadm_G_{suffix}", f"hcadm_T_{suffix}")
        self.replayAll(RequestCode.QUERY_CONSUME_QUEUE, 2)

    def test_getConsumerRunningInfo(self) -> None:
        """
        What Java's broker asked the consumer is asked, and what that said is told.
        """
        for each in asked(RequestCode.GET_CONSUMER_RUNNING_INFO):
            theirs = responseTo(each)
            assert theirs is not None
            self.passOn(each, theirs)

    # --- the broker --------------------------------------------------------

    def test_viewBrokerStatsData(self) -> None:
        """
        After 24 sends and four pulls of six messages the figures are Java's.
        """
        finish(self.stats.sample())
        for _ in range(24):
            self.stats.put("hcadm_T_e25d148e", 1, 228)
        for _ in range(4):
            self.stats.got("hcadm_G_e25d148e", "hcadm_T_e25d148e", 6, 6 * 228)
        self.clock.rightNow += 10
        finish(self.stats.sample())
        self.replayAll(RequestCode.VIEW_BROKER_STATS_DATA, 2)

    def test_getBrokerRuntimeInfo(self) -> None:
        """
        The table is one of names and texts.
        """
        for each in asked(RequestCode.GET_BROKER_RUNTIME_INFO):
            table = decodeBody(KVTable, self.replay(each).body).table
            self.assertEqual("407", table["brokerVersion"])

    def test_getBrokerConfig(self) -> None:
        """
        Settings have Java's names.
        """
        for each in asked(RequestCode.GET_BROKER_CONFIG):
            settings = decodeBody(ConfigText, self.replay(each).body)
            self.assertIn("fileReservedTime", settings)
            self.assertEqual(
                self.configuration[BrokerSettings].brokerClusterName, settings["brokerClusterName"]
            )

    def test_updateBrokerConfig(self) -> None:
        """
        C{mqadmin} changes a setting, and changes it back, if the operator lets it.
        """
        for each, hours in zip(asked(RequestCode.UPDATE_BROKER_CONFIG), (73, 72), strict=True):
            self.replay(each)
            self.assertEqual(hours, self.configuration[StoreSettings].fileReservedTime)


class RecordTests(ReplayCase):
    """
    Requests whose answers are records: these lie in our log where they lay in
    Java's.
    """

    def setUp(self) -> None:
        """
        The log is laid before the store is opened: by the tests.
        """

    def lay(self, record: bytes) -> None:
        """
        Open a store whose log has one record, at the offset that it says.
        """
        self.offset = decodeRecord(record).commitLogOffset
        self.OPTIONS = {
            "mappedFileSizeCommitLog": self.offset,
            "mappedFileSizeConsumeQueue": 100 * 20,
        }
        self.record = record
        super().setUp()

    def make(self, *args: Any, **options: Any) -> MessageStore:
        """
        Lay the log, and build the store.
        """
        folder = os.path.join(self.root, "commitlog")
        os.makedirs(folder)
        # One file before it would do as well; it may be gone.
        with open(os.path.join(folder, f"{self.offset:020d}"), "wb") as file:
            file.write(self.record)
            file.truncate(self.offset)
        return super().make(*args, **options)

    def compareBodies(self, theirs: bytes, ours: bytes) -> None:
        """
        These are the same bytes.
        """
        self.assertEqual(theirs, ours)

    def compareFields(self, theirs: dict[str, str], ours: dict[str, str]) -> None:
        """
        The index reaches no further than our only record.
        """
        self.assertEqual(set(theirs), set(ours))
        if ours:
            self.assertEqual(str(self.offset), ours["indexLastUpdatePhyoffset"])

    def laid(self, code: int) -> list[tuple[Capture, Capture]]:
        """
        Requests of a code, and answers that are one record each.
        """
        found = [(each, responseTo(each)) for each in asked(code)]
        self.assertEqual(2, len(found))
        return [(request, theirs) for request, theirs in found if theirs is not None]

    def test_queryMessage(self) -> None:
        """
        A message is found by its key, and given as it is in the log.
        """
        for request, theirs in self.laid(RequestCode.QUERY_MESSAGE):
            self.lay(theirs.body)
            self.replay(request)

    def test_queryMessageNotFound(self) -> None:
        """
        Where no message is found the fields are there all the same.
        """
        request, found = self.laid(RequestCode.QUERY_MESSAGE)[0]
        key = decode(request).extFields["key"].encode()
        self.lay(found.body.replace(key, key[::-1]))
        ours = self.answerTo(request.frame)
        theirs = next(
            each
            for each in captures()
            if each.requestCode == RequestCode.QUERY_MESSAGE
            and each.header["code"] == ResponseCode.QUERY_NOT_FOUND
        )
        self.assertEqual(theirs.header["code"], ours.code)
        self.assertEqual(set(theirs.header["extFields"]), set(ours.extFields))

    def test_viewMessageById(self) -> None:
        """
        A message is found by its place, and given as it is in the log.
        """
        for request, theirs in self.laid(RequestCode.VIEW_MESSAGE_BY_ID):
            self.lay(theirs.body)
            self.replay(request)

    def test_consumeMessageDirectly(self) -> None:
        """
        The consumer is handed the message as it is in the log, and what it made of
        it is told.
        """
        for request, theirs in self.laid(RequestCode.CONSUME_MESSAGE_DIRECTLY):
            handed = next(
                each
                for each in captures()
                if each.requestCode == RequestCode.CONSUME_MESSAGE_DIRECTLY
                and each.sender == "broker"
                and each.kind == "request"
                and decode(each).extFields["msgId"] == decode(request).extFields["msgId"]
            )
            self.lay(handed.body)
            self.passOn(request, theirs)
