# SPDX-License-Identifier: Apache-2.0
"""
Many slices of one piece of bytes as an Arrow array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["every", "slices"]


def slices(data: Any, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """
    The bytes between each pair of positions, copied.

    @param data: anything with a buffer, of less than 2 GiB.
    @param start: where each slice begins, not before the one before it ends.
    @param stop: where each ends.
    """
    # Arrow's values lie one behind the other, so what is between two slices is a value
    # as well, and is then left out.
    cuts = np.empty(2 * len(start), np.int32)
    cuts[0::2] = start
    cuts[1::2] = stop
    return every(data, cuts, 2)


def every(data: Any, cuts: np.ndarray, step: int, first: int = 0) -> pa.Array:
    """
    Some of the pieces that bytes are cut into, copied: the first, and then one in so
    many.

    @param cuts: where the pieces begin, and the last ends, as 32-bit numbers.
    """
    if not len(cuts):
        return pa.array([], pa.binary())
    count = len(cuts) - 1
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), count, buffers)
    return pieces.take(pa.array(np.arange(first, count, step, np.int32)))
