# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.read.topicinfo} and L{pyspark_rocketmq.read.offsetcommit}.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from pyspark_rocketmq.options import TopicChoice
from pyspark_rocketmq.read.offsetcommit import OffsetCommit
from pyspark_rocketmq.read.offsets import EARLIEST, LATEST, DataLost, Position
from pyspark_rocketmq.read.topicinfo import TopicInfo, clientFor, retry
from twisted.trial.unittest import SynchronousTestCase

from tests.blocking.server import BlockingCase, cut, inTurn, refuse
from tests.spark.logs import record
from txrocket.blocking import Settings
from txrocket.blocking.deadline import Deadline
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    NoPermission,
    RocketError,
    SendFailed,
    SystemBusy,
    TopicNotExist,
)
from txrocket.model import BrokerData, MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.bodies import TopicList, TopicOffset, TopicStatsTable
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageResponseHeader, SearchOffsetResponseHeader

A0, A1, B0, B1 = (MessageQueue("T", name, number) for name in "ab" for number in (0, 1))


class RetryTests(SynchronousTestCase):
    """
    Asking again.
    """

    def setUp(self) -> None:
        self.pauses: list[int] = []
        self.left = 10

        def pause(deadline: Deadline, attempts: int) -> bool:
            self.pauses.append(attempts)
            return len(self.pauses) < self.left

        self.patch(Deadline, "pause", pause)

    def test_passingErrorIsRetried(self) -> None:
        """
        A passing error is retried, less and less often.
        """
        errors: list[RocketError] = [
            ConnectFailed("h:1", "refused"),
            SystemBusy("busy"),
            SendFailed("T", ConnectFailed("h:1", "refused"), "h:1", 1, 0.1),
            *[SystemBusy("busy")] * 4,
        ]

        def call(left: float) -> str:
            self.assertTrue(0 < left <= 5)
            if errors:
                raise errors.pop(0)
            return "done"

        self.assertEqual(retry(5, call), "done")
        self.assertEqual(self.pauses, [1, 2, 3, 4, 5, 5, 5])

    def test_lastErrorIsRaisedAtTimeout(self) -> None:
        """
        When the time is over, it is the last error.
        """
        self.left = 3
        attempts = []

        def call(left: float) -> None:
            attempts.append(left)
            raise ConnectFailed("h:1", f"refused {len(attempts)}")

        error = self.assertRaises(ConnectFailed, retry, 5, call)
        self.assertEqual(str(error), "refused 3")

    def test_finalErrorIsRaisedAtOnce(self) -> None:
        """
        A final error is raised at once, also as the reason of a failed send.
        """

        def call(left: float) -> None:
            raise SendFailed("T", NoPermission("no"), "h:1", 1, 0.1)

        self.assertRaises(SendFailed, retry, 5, call)
        self.assertEqual(self.pauses, [])


