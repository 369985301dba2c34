# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ for Spark: C{format("rocketmq")} reads and writes topics, as tables and as
streams, and C{format("rocketmq-store")} reads the files of a broker::

    spark.read.format("rocketmq").option("subscribe", "Orders").load()

Spark finds the first by itself, because the package's name begins with C{pyspark_} and it
has a C{DefaultSource}; it finds the other in C{pyspark_rocketmq_store}.  If a session does
not search for packages, L{register} registers both.

Importing the package imports no other module: each name is imported when it is used, so
that options and offsets can be read without Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_rocketmq.session import register, sparkSession
    from pyspark_rocketmq.source import RocketSource
    from pyspark_rocketmq.source import RocketSource as DefaultSource
    from pyspark_rocketmq.storefiles.source import StoreSource

__all__ = ["DefaultSource", "RocketSource", "StoreSource", "register", "sparkSession"]

_PLACES = {
    "DefaultSource": ("source", "RocketSource"),
    "RocketSource": ("source", "RocketSource"),
    "StoreSource": ("storefiles.source", "StoreSource"),
    "register": ("session", "register"),
    "sparkSession": ("session", "sparkSession"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, thing = _PLACES[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), thing)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
