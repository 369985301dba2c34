# SPDX-License-Identifier: Apache-2.0
"""
What clients wrote down about messages, as tables: L{txrocket.protocol.trace} has the
form, and reads all of it in Python; this is what the jobs need, within Spark::

    sent     msgId  topic  sent          Pub         in milliseconds
    given    msgId  group  given         SubBefore   the first time
    ended    msgId  group  status        SubAfter    the last time
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from txrocket.protocol.trace import ConsumeStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TRACE_COLUMNS", "ended", "given", "sent"]

#: What is needed of the messages of a trace topic, as a schema.
TRACE_COLUMNS: Final = "body BINARY"

# In words, by the number that a client writes.
_STATUS: Final = {
    ConsumeStatus.SUCCESS: "done",
    ConsumeStatus.TIME_OUT: "took too long",
    ConsumeStatus.EXCEPTION: "an exception",
    ConsumeStatus.RETURNNULL: "nothing returned",
    ConsumeStatus.FAILED: "refused",
}


def _records(traces: DataFrame, kind: str, least: int) -> DataFrame:
    """
    The records of a kind that have so many fields, the kind among them, as C{f}.
    """
    from pyspark.sql import functions as f

    lines = traces.select(f.explode(f.split(f.col("body").cast("string"), "\x02")).alias("line"))
    fields = lines.select(f.split("line", "\x01").alias("f"))
    return fields.where((_field(0) == kind) & (f.size("f") >= least))


def _field(number: int) -> Any:
    from pyspark.sql import functions as f

    return f.get("f", f.lit(number))


def sent(traces: DataFrame) -> DataFrame:
    """
    When messages were sent.  A message that was sent again has the id that it had, and
    its first time counts.
    """
    from pyspark.sql import functions as f

    return (
        _records(traces, "Pub", 6)
        .select(
            _field(1).try_cast("bigint").alias("sent"),
            _field(4).alias("topic"),
            # Those of a batch are in one record.
            f.explode(f.split(_field(5), ",")).alias("msgId"),
        )
        .groupBy("msgId", "topic")
        .agg(f.min("sent").alias("sent"))
    )


def given(traces: DataFrame) -> DataFrame:
    """
    When listeners of a group were first given messages.
    """
    from pyspark.sql import functions as f

    return (
        _records(traces, "SubBefore", 7)
        .select(
            _field(1).try_cast("bigint").alias("given"),
            _field(3).alias("group"),
            _field(5).alias("msgId"),
        )
        .groupBy("msgId", "group")
        .agg(f.min("given").alias("given"))
    )


def ended(traces: DataFrame) -> DataFrame:
    """
    What came of it the last time that a group's listener was given a message, in words.
    Records of clients that do not write down the group are left out.
    """
    from pyspark.sql import functions as f

    words = f.create_map(
        *[f.lit(each) for code, word in _STATUS.items() for each in (str(code.value), word)]
    )
    return (
        _records(traces, "SubAfter", 9)
        .select(
            _field(2).alias("msgId"),
            _field(8).alias("group"),
            _field(7).try_cast("bigint").alias("at"),
            f.try_element_at(words, _field(6)).alias("status"),
        )
        .groupBy("msgId", "group")
        .agg(f.max_by("status", "at").alias("status"))
    )
