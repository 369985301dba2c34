# SPDX-License-Identifier: Apache-2.0
"""
Records, batches and queues for the tests of L{txrocket.bulk}.
"""

from __future__ import annotations

import struct
from typing import Any

import attrs
from hypothesis import strategies as st

from txrocket.protocol.record import encodeRecord, encodeTopic

V4, V6 = bytes(range(8)), bytes(range(20))

# Properties that are nearly right, in several alphabets.
PIECES = st.sampled_from(
    [
        *(b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"MY_", b"\x01", b"\x02", b" ", b"  "),
        *(b"\xff", b"\xc3\xa9", b"\xe3\x81", "中文".encode(), "🚀".encode(), b"a b", b"x"),
        *(b"7F0000010B251B89B4AC4E0EAA800205", b"n" * 70),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=14).map(b"".join)
TOPICS = st.sampled_from(["T", "topic-of-some-length", "Ü", "主题🚀"])


def item(body: bytes, properties: bytes) -> bytes:
    """
    A message in a batch, in the client's form.
    """
    size = 22 + len(body) + len(properties)
    head = struct.pack(">5i", size, 0, 0, 7, len(body))
    return head + body + len(properties).to_bytes(2, "big") + properties


RECORDS = st.lists(
    st.tuples(TOPICS, st.integers(0, 2), st.binary(max_size=40), PROPERTIES), max_size=30
)
START = 1 << 40
TIME = 1_700_000_000_123
LIMIT = 1 << 20


@attrs.define
class Queue:
    """
    What is looked at of a queue.
    """

    filed: int = 5
    tail: bytearray = attrs.field(factory=bytearray)


class Queues(dict[tuple[str, int], Queue]):
    """
    Queues that are made when they are asked for.
    """

    def find(self, key: tuple[str, int]) -> Queue:
        """
        One of them.
        """
        self[key] = Queue()
        return self[key]


def record(
    topic: str = "T",
    queueId: int = 0,
    body: bytes = b"x",
    properties: bytes = b"",
    queueOffset: int = 5,
    offset: int = START,
    sysFlag: int = 0,
    time: int = TIME,
    bornHost: bytes = V4,
    storeHost: bytes = V4,
) -> bytes:
    """
    A message as it is in the log.
    """
    return encodeRecord(
        *(encodeTopic(topic), body, properties, queueId, 0, queueOffset, offset, sysFlag),
        *(0, bornHost, time, storeHost),
    )


def recordsOf(
    made: list[tuple[str, int, bytes, bytes]], bornHost: bytes, storeHost: bytes
) -> bytes:
    """
    Records that follow each other in the log, queue by queue without a gap.
    """
    numbers: dict[tuple[str, int], int] = {}
    data = b""
    for topic, queueId, body, properties in made:
        number = numbers.get((topic, queueId), 5)
        numbers[topic, queueId] = number + 1
        data += record(
            *(topic, queueId, body, properties, number, START + len(data)),
            bornHost=bornHost,
            storeHost=storeHost,
        )
    return data


def sent(queueId: int = 0, **changes: Any) -> Any:
    """
    A message that a producer has sent.
    """
    names = ["opaque", "key", "body", "properties", "born", "flag", "sysFlag", "times", "end"]
    values = dict(zip(names, (1, ("T", queueId), b"body", b"a\x01b", 7, 0, 0, 0, 99), strict=True))
    return tuple((values | changes).values())
