# SPDX-License-Identifier: Apache-2.0
"""
Messages of all kinds to send, and the requests that send them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.processors.support import Client, longHeader, sendHeader
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.record.batch import encodeItem

ID = "7F0000010B251B89B4AC4E0EAA80%04X"

heads = st.sampled_from(["", "TAGS\x01a\x02", "WAIT\x01false\x02", "MY_", "KEYS\x01k l\x02"])
rests = st.sampled_from(
    [
        *("", "WAIT\x01true\x02TAGS\x01a", "TAGS\x01b\x02", "KEYS\x01k\x02CLUSTER\x01x\x02"),
        *("DELAY\x013", "TRAN_MSG\x01true\x02", "UNIQ_KEY\x01again", "é\x01è", "n\x01\x03"),
        "long\x01" + "x" * 300,
    ]
)
ids = st.sampled_from([ID % 1, ID % 2, "", "é", "\0" * 16, "WAIT\x01true"])


class Message(NamedTuple):
    """
    A message to send.
    """

    topic: str = "T"
    queueId: int = 0
    properties: str | None = None
    body: bytes = b"x"
    sysFlag: int = 0
    flag: int = 0
    reconsumeTimes: int | None = None
    code: int = RequestCode.SEND_MESSAGE_V2
    binary: bool = False
    oneway: bool = False


def _properties(head: str, id: str, rest: str) -> str:
    return f"{head}UNIQ_KEY\x01{id}\x02{rest}"


properties = st.one_of(st.none(), heads, st.builds(_properties, heads, ids, rests))
messages = st.builds(
    Message,
    st.sampled_from(["T", "T", "T", "new", "Multi", "Order", "TBW102", "no/topic", "%RETRY%G"]),
    st.sampled_from([0, 0, 0, 1, 3, 4, -1]),
    properties,
    st.sampled_from([b"x", b"", b"y" * 900, b"z" * 5000]),
    st.sampled_from([0, 0, 0, 1, 4, 8, 12, 0x30]),
    st.sampled_from([0, 7]),
    st.sampled_from([None, 0, 3, 16]),
    st.sampled_from(
        [RequestCode.SEND_MESSAGE_V2] * 3
        + [RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE]
    ),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)

# A name for the topic and a number for the queue are all that differs.
plain = st.tuples(st.sampled_from("TU"), st.integers(0, 3)).map(lambda each: Message(*each))

# Batches, some of them damaged.
items = st.builds(
    encodeItem,
    st.sampled_from([b"", b"x", b"y" * 300]),
    st.sampled_from(
        [b"", b"TAGS\x01a", b"TAGS\x01a\x02", b"KEYS\x01k l\x02UNIQ_KEY\x01u", bytes(20)]
    ),
    st.integers(0, 3),
)
batches = st.builds(
    Message,
    st.sampled_from("TTTU"),
    st.sampled_from([0, 0, 3, 4, -1]),
    st.sampled_from([None, "", "WAIT\x01true\x02", "A\x01b", "WAIT\x01false", "DELAY\x011"]),
    st.tuples(
        st.lists(items, max_size=5).map(b"".join), st.sampled_from([b"", b"", b"", b"?"])
    ).map(b"".join),
    st.sampled_from([0, 0, 0x30, 8]),
    code=st.just(int(RequestCode.SEND_BATCH_MESSAGE)),
    binary=st.sampled_from([False, False, False, True]),
    oneway=st.sampled_from([False, False, False, True]),
)


def requestOf(client: Client, message: Message) -> RemotingCommand:
    """
    The request that sends a message.
    """
    header: Any = sendHeader(
        message.topic,
        queueId=message.queueId,
        properties=message.properties,
        sysFlag=message.sysFlag,
        flag=message.flag,
        reconsumeTimes=message.reconsumeTimes,
    )
    if message.code == RequestCode.SEND_MESSAGE:
        header = longHeader(header)
    request = client.request(message.code, header, message.body)
    request.serializeType = SerializeType.ROCKETMQ if message.binary else SerializeType.JSON
    request.flag = 2 if message.oneway else 0
    return request
