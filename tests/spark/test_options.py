# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{pyspark_rocketmq.options} and L{pyspark_rocketmq.options.parser}.
"""

from __future__ import annotations

import os
import pickle

from pyspark_rocketmq.options import (
    SINK,
    SOURCE,
    STORE,
    SinkOptions,
    SourceOptions,
    StoreOptions,
    TopicChoice,
)
from pyspark_rocketmq.read.offsets import EARLIEST, LATEST
from twisted.trial.unittest import SynchronousTestCase

from txrocket.acl import Credentials
from txrocket.blocking import TLS
from txrocket.errors import ConfigError
from txrocket.model import MessageQueue

# What every source needs.
LEAST = {"nameServers": "h:9876", "subscribe": "Orders"}


class SourceTests(SynchronousTestCase):
    """
    The source's options.
    """

    def read(self, streaming: bool | None = None, **options: str) -> SourceOptions:
        """
        Read some beside those that must be.
        """
        return SourceOptions.read({**LEAST, **options}, streaming=streaming)

    def problems(
        self, options: dict[str, str], *, streaming: bool | None = None
    ) -> tuple[str, ...]:
        """
        The problems of the options.
        """
        error = self.assertRaises(ConfigError, SourceOptions.read, options, streaming=streaming)
        problems: tuple[str, ...] = error.problems
        return problems

    def wrong(self, *, streaming: bool | None = None, **options: str) -> str:
        """
        The one thing that is wrong.
        """
        (problem,) = self.problems({**LEAST, **options}, streaming=streaming)
        return problem

    def test_nameServersAndTopicsSuffice(self) -> None:
        """
        Name servers and topics are enough.  A table is read from the earliest message on,
        a stream from the latest.
        """
        for streaming, expected in ((None, EARLIEST), (False, EARLIEST), (True, LATEST)):
            read = self.read(streaming)
            self.assertEqual(read.starting.value, expected)
            self.assertEqual(read.ending.value, LATEST)
        self.assertEqual(read.settings.nameServers, ("h:9876",))
        self.assertEqual(read.settings.timeout, 30.0)
        self.assertEqual(read.settings.consumerGroup, "TOOLS_CONSUMER")
        self.assertEqual(read.choice, TopicChoice(("Orders",)))
        self.assertEqual((read.expression, read.expressionType), ("*", "TAG"))
        self.assertIsNone(read.maxOffsets)
        self.assertIsNone(read.groupId)
        self.assertTrue(read.failOnDataLoss and read.includeProperties)
        self.assertFalse(read.pushDownFilters)

    def test_everyOptionIsReadInAnyCase(self) -> None:
        """
        Every option can be given, in letters of any case, and what is read can be
        pickled.
        """
        given = {
            "nameServers": "a:1;b:2",
            "accessKey": "account",
            "secretKey": "secret",
            "timeoutMs": "1500",
            "useTLS": "true",
            "tlsAuthServer": "True",
            "tlsTrustCertPath": "ca.pem",
            "tlsCertPath": "own.pem",
            "tlsKeyPath": "key.pem",
            "tlsKeyPassword": "p",
            "subscribe": "A, B,A",
            "startingOffsets": "Earliest",
            "endingOffsets": "LATEST",
            "tags": "x || y",
            "includeProperties": "false",
            "failOnDataLoss": "false",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5m",
            "minPartitions": "2",
            "maxPartitions": "4",
            "pullBatchSize": "64",
            "arrowBatchRows": "1000",
            "pushDownFilters": "true",
            "groupId": "spark",
            "commitOffsets": "true",
        }
        read = SourceOptions.read({name.swapcase(): value for name, value in given.items()})
        # Those that exclude others which are given; they have tests of their own.
        self.assertEqual(
            set(SOURCE) - set(given),
            {
                *("subscribePattern", "assign", "sql"),
                *("startingTimestamp", "startingOffsetsByTimestamp"),
                *("endingTimestamp", "endingOffsetsByTimestamp"),
            },
        )
        settings = read.settings
        self.assertEqual(settings.nameServers, ("a:1", "b:2"))
        self.assertEqual(settings.credentials, Credentials("account", "secret"))
        self.assertEqual(settings.tls, TLS(True, "ca.pem", "own.pem", "key.pem", "p"))
        self.assertEqual((settings.timeout, settings.consumerGroup), (1.5, "spark"))
        self.assertEqual(read.choice.topics, ("A", "B"))
        self.assertEqual((read.starting.value, read.ending.value), (EARLIEST, LATEST))
        self.assertEqual((read.maxOffsets, read.minOffsets, read.maxDelay), (100, 10, 300.0))
        self.assertEqual((read.minPartitions, read.maxPartitions), (2, 4))
        self.assertEqual((read.pullBatchSize, read.arrowBatchRows), (64, 1000))
        self.assertEqual((read.expression, read.groupId), ("x || y", "spark"))
        self.assertTrue(read.pushDownFilters)
        self.assertFalse(read.failOnDataLoss or read.includeProperties)
        self.assertEqual(pickle.loads(pickle.dumps(read)), read)

    def test_nameServersComeFromEnvironment(self) -> None:
        """
        Without name servers those of the environment count, and without those it says
        which option is missing.
        """
        self.patch(os, "environ", {"NAMESRV_ADDR": "e:1"})
        self.assertEqual(SourceOptions.read({"subscribe": "T"}).settings.nameServers, ("e:1",))
        self.patch(os, "environ", {})
        (problem,) = self.problems({"subscribe": "T"})
        self.assertIn("give the option nameServers", problem)
        self.assertIn("'nowhere'", self.wrong(nameServers="nowhere"))

    def test_oldNamesAreAliases(self) -> None:
        """
        The names of older connectors are known, but not beside ours.
        """
        read = SourceOptions.read({"nameserver": "h:1", "topic": "T", "subexpression": "x"})
        self.assertEqual((read.choice.topics, read.expression), (("T",), "x"))
        self.assertEqual(
            self.wrong(topic="T"), "option topic: is another name of subscribe, give one of them"
        )

    def test_misspeltNameIsRefused(self) -> None:
        """
        A name that is nearly one of ours is not passed over; others are not ours.
        """
        self.assertEqual(
            self.wrong(startingOffset="latest"),
            "option startingOffset does not exist; is startingOffsets meant?",
        )
        self.read(checkpointLocation="/c", path="/p")

    def test_topicsAreChosenInOneWay(self) -> None:
        """
        Topics are chosen in one of three ways.
        """
        base = {"nameServers": "h:1"}
        (problem,) = self.problems(base)
        self.assertIn("give one of the options subscribe, subscribePattern, assign", problem)
        self.assertEqual(
            self.wrong(subscribePattern="x"),
            "only one of the options subscribe, subscribePattern can be given",
        )
        read = SourceOptions.read({**base, "subscribePattern": "Or.*"})
        self.assertTrue(read.choice.matches("Orders"))
        self.assertFalse(read.choice.matches("Orders".lower()))
        self.assertFalse(read.choice.matches("MyOrders"))
        read = SourceOptions.read({**base, "assign": '{"T": {"b": [1, 0, 1]}, "U": {"a": [2]}}'})
        self.assertEqual(
            read.choice.queues,
            (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("U", "a", 2)),
        )
        self.assertTrue(read.choice.matches("U"))
        for option, value, says in (
            ("subscribe", " , ", "names nothing"),
            ("subscribe", "", "is empty"),
            ("subscribe", "a b", "characters other than"),
            ("subscribePattern", "(", "is not a regular expression"),
            ("assign", "[1]", "is not a JSON object"),
            ("assign", "{", "is not JSON"),
            ("assign", "{}", "names no queue"),
            ("assign", '{"T": [0]}', "T must have brokers"),
            ("assign", '{"T": {"b": 0}}', "T/b must have a list of queues"),
            ("assign", '{"T": {"b": [true]}}', "T/b must have a list of queues"),
        ):
            (problem,) = self.problems({**base, option: value})
            self.assertIn(says, problem)
            self.assertIn(option, problem)

    def test_tagsOrSqlFilter(self) -> None:
        """
        Messages are chosen by tags or by SQL92.
        """
        read = self.read(sql="a > 5")
        self.assertEqual((read.expression, read.expressionType), ("a > 5", "SQL92"))
        self.assertIn("tags, sql", self.wrong(sql="a > 5", tags="x"))
        self.assertIn("option tags", self.wrong(tags="||"))

    def test_timesSetStartAndEnd(self) -> None:
        """
        Where to begin and to end can be said by time, for all queues and for each.
        """
        read = self.read(startingTimestamp="5", endingOffsetsByTimestamp='{"Orders": {"b": 9}}')
        self.assertEqual((read.starting.value, read.starting.byTime), (5, True))
        self.assertTrue(read.ending.byTime)
        self.assertEqual(read.ending.of(MessageQueue("Orders", "b", 3)), 9)
        self.assertIn(
            "startingOffsets, startingTimestamp",
            self.wrong(startingTimestamp="5", startingOffsets="latest"),
        )
        self.assertIn("is less than 0", self.wrong(startingTimestamp="-1"))
        self.assertIn(
            "not a number from 0 on", self.wrong(endingOffsetsByTimestamp='{"Orders": -1}')
        )
        self.assertIn("is empty", self.wrong(startingOffsets=" "))

    def test_emptyRangeIsRefused(self) -> None:
        """
        A range without rows, or without sense for a stream, is refused.
        """
        self.assertIn("has no rows", self.wrong(streaming=False, startingOffsets="latest"))
        self.assertIn("has no rows", self.wrong(endingOffsets="earliest"))
        self.assertIn("a stream has no end", self.wrong(streaming=True, endingOffsets="latest"))
        self.read(True, startingOffsets="latest")

    def test_invalidNumbersAreRefused(self) -> None:
        """
        Numbers, truths and lengths of time are checked, and that the least is not more
        than the most.
        """
        for option, value, says in (
            ("minPartitions", "0", "0 is less than 1"),
            ("minPartitions", "two", "'two' is not a whole number"),
            ("timeoutMs", "1.5", "not a whole number"),
            ("failOnDataLoss", "yes", "neither true nor false"),
            ("maxTriggerDelay", "soon", "is not a duration"),
        ):
            (said,) = self.problems({**LEAST, option: value})
            self.assertIn(f"option {option}: ", said)
            self.assertIn(says, said)
        self.assertIn("is more than", self.wrong(minPartitions="3", maxPartitions="2"))
        self.assertIn(
            "is more than", self.wrong(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="2")
        )
        for text, seconds in (("250", 0.25), ("2s", 2.0), ("1 h", 3600.0), ("7ms", 0.007)):
            self.assertAlmostEqual(self.read(maxTriggerDelay=text).maxDelay, seconds)

    def test_commitNeedsGroup(self) -> None:
        """
        Progress is told in the name of a group, which can be named without that.
        """
        read = self.read(groupId="g")
        self.assertEqual((read.settings.consumerGroup, read.groupId), ("g", None))
        self.assertIn("needs a groupId", self.wrong(commitOffsets="true"))
        (first, *_) = self.problems({**LEAST, "groupId": "a b"})
        self.assertIn("option groupId", first)

    def test_accountNeedsBothKeys(self) -> None:
        """
        An account has both keys, and what is said of TLS needs TLS.
        """
        self.assertIn("belong together; accessKey is the only one", self.wrong(accessKey="x"))
        self.assertEqual(self.wrong(tlsKeyPath="x"), "the option tlsKeyPath needs useTLS=true")

    def test_allProblemsAreListed(self) -> None:
        """
        All that is wrong is told at once.
        """
        options = {"subscribe": "T", "nameServers": "x", "minPartitions": "x", "tags": "||"}
        self.assertEqual(len(self.problems(options)), 3)


class SinkTests(SynchronousTestCase):
    """
    The sink's options.
    """

    def test_nameServersSuffice(self) -> None:
        """
        Name servers are enough: rows may say their topics.
        """
        read = SinkOptions.read({"nameServer": "h:1"})
        self.assertIsNone(read.topic)
        self.assertIsNone(read.jobId)
        self.assertEqual(read.settings.producerGroup, "SPARK_PRODUCER")

    def test_everyOptionIsRead(self) -> None:
        """
        Every option can be given.
        """
        given = {
            "nameServers": "h:1",
            "topic": "T",
            "producerGroup": "p",
            "sendBatchSize": "5",
            "maxRowsPerSecond": "50",
            "maxMessageSize": "1000",
            "jobId": "j",
            "timeoutMs": "10",
        }
        self.assertEqual(len(set(SINK) - set(given)), 8)
        read = SinkOptions.read(given)
        self.assertEqual((read.topic, read.sendBatchSize, read.jobId), ("T", 5, "j"))
        self.assertEqual(read.maxRate, 50)
        settings = read.settings
        self.assertEqual((settings.producerGroup, settings.maxMessageSize), ("p", 1000))
        self.assertEqual(settings.timeout, 0.01)

    def test_invalidTopicIsRefused(self) -> None:
        """
        A topic that cannot be sent to is refused.
        """
        error = self.assertRaises(
            ConfigError,
            SinkOptions.read,
            {"nameServers": "h:1", "topic": "SCHEDULE_TOPIC_XXXX", "producerGroup": " "},
        )
        self.assertEqual(len(error.problems), 2)
        self.assertIn("option topic: only brokers send", error.problems[0])


class StoreTests(SynchronousTestCase):
    """
    The store reader's options.
    """

    def test_folderIsEnoughAndNeeded(self) -> None:
        """
        A folder is enough, and is needed.
        """
        read = StoreOptions.read({"path": "/a, /b"})
        self.assertEqual(read.paths, ("/a", "/b"))
        self.assertIsNone(read.choice)
        self.assertEqual(read.splitBytes, 128 << 20)
        error = self.assertRaises(ConfigError, StoreOptions.read, {})
        self.assertIn("load(path)", str(error))

    def test_everyOptionIsRead(self) -> None:
        """
        Every option can be given.
        """
        given = {
            "path": "/a",
            "topic": "T",
            "startingTimestamp": "1",
            "endingTimestamp": "2",
            "brokerName": "b",
            "splitBytes": "2000000",
            "checkCrc": "true",
            "failOnDataLoss": "false",
            "includeProperties": "false",
        }
        self.assertEqual(set(STORE) - set(given), {"subscribe", "subscribePattern"})
        read = StoreOptions.read(given)
        assert read.choice is not None
        self.assertTrue(read.choice.matches("T"))
        self.assertEqual((read.starting, read.ending, read.splitBytes), (1, 2, 2_000_000))
        self.assertEqual((read.brokerName, read.checkCrc), ("b", True))
        self.assertFalse(read.failOnDataLoss or read.includeProperties)
        read = StoreOptions.read({"path": "/a", "subscribePattern": "T.*"})
        assert read.choice is not None
        self.assertTrue(read.choice.matches("T2"))

    def test_invalidTimesAreRefused(self) -> None:
        """
        Times must be in order, and parts not tiny.
        """
        error = self.assertRaises(
            ConfigError,
            StoreOptions.read,
            {"path": "/a", "startingTimestamp": "2", "endingTimestamp": "1", "splitBytes": "5"},
        )
        self.assertEqual(len(error.problems), 2)
