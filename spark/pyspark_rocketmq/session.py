# SPDX-License-Identifier: Apache-2.0
"""
Spark sessions that know RocketMQ.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark_rocketmq.javahome import findJava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prepare", "register", "sparkSession"]


def register(spark: SparkSession) -> None:
    """
    Register C{rocketmq} and C{rocketmq-store} with a session.
    """
    from pyspark_rocketmq.source import RocketSource
    from pyspark_rocketmq.storefiles.source import StoreSource

    for each in (RocketSource, StoreSource):
        spark.dataSource.register(each)


def prepare() -> None:
    """
    Set the environment by which Spark finds Java and Python.  In a program that
    C{spark-submit} has started, both are set already, and this does nothing.

    @raise NoJava: if no Java that Spark can run on is found.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = findJava()
        # The python3 of PATH, Spark's default, may not have this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def sparkSession(
    name: str = "rocketmq", master: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """
    A session with both sources.  If C{spark-submit} has started this program, its settings
    apply; else Spark runs inside this program, on the Java that L{findJava} finds.

    @param name: the name of the application.
    @param master: Spark's master, such as C{local[2]}; by default the configured one, or
        C{local[*]}.
    @param settings: Spark's settings.
    @raise NoJava: if no Java that Spark can run on is found.
    """
    from pyspark.sql import SparkSession

    prepare()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
