# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.bench}, with brokers in memory.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from txrocket.bench.command import bench
from txrocket.bench.consumer import ConsumerLoad
from txrocket.bench.counters import ReceiveCounter, SendCounter
from txrocket.bench.plan import Plan, readPlan
from txrocket.bench.producer import ProducerLoad
from txrocket.bench.report import ProgressLine, summary
from txrocket.bench.run import Bench, Outcome
from txrocket.bench.timestamp import STAMP_SIZE, SendStamp, readStamp, writeStamp
from txrocket.client.cluster import Cluster
from txrocket.client.sansio.results import SendResult, SendStatus
from txrocket.errors import ConnectFailed, SendFailed
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.testing.trial import memoryCluster

RUN = b"run1"


class Terminal(io.StringIO):
    """
    A stream that is one.
    """

    def isatty(self) -> bool:
        """
        It is.
        """
        return True


class RunTests(SynchronousTestCase):
    """
    Whole runs.
    """

    def setUp(self) -> None:
        """
        Servers, and where things are printed.
        """
        self.out, self.err = io.StringIO(), io.StringIO()

    def run_(self, settings: Any = None, brokers: int = 1, **plan: Any) -> int:
        """
        Run the command.
        """
        servers = memoryCluster(self, settings=settings or {}, brokers=brokers)
        servers.clock.callWhenRunning = lambda function: None  # type: ignore[attr-defined]
        given = Plan(servers.nameServers[0], **plan)
        coroutine = bench(servers.clock, given, self.out, self.err, connect=servers.connect)
        return servers.resultOf(Deferred.fromCoroutine(coroutine), 120)

    def test_allSentMessagesAreReceivedAndTimed(self) -> None:
        """
        All that is sent is received and timed, at all brokers, and the object tells so.
        """
        code = self.run_(
            brokers=2, consumes=True, count=200, rate=100.0, seconds=None, size=100, json=True
        )
        self.assertEqual(code, 0, self.err.getvalue())
        told = json.loads(self.out.getvalue())
        self.assertEqual((told["mode"], told["endedBy"]), ("both", "count"))
        for each in (told["produced"], told["consumed"]):
            self.assertEqual((each["messages"], each["bytes"]), (200, 20_000))
            self.assertEqual(each["latencyMs"]["count"], 200)
        self.assertEqual(told["consumed"]["missing"], 0)
        self.assertEqual(told["produced"]["errors"], {})
        self.assertTrue(1.9 <= told["produced"]["seconds"] <= 2.1)

    def test_batchesHaveTheAskedSize(self) -> None:
        """
        Batches are as large as asked for, but for the last; time limits are kept.
        """
        self.assertEqual(self.run_(count=10, batch=4, seconds=60.0, json=True), 0)
        produced = json.loads(self.out.getvalue())["produced"]
        self.assertEqual((produced["messages"], produced["requests"]), (10, 3))

    def test_runEndsAfterItsSeconds(self) -> None:
        """
        A run ends after its time; every five seconds a line tells how it goes.
        """
        self.assertEqual(self.run_(rate=20.0, seconds=10.5, keys=True, tags="t"), 0)
        self.assertIn("sent      2", self.out.getvalue())
        self.assertIn("ended by seconds", self.out.getvalue())
        lines = self.err.getvalue().splitlines()
        self.assertEqual([each.split()[:2] for each in lines], [["5", "s"], ["10", "s"]])

    def test_onewaySendsWaitForNoAnswer(self) -> None:
        """
        Messages can be sent without waiting for answers.
        """
        self.assertEqual(self.run_(oneway=True, count=300, seconds=None), 0)
        self.assertIn("sent      300 messages", self.out.getvalue())

    def test_missingTopicIsToldInOneLine(self) -> None:
        """
        A topic that cannot be created, or does not exist, is told in one line.
        """
        for plan in ({}, {"produces": False, "consumes": True}):
            code = self.run_(settings={"autoCreateTopicEnable": False}, topic="T", **plan)
            self.assertEqual(code, 1)
            (line,) = self.err.getvalue().splitlines()
            self.assertRegex(line, "^txrocket bench: .*topic T")
            self.err.seek(0)
            self.err.truncate()
        self.assertEqual(self.out.getvalue(), "")

    def test_invalidClusterOrGroupIsReported(self) -> None:
        """
        An invalid cluster or group name is reported, too.
        """
        for plan in (Plan("nowhere"), Plan("127.0.0.1:1", group="a b")):
            coroutine = bench(Clock(), plan, self.out, self.err)
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(coroutine)), 1)
        self.assertEqual(self.err.getvalue().count("txrocket bench: "), 2)

    def test_consumerCountsMessagesOfOthers(self) -> None:
        """
        A consumer counts what others sent, but not what made the topic; with nothing it
        ends with 1.
        """
        servers = memoryCluster(self)
        servers.clock.callWhenRunning = lambda function: None  # type: ignore[attr-defined]
        for plan, expected in (
            (Plan(servers.nameServers[0], count=5, seconds=None), 0),
            (
                Plan(
                    *(servers.nameServers[0], "txrocket-bench", "G2", False, True),
                    fromFirst=True,
                    count=5,
                ),
                0,
            ),
            (Plan(servers.nameServers[0], produces=False, consumes=True, tags="none"), 1),
        ):
            coroutine = bench(servers.clock, plan, self.out, self.err, connect=servers.connect)
            result = servers.resultOf(Deferred.fromCoroutine(coroutine), 120)
            self.assertEqual(result, expected, self.err.getvalue())
        self.assertIn("received  5 messages", self.out.getvalue())
        self.assertIn("received  0 messages", self.out.getvalue())

    def test_interruptReportsOrCancels(self) -> None:
        """
        A run that is ended early tells what there is; one that has not begun is given up.
        """
        servers = memoryCluster(self)
        installed: list[Any] = []
        servers.clock.callWhenRunning = installed.append  # type: ignore[attr-defined]
        for seconds, expected in ((3.0, 0), (0.0, 1)):
            plan = Plan(servers.nameServers[0], rate=10.0, seconds=None)
            coroutine = bench(servers.clock, plan, self.out, self.err, connect=servers.connect)
            task = Deferred.fromCoroutine(coroutine)
            if seconds:
                servers.advance(seconds)
            installed.pop().__self__.interrupt()
            self.assertEqual(servers.resultOf(task), expected)
        self.assertIn("ended by interrupted", self.out.getvalue())
        self.assertIn("interrupted before", self.err.getvalue())

    def test_otherMembersQueuesBringNothing(self) -> None:
        """
        If another member of the group has all queues, the run says so.
        """
        servers = memoryCluster(self)
        plan = Plan(servers.nameServers[0], consumes=True, seconds=100.0, rate=1.0)
        runs = []
        for _ in range(2):
            cluster = Cluster(plan.nameServers, servers.clock, connect=servers.connect)
            self.addCleanup(cluster.stop)
            run = Bench(plan, cluster, RUN, lambda *shown: None)
            runs.append(Deferred.fromCoroutine(run.run()))
            servers.advance(20)
        error = str(self.failureResultOf(runs[1]).value)
        self.assertIn("has group txrocket-bench another member?", error)
        servers.resultOf(runs[0], 200)


