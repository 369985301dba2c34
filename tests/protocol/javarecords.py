# SPDX-License-Identifier: Apache-2.0
"""
Records that RocketMQ's own code wrote, for what the captures lack (IPv6
addresses, compression, Unicode, limits): C{fixtures/records.jsonl}.

They were made with C{org.apache.rocketmq:rocketmq-common:4.9.7} on JDK 17: each
C{record} by C{MessageDecoder.encode}, its expected fields by reading it back with
C{MessageDecoder.decode}.  A C{batch} is C{MessageDecoder.encodeMessages} (C{client})
and what C{rocketmq-store:4.9.7}'s C{MessageExtEncoder} makes of it (C{log}), with
the two offsets filled in where C{CommitLog} fills them in.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "fixtures" / "records.jsonl"


@functools.cache
def javaRows(kind: str) -> tuple[dict[str, Any], ...]:
    """
    The rows of one kind, C{record} or C{batch}.
    """
    with RECORDS.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(row for row in rows if row["kind"] == kind)
