# SPDX-License-Identifier: Apache-2.0
"""
All that a store holds, as JSON objects: the same that C{JavaStore.java} prints of
the same folder.

    {"kind": "record", ...}   each record, in the log's order
    {"kind": "queue", ...}    each queue: its bounds, entries, and times
    {"kind": "key", ...}      each key of each topic: the records found by it
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from txrocket.message import PROPERTY_UNIQ_KEY, MessageExt
from txrocket.protocol.record import decodeRecord
from txrocket.store.messagestore import MessageStore
from txrocket.store.queue.consumequeue import ConsumeQueue
from txrocket.store.queue.entry import entries

__all__ = ["Content", "comparable", "content", "describe", "records"]

Content: TypeAlias = list[dict[str, Any]]


def _host(data: bytes) -> list[Any]:
    return [data[:-4].hex(), int.from_bytes(data[-4:], "big")]


def describe(message: MessageExt) -> dict[str, Any]:
    """
    A record as an object.
    """
    return {
        "kind": "record",
        "offset": message.commitLogOffset,
        "size": message.storeSize,
        "topic": message.topic,
        "queueId": message.queueId,
        "queueOffset": message.queueOffset,
        "flag": message.flag,
        "sysFlag": message.sysFlag,
        "bornTimestamp": message.bornTimestamp,
        "bornHost": _host(message.bornHostData),
        "storeTimestamp": message.storeTimestamp,
        "storeHost": _host(message.storeHostData),
        "reconsumeTimes": message.reconsumeTimes,
        "preparedTransactionOffset": message.preparedTransactionOffset,
        "bodyCRC": message.bodyCRC,
        "body": b64encode(message.body).decode("ascii"),
        "properties": dict(sorted(message.properties.items())),
        "msgId": message.offsetMsgId,
    }


def records(store: MessageStore) -> Iterator[MessageExt]:
    """
    Every record, found by going from one to the next.
    """
    size = store.settings.mappedFileSizeCommitLog
    offset = store.log.first
    while offset < store.log.written:
        data = store.messageAt(offset)
        if data is None:
            offset += size - offset % size
            continue
        yield decodeRecord(data, checkCrc=True)
        offset += len(data)


def _queue(store: MessageStore, topic: str, queueId: int, queue: ConsumeQueue) -> dict[str, Any]:
    found: list[list[int]] = []
    low, high = store.minOffset(topic, queueId), store.maxOffset(topic, queueId)
    while low + len(found) < high:
        found += [list(each) for each in entries(queue.read(low + len(found), 1000))]
    times = [store.storeTimestamp(topic, queueId, at) for at in range(low, high)]
    return {
        "kind": "queue",
        "topic": topic,
        "queueId": queueId,
        "min": low,
        "max": high,
        "earliest": store.earliestTimestamp(topic, queueId),
        "entries": found,
        "times": times,
        "byTime": [store.offsetByTime(topic, queueId, each or 0) for each in times],
    }


def _key(store: MessageStore, topic: str, key: str) -> dict[str, Any]:
    found, lastTimestamp, lastOffset = store.query(topic, key, 0, 2**62, 64)
    return {
        "kind": "key",
        "topic": topic,
        "key": key,
        "offsets": [decodeRecord(each).commitLogOffset for each in found],
        "lastTimestamp": lastTimestamp,
        "lastOffset": lastOffset,
    }


def content(store: MessageStore) -> Content:
    """
    All that a store holds.
    """
    lines: Content = []
    keys: dict[tuple[str, str], None] = {}
    for record in records(store):
        lines.append(describe(record))
        for key in (record.properties.get(PROPERTY_UNIQ_KEY, ""), *record.keys):
            if key:
                keys[record.topic, key] = None
    queues = sorted(store.queues, key=lambda each: each[:2])
    lines += [_queue(store, *each) for each in queues if each[2].maxOffset]
    lines += [_key(store, *each) for each in keys]
    return lines


def comparable(lines: Iterable[dict[str, Any]], queueSegment: int) -> Content:
    """
    Content without what Java leaves to chance, or tells otherwise on purpose:

      - it answers a query oldest first, and where an index was made again with
        some records twice; here the order is that of the log;
      - where it finds nothing it does not tell how far the index reaches;
      - a search by time takes any of several messages of one time, and among
        several files goes by when they were last changed, which a mapping does
        not keep up to date.
    """
    result = []
    for line in lines:
        line = json.loads(json.dumps(line))
        if line["kind"] == "key":
            line["offsets"] = sorted(set(line["offsets"]))
            if not line["offsets"]:
                del line["lastTimestamp"], line["lastOffset"]
        elif line["kind"] == "queue":
            counts = Counter(line["times"])
            single = line["max"] * 20 <= queueSegment
            line["byTime"] = [
                at if single and counts[time] == 1 else None
                for at, time in zip(line["byTime"], line["times"], strict=True)
            ]
        result.append(line)
    return result
