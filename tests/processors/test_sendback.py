# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.sendback}: what becomes of messages that consumers
could not deal with.
"""

from __future__ import annotations

import errno
import zlib
from typing import Any

import attrs

from tests.processors.support import CLIENT, CLUSTER, BrokerTests, sendHeader
from tests.store.support import HOST, Held
from txrocket.broker.settings import SendSettings
from txrocket.errors import StoreError
from txrocket.message import Message, MessageExt
from txrocket.model import PERM_READ, PERM_WRITE, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import ConsumerSendMsgBackRequestHeader
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.settings import FlushDiskType

SCHEDULE = "SCHEDULE_TOPIC_XXXX"

# The last version of clients that do not say how often they try; V3_4_9_SNAPSHOT.
OLD = 120


class Backs(BrokerTests):
    """
    The base: a topic, and a message in it.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def offsetOf(self, answer: RemotingCommand) -> int:
        """
        Where in the log a message is that was taken.
        """
        self.assertEqual(answer.code, 0, answer.remark)
        return decodeMessageId(answer.extFields["msgId"])[2]

    def put(self, body: bytes = b"x", **changes: Any) -> int:
        """
        Have a message; where it is in the log.
        """
        return self.offsetOf(self.sent(body, **changes))

    def request(
        self,
        offset: int,
        level: int = 0,
        group: str = "G",
        most: int | None = None,
        version: int = 407,
        unit: bool = False,
    ) -> RemotingCommand:
        """
        A request to take a message back.
        """
        header = ConsumerSendMsgBackRequestHeader(
            offset, group, level, maxReconsumeTimes=most, unitMode=unit
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        return self.client.request(code, header, version=version)

    def back(self, offset: int, level: int = 0, **changes: Any) -> RemotingCommand:
        """
        Send a message back; what is answered.
        """
        return self.answerTo(self.request(offset, level, **changes))

    def waiting(self, level: int) -> list[MessageExt]:
        """
        The messages that wait at a level.
        """
        return self.stored(SCHEDULE, level - 1)

    def group(self, name: str = "G", **options: Any) -> None:
        """
        Have a group.
        """
        self.successResultOf(self.groups.put(SubscriptionGroupConfig(name, **options)))


class AgainTests(Backs):
    """
    Messages that are tried again.
    """

    def test_sentBackMessageIsParked(self) -> None:
        """
        The message waits at the third level, as it was: body, flags, time and place
        of birth.  It is one time older, and says which topic and queue it goes to,
        which topic it came from and which id it had there.  The answer says
        nothing more.
        """
        offset = self.put(
            b"hello",
            queueId=2,
            flag=7,
            sysFlag=2,
            bornTimestamp=1_600_000_000_123,
            properties="TAGS\x01t\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02WAIT\x01true",
        )
        [before] = self.stored(queueId=2)
        answer = self.back(offset)
        self.assertEqual((answer.code, answer.remark, answer.extFields), (0, None, {}))
        [record] = self.waiting(3)
        self.assertEqual(
            (record.body, record.flag, record.sysFlag, record.reconsumeTimes), (b"hello", 7, 2, 1)
        )
        self.assertEqual(record.bornTimestamp, 1_600_000_000_123)
        self.assertEqual(record.bornHost, (CLIENT.host, CLIENT.port))
        self.assertEqual(record.storeHostData, HOST)
        self.assertEqual(
            record.properties,
            {
                "TAGS": "t",
                "KEYS": "k",
                "UNIQ_KEY": "u",
                "CLUSTER": CLUSTER,
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": before.offsetMsgId,
                "DELAY": "3",
                "WAIT": "false",
                "REAL_TOPIC": "%RETRY%G",
                "REAL_QID": "0",
            },
        )

    def test_retryComesAfterItsDelay(self) -> None:
        """
        After ten seconds, and not before, it is in the group's retry topic.
        """
        self.delays.start()
        self.addCleanup(self.delays.stop)
        self.back(self.put(b"hello", properties="TAGS\x01t"))
        self.clock.advance(9.9)
        self.assertEqual(self.stored("%RETRY%G"), [])
        self.clock.pump([0.1, 0, 0, 0])
        [record] = self.stored("%RETRY%G")
        self.assertEqual((record.body, record.reconsumeTimes, record.tags), (b"hello", 1, "t"))
        self.assertEqual(record.properties["RETRY_TOPIC"], "T")

    def test_eachRetryWaitsLonger(self) -> None:
        """
        It waits one level longer each time, at last at the longest.
        """
        for times, level in ((0, 3), (1, 4), (7, 10), (15, 18), (16, 18), (100, 18)):
            offset = self.put(b"%d" % times, reconsumeTimes=times)
            self.back(offset, most=1000)
            record = self.waiting(level)[-1]
            self.assertEqual((record.body, record.reconsumeTimes), (b"%d" % times, times + 1))
            self.assertEqual(record.properties["DELAY"], str(level))

    def test_wantedLevel(self) -> None:
        """
        Or as long as its consumer wants.
        """
        self.back(self.put(reconsumeTimes=5), level=1)
        [record] = self.waiting(1)
        self.assertEqual(record.reconsumeTimes, 6)

    def test_originIsKept(self) -> None:
        """
        However often it comes, it says which topic and which id it had first.
        """
        first = self.put()
        self.back(first)
        [record] = self.waiting(3)
        self.back(record.commitLogOffset)
        [second] = self.waiting(4)
        [sent] = self.stored()
        self.assertEqual(second.reconsumeTimes, 2)
        self.assertEqual(second.properties["RETRY_TOPIC"], "T")
        self.assertEqual(second.properties["ORIGIN_MESSAGE_ID"], sent.offsetMsgId)

    def test_blankOrigin(self) -> None:
        """
        A blank origin is replaced.
        """
        self.back(self.put(properties="ORIGIN_MESSAGE_ID\x01 "))
        [sent] = self.stored()
        [record] = self.waiting(3)
        self.assertEqual(record.properties["ORIGIN_MESSAGE_ID"], sent.offsetMsgId)

    def test_retryTopicIsCreated(self) -> None:
        """
        The group and its retry topic are made if they are not there; the topic with
        as many queues as the group has for that, each of which may be chosen.
        """
        self.group(retryQueueNums=3)
        self.back(self.put(), unit=True)
        self.assertEqual(self.topics.get("%RETRY%G"), TopicConfig("%RETRY%G", 3, 3, topicSysFlag=2))
        self.assertEqual(self.chosen, [3])
        [record] = self.waiting(3)
        self.assertEqual(record.properties["REAL_QID"], "2")
        self.back(self.put(), group="H")
        self.assertEqual(self.groups.table["H"].retryQueueNums, 1)
        self.assertEqual(self.topics.get("%RETRY%H"), TopicConfig("%RETRY%H", 1, 1))

    def test_fewerQueues(self) -> None:
        """
        A topic that has fewer queues than the group wants by now has the message in
        one that is read from.
        """
        self.group(retryQueueNums=8)
        self.topic("%RETRY%G", 2)
        self.back(self.put())
        [record] = self.waiting(3)
        self.assertEqual(record.properties["REAL_QID"], "1")

    def test_binaryBody(self) -> None:
        """
        A compressed body stays as it is, and so does the flag that says so.
        """
        body = zlib.compress(b"hello")
        self.back(self.put(body, sysFlag=1))
        [record] = decodeRecords(self.store.get(SCHEDULE, 2, 0, 32).data, inflate=False)
        self.assertEqual((record.body, record.sysFlag), (body, 1))

    def test_sendBackIsCounted(self) -> None:
        """
        It is counted for the group and the topic that it came from first, and where
        it is put.
        """
        offset = self.put()
        self.stats.puts.clear()
        self.back(offset)
        [record] = self.waiting(3)
        self.assertEqual(self.stats.puts, [(SCHEDULE, 1, record.storeSize)])
        self.back(record.commitLogOffset)
        self.assertEqual(self.stats.backs, [("G", "T"), ("G", "T")])

    def test_largestCountIsKept(self) -> None:
        """
        A message that was tried as often as can be told stays so old.
        """
        self.back(self.put(reconsumeTimes=2**31 - 1), level=-1)
        [record] = self.stored("%DLQ%G")
        self.assertEqual(record.reconsumeTimes, 2**31 - 1)


class DeadTests(Backs):
    """
    Messages that are not tried again.
    """

    def test_deadLetterIsStoredAtOnce(self) -> None:
        """
        A dead letter lies in the one queue of the group's topic for them, at once.
        It says what a message says that is tried again, but for the delay.
        """
        offset = self.put(b"hello", reconsumeTimes=16, properties="TAGS\x01t")
        [before] = self.stored()
        self.assertEqual(self.back(offset).code, 0)
        self.assertEqual(self.topics.get("%DLQ%G"), TopicConfig("%DLQ%G", 1, 1))
        [record] = self.stored("%DLQ%G")
        self.assertEqual((record.body, record.reconsumeTimes), (b"hello", 17))
        self.assertEqual(
            record.properties,
            {
                "TAGS": "t",
                "CLUSTER": CLUSTER,
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": before.offsetMsgId,
                "DELAY": "0",
                "WAIT": "false",
            },
        )
        self.assertEqual(self.stats.backs, [("G", "T")])
        self.assertEqual(self.stats.puts[-1], ("%DLQ%G", 1, record.storeSize))

    def dead(self, times: int, **changes: Any) -> bool:
        """
        Whether a message that was tried so often becomes a dead letter.
        """
        before = self.store.maxOffset("%DLQ%G", 0)
        self.assertEqual(self.back(self.put(reconsumeTimes=times), **changes).code, 0)
        return self.store.maxOffset("%DLQ%G", 0) > before

    def test_maximumComesFromRequestOrGroup(self) -> None:
        """
        The request says how often a message is tried again, or else the group: 16
        times, unless it says otherwise.
        """
        self.assertEqual([self.dead(15), self.dead(16)], [False, True])
        self.assertEqual([self.dead(2, most=3), self.dead(3, most=3)], [False, True])
        self.assertEqual([self.dead(16, most=17), self.dead(17, most=17)], [False, True])
        self.group(retryMaxTimes=2)
        self.assertEqual([self.dead(1), self.dead(2)], [False, True])
        self.assertEqual([self.dead(2, most=3), self.dead(0, most=0)], [False, True])
        self.assertTrue(self.dead(0, most=-1))

    def test_oldClients(self) -> None:
        """
        What clients before V3_4_9 send there means nothing.
        """
        self.group(retryMaxTimes=2)
        self.assertEqual(
            [self.dead(1, most=1, version=OLD), self.dead(2, most=9, version=OLD)], [False, True]
        )
        self.assertTrue(self.dead(1, most=1, version=OLD + 1))

    def test_negativeLevelIsDead(self) -> None:
        """
        A negative level says that its consumer gives it up.
        """
        self.assertTrue(self.dead(0, level=-1))
        self.assertEqual(self.waiting(3), [])


class RefusedTests(Backs):
    """
    What is not taken back.
    """

    storeOptions = {"mappedFileSizeCommitLog": 128 * 1024}

    def refused(self, code: int, answer: RemotingCommand) -> str:
        """
        A refusal, after which nothing waits and nothing is dead; what it says.
        """
        self.assertEqual(answer.code, code, answer.remark)
        self.assertEqual(self.store.maxOffset(SCHEDULE, 2), 0)
        self.assertEqual(self.store.maxOffset("%DLQ%G", 0), 0)
        self.assertEqual(self.stats.backs, [])
        assert answer.remark
        return answer.remark

    def test_noGroup(self) -> None:
        """
        The group must be there, or be allowed to be made.
        """
        self.change(autoCreateSubscriptionGroup="false")
        said = self.refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self.back(self.put()))
        self.assertIn("consumer group G does not exist", said)

    def test_badGroup(self) -> None:
        """
        Nor is one made that cannot be called so.
        """
        self.refused(ResponseCode.SYSTEM_ERROR, self.back(self.put(), group="a/b"))
        self.assertNotIn("a/b", self.groups.table)

    def test_longGroup(self) -> None:
        """
        A group may be called so that its retry topic cannot be: that is said.
        """
        self.refused(ResponseCode.SYSTEM_ERROR, self.back(self.put(), group="g" * 200))

    def test_readOnly(self) -> None:
        """
        The broker must be writable, and the topic.
        """
        offset = self.put()
        self.topic("%RETRY%G", perm=PERM_READ)
        said = self.refused(ResponseCode.NO_PERMISSION, self.back(offset))
        self.assertIn("topic %RETRY%G may not be written to", said)
        self.topic("%RETRY%G")
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, brokerPermission=PERM_READ)
        self.refused(ResponseCode.NO_PERMISSION, self.back(offset))
        self.brokerSettings.now = attrs.evolve(self.brokerSettings.now, brokerPermission=PERM_WRITE)
        self.assertEqual(self.back(offset).code, 0)

    def test_noQueues(self) -> None:
        """
        The messages of a group that has no queues for them are dropped: nothing is
        stored, and the consumer is told that all is well, as by Java.
        """
        self.group(retryQueueNums=0)
        answer = self.back(self.put())
        self.assertEqual(answer.code, 0)
        self.assertEqual(self.store.maxOffset(SCHEDULE, 2), 0)
        self.assertIsNone(self.topics.get("%RETRY%G"))

    def test_noMessage(self) -> None:
        """
        The message must be there.
        """
        offset = self.put()
        for wrong in (-1, offset + 1, self.store.log.end, 2**63 - 1):
            said = self.refused(ResponseCode.SYSTEM_ERROR, self.back(wrong))
            self.assertIn(str(wrong), said)

    def test_tooMuch(self) -> None:
        """
        If there is no room for what it has to say now, it is not taken.
        """
        offset = self.put(properties=f"K\x01{'v' * 32700}")
        said = self.refused(ResponseCode.SYSTEM_ERROR, self.back(offset))
        self.assertIn("properties of", said)
        self.assertEqual(self.stats.failures, 1)

    def test_failedDiskIsRefused(self) -> None:
        """
        A disk that does not take it has it refused, and it may be sent back again.
        """
        offset = self.put()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        said = self.refused(ResponseCode.SYSTEM_ERROR, self.back(offset))
        self.assertIn("no room", said)
        self.disk.failing.clear()
        self.assertEqual(self.stats.failures, 1)
        self.assertEqual(self.back(offset).code, 0)
        self.assertEqual(len(self.waiting(3)), 1)

    def test_crowdedDiskIsRefused(self) -> None:
        """
        So does one that is too full for more.
        """
        offset = self.put()
        self.disk.used = 0.95
        self.store.retention.clean()
        self.assertIn("95%", self.refused(ResponseCode.SYSTEM_ERROR, self.back(offset)))

    def test_unreadableMessageIsRefused(self) -> None:
        """
        So does one that does not give the message.
        """
        offset = self.put()

        def broken(offset: int) -> None:
            raise StoreError("broken")

        self.patch(self.store, "messageAt", broken)
        self.assertIn("broken", self.refused(ResponseCode.SYSTEM_ERROR, self.back(offset)))


