# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.puller}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost as Lost

from tests.captures import Capture, captures
from tests.client.brokers import A1, A, ConsumerTests
from tests.client.network import routeTo
from tests.remoting.doubles import lose
from txrocket.client.consumer.puller import Puller
from txrocket.client.sansio.pullrequest import PullRequest
from txrocket.client.sansio.results import PullResult, PullStatus
from txrocket.errors import (
    ConnectFailed,
    ConnectionLost,
    MissingField,
    NoPermission,
    RequestTimedOut,
    TopicNotExist,
)
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, decodeCommand, responseCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE

ZLIB = COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE


class PullerTestsBase(ConsumerTests):
    """
    One that pulls for group g.
    """

    def setUp(self) -> None:
        super().setUp()
        self.puller = Puller(self.cluster, "g")

    def pull(
        self,
        offset: int = 0,
        most: int = 32,
        expression: str = "*",
        *,
        timeout: float = 10.0,
        **changes: Any,
    ) -> Deferred[PullResult]:
        """
        Pull the first queue.
        """
        pull = PullRequest(self.queue, offset, most, expression, **changes)
        return self.puller.pull(pull, timeout)

    def twoBrokers(self) -> None:
        """
        The broker has a slave.
        """
        self.ns.routes["T"] = routeTo(a={0: A, 1: A1})
        self.got(self.cluster.routes.refresh("T"))


class RequestTests(PullerTestsBase):
    """
    Requests to a broker.
    """

    def test_requestIsJavas(self) -> None:
        """
        A request is that of Java's push and pull consumers, except for the time that they
        name even without waiting, and the C{ReqT} of 4.9.5 and later.
        """
        checked = 0
        for capture in _captured("request"):
            fields = dict(capture.header["extFields"])
            if capture.header["language"] not in ("JAVA", 0) or "bname" not in fields:
                continue
            if "maxMsgBytes" in fields or int(fields["sysFlag"]) not in (2, 4):
                continue
            checked += 1
            fields.pop("ReqT", None)
            waits = fields["sysFlag"] == "2"
            if not waits:
                fields["suspendTimeoutMillis"] = "0"
            self.ns.routes[fields["topic"]] = routeTo(**{fields["bname"]: {0: A}})
            puller = Puller(self.cluster, fields["consumerGroup"])
            queue = MessageQueue(fields["topic"], fields["bname"], int(fields["queueId"]))
            pull = PullRequest(
                queue,
                int(fields["queueOffset"]),
                int(fields["maxMsgNums"]),
                fields.get("subscription", "*"),
                version=int(fields["subVersion"]),
                brought="subscription" in fields,
                wait=15.0 if waits else 0.0,
            )
            pulling = puller.pull(pull, 30.0)
            pulling.addErrback(lambda failure: failure.trap(CancelledError))
            self.network.flush()
            self.assertEqual(self.a.pulls[-1].toFields(), fields)
            pulling.cancel()
        self.assertGreater(checked, 5)


class AnswerTests(PullerTestsBase):
    """
    Answers of a broker.
    """

    def test_foundMessagesNameBroker(self) -> None:
        """
        A result has the messages with the broker's name, the next offset, and the bounds of
        the queue.
        """
        self.a.put(b"0", b"1", b"2")
        result = self.got(self.pull(1, 1))
        self.assertEqual(result[:4], (PullStatus.FOUND, 2, 0, 3))
        (message,) = result.messages
        self.assertEqual((message.body, message.queueOffset), (b"1", 1))
        self.assertEqual(message.brokerName, "a")

    def test_errorAnswerFailsPull(self) -> None:
        """
        Any other answer is an error, with the broker's remark and address.
        """
        self.a.failing[RequestCode.PULL_MESSAGE] = NoPermission("not you")
        self.assertEqual(self.failed(self.pull(), NoPermission), f"{A} answered code 16: not you")

    def test_damagedRecordIsSkippedAndCounted(self) -> None:
        """
        A body without a valid record is skipped, counted and logged.  An answer without its
        fields is an error.
        """
        self.a.put(b"0", b"1")
        self.a.records["T", 0][0] = "", b"no record"
        result = self.got(self.pull())
        self.assertEqual([each.body for each in result.messages], [b"1"])
        self.assertEqual((result.nextBeginOffset, len(result.faults)), (2, 1))
        self.assertEqual(self.puller.unreadable, 1)
        self.a.answers[RequestCode.PULL_MESSAGE] = lambda request: responseCommand()
        self.failed(self.pull(), MissingField)

    def test_capturedAnswersAreUnderstood(self) -> None:
        """
        Captured answers of Java's broker have the status of their code, and as many
        messages as their offsets tell.
        """
        expected = {
            0: PullStatus.FOUND,
            19: PullStatus.NO_NEW_MSG,
            20: PullStatus.NO_MATCHED_MSG,
            21: PullStatus.OFFSET_ILLEGAL,
        }
        seen = set()
        for capture in _captured("response"):
            command = decodeCommand(capture.frame, 4, len(capture.frame))
            if "nextBeginOffset" not in command.extFields:
                continue
            seen.add(command.code)
            result = self.answered(command)
            self.assertIs(result.pullStatus, expected[command.code])
            fields = command.extFields
            self.assertEqual(result.nextBeginOffset, int(fields["nextBeginOffset"]))
            self.assertEqual(
                [each.queueOffset for each in result.messages],
                list(range(result.nextBeginOffset))[-len(result.messages) :]
                if result.messages
                else [],
            )
            self.assertEqual(bool(result.messages), command.code == 0)
        self.assertEqual(seen, {0, 19, 20, 21})

    def answered(self, command: RemotingCommand) -> PullResult:
        """
        The result of a pull that gets this answer.
        """
        answer = RemotingCommand(
            command.code, fields=command.extFields, body=command.body, remark=command.remark
        )
        self.a.answers[RequestCode.PULL_MESSAGE] = lambda request: answer
        queueId = int.from_bytes(command.body[12:16], "big")
        self.queue = MessageQueue("T", self.queue.brokerName, queueId)
        result = self.got(self.pull())
        assert isinstance(result, PullResult)
        self.assertEqual(result.faults, ())
        return result


