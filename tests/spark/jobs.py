# SPDX-License-Identifier: Apache-2.0
"""
The jobs, in a Spark session, with our servers.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark_rocketmq.javahome import findJava
from pyspark_rocketmq.jobs.archive import archive, archived
from pyspark_rocketmq.jobs.command import main
from pyspark_rocketmq.jobs.compact import compact
from pyspark_rocketmq.jobs.deadletters import deadLetters
from pyspark_rocketmq.jobs.lag import groupsOf, lagOf
from pyspark_rocketmq.jobs.metrics import latency, traffic
from pyspark_rocketmq.jobs.replay import replay

from tests.spark.running import SessionCase
from tests.spark.sessions import messagesOf, numbersOf
from txrocket.message import Message
from txrocket.protocol.tracebodies import Pub, SubAfter, SubBefore, encodeTrace

MINUTE = 60_000

JOBS = Path(__file__).parents[2] / "spark" / "jobs"


class JobCase(SessionCase):
    """
    Tests of jobs.
    """

    def setUp(self) -> None:
        super().setUp()
        self.folder = os.path.abspath(self.mktemp())
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")

    def command(self, *given: str, code: int = 0) -> str:
        """
        What a job says.
        """
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            found = main([*given, "--name-servers", self.nameServers], self.spark)
        self.assertEqual(found, code, printed.getvalue())
        return printed.getvalue()

    def table(self, *rows: dict[str, Any], schema: str) -> Any:
        """
        A table.
        """
        names = [each.split()[0] for each in schema.split(", ")]
        return self.spark.createDataFrame(
            [tuple(row.get(name) for name in names) for row in rows], schema
        )


class ArchiveTests(JobCase):
    """
    Archive and replay.
    """

    def test_secondRunArchivesNewMessages(self) -> None:
        """
        Present messages are archived, by topic and day, and a second run archives the new
        ones.
        """
        one, other = self.topic(), self.topic()
        self.send(one, range(50))
        self.send(other, range(50, 60))
        told: list[tuple[int, int]] = []
        options = self.options(f"{one},{other}", maxOffsetsPerTrigger="25")
        count = archive(
            self.spark,
            options,
            self.folder,
            told=lambda batch, count, rate, left: told.append((count, left)),
        )
        self.assertEqual(count, 60)
        self.assertEqual(told, [(25, 35), (25, 10), (10, 0)])
        self.send(one, range(60, 70))
        said = self.command("archive", "--topics", f"{one},{other}", "--folder", self.folder)
        self.assertIn("10 messages archived", said)
        self.assertRegex(said, r"batch \d+: 10 messages, [\d,]+ a second, 0 left")
        table = archived(self.spark, self.folder)
        self.assertEqual(numbersOf(table), list(range(70)))
        self.assertEqual(table.where(f"topic = '{other}'").count(), 10)
        self.assertEqual(
            sorted(os.listdir(f"{self.folder}/messages"))[-2:],
            sorted([f"topic={one}", f"topic={other}"]),
        )
        self.assertEqual(table.where("day != to_date(storeTimestamp)").count(), 0)

    def test_numericTopicNameStaysText(self) -> None:
        """
        A topic's name is a text, also if it looks like a number, and messages of days
        that differ are in folders that do.
        """
        name = f"0{time.time_ns()}"
        self.client.createTopic(name, 1)
        self.send(name, range(3))
        archive(self.spark, self.options(name), self.folder)
        rows = archived(self.spark, self.folder).select("topic", "day").distinct().collect()
        ((topic, day),) = rows
        self.assertEqual(topic, name)
        self.assertTrue(os.path.isdir(f"{self.folder}/messages/topic={name}/day={day}"))

    def test_stoppedArchiveHasEachMessageOnce(self) -> None:
        """
        An archive that was stopped in the middle goes on where it was, and has each
        message once.
        """
        topic = self.topic(1)
        self.send(topic, range(100))

        class Stopped(Exception):
            pass

        def told(batch: int, count: int, rate: float, left: int) -> None:
            raise Stopped

        options = self.options(topic, maxOffsetsPerTrigger="20")
        self.assertRaises(Stopped, archive, self.spark, options, self.folder, told=told)
        self.assertEqual(self.spark.streams.active, [])
        archive(self.spark, options, self.folder)
        self.assertEqual(numbersOf(archived(self.spark, self.folder)), list(range(100)))

    def test_replayCommitsProgress(self) -> None:
        """
        The progress of a replay is committed while it sends, in the topics that rows name
        as well, as long as the servers answer.
        """
        topic = self.topic(1)
        frame = self.spark.range(60).selectExpr(f"'{topic}' as topic", "cast(id as string) as body")
        told: list[int] = []
        options = {"nameServers": self.nameServers}
        replay(frame, options, rate=30, tasks=100, told=told.append, look=0.2)
        self.assertEqual(told, sorted(told))
        self.assertTrue([each for each in told if 0 < each < 60], told)
        self.assertEqual(len(messagesOf(self.client, topic)), 60)

    def test_replayKeepsOrderAndRate(self) -> None:
        """
        An archive is sent to a topic, in the order in which it was stored, at a rate; a
        replay of the same name gives the same ids.
        """
        topic, other = self.topic(), self.topic(1)
        self.send(topic, range(40), properties={"own": "1"})
        archive(self.spark, self.options(topic), self.folder)
        began = time.monotonic()
        for _ in range(2):
            said = self.command(
                *("replay", "--archive", self.folder, "--topic", other, "--name", "again"),
                *("--where", "tags != 't0'", "--rate", "50"),
            )
            self.assertIn("26 messages sent", said)
        self.assertGreater(time.monotonic() - began, 0.9)
        found = messagesOf(self.client, other)
        self.assertEqual(len(found), 52)
        self.assertEqual(len({each.msgId for each in found}), 26)
        self.assertEqual({each.properties["own"] for each in found}, {"1"})
        originals = {each.msgId for each in messagesOf(self.client, topic)}
        self.assertFalse(originals & {each.msgId for each in found})
        ordered = self.topic(1)
        table = archived(self.spark, self.folder)
        options = {"nameServers": self.nameServers, "topic": ordered, "sendBatchSize": "100"}
        replay(table, options, tasks=3)
        places = {
            int(each.body): (each.brokerName, each.queueId, each.queueOffset)
            for each in messagesOf(self.client, topic)
        }
        for queue in self.client.queues(ordered):
            sent = [
                each for each in messagesOf(self.client, ordered) if each.queueId == queue.queueId
            ]
            seen: dict[tuple[str, str, int], int] = {}
            for each in (one for one in sent if one.brokerName == queue.brokerName):
                broker, number, offset = places[int(each.body)]
                # Of one queue before, in one queue now: in their order.
                key = queue.brokerName, broker, number
                self.assertGreater(offset, seen.get(key, -1))
                seen[key] = offset

    def test_tableWithoutQueuesIsReplayed(self) -> None:
        """
        A table that knows nothing of queues is sent as it is, to the topics that it
        names.
        """
        topic = self.topic(1)
        frame = self.spark.range(5).selectExpr(f"'{topic}' as topic", "cast(id as string) as body")
        frame.write.parquet(self.folder)
        self.assertIn("5 messages sent", self.command("replay", "--parquet", self.folder))
        self.assertEqual(len(messagesOf(self.client, topic)), 5)


class MetricsTests(JobCase):
    """
    Metrics.
    """

    def test_trafficCountsByTopicTagAndMinute(self) -> None:
        """
        Messages and bytes are counted by topic, tag and minute.
        """

        def row(minute: int, tags: str | None, body: bytes) -> dict[str, Any]:
            at = datetime(2026, 1, 2, 3, minute, 30)
            return {"topic": "T", "tags": tags, "storeTimestamp": at, "body": body}

        table = self.table(
            row(1, "a", b"xx"),
            row(1, "a", b"xxx"),
            row(1, None, b"x"),
            row(2, "a", b"x"),
            schema="topic STRING, tags STRING, storeTimestamp TIMESTAMP, body BINARY",
        )
        found = [tuple(each) for each in traffic(table).collect()]
        first, second = datetime(2026, 1, 2, 3, 1), datetime(2026, 1, 2, 3, 2)
        self.assertEqual(
            found,
            [("T", "", first, 1, 1), ("T", "a", first, 2, 5), ("T", "a", second, 1, 1)],
        )
        (hour, *_) = traffic(table, "1 hour").where("tag = 'a'").collect()
        self.assertEqual((hour["messages"], hour["bytes"]), (3, 6))

    def test_latencyIsFirstSendToFirstDelivery(self) -> None:
        """
        From when a message was first sent to when a group's listener was first given it.
        """

        def pub(msgId: str, at: int) -> str:
            return encodeTrace(
                Pub(at, "r", "p", "T", msgId, None, None, "h:1", 5, 1, 0, "0A", True)  # type: ignore[arg-type]
            )

        def sub(msgId: str, at: int, group: str) -> str:
            return encodeTrace(SubBefore(at, "r", group, "q", msgId, 0, None))

        base = 30_000_000 * MINUTE
        records = [pub(f"m{n}", base + n) for n in range(100)]
        records += [sub(f"m{n}", base + n + n, "g") for n in range(100)]
        # Once more, to another member, later; and of a message that nobody traced.
        records += [sub("m5", base + 90_000, "g"), sub("other", base, "g"), pub("m5", base + 50)]
        # A batch is one record.
        records += [pub("b1,b2", base), sub("b2", base + 3, "batch")]
        records += [sub("m7", base + 7 + 40, "h"), "Unknown\x01x\x02", "SubBefore\x01x\x02"]
        bodies = ["".join(records[:50]), "".join(records[50:])]
        table = self.table(*[{"body": each.encode()} for each in bodies], schema="body BINARY")
        found = {row["group"]: row for row in latency(table).collect()}
        self.assertEqual(found.keys(), {"g", "h", "batch"})
        self.assertEqual(found["batch"]["p50"], 3)
        g, h = found["g"], found["h"]
        self.assertEqual((g["topic"], g["messages"], g["max"]), ("T", 100, 99))
        self.assertAlmostEqual(g["p50"], 49.5)
        self.assertAlmostEqual(g["p99"], 98.01)
        self.assertEqual((h["messages"], h["p50"]), (1, 40))

    def test_lagOfEachGroupAndQueue(self) -> None:
        """
        How far each group is behind in each queue where it has an offset.
        """
        topic = self.topic(1)
        self.send(topic, range(20))
        group = f"group-{topic}"
        (queue, _) = self.client.queues(topic)
        self.client.heartbeat(group, [topic])
        self.client.commit(group, queue, 4)
        self.assertIn(group, groupsOf(self.client))
        (found,) = lagOf(self.client, [group, "nobody"], [topic, "Nothing"], 77)
        self.assertEqual(found, (77, group, topic, queue.brokerName, 0, 10, 4, 6))

    def test_commandWritesTablesAndPage(self) -> None:
        """
        All of it is written, as tables and as a page; samples of the lag are added to
        those that are there.
        """
        topic = self.topic(1)
        self.send(topic, range(30))
        group = f"group-{topic}"
        for queue in self.client.queues(topic):
            self.client.commit(group, queue, 5)
        traces = encodeTrace(
            Pub(1000, "r", "p", topic, "m", None, None, "h:1", 5, 1, 0, "0A", True)  # type: ignore[arg-type]
        ) + encodeTrace(SubBefore(1250, "r", group, "q", "m", 0, None))
        self.client.send(Message("Traces", traces.encode()))
        given = ("metrics", "--topics", topic, "--folder", self.folder, "--groups", group)
        said = self.command(*given, "--samples", "2", "--pause", "0.1", "--trace-topic", "Traces")
        self.assertIn("lag: sample 2 of 2", said)
        self.assertIn(f"{self.folder}/metrics.html", said)
        read = self.spark.read.parquet
        self.assertEqual(
            read(f"{self.folder}/traffic").selectExpr("sum(messages)").collect()[0][0], 30
        )
        lag = read(f"{self.folder}/lag").groupBy("time").sum("lag").collect()
        self.assertEqual([row[1] for row in lag], [20, 20])
        (row,) = read(f"{self.folder}/latency").collect()
        self.assertEqual((row["group"], row["max"]), (group, 250))
        with open(f"{self.folder}/metrics.html") as file:
            text = file.read()
        for each in ("Messages", f"{topic} t1<", "Consumer lag", f"{topic} to {group}, p99"):
            self.assertIn(each, text)
        # Without traces, and again.
        page = f"{self.folder}/elsewhere/page.html"
        more = ("--page", page, "--where", "tags = 't1'")
        said = self.command(*given, "--trace-topic", "Nothing", *more)
        self.assertIn("no client writes traces", said)
        with open(page) as file:
            self.assertNotIn(f"{topic} t2<", file.read())
        self.assertEqual(read(f"{self.folder}/lag").select("time").distinct().count(), 3)

    def test_archivedTrafficNeedsNoServer(self) -> None:
        """
        Of an archive traffic can be told without any server.
        """
        topic = self.topic(1)
        self.send(topic, range(5))
        archive(self.spark, self.options(topic), f"{self.folder}/archive")
        printed = io.StringIO()
        given = ["metrics", "--archive", f"{self.folder}/archive", "--folder", self.folder]
        with contextlib.redirect_stdout(printed):
            self.assertEqual(main(given, self.spark), 0)
        self.assertIn("neither lag nor delivery times", printed.getvalue())


class DeadLettersTests(JobCase):
    """
    The report on dead letters.
    """

    SCHEMA = (
        "topic STRING, properties MAP<STRING;STRING>, reconsumeTimes INT,"
        " storeTimestamp TIMESTAMP, msgId STRING, keys STRING, body BINARY"
    )

    def test_reportCountsByGroupTopicAndReason(self) -> None:
        """
        Messages are counted by group, original topic and reason, with the newest of each
        as samples.
        """

        def row(number: int, group: str, times: int, **properties: str) -> tuple[Any, ...]:
            at = datetime(2026, 1, 2, 3, 4, number)
            return (f"%DLQ%{group}", properties, times, at, f"m{number}", None, b"x" * 300)

        rows = [row(number, "g", 16, RETRY_TOPIC="T") for number in range(5)]
        rows += [row(10, "g", 1, RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="o"), row(11, "h", 0)]
        table = self.spark.createDataFrame(rows, self.SCHEMA.replace(";", ","))
        found = deadLetters(table, 2).collect()
        self.assertEqual(
            [(each["group"], each["originTopic"], each["reason"], each["count"]) for each in found],
            [
                ("g", "T", "tried 16 times", 5),
                ("g", "T", "tried once", 1),
                ("h", "unknown", "never tried", 1),
            ],
        )
        self.assertEqual([each["msgId"] for each in found[0]["samples"]], ["m4", "m3"])
        self.assertEqual(found[0]["samples"][0]["body"], "x" * 200 + "...")
        self.assertEqual(found[0]["first"], datetime(2026, 1, 2, 3, 4, 0))
        self.assertEqual(found[1]["samples"][0]["originMsgId"], "o")

    def test_tracesGiveReason(self) -> None:
        """
        The result of the last try comes from the traces.
        """

        def after(number: int, status: int, at: int | None, group: str = "g") -> str:
            return encodeTrace(SubAfter("q", f"m{number}", 1, False, None, status, at, group))

        bodies = [
            after(1, 2, 20) + after(1, 4, 10) + after(2, 1, 5),
            after(3, 4, 5) + after(4, 3, 5) + after(5, 2, 5, "other") + after(6, 9, 5),
            # Without a group it is not known whose it is.
            after(6, 2, None),
        ]
        traces = self.table(*[{"body": each.encode()} for each in bodies], schema="body BINARY")
        at = datetime(2026, 1, 2)
        none: dict[str, str] = {}
        rows = [("%DLQ%g", none, 2, at, f"m{number}", None, b"x") for number in range(1, 7)]
        table = self.spark.createDataFrame(rows, self.SCHEMA.replace(";", ","))
        found = {each["reason"]: each["count"] for each in deadLetters(table, 1, traces).collect()}
        self.assertEqual(
            found,
            {
                "an exception, tried 2 times": 1,
                "took too long, tried 2 times": 1,
                "refused, tried 2 times": 1,
                "nothing returned, tried 2 times": 1,
                "tried 2 times": 2,
            },
        )

    def test_commandShowsAndWritesReport(self) -> None:
        """
        Those of a group, or of all groups, are shown and written.
        """
        self.assertIn(
            "no dead letters",
            self.command("dead-letters", "--option", "subscribePattern=%DLQ%none.*"),
        )
        group = f"group-{self.topic(1)}"
        properties = {"RETRY_TOPIC": "Orders"}
        message = Message(f"%DLQ%{group}", b"an order", keys="k1", properties=properties)
        self.client.createTopic(f"%DLQ%{group}", 1)
        self.client.send(message)
        said = self.command("dead-letters", "--groups", group, "--folder", self.folder)
        self.assertIn(f"{group}: 1 from Orders, never tried", said)
        self.assertIn(" k1  an order", said)
        self.assertIn(group, self.command("dead-letters"))
        (row,) = self.spark.read.json(self.folder).collect()
        self.assertEqual(row["samples"][0]["body"], "an order")


class CompactTests(JobCase):
    """
    The latest message of each key.
    """

    def test_latestMessageOfKeyIsKept(self) -> None:
        """
        Of each key in each topic the latest message is left, and none without a key.
        """
        schema = (
            "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT,"
            " keys STRING, storeTimestamp TIMESTAMP, body STRING"
        )

        def row(
            topic: str, keys: str | None, second: int, offset: int, body: str
        ) -> tuple[Any, ...]:
            return topic, "b", 0, offset, keys, datetime(2026, 1, 2, 3, 4, second), body

        table = self.spark.createDataFrame(
            [
                row("T", "a x", 1, 0, "old"),
                row("T", "a", 2, 1, "older of two"),
                row("T", "a y", 2, 2, "latest"),
                row("U", "a", 1, 0, "elsewhere"),
                row("T", None, 9, 9, "without"),
                row("T", "", 9, 10, "empty"),
            ],
            schema,
        )
        found = sorted(
            tuple(each) for each in compact(table).select("topic", "key", "body").collect()
        )
        self.assertEqual(found, [("T", "a", "latest"), ("U", "a", "elsewhere")])
        self.assertEqual(compact(table, "body").count(), 6)

    def test_commandWritesOrSends(self) -> None:
        """
        They are written to Parquet, or sent to a topic.
        """
        topic, other = self.topic(1), self.topic(1)
        for number in range(6):
            self.client.send(Message(topic, b"%d" % number, keys=f"k{number % 2}"))
        given = ("compact", "--topics", topic)
        self.assertIn("2 keys", self.command(*given, "--folder", self.folder))
        self.assertEqual(numbersOf(self.spark.read.parquet(self.folder)), [4, 5])
        self.command(*given, "--to", other)
        found = {each.keys[0]: each.body for each in messagesOf(self.client, other)}
        self.assertEqual(found, {"k0": b"4", "k1": b"5"})


class SubmittedTests(JobCase):
    """
    Jobs under C{spark-submit}.
    """

    def test_submittedFileRunsJob(self) -> None:
        """
        The file runs the job, with the master that spark-submit was given.
        """
        topic = self.topic(1)
        self.send(topic, range(10))
        binaries = os.path.dirname(sys.executable)
        ran = subprocess.run(
            [
                *(f"{binaries}/spark-submit", "--master", "local[2]"),
                *("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=OFF"),
                *(f"{JOBS}/archive.py", "--topics", topic, "--folder", self.folder),
                *("--name-servers", self.nameServers),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "JAVA_HOME": findJava(), "PYSPARK_PYTHON": sys.executable},
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(f"10 messages archived in {self.folder}", ran.stdout)
        self.assertEqual(numbersOf(archived(self.spark, self.folder)), list(range(10)))


class FailingTests(JobCase):
    """
    Jobs that cannot be done.
    """

    def test_failureIsOneLineAndExitCodeOne(self) -> None:
        """
        A failure is one line, and the exit code is 1.
        """
        for given, says in (
            (["archive", "--topics", "Nothing", "--folder", self.folder], "Nothing does not exist"),
            (["compact", "--topics", "a b", "--folder", self.folder], "option subscribe"),
            (["dead-letters", "--option", "timeoutMs=x"], "option timeoutMs: 'x'"),
            (["metrics", "--topics", "T", "--folder", "hdfs://h/x"], "give a file for it"),
        ):
            said = self.command(*given, code=1)
            self.assertIn(says, said)
            self.assertNotIn("Traceback", said)
            self.assertTrue(said.startswith(f"{given[0]}: "))
