# SPDX-License-Identifier: Apache-2.0
"""
Spark's source, sink and store reader with RocketMQ's own servers, clients and files: a
step of C{make interop}, and C{python -m tests.interop.spark} by itself.

Where Spark is not installed it says so; C{make test-spark} installs it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.interop.cells import Cell, Pairing, Scenario
from tests.interop.clients import Drivers, Identity
from tests.interop.messages import many
from tests.interop.programs import ROOT
from tests.interop.servers import Configuration, Servers
from tests.live.servers import reactor
from tests.patience import PATIENCE
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting

__all__ = ["SparkTests", "step"]

NEEDED = ("pyspark", "pyarrow", "numpy")

COUNT = 300

_TESTS = "tests.interop.spark"
_PAGE = ROOT / "docs" / "interop.md"
_HEADING = "\n## Spark\n"


def step(absent: Mapping[str, str]) -> int:
    """
    Run it, in a process of its own, and add what came of it to the page.

    @param absent: the clients that cannot be run here.
    @return: the exit code.
    """
    without = [each for each in NEEDED if importlib.util.find_spec(each) is None]
    if without or "java" in absent:
        print(f"without Spark: {', '.join(without) or 'java'} not found", flush=True)
        return 0
    folder = tempfile.mkdtemp(prefix="txrocket-interop-spark-")
    command = [sys.executable, "-m", "twisted.trial", f"--temp-directory={folder}/t", _TESTS]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as late:
        print(f"Spark with RocketMQ's broker: stuck; see {folder}\n{late.stdout!r}{late.stderr!r}")
        return 1
    if ran.returncode:
        print(f"Spark with RocketMQ's broker: FAIL; see {folder}\n{ran.stdout}{ran.stderr}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    said = (
        "RocketMQ's broker read as a table and as a stream, written to, and its files read"
        " without it: pass"
    )
    print(f"Spark: {said}", flush=True)
    before = _PAGE.read_text().partition(_HEADING)[0]
    _PAGE.write_text(f"{before}{_HEADING}\n{said}\n")
    return 0


class SparkTests(TestCase):
    """
    A name server and a broker of RocketMQ 4.9.7, and its client.
    """

    timeout = 400.0
    if without := [each for each in NEEDED if importlib.util.find_spec(each) is None]:
        skip = f"{', '.join(without)} not installed"

    async def setUp(self) -> None:  # type: ignore[override]
        self.folder = Path(os.path.abspath(self.mktemp()))
        self.servers = Servers(("java", "java"), Configuration("plain"), self.folder / "servers")
        await self.servers.start()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.servers.stop()))
        peers = Peers(Remoting(reactor), endpoints(reactor, None))
        self.addCleanup(peers.stop)
        drivers = Drivers(self.folder / "clients", Identity("", "", ""))
        self.addCleanup(lambda: Deferred.fromCoroutine(drivers.end()))
        pairing = Pairing("java", "java", "java", "java")
        scenario = Scenario("Spark", lambda cell: cell.close(), frozenset(), frozenset())
        self.cell = Cell(scenario, pairing, self.servers, drivers, peers, ())
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cell.close()))

    async def test_sparkAndRocketMQExchangeMessages(self) -> None:
        """
        Spark reads the messages of RocketMQ's producer, and RocketMQ's consumer reads those
        of Spark.
        """
        topic, other = await self.cell.topic(4), await self.cell.topic(2)
        producer = await self.cell.producer()
        sent = many(topic, COUNT)
        results = await producer.send(sent)
        ids = {each["msgId"]: shown["body"] for each, shown in zip(results, sent, strict=True)}
        await deferToThread(self.read, topic, other, ids)
        more = many(topic, 20, COUNT)
        await producer.send(more)
        await deferToThread(self.goneOn, topic)
        got = await self.cell.read(other, COUNT)
        self.assertEqual({each["body"] for each in got}, set(ids.values()))
        self.assertEqual(len({each["msgId"] for each in got}), COUNT)

    def read(self, topic: str, other: str, ids: dict[str, bytes]) -> None:
        """
        Read a table by all means, begin a stream, and send the rows.
        """
        from tests.spark.running import session

        self.spark = session()
        frame = self.load(topic)
        rows = frame.collect()
        self.assertEqual({row.msgId: bytes(row.body) for row in rows}, ids)
        self.assertEqual(len(rows), COUNT)
        for row in rows:
            number = int(bytes(row.body).split()[1])
            self.assertEqual(row.tags, f"Tag{number % 3}")
            self.assertEqual(row.keys.split()[0], f"{topic}-key{number}")
            self.assertEqual(row.properties["number"], str(number))
        self.assertEqual(self.load(topic, tags="Tag1 || Tag2").count(), COUNT * 2 // 3)
        self.assertEqual(self.load(topic, sql="colour = 'red'").count(), COUNT // 3)
        at = f'{{"{topic}": 10}}'
        before = self.load(topic, endingOffsets=at).count()
        self.assertEqual(before, 40)
        self.assertEqual(self.load(topic, startingOffsets=at).count(), COUNT - before)
        times = sorted(
            row.at for row in frame.selectExpr("unix_millis(storeTimestamp) at").collect()
        )
        middle = times[COUNT // 2]
        later = self.load(topic, startingTimestamp=str(middle)).count()
        self.assertEqual(later, sum(each >= middle for each in times))
        self.assertEqual(self.load(topic, endingTimestamp=str(middle)).count(), COUNT - later)
        store = self.spark.read.format("rocketmq-store").option("subscribe", topic)
        files = store.load(str(self.folder / "servers" / "store"))
        both = frame.columns[2:]
        self.assertEqual(files.select(*both).drop("properties").count(), COUNT)
        plain = [each for each in both if each != "properties"]
        self.assertEqual(frame.select(*plain).exceptAll(files.select(*plain)).count(), 0)
        self.stream(topic)
        frame.select("body", "tags", "keys", "properties").write.format("rocketmq").options(
            nameServers=self.servers.nameServer, topic=other
        ).mode("append").save()

    def goneOn(self, topic: str) -> None:
        """
        Go on with the stream.
        """
        from tests.spark.running import stopAll

        try:
            self.stream(topic)
            table = self.spark.read.parquet(str(self.folder / "table"))
            bodies = [bytes(row.body) for row in table.select("body").collect()]
            self.assertEqual(sorted(bodies), sorted(b"body %d" % n for n in range(COUNT + 20)))
        finally:
            stopAll()

    def load(self, topic: str, **options: str) -> Any:
        """
        A table.
        """
        reader = self.spark.read.format("rocketmq").option("subscribe", topic)
        return reader.options(nameServers=self.servers.nameServer, **options).load()

    def stream(self, topic: str) -> None:
        """
        Read what has come, into a table.
        """
        frame = (
            self.spark.readStream.format("rocketmq")
            .options(nameServers=self.servers.nameServer, subscribe=topic)
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="100")
            .load()
        )
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "table"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        self.assertTrue(writer.trigger(availableNow=True).start().awaitTermination(120))


if __name__ == "__main__":
    from tests.interop.programs import build, missing

    lacking = missing()
    sys.exit(step(lacking | build({*lacking, "go"})))