class BrokerTests(PullerTestsBase):
    """
    Choosing the broker.
    """

    def test_unknownBrokerIsLookedUp(self) -> None:
        """
        An unknown broker is looked up in the route of the queue's topic.
        """
        self.a.put(b"0")
        self.got(self.pull())
        self.got(self.pull())
        self.assertEqual(self.ns.asked, ["T"])

    def test_missingRouteIsError(self) -> None:
        """
        Without a route the pull fails.
        """
        self.ns.routes.clear()
        self.failed(self.pull(), TopicNotExist)

    def test_brokerInNoRouteIsError(self) -> None:
        """
        A broker that is in no route cannot be asked, and the error names it.
        """
        self.ns.routes["T"] = routeTo(b={0: A})
        self.assertIn("the name a ", self.failed(self.pull(), ConnectFailed) + " ")

    def test_suggestedBrokerIsPulledNext(self) -> None:
        """
        The next pull goes to the broker that the last answer suggested.  That is kept for
        each queue, until the queue is forgotten.
        """
        self.twoBrokers()
        self.a.put(b"0")
        self.a.put(b"0", queueId=1)
        self.a1.put(b"0")
        self.a1.suggested = self.a.suggested = 1
        self.got(self.pull())
        self.got(self.pull())
        self.assertEqual((len(self.a.pulls), len(self.a1.pulls)), (1, 1))
        self.got(self.puller.pull(PullRequest(self.queues[1], 0, 1, "*"), 10.0))
        self.assertEqual((len(self.a.pulls), len(self.a1.pulls)), (2, 1))
        self.puller.forget(self.queue)
        self.got(self.pull())
        self.assertEqual((len(self.a.pulls), len(self.a1.pulls)), (3, 1))
        self.puller.forget(MessageQueue("T", "a", 9))

    def test_missingSuggestedBrokerIsReplaced(self) -> None:
        """
        If the suggested broker does not exist, another of its name is asked.
        """
        self.a.put(b"0")
        self.a.suggested = 1
        self.got(self.pull())
        self.got(self.pull())
        self.assertEqual(len(self.a.pulls), 2)

    def test_slaveGetsNoOffset(self) -> None:
        """
        A slave does not get the offset of the group: it copies its master's.
        """
        self.twoBrokers()
        self.a.put(b"0")
        self.a1.put(b"0")
        self.a.suggested = 1
        self.got(self.pull(commitOffset=4))
        self.got(self.pull(commitOffset=4))
        self.assertEqual(self.a.pulls[0].sysFlag, 5)
        self.assertEqual(self.a1.pulls[0].sysFlag, 4)

    def test_silentBrokerIsReplaced(self) -> None:
        """
        If a broker does not answer, the next pull goes to another of its name, and then to
        the first again.  The route is requested each time.
        """
        self.twoBrokers()
        self.a1.put(b"0")
        self.a.mute = True
        asked = len(self.ns.asked)
        pulling = self.pull()
        self.network.advance(10)
        self.failed(pulling, RequestTimedOut)
        self.assertEqual(len(self.ns.asked), asked + 1)
        self.got(self.pull())
        self.assertEqual(len(self.a1.pulls), 1)
        self.puller.forget(self.queue)
        self.a1.mute = True
        for _ in range(2):
            pulling = self.pull()
            self.network.advance(10)
            self.failed(pulling, RequestTimedOut)
        self.a.mute = False
        self.a.put(b"0")
        self.got(self.pull())
        self.assertEqual(len(self.a.pulls), 1)

    def test_lostConnectionFailsHeldPull(self) -> None:
        """
        A held pull fails at once if its connection is lost, also without a name server.
        """
        pulling = self.pull(wait=15.0, timeout=30.0)
        self.network.flush()
        self.ns.routes.clear()
        (accepted,) = self.network.accepted[A]
        protocol = self.cluster.peers._peers[A].protocol
        assert protocol is not None
        lose(protocol, Lost())
        self.failed(pulling, ConnectionLost)
        lose(accepted, Lost())
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_cancelledPullBlamesNoBroker(self) -> None:
        """
        After a cancelled pull no other broker is tried and no route requested.
        """
        self.twoBrokers()
        pulling = self.pull(wait=15.0, timeout=30.0)
        self.network.flush()
        asked = len(self.ns.asked)
        pulling.cancel()
        self.failed(pulling, CancelledError)
        self.a.put(b"0")
        self.got(self.pull())
        self.assertEqual(len(self.a.pulls), 2)
        self.assertEqual(len(self.ns.asked), asked)


def _captured(kind: str) -> list[Capture]:
    return [
        each
        for each in captures()
        if each.requestCode == RequestCode.PULL_MESSAGE and each.kind == kind
    ]
