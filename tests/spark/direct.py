# SPDX-License-Identifier: Apache-2.0
"""
Source, stream and sink, called as Spark calls them, with a cluster and without Spark's
machinery: so each case takes milliseconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)
from pyspark_rocketmq import RocketSource
from pyspark_rocketmq.read.offsets import DataLost
from pyspark_rocketmq.read.planning import WORTH_A_TASK
from pyspark_rocketmq.read.stream import StreamReader
from pyspark_rocketmq.write.writer import Pace

from tests.spark.running import ClusterCase, schemaOf
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    InvalidMessage,
    SubscriptionParseFailed,
    TopicNotExist,
)
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import ConsumeStats
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import GetConsumeStatsRequestHeader

ALL = ReadAllAvailable()


class ReadingCase(ClusterCase):
    """
    Tests that read.
    """

    def reader(self, options: dict[str, str], *names: str) -> Any:
        """
        A table's.
        """
        return RocketSource(options).reader(schemaOf(*names or ("body",)))

    def rows(self, options: dict[str, str], *names: str) -> list[dict[str, Any]]:
        """
        A table's rows.
        """
        reader = self.reader(options, *names)
        return self.read(reader, reader.partitions())

    def read(self, reader: Any, partitions: list[InputPartition]) -> list[dict[str, Any]]:
        """
        The rows of some tasks.
        """
        batches: list[pa.RecordBatch] = []
        for each in partitions:
            batches += reader.read(each)
        return [row for batch in batches for row in batch.to_pylist()]

    def numbers(self, options: dict[str, str]) -> list[int]:
        """
        What a table's bodies say.
        """
        return sorted(int(row["body"]) for row in self.rows(options))

    def messages(self, topic: str) -> list[MessageExt]:
        """
        All messages of a topic, pulled.
        """
        found: list[MessageExt] = []
        for queue in self.client.queues(topic):
            offset, end = self.client.minOffset(queue), self.client.maxOffset(queue)
            while offset < end:
                result = self.client.pull(queue, offset)
                found += result.messages
                offset = result.nextBeginOffset
        return found


class TableTests(ReadingCase):
    """
    Topics as tables.
    """

    def test_everyMessageIsRow(self) -> None:
        """
        Every message is a row, with what is in it.
        """
        topic = self.topic()
        self.send(topic, range(50), properties={"own": "ü"})
        large = bytes(range(256)) * 100
        self.client.send(Message(topic, large, flag=5))
        expected = {}
        for each in self.messages(topic):
            properties = {
                name: value
                for name, value in each.properties.items()
                if name not in ("MIN_OFFSET", "MAX_OFFSET")
            }
            expected[each.msgId] = {
                "topic": topic,
                "brokerName": each.brokerName,
                "queueId": each.queueId,
                "queueOffset": each.queueOffset,
                "msgId": each.msgId,
                "tags": each.tags,
                "keys": each.properties.get("KEYS"),
                "properties": properties,
                "bornTimestamp": datetime.fromtimestamp(each.bornTimestamp / 1000, UTC),
                "storeTimestamp": datetime.fromtimestamp(each.storeTimestamp / 1000, UTC),
                "bornHost": "{}:{}".format(*each.bornHost),
                "reconsumeTimes": 0,
                "body": each.body,
                "offsetMsgId": each.offsetMsgId,
                "commitLogOffset": each.commitLogOffset,
                "storeHost": "{}:{}".format(*each.storeHost),
                "flag": each.flag,
            }
        rows = self.rows(self.options(topic), *next(iter(expected.values())))
        for row in rows:
            row["properties"] = dict(row["properties"])
        self.assertEqual({row["msgId"]: row for row in rows}, expected)
        self.assertEqual(len(rows), 51)
        self.assertIn(large, [row["body"] for row in rows])

    def test_schemaIsDefaultOrUsers(self) -> None:
        """
        The schema is the issue's, or what the user gives: what is not asked for is not
        there.  A column that there is not is refused.
        """
        topic = self.topic()
        self.send(topic, range(3))
        self.assertIn("properties", RocketSource(self.options(topic)).schema())
        short = self.options(topic, includeProperties="false")
        self.assertNotIn("properties", RocketSource(short).schema())
        rows = self.rows(self.options(topic), "queueId", "tags")
        self.assertEqual({tuple(row) for row in rows}, {("queueId", "tags")})
        self.assertRaises(
            ConfigError,
            RocketSource(self.options(topic)).reader,
            StructType().add("value", BinaryType()),
        )

    def test_offsetsSelectExactRows(self) -> None:
        """
        Exactly the rows between two offsets of each queue.
        """
        topic = self.topic(1)
        self.send(topic, range(100))
        table = {topic: {"broker-0": {"0": 10}, "broker-1": {"0": 20}}}
        end = {topic: {"broker-0": {"0": 15}, "broker-1": 22}}
        options = self.options(
            topic, startingOffsets=json.dumps(table), endingOffsets=json.dumps(end)
        )
        # Even numbers are at one broker, odd ones at the other.
        self.assertEqual(self.numbers(options), [20, 22, 24, 26, 28, 41, 43])
        options = self.options(
            topic, endingOffsets=json.dumps({topic: {"broker-0": 2, "broker-1": -2}})
        )
        self.assertEqual(self.numbers(options), [0, 2])

    def test_timesSelectExactRows(self) -> None:
        """
        Exactly the rows that were stored between two times, though many have one time.
        """
        topic = self.topic(1)
        for start in range(0, 600, 100):
            self.send(topic, range(start, start + 100))
            time.sleep(0.01)
        stored = {int(each.body): each.storeTimestamp for each in self.messages(topic)}
        times = sorted(set(stored.values()))
        self.assertGreater(len(times), 5)
        for first, last in (
            (times[0], times[-1] + 1),
            (times[1], times[-2]),
            (times[2] + 1, times[-1]),
            (times[3], times[3]),
            (0, times[0]),
            (times[-1] + 1, times[-1] + 2),
        ):
            expected = sorted(number for number, at in stored.items() if first <= at < last)
            options = {"startingTimestamp": str(first), "endingTimestamp": str(last)}
            self.assertEqual(self.numbers(self.options(topic, **options)), expected)
            options = {
                "startingOffsetsByTimestamp": json.dumps({topic: first}),
                "endingOffsetsByTimestamp": json.dumps({topic: {"broker-0": last, "broker-1": 0}}),
            }
            odd = {number for number in stored if number % 2}
            self.assertEqual(
                self.numbers(self.options(topic, **options)),
                sorted(set(expected) - odd),
            )

    def test_tagsSelectExactRows(self) -> None:
        """
        Tags are chosen by the broker, by their hashes, and then exactly.
        """
        topic = self.topic()
        self.send(topic, range(30))
        # Both have the same hash.
        for tag in ("AaAa", "BBBB"):
            self.client.send(Message(topic, b"77", tag))
        options = self.options(topic, tags="t0 || t2 || BBBB")
        self.assertEqual(self.numbers(options), [*(n for n in range(30) if n % 3 != 1), 77])
        rows = self.rows(self.options(topic, tags="BBBB"), "tags", "body")
        self.assertEqual([row["tags"] for row in rows], ["BBBB"])
        self.assertEqual(self.numbers(self.options(topic, tags="none")), [])

    def test_sqlIsEvaluatedByBroker(self) -> None:
        """
        SQL92 is evaluated by the broker, which says what is wrong with an expression.
        """
        topic = self.topic()
        self.send(topic, range(10), properties={"a": "1"})
        self.client.send(Message(topic, b"77", properties={"a": "9"}))
        self.assertEqual(self.numbers(self.options(topic, sql="a > 5")), [77])
        error = self.assertRaises(
            SubscriptionParseFailed, self.numbers, self.options(topic, sql="a >")
        )
        self.assertIn("SQL92 expression, line 1", str(error))

    def test_queuesAreDividedAmongTasks(self) -> None:
        """
        A few messages are one task; large queues are split, and queues are put together.
        """
        topic = self.topic(4)
        self.send(topic, range(800))
        for more, count in (
            ({}, 1),
            ({"minPartitions": "20"}, 20),
            ({"maxPartitions": "3", "minPartitions": "1"}, 1),
            ({"minPartitions": "3", "maxPartitions": "3"}, 3),
        ):
            options = self.options(topic, **more)
            self.assertEqual(len(self.reader(options).partitions()), count)
            self.assertEqual(self.numbers(options), list(range(800)))
        self.send(topic, range(8 * WORTH_A_TASK))
        self.assertEqual(len(self.reader(self.options(topic)).partitions()), 8)

    def test_pullsAndBatchesHaveAskedSize(self) -> None:
        """
        Pulls and batches are as large as is asked for.
        """
        topic = self.topic(1)
        self.send(topic, range(500))
        options = self.options(topic, arrowBatchRows="50", pullBatchSize="20", minPartitions="2")
        reader = self.reader(options)
        for partition in reader.partitions():
            sizes = [each.num_rows for each in reader.read(partition)]
            self.assertEqual(sizes, [60, 60, 60, 60, 10])

    def test_tlsAndAccountReadTheSame(self) -> None:
        """
        Over TLS it is the same, and an account signs what is asked.
        """
        topic = self.topic()
        self.send(topic, range(10))
        options = self.options(topic, useTLS="true", accessKey="account", secretKey="secret")
        self.assertEqual(self.numbers(options), list(range(10)))
        wrong = self.options(topic, useTLS="true", tlsAuthServer="true", timeoutMs="500")
        error = self.assertRaises(ConnectFailed, self.reader(wrong).partitions)
        self.assertIn("certificate", str(error))

    def test_topicsPatternOrQueuesAreRead(self) -> None:
        """
        Several topics, all that match a pattern, or single queues.
        """
        one, other = self.topic(), self.topic()
        self.send(one, range(10))
        self.send(other, range(10, 20))
        self.assertEqual(self.numbers(self.options(f"{one},{other}")), list(range(20)))
        base = {"nameServers": self.nameServers}
        pattern = one[:-3] + ".*"
        self.assertEqual(self.numbers({**base, "subscribePattern": pattern}), list(range(10)))
        queue = self.client.queues(one)[1]
        assigned = json.dumps({one: {queue.brokerName: [queue.queueId]}})
        self.assertEqual(self.numbers({**base, "assign": assigned}), [1, 5, 9])

    def test_emptyTopicHasNoRows(self) -> None:
        """
        A topic without messages is a table without rows.
        """
        reader = self.reader(self.options(self.topic()))
        self.assertEqual(reader.partitions(), [])
        # What Spark has in place of no task.
        self.assertEqual(self.read(reader, [InputPartition(None)]), [])

    def test_missingTopicIsReportedWhenPlanned(self) -> None:
        """
        A missing topic is reported when the table is planned.
        """
        reader = self.reader(self.options("Nothing"))
        error = self.assertRaises(TopicNotExist, reader.partitions)
        self.assertIn("topic Nothing does not exist", str(error))
        topic = self.topic(1)
        for table in ({"Other": 1}, {topic: {"broker-0": 0}}):
            reader = self.reader(self.options(topic, startingOffsets=json.dumps(table)))
            self.assertRaises(ConfigError, reader.partitions)
        reader = self.reader(self.options(topic, startingOffsets=json.dumps({topic: 5})))
        self.assertRaises(DataLost, reader.partitions)
        options = self.options(
            topic, startingOffsets=json.dumps({topic: 5}), failOnDataLoss="false"
        )
        self.assertEqual(self.reader(options).partitions(), [])

    def test_pushedFiltersReadLess(self) -> None:
        """
        Filters leave out what cannot match, and Spark still looks at all rows.
        """
        topic = self.topic(2)
        self.send(topic, range(40))
        times = sorted({each.storeTimestamp for each in self.messages(topic)})
        options = self.options(topic, pushDownFilters="true", minPartitions="1")
        until = datetime.fromtimestamp((times[-1] + 1) / 1000, UTC)
        for filters, count in (
            ([], 40),
            ([EqualTo(("topic",), "Other")], 0),
            ([EqualTo(("queueId",), 0)], 20),
            ([GreaterThanOrEqual(("queueOffset",), 8)], 8),
            ([LessThan(("queueOffset",), 8), EqualTo(("brokerName",), "broker-0")], 16),
            ([LessThan(("storeTimestamp",), until)], 40),
            ([GreaterThanOrEqual(("storeTimestamp",), until)], 0),
        ):
            reader = self.reader(options)
            self.assertEqual(list(reader.pushFilters(filters)), filters)
            self.assertEqual(len(self.read(reader, reader.partitions())), count)
        # Without the option Spark must not find the method.
        self.assertNotIn("pushFilters", vars(type(self.reader(self.options(topic)))))


class StreamTests(ReadingCase):
    """
    Topics as streams.
    """

    def setUp(self) -> None:
        super().setUp()
        self.time = 1000.0
        self.slept: list[float] = []

    def stream(self, options: dict[str, str]) -> StreamReader:
        """
        A stream's reader, whose time stands still unless it sleeps, or a test says so.
        """
        stream = RocketSource(options).streamReader(schemaOf("body"))
        assert isinstance(stream, StreamReader)

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.time += seconds

        stream.now = lambda: self.time
        stream.sleep = sleep
        return stream

    def nextOffset(self, stream: StreamReader, start: Any, limit: Any = None) -> Any:
        """
        What Spark does: ask where to go, and keep it as text.
        """
        found = stream.latestOffset(start, limit or stream.getDefaultReadLimit())
        return json.loads(json.dumps(found))

    def between(self, stream: StreamReader, start: Any, end: Any) -> list[int]:
        """
        What a micro-batch reads.
        """
        rows = self.read(stream, stream.partitions(start, end))
        return sorted(int(row["body"]) for row in rows)

    def test_firstBatchWritesStart(self) -> None:
        """
        The first batch has no rows and says where the stream begins; then all that is
        there is read, and then what is new.
        """
        topic = self.topic()
        self.send(topic, range(20))
        stream = self.stream(self.options(topic, startingOffsets="earliest"))
        initial = stream.initialOffset()
        self.assertEqual(initial, {"v": 1})
        start = self.nextOffset(stream, initial)
        queues = {"0": 0, "1": 0}
        self.assertEqual(
            start, {"v": 1, "offsets": {topic: {"broker-0": queues, "broker-1": queues}}}
        )
        self.assertEqual(stream.partitions(initial, start), [])
        end = self.nextOffset(stream, start)
        self.assertEqual(self.between(stream, start, end), list(range(20)))
        self.assertIs(stream.latestOffset(end, ALL), end)
        self.send(topic, range(20, 25))
        last = self.nextOffset(stream, end)
        self.assertEqual(self.between(stream, end, last), list(range(20, 25)))
        self.assertEqual(stream.reportLatestOffset(), last)

    def test_defaultStartIsLatest(self) -> None:
        """
        By default a stream begins with the next message; that offset is fixed once it is
        written down, even if it is requested again.
        """
        topic = self.topic()
        self.send(topic, range(5))
        stream = self.stream(self.options(topic))
        self.assertIsNone(stream.reportLatestOffset())
        start = self.nextOffset(stream, stream.initialOffset())
        self.send(topic, range(5, 9))
        # Spark is killed, and asks another one.
        stream = self.stream(self.options(topic))
        self.assertEqual(stream.initialOffset(), {"v": 1})
        end = self.nextOffset(stream, start)
        self.assertEqual(self.between(stream, start, end), [5, 6, 7, 8])

    def test_streamStartsAtOffsetsOrTime(self) -> None:
        """
        A stream begins at offsets, or at a time.
        """
        topic = self.topic(1)
        self.send(topic, range(10))
        for more, expected in (
            ({"startingOffsets": json.dumps({topic: {"broker-0": 3, "broker-1": -1}})}, [6, 8]),
            ({"startingTimestamp": "0"}, list(range(10))),
            ({"startingOffsetsByTimestamp": json.dumps({topic: 2**50})}, []),
        ):
            stream = self.stream(self.options(topic, **more))
            start = self.nextOffset(stream, stream.initialOffset())
            end = self.nextOffset(stream, start)
            self.assertEqual(self.between(stream, start, end), expected)
        stream = self.stream(self.options(topic, startingOffsets=json.dumps({topic: 99})))
        self.assertRaises(DataLost, self.nextOffset, stream, stream.initialOffset())

    def test_batchKeepsLimit(self) -> None:
        """
        A batch has no more than it may, unless Spark asks for all.
        """
        topic = self.topic()
        self.send(topic, range(50))
        options = self.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        stream = self.stream(options)
        self.assertEqual(stream.getDefaultReadLimit(), ReadMaxRows(20))
        start = self.nextOffset(stream, stream.initialOffset())
        self.assertEqual(len(self.between(stream, start, self.nextOffset(stream, start, ALL))), 50)
        sizes, seen = [], []
        while (end := self.nextOffset(stream, start)) != start:
            found = self.between(stream, start, end)
            sizes.append(len(found))
            seen += found
            start = end
        self.assertEqual((sizes, sorted(seen)), ([20, 20, 10], list(range(50))))

    def test_fewMessagesWaitForDelay(self) -> None:
        """
        Too few messages wait for others, but not for ever.
        """
        topic = self.topic()
        options = self.options(
            topic,
            startingOffsets="earliest",
            minOffsetsPerTrigger="10",
            maxTriggerDelay="60s",
        )
        stream = self.stream(options)
        self.assertEqual(stream.getDefaultReadLimit(), ReadMinRows(10))
        start = self.nextOffset(stream, stream.initialOffset())
        self.send(topic, range(3))
        # The first is not kept waiting.
        end = self.nextOffset(stream, start)
        self.assertEqual(len(self.between(stream, start, end)), 3)
        self.send(topic, range(5))
        self.assertEqual(self.nextOffset(stream, end), end)
        self.time += 61
        last = self.nextOffset(stream, end)
        self.assertEqual(len(self.between(stream, end, last)), 5)
        self.send(topic, range(10))
        self.assertEqual(len(self.between(stream, last, self.nextOffset(stream, last))), 10)
        both = self.stream({**options, "maxOffsetsPerTrigger": "12"})
        self.assertEqual(both.getDefaultReadLimit(), ReadMaxRows(12))
        both._triggered = self.time
        self.assertEqual(len(self.between(both, start, self.nextOffset(both, start))), 12)
        last = self.nextOffset(stream, last)
        self.send(topic, range(2))
        self.assertEqual(self.nextOffset(both, last), last)
        # Spark wants all that there is, whatever there is.
        self.assertNotEqual(self.nextOffset(both, last, ALL), last)

    def test_availableNowEndsAtFirstEnd(self) -> None:
        """
        A trigger of available messages reads those present at the start, in several
        batches; later messages and queues are not read.
        """
        topic = self.topic(1)
        self.send(topic, range(50))
        stream = self.stream(
            self.options(
                topic,
                startingOffsets="earliest",
                maxOffsetsPerTrigger="15",
                minOffsetsPerTrigger="15",
            )
        )
        stream.prepareForTriggerAvailableNow()
        start = self.nextOffset(stream, stream.initialOffset())
        seen: list[int] = []
        while (end := self.nextOffset(stream, start)) != start:
            seen += self.between(stream, start, end)
            self.send(topic, range(100, 110))
            self.client.createTopic(topic, 2)
            self.time += 5
            start = end
        self.assertEqual(sorted(seen), list(range(50)))

    def test_newQueueIsReadFromFirst(self) -> None:
        """
        A queue that is added while a stream runs is read from its first message.  So is a
        new topic that matches a pattern.
        """
        topic = self.topic(1)
        self.send(topic, range(4))
        stream = self.stream(
            {"nameServers": self.nameServers, "subscribePattern": topic[:-2] + ".*"}
        )
        start = self.nextOffset(stream, stream.initialOffset())
        self.client.createTopic(topic, 2)
        other = topic[:-2] + "-other"
        self.client.createTopic(other, 1)
        self.send(topic, range(10, 18))
        self.send(other, range(20, 22))
        seen: list[int] = []
        for _ in range(100):
            end = self.nextOffset(stream, start)
            seen += self.between(stream, start, end)
            start = end
            if len(seen) >= 10:
                break
            # Brokers tell the name server at their own time.
            self.time += 5
            time.sleep(0.1)
        self.assertEqual(sorted(seen), [*range(10, 18), 20, 21])

    def test_replannedBatchIsSame(self) -> None:
        """
        A batch that is planned again has the same tasks, whatever has come since.
        """
        topic = self.topic()
        self.send(topic, range(30))
        options = self.options(topic, startingOffsets="earliest", minPartitions="3")
        stream = self.stream(options)
        start = self.nextOffset(stream, stream.initialOffset())
        end = self.nextOffset(stream, start)
        planned = [each.value for each in stream.partitions(start, end)]
        self.send(topic, range(30))
        again = self.stream(options)
        self.assertEqual([each.value for each in again.partitions(start, end)], planned)

    def test_lostOffsetsFailOrContinue(self) -> None:
        """
        Offsets that a queue does not have are lost data, or it goes on with what there
        is.
        """
        topic = self.topic(1)
        self.send(topic, range(4))
        start = {"v": 1, "offsets": {topic: {"broker-0": {"0": 50}, "broker-1": {"0": 2}}}}
        stream = self.stream(self.options(topic))
        error = self.assertRaises(DataLost, stream.latestOffset, start, ALL)
        self.assertIn("is to be read from 50 on, but has messages from 0 to 2", str(error))
        stream = self.stream(self.options(topic, failOnDataLoss="false"))
        end = self.nextOffset(stream, start)
        self.assertEqual(self.between(stream, start, end), [])
        last = self.nextOffset(stream, end)
        self.assertEqual(self.between(stream, end, last), [0, 2])

    def test_brokersArePolledTenTimesASecond(self) -> None:
        """
        However often Spark asks, brokers are asked ten times a second, and name servers
        every other second.
        """
        topic = self.topic(1)
        stream = self.stream(self.options(topic))
        start = self.nextOffset(stream, stream.initialOffset())
        asked = self.time
        for _ in range(50):
            self.nextOffset(stream, start)
        self.assertAlmostEqual(self.time - asked, 5.0, delta=0.2)

    def test_progressIsCommitted(self) -> None:
        """
        The stream commits its progress at the brokers under its group, where RocketMQ's
        tools look, also without new messages.
        """
        topic = self.topic(1)
        self.send(topic, range(10))
        group = f"group-{topic}"
        stream = self.stream(
            self.options(topic, startingOffsets="earliest", groupId=group, commitOffsets="true")
        )
        start = self.nextOffset(stream, stream.initialOffset())
        end = self.nextOffset(stream, start)
        queue = MessageQueue(topic, "broker-0", 0)
        self.assertEqual(self.client.offset(group, queue), 0)
        # The batch is done when Spark asks for the next.
        self.nextOffset(stream, end)
        self.assertEqual(self.client.offset(group, queue), 5)
        self.send(topic, range(2))
        stream.commit(self.nextOffset(stream, end))
        self.assertEqual(self.client.offset(group, queue), 6)
        stream.commit(stream.initialOffset())
        # As consumerProgress of mqadmin asks: first where the group's retry topic is.
        (address, *_) = [
            each.brokerAddrs[0]
            for each in self.client.route(f"%RETRY%{group}").brokerDatas
            if each.brokerName == "broker-0"
        ]
        self.send(topic, range(4))
        request = requestCommand(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(group))
        answer = self.client._brokers.askAt(
            address, request, lambda answer, address: answer, self.client._deadline(None)
        )
        table = decodeBody(ConsumeStats, answer.body).offsetTable
        places = {each.queueId: place for each, place in table.items() if each.topic == topic}
        self.assertEqual((places[0].brokerOffset, places[0].consumerOffset), (8, 6))

    def test_foreignCheckpointIsRefused(self) -> None:
        """
        The checkpoint of another source is refused.
        """
        stream = self.stream(self.options(self.topic(1)))
        self.assertRaises(ConfigError, stream.latestOffset, {"Orders": {"0": 1}}, ALL)


class SinkTests(ReadingCase):
    """
    Rows as messages.
    """

    def schema(self, **columns: Any) -> StructType:
        """
        A table's schema.
        """
        schema = StructType()
        for name, kind in columns.items():
            schema.add(name, kind)
        return schema

    def batches(self, *tables: dict[str, list[Any]]) -> Iterator[pa.RecordBatch]:
        """
        Rows as a task gets them.
        """
        kinds = {"properties": pa.map_(pa.string(), pa.string())}
        for table in tables:
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, kinds.get(name)) for name, values in table.items()],
                names=list(table),
            )

    def writer(self, schema: StructType, **options: str) -> Any:
        """
        A table's writer.
        """
        return RocketSource({"nameServers": self.nameServers, **options}).writer(schema, False)

    def test_columnsBecomeMessages(self) -> None:
        """
        Rows become messages with all that their columns say, in the order of rows within
        a queue.
        """
        topic = self.topic()
        schema = self.schema(
            body=BinaryType(),
            topic=StringType(),
            tags=StringType(),
            keys=ArrayType(StringType()),
            properties=MapType(StringType(), StringType()),
            queueId=IntegerType(),
            brokerName=StringType(),
            flag=IntegerType(),
        )
        count = 500
        table: dict[str, list[Any]] = {
            "body": [b"%d" % number for number in range(count)],
            "topic": [topic] * count,
            "tags": ["new"] * count,
            "keys": [["a", f"k{number}"] for number in range(count)],
            "properties": [[("n", str(number))] for number in range(count)],
            "queueId": [number % 2 for number in range(count)],
            "brokerName": ["broker-1"] * (count // 2) + [None] * (count // 2),
            "flag": list(range(count)),
        }
        sent = self.writer(schema, sendBatchSize="7").write(self.batches(table))
        self.assertEqual(sent.count, count)
        found = self.messages(topic)
        self.assertEqual(len(found), count)
        last: dict[tuple[str, int], int] = {}
        for each in found:
            number = int(each.body)
            self.assertEqual((each.tags, each.flag), ("new", number))
            self.assertEqual(each.keys, ["a", f"k{number}"])
            self.assertEqual(each.properties["n"], str(number))
            self.assertEqual(each.queueId, number % 2)
            # Without a name it is always the first one.
            self.assertEqual(each.brokerName, f"broker-{int(number < count // 2)}")
            self.assertGreater(number, last.get((each.brokerName, each.queueId), -1))
            last[each.brokerName, each.queueId] = number
        self.assertEqual(len({each.msgId for each in found}), count)

    def test_repeatedAttemptKeepsIds(self) -> None:
        """
        An attempt that is repeated gives rows the ids that they had; another job does
        not, unless it is told to.
        """
        topic = self.topic()
        schema = self.schema(body=StringType())
        tables: list[dict[str, list[Any]]] = [{"body": ["a", "b"]}, {"body": ["c"]}]
        writer = self.writer(schema, topic=topic)
        for each in (writer, writer, self.writer(schema, topic=topic)):
            each.write(self.batches(*tables))
        found = self.messages(topic)
        self.assertEqual(len(found), 9)
        self.assertEqual(len({each.msgId for each in found}), 6)
        named = self.topic()
        for _ in range(2):
            self.writer(schema, topic=named, jobId="nightly").write(self.batches(*tables))
        ids = {each.msgId: each.body for each in self.messages(named)}
        self.assertEqual(sorted(ids.values()), [b"a", b"b", b"c"])
        # Tools find them by these ids.
        for msgId in ids:
            self.assertEqual(len(self.client.queryMessage(named, msgId, unique=True)), 2)

    def test_manyRowsGoInSeveralRequests(self) -> None:
        """
        Rows that are too many for a request go in several, and one that is too large for
        any is an error that says so.
        """
        topic = self.topic(1)
        schema = self.schema(body=BinaryType())
        table = {"body": [bytes([number]) * 300_000 for number in range(1, 11)]}
        self.writer(schema, topic=topic).write(self.batches(table))
        self.assertEqual(sorted(each.body[0] for each in self.messages(topic)), list(range(1, 11)))
        writer = self.writer(schema, topic=topic, maxMessageSize="1000")
        error = self.assertRaises(InvalidMessage, writer.write, self.batches(table))
        self.assertIn("300", str(error))

    def test_rateLimitsSends(self) -> None:
        """
        No more is sent in a second than may be, and what was taken is sent before it
        waits.
        """
        topic = self.topic(1)
        writer = self.writer(self.schema(body=StringType()), topic=topic, maxRowsPerSecond="100")
        began = time.monotonic()
        writer.write(self.batches({"body": [str(number) for number in range(60)]}))
        self.assertGreater(time.monotonic() - began, 0.5)
        self.assertEqual(len(self.messages(topic)), 60)
        moment = 0.0
        slept: list[float] = []
        flushed: list[int] = []
        pace = Pace(10, lambda: moment, slept.append)
        for count in range(3):
            pace.wait(count, lambda: flushed.append(len(slept)))
        self.assertEqual((slept, flushed), ([0.1, 0.2], [0, 1]))
        moment = 5.0
        pace.wait(40, self.fail)

    def test_delayedRowKeepsId(self) -> None:
        """
        A row with a delay level is delivered later, under its own id.
        """
        topic = self.topic(1)
        schema = self.schema(body=StringType(), delayLevel=IntegerType())
        table: dict[str, list[Any]] = {"body": ["later", "now"], "delayLevel": [1, None]}
        self.writer(schema, topic=topic).write(self.batches(table))
        self.assertEqual([each.body for each in self.messages(topic)], [b"now"])
        deadline = time.monotonic() + 30
        while len(self.messages(topic)) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        found = sorted(self.messages(topic), key=lambda each: each.storeTimestamp)
        self.assertEqual([each.body for each in found], [b"now", b"later"])
        self.assertEqual(len({each.msgId[:20] for each in found}), 1)

    def test_retryTopicGetsSingleMessages(self) -> None:
        """
        Rows for a group's retry topic are sent one by one: brokers take no batches there.
        """
        topic = f"%RETRY%{self.topic(1)}"
        self.client.createTopic(topic, 1)
        writer = self.writer(self.schema(body=StringType()), topic=topic)
        writer.write(self.batches({"body": ["a", "b"]}))
        self.assertEqual(sorted(each.body for each in self.messages(topic)), [b"a", b"b"])

    def test_invalidColumnOrRowIsRefused(self) -> None:
        """
        Invalid data is refused: a table's columns before anything is sent, a row when it
        comes.
        """
        topic = self.topic(1)
        source = RocketSource({"nameServers": self.nameServers})
        self.assertRaises(ConfigError, source.writer, self.schema(value=StringType()), False)
        self.assertRaises(ConfigError, source.writer, self.schema(body=BinaryType()), False)
        error = self.assertRaises(
            ConfigError, source.writer, self.schema(body=BinaryType(), topic=StringType()), True
        )
        self.assertIn('mode("append")', str(error))
        writer = self.writer(self.schema(body=StringType(), queueId=IntegerType()), topic=topic)
        table: dict[str, list[Any]] = {"body": ["x"], "queueId": [7]}
        error = self.assertRaises(InvalidMessage, writer.write, self.batches(table))
        self.assertIn("has no queue 7 that can be written to", str(error))

    def test_taskWithoutBatchIsRefused(self) -> None:
        """
        A stream's task must know its micro-batch.
        """
        source = RocketSource({"nameServers": self.nameServers, "topic": "T"})
        writer: Any = source.streamWriter(self.schema(body=BinaryType()), False)
        error = self.assertRaises(ConfigError, writer.write, iter([]))
        self.assertIn("which micro-batch", str(error))
