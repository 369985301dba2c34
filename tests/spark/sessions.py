# SPDX-License-Identifier: Apache-2.0
"""
Source, sink and store reader in a Spark session, with our servers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.streaming import StreamingQuery
from pyspark_rocketmq import register

from benchmarks import spark as benchmark
from tests.spark.running import SessionCase, cluster
from txrocket.blocking import Client, Settings
from txrocket.message import Message, MessageExt
from txrocket.testing import ChildCluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_topics.py"


def numbersOf(frame: DataFrame) -> list[int]:
    """
    What bodies say.
    """
    return sorted(int(row[0]) for row in frame.selectExpr("cast(body as string)").collect())


def messagesOf(client: Client, topic: str) -> list[MessageExt]:
    """
    All messages of a topic, pulled.
    """
    found: list[MessageExt] = []
    for queue in client.queues(topic):
        offset, end = client.minOffset(queue), client.maxOffset(queue)
        while offset < end:
            result = client.pull(queue, offset)
            found += result.messages
            offset = result.nextBeginOffset
    return found


class TableTests(SessionCase):
    """
    C{spark.read} and C{df.write}.
    """

    def load(self, topic: str, schema: str | None = None, **options: str) -> DataFrame:
        """
        A table.
        """
        reader = self.spark.read.format("rocketmq").options(**self.options(topic, **options))
        return (reader if schema is None else reader.schema(schema)).load()

    def test_sparkFindsBothSources(self) -> None:
        """
        Spark finds both sources by itself, and knows them as well if they are registered.
        """
        topic = self.topic()
        self.send(topic, range(10))
        self.assertEqual(numbersOf(self.load(topic)), list(range(10)))
        store = self.spark.read.format("rocketmq-store").load(cluster().folder + "/broker-0/store")
        self.assertGreater(store.count(), 0)
        register(self.spark)
        self.assertEqual(self.load(topic).count(), 10)

    def test_schemaIsAsDocumented(self) -> None:
        """
        The schema is as documented, and columns can be asked for.
        """
        topic = self.topic()
        self.send(topic, range(9), properties={"own": "1"})
        frame = self.load(topic)
        self.assertEqual(
            frame.schema.simpleString(),
            "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,msgId:string,"
            "tags:string,keys:string,properties:map<string,string>,bornTimestamp:timestamp,"
            "storeTimestamp:timestamp,bornHost:string,reconsumeTimes:int,body:binary>",
        )
        rows = frame.where("tags = 't1'").select("keys", "properties.own", "body").collect()
        self.assertEqual(sorted(row.keys for row in rows), ["k1", "k4", "k7"])
        self.assertEqual({row.own for row in rows}, {"1"})
        stored = {each.msgId: each.storeTimestamp for each in messagesOf(self.client, topic)}
        found = frame.selectExpr("msgId", "unix_millis(storeTimestamp) as at").collect()
        self.assertEqual({row.msgId: row["at"] for row in found}, stored)
        narrow = self.load(topic, "keys STRING, queueOffset BIGINT")
        self.assertEqual(narrow.columns, ["keys", "queueOffset"])
        self.assertEqual(narrow.count(), 9)
        self.assertNotIn("properties", self.load(topic, includeProperties="false").columns)

    def test_optionsReachSource(self) -> None:
        """
        Offsets, tags and the number of tasks reach the source.
        """
        topic = self.topic(1)
        self.send(topic, range(60))
        frame = self.load(
            topic,
            startingOffsets=f'{{"{topic}": 10}}',
            endingOffsets=f'{{"{topic}": 20}}',
            minPartitions="4",
        )
        self.assertEqual(numbersOf(frame), list(range(20, 40)))
        self.assertEqual(frame.rdd.getNumPartitions(), 4)
        self.assertEqual(len(numbersOf(self.load(topic, tags="t2"))), 20)

    def test_pushedFiltersGiveSameRows(self) -> None:
        """
        With the option, filters decide what is read; the result is the same.
        """
        topic = self.topic(1)
        self.send(topic, range(100))
        wanted = (col("queueOffset") >= 30) & (col("queueOffset") < 35)
        wanted &= col("brokerName") == "broker-0"
        for push in ("true", "false"):
            frame = self.load(topic, pushDownFilters=push, minPartitions="2").where(wanted)
            self.assertEqual(numbersOf(frame), [60, 62, 64, 66, 68])
        metrics = self.load(topic, pushDownFilters="true", minPartitions="7").where(wanted)
        # Five messages are left to be divided.
        self.assertEqual(metrics.rdd.getNumPartitions(), 5)

    def test_rowsAreSentWithIds(self) -> None:
        """
        Rows are sent, with ids that differ, and tags, keys and properties.
        """
        topic, other = self.topic(), self.topic()
        self.send(topic, range(300), properties={"own": "1"})
        frame = self.load(topic).repartition(3)
        frame.select("body", "tags", "keys", "properties").write.format("rocketmq").options(
            nameServers=self.nameServers, topic=other
        ).mode("append").save()
        found = messagesOf(self.client, other)
        self.assertEqual(sorted(int(each.body) for each in found), list(range(300)))
        self.assertEqual(len({each.msgId for each in found}), 300)
        self.assertEqual({each.properties["own"] for each in found}, {"1"})
        for each in found:
            self.assertEqual(each.keys, [f"k{int(each.body)}"])

    def failing(self, act: Callable[[], Any], *says: str, within: float = 60.0) -> None:
        """
        Something fails in time, and says why.
        """
        began = time.monotonic()
        error = self.assertRaises(PySparkException, act)
        self.assertLess(time.monotonic() - began, within)
        for each in says:
            self.assertIn(each, str(error))

    def test_invalidOptionsAreListed(self) -> None:
        """
        Options that are wrong are told when the table is made, all of them, and what is
        not there when it is read.
        """
        self.failing(
            lambda: self.load("T", startingOffsets="newest", minPartitions="x"),
            "ConfigError: option startingOffsets: newest is neither earliest nor latest",
            "option minPartitions: 'x' is not a whole number",
        )
        self.failing(self.load("Nothing").count, "topic Nothing does not exist")
        topic = self.topic()
        self.failing(self.load(topic, "value BINARY").count, "column value does not exist")
        frame = self.spark.range(3).selectExpr("cast(id as string) as value")
        writer = frame.write.format("rocketmq").options(nameServers=self.nameServers, topic=topic)
        self.failing(writer.mode("append").save, "the sink has no column value")

    def test_unreachableServersTimeOut(self) -> None:
        """
        Servers that do not answer are an error within the time that was given.
        """
        # Nobody listens there, and there nobody answers.
        for address in ("127.0.0.1:9", "192.0.2.1:9876"):
            options = {"nameServers": address, "timeoutMs": "1500"}
            frame = self.load("T", **options)
            self.failing(frame.count, "ConnectFailed", address, within=20.0)
            rows = self.spark.range(1).selectExpr("cast(id as string) as body")
            writer = rows.write.format("rocketmq").options(topic="T", **options)
            self.failing(writer.mode("append").save, address, within=20.0)


class StoreTests(SessionCase):
    """
    The store reader.
    """

    def test_runningBrokersFilesAreRead(self) -> None:
        """
        The files of a running broker are read.
        """
        topic = self.topic(1)
        self.send(topic, range(500))
        paths = ",".join(f"{cluster().folder}/broker-{number}/store" for number in (0, 1))
        frame = self.spark.read.format("rocketmq-store").option("subscribe", topic).load(paths)
        self.assertEqual(numbersOf(frame), list(range(500)))
        both = frame.select("msgId", "queueId", "queueOffset", "body", "storeTimestamp")
        same = self.spark.read.format("rocketmq").options(**self.options(topic)).load()
        self.assertEqual(same.select(*both.columns).exceptAll(both).count(), 0)


class StreamTests(SessionCase):
    """
    C{spark.readStream} and C{df.writeStream}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.folder = os.path.abspath(self.mktemp())
        self.queries: list[StreamingQuery] = []
        self.addCleanup(lambda: [each.stop() for each in self.queries])

    def stream(self, options: dict[str, str]) -> DataFrame:
        """
        A stream.
        """
        return self.spark.readStream.format("rocketmq").options(**options).load()

    def start(self, frame: DataFrame, form: str, name: str, now: bool, **options: str) -> Any:
        """
        Start a query.

        @param name: of its checkpoint.
        @param now: whether it ends when all that is there is read.
        """
        writer = frame.writeStream.format(form).options(**options)
        writer = writer.option("checkpointLocation", f"{self.folder}/{name}")
        query = (writer.trigger(availableNow=True) if now else writer).start()
        self.queries.append(query)
        return query

    def finish(self, query: StreamingQuery) -> list[int]:
        """
        Wait for the end of a query.

        @return: how many rows its batches had.
        """
        self.assertTrue(query.awaitTermination(120))
        return [each["numInputRows"] for each in query.recentProgress]

    def until(self, condition: Callable[[], bool], query: StreamingQuery) -> None:
        """
        Wait for something that a running query brings about.
        """
        deadline = time.monotonic() + 90
        while not condition():
            if query.exception():
                raise AssertionError(query.exception())
            self.assertLess(time.monotonic(), deadline, f"{query.status}")
            time.sleep(0.2)

    def test_restartedStreamResumes(self) -> None:
        """
        A stream goes on where it was, in batches that are no larger than they may be;
        every message is in the table once.
        """
        topic = self.topic()
        options = self.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        out = {"path": f"{self.folder}/out"}
        for numbers in (range(100), range(100, 130)):
            self.send(topic, numbers)
            query = self.start(self.stream(options), "parquet", "c", True, **out)
            self.assertLessEqual(max(self.finish(query)), 40)
        self.assertEqual(numbersOf(self.spark.read.parquet(out["path"])), list(range(130)))

    def test_repeatedBatchHasSameIds(self) -> None:
        """
        A batch that was sent and then forgotten, because its stream died, is sent again
        with the same ids.
        """
        topic, other = self.topic(), self.topic()
        self.send(topic, range(50))
        options = self.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        frame = self.stream(options).select("body", "keys")
        sink = {"nameServers": self.nameServers, "topic": other}
        self.finish(self.start(frame, "rocketmq", "c", True, **sink))
        commits = f"{self.folder}/c/commits"
        last = max(int(each) for each in os.listdir(commits) if each.isdigit())
        for each in (f"{commits}/{last}", f"{commits}/.{last}.crc"):
            os.remove(each)
        self.finish(self.start(frame, "rocketmq", "c", True, **sink))
        found = messagesOf(self.client, other)
        self.assertEqual(len(found), 60)
        self.assertEqual(len({each.msgId for each in found}), 50)
        bodies = {each.msgId: int(each.body) for each in found}
        self.assertEqual(sorted(bodies.values()), list(range(50)))

    def test_streamSurvivesRestartAndNewQueue(self) -> None:
        """
        While a stream runs a queue is added, and the broker restarted; it goes on, and
        every message is read once.  How far it has come is told.
        """
        running = ChildCluster(
            folder=self.mktemp(), settings={"flushDiskType": "SYNC_FLUSH"}, timeout=120.0
        )
        self.addCleanup(running.stop)
        running.start()
        client = Client(Settings(running.nameServers, timeout=60.0))
        self.addCleanup(client.close)
        client.createTopic("T", 1)

        def send(numbers: range) -> None:
            for number in numbers:
                queues = client.queues("T")
                client.send(Message("T", b"%d" % number), queues[number % len(queues)])

        options = {
            "nameServers": ";".join(running.nameServers),
            "subscribe": "T",
            "startingOffsets": "earliest",
            "timeoutMs": "60000",
            "groupId": "spark",
            "commitOffsets": "true",
        }
        out = f"{self.folder}/out"
        send(range(10))
        query = self.start(self.stream(options), "parquet", "c", False, path=out)

        def has(count: int) -> Callable[[], bool]:
            return lambda: sum(each["numInputRows"] for each in query.recentProgress) >= count

        self.until(has(10), query)
        client.createTopic("T", 3)
        send(range(10, 30))
        self.until(has(30), query)
        running.kill()
        time.sleep(1.0)
        running.start()
        send(range(30, 40))
        self.until(has(40), query)
        self.until(
            lambda: all(
                client.offset("spark", each) == client.maxOffset(each)
                for each in client.queues("T")
            ),
            query,
        )
        query.stop()
        self.assertEqual(numbersOf(self.spark.read.parquet(out)), list(range(40)))

    def test_unreachableServersEndStream(self) -> None:
        """
        A stream whose servers do not answer ends with an error within its time.
        """
        options = {"nameServers": "127.0.0.1:9", "subscribe": "T", "timeoutMs": "1500"}
        began = time.monotonic()
        query = self.start(self.stream(options), "noop", "c", False)
        error = self.assertRaises(PySparkException, query.awaitTermination, 60)
        self.assertIn("127.0.0.1:9", str(error))
        self.assertLess(time.monotonic() - began, 30)


