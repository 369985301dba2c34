# SPDX-License-Identifier: Apache-2.0
"""
A master and its slaves: what senders are told, and what slaves serve.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.broker.replication.groupcase import COMMIT, HOLD, GroupCase
from txrocket.message import Message
from txrocket.model import MASTER_ID, MessageQueue
from txrocket.protocol.bodies import ClusterInfo, KVTable, LockBatchRequestBody
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    DeleteTopicRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from txrocket.protocol.record.batch import encodeBatch

WAIT_NOT = "WAIT\x01false\x02"


class SyncTests(GroupCase):
    """
    Sends to a SYNC_MASTER.
    """

    def test_aMessageIsOnTheSlaveWhenItIsAnswered(self) -> None:
        """
        A SYNC_MASTER answers once its slave has the message.
        """
        sending = self.sending()
        while not sending.called:
            self.assertLess(len(self.log(self.slaves[0])), 1_000_000)
            self.cluster._step(self.cluster.clock.seconds() + 1)
        self.assertEqual(0, self.successResultOf(sending).code)
        self.assertEqualLogs(self.master, self.slaves[0])
        self.assertEqual([b"body"], self.bodies(self.slaves[0]))

    def test_withoutASlaveTheSenderIsTold(self) -> None:
        """
        Without a slave a message is stored, and its sender is told at once that it is on no
        slave, and where it is.
        """
        self.cluster.stop(self.slaves[0])
        before = self.cluster.clock.seconds()
        answer = self.cluster.resultOf(self.sending())
        self.assertEqual(ResponseCode.SLAVE_NOT_AVAILABLE, answer.code)
        self.assertEqual(0, answer.decodeHeader(SendMessageResponseHeader).queueOffset)
        self.assertLess(self.cluster.clock.seconds() - before, 1.0)
        self.assertEqual([b"body"], self.bodies(self.master))

    def test_aMessageIsTakenBackWithoutASlave(self) -> None:
        """
        A message that a consumer sends back is stored, slave or not: otherwise no message
        could be retried.
        """
        self.send()
        self.cluster.stop(self.slaves[0])
        header = ConsumerSendMsgBackRequestHeader(0, "G", 1)
        self.pull(self.master)
        answer = self.answer(self.master, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        self.assertEqual(0, answer.code, answer.remark)

    def test_aSilentSlaveIsWaitedForForThreeSeconds(self) -> None:
        """
        If the slave does not get the message, its sender is told after slaveTimeout; the
        message is stored, and comes to the slave later.
        """
        self.assertEqual(0, self.send(b"first"))
        self.cluster.cut(self.master, self.slaves[0])
        before = self.cluster.clock.seconds()
        self.assertEqual(ResponseCode.FLUSH_SLAVE_TIMEOUT, self.send(b"second"))
        self.assertAlmostEqual(3.0, self.cluster.clock.seconds() - before, delta=0.1)
        self.cluster.heal(self.master, self.slaves[0])
        self.cluster.advance(10.0)
        self.assertEqual([b"first", b"second"], self.bodies(self.slaves[0]))
        self.assertEqual(0, self.send(b"third"))

    def test_aReportThatDoesNotComeIsNoReport(self) -> None:
        """
        If only the way back is cut, the slave has the message, and the sender is told that
        this is not known.
        """
        self.assertEqual(0, self.send(b"first"))
        self.cluster.cut(self.slaves[0], self.master, oneWay=True)
        self.assertEqual(ResponseCode.FLUSH_SLAVE_TIMEOUT, self.send(b"second"))
        self.cluster.heal(self.slaves[0], self.master, oneWay=True)
        self.assertEqual([b"first", b"second"], self.bodies(self.slaves[0]))

    def test_whoDoesNotWantToWaitDoesNot(self) -> None:
        """
        A message with WAIT=false is answered at once, slave or not.
        """
        self.assertEqual(0, self.send(b"first"))
        self.cluster.stop(self.slaves[0])
        self.assertEqual(0, self.send(b"second", properties=WAIT_NOT))

    def test_manySendsOfATurnWaitTogether(self) -> None:
        """
        All sends of a turn wait for the slave in one Deferred.
        """
        # The first of a topic goes by the rules, and so does the second.
        self.send()
        self.send()
        links: Any = self.cluster.broker().replication.steps.links
        asked: list[int] = []

        def stored(end: int) -> Deferred[None]:
            asked.append(end)
            waiting: Deferred[None] = before(end)
            return waiting

        before = links.stored
        self.patch(links, "stored", stored)
        sends = [self.sending(b"%d" % each) for each in range(100)]
        for each in sends:
            self.assertEqual(0, self.cluster.resultOf(each).code)
        # The client writes the first one at once, and the others in the next turn.
        self.assertEqual(2, len(asked), asked)
        self.assertEqualLogs(self.master, self.slaves[0])

    def test_manySendsWithoutASlaveAreEachLocated(self) -> None:
        """
        Without a slave each send of a turn is told where its message is.
        """
        self.send()
        self.cluster.stop(self.slaves[0])
        sends = [self.sending(b"%d" % each) for each in range(10)]
        answers = [self.cluster.resultOf(each) for each in sends]
        self.assertEqual({ResponseCode.SLAVE_NOT_AVAILABLE}, {each.code for each in answers})
        offsets = [each.decodeHeader(SendMessageResponseHeader).queueOffset for each in answers]
        self.assertEqual(list(range(1, 11)), offsets)

    def batch(self, body: bytes) -> Deferred[RemotingCommand]:
        """
        Send a batch of two messages.
        """
        now = int(self.cluster.wall() * 1000)
        header = SendMessageRequestHeaderV2("P", "T", "TBW102", 4, 0, 0, now, 0, "", 0, batch=True)
        batch = encodeBatch([Message("T", body), Message("T", body)])
        return self.ask(self.master, RequestCode.SEND_BATCH_MESSAGE, header, batch)

    def test_batchesWaitForTheSlave(self) -> None:
        """
        Batches are on the slave when they are answered, and those of a turn wait together.
        """
        self.send()
        self.send()
        batches = [self.batch(b"%d" % each) for each in range(10)]
        for each in batches:
            self.assertEqual(0, self.cluster.resultOf(each).code)
        self.assertEqualLogs(self.master, self.slaves[0])
        self.assertEqual(22, len(self.bodies(self.slaves[0])))

    def test_batchesWithoutASlaveAreLocated(self) -> None:
        """
        Without a slave batches are stored, and each sender is told where.
        """
        self.send()
        self.send()
        self.cluster.stop(self.slaves[0])
        answers = [self.cluster.resultOf(each) for each in [self.batch(b"a"), self.batch(b"b")]]
        self.assertEqual({ResponseCode.SLAVE_NOT_AVAILABLE}, {each.code for each in answers})
        offsets = [each.decodeHeader(SendMessageResponseHeader).queueOffset for each in answers]
        self.assertEqual([2, 4], offsets)

    def test_anOnewaySendIsOnTheSlaveToo(self) -> None:
        """
        A message is replicated whether its sender waits or not.
        """
        self.send(b"first", properties=WAIT_NOT)
        self.cluster.advance(1.0)
        self.assertEqual([b"first"], self.bodies(self.slaves[0]))


class SyncFlushTests(GroupCase):
    """
    SYNC_MASTER and SYNC_FLUSH together.
    """

    settings = {"flushDiskType": "SYNC_FLUSH"}

    def test_aMessageIsOnBothDisks(self) -> None:
        """
        A message is on the disks of master and slave when it is answered.
        """
        self.assertEqual(0, self.send())
        for address in (self.master, self.slaves[0]):
            replica = self.cluster.broker(address).store.replica
            self.assertEqual(replica.end, replica.flushed)


class AsyncTests(GroupCase):
    """
    An ASYNC_MASTER and its slaves.
    """

    role = "ASYNC_MASTER"
    slaveCount = 2

    def test_slavesGetTheLog(self) -> None:
        """
        Both slaves have the master's log, and serve its messages.
        """
        for each in range(50):
            self.assertEqual(0, self.send(b"%d" % each))
        self.cluster.advance(1.0)
        self.assertEqualLogs(self.master, *self.slaves)
        for slave in self.slaves:
            self.assertEqual(self.bodies(self.master), self.bodies(slave))

    def test_aSlaveDoesNotDelayASend(self) -> None:
        """
        Nothing waits for the slaves.
        """
        self.send()
        for slave in self.slaves:
            self.cluster.cut(self.master, slave)
        before = self.cluster.clock.seconds()
        self.assertEqual(0, self.send())
        self.assertLess(self.cluster.clock.seconds() - before, 0.5)

    def test_aSlaveThatWasAwayCatchesUp(self) -> None:
        """
        A slave that was stopped or killed gets what it missed.
        """
        self.send(b"first")
        self.cluster.stop(self.slaves[0])
        self.cluster.crash(self.slaves[1])
        self.send(b"second")
        for slave in self.slaves:
            self.cluster.start(slave)
        self.cluster.advance(5.0)
        self.assertEqualLogs(self.master, *self.slaves)
        self.assertEqual([b"first", b"second"], self.bodies(self.slaves[1]))

    def test_theMasterComesBack(self) -> None:
        """
        Slaves follow a master again that was stopped or killed, in a new epoch.
        """
        for end in (self.cluster.stop, self.cluster.crash):
            self.send(b"before")
            self.cluster.advance(1.0)
            end(self.master)
            self.cluster.advance(5.0)
            self.cluster.start(self.master)
            self.cluster.advance(5.0)
            self.send(b"after")
            self.cluster.advance(1.0)
            self.assertEqualLogs(self.master, *self.slaves)
        self.assertEqual(300, self.status(self.slaves[0]).epoch)
        self.assertEqual(4, len(self.bodies(self.slaves[0])))


class SlaveTests(GroupCase):
    """
    What a slave serves and refuses, with Java's codes.
    """

    def setUp(self) -> None:
        super().setUp()
        [self.slave] = self.slaves
        self.send(b"first")

    def test_aSlaveTakesNoMessages(self) -> None:
        """
        A send is refused, and no topic is created for it.
        """
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.send(address=self.slave))
        code = self.send(address=self.slave, topic="New")
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, code)
        self.assertIsNone(self.cluster.broker(self.slave).tables.topics.get("New"))

    def test_aSlaveTakesNoMessageBack(self) -> None:
        """
        A message that is sent back to a slave is refused as Java refuses it.
        """
        header = ConsumerSendMsgBackRequestHeader(0, "G", 0)
        answer = self.answer(self.slave, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
        self.assertIn("SERVICE_NOT_AVAILABLE", answer.remark or "")

    def test_aSlaveEndsNoTransaction(self) -> None:
        """
        The end of a transaction is refused.
        """
        header = EndTransactionRequestHeader("P", 0, 0, 8, "id")
        answer = self.answer(self.slave, RequestCode.END_TRANSACTION, header)
        self.assertEqual(ResponseCode.SLAVE_NOT_AVAILABLE, answer.code)

    def test_aSlavesTablesAreItsMasters(self) -> None:
        """
        Topics and groups are not created or deleted at a slave.
        """
        codes = {
            self.cluster.resultOf(self.create("Mine", self.slave)).code,
            self.answer(
                self.slave, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T")
            ).code,
            self.answer(
                self.slave,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=b'{"groupName":"X"}',
            ).code,
        }
        self.assertEqual({ResponseCode.SYSTEM_ERROR}, codes)
        self.assertIsNotNone(self.cluster.broker(self.slave).tables.topics.get("T"))

    def test_aSlaveServesPullsAndLookups(self) -> None:
        """
        A slave gives messages and offsets from its own files.
        """
        answer = self.pull(self.slave)
        self.assertEqual(0, answer.code)
        header = answer.decodeHeader(PullMessageResponseHeader)
        self.assertEqual(MASTER_ID, header.suggestWhichBrokerId)
        most = self.answer(
            self.slave, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 0)
        )
        self.assertEqual(1, most.decodeHeader(GetMaxOffsetResponseHeader).offset)

    def test_aHeldPullIsWokenAtASlave(self) -> None:
        """
        A pull that a slave holds is answered as soon as a message comes from the master.
        """
        held = self.pulling(self.slave, 1, flag=HOLD)
        self.cluster.advance(5.0)
        self.assertNoResult(held)
        before = self.cluster.clock.seconds()
        self.send(b"second")
        self.assertEqual(0, self.cluster.resultOf(held).code)
        self.assertLess(self.cluster.clock.seconds() - before, 0.5)

    def test_anOffsetOutOfRangeIsNotCorrected(self) -> None:
        """
        A slave may be behind: a consumer out of range tries again with the same offset.
        """
        for offset in (5, 100):
            answer = self.pull(self.slave, offset)
            self.assertEqual(ResponseCode.PULL_RETRY_IMMEDIATELY, answer.code)
            header = answer.decodeHeader(PullMessageResponseHeader)
            self.assertEqual(offset, header.nextBeginOffset)
        self.assertEqual(ResponseCode.PULL_OFFSET_MOVED, self.pull(self.master, 100).code)

    def test_aPullCommitsNothingAtASlave(self) -> None:
        """
        The commit flag of a pull is ignored at a slave, and heeded at a master.
        """
        for address, expected in ((self.slave, -1), (self.master, 1)):
            for offset in (0, 1):
                self.pull(address, offset, flag=COMMIT, commit=1)
            offsets = self.cluster.broker(address).tables.offsets
            self.assertEqual(expected, offsets.query("G", "T", 0))

    def test_aCommitIsTaken(self) -> None:
        """
        A consumer may commit at a slave, as in Java.
        """
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 1)
        self.assertEqual(
            0, self.answer(self.slave, RequestCode.UPDATE_CONSUMER_OFFSET, header).code
        )

    def test_aSlaveGivesLocks(self) -> None:
        """
        A slave gives locks by itself, as in Java; clients ask masters only.
        """
        queue = MessageQueue("T", "broker-0", 0)
        body = encodeBody(LockBatchRequestBody("G", "c", frozenset({queue})))
        self.assertEqual(0, self.answer(self.slave, RequestCode.LOCK_BATCH_MQ, body=body).code)

    def test_aSlaveDeliversNoDelayedMessages(self) -> None:
        """
        A delayed message is delivered by the master alone, and comes to the slave once.
        """
        self.send(b"late", properties="DELAY\x011\x02")
        self.cluster.advance(5.0)
        self.assertEqual([b"first", b"late"], self.bodies(self.slave))
        self.assertEqualLogs(self.master, self.slave)

    def test_aSlaveTellsItsRole(self) -> None:
        """
        The runtime information has the role.
        """
        for address, role in ((self.master, "MASTER"), (self.slave, "FOLLOWER")):
            answer = self.answer(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            self.assertEqual(role, decodeBody(KVTable, answer.body).table["role"])

    def test_onlyAMasterAnnouncesAnAddressForSlaves(self) -> None:
        """
        Name servers know the slave by its number, and an address for slaves of the master
        only.
        """
        nameServer = self.cluster.nameServers[0]
        answer = self.answer(nameServer, RequestCode.GET_BROKER_CLUSTER_INFO)
        table = decodeBody(ClusterInfo, answer.body).brokerAddrTable["broker-0"]
        self.assertEqual({0: self.master, 1: self.slave}, table.brokerAddrs)
        for address, expected in ((self.master, "198.51.100.1:10912"), (self.slave, "")):
            identity = self.cluster.broker(address).registration.identity
            self.assertEqual(expected, identity.haAddress)


class OffsetCheckTests(GroupCase):
    """
    C{offsetCheckInSlave} and C{slaveReadEnable}.
    """

    settings = {"offsetCheckInSlave": True, "slaveReadEnable": True}

    def test_aSlaveMayCorrectOffsets(self) -> None:
        """
        With offsetCheckInSlave a slave corrects as a master does, and appends nothing.
        """
        self.send()
        before = len(self.log(self.slaves[0]))
        answer = self.pull(self.slaves[0], 100)
        self.assertEqual(ResponseCode.PULL_OFFSET_MOVED, answer.code)
        self.assertEqual(1, answer.decodeHeader(PullMessageResponseHeader).nextBeginOffset)
        self.assertEqual(before, len(self.log(self.slaves[0])))


class TableTests(GroupCase):
    """
    The order of tables and messages.
    """

    def test_anAnsweredTopicIsOnTheSlave(self) -> None:
        """
        A topic is on the slave when its creation is answered.
        """
        self.assertEqual(0, self.cluster.resultOf(self.create("Made")).code)
        topics = self.cluster.broker(self.slaves[0]).tables.topics
        self.assertIsNotNone(topics.get("Made"))
        self.assertEqual(self.cluster.broker().tables.topics.version, topics.version)

    def test_aTopicWaitsForTheSlave(self) -> None:
        """
        While the slave does not answer, the creation of a topic is not answered; then its
        administrator is told.
        """
        self.cluster.cut(self.master, self.slaves[0])
        creating = self.create("Made")
        self.cluster.advance(2.0)
        self.assertNoResult(creating)
        answer = self.cluster.resultOf(creating)
        self.assertEqual(ResponseCode.FLUSH_SLAVE_TIMEOUT, answer.code)
        self.cluster.heal(self.master, self.slaves[0])

    def test_withoutASlaveATopicIsAnswered(self) -> None:
        """
        Without a slave there is nothing to wait for.
        """
        self.cluster.stop(self.slaves[0])
        self.assertEqual(0, self.cluster.resultOf(self.create("Made")).code)

    def test_theFirstMessageOfATopicIsServedByTheSlave(self) -> None:
        """
        A topic that a send creates is on the slave before its first message is answered.
        """
        self.assertEqual(0, self.send(topic="Fresh"))
        self.assertEqual([b"body"], self.bodies(self.slaves[0], "Fresh"))

    def test_offsetsComeToTheSlave(self) -> None:
        """
        What a group commits at the master, the slave knows a second later.
        """
        self.send()
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 1)
        self.answer(self.master, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        self.cluster.advance(1.5)
        offsets = self.cluster.broker(self.slaves[0]).tables.offsets
        self.assertEqual(1, offsets.query("G", "T", 0))

    def test_aDeletedTopicIsDeletedOnTheSlave(self) -> None:
        """
        A topic that is deleted at the master is gone from the slave, with its queues.
        """
        self.send(topic="Gone")
        header = DeleteTopicRequestHeader("Gone")
        self.assertEqual(
            0, self.answer(self.master, RequestCode.DELETE_TOPIC_IN_BROKER, header).code
        )
        slave = self.cluster.broker(self.slaves[0])
        self.assertIsNone(slave.tables.topics.get("Gone"))
        self.assertEqual(0, slave.store.maxOffset("Gone", 0))
