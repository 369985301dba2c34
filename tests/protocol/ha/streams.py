# SPDX-License-Identifier: Apache-2.0
"""
What the tests of the replication stream have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import strategies as st

__all__ = ["cut", "int64", "places"]

int64 = st.integers(0, 2**63 - 1)
places = st.lists(st.integers(0, 2**20), max_size=12)


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """
    A stream in pieces.
    """
    marks = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in itertools.pairwise(marks)]