class TopicInfoTests(BlockingCase):
    """
    Requests about a topic.
    """

    def cluster(self, chosen: TopicChoice | None = None) -> TopicInfo:
        """
        Ask the servers of this test.
        """
        return TopicInfo(self.client(timeout=5.0), chosen or TopicChoice(("T",)))

    def test_queuesOfMastersAreListed(self) -> None:
        """
        All queues of the topics, at brokers that have a master now.
        """
        self.assertEqual(self.cluster().queues(), {"T": (A0, A1, B0, B1)})
        self.routes["T"] = TopicRouteData(
            None,
            (QueueData("a", 2, 2, 6), QueueData("b", 2, 2, 6)),
            (BrokerData("c", "a", {0: self.a.address}), BrokerData("c", "b", {1: self.b.address})),
        )
        self.assertEqual(self.cluster().queues(), {"T": (A0, A1)})

    def test_missingTopicIsNamed(self) -> None:
        """
        A topic that does not exist is named, unless those that do will do.
        """
        cluster = self.cluster(TopicChoice(("T", "Nothing")))
        error = self.assertRaises(TopicNotExist, cluster.queues)
        self.assertIn("topic Nothing does not exist", str(error))
        self.assertEqual(list(cluster.queues(strict=False)), ["T"])

    def test_patternOmitsSystemTopics(self) -> None:
        """
        A pattern chooses among all topics but RocketMQ's own; those of groups only if it
        begins like them.
        """
        names = ["T", "Tea", "%RETRY%T", "%DLQ%T", "TBW102", "SCHEDULE_TOPIC_XXXX"]
        self.names.serve[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda request: (
            responseCommand(body=encodeBody(TopicList(frozenset(names))))
        )
        for name in names:
            self.routes[name] = self.routeTo(self.a)
        # One that goes away in between.
        del self.routes["Tea"]
        for pattern, expected in ((".*", ["T"]), ("%.*", ["%DLQ%T", "%RETRY%T"]), ("x", [])):
            self.assertEqual(list(self.cluster(TopicChoice(pattern=pattern)).queues()), expected)

    def test_missingAssignedQueueIsNamed(self) -> None:
        """
        Only the queues that were named are read, and one that does not exist is told,
        when it matters.
        """
        chosen = TopicChoice(("T",), None, (A1, B0))
        self.assertEqual(self.cluster(chosen).queues(), {"T": (A1, B0)})
        chosen = TopicChoice(("T",), None, (A1, MessageQueue("T", "a", 7)))
        cluster = self.cluster(chosen)
        error = self.assertRaises(ConfigError, cluster.queues)
        self.assertEqual(str(error), "option assign: queue T/a/7 does not exist")
        self.assertEqual(cluster.queues(strict=False), {"T": (A1,)})

    def tell(self, bounds: dict[MessageQueue, tuple[int, int]]) -> None:
        """
        Have brokers tell where queues begin and end.
        """
        for server, name in ((self.a, "a"), (self.b, "b")):
            table = {
                queue: TopicOffset(*ends)
                for queue, ends in bounds.items()
                if queue.brokerName == name
            }
            server.serve[RequestCode.GET_TOPIC_STATS_INFO] = lambda request, table=table: (  # type: ignore[misc]
                responseCommand(body=encodeBody(TopicStatsTable(table)))
            )

    def test_eachBrokerIsAskedOnce(self) -> None:
        """
        Each broker is asked once; a queue that it does not tell of is empty.
        """
        bounds = {A0: (1, 5), A1: (2, 6), B0: (0, 9)}
        self.tell(bounds)
        self.assertEqual(self.cluster().bounds([A0, A1, B0, B1]), {**bounds, B1: (0, 0)})
        self.assertEqual((len(self.a.requests), len(self.b.requests)), (1, 1))
        self.a.serve[RequestCode.GET_TOPIC_STATS_INFO] = cut
        self.assertEqual(self.cluster().bounds([B0]), {B0: (0, 9)})

    def test_silentBrokerIsAskedAgain(self) -> None:
        """
        A broker that is away for a moment is asked again.
        """
        self.tell({A0: (1, 5)})
        good = self.a.serve[RequestCode.GET_TOPIC_STATS_INFO]
        busy = refuse(ResponseCode.SYSTEM_BUSY)
        self.a.serve[RequestCode.GET_TOPIC_STATS_INFO] = inTurn(busy, good)
        self.assertEqual(self.cluster().bounds([A0]), {A0: (1, 5)})

    def test_positionResolvesInEachQueue(self) -> None:
        """
        A position is somewhere in each queue.
        """
        bounds = {A0: (3, 9), A1: (0, 0)}
        cluster = self.cluster()
        for value, expected in ((EARLIEST, {A0: 3, A1: 0}), (LATEST, {A0: 9, A1: 0})):
            self.assertEqual(cluster.resolve(Position(value), bounds, strict=True), expected)
        given = Position.word("startingOffsets", '{"T": {"a": {"0": 9, "1": -1}}}')
        self.assertEqual(cluster.resolve(given, bounds, strict=True), {A0: 9, A1: 0})
        given = Position.word("startingOffsets", '{"T": {"b": 0}}')
        self.assertRaises(ConfigError, cluster.resolve, given, bounds, strict=True)

    def test_offsetOutsideQueueIsLost(self) -> None:
        """
        An offset that a queue does not have is an error that says which it has, or the
        nearest counts.
        """
        for value, nearest in ((2, 3), (10, 9)):
            given = Position.word("startingOffsets", f'{{"T": {value}}}')
            error = self.assertRaises(
                DataLost, self.cluster().resolve, given, {A0: (3, 9)}, strict=True
            )
            self.assertIn(f"queue 0 of T at a has messages from 3 to 9, not {value}", str(error))
            self.assertIn("option startingOffsets", str(error))
            self.assertEqual(
                self.cluster().resolve(given, {A0: (3, 9)}, strict=False), {A0: nearest}
            )

    def test_timeResolvesToFirstMessage(self) -> None:
        """
        By time it is the first message at it or later, though the broker tells of one
        near it, and one that is gone is older than all others.
        """
        times = {4: 100, 5: 100, 6: 200, 7: 200, 8: 300}

        def pull(request: RemotingCommand) -> RemotingCommand:
            offset = int(request.extFields["queueOffset"])
            header = PullMessageResponseHeader(0, offset + 1, 3, 9)
            if offset not in times:
                return responseCommand(ResponseCode.PULL_RETRY_IMMEDIATELY, None, header)
            data = record(0, number=offset, stored=times[offset])
            return responseCommand(0, None, header, data)

        self.a.serve[RequestCode.PULL_MESSAGE] = pull
        for near in (3, 6, 8):
            self.a.serve[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda request, near=near: (  # type: ignore[misc]
                responseCommand(header=SearchOffsetResponseHeader(near))
            )
            for when, expected in ((0, 4), (100, 4), (101, 6), (300, 8), (301, 9)):
                position = Position(when, True, "startingTimestamp")
                found = self.cluster().resolve(position, {A0: (3, 9)}, strict=True)
                self.assertEqual(found, {A0: expected})
        self.assertEqual(
            self.cluster().resolve(Position(5, True), {A1: (4, 4)}, strict=True), {A1: 4}
        )

    def test_unreachableServerIsNamed(self) -> None:
        """
        If no server answers in time, the error names it.
        """
        gone = self.nowhere()
        cluster = TopicInfo(clientFor(Settings(gone, timeout=0.5)), TopicChoice(("T",)))
        error = self.assertRaises(ConnectFailed, cluster.queues)
        self.assertIn(gone, str(error))

    def test_settingsShareClient(self) -> None:
        """
        A process has one client for the same settings.
        """
        one, other = Settings("h:1"), Settings("h:2")
        self.assertIs(clientFor(one), clientFor(Settings("h:1")))
        self.assertIsNot(clientFor(one), clientFor(other))


class OffsetCommitTests(BlockingCase):
    """
    Telling brokers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.time = 100.0
        for each in (self.a, self.b):
            for code in (RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET):
                each.serve[code] = lambda request: responseCommand()

    def offsetCommit(self) -> OffsetCommit:
        """
        The group's.
        """
        return OffsetCommit(self.client(), "g", "x", now=lambda: self.time)

    def told(self) -> list[tuple[str, str]]:
        """
        The offsets that brokers were told since the last call.
        """
        found = []
        for each in (self.a, self.b):
            for request in each.requests:
                if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
                    fields = request.extFields
                    found.append((fields["queueId"], fields["commitOffset"]))
            each.requests.clear()
        return found

    def test_changedOffsetsAreCommitted(self) -> None:
        """
        Changed offsets are committed, and the group is registered before that.
        """
        commits = self.offsetCommit()
        commits.commit({A0: 5, B1: 7})
        self.assertEqual(
            self.a.codes(), [RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET]
        )
        self.assertEqual(self.told(), [("0", "5"), ("1", "7")])
        commits.commit({A0: 6, B1: 7})
        self.assertEqual(self.told(), [("0", "6")])
        commits.commit({A0: 6, B1: 7})
        self.assertEqual(self.a.requests, [])

    def test_heartbeatIsSentEachHalfMinute(self) -> None:
        """
        Every half minute brokers get a heartbeat of the group.
        """
        commits = self.offsetCommit()
        for passed in (0.0, 29.0, 1.0, 5.0, 25.0):
            self.time += passed
            commits.commit({A0: 5})
        self.assertEqual(self.a.codes().count(RequestCode.HEART_BEAT), 3)

    def test_failedCommitIsLoggedAndRepeated(self) -> None:
        """
        A failed commit is logged, and repeated the next time.
        """
        commits = self.offsetCommit()
        self.a.serve[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse(ResponseCode.NO_PERMISSION)
        with self.assertLogs("pyspark_rocketmq.read.offsetcommit", "WARNING") as logged:
            commits.commit({A0: 5})
        self.assertIn("Offsets of group g were not committed", logged.output[0])
        self.told()
        self.a.serve[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: responseCommand()
        commits.commit({A0: 5})
        self.assertEqual(self.told(), [("0", "5")])


class ImportTests(SynchronousTestCase):
    """
    The imports of the package.
    """

    MODULES = (
        *("options", "options.parser", "columns.schema", "columns.positions", "read.offsets"),
        *("read.planning", "read.offsetbytime", "read.pushdown", "read.topicinfo"),
        *("read.offsetcommit", "write.rowmessages", "storefiles.segments", "javahome"),
        "session",
    )

    def test_modulesImportNoTwistedAndNoSpark(self) -> None:
        """
        Spark's workers have no reactor, so nothing of Twisted is imported; and what needs
        no Spark and no Arrow does not import them.
        """
        names = ", ".join(f"pyspark_rocketmq.{each}" for each in self.MODULES)
        program = f"import pyspark_rocketmq, {names}, sys; print(*sys.modules)"
        said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
        found = {each.split(".")[0] for each in said.split()}
        self.assertIn("pyspark_rocketmq", found)
        self.assertFalse(found & {"twisted", "zope", "pyspark", "pyarrow", "numpy"})

    def test_packageHasItsNamesOnly(self) -> None:
        """
        The package has its names, and no others.
        """
        import pyspark_rocketmq

        self.assertLessEqual(set(pyspark_rocketmq.__all__), set(dir(pyspark_rocketmq)))
        error = self.assertRaises(AttributeError, getattr, pyspark_rocketmq, "nothing")
        self.assertEqual(str(error), "module 'pyspark_rocketmq' has no attribute 'nothing'")
        self.assertTrue(callable(pyspark_rocketmq.sparkSession))

    def test_exportsNameModulesThatExist(self) -> None:
        """
        Each exported name is looked up in a module that exists, with Spark installed or not.
        """
        import pyspark_rocketmq

        for module, _ in pyspark_rocketmq._PLACES.values():
            self.assertIsNotNone(find_spec(f"pyspark_rocketmq.{module}"), module)
