# SPDX-License-Identifier: Apache-2.0
"""
C{txrocket-pipeline NAME}: the jobs as commands.

The same program runs under C{spark-submit}, whose master and settings then apply:
C{spark-submit --master yarn spark/jobs/archive.py --folder ...}.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq.javahome import NoJava
from pyspark_rocketmq.jobs.compact import FIRST_KEY
from pyspark_rocketmq.jobs.deadletters import PATTERN
from txrocket.errors import RocketError
from txrocket.protocol.tracebodies import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS", "main"]

# Days and minutes must not depend on the machine's time zone.
_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC"}

# Defaults without spark-submit.
_ALONE: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "true",
}

# The exit code of shells for SIGINT.
_INTERRUPTED: Final = 130


# --- arguments -----------------------------------------------------------


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name-servers", metavar="HOST:PORT;...", help="else NAMESRV_ADDR")
    parser.add_argument(
        "--option",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a further option of the source or the sink; any number of them",
    )
    parser.add_argument("--master", help="where Spark runs; local[*] by default")
    parser.add_argument(
        "--set",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark; any number of them",
    )


def _options(arguments: argparse.Namespace, **more: str | None) -> dict[str, str]:
    options = {"nameServers": arguments.name_servers, **more, **dict(arguments.option)}
    return {name: value for name, value in options.items() if value is not None}


def _table(
    spark: SparkSession, arguments: argparse.Namespace, schema: str | None = None
) -> DataFrame:
    """
    The messages that a job reads, from an archive or from topics.

    @param schema: the needed columns; L{None} for all.
    """
    if arguments.archive:
        from pyspark_rocketmq.jobs.archive import archived

        return archived(spark, arguments.archive)
    return _load(spark, _options(arguments, subscribe=arguments.topics), schema)


def _load(spark: SparkSession, options: dict[str, str], schema: str | None = None) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def _input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--topics", metavar="A,B", help="topics to read")
    group.add_argument("--archive", metavar="FOLDER", help="what the job archive has written")


def _traces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace-topic", default=TRACE_TOPIC, help=f"where clients write traces, else {TRACE_TOPIC}"
    )


# --- the jobs ------------------------------------------------------------


def _archiveArguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", required=True, metavar="A,B", help="topics to archive")
    parser.add_argument("--folder", required=True, help="where the archive is, or is to be")
    parser.add_argument("--every", metavar="INTERVAL", help="go on for ever, as '1 minute'")
    parser.add_argument(
        "--batch", type=_positive, default=200_000, help="how many messages at a time"
    )


def _archive(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from pyspark_rocketmq.jobs.archive import archive

    def told(batch: int, count: int, rate: float, left: int) -> None:
        print(f"batch {batch}: {count:,} messages, {rate:,.0f} a second, {left:,} left", flush=True)

    options = _options(
        arguments, subscribe=arguments.topics, maxOffsetsPerTrigger=str(arguments.batch)
    )
    count = archive(spark, options, arguments.folder, every=arguments.every, told=told)
    print(f"{count:,} messages archived in {arguments.folder}")


def _replayArguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--archive", metavar="FOLDER", help="what the job archive has written")
    group.add_argument("--parquet", metavar="PATH", help="a table with the sink's columns")
    parser.add_argument("--topic", help="where to send them; else where they came from")
    parser.add_argument("--where", metavar="SQL", help="only rows for which this is true")
    parser.add_argument("--rate", type=_positive, help="messages a second")
    parser.add_argument("--tasks", type=_positive, default=1, help="how many send at a time")
    parser.add_argument("--name", help="of the replay: run again, it gives the same ids")


def _replay(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from pyspark_rocketmq.jobs.archive import archived
    from pyspark_rocketmq.jobs.replay import replay

    table = (
        archived(spark, arguments.archive)
        if arguments.archive
        else spark.read.parquet(arguments.parquet)
    )
    if arguments.where:
        table = table.where(arguments.where)
    count = table.count()
    print(f"{count:,} messages to send", flush=True)

    def told(sent: int) -> None:
        print(f"about {min(sent, count):,} of {count:,} sent", flush=True)

    replay(
        table,
        _options(arguments, topic=arguments.topic),
        rate=arguments.rate,
        tasks=arguments.tasks,
        name=arguments.name,
        told=told,
    )
    print(f"{count:,} messages sent")


def _metricsArguments(parser: argparse.ArgumentParser) -> None:
    _input(parser)
    parser.add_argument("--folder", required=True, help="where tables and the page go")
    parser.add_argument("--page", metavar="FILE", help="where the page goes; else to the folder")
    parser.add_argument("--every", default="1 minute", help="the length of an interval")
    parser.add_argument("--latency-every", help="that of delivery times, if it is another")
    parser.add_argument(
        "--when",
        default="storeTimestamp",
        choices=("storeTimestamp", "bornTimestamp"),
        help="which of a message's times counts",
    )
    parser.add_argument("--where", metavar="SQL", help="count only rows for which this is true")
    parser.add_argument("--groups", metavar="A,B", help="whose lag is looked at; else all groups")
    parser.add_argument("--samples", type=_positive, default=1, help="how often it is looked at")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two samples")
    _traces(parser)


def _metrics(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from pyspark_rocketmq.jobs.metrics import TRAFFIC_COLUMNS
    from pyspark_rocketmq.jobs.report import Metrics

    metrics = Metrics(spark, arguments.folder, arguments.page)
    table = _table(spark, arguments, TRAFFIC_COLUMNS)
    if arguments.where:
        table = table.where(arguments.where)
    print("counting messages and bytes", flush=True)
    topics = metrics.writeTraffic(table, arguments.every, arguments.when)
    if not arguments.name_servers and "NAMESRV_ADDR" not in os.environ:
        print("without name servers there are neither lag nor delivery times")
        print(f"the page is {metrics.writePage()}")
        return
    options = _options(arguments)
    groups = arguments.groups.split(",") if arguments.groups else None
    for number in range(arguments.samples):
        if number:
            time.sleep(arguments.pause)
        metrics.sampleLag(options, topics, groups)
        print(f"lag: sample {number + 1} of {arguments.samples}", flush=True)
    print(f"delivery times, from {arguments.trace_topic}", flush=True)
    every = arguments.latency_every or arguments.every
    if not metrics.writeLatency(options, arguments.trace_topic, every):
        print("the topic does not exist, because no client writes traces")
    print(f"the page is {metrics.writePage()}")


def _deadLettersArguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", metavar="A,B", help="of these groups; else of all")
    parser.add_argument("--folder", help="where to write the report; else it is only shown")
    parser.add_argument("--samples", type=_positive, default=3, help="messages shown of each kind")
    _traces(parser)


def _deadLetters(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from pyspark_rocketmq.jobs.deadletters import deadLetters
    from pyspark_rocketmq.jobs.report import shown, tracesOf

    topics = None
    if arguments.groups:
        topics = ",".join(f"%DLQ%{each}" for each in arguments.groups.split(","))
    chosen = {"subscribe": topics} if topics else {"subscribePattern": PATTERN}
    options = _options(arguments, **chosen)
    traces = tracesOf(spark, options, arguments.trace_topic)
    report = deadLetters(_load(spark, options), arguments.samples, traces).cache()
    print(shown(report))
    if arguments.folder:
        report.write.mode("overwrite").json(arguments.folder)
        print(f"the report is in {arguments.folder}")


def _compactArguments(parser: argparse.ArgumentParser) -> None:
    _input(parser)
    parser.add_argument("--key", default=FIRST_KEY, metavar="SQL", help="the key of a message")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--folder", help="where to write Parquet; what is there is replaced")
    group.add_argument("--to", metavar="TOPIC", help="a topic to send to")


def _compact(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from pyspark_rocketmq.jobs.compact import compact
    from pyspark_rocketmq.jobs.replay import replay

    latest = compact(_table(spark, arguments), arguments.key).cache()
    if arguments.folder:
        latest.write.mode("overwrite").parquet(arguments.folder)
    else:
        replay(latest.drop("key"), _options(arguments, topic=arguments.to))
    print(f"{latest.count():,} keys")


_Job = tuple[
    str,
    Callable[[argparse.ArgumentParser], None],
    "Callable[[SparkSession, argparse.Namespace], None]",
]

#: By name, a job's description, the function that adds its arguments, and the job.
JOBS: Final[dict[str, _Job]] = {
    "archive": ("topics to Parquet, which later runs continue", _archiveArguments, _archive),
    "replay": ("Parquet to a topic, at a rate", _replayArguments, _replay),
    "metrics": ("traffic, lag and delivery times, with plots", _metricsArguments, _metrics),
    "dead-letters": (
        "messages that consumers gave up, by group, topic and reason",
        _deadLettersArguments,
        _deadLetters,
    ),
    "compact": ("the latest message of each key", _compactArguments, _compact),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="txrocket-pipeline", description="Jobs on topics, with Spark."
    )
    commands = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, (does, add, _) in JOBS.items():
        command = commands.add_parser(name, help=does, description=f"{name}: {does}.")
        add(command)
        _common(command)
    return parser


def main(argv: Sequence[str] | None = None, spark: Any = None) -> int:
    """
    Run a job.

    @param argv: the job's name and its arguments; L{None} for the command line.
    @param spark: the session to run it in; L{None} for a new one.
    @return: the exit code.
    """
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        session = spark or _session(arguments)
        try:
            _run(session, arguments)
        finally:
            if spark is None:
                session.stop()
    except (NoJava, RocketError) as error:
        print(f"{arguments.job}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """
    @raise RocketError: also in place of a Spark error that wraps one from a worker.
    """
    from pyspark.errors import PySparkException

    _, _, run = JOBS[arguments.job]
    try:
        run(spark, arguments)
    except PySparkException as error:
        said = _reason(str(error))
        if said is None:
            raise
        raise RocketError(said) from error


def _session(arguments: argparse.Namespace) -> SparkSession:
    from pyspark_rocketmq.session import sparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = arguments.master or (None if submitted else "local[*]")
    settings = {**_SETTINGS, **({} if submitted else _ALONE), **dict(arguments.set)}
    return sparkSession(f"txrocket-pipeline {arguments.job}", master, settings)


def _reason(text: str) -> str | None:
    """
    The text of our error in a worker, taken from Spark's error; L{None} if it is not ours.
    """
    lines = text.splitlines()
    for index, line in enumerate(lines):
        name, colon, said = line.partition(": ")
        module, _, kind = name.rpartition(".")
        if colon and kind and module.startswith(("txrocket.errors", "pyspark_rocketmq.")):
            more = []
            for each in lines[index + 1 :]:
                if not each.strip() or each.startswith((" ", "\t", "SQLSTATE")):
                    break
                more.append(each)
            return "\n".join([said, *more])
    return None


if __name__ == "__main__":
    sys.exit(main())