class HeldDisk(Backs):
    """
    The base: a disk that does its work when a test says so.
    """

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()
        self.client.write(self.message())
        self.clock.advance(0)
        self.work()
        [answer] = self.client.answers()
        self.offset = self.offsetOf(answer)

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()
        self.clock.advance(0)

    def write(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """
        Send requests; what is answered when the reactor has turned.
        """
        self.client.write(*requests)
        self.clock.advance(0)
        return self.client.answers()


class SyncTests(HeldDisk):
    """
    SYNC_FLUSH: the consumer is told once the message is on the disk.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def test_onTheDisk(self) -> None:
        """
        The broker answers after the sync: the consumer commits past the message as soon
        as it has the answer.  Java does not wait here.
        """
        self.topic("%RETRY%G")
        self.assertEqual(self.write(self.request(self.offset)), [])
        self.assertEqual(len(self.waiting(3)), 1)
        self.assertEqual(self.stats.backs, [])
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.end)
        self.assertEqual(self.stats.backs, [("G", "T")])

    def test_slowDiskIsRefused(self) -> None:
        """
        A disk that takes too long has it refused: it may come twice then, and is not
        lost.
        """
        self.topic("%RETRY%G")
        self.write(self.request(self.offset))
        self.clock.pump([1] * 6)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.stats.backs, [])
        self.work()

    def test_busyDiskIsRefusedEarly(self) -> None:
        """
        While too much waits for the disk, more is refused early.
        """
        self.topic("%RETRY%G")
        self.sendSettings.now = SendSettings(sendThreadPoolQueueCapacity=1)
        self.assertEqual(self.write(self.message()), [])
        [answer] = self.write(self.request(self.offset))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.work()

    def test_notYet(self) -> None:
        """
        A broker that takes no messages yet takes them back all the same, as Java.
        """
        self.topic("%RETRY%G")
        self.sendSettings.now = SendSettings(startAcceptSendRequestTimeStamp=2**62)
        self.write(self.request(self.offset))
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)


class NewTopicTests(HeldDisk):
    """
    ASYNC_FLUSH and topics that are not on the disk yet.
    """

    def test_onTheDisk(self) -> None:
        """
        Without its topic a message is out of reach, so that is on the disk before
        the consumer is told; also if it lies among the dead letters.
        """
        for level in (0, -1):
            self.assertEqual(self.write(self.request(self.offset, level)), [])
            self.work()
            [answer] = self.client.answers()
            self.assertEqual(answer.code, 0)
            # Then nothing but the log is waited for.
            [answer] = self.write(self.request(self.offset, level))
            self.assertEqual(answer.code, 0)

    def test_notWritten(self) -> None:
        """
        If the topic cannot be written, the message is not taken back.
        """
        self.write(self.request(self.offset))
        self.disk.failing["open"] = OSError(errno.ENOSPC, "full")
        self.work()
        self.disk.failing.clear()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.flushLoggedErrors()

    def test_asyncSendIsNotRefused(self) -> None:
        """
        Who need not wait for the disk is not refused because of it.
        """
        self.sendSettings.now = SendSettings(sendThreadPoolQueueCapacity=1)
        self.topic("%RETRY%G")
        answers = self.write(self.message(), self.request(self.offset))
        self.assertEqual([each.code for each in answers], [0, 0])


class DirectTests(Backs):
    """
    Messages that consumers send to their retry topic themselves, because sending
    back failed, or in order.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic("%RETRY%G", 1)

    def direct(
        self, times: int | None, most: int | None = None, version: int = 407, **changes: Any
    ) -> RemotingCommand:
        """
        The answer to a message that was tried so often.
        """
        changes = {"properties": "RETRY_TOPIC\x01T\x02DELAY\x015\x02", **changes}
        header = sendHeader("%RETRY%G", reconsumeTimes=times, maxReconsumeTimes=most, **changes)
        return self.answerTo(self.message(header, version=version))

    def test_messageWithRetriesIsParked(self) -> None:
        """
        With times left they wait as they wish, and go to that topic.
        """
        answer = self.direct(3)
        self.assertEqual((answer.code, answer.extFields["queueId"]), (0, "0"))
        [record] = self.waiting(5)
        self.assertEqual(record.properties["REAL_TOPIC"], "%RETRY%G")
        self.assertEqual(record.reconsumeTimes, 3)

    def test_messageWithoutRetriesIsDead(self) -> None:
        """
        Without, they are dead letters, at once whatever delay they ask for; Java has
        them come late.
        """
        self.topic("%RETRY%G", 4)
        answer = self.direct(16, queueId=2)
        # The queue that it was sent to, as in Java.
        self.assertEqual((answer.code, answer.extFields["queueId"]), (0, "2"))
        [record] = self.stored("%DLQ%G")
        self.assertEqual(record.reconsumeTimes, 16)
        self.assertEqual(record.properties, {"RETRY_TOPIC": "T", "CLUSTER": CLUSTER})
        self.assertEqual(self.waiting(5), [])
        self.assertEqual(self.topics.get("%DLQ%G"), TopicConfig("%DLQ%G", 1, 1))

    def test_maximumComesFromMessageOrGroup(self) -> None:
        """
        The message says how often it is tried, or else the group; a client before
        V3_4_9 says nothing of it.
        """
        self.group(retryMaxTimes=2)

        def dead(*given: Any) -> bool:
            before = self.store.maxOffset("%DLQ%G", 0)
            self.assertEqual(self.direct(*given).code, 0)
            return self.store.maxOffset("%DLQ%G", 0) > before

        self.assertEqual([dead(None), dead(1), dead(2)], [False, False, True])
        self.assertEqual([dead(2, 3), dead(3, 3)], [False, True])
        self.assertEqual([dead(1, 1, OLD), dead(1, 1, OLD + 1)], [False, True])
        self.assertEqual([dead(2, 9, OLD), dead(2, 9, OLD + 1)], [True, False])

    def test_noGroup(self) -> None:
        """
        The group must be there, or be allowed to be made.
        """
        self.change(autoCreateSubscriptionGroup="false")
        answer = self.direct(0)
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.change(autoCreateSubscriptionGroup="true")
        self.assertEqual(self.direct(0).code, 0)
        self.assertIn("G", self.groups.table)

    def test_batchIsNotRerouted(self) -> None:
        """
        Nor does a batch of them go anywhere else.
        """
        batch = encodeBatch([Message("T", each) for each in (b"a", b"b")])
        header = sendHeader("%RETRY%G", reconsumeTimes=16)
        request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, header, batch)
        self.assertEqual(self.answerTo(request).code, 0)
        self.assertEqual(self.bodies("%DLQ%G"), [b"a", b"b"])
        self.assertEqual(self.bodies("%RETRY%G"), [])

    def test_lateBatch(self) -> None:
        """
        A batch does not wait; dead it need not.
        """
        batch = encodeBatch([Message("T", b"a")])
        for times, code in ((0, ResponseCode.MESSAGE_ILLEGAL), (16, ResponseCode.SUCCESS)):
            header = sendHeader("%RETRY%G", reconsumeTimes=times, properties="DELAY\x015")
            request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, header, batch)
            self.assertEqual(self.answerTo(request).code, code)
        self.assertEqual(self.bodies("%DLQ%G"), [b"a"])

    def test_neverQuick(self) -> None:
        """
        The rules hold for each of them, however many came before.
        """
        for _ in range(4):
            self.assertEqual(self.direct(0, properties="A\x01b").code, 0)
        self.direct(16, properties="A\x01b")
        self.assertEqual(len(self.stored("%RETRY%G")), 4)
        self.assertEqual(len(self.stored("%DLQ%G")), 1)


class DirectSyncTests(HeldDisk):
    """
    The same with SYNC_FLUSH.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def test_onTheDisk(self) -> None:
        """
        Such a message waits for the disk, though it has WAIT=false from when it was
        sent back before.
        """
        self.topic("%RETRY%G")
        header = sendHeader("%RETRY%G", properties="WAIT\x01false")
        self.assertEqual(self.write(self.message(header)), [])
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, 0)

    def test_slowDiskIsReported(self) -> None:
        """
        A disk that takes too long has the sender told so.
        """
        self.topic("%RETRY%G")
        self.write(self.message(sendHeader("%RETRY%G", properties="WAIT\x01false")))
        self.clock.pump([1] * 6)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.FLUSH_DISK_TIMEOUT)
        self.work()
