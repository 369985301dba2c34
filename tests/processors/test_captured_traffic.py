# SPDX-License-Identifier: Apache-2.0
"""
Captured messages and pulls, sent to our processors in the state that Java's were
in, and the answers held against Java's, field by field but for times, ids, offsets
in the log and addresses.

Halves of transactions and delayed messages, which go elsewhere than into their topics,
are looked at by themselves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.broker.peers import Connected, consumer
from tests.captures import Capture, captures
from tests.processors.replay import fieldsOf, requests, responseTo
from tests.processors.support import BrokerTests, Client, sendHeader
from txrocket.broker.clients.registry import ClientChannelInfo as Known
from txrocket.broker.settings import BrokerSettings
from txrocket.message import MessageExt, splitProperties
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.record.batch import decodeBatch
from txrocket.protocol.record.fields import joinProperties

# The captured broker's names.
CLUSTER, BROKER = "HarnessCluster", "harness-a"

SERVERS = ("broker", "vip")

SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


def propertiesOf(request: Capture) -> dict[str, str]:
    """
    The properties in a captured message's header.
    """
    fields = request.header["extFields"]
    return splitProperties(fields.get("properties", fields.get("i")) or "")


def isTaken(request: Capture) -> bool:
    """
    Whether a captured message goes into its topic at once.
    """
    properties = propertiesOf(request)
    return "TRAN_MSG" not in properties and "DELAY" not in properties


def isBatch(request: Capture) -> bool:
    """
    Whether a captured message is a batch of them.
    """
    fields = request.header["extFields"]
    return str(fields.get("batch", fields.get("m"))).lower() in ("true", "1")


def unequal(fields: dict[str, Any]) -> dict[str, Any]:
    """
    What of an answer may differ from Java's, put aside: of ids and offsets in the
    log only how many there are.
    """
    said = dict(fields["extFields"])
    if "msgId" in said:
        said["msgId"] = len(said["msgId"].split(","))
    return {**fields, "extFields": said, "body": None}


def ours(command: RemotingCommand) -> dict[str, Any]:
    """
    An answer of ours, as L{fieldsOf} tells of Java's.
    """
    return {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "version": command.version,
        "form": "binary" if command.serializeType else "json",
        "hasRemark": bool(command.remark),
        "extFields": command.extFields,
        "body": None,
    }


def java(capture: Capture) -> dict[str, Any]:
    """
    An answer of Java's; a pull's body is no JSON.
    """
    return fieldsOf(capture._replace(frame=capture.frame[: len(capture.frame) - len(capture.body)]))


def content(record: MessageExt) -> dict[str, Any]:
    """
    What of a record depends on nothing but its message and its place in its queue.
    """
    return {
        "topic": record.topic,
        "queueId": record.queueId,
        "queueOffset": record.queueOffset,
        "flag": record.flag,
        "sysFlag": record.sysFlag,
        "bornTimestamp": record.bornTimestamp,
        "reconsumeTimes": record.reconsumeTimes,
        "preparedTransactionOffset": record.preparedTransactionOffset,
        "properties": dict(record.properties),
        "body": record.body,
        "bodyCRC": record.bodyCRC,
        "storeSize": record.storeSize,
    }


class TrafficTests(BrokerTests):
    """
    The base: a broker with the captured one's names.
    """

    settings = BrokerSettings(brokerClusterName=CLUSTER, brokerName=BROKER)
    storeOptions = {
        "mappedFileSizeCommitLog": 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20_000,
    }

    def replay(self, request: Capture) -> list[RemotingCommand]:
        """
        What a captured request is answered, when the reactor has turned.
        """
        self.client.peer.dataReceived(request.frame)
        self.clock.advance(0)
        return self.client.answers()


class SendTests(TrafficTests):
    """
    Messages, of which each is the first in its queue.
    """

    def captured(self) -> list[Capture]:
        """
        All captured messages that are taken.
        """
        found = [each for code in SENDS for each in requests(code, *SERVERS) if isTaken(each)]
        # Java's, Go's, C++'s and Node's, in both forms.
        self.assertGreater(len(found), 20)
        return found

    def test_answers(self) -> None:
        """
        The codes and fields are Java's, and so are their values: the queue, the
        offset in it, as many ids as messages, what is told of the broker.
        """
        compared = 0
        for request in self.captured():
            answers = self.replay(request)
            if request.kind == "oneway":
                self.assertEqual(answers, [])
                continue
            [answer] = answers
            response = responseTo(request)
            if response is None:
                # Not captured, but there is only one that it can have been.
                self.assertEqual(answer.code, ResponseCode.SUCCESS, request.pair)
                self.assertEqual(answer.opaque, request.header["opaque"])
                continue
            self.assertEqual(unequal(ours(answer)), unequal(java(response)), request.pair)
            compared += 1
        self.assertGreater(compared, 9)

    def test_stored(self) -> None:
        """
        What is stored is what was sent, without WAIT and with the cluster's name.
        """
        for request in self.captured():
            fields = request.header["extFields"]
            topic = fields.get("topic", fields.get("b"))
            queueId = int(fields.get("queueId", fields.get("e")))
            count = self.store.maxOffset(topic, queueId)
            self.replay(request)
            got = self.store.get(topic, queueId, count, 32)
            records = decodeRecords(got.data, inflate=False)
            expected = {**propertiesOf(request), "CLUSTER": CLUSTER}
            expected.pop("WAIT", None)
            if isBatch(request):
                messages = decodeBatch(request.body, topic)
                self.assertEqual([each.body for each in records], [m.body for m in messages])
                for record, message in zip(records, messages, strict=True):
                    self.assertEqual(dict(record.properties), {**message.properties, **expected})
            else:
                [record] = records
                self.assertEqual(record.body, request.body)
                self.assertEqual(dict(record.properties), expected)
                self.assertEqual(record.sysFlag, int(fields.get("sysFlag", fields.get("f"))))
                born = fields.get("bornTimestamp", fields.get("g"))
                self.assertEqual(record.bornTimestamp, int(born))

    def test_batchSizes(self) -> None:
        """
        The records of a batch are as long as Java's, whose ids tell, but for WAIT:
        Java keeps the request's in each of them, and has no use for it.
        """
        compared = 0
        for request in requests(RequestCode.SEND_BATCH_MESSAGE, *SERVERS):
            response = responseTo(request)
            if response is None:
                continue
            [answer] = self.replay(request)
            waited = len("WAIT\x01true\x02") if "WAIT" in propertiesOf(request) else 0
            self.assertEqual(
                [each + waited for each in _sizes(answer.extFields["msgId"])],
                _sizes(response.header["extFields"]["msgId"]),
            )
            compared += 1
        self.assertEqual(compared, 6)

    def test_elsewhere(self) -> None:
        """
        Delayed messages and halves of transactions are taken, with Java's answers but
        for the offset in the queue, which others share.
        """
        left = [each for code in SENDS for each in requests(code, *SERVERS) if not isTaken(each)]
        halves = [each for each in left if "TRAN_MSG" in propertiesOf(each)]
        self.assertEqual((len(left), len(halves)), (4, 2))
        for request in left:
            [answer] = self.replay(request)
            response = responseTo(request)
            if response is None:
                self.assertEqual(answer.code, ResponseCode.SUCCESS, request.pair)
                continue
            expected = unequal(java(response))
            offset = expected["extFields"].pop("queueOffset")
            given = unequal(ours(answer))
            if request in halves:
                # The first of ours, where Java had some before.
                self.assertGreater(int(offset), 0)
                self.assertEqual(given["extFields"].pop("queueOffset"), str(halves.index(request)))
            else:
                del given["extFields"]["queueOffset"]
            self.assertEqual(given, expected, request.pair)

    def test_halves(self) -> None:
        """
        A half's record is what Java's was, whose size the offsets of those that followed
        it, and of its commit, tell.
        """
        for request in [r for code in SENDS for r in requests(code, *SERVERS)]:
            if "TRAN_MSG" not in propertiesOf(request):
                continue
            self.replay(request)
            half = self.stored("RMQ_SYS_TRANS_HALF_TOPIC")[-1]
            fields = request.header["extFields"]
            expected = {
                **propertiesOf(request),
                "CLUSTER": CLUSTER,
                "REAL_TOPIC": fields["b"],
                "REAL_QID": fields["e"],
            }
            del expected["WAIT"]
            self.assertEqual(dict(half.properties), expected)
            self.assertEqual((half.sysFlag, half.queueId), (0, 0))


class SendBackTests(TrafficTests):
    """
    Messages that consumers in Java, Go and C++ gave back.
    """

    def keep(self, request: Capture, **changes: Any) -> None:
        """
        Have a message where a captured request says that it is in the log.
        """
        offset = decodeMessageId(self.sent(**changes).extFields["msgId"])[2]
        record = self.store.reader.messageAt(offset)
        captured = int(request.header["extFields"]["offset"])
        self.patch(self.store, "messageAt", {captured: record}.get)

    def test_answers(self) -> None:
        """
        Each is taken, answered as by Java, and waits at the level that its consumer
        asks for, with the group's retry topic before it.
        """
        compared = 0
        languages = set()
        for request in requests(RequestCode.CONSUMER_SEND_MSG_BACK, *SERVERS):
            fields = request.header["extFields"]
            group, topic = fields["group"], fields.get("originTopic", "T")
            self.topic(topic)
            self.keep(request, topic=topic)
            level = int(fields["delayLevel"]) or 3
            before = self.store.maxOffset("SCHEDULE_TOPIC_XXXX", level - 1)
            [answer] = self.replay(request)
            response = responseTo(request)
            self.assertEqual((answer.code, answer.extFields), (0, {}))
            if response is not None:
                self.assertEqual(ours(answer), java(response), request.pair)
                self.assertEqual(answer.remark, response.header.get("remark"))
                compared += 1
            record = self.stored("SCHEDULE_TOPIC_XXXX", level - 1)[before]
            self.assertEqual(record.reconsumeTimes, 1)
            self.assertEqual(record.properties["REAL_TOPIC"], f"%RETRY%{group}")
            self.assertEqual(record.properties["RETRY_TOPIC"], topic)
            languages.add(request.header["language"])
        self.assertEqual(compared, 6)
        # 0 is Java in a binary header.
        self.assertEqual(languages, {0, "JAVA", "GO", "CPP"})

    def test_dead(self) -> None:
        """
        A consumer that wants to try once has its message among the dead letters the
        second time; one in C++, which says that it is older than V3_4_9, leaves it to
        the group.
        """
        for request in requests(RequestCode.CONSUMER_SEND_MSG_BACK, *SERVERS):
            fields = request.header["extFields"]
            dead = f"%DLQ%{fields['group']}"
            self.topic("T")
            self.keep(request, reconsumeTimes=1)
            before = self.store.maxOffset(dead, 0)
            [answer] = self.replay(request)
            self.assertEqual(answer.code, 0)
            died = self.store.maxOffset(dead, 0) > before
            self.assertEqual(died, "maxReconsumeTimes" in fields, request.pair)


class ReplyTests(TrafficTests):
    """
    Replies of clients in Java and Go.
    """

    def captured(self) -> list[Capture]:
        """
        All captured replies.
        """
        codes = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
        return [each for code in codes for each in requests(code, *SERVERS)]

    def asker(self, request: Capture) -> Client:
        """
        Connect the requester.
        """
        asker = self.connect()
        clientId = propertiesOf(request)["REPLY_TO_CLIENT"]
        self.producers.register("P", Known(clientId, asker.peer, "JAVA", 407), 0)
        return asker

    def test_answers(self) -> None:
        """
        The replier is answered as by Java, if the requester has the reply, and if it is
        not there.
        """
        compared = []
        for request in self.captured():
            response = responseTo(request)
            gone = response is not None and response.header["code"] == ResponseCode.SYSTEM_ERROR
            if gone:
                [answer] = self.replay(request)
            else:
                asker = self.asker(request)
                self.assertEqual(self.replay(request), [])
                [push] = asker.answers()
                taken = responseCommand()
                taken.opaque = push.opaque
                asker.peer.dataReceived(taken.encode())
                self.clock.advance(0)
                [answer] = self.client.answers()
                asker.lose()
            if response is None:
                self.assertEqual(answer.code, 0)
                continue
            theirs, mine = unequal(java(response)), unequal(ours(answer))
            # How many there were before.
            del theirs["extFields"]["queueOffset"], mine["extFields"]["queueOffset"]
            self.assertEqual(mine, theirs, request.pair)
            compared.append(response.header["code"])
        self.assertEqual(sorted(set(compared)), [0, ResponseCode.SYSTEM_ERROR])
        self.assertGreater(len(compared), 7)

    def test_pushes(self) -> None:
        """
        The request to the requester has the fields that Java's broker sends, and what
        the reply's properties say, with the time at which it was brought.
        """
        theirs = [
            each
            for each in captures()
            if each.requestCode == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
            and each.kind == "request"
        ]
        fields = {frozenset(each.header["extFields"]) for each in theirs}
        for request in self.captured():
            asker = self.asker(request)
            self.replay(request)
            [push] = asker.answers()
            if request.requestCode == RequestCode.SEND_REPLY_MESSAGE:
                # Java's clients say nothing of some fields, Go's of all of them.
                self.assertIn(frozenset(push.extFields), fields)
            properties = splitProperties(push.extFields["properties"])
            self.assertEqual(properties.pop("PUSH_REPLY_TIME"), str(self.now()))
            self.assertEqual(properties, propertiesOf(request))
            self.assertEqual(push.body, request.body)
            asker.lose()


def _sizes(ids: str) -> list[int]:
    """
    How far the ids of a batch lie apart: the sizes of all records but the last.
    """
    offsets = [int(each[16:], 16) for each in ids.split(",")]
    return [after - before for before, after in pairwise(offsets)]


class PullTests(TrafficTests):
    """
    Pulls, from queues that hold what Java's held.
    """

    def prepare(self, request: Capture, version: int | None = None) -> None:
        """
        Have the topic and the group of a captured pull, as its client's heartbeat
        told of them.

        @param version: the subscription's, if it is not the pull's own.
        """
        fields = request.header["extFields"]
        self.topic(fields["topic"])
        told = int(fields["subVersion"]) if version is None else version
        self.consumers.register(
            consumer(fields["consumerGroup"], fields["topic"], version=told),
            Connected().client("c"),
            0,
        )

    def keep(self, record: MessageExt) -> None:
        """
        Send a message again of which Java's record is known.
        """
        properties = dict(record.properties)
        # The broker's own doing; and what producers send, which it takes out.
        del properties["CLUSTER"]
        header = sendHeader(
            record.topic,
            queueId=record.queueId,
            flag=record.flag,
            sysFlag=record.sysFlag,
            bornTimestamp=record.bornTimestamp,
            properties=joinProperties({**properties, "WAIT": "true"}),
        )
        self.assertEqual(self.answerTo(self.message(header, record.body)).code, 0)

    def test_found(self) -> None:
        """
        Messages that were found: the same offsets, and records with the same in
        them.
        """
        compared = 0
        for request in requests(RequestCode.PULL_MESSAGE, *SERVERS):
            response = responseTo(request)
            if response is None or response.header["code"] != ResponseCode.SUCCESS:
                continue
            self.prepare(request)
            expected = decodeRecords(response.body, checkCrc=True)
            for record in expected:
                self.keep(record)
            [answer] = self.replay(request)
            self.assertEqual(ours(answer), java(response), request.pair)
            self.assertEqual(answer.remark, response.header["remark"])
            records = decodeRecords(answer.body, checkCrc=True)
            self.assertEqual([content(each) for each in records], [content(e) for e in expected])
            compared += 1
        self.assertEqual(compared, 3)

    def test_notLatest(self) -> None:
        """
        A pull that is ahead of its heartbeat.
        """
        [request] = [
            each
            for each in requests(RequestCode.PULL_MESSAGE, *SERVERS)
            if (response := responseTo(each)) is not None
            and response.header["code"] == ResponseCode.SUBSCRIPTION_NOT_LATEST
        ]
        response = responseTo(request)
        assert response is not None
        self.prepare(request, version=1)
        [answer] = self.replay(request)
        self.assertEqual(ours(answer), java(response))

    def test_unanswered(self) -> None:
        """
        Pulls whose answers were not captured are read and answered, be it after
        they were held: from an empty queue with PULL_NOT_FOUND, or with the offset
        to go on at.
        """
        seen: set[str] = set()
        for request in requests(RequestCode.PULL_MESSAGE, *SERVERS):
            if responseTo(request) is not None:
                continue
            self.prepare(request)
            answers = self.replay(request)
            if not answers:
                self.assertTrue(int(request.header["extFields"]["sysFlag"]) & 2)
                self.clock.advance(20)
                answers = self.client.answers()
            [answer] = answers
            moved = int(request.header["extFields"]["queueOffset"]) > 0
            self.assertEqual(
                answer.code,
                ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND,
            )
            self.assertEqual(
                set(answer.extFields),
                {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"},
            )
            self.assertEqual(answer.extFields["nextBeginOffset"], "0")
            seen.add(str(request.header["language"]))
        self.assertLess({"JAVA", "GO", "CPP"}, seen)
