# SPDX-License-Identifier: Apache-2.0
"""
Spark sessions that know RocketMQ.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark_rocketmq.java import findJava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prepare", "register", "sparkSession"]


def register(spark: SparkSession) -> None:
    """
    Have a session know C{rocketmq} and C{rocketmq-store}, wherever it looks for sources.
    """
    from pyspark_rocketmq.source import RocketSource
    from pyspark_rocketmq.store import StoreSource

    for each in (RocketSource, StoreSource):
        spark.dataSource.register(each)


def prepare() -> None:
    """
    Have Spark find its Java, and Python.  It does nothing in a program that
    C{spark-submit} has started, which has found them.

    @raise NoJava: if there is none.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = findJava()
        # Spark would take the python3 of PATH, which need not have this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def sparkSession(
    name: str = "rocketmq", master: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """
    A session with both sources.  Where C{spark-submit} has started this program, all is
    as that says; else Spark runs within it, on the Java that is found.

    @param name: what the application is called.
    @param master: where it runs, as C{local[2]}; by default as Spark is configured, and
        C{local[*]} if it is not.
    @param settings: Spark's.
    @raise NoJava: if there is none.
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
