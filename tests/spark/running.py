# SPDX-License-Identifier: Apache-2.0
"""
The cluster and the session that all tests with Spark share, because they take long to start.
The first test that needs one starts it, and L{stopAll} stops both.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark_rocketmq.columns.schema import COLUMNS, FURTHER
from pyspark_rocketmq.session import prepare
from twisted.trial.unittest import SynchronousTestCase

from txrocket.blocking import Client, Settings
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.testing import ChildCluster

__all__ = ["ClusterCase", "SessionCase", "schemaOf", "session", "settings", "stopAll"]

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}

_cluster: ChildCluster | None = None
_session: SparkSession | None = None


def schemaOf(*names: str) -> StructType:
    """
    A schema with some columns; by default all.
    """
    kinds = {**COLUMNS, **FURTHER}
    return StructType([StructField(name, _TYPES[kinds[name]]) for name in names or kinds])


def settings() -> dict[str, str]:
    """
    A session's, for tests on a small machine.
    """
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        # Failures raise exceptions, and many tests provoke them on purpose.
        "spark.log.level": "OFF",
        "spark.sql.python.filterPushdown.enabled": "true",
    }


def cluster() -> ChildCluster:
    """
    A name server and two brokers.
    """
    global _cluster
    if _cluster is None:
        _cluster = ChildCluster(
            brokers=2,
            settings={"enablePropertyFilter": True, "traceTopicEnable": True},
            timeout=120.0,
        )
        _cluster.start()
    return _cluster


def session() -> SparkSession:
    """
    Spark on two threads of its own process, as it is after the package is installed.
    """
    global _session
    if _session is None:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        prepare()
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for key, value in settings().items():
            builder = builder.config(key, value)
        _session = builder.getOrCreate()
    return _session


def stopAll() -> None:
    """
    Stop the cluster and the session, if they were started.
    """
    global _cluster, _session
    if _session is not None:
        _session.stop()
        _session = None
    if _cluster is not None:
        _cluster.stop()
        _cluster = None


class ClusterCase(SynchronousTestCase):
    """
    Tests with topics of their own.
    """

    def setUp(self) -> None:
        self.nameServers = ";".join(cluster().nameServers)
        self.client = Client(Settings(self.nameServers, timeout=60.0))
        self.addCleanup(self.client.close)

    def topic(self, queues: int = 2) -> str:
        """
        Create a topic with a number of queues at each of the two brokers.
        """
        name = f"{self._testMethodName}-{uuid.uuid4().hex[:8]}"
        self.client.createTopic(name, queues)
        return name

    def send(self, topic: str, numbers: Iterable[int], **more: Any) -> None:
        """
        Send messages whose bodies are numbers, to all queues of a topic in turn.
        """
        queues = self.client.queues(topic)
        batches: dict[MessageQueue, list[Message]] = {}
        for number in numbers:
            queue = queues[number % len(queues)]
            message = Message(topic, b"%d" % number, f"t{number % 3}", f"k{number}", **more)
            batches.setdefault(queue, []).append(message)
        for queue, messages in batches.items():
            self.client.sendBatch(messages, queue)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """
        A source's options.
        """
        return {"nameServers": self.nameServers, "subscribe": topic, **more}


class SessionCase(ClusterCase):
    """
    Tests with a session.
    """

    def setUp(self) -> None:
        super().setUp()
        self.spark = session()