class _Producer:
    """
    Answers when it is told to.
    """

    def __init__(self) -> None:
        self.sends: list[tuple[Message, Deferred[Any]]] = []
        self.failing = False

    def send(self, message: Message) -> Deferred[Any]:
        """
        Take a message.
        """
        if self.failing:
            cause = ConnectFailed("a:1", "refused")
            return fail(SendFailed("T", cause, "a:1", 1, 0.1))
        waiting: Deferred[Any] = Deferred()
        self.sends.append((message, waiting))
        return waiting

    def sendOneway(self, message: Message) -> Deferred[None]:
        """
        Take a message for which there is no answer.
        """
        self.sends.append((message, Deferred()))
        return succeed(None)


def result(status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    """
    An answer.
    """
    return SendResult(status, "", "", MessageQueue("T", "b", 0), 0)


class LoadTests(SynchronousTestCase):
    """
    Tests for L{ProducerLoad}.
    """

    def load(self, **plan: Any) -> ProducerLoad:
        """
        A load that has begun.
        """
        self.clock = Clock()
        self.producer = _Producer()
        self.over: list[None] = []
        given = Plan("127.0.0.1:1", **plan)
        load = ProducerLoad(
            given, cast(Any, self.producer), self.clock, RUN, lambda: self.over.append(None)
        )
        load.start()
        return load

    def test_answerMakesRoomForOneRequest(self) -> None:
        """
        A limited number of requests is in flight, and each answer makes room for one; the
        last ends the run.
        """
        load = self.load(inflight=2, count=3)
        self.assertEqual(len(self.producer.sends), 2)
        self.clock.advance(0.002)
        self.producer.sends[0][1].callback(result())
        self.assertEqual((len(self.producer.sends), load.sent.messages), (3, 1))
        self.assertEqual(load.sent.latency.most, 2000)
        for _, waiting in self.producer.sends[1:]:
            self.assertEqual(self.over, [])
            waiting.callback(result(SendStatus.FLUSH_DISK_TIMEOUT))
        self.assertEqual((self.over, load.sent.messages), ([None], 3))
        self.assertEqual(load.sent.statuses, {"FLUSH_DISK_TIMEOUT": 2})

    def test_rateSendsMessagesWhenDue(self) -> None:
        """
        Messages come when they are due, and no sooner.
        """
        self.load(rate=8.0, inflight=100)
        counts = []
        for _ in range(10):
            counts.append(len(self.producer.sends))
            self.clock.advance(0.0625)
        self.assertEqual(counts, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5])

    def test_delayedSendIsTimedFromDue(self) -> None:
        """
        A send that had to wait for room is timed from when it was due, and the next one is
        not.
        """
        load = self.load(rate=10.0, inflight=1)
        self.clock.advance(0.95)
        self.assertEqual(len(self.producer.sends), 1)
        self.producer.sends[0][1].callback(result())
        self.assertEqual(len(self.producer.sends), 2)
        self.producer.sends[1][1].callback(result())
        # It was due at 0.1.
        self.assertEqual(load.sent.latency.percentile(50), 850_000)

    def test_errorsAreCountedByKind(self) -> None:
        """
        Errors are counted by kind; a request that failed keeps its place for a while, so
        that nothing runs wild; then it goes on.
        """
        load = self.load(inflight=1, count=10)
        self.producer.failing = True
        self.producer.sends[0][1].callback(result())
        self.assertEqual(load.sent.errors, {"ConnectFailed": 1})
        self.assertIn("refused", load.sent.first["ConnectFailed"])
        self.clock.advance(0.1)
        self.assertEqual(load.sent.errors, {"ConnectFailed": 2})
        load.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_errorAfterEndIsCounted(self) -> None:
        """
        A send that fails after the end is counted, and leaves nothing to do.
        """
        load = self.load(inflight=1)
        load.end()
        self.producer.sends[0][1].errback(ValueError("late"))
        self.assertEqual(load.sent.errors, {"ValueError": 1})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_onewaySendsLeaveReactorItsTurn(self) -> None:
        """
        Oneway sends, which end at once, leave other work its turn.
        """
        self.load(oneway=True)
        self.assertEqual(len(self.producer.sends), 128)
        call: Any
        (call,) = self.clock.getDelayedCalls()
        self.assertEqual(call.getTime(), 0)
        call.func()
        self.assertEqual(len(self.producer.sends), 256)

    def test_bodyHasSizeRunAndTime(self) -> None:
        """
        A body has its size, and begins with its run and its time; keys differ.
        """
        self.load(size=40, inflight=2, keys=True, tags="t")
        messages = [each for each, _ in self.producer.sends]
        for each in messages:
            self.assertEqual(len(each.body), 40)
            self.assertEqual(readStamp(each.body), SendStamp(RUN, 0))
            self.assertEqual(each.tags, "t")
        self.assertEqual(len({each.keys[0] for each in messages}), 2)