class ExampleTests(SessionCase):
    """
    C{examples/spark_topics.py}.
    """

    def test_exampleRuns(self) -> None:
        """
        It does what it says.
        """
        spec = importlib.util.spec_from_file_location("spark_topics", EXAMPLE)
        assert spec is not None and spec.loader is not None
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        self.client.createTopic("Orders", 2)
        self.send("Orders", range(30))
        self.patch(example, "sparkSession", lambda *arguments: self.spark)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            example.main(self.nameServers)
        self.assertIn("30 orders", printed.getvalue())
        self.assertIn("30 archived", printed.getvalue())
        self.assertRegex(printed.getvalue(), r"t0\| +10\|")
        copies = messagesOf(self.client, "Copies")
        self.assertEqual({each.tags for each in copies}, {"copied"})
        self.assertEqual(len(copies), 30)


class BenchmarkTests(SessionCase):
    """
    L{benchmarks.spark}.
    """

    def test_tinyBenchmarkPrintsRates(self) -> None:
        """
        All of it runs, with next to nothing to do, and prints a rate and a ratio for each.
        """
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            benchmark.main(benchmark.Size(rows=400, rounds=1, warming=0), self.spark)
        _, *lines = printed.getvalue().splitlines()
        self.assertEqual(
            [line[:2] for line in lines], ["a ", "b ", "c ", "a'", "b'", "c'", "a ", "d "]
        )
        for line in lines:
            self.assertRegex(line, r"  +[\d,]+ +\d+\.\d\d")
