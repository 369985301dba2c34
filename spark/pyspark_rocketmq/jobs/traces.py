# SPDX-License-Identifier: Apache-2.0
"""
The traces of clients as tables.  L{txrocket.protocol.tracebodies} has their format and
decodes all of it in Python; this decodes the fields that the jobs need, in Spark::

    sendTimes        msgId  topic  sent        Pub         in milliseconds
    deliverTimes     msgId  group  delivered   SubBefore   the first time
    consumeResults   msgId  group  status      SubAfter    the last time
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from txrocket.protocol.tracebodies import ConsumeReturnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TRACE_COLUMNS", "consumeResults", "deliverTimes", "sendTimes"]

#: The schema that these tables need of a trace topic.
TRACE_COLUMNS: Final = "body BINARY"

# The words of a report for the code that a client writes.
_STATUS: Final = {
    ConsumeReturnType.SUCCESS: "done",
    ConsumeReturnType.TIME_OUT: "took too long",
    ConsumeReturnType.EXCEPTION: "an exception",
    ConsumeReturnType.RETURNNULL: "nothing returned",
    ConsumeReturnType.FAILED: "refused",
}


def _records(traces: DataFrame, kind: str, least: int) -> DataFrame:
    """
    The records of a kind as arrays C{f} of fields; the first field is the kind.

    @param least: the fewest fields of a record.
    """
    from pyspark.sql import functions as f

    lines = traces.select(f.explode(f.split(f.col("body").cast("string"), "\x02")).alias("line"))
    fields = lines.select(f.split("line", "\x01").alias("f"))
    return fields.where((_field(0) == kind) & (f.size("f") >= least))


def _field(number: int) -> Any:
    from pyspark.sql import functions as f

    return f.get("f", f.lit(number))


def sendTimes(traces: DataFrame) -> DataFrame:
    """
    The times at which messages were sent.  If a message was sent again with its id, the
    first time counts.
    """
    from pyspark.sql import functions as f

    return (
        _records(traces, "Pub", 6)
        .select(
            _field(1).try_cast("bigint").alias("sent"),
            _field(4).alias("topic"),
            # The record of a batch has the ids of all its messages.
            f.explode(f.split(_field(5), ",")).alias("msgId"),
        )
        .groupBy("msgId", "topic")
        .agg(f.min("sent").alias("sent"))
    )


def deliverTimes(traces: DataFrame) -> DataFrame:
    """
    The times at which a listener of a group was first called with a message.
    """
    from pyspark.sql import functions as f

    return (
        _records(traces, "SubBefore", 7)
        .select(
            _field(1).try_cast("bigint").alias("delivered"),
            _field(3).alias("group"),
            _field(5).alias("msgId"),
        )
        .groupBy("msgId", "group")
        .agg(f.min("delivered").alias("delivered"))
    )


def consumeResults(traces: DataFrame) -> DataFrame:
    """
    The result of a group's last call of a listener with a message, in words.  Records of
    clients that do not write the group are left out.
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
