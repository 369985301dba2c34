# SPDX-License-Identifier: Apache-2.0
"""
Every option of source, sink and store reader, given to Spark, with our servers.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import Any, ClassVar

from pyspark.errors import PySparkException
from pyspark_rocketmq.options import SINK, SOURCE, STORE

from tests.spark.running import SessionCase, cluster
from tests.spark.sessions import messagesOf, numbersOf

# They need a server with a certificate: L{tests.blocking} has those, and
# L{tests.spark.test_options} that they get there.
FILES = {"tlsTrustCertPath", "tlsCertPath", "tlsKeyPath", "tlsKeyPassword"}


class OptionTests(SessionCase):
    """
    The effects of options on the rows.
    """

    COUNT: ClassVar = 40

    def setUp(self) -> None:
        super().setUp()
        self.used: set[str] = set()
        self.name = self.topic(1)

    def load(self, form: str = "rocketmq", path: str | None = None, **options: str) -> Any:
        """
        A table.
        """
        self.used |= options.keys()
        return self.spark.read.format(form).options(**options).load(path)

    def rows(self, **options: str) -> list[int]:
        """
        The rows of a topic.
        """
        self.used.add("nameServers")
        return numbersOf(self.load(nameServers=self.nameServers, **options))

    def test_sourceOptionsOfTablesWork(self) -> None:
        """
        The source's, for tables.
        """
        self.send(self.name, range(self.COUNT // 2))
        time.sleep(0.02)
        self.send(self.name, range(self.COUNT // 2, self.COUNT), properties={"colour": "red"})
        every = list(range(self.COUNT))
        old, new = every[: self.COUNT // 2], every[self.COUNT // 2 :]
        stored = {
            int(each.body): each.storeTimestamp for each in messagesOf(self.client, self.name)
        }
        at = min(stored[number] for number in new)
        self.assertLess(max(stored[number] for number in old), at)
        byTime = json.dumps({self.name: at})
        half = json.dumps({self.name: self.COUNT // 4})
        mine = {"subscribe": self.name}
        one = json.dumps({self.name: {"broker-1": [0]}})
        for expected, options in (
            (every, mine),
            (every, {"subscribePattern": self.name[:-1] + "."}),
            (every[1::2], {"assign": one}),
            (new, {**mine, "startingOffsets": half}),
            (old, {**mine, "endingOffsets": half}),
            (new, {**mine, "startingTimestamp": str(at)}),
            (old, {**mine, "endingTimestamp": str(at)}),
            (new, {**mine, "startingOffsetsByTimestamp": byTime}),
            (old, {**mine, "endingOffsetsByTimestamp": byTime}),
            ([n for n in every if n % 3], {**mine, "tags": "t1 || t2"}),
            (new, {**mine, "sql": "colour = 'red'"}),
            (every, {**mine, "pullBatchSize": "3", "arrowBatchRows": "5", "timeoutMs": "20000"}),
            (every, {**mine, "groupId": "someone", "pushDownFilters": "true"}),
            (every, {**mine, "useTLS": "true", "accessKey": "account", "secretKey": "secret"}),
            (
                every,
                {
                    **mine,
                    "failOnDataLoss": "false",
                    "endingOffsets": json.dumps({self.name: 1000}),
                },
            ),
        ):
            self.assertEqual(self.rows(**options), expected, options)
        base = {"nameServers": self.nameServers, **mine}
        for count, options in ((6, {"minPartitions": "6"}), (1, {"maxPartitions": "1"})):
            self.assertEqual(self.load(**base, **options).rdd.getNumPartitions(), count)
        self.assertNotIn("properties", self.load(**base, includeProperties="false").columns)
        for says, options in (
            ("failOnDataLoss", {"endingOffsets": json.dumps({self.name: 1000})}),
            ("certificate", {"useTLS": "true", "tlsAuthServer": "true", "timeoutMs": "500"}),
        ):
            error = self.assertRaises(PySparkException, self.load(**base, **options).count)
            self.assertIn(says, str(error))
        streams = {"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"}
        self.assertEqual(self.used | streams | {"commitOffsets"} | FILES, set(SOURCE))

    def test_sourceOptionsOfStreamsWork(self) -> None:
        """
        The source's, for streams: how much a micro-batch has, how little, how long fewer
        wait, and that brokers are told.
        """
        self.send(self.name, range(self.COUNT))
        folder = os.path.abspath(self.mktemp())
        options = self.options(self.name, startingOffsets="earliest", groupId=f"g-{self.name}")
        reader = self.spark.readStream.format("rocketmq").options(**options)
        reader = reader.option("commitOffsets", "true").option("maxTriggerDelay", "2s")
        frame = reader.options(minOffsetsPerTrigger="15", maxOffsetsPerTrigger="30").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.start()
        self.addCleanup(query.stop)
        deadline = time.monotonic() + 90

        def read() -> list[tuple[int, str]]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
            found = [(each["numInputRows"], each["timestamp"]) for each in query.recentProgress]
            return [each for each in found if each[0]]

        while sum(count for count, _ in read()) < self.COUNT:
            self.assertIsNone(query.exception())
        # The last ten waited.
        (first, began), (second, ended) = read()
        self.assertEqual((first, second), (30, 10))
        self.assertGreater(_seconds(ended) - _seconds(began), 1.5)
        group = f"g-{self.name}"
        while sum(self.client.offset(group, q) or 0 for q in self.client.queues(self.name)) < 40:
            read()

    def test_sinkOptionsWork(self) -> None:
        """
        The sink's.
        """
        frame = self.spark.range(self.COUNT).selectExpr("cast(id as string) as body").coalesce(1)
        options = {
            "nameServers": self.nameServers,
            "topic": self.name,
            "producerGroup": "senders",
            "sendBatchSize": "7",
            "maxRowsPerSecond": "40",
            "maxMessageSize": "1000",
            "jobId": "this",
            "timeoutMs": "20000",
            "useTLS": "true",
            "tlsAuthServer": "false",
            "accessKey": "account",
            "secretKey": "secret",
        }
        self.assertEqual({*options, *FILES}, set(SINK))
        for _ in range(2):
            began = time.monotonic()
            frame.write.format("rocketmq").options(**options).mode("append").save()
            self.assertGreater(time.monotonic() - began, 0.9)
        found = messagesOf(self.client, self.name)
        self.assertEqual(len(found), 2 * self.COUNT)
        self.assertEqual(len({each.msgId for each in found}), self.COUNT)
        large = frame.selectExpr("repeat('x', 1001) as body").write.format("rocketmq")
        error = self.assertRaises(PySparkException, large.options(**options).mode("append").save)
        self.assertIn("1000", str(error))

    def test_storeOptionsWork(self) -> None:
        """
        The store reader's.
        """
        self.send(self.name, range(self.COUNT))
        stored = {
            int(each.body): each.storeTimestamp for each in messagesOf(self.client, self.name)
        }
        first, last = min(stored.values()), max(stored.values())
        path = ",".join(f"{cluster().folder}/broker-{number}/store" for number in (0, 1))
        mine = {"subscribe": self.name}
        for expected, options in (
            (list(stored), mine),
            (list(stored), {"subscribePattern": self.name[:-1] + "."}),
            (list(stored), {**mine, "startingTimestamp": str(first)}),
            ([], {**mine, "startingTimestamp": str(last + 1)}),
            ([], {**mine, "endingTimestamp": str(first)}),
            (list(stored), {**mine, "splitBytes": str(1 << 20), "checkCrc": "true"}),
            (list(stored), {**mine, "failOnDataLoss": "false"}),
        ):
            found = numbersOf(self.load("rocketmq-store", path, **options))
            self.assertEqual(found, sorted(expected), options)
        named = self.load("rocketmq-store", path, **mine, brokerName="b", includeProperties="false")
        self.assertNotIn("properties", named.columns)
        self.assertEqual({row[0] for row in named.select("brokerName").collect()}, {"b"})
        self.assertEqual(self.used | {"path"}, set(STORE))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