class PartsTests(SynchronousTestCase):
    """
    Marks, command lines, and what is shown.
    """

    def test_stampIsReadAsWritten(self) -> None:
        """
        A stamp is read as it was written; a body without one has none.
        """
        mark = writeStamp(RUN, 2**60)
        self.assertEqual(len(mark), STAMP_SIZE)
        self.assertEqual(readStamp(mark + b"more"), SendStamp(RUN, 2**60))
        for body in (b"", mark[:-1], b"x" * 100):
            self.assertIsNone(readStamp(body))

    def test_planDefaultsToTenSeconds(self) -> None:
        """
        Ten seconds unless something else is said; the mode says what is done.
        """
        plan = readPlan(["produce", "-n", "a:1"], "p")
        self.assertEqual((plan.seconds, plan.count, plan.mode), (10.0, None, "produce"))
        plan = readPlan(["both", "-n", "a:1", "--count", "5"], "p")
        self.assertEqual((plan.seconds, plan.count, plan.mode), (None, 5, "both"))
        plan = readPlan(["consume", "-n", "a:1", "--tags", "a || b", "--seconds", "2.5"], "p")
        self.assertEqual((plan.seconds, plan.tags, plan.mode), (2.5, "a || b", "consume"))

    def test_invalidArgumentsExitWithTwo(self) -> None:
        """
        Invalid arguments are named, and the exit status is 2.
        """
        self.patch(os, "environ", {})
        for arguments, words in (
            (["produce"], "which cluster?"),
            (["produce", "-n", "a:1", "--oneway", "--batch", "2"], "do not go together"),
            (["both", "-n", "a:1", "--tags", "a || b"], "a message has one tag"),
            (["both", "-n", "a:1", "--size", "15"], "'15': 16 or more was expected"),
            (["both", "-n", "a:1", "--rate", "nan"], "'nan': 0.1 or more was expected"),
            (["both", "-n", "a:1", "--inflight", "x"], "'x': 1 to 65,535 was expected"),
        ):
            said = io.StringIO()
            self.patch(sys, "stderr", said)
            error = self.assertRaises(SystemExit, readPlan, arguments, "p")
            self.assertEqual(error.code, 2)
            self.assertIn(words, said.getvalue())

    def test_terminalLineIsRewritten(self) -> None:
        """
        On a terminal one line is rewritten each second, and covers what was longer.
        """
        stream = Terminal()
        progress = ProgressLine(stream)
        sent, received = SendCounter(), ReceiveCounter()
        sent.messages = 1000
        sent.failed(ValueError("x"))
        progress.show(1.0, sent, received)
        sent.errors.clear()
        progress.show(2.0, sent, None)
        progress.done()
        _, first, second = stream.getvalue().split("\r")
        self.assertIn("sent 1,000, 1,000/s", first)
        self.assertIn("1 errors", first)
        self.assertIn("sent 1,000, 0/s", second)
        self.assertEqual(len(second), len(first) + 1)
        self.assertTrue(second.endswith("\n"))

    def test_summaryListsErrorsAndMissing(self) -> None:
        """
        Errors, unsafe answers, and what did not come or was of others are told.
        """
        sent, received = SendCounter(), ReceiveCounter()
        sent.messages, received.messages, received.others = 3, 1, 7
        sent.failed(ValueError("why"))
        sent.statuses["FLUSH_DISK_TIMEOUT"] += 1
        sent.latency.record(2_500_000)
        plan = Plan("a:1", consumes=True, batch=2)
        told = summary(Outcome(plan, "count", 1.0, 1.0, sent, received))
        for words in (
            "1 x ValueError, first: why",
            "1 x FLUSH_DISK_TIMEOUT",
            "2 were sent and not received",
            "7 of other runs were received as well",
            "batches of 2",
            "max 2,500 ms",
        ):
            self.assertIn(words, told)

    def test_waitEndsWithCountOrTimeout(self) -> None:
        """
        Received messages are not awaited, and missing ones not for ever.
        """
        clock = Clock()
        intake = ConsumerLoad(Plan("a:1", consumes=True), clock, RUN, lambda: None)
        self.successResultOf(intake.whenReached(0, 5.0))
        waiting = intake.whenReached(1, 5.0)
        self.assertNoResult(waiting)
        clock.advance(5)
        self.successResultOf(waiting)
