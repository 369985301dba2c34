# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.send}: what may be sent, what is stored, what is
answered.
"""

from __future__ import annotations

import attrs

from tests.processors.support import (
    CLIENT,
    CLUSTER,
    BrokerTests,
    binary,
    longHeader,
    sendHeader,
)
from tests.store.support import HOST, START, Held
from txrocket.broker.settings import SendSettings
from txrocket.broker.transaction.opmessages import HALF_TOPIC
from txrocket.message import Message
from txrocket.model import PERM_READ, TopicConfig, TopicFilterType
from txrocket.processors.messages.send import checkedtopics as soundModule
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import PROPERTIES_LIMIT
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.settings import FlushDiskType


class StoredTests(BrokerTests):
    """
    What is stored of a message, and what is answered.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def test_record(self) -> None:
        """
        A record holds what its sender said, who the sender is as the broker sees
        it, and where the broker is.
        """
        self.sent(
            b"hello",
            queueId=2,
            flag=-7,
            sysFlag=2,
            reconsumeTimes=3,
            bornTimestamp=1_600_000_000_123,
            properties="TAGS\x01t\x02WAIT\x01true\x02KEYS\x01k",
        )
        [record] = self.stored(queueId=2)
        self.assertEqual(record.body, b"hello")
        self.assertEqual((record.topic, record.queueId, record.queueOffset), ("T", 2, 0))
        self.assertEqual((record.flag, record.sysFlag, record.reconsumeTimes), (-7, 2, 3))
        self.assertEqual(record.bornTimestamp, 1_600_000_000_123)
        self.assertEqual(record.storeTimestamp, self.now())
        self.assertEqual(record.bornHost, (CLIENT.host, CLIENT.port))
        self.assertEqual(record.storeHostData, HOST)
        self.assertEqual(
            record.propertiesData, b"TAGS\x01t\x02KEYS\x01k\x02CLUSTER\x01" + CLUSTER.encode()
        )

    def test_answer(self) -> None:
        """
        The answer tells where the message is, in which queue and at which offset
        of it, and what its sender may note of the broker; there is no remark.
        """
        self.sent()
        answer = self.sent(queueId=0)
        fields = answer.extFields
        self.assertEqual((answer.code, answer.remark, answer.body), (0, None, b""))
        self.assertEqual(set(fields), {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"})
        self.assertEqual((fields["queueId"], fields["queueOffset"]), ("0", "1"))
        self.assertEqual((fields["MSG_REGION"], fields["TRACE_ON"]), ("DefaultRegion", "true"))
        record = self.stored()[1]
        self.assertEqual(fields["msgId"], record.offsetMsgId)
        self.assertEqual(
            decodeMessageId(fields["msgId"]), ("127.0.0.1", 10911, record.commitLogOffset)
        )

    def test_told(self) -> None:
        """
        What senders are told of the broker follows its settings.
        """
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, regionId="r", traceOn=False)
        fields = self.sent().extFields
        self.assertEqual((fields["MSG_REGION"], fields["TRACE_ON"]), ("r", "false"))
        fields = self.sent(queueId=9).extFields
        self.assertEqual(fields, {"MSG_REGION": "r", "TRACE_ON": "false"})

    def test_forms(self) -> None:
        """
        SEND_MESSAGE and SEND_MESSAGE_V2, with a JSON or a binary header, store the
        same and are answered the same, each in its own form.
        """
        header = sendHeader(properties="TAGS\x01t\x02WAIT\x01true\x02", flag=5)
        requests = [
            self.client.request(RequestCode.SEND_MESSAGE, longHeader(header), b"x"),
            binary(self.client.request(RequestCode.SEND_MESSAGE, longHeader(header), b"x")),
            self.message(header),
            binary(self.message(header)),
        ]
        answers = [self.answerTo(each) for each in requests]
        self.assertEqual([each.serializeType for each in answers], [0, 1, 0, 1])
        self.assertEqual(len({frozenset(each.extFields) for each in answers}), 1)
        records = self.stored()
        self.assertEqual(len({each.propertiesData for each in records}), 1)
        self.assertEqual({each.flag for each in records}, {5})

    def test_batch(self) -> None:
        """
        A batch is stored as messages of their own, each with the request's
        properties beside its own, and answered with all of their ids and the
        offset of the first.
        """
        self.sent()
        batch = encodeBatch([Message("T", b"a", "t", flag=1), Message("T", b"b")])
        header = sendHeader(properties="WAIT\x01true\x02K\x01v")
        for request in (
            self.client.request(RequestCode.SEND_BATCH_MESSAGE, header, batch),
            # What the C++ producer does.
            self.message(sendHeader(properties="WAIT\x01true\x02K\x01v", batch=True), batch),
        ):
            count = len(self.stored())
            answer = self.answerTo(request)
            first, second = self.stored()[count:]
            self.assertEqual((first.body, first.flag, second.body), (b"a", 1, b"b"))
            self.assertEqual(dict(first.properties), {"TAGS": "t", "K": "v", "CLUSTER": CLUSTER})
            self.assertEqual(dict(second.properties), {"K": "v", "CLUSTER": CLUSTER})
            self.assertEqual(answer.extFields["msgId"], f"{first.offsetMsgId},{second.offsetMsgId}")
            self.assertEqual(answer.extFields["queueOffset"], str(count))

    def test_counted(self) -> None:
        """
        Messages and their bytes are counted.
        """
        self.sent()
        [size] = [each.storeSize for each in self.stored()]
        batch = encodeBatch([Message("T", b"a"), Message("T", b"b")])
        self.answerTo(self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch))
        self.assertEqual(self.stats.puts, [("T", 1, size), ("T", 2, 2 * size)])

    def test_anyQueue(self) -> None:
        """
        A queue below 0 leaves the choice to the broker, among those to write to.
        """
        answer = self.sent(queueId=-1)
        self.assertEqual(answer.extFields["queueId"], "3")
        self.assertEqual(self.chosen, [4])
        self.assertEqual(self.bodies(queueId=3), [b"x"])

    def test_multiTag(self) -> None:
        """
        Messages of a topic with several tags each are marked so.
        """
        self.topic("M", topicFilterType=TopicFilterType.MULTI_TAG)
        self.sent(topic="M", sysFlag=8)
        self.assertEqual(self.stored("M")[0].sysFlag, 8 | 2)

    def test_silentFlags(self) -> None:
        """
        What a client says of addresses in C{sysFlag} is not believed: they decide.
        """
        self.sent(sysFlag=0x30)
        self.assertEqual(self.stored()[0].sysFlag, 0)


