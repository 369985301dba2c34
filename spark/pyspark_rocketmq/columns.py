# SPDX-License-Identifier: Apache-2.0
"""
Records as what Spark takes: a batch of Arrow columns, those of a schema and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.records import Records

__all__ = ["recordBatch"]

_TIME: Final = pa.timestamp("us", "UTC")
# Anything may be in a record.  What is beyond all times is at their end.
_FURTHEST: Final = (2**63 - 1) // 1000


def _instants(milliseconds: np.ndarray) -> pa.Array:
    return pa.array(np.clip(milliseconds, -_FURTHEST, _FURTHEST) * 1000).view(_TIME)


# By column, unless the attribute of that name is the column already.
_MADE: Final[dict[str, Callable[[Records], Any]]] = {
    "bornTimestamp": lambda records: _instants(records.bornTimestamp),
    "storeTimestamp": lambda records: _instants(records.storeTimestamp),
}


def recordBatch(
    records: Records,
    names: Sequence[str],
    schema: pa.Schema,
    *,
    topic: str | None = None,
    brokerName: str | None = None,
) -> pa.RecordBatch:
    """
    Columns of records.

    @param names: which, in the order of the schema.
    @param schema: what Spark expects, to the type of each.
    @param topic: the topic of all; L{None} if the records are to be asked.
    @param brokerName: whose they are.
    """
    same = {"brokerName": brokerName} | ({} if topic is None else {"topic": topic})
    arrays = []
    for name, field in zip(names, schema, strict=True):
        if name in same:
            value = same[name]
            array = pa.repeat(pa.scalar(value, pa.string()), len(records))
        else:
            make = _MADE.get(name)
            array = getattr(records, name) if make is None else make(records)
        arrays.append(array if isinstance(array, pa.Array) else pa.array(array, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
