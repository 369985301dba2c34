# SPDX-License-Identifier: Apache-2.0
"""
Reading what is not all there: pulls from servers that answer as a test wants it, and
files that are damaged.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark_rocketmq import StoreSource
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.read import task as taskModule
from pyspark_rocketmq.read.offsets import DataLost
from pyspark_rocketmq.read.planning import Range
from pyspark_rocketmq.read.task import RangeReader
from pyspark_rocketmq.storefiles.segments import DamagedLog
from twisted.trial.unittest import SynchronousTestCase

from tests.blocking.server import BlockingCase, Serve, cut, refuse
from tests.spark.logs import record, writeLog
from tests.spark.running import schemaOf
from txrocket.blocking.deadline import Deadline
from txrocket.bulk import python
from txrocket.errors import ConfigError, MalformedRecord, ProtocolError
from txrocket.model import BrokerData, MessageQueue, QueueData, TopicRouteData
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageResponseHeader

QUEUE = MessageQueue("T", "a", 0)
SCHEMA = pa.schema([("queueOffset", pa.int64())])


def queueOf(there: dict[int, bytes], low: int, high: int, most: int = 4) -> Serve:
    """
    A broker's queue.

    @param there: the records that it still has, by offset.
    """

    def pull(request: RemotingCommand) -> RemotingCommand:
        offset = int(request.extFields["queueOffset"])
        end = min(offset + most, offset + int(request.extFields["maxMsgNums"]), high)
        code, following, data = ResponseCode.SUCCESS, end, b""
        if offset < low:
            code, following = ResponseCode.PULL_OFFSET_MOVED, low
        elif offset > high:
            code, following = ResponseCode.PULL_OFFSET_MOVED, high
        elif offset == high:
            code, following = ResponseCode.PULL_NOT_FOUND, offset
        else:
            data = b"".join(there[each] for each in range(offset, end) if each in there)
            if not data:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return responseCommand(code, None, PullMessageResponseHeader(0, following, low, high), data)

    return pull


class LossTests(BlockingCase):
    """
    Messages that are gone.
    """

    def read(self, start: int, end: int, **more: str) -> list[int]:
        """
        The offsets that are read.
        """
        options = SourceOptions.read(
            {"nameServers": self.names.address, "subscribe": "T", "timeoutMs": "3000", **more}
        )
        reader = RangeReader(self.client(timeout=3.0), options)
        batches = reader.read([Range(QUEUE, start, end)], ["queueOffset"], SCHEMA)
        return [each for batch in batches for each in batch.column(0).to_pylist()]

    def lost(self, start: int, end: int) -> str:
        """
        The error, if losses are errors.
        """
        return str(self.assertRaises(DataLost, self.read, start, end))

    def going(self, start: int, end: int) -> list[int]:
        """
        The rows that are read if losses are no errors; a loss is logged.
        """
        with self.assertLogs("pyspark_rocketmq.read.task", "WARNING"):
            return self.read(start, end, failOnDataLoss="false")

    def serve(self, offsets: range | set[int], low: int, high: int) -> None:
        """
        Have broker a hold some messages.
        """
        there = {each: record(each, number=each) for each in offsets}
        self.a.serve[RequestCode.PULL_MESSAGE] = queueOf(there, low, high)

    def test_rangeIsReadToItsEnd(self) -> None:
        """
        A range is read up to its end and no further.
        """
        self.serve(range(20), 0, 20)
        self.assertEqual(self.read(3, 17), list(range(3, 17)))

    def test_knownOffsetsArePulledAhead(self) -> None:
        """
        If the number of messages of a pull is known, several pulls are in flight; if one
        gives fewer, or is lost, it goes on from there.
        """
        self.serve(range(300), 0, 300)
        good = self.a.serve[RequestCode.PULL_MESSAGE]
        self.assertEqual(self.read(0, 300), list(range(300)))
        asked = [int(each.extFields["queueOffset"]) for each in self.a.requests]
        self.assertEqual(asked, list(range(0, 300, 4)))
        there = {each: record(each, number=each) for each in range(300)}
        few = queueOf(there, 0, 300, 3)
        moved = refuse(ResponseCode.PULL_OFFSET_MOVED)
        self.assertRaises(ProtocolError, self.patched, moved, good, range(300))
        for other in (few, cut, refuse(ResponseCode.SYSTEM_BUSY)):
            for odd in (range(100, 140), range(96, 97), range(4, 300)):
                self.patched(other, good, odd)

    def patched(self, other: Serve, good: Serve, odd: range) -> None:
        """
        Read from a broker that does something else at some offsets, the first time.
        """
        seen: set[int] = set()

        def pull(request: RemotingCommand) -> Any:
            offset = int(request.extFields["queueOffset"])
            first = offset in odd and offset not in seen
            seen.add(offset)
            return (other if first else good)(request)

        self.a.serve[RequestCode.PULL_MESSAGE] = pull
        self.patch(Deadline, "pause", lambda deadline, attempts: True)
        self.assertEqual(self.read(0, 300), list(range(300)))

    def test_removedMessagesAreLost(self) -> None:
        """
        Messages that retention has removed are lost.
        """
        self.serve(range(8, 20), 8, 20)
        self.assertIn("has 0 of the 5 messages from 3 to 8", self.lost(3, 17))
        self.assertEqual(self.going(3, 17), list(range(8, 17)))
        self.assertEqual(self.going(3, 6), [])

    def test_messagesBehindEndAreLost(self) -> None:
        """
        Offsets that a queue never had are lost: it was created again, or its broker lost
        them.
        """
        self.serve(range(5), 0, 5)
        self.assertIn("has 0 of the 5 messages from 5 to 10", self.lost(3, 10))
        self.assertEqual(self.going(3, 10), [3, 4])
        self.assertIn("has 0 of the 2 messages from 8 to 10", self.lost(8, 10))
        self.assertEqual(self.going(8, 10), [])

    def test_missingMessageIsLost(self) -> None:
        """
        A message that is missing between others is missed.
        """
        self.serve({0, 1, 3, 4, 5, 6, 7, 12}, 0, 13)
        self.assertIn("has 3 of the 4 messages from 0 to 4", self.lost(0, 8))
        self.assertEqual(self.going(0, 13), [0, 1, 3, 4, 5, 6, 7, 12])
        # With an expression nobody knows how many there should be.
        self.assertEqual(self.read(0, 13, sql="a = 1"), [0, 1, 3, 4, 5, 6, 7, 12])

    def test_filteredPullBeyondEndIsCut(self) -> None:
        """
        With an expression a pull may go beyond the end; that is left out.
        """
        self.serve(range(20), 0, 20)
        self.assertEqual(self.read(2, 9, sql="a = 1"), list(range(2, 9)))

    def test_masterIsAskedIfSlaveLags(self) -> None:
        """
        The master is asked for messages that a slave does not have yet.
        """
        addresses = {0: self.a.address, 1: self.b.address}
        self.routes["T"] = TopicRouteData(
            None, (QueueData("a", 1, 1, 6),), (BrokerData("c", "a", addresses),)
        )
        self.serve(range(12), 0, 12)
        master = self.a.serve[RequestCode.PULL_MESSAGE]

        def suggest(request: RemotingCommand) -> Any:
            answer = master(request)
            assert isinstance(answer, RemotingCommand)
            answer.extFields["suggestWhichBrokerId"] = "1"
            return answer

        self.a.serve[RequestCode.PULL_MESSAGE] = suggest
        there = {each: record(each, number=each) for each in range(6)}
        self.b.serve[RequestCode.PULL_MESSAGE] = queueOf(there, 0, 6)
        self.assertEqual(self.read(0, 12), list(range(12)))
        self.assertGreater(len(self.b.requests), 0)

    def test_nonsenseAnswerIsError(self) -> None:
        """
        A broker that talks nonsense is an error, and not an endless loop.
        """
        header = PullMessageResponseHeader(0, 3, 0, 20)
        for data in (record(0, number=3), b"", b"nonsense", record(0)[:-1]):
            self.a.serve[RequestCode.PULL_MESSAGE] = lambda request, data=data: responseCommand(  # type: ignore[misc]
                0, None, header, data
            )
            self.assertRaises(MalformedRecord, self.read, 3, 9, failOnDataLoss="false")

    def test_damagedMessageFailsOrIsSkipped(self) -> None:
        """
        A damaged message is an error, or is passed over, and costs no other: bytes that are
        no record, a body that does not match its CRC, and another queue offset.
        """
        whole = record(5, number=5)
        flipped = bytearray(whole)
        flipped[95] ^= 1
        other = record(5, number=1_048_627)
        for damaged in (bytes(len(whole)), b"x" * 7, whole[:-20], bytes(flipped), other):
            there = {each: record(each, number=each) for each in range(20)}
            there[5] = damaged
            self.a.serve[RequestCode.PULL_MESSAGE] = queueOf(there, 0, 20)
            expected = [each for each in range(20) if each != 5]
            self.assertIn("cannot be read", self.lost(0, 20))
            self.assertEqual(self.going(0, 20), expected)
            with self.assertLogs("pyspark_rocketmq.read.task", "WARNING"):
                found = self.read(0, 20, failOnDataLoss="false", sql="a = 1")
            self.assertEqual(found, expected)

    def test_pythonHandlesDamageAlike(self) -> None:
        """
        The same holds without the compiled module.
        """
        self.patch(taskModule, "readableRecords", python.readableRecords)
        self.test_damagedMessageFailsOrIsSkipped()


class StoreTests(SynchronousTestCase):
    """
    Files.
    """

    SIZE = 3000

    def setUp(self) -> None:
        self.folder = self.mktemp()
        self.messages = [
            {"body": b"%d" % number * 50, "topic": "TU"[number % 2], "stored": 1000 * number}
            for number in range(60)
        ]
        self.offsets = writeLog(self.folder, self.messages, self.SIZE)

    def read(self, *names: str, **options: str) -> list[dict[str, Any]]:
        """
        A table's rows.
        """
        given = {"path": self.folder, **options}
        reader: Any = StoreSource(given).reader(schemaOf(*names or ("commitLogOffset",)))
        return [
            row
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]

    def places(self, **options: str) -> list[int]:
        """
        Where the rows are.
        """
        return [row["commitLogOffset"] for row in self.read(**options)]

    def damage(self, offset: int, data: bytes) -> None:
        """
        Write over the log.
        """
        base = offset // self.SIZE * self.SIZE
        with open(os.path.join(self.folder, "commitlog", f"{base:020d}"), "r+b") as file:
            file.seek(offset - base)
            file.write(data)

    def test_everyRecordIsRow(self) -> None:
        """
        Every record is a row, in the order of the log.
        """
        rows = self.read("commitLogOffset", "body", "topic", "brokerName", brokerName="b")
        self.assertEqual([row["commitLogOffset"] for row in rows], self.offsets)
        self.assertEqual([row["body"] for row in rows], [each["body"] for each in self.messages])
        self.assertEqual({row["brokerName"] for row in rows}, {"b"})
        self.assertEqual({row["brokerName"] for row in self.read("brokerName")}, {None})
        self.assertEqual(StoreSource({"path": "x"}).schema().split()[0], "topic")
        short = StoreSource({"path": "x", "includeProperties": "false"}).schema()
        self.assertNotIn("properties", short)

    def test_topicsAndTimesSelectRows(self) -> None:
        """
        Topics and times are chosen, exactly.
        """
        for options, chosen in (
            ({"subscribe": "T"}, lambda n: n % 2 == 0),
            ({"subscribePattern": "[U-Z]"}, lambda n: n % 2 == 1),
            ({"startingTimestamp": "20000"}, lambda n: n >= 20),
            ({"endingTimestamp": "20000"}, lambda n: n < 20),
            ({"startingTimestamp": "10001", "endingTimestamp": "12001"}, lambda n: n in (11, 12)),
            ({"subscribe": "none"}, lambda n: False),
            ({"startingTimestamp": "90000", "subscribe": "T"}, lambda n: False),
        ):
            expected = [at for number, at in enumerate(self.offsets) if chosen(number)]
            self.assertEqual(self.places(**options), expected)

    def test_severalStoresAreOneTable(self) -> None:
        """
        Several stores are one table.
        """
        other = self.mktemp()
        writeLog(other, self.messages[:5], self.SIZE)
        self.assertEqual(len(self.places(path=f"{self.folder},{other}")), 65)

    def test_damagedRecordFailsOrIsSkipped(self) -> None:
        """
        A damaged record is an error, or left out, whatever its damage.
        """
        at = self.offsets[7]
        for wrong in (
            (at, b"\xff" * 8),
            # The length of its body.
            (at + 84, b"\0\0\0\1"),
            # Its place in the log: it was written elsewhere.
            (at + 28, b"\0" * 8),
        ):
            with open(os.path.join(self.folder, "commitlog", "0" * 20), "rb") as file:
                before = file.read()
            self.damage(*wrong)
            error = self.assertRaises(DamagedLog, self.places)
            self.assertIn(f"which is {at} in the log", str(error))
            with self.assertLogs("pyspark_rocketmq.storefiles.reader", "WARNING"):
                found = self.places(failOnDataLoss="false")
            self.assertEqual(found, [each for each in self.offsets if each != at])
            self.damage(0, before)
        self.assertEqual(self.places(), self.offsets)

    def test_checkCrcComparesBodies(self) -> None:
        """
        Bodies are held against their checksums if that is asked for.
        """
        at = self.offsets[7]
        self.assertEqual(self.places(checkCrc="true"), self.offsets)
        self.damage(at + 88, b"other")
        self.assertEqual(self.places(), self.offsets)
        error = self.assertRaises(DamagedLog, self.places, checkCrc="true")
        self.assertIn(f"the message at {at} in the log does not match its checksum", str(error))
        with self.assertLogs("pyspark_rocketmq.storefiles.reader", "WARNING"):
            found = self.places(checkCrc="true", failOnDataLoss="false")
        self.assertEqual(found, [each for each in self.offsets if each != at])

    def test_batchesAreLimited(self) -> None:
        """
        Batches have a maximum of rows, and about a maximum of bytes.
        """
        folder = self.mktemp()
        writeLog(folder, [{"body": b""}] * 10_000, 2 << 20)
        reader: Any = StoreSource({"path": folder}).reader(schemaOf("queueOffset"))
        (part,) = reader.partitions()
        self.assertEqual([each.num_rows for each in reader.read(part)], [8192, 10_000 - 8192])
        folder = self.mktemp()
        writeLog(folder, [{"body": bytes(700_000)}] * 7, 32 << 20)
        reader = StoreSource({"path": folder}).reader(schemaOf("queueOffset"))
        (part,) = reader.partitions()
        self.assertEqual([each.num_rows for each in reader.read(part)], [3, 3, 1])

    def test_missingFolderIsRefused(self) -> None:
        """
        A missing folder is refused, and Spark's stand-in for no task has no rows.
        """
        reader: Any = StoreSource({"path": "nowhere"}).reader(schemaOf("body"))
        self.assertRaises(ConfigError, reader.partitions)
        self.assertEqual(list(reader.read(InputPartition(None))), [])
        error = self.assertRaises(ConfigError, StoreSource({"path": "x", "chekCrc": "true"}).schema)
        self.assertIn("is checkCrc meant?", str(error))
