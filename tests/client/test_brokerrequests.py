# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.brokerrequests}, with what Java's broker asked of its clients.
"""

from __future__ import annotations

import threading
import zlib

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.captures import Capture
from tests.client.members import FakeConsumer, FakeProducer
from tests.processors.replay import Server, content, requests, responseTo
from tests.remoting.doubles import ADDRESS, RemotingTests
from txrocket.client.brokerrequests import ClientRequests
from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
)
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.compression import COMPRESSED_FLAG
from txrocket.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ReplyMessageRequestHeader,
)
from txrocket.protocol.headers.fields import Header

NOW = 1794799444000


class ClientRequestsTests(RemotingTests):
    """
    Requests of a broker to a client, through a connection.
    """

    def setUp(self) -> None:
        super().setUp()
        self.producers: dict[str, FakeProducer] = {}
        self.consumers: dict[str, FakeConsumer] = {}
        self.requests = ClientRequests(self.producers, self.consumers, lambda: NOW)
        self.server = Server(self.requests.codes())

    def consumer(self, group: str) -> FakeConsumer:
        """
        A consumer of a group is in this client.
        """
        made = self.consumers[group] = FakeConsumer(group)
        return made

    def ask(self, code: int, header: Header, body: bytes = b"") -> RemotingCommand:
        """
        The answer to a request of a broker's.
        """
        answer = self.server.send(requestCommand(code, header, body).encode())
        assert answer is not None
        return answer

    def captured(self, code: int) -> list[Capture]:
        """
        Captured requests of a broker to Java's and Go's clients.
        """
        found = requests(code, "client")
        self.assertTrue(found)
        return found

    # --- transactions ----------------------------------------------------

    def test_checkReachesProducerOfGroup(self) -> None:
        """
        A captured transaction check reaches the producer of the message's group, with the
        message and the broker's address.  Nothing is answered.
        """
        producer = FakeProducer("hc_go_transaction_PT_mwip8pxp")
        self.producers[producer.group] = producer
        for each in self.captured(RequestCode.CHECK_TRANSACTION_STATE):
            self.assertIsNone(self.server.send(each.frame))
            fields = each.header["extFields"]
            header, message, address = producer.seen.pop()
            self.assertEqual(header.transactionId, fields["transactionId"])
            self.assertEqual(str(header.commitLogOffset), fields["commitLogOffset"])
            self.assertEqual(str(header.tranStateTableOffset), fields["tranStateTableOffset"])
            self.assertEqual(message.topic, "hc_go_transaction_T_mwip8pxp")
            self.assertEqual(message.body, message.keys[0].encode())
            self.assertEqual(address, ADDRESS)

    def test_checkOfUnknownGroupIsLeft(self) -> None:
        """
        The check of a group that this client does not have is left to another client, with
        a warning.
        """
        self.producers["other"] = FakeProducer("other")
        (first, *_) = self.captured(RequestCode.CHECK_TRANSACTION_STATE)
        self.assertIsNone(self.server.send(first.frame))
        self.assertEqual(self.producers["other"].seen, [])
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn(f"Broker {ADDRESS}", warning)
        self.assertIn("hc_go_transaction_PT_mwip8pxp", warning)

    # --- consumers -------------------------------------------------------

    def test_idsChangedReachesItsConsumer(self) -> None:
        """
        A captured notice that a group has changed reaches the consumer of that group only.
        Nothing is answered.
        """
        other = self.consumer("other")
        for each in self.captured(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED):
            self.assertIsNone(self.server.send(each.frame))
            consumer = self.consumer(each.header["extFields"]["consumerGroup"])
            self.assertIsNone(self.server.send(each.frame))
            self.assertEqual(consumer.seen, ["ids"])
        self.assertEqual(other.seen, [])

    def test_resetOffsetsReachConsumer(self) -> None:
        """
        Captured new offsets reach the consumer, and a log line names the broker.  A group
        that this client does not have is no error.
        """
        first, second = self.captured(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        self.assertIsNone(self.server.send(first.frame))
        (line,) = self.logged(LogLevel.info)
        self.assertEqual(
            line,
            f"Broker {ADDRESS} resets group hcadm_G_e25d148e in topic hcadm_T_e25d148e"
            " to time 1794799112360",
        )
        consumer = self.consumer("hcadm_G3_e25d148e")
        self.assertIsNone(self.server.send(second.frame))
        topic = "hcadm_T3_e25d148e"
        self.assertEqual(
            consumer.seen,
            [
                (
                    topic,
                    {MessageQueue(topic, "harness-a", 1): 7, MessageQueue(topic, "harness-a"): 5},
                )
            ],
        )

    def test_statusTellsConsumerOffsets(self) -> None:
        """
        A consumer's offsets in a topic are returned, and none for a group that this client
        does not have, as with Java.
        """
        queue = MessageQueue("T", "a", 3)
        consumer = self.consumer("g")
        consumer.offsets = {queue: 42}
        for group, offsets in (("g", {queue: 42}), ("other", {})):
            answer = self.ask(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                GetConsumerStatusRequestHeader("T", group),
            )
            self.assertEqual(answer.code, ResponseCode.SUCCESS)
            body = decodeBody(GetConsumerStatusBody, answer.body)
            self.assertEqual(body.messageQueueTable, offsets)
        self.assertEqual(consumer.seen, ["T"])

    def test_runningInfoIsJavas(self) -> None:
        """
        A consumer in the state of a captured Java consumer answers the same.
        """
        consumer = self.consumer("hcadm_G_e25d148e")
        for each in self.captured(RequestCode.GET_CONSUMER_RUNNING_INFO):
            java = responseTo(each)
            assert java is not None
            consumer.info = decodeBody(ConsumerRunningInfo, java.body)
            self.assertTrue(consumer.info.properties)
            answer = self.server.send(each.frame)
            assert answer is not None
            self.assertEqual((answer.code, answer.opaque), (0, each.header["opaque"]))
            self.assertEqual(content(answer.body), content(java.body))

    def test_stacksOfAllThreadsAreTold(self) -> None:
        """
        On request the stacks of all threads are returned in Java's form: name and number,
        the innermost call first.
        """
        consumer = self.consumer("g")
        header = GetConsumerRunningInfoRequestHeader("g", "c@1", jstackEnable=True)
        done, began = threading.Event(), threading.Event()

        def wait() -> None:
            began.set()
            done.wait()

        thread = threading.Thread(target=wait, name="somebody")
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(done.set)
        began.wait()
        answer = self.server.send(
            requestCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, header).encode()
        )
        assert answer is not None
        info = decodeBody(ConsumerRunningInfo, answer.body)
        self.assertEqual(info.properties, consumer.info.properties)
        assert info.jstack is not None
        stacks = {each.partition(" ")[0]: each.splitlines() for each in info.jstack.split("\n\n")}
        first, *calls = stacks["somebody"]
        self.assertEqual(first, f"{'somebody':40}TID: {thread.native_id} STATE: RUNNABLE")
        self.assertEqual({each[:40] for each in calls}, {f"{'somebody':40}"})
        self.assertRegex(calls[0], r"threading\.\S*wait\(threading\.py:\d+\)\Z")
        own = [each for each in calls if ".<locals>.wait(test_brokerrequests.py:" in each]
        self.assertEqual(len(own), 1)
        self.assertIn("threadStacks(runninginfo.py:", stacks[threading.current_thread().name][1])

    def test_consumeDirectlyAnswersResult(self) -> None:
        """
        A captured message reaches the listener, and the listener's result is answered once
        it is known, as by Java.
        """
        for each in self.captured(RequestCode.CONSUME_MESSAGE_DIRECTLY):
            java = responseTo(each)
            assert java is not None
            consumer = self.consumer(each.header["extFields"]["consumerGroup"])
            self.assertIsNone(self.server.send(each.frame))
            ((message, brokerName),) = consumer.seen
            self.assertEqual((message.body, message.tags), (b"m_body7", "Tag1"))
            self.assertEqual(brokerName, "harness-a")
            consumer.consumed.callback(
                ConsumeMessageDirectlyResult(consumeResult=CMResult.CR_SUCCESS)
            )
            (answer,) = self.server.wire.drain()
            self.assertEqual((answer.code, answer.opaque), (0, each.header["opaque"]))
            self.assertEqual(content(answer.body), content(java.body))

    def test_requestForUnknownGroupIsSystemError(self) -> None:
        """
        A request about a group that this client does not have is answered SYSTEM_ERROR with
        the group's name.
        """
        (direct, *_) = self.captured(RequestCode.CONSUME_MESSAGE_DIRECTLY)
        body = direct.body
        for code, header in (
            (
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader("absent", "c@1"),
            ),
            (
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyResultRequestHeader("absent"),
            ),
        ):
            answer = self.ask(code, header, body)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("absent", answer.remark or "")

    def test_malformedMessageIsRefused(self) -> None:
        """
        A body that holds no message is refused, and no consumer gets it.
        """
        consumer = self.consumer("g")
        answer = self.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader("g"),
            b"no record",
        )
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertTrue((answer.remark or "").startswith("bad request: "))
        self.assertEqual(consumer.seen, [])

    # --- replies ---------------------------------------------------------

    def test_replyReachesRequester(self) -> None:
        """
        A captured reply reaches its requester once, with all that the broker tells and the
        time of arrival, and the broker gets SUCCESS.
        """
        for each in self.captured(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT):
            fields = each.header["extFields"]
            properties = dict(pair.split("\x01") for pair in fields["properties"].split("\x02"))
            waiting: Deferred[MessageExt] = Deferred()
            self.requests.replies[properties["CORRELATION_ID"]] = waiting
            answer = self.server.send(each.frame)
            assert answer is not None
            self.assertEqual((answer.code, answer.opaque), (0, each.header["opaque"]))
            reply = self.successResultOf(waiting)
            self.assertEqual(reply.body, each.body)
            self.assertEqual(reply.topic, "HarnessCluster_REPLY_TOPIC")
            self.assertEqual(dict(reply.properties), {**properties, "ARRIVE_TIME": str(NOW)})
            self.assertEqual(str(reply.bornTimestamp), fields["bornTimestamp"])
            self.assertEqual(str(reply.storeTimestamp), fields["storeTimestamp"])
            self.assertEqual(reply.bornHost, ("127.0.0.1", 37856))
            self.assertEqual(reply.storeHost, ("127.0.0.1", 21911))
            self.assertEqual(self.requests.replies, {})

    def test_lateReplyIsDropped(self) -> None:
        """
        A reply without a waiting request is dropped with a log line, and the broker gets
        SUCCESS.
        """
        (first, *_) = self.captured(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        answer = self.server.send(first.frame)
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertEqual(
            self.logged(LogLevel.info),
            [f"A reply came by {ADDRESS} too late or unasked, and was dropped"],
        )

    def replied(
        self, body: bytes, host: str, sysFlag: int = 0
    ) -> tuple[RemotingCommand, Deferred[MessageExt]]:
        """
        The answer to a reply, and the request that waits for it.
        """
        waiting: Deferred[MessageExt] = Deferred()
        self.requests.replies["1"] = waiting
        header = ReplyMessageRequestHeader(
            *("g", "T", "TBW102", 4, 0, sysFlag, 1, 0, host, host, 2),
            properties="CORRELATION_ID\x011\x02",
        )
        return self.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body), waiting

    def test_compressedReplyIsDecompressed(self) -> None:
        """
        A compressed reply arrives decompressed.
        """
        _, waiting = self.replied(zlib.compress(b"yes"), "127.0.0.1:1", COMPRESSED_FLAG)
        self.assertEqual(self.successResultOf(waiting).body, b"yes")

    def test_hostsAreReadAsJavaWritesThem(self) -> None:
        """
        Addresses are read as Java writes them; an invalid one does no harm.
        """
        for host, read in (
            ("192.0.2.1:5", ("192.0.2.1", 5)),
            ("/192.0.2.1:5", ("192.0.2.1", 5)),
            ("box/192.0.2.1:5", ("192.0.2.1", 5)),
            ("[2001:db8::1]:5", ("2001:db8::1", 5)),
            ("nowhere", ("0.0.0.0", 0)),
            ("box:5", ("0.0.0.0", 0)),
        ):
            _, waiting = self.replied(b"yes", host)
            self.assertEqual(self.successResultOf(waiting).bornHost, read)
