# SPDX-License-Identifier: Apache-2.0
"""
A section of settings that may change while the server runs.

Each part that reads such settings holds the cell and asks it each time, so no part has to
be told of a change::

    Configuration.update --> Live[PullSettings].now <-- LongPoll, Subscriptions, ...
"""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Live"]

_Section = TypeVar("_Section")


class Live(Generic[_Section]):
    """
    A cell that holds one section.

    @ivar now: the section as it is now.  Only the configuration replaces it.
    """

    __slots__ = ("now",)

    def __init__(self, now: _Section) -> None:
        self.now = now
