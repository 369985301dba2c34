# SPDX-License-Identifier: Apache-2.0
"""
Records that RocketMQ's own code wrote, for what the captures lack (IPv6
addresses, compression, Unicode, limits): C{fixtures/records.jsonl}.

They were made with C{org.apache.rocketmq:rocketmq-common:4.9.7} on JDK 17: each
C{record} by C{MessageDecoder.encode}, its expected fields by reading it back with
C{MessageDecoder.decode}; CRCs are C{UtilAll.crc32}'s and compressed bodies the
C{Compressor}s'.  A C{batch} is C{MessageDecoder.encodeMessages} (C{client}) and what
C{rocketmq-store:4.9.7}'s C{MessageExtEncoder} makes of it (C{log}).

Three things are not Java's own: the two offsets in C{log} were filled in
afterwards, where C{CommitLog} does it; the C{client} form of "entries closed by a
separator" had the separators added; and numbers over 2^53, which Java's JSON
library wrote as strings, were made numbers.
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
