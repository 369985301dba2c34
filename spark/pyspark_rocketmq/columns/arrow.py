# SPDX-License-Identifier: Apache-2.0
"""
Arrow arrays over the bytes of records, and the batches of columns that Spark reads.

Texts and bodies are not decoded one by one.  One Arrow array lies over all the bytes, with
a value for each wanted slice and one for each gap; C{take} then copies the wanted ones::

    data     |head body|topic properties|head body|topic properties
    cuts          ^    ^                     ^    ^
    values        body   (gap)               body   (gap)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark_rocketmq.columns.records import Records

__all__ = ["recordBatch", "sliceAll", "slices"]

_TIME: Final = pa.timestamp("us", "UTC")
# A damaged record may have any time.  One that Arrow cannot hold becomes its last one.
_FURTHEST: Final = (2**63 - 1) // 1000


def slices(data: Any, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """
    Copy the bytes between each pair of positions.

    @param data: anything with a buffer, of less than 2 GiB.
    @param start: where each slice begins, not before the slice before it ends.
    @param stop: where each slice ends.
    """
    # Arrow's values lie one behind the other, so the gap between two slices is a value too.
    cuts = np.empty(2 * len(start), np.int32)
    cuts[0::2] = start
    cuts[1::2] = stop
    return sliceAll(data, cuts, 2)


def sliceAll(data: Any, cuts: np.ndarray, step: int, first: int = 0) -> pa.Array:
    """
    Cut bytes into pieces and copy every C{step}-th of them.

    @param cuts: where the pieces begin, and where the last one ends, as 32-bit numbers.
    @param first: the index of the first piece that is copied.
    """
    if not len(cuts):
        return pa.array([], pa.binary())
    count = len(cuts) - 1
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), count, buffers)
    return pieces.take(pa.array(np.arange(first, count, step, np.int32)))


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
    Make a batch of columns.

    @param names: the columns, in the order of the schema.
    @param schema: the types that Spark expects.
    @param topic: the topic of all records; L{None} takes the topic from each record.
    @param brokerName: the broker that stored them.
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
