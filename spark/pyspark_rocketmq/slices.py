# SPDX-License-Identifier: Apache-2.0
"""
Many slices of one piece of bytes as an Arrow array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["slices"]


def slices(data: Any, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """
    The bytes between each pair of positions, copied.

    @param data: anything with a buffer, of less than 2 GiB.
    @param start: where each slice begins, not before the one before it ends.
    @param stop: where each ends.
    """
    count = len(start)
    if not count:
        return pa.array([], pa.binary())
    # Arrow's values lie one behind the other, so what is between two slices is a value
    # as well, and is then left out.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = start
    bounds[1::2] = stop
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return both.take(pa.array(np.arange(0, 2 * count, 2, np.int32)))
