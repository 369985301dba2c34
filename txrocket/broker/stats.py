# SPDX-License-Identifier: Apache-2.0
"""
Stub until merged.
"""


class Stats:
    def put(self, topic: str, count: int, size: int) -> None: ...
    def got(self, group: str, topic: str, count: int, size: int) -> None: ...
