# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.messages.send} and the disk: nobody is told that a message
is stored before it is, and everybody who waits is told something.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import attrs

from tests.processors.support import (
    BROUGHT,
    SUSPEND,
    BrokerTests,
    Client,
    pullHeader,
    sendHeader,
)
from tests.store.support import Held
from txrocket.message import Message
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.settings import FlushDiskType

FULL = OSError(errno.ENOSPC, "full")
BROKEN = OSError(errno.EIO, "broken")


class CommitTests(BrokerTests):
    """
    ASYNC_FLUSH: who sends is told once the message is in the files.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def messages(self, *bodies: bytes) -> list[RemotingCommand]:
        """
        Requests to take messages.
        """
        return [self.message(body=each) for each in bodies]

    def write(self, *bodies: bytes) -> None:
        """
        Send messages, all in one read, and let the reactor turn.
        """
        self.client.write(*self.messages(*bodies))
        self.clock.advance(0)

    def codes(self, client: Client | None = None) -> list[int]:
        """
        What the broker has answered.
        """
        return [each.code for each in (client or self.client).answers()]

    def test_inTheFiles(self) -> None:
        """
        An answer that is written speaks of a message that is in the files, and
        that a pull finds.
        """
        found: list[list[bytes]] = []
        write = self.client.wire.write

        def watch(pieces: Sequence[bytes]) -> None:
            found.append(self.bodies())
            write(b"".join(pieces))

        self.client.peer.outbox._send = watch
        self.write(b"a", b"b", b"c")
        self.assertEqual(found, [[b"a", b"b", b"c"]])
        self.assertEqual(self.codes(), [0, 0, 0])

    def test_turn(self) -> None:
        """
        The answers wait for the end of the turn.
        """
        self.remoting.turn.driven = True
        self.client.write(*self.messages(b"a"))
        self.assertEqual((self.codes(), self.bodies()), ([], []))
        self.turns()
        self.assertEqual((self.codes(), self.bodies()), ([0], [b"a"]))

    def test_oneWrite(self) -> None:
        """
        The messages of one turn, on whatever connections they come, cost one write to
        the log, and one to the network for each connection.
        """
        writes: list[int] = []
        pwrite = self.disk.pwrite

        def counted(handle: int, data: bytes, offset: int) -> None:
            if "commitlog" in self.disk.opened[handle]:
                writes.append(len(data))
            pwrite(handle, data, offset)

        self.patch(self.disk, "pwrite", counted)
        other = self.connect()
        self.remoting.turn.driven = True
        other.write(self.message(), self.message())
        self.write(*[b"x"] * 10)
        self.turns()
        self.assertEqual(len(writes), 1)
        self.assertEqual(len(self.client.wire.writes), 1)
        self.assertEqual(len(other.wire.writes), 1)

    def test_full(self) -> None:
        """
        What a full disk does not take is answered SERVICE_NOT_AVAILABLE, without
        an id or an offset; what it takes afterwards is not.
        """
        self.disk.failing["pwrite"] = FULL
        self.write(b"a", b"b")
        self.disk.failing.clear()
        for answer in self.client.answers():
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertIn("no room", answer.remark or "")
            self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.stats.failures, 2)
        answer = self.sent(b"c")
        self.assertEqual((answer.code, answer.extFields["queueOffset"]), (0, "0"))
        self.assertEqual(self.bodies(), [b"c"])

    def test_broken(self) -> None:
        """
        After a disk has failed, nothing is taken any more.
        """
        self.disk.failing["pwrite"] = BROKEN
        self.write(b"a")
        self.disk.failing.clear()
        self.write(b"b", b"c")
        self.assertEqual(self.codes(), [ResponseCode.SERVICE_NOT_AVAILABLE] * 3)
        self.assertEqual(self.bodies(), [])

    def test_syncFails(self) -> None:
        """
        Nor after a sync has failed.
        """
        self.sent(b"a")
        self.disk.failing["sync"] = BROKEN
        self.clock.pump([1] * 11)
        self.disk.failing.clear()
        self.assertEqual(self.sent(b"b").code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.bodies(), [b"a"])

    def test_lostBetween(self) -> None:
        """
        A message that is lost in the middle of a read, because the file that it is
        in cannot be ended, is not acknowledged, whatever is written after it.
        """
        pwrite = self.disk.pwrite

        def once(handle: int, data: bytes, offset: int) -> None:
            if "commitlog" in self.disk.opened[handle]:
                self.patch(self.disk, "pwrite", pwrite)
                raise FULL
            pwrite(handle, data, offset)

        self.patch(self.disk, "pwrite", once)
        requests = self.messages(b"a" * 3000, b"b" * 3000, b"c")
        self.client.write(*requests)
        self.clock.advance(0)
        codes = {each.opaque: each.code for each in self.client.answers()}
        self.assertEqual(codes[requests[0].opaque], ResponseCode.SERVICE_NOT_AVAILABLE)
        stored = [each.body for each in requests if codes[each.opaque] == ResponseCode.SUCCESS]
        self.assertEqual(self.bodies(), stored)
        self.assertEqual(stored[-1], b"c")

    def test_lostBesideHeldPull(self) -> None:
        """
        The same on a connection with a held pull, whose answer takes the others
        along: none of them says that a lost message is stored.
        """
        pull = self.client.request(RequestCode.PULL_MESSAGE, pullHeader(sysFlag=SUSPEND | BROUGHT))
        self.client.write(pull)
        self.clock.advance(0)
        self.test_lostBetween()

    def test_lostOnOtherConnection(self) -> None:
        """
        The same if the answers of one connection are settled by another's.
        """
        other = self.connect()
        other.write(other.request(RequestCode.PULL_MESSAGE, pullHeader(sysFlag=SUSPEND | BROUGHT)))
        self.clock.advance(0)
        self.test_lostBetween()
        self.assertEqual(self.codes(other), [ResponseCode.SUCCESS])

    def test_wakesOthers(self) -> None:
        """
        A message wakes a pull held on another connection, and its answer goes out
        at once, though it is given while others are being written.
        """
        other = self.connect()
        other.write(other.request(RequestCode.PULL_MESSAGE, pullHeader(sysFlag=SUSPEND | BROUGHT)))
        # The group is new, and what is written with its table goes out together.
        self.clock.advance(0)
        self.write(b"a", b"b")
        self.assertEqual(self.codes(), [0, 0])
        self.assertEqual(self.codes(other), [0])

    def test_wakesItself(self) -> None:
        """
        A message may wake a pull held on the connection that it came on; each
        request is answered once.
        """
        pull = self.client.request(RequestCode.PULL_MESSAGE, pullHeader(sysFlag=SUSPEND | BROUGHT))
        self.client.write(pull, *self.messages(b"a", b"b"))
        self.clock.advance(0)
        answers = self.client.answers()
        self.assertEqual(sorted(each.opaque for each in answers), [1, 2, 3])
        self.assertEqual([each.code for each in answers], [0, 0, 0])

    def test_closedMeanwhile(self) -> None:
        """
        A client that goes away before it is answered leaves nothing behind, and
        its message is stored.
        """
        self.remoting.turn.driven = True
        self.client.write(self.message())
        self.client.lose()
        self.turns()
        self.remoting.turn.driven = False
        self.assertEqual(self.bodies(), [b"x"])
        other = self.connect()
        self.assertEqual(self.answerTo(self.message(body=b"y"), other).code, 0)

    def test_oneway(self) -> None:
        """
        A message whose sender wants no answer is stored at the turn's end, and
        nothing is kept of it.
        """
        self.client.write(*[self.oneway() for _ in range(3)])
        self.clock.advance(0)
        self.assertEqual(self.client.answers(), [])
        self.assertEqual(len(self.bodies()), 3)

    def test_batch(self) -> None:
        """
        A batch is answered as one message is: all of it is stored, or none.
        """
        batch = encodeBatch([Message("T", each) for each in (b"a", b"b")])
        request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch)
        self.disk.failing["pwrite"] = FULL
        self.assertEqual(self.answerTo(request).code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.disk.failing.clear()
        self.assertEqual(self.answerTo(request).code, ResponseCode.SUCCESS)
        self.assertEqual(self.bodies(), [b"a", b"b"])

    def test_crowded(self) -> None:
        """
        A disk that is too full for more refuses, and says how full it is.
        """
        self.disk.used = 0.95
        self.store.retention.clean()
        answer = self.sent()
        self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertIn("95%", answer.remark or "")


class OneByOneTests(CommitTests):
    """
    The same where each request is served alone.
    """

    together = False


class SyncTests(BrokerTests):
    """
    SYNC_FLUSH: who sends is told once the message is on the disk.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()
        self.topic()

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

    def test_onTheDisk(self) -> None:
        """
        No answer before the sync; then all, in one write.
        """
        self.assertEqual(self.write(self.message(), self.message()), [])
        self.assertEqual(self.bodies(), [b"x", b"x"])
        self.client.wire.writes.clear()
        self.work()
        self.assertEqual([each.code for each in self.client.answers()], [0, 0])
        self.assertEqual(len(self.client.wire.writes), 1)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.end)

    def test_noWait(self) -> None:
        """
        WAIT=false is answered once the message is in the files.
        """
        [answer] = self.write(self.message(sendHeader(properties="WAIT\x01false\x02")))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertEqual(self.bodies(), [b"x"])
        self.assertEqual(self.held.jobs, [])

    def test_oneway(self) -> None:
        """
        Who wants no answer keeps nobody waiting.
        """
        self.assertEqual(self.write(self.oneway()), [])
        self.assertEqual(self.bodies(), [b"x"])
        self.assertEqual(self.store.waiting, (0, 0.0))

    def test_batch(self) -> None:
        """
        A batch is waited for as a message is.
        """
        batch = encodeBatch([Message("T", each) for each in (b"a", b"b")])
        request = self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), batch)
        self.assertEqual(self.write(request), [])
        self.work()
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.SUCCESS)

    def test_late(self) -> None:
        """
        After C{syncFlushTimeout} the answer is FLUSH_DISK_TIMEOUT, with the id and
        the offset of the message, which is in the log; it is the only answer.
        """
        self.assertEqual(self.write(self.message()), [])
        self.clock.advance(5)
        [answer] = self.client.answers()
        self.assertEqual(answer.code, ResponseCode.FLUSH_DISK_TIMEOUT)
        self.assertEqual(
            set(answer.extFields), {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}
        )
        self.assertEqual(answer.extFields["queueOffset"], "0")
        self.work()
        self.assertEqual(self.client.answers(), [])
        self.assertEqual(self.stored()[0].offsetMsgId, answer.extFields["msgId"])

    def test_full(self) -> None:
        """
        What is not even written is refused at the turn's end.
        """
        self.disk.failing["pwrite"] = FULL
        [answer] = self.write(self.message())
        self.disk.failing.clear()
        self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})

    def test_syncFails(self) -> None:
        """
        When the sync fails, all that waited are told so, and those that came
        meanwhile.
        """
        self.write(self.message(), self.message())
        self.write(self.message())
        self.disk.failing["sync"] = BROKEN
        self.work()
        self.disk.failing.clear()
        answers = self.client.answers()
        self.assertEqual([each.code for each in answers], [ResponseCode.SERVICE_NOT_AVAILABLE] * 3)
        for each in answers:
            self.assertIn("broken", each.remark or "")

    def test_partly(self) -> None:
        """
        Of two messages in a read, the one that is written is acknowledged and the
        one that is not is refused.
        """
        self.write(self.message())
        self.disk.failing["allocate"] = FULL
        answers = self.write(self.message(body=b"a" * 3000), self.message(body=b"b" * 3000))
        self.disk.failing.clear()
        self.assertEqual([each.code for each in answers], [ResponseCode.SERVICE_NOT_AVAILABLE])
        self.work()
        self.assertEqual([each.code for each in self.client.answers()], [0, 0])
        self.assertEqual(self.bodies(), [b"x", b"a" * 3000])

    def test_lostTogether(self) -> None:
        """
        When a message that waits for the disk and one that does not are lost with
        each other, neither is acknowledged: the answer to the first takes none to
        the second along that is not true.
        """
        self.disk.failing["pwrite"] = FULL
        answers = self.write(
            self.message(sendHeader(properties="WAIT\x01false")), self.message(), self.message()
        )
        self.disk.failing.clear()
        self.assertEqual([each.code for each in answers], [ResponseCode.SERVICE_NOT_AVAILABLE] * 3)

    def test_lost(self) -> None:
        """
        A client that goes away is waited for no longer; others are served, and the
        message stays.
        """
        other = self.connect()
        self.write(self.message())
        other.write(other.request(RequestCode.SEND_MESSAGE_V2, sendHeader(), b"y"))
        self.clock.advance(0)
        self.client.lose()
        self.work()
        self.assertEqual([each.code for each in other.answers()], [0])
        self.assertEqual(self.bodies(), [b"x", b"y"])
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.store.waiting, (0, 0.0))

    def test_changedMeanwhile(self) -> None:
        """
        If C{flushDiskType} is changed, who waits already is served as was promised.
        """
        self.write(self.message())
        self.store.apply(attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.ASYNC_FLUSH))
        self.assertEqual(self.client.answers(), [])
        self.assertEqual(self.sent().code, ResponseCode.SUCCESS)
        self.work()
        self.assertEqual([each.code for each in self.client.answers()], [0])


class SyncAtOnceTests(SyncTests):
    """
    The same where nothing is gathered but by a sync.
    """

    together = False
