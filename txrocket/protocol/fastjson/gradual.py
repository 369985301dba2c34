# SPDX-License-Identifier: Apache-2.0
"""
Work in steps: a generator that yields wherever a server may serve other requests, and
returns its result at the end.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Gradual", "finish"]

_T = TypeVar("_T")

#: Work that yields between its steps and returns a result.
Gradual: TypeAlias = Generator[None, None, _T]


def finish(work: Gradual[_T]) -> _T:
    """
    Do all steps of some work at once.
    """
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: _T = stop.value
            return result