class RefusedTests(BrokerTests):
    """
    What is not taken.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def assertRefused(self, answer: RemotingCommand, code: int, words: str) -> None:
        """
        A message was refused, for a reason that its sender is told, and not stored.
        """
        self.assertEqual(answer.code, code)
        self.assertIn(words, answer.remark or "")
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.store.log.end, 0)

    def test_queue(self) -> None:
        """
        A queue must be one that can be written to or read from: one that is only
        read from still takes what is on its way while a topic is made smaller.
        """
        self.successResultOf(self.topics.put(TopicConfig("S", 6, 2)))
        self.successResultOf(self.topics.put(TopicConfig("N", 2, 0)))
        for topic, queueId in (("T", 4), ("S", 6), ("N", 2)):
            answer = self.sent(topic=topic, queueId=queueId)
            self.assertRefused(answer, ResponseCode.SYSTEM_ERROR, f"queue {queueId} is not one")
        for topic, queueId in (("T", 3), ("S", 5), ("N", 1)):
            self.assertEqual(self.sent(topic=topic, queueId=queueId).code, 0)

    def test_noQueue(self) -> None:
        """
        The broker cannot choose among no queues.
        """
        self.successResultOf(self.topics.put(TopicConfig("N", 2, 0)))
        answer = self.sent(topic="N", queueId=-1)
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "has no queue to write to")

    def test_notWritable(self) -> None:
        """
        A topic that may not be written to is not.
        """
        self.topic("R", perm=PERM_READ)
        answer = self.sent(topic="R")
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "topic R may not be written to")

    def test_brokerNotWritable(self) -> None:
        """
        A broker that may not be written to refuses messages to ordered topics;
        others go elsewhere because the name servers say so, and those that are on
        their way are taken.
        """
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, brokerPermission=PERM_READ)
        self.topic("O", order=True)
        self.assertRefused(
            self.sent(topic="O"), ResponseCode.NO_PERMISSION, "brokerPermission forbids"
        )
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)

    def test_changed(self) -> None:
        """
        That a topic was in order does not count once it, or the broker, is changed.
        """
        self.topic("O", order=True)
        for _ in range(2):
            self.assertEqual(self.sent(topic="O").code, ResponseCode.SUCCESS)
        self.topic("O", queues=1, order=True)
        self.assertEqual(self.sent(topic="O", queueId=3).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.sent(topic="O").code, ResponseCode.SUCCESS)
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, brokerPermission=PERM_READ)
        self.assertEqual(self.sent(topic="O").code, ResponseCode.NO_PERMISSION)
        self.topic("O", perm=PERM_READ)
        answer = self.sent(topic="O")
        self.assertIn("topic O may not be written to", answer.remark or "")

    def test_manyTopics(self) -> None:
        """
        Of so many topics only is it kept in mind that they are in order.
        """
        self.patch(soundModule, "_KNOWN", 2)
        for name in "ABCDA":
            self.topic(name)
            self.assertEqual(self.sent(topic=name).code, ResponseCode.SUCCESS)
        self.assertLessEqual(len(self.send._checked.configs), 2)

    def test_notYet(self) -> None:
        """
        Before C{startAcceptSendRequestTimeStamp} nothing is taken.
        """
        at = self.now() + 1000
        self.sendSettings.now = SendSettings(startAcceptSendRequestTimeStamp=at)
        self.assertRefused(self.sent(), ResponseCode.SYSTEM_ERROR, str(at))
        self.clock.advance(1)
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)

    def test_tooLarge(self) -> None:
        """
        What never fits into a file of the log, here one of 4096 bytes, is refused.
        """
        answer = self.sent(b"x" * 4096)
        self.assertRefused(answer, ResponseCode.MESSAGE_ILLEGAL, "larger than the limit of 4088")

    def test_badBatch(self) -> None:
        """
        What is no batch is refused, and all of it.
        """
        batch = encodeBatch([Message("T", b"a"), Message("T", b"b")])
        for body, words in ((batch[:-1], "batch message at"), (b"", "without a message")):
            request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), body)
            self.assertRefused(self.answerTo(request), ResponseCode.MESSAGE_ILLEGAL, words)

    def test_looksTorn(self) -> None:
        """
        Properties that the store could not tell from a torn record are refused.
        """
        answer = self.sent(properties="a\x01" + "\0" * 16 + "b")
        self.assertRefused(answer, ResponseCode.MESSAGE_ILLEGAL, "16 of them")

    def test_malformed(self) -> None:
        """
        A header without one of its fields is answered so, and the next request is
        served.
        """
        answer = self.answerTo(self.client.request(RequestCode.SEND_MESSAGE_V2, None, b"x"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("producerGroup", answer.remark or "")
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)

    def test_half(self) -> None:
        """
        Half of a transaction goes to the topic of halves, whatever else its flags say,
        and its properties say where it belongs; its sender is told of the queue that it
        is for, and of its place among the halves.
        """
        self.sent(queueId=2)
        for number, (properties, flag) in enumerate(
            (
                ("TRAN_MSG\x01true\x02PGROUP\x01P", 4),
                ("PGROUP\x01P\x02a\x01b\x02TRAN_MSG\x01TRUE", 0),
                ("TRAN_MSG\x01True\x02PGROUP\x01P\x02TRAN_MSG\x01x\x02TRAN_MSG\x01true", 12),
                ("TRAN_MSG\x01true\x02PGROUP\x01P\x02DELAY\x013", 2 | 4),
            )
        ):
            answer = self.sent(b"half", queueId=2, properties=properties, sysFlag=flag, flag=7)
            self.assertEqual(answer.code, 0, answer.remark)
            self.assertEqual(answer.extFields["queueId"], "2")
            self.assertEqual(answer.extFields["queueOffset"], str(number))
            self.assertNotIn("transactionId", answer.extFields)
            half = self.stored(HALF_TOPIC)[number]
            self.assertEqual(half.commitLogOffset, int(answer.extFields["msgId"][16:], 16))
            self.assertEqual((half.body, half.flag, half.sysFlag), (b"half", 7, flag & ~12))
            self.assertEqual(half.bornTimestamp, sendHeader().bornTimestamp)
            self.assertEqual(half.properties["REAL_TOPIC"], "T")
            self.assertEqual(half.properties["REAL_QID"], "2")
        self.assertEqual(self.bodies(queueId=2), [b"x"])
        self.assertEqual(self.store.maxOffset("SCHEDULE_TOPIC_XXXX", 2), 0)
        self.assertEqual([topic for topic, *_ in self.stats.puts], ["T"] + [HALF_TOPIC] * 4)
        self.assertEqual(self.topics.table[HALF_TOPIC].readQueueNums, 1)

    def test_halfAfresh(self) -> None:
        """
        A half that is a copy of a message that was once in a transaction is not taken for
        a copy of that one's half.
        """
        properties = "TRAN_MSG\x01true\x02PGROUP\x01P\x02REAL_TOPIC\x01U\x02REAL_QID\x019"
        old = "\x02TRANSACTION_CHECK_TIMES\x015\x02TRAN_PREPARED_QUEUE_OFFSET\x010"
        self.assertEqual(self.sent(properties=properties + old).code, 0)
        (half,) = self.stored(HALF_TOPIC)
        self.assertEqual(
            half.properties,
            {
                "TRAN_MSG": "true",
                "PGROUP": "P",
                "CLUSTER": CLUSTER,
                "REAL_TOPIC": "T",
                "REAL_QID": "0",
            },
        )

    def test_badHalf(self) -> None:
        """
        Refused is what could not be decided, be checked or be delivered: a half whose
        producers are not known, that leaves no room for what checks add to it, whose
        delay cannot be had; and what says only by its flags that it is one, which would
        be seen by nobody, ever.
        """
        half = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"
        for properties, flag, remark in (
            ("TRAN_MSG\x01true", 4, "PGROUP"),
            (half + "a\x01" + "x" * 32650, 4, "leave no room"),
            (half + "DELAY\x01soon", 4, "delay level 'soon'"),
            ("", 4, "TRAN_MSG"),
            ("TRAN_MSG\x01false", 12, "TRAN_MSG"),
        ):
            answer = self.sent(properties=properties, sysFlag=flag)
            self.assertRefused(answer, ResponseCode.MESSAGE_ILLEGAL, remark)
        self.assertEqual(self.store.maxOffset(HALF_TOPIC, 0), 0)

    def test_rejectTransactions(self) -> None:
        """
        With C{rejectTransactionMessage} no half is taken, and all else is.
        """
        self.sendSettings.now = SendSettings(rejectTransactionMessage=True)
        answer = self.sent(properties="TRAN_MSG\x01true\x02PGROUP\x01P", sysFlag=4)
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "rejectTransactionMessage")
        self.assertEqual(self.sent(properties="TRAN_MSG\x01false").code, 0)

    def test_transactionBatch(self) -> None:
        """
        In a batch there are no transactions, as in Java: their messages would have
        numbers in a queue that they never come to.
        """
        batch = encodeBatch([Message("T", b"a"), Message("T", b"b")])
        for flag, properties in (
            *((4, ""), (8, ""), (12, "")),
            (0, "TRAN_MSG\x01true\x02PGROUP\x01P"),
        ):
            header = sendHeader(sysFlag=flag, properties=properties)
            request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, header, batch)
            self.assertRefused(
                self.answerTo(request), ResponseCode.MESSAGE_ILLEGAL, "in transactions"
            )

    def test_delayed(self) -> None:
        """
        A delayed message waits in the queue of its level, the last one if there is no
        such level, and its sender is told of the queue that it is for.
        """
        for level, queueId in (("1", 0), ("18", 17), ("03", 2), ("+2", 1), ("100", 17)):
            answer = self.sent(properties=f"a\x01b\x02DELAY\x01{level}\x02")
            self.assertEqual((answer.code, answer.extFields["queueId"]), (0, "0"))
            entry, *_ = self.store.entries("SCHEDULE_TOPIC_XXXX", queueId, 0, 1)
            (message,) = self.store.messages([entry[:2]])
            assert message is not None
            self.assertEqual(message.properties["REAL_TOPIC"], "T")
            self.assertEqual(message.properties["REAL_QID"], "0")
        self.assertEqual(self.store.maxOffset("T", 0), 0)

    def test_timed(self) -> None:
        """
        A message that has a time waits for it, and its sender is told of the queue that
        it is for.
        """
        answer = self.sent(properties="a\x01b\x02TIMER_DELAY_MS\x0190000\x02")
        self.assertEqual((answer.code, answer.extFields["queueId"]), (0, "0"))
        queueId = (START + 90) // 300 % 144
        [waiting] = self.stored("rmq_sys_timer", queueId)
        self.assertEqual(
            waiting.properties,
            {
                "a": "b",
                "CLUSTER": CLUSTER,
                "TIMER_OUT_MS": str((START + 90) * 1000),
                "REAL_TOPIC": "T",
                "REAL_QID": "0",
            },
        )
        self.assertEqual(self.stats.puts[-1][:2], ("rmq_sys_timer", 1))

    def test_timedBatch(self) -> None:
        """
        A batch cannot have a time.
        """
        batch = encodeBatch([Message("T", b"x")])
        request = self.client.request(
            RequestCode.SEND_BATCH_MESSAGE, sendHeader(properties="TIMER_DELAY_MS\x011"), batch
        )
        self.assertRefused(self.answerTo(request), ResponseCode.MESSAGE_ILLEGAL, "as a batch")

    def test_badTime(self) -> None:
        """
        A time that is none, or too far away, is refused and told why.
        """
        for text, why in (("soon", "'soon' is no number"), ("999999999", "timerMaxDelaySec")):
            answer = self.sent(properties=f"TIMER_DELAY_SEC\x01{text}")
            self.assertRefused(answer, ResponseCode.MESSAGE_ILLEGAL, why)

    def test_timersOff(self) -> None:
        """
        A broker that keeps no such messages says so, by 5.x's code.
        """
        self.change(timerWheelEnable="false")
        answer = self.sent(properties="TIMER_DELAY_MS\x011000")
        self.assertRefused(answer, ResponseCode.SYSTEM_ERROR, "timerWheelEnable is false")

    def test_timerTopic(self) -> None:
        """
        Nobody sends to the topic in which they wait, and nobody reads it.
        """
        answer = self.sent(topic="rmq_sys_timer")
        self.assertRefused(answer, ResponseCode.NO_PERMISSION, "rmq_sys_timer")
        self.assertEqual(self.pulled(topic="rmq_sys_timer").code, ResponseCode.NO_PERMISSION)

    def test_badDelay(self) -> None:
        """
        A delay that is no number is refused, and so is a batch that is to be delayed.
        """
        answer = self.sent(properties="DELAY\x01soon")
        self.assertRefused(answer, ResponseCode.MESSAGE_ILLEGAL, "delay level 'soon'")

    def test_ordinary(self) -> None:
        """
        What only resembles a transaction or a delay is an ordinary message.
        """
        for properties in (
            *("TRAN_MSG\x01false", "XTRAN_MSG\x01true", "TRAN_MSG\x01", "a\x01TRAN_MSG\x01true"),
            *("DELAY\x010", "DELAY\x01-1", "DELAY\x01", "XDELAY\x015", "DELAYS\x015"),
            "a\x01DELAY\x015",
        ):
            self.assertEqual(self.sent(properties=properties).code, 0, ascii(properties))
        self.assertEqual(self.sent(sysFlag=8).code, 0)


class LimitTests(BrokerTests):
    """
    How large a message may be.
    """

    storeOptions = {"mappedFileSizeCommitLog": 1024 * 1024, "maxMessageSize": 1000}

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def test_body(self) -> None:
        """
        A body may be as large as C{maxMessageSize}, and so may a whole batch.
        """
        self.assertEqual(self.sent(b"x" * 1000).code, ResponseCode.SUCCESS)
        answer = self.sent(b"x" * 1001)
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("1001", answer.remark or "")
        for size, code in ((978, ResponseCode.SUCCESS), (979, ResponseCode.MESSAGE_ILLEGAL)):
            batch = encodeBatch([Message("T", b"x" * size)])
            request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch)
            self.assertEqual(self.answerTo(request).code, code)

    def test_properties(self) -> None:
        """
        Properties may take 32767 bytes with what the broker adds to them, as in
        Java.
        """
        added = len(f"a\x01\x02CLUSTER\x01{CLUSTER}")
        longest = "a\x01" + "x" * (PROPERTIES_LIMIT - added)
        self.assertEqual(self.sent(properties=longest).code, ResponseCode.SUCCESS)
        answer = self.sent(properties=longest + "x")
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("properties of 32768 bytes", answer.remark or "")


class BusyTests(BrokerTests):
    """
    A broker whose disk is behind says so early.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()
        self.topic()
        self.sendSettings.now = SendSettings(sendThreadPoolQueueCapacity=3)

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()

    def wait(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """
        Send requests; what is answered at once.
        """
        self.client.write(*requests)
        self.clock.advance(0)
        return self.client.answers()

    def test_tooMany(self) -> None:
        """
        When as many wait for the disk as may, the next is told SYSTEM_BUSY at once,
        and not stored; when they no longer wait, messages are taken again.
        """
        self.assertEqual(self.wait(self.message(), self.message(), self.message()), [])
        [answer] = self.wait(self.message())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("[OVERLOAD]", answer.remark or "")
        self.work()
        self.clock.advance(0)
        self.assertEqual([each.code for each in self.client.answers()], [0, 0, 0])
        self.assertEqual(self.wait(self.message()), [])
        self.assertEqual(len(self.stored()), 4)

    def test_tooSlow(self) -> None:
        """
        When the first has waited for longer than C{osPageCacheBusyTimeOutMills},
        the next would wait as long, and is told so at once.
        """
        self.sendSettings.now = SendSettings()
        self.assertEqual(self.wait(self.message()), [])
        self.clock.advance(1)
        self.assertEqual(self.wait(self.message()), [])
        self.clock.advance(0.1)
        [answer] = self.wait(self.message())
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("[PCBUSY] the disk has taken 1.1 s", answer.remark or "")

    def test_oneway(self) -> None:
        """
        Nobody is told about a message that wants no answer, and it is not stored.
        """
        self.wait(self.message(), self.message(), self.message())
        self.assertEqual(self.wait(self.oneway()), [])
        self.assertEqual(len(self.stored()), 3)

    def test_patient(self) -> None:
        """
        Without C{brokerFastFailureEnable} all wait.
        """
        self.sendSettings.now = SendSettings(
            sendThreadPoolQueueCapacity=1, brokerFastFailureEnable=False
        )
        self.wait(self.message())
        self.clock.advance(2)
        self.assertEqual(self.wait(self.message()), [])
