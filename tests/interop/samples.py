# SPDX-License-Identifier: Apache-2.0
"""
Messages that use all that a store has a place for, as commands that both stores
understand.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from txrocket.protocol.compression import COMPRESSED_FLAG
from txrocket.protocol.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from txrocket.store.settings import StoreSettings

__all__ = ["commands", "small"]

_V4 = ["7f000001", 50123]
_V6 = ["20010db8000000000000000000000007", 50124]
_STORE_V4 = ["0a000001", 10911]
_STORE_V6 = ["20010db80000000000000000000000ff", 10911]


def small(folder: str) -> StoreSettings:
    """
    Settings with files so small that a few messages fill several of each.
    """
    return StoreSettings(
        folder,
        mappedFileSizeCommitLog=16 * 1024,
        mappedFileSizeConsumeQueue=12 * 20,
        maxHashSlotNum=50,
        maxIndexNum=120,
    )


def _b64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _put(number: int, name: str, **more: Any) -> dict[str, Any]:
    properties = {
        "UNIQ_KEY": f"{name}{number:024X}",
        "KEYS": f"order-{number} customer-{number % 7}",
        "TAGS": f"Tag{number % 5}",
        "WAIT": "true",
    }
    return {
        "op": "put",
        "topic": f"Topic{number % 3}",
        "queueId": number % 2,
        "body": _b64(f"body {name} {number} ".encode() * (number % 40)),
        "properties": properties,
        "flag": number % 5,
        "bornTimestamp": 1700000000000 + number,
        "bornHost": _V6 if number % 4 == 0 else _V4,
        "storeHost": _STORE_V6 if number % 5 == 0 else _STORE_V4,
    } | more


def _odd(number: int, name: str) -> Iterator[dict[str, Any]]:
    """
    One of each that is not like the others.
    """
    yield _put(number, name, properties={})
    yield _put(number + 1, name, body="", properties={"TAGS": "纸 \U0001f680", "KEYS": "ключ"})
    yield _put(number + 2, name, body=_b64(zlib.compress(b"x" * 5000)), sysFlag=COMPRESSED_FLAG)
    for step, state in enumerate(
        (TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE)
    ):
        yield _put(number + 3 + step, name, sysFlag=state, preparedTransactionOffset=step * 100)
    # Two hours: it is not delivered while anybody looks.
    delayed = _put(number + 6, name, reconsumeTimes=3)
    delayed["properties"]["DELAY"] = "18"
    yield delayed
    # A level above the highest counts as the highest.
    delayed = _put(number + 7, name)
    delayed["properties"]["DELAY"] = "40"
    yield delayed
    messages = [_put(number + 8 + each, name) for each in range(5)]
    yield {
        **_put(number + 8, name, topic="Batches", queueId=3, properties={}),
        "op": "batch",
        "messages": [
            {"flag": each["flag"], "body": each["body"], "properties": each["properties"]}
            for each in messages
        ],
    }


def commands(name: str, count: int = 60) -> Iterator[dict[str, Any]]:
    """
    @param name: what tells these messages from those of another call.
    """
    for number in range(count):
        yield _put(number, name)
        if number % 20 == 10:
            yield from _odd(1000 + number * 20, name)
