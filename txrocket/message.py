# SPDX-License-Identifier: Apache-2.0
"""
A message: L{Message} as its sender makes it, L{MessageExt} as the broker keeps
it and a consumer receives it, and the names of the properties by which RocketMQ
itself says something about it.
"""

from __future__ import annotations

import ipaddress
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import msgspec

from txrocket.errors import InvalidMessage

__all__ = [
    "Message",
    "MessageExt",
    "splitProperties",
]

# The property names that RocketMQ itself gives a meaning (MessageConst).  Each
# is named after its value: PROPERTY_ and the text on the wire.
PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QID: Final = "REAL_QID"
PROPERTY_TRAN_MSG: Final = "TRAN_MSG"
PROPERTY_PGROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_BUYER_ID: Final = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG: Final = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG: Final = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG: Final = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_ON: Final = "TRACE_ON"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
PROPERTY_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MSG_TYPE: Final = "MSG_TYPE"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

# Those of 5.x by which a message has a time of its own, and the one of ali-ons.
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY___STARTDELIVERTIME: Final = "__STARTDELIVERTIME"

#: By any of these a message asks for a time of its own; the first one counts.
TIMER_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY___STARTDELIVERTIME,
)

KEY_SEPARATOR: Final = " "


def splitProperties(text: str) -> dict[str, str]:
    """
    Read properties as they stand in headers and records: C{name \\x01 value},
    entries divided by C{\\x02}, with or without one at the end.

    As in Java, an entry without C{\\x01}, without a name or without a value is
    skipped, and the last of two entries with one name counts.
    """
    properties = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def decodeHost(data: bytes) -> tuple[str, int]:
    """
    Read an address of a record, 4 or 16 bytes and a port of 4.

    @return: the IP address as text, and the port.
    """
    packed, port = data[:-4], int.from_bytes(data[-4:], "big")
    if len(packed) == 4:
        return ".".join(map(str, packed)), port
    return str(ipaddress.IPv6Address(packed)), port


class _WithProperties:
    """
    What RocketMQ reads out of a message's properties.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """
        All of them, by name.
        """

    @property
    def tags(self) -> str | None:
        """
        The tag that consumers select by.
        """
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """
        The keys that the message can be looked up by.
        """
        text = self.properties.get(PROPERTY_KEYS, "")
        return [key for key in text.split(KEY_SEPARATOR) if key]

    @property
    def delayTimeLevel(self) -> int:
        """
        Which of the broker's delays the message waits before delivery; 0 is none.

        @raise InvalidMessage: if the property is no number.
        """
        text = self.properties.get(PROPERTY_DELAY, "0")
        try:
            return int(text)
        except ValueError:
            raise InvalidMessage(f"delay level {text[:20]!r} is no number") from None

    @property
    def waitStoreMsgOK(self) -> bool:
        """
        Whether the sender waits until the message is as safe as the broker is
        configured to make it.
        """
        return self.properties.get(PROPERTY_WAIT, "true").lower() == "true"


@attrs.frozen(init=False)
class Message(_WithProperties):
    """
    A message as its sender makes it.

    @ivar flag: a number for the application's own use; RocketMQ only carries it.
    @ivar properties: the application's properties beside RocketMQ's own.
    """

    topic: str
    body: bytes
    flag: int = 0
    properties: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def __init__(
        self,
        topic: str,
        body: bytes,
        tags: str = "",
        keys: str | Iterable[str] = (),
        *,
        flag: int = 0,
        delayTimeLevel: int = 0,
        delayTimeMs: int = 0,
        deliverTimeMs: int = 0,
        waitStoreMsgOK: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """
        @param keys: one key, or several.
        @param delayTimeLevel: which of the broker's delays to wait.
        @param delayTimeMs: how long to wait, in milliseconds; like the next one only
            with txrocket's brokers and RocketMQ 5.x's, others deliver at once.
        @param deliverTimeMs: when to be delivered, in milliseconds since 1970.
        @param properties: more properties.  Tags, keys, delay level and so on
            that are given as arguments go on top.
        @raise InvalidMessage: if more than one of level, delay and time is given.
        """
        merged = dict(properties) if properties else {}
        if tags:
            merged[PROPERTY_TAGS] = tags
        if keys and (joined := keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys)):
            merged[PROPERTY_KEYS] = joined
        if delayTimeLevel:
            merged[PROPERTY_DELAY] = str(delayTimeLevel)
        if delayTimeMs or deliverTimeMs:
            if sum(map(bool, (delayTimeLevel, delayTimeMs, deliverTimeMs))) > 1:
                raise InvalidMessage(
                    "only one of delayTimeLevel, delayTimeMs and deliverTimeMs can be given"
                )
            # In their place, so that no other one counts.
            for name in TIMER_PROPERTIES:
                merged.pop(name, None)
            if delayTimeMs:
                merged[PROPERTY_TIMER_DELAY_MS] = str(delayTimeMs)
            else:
                merged[PROPERTY_TIMER_DELIVER_MS] = str(deliverTimeMs)
        if not waitStoreMsgOK:
            # True goes without saying: every reader takes a missing WAIT for true.
            merged[PROPERTY_WAIT] = "false"
        _setTopic(self, topic)
        _setBody(self, body)
        _setFlag(self, flag)
        _setProperties(self, merged)


# The slots themselves, past what makes them frozen: a third of a message's making.
_setTopic, _setBody, _setFlag, _setProperties = (
    Message.__dict__[name].__set__ for name in ("topic", "body", "flag", "properties")
)


# A Struct, because msgspec builds it in C: 0.15 us for these fields, a third
# of a class with __slots__; being frozen costs nothing here.
class MessageExt(_WithProperties, msgspec.Struct, frozen=True, eq=False):
    """
    A message as the log holds it and consumers receive it: all fields of a
    record.

    Properties, addresses and ids are kept as the record's bytes, and are read
    when somebody asks: most readers ask for few of them.

    @ivar body: the body; as it is stored, so compressed if C{sysFlag} says so.
    @ivar propertiesData: the properties, not yet split.
    @ivar commitLogOffset: where the record starts in the broker's log.
    @ivar bornHostData: the sender's address, 4 or 16 bytes and a port of 4.
    @ivar storeHostData: the broker's address, likewise.
    @ivar bodyCRC: the checksum of the body as stored.
    @ivar storeSize: the record's length.
    @ivar brokerName: whom the message was pulled from; not part of the record.
    """

    topic: str
    body: bytes
    flag: int
    propertiesData: bytes
    queueId: int
    queueOffset: int
    commitLogOffset: int
    sysFlag: int
    bornTimestamp: int
    bornHostData: bytes
    storeTimestamp: int
    storeHostData: bytes
    reconsumeTimes: int
    preparedTransactionOffset: int
    bodyCRC: int
    storeSize: int
    brokerName: str = ""
    _split: tuple[bytes, dict[str, str]] | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        """
        The properties, split at the first use.  Bytes that are no UTF-8 give
        U+FFFD, as in Java: a batch's properties reach the log unread.
        """
        data, split = self.propertiesData, self._split
        # Kept with the bytes it came from: msgspec.structs.replace copies it as well.
        if split is None or split[0] is not data:
            split = data, splitProperties(str(data, "utf-8", "replace"))
            msgspec.structs.force_setattr(self, "_split", split)
        return split[1]

    @property
    def bornHost(self) -> tuple[str, int]:
        """
        The sender's IP address and port, as the broker saw them.
        """
        return decodeHost(self.bornHostData)

    @property
    def storeHost(self) -> tuple[str, int]:
        """
        The broker's IP address and port.
        """
        return decodeHost(self.storeHostData)

    @property
    def offsetMsgId(self) -> str:
        """
        The id that the broker gave: its address and the record's place.
        """
        offset = self.commitLogOffset.to_bytes(8, "big", signed=True)
        return (self.storeHostData + offset).hex().upper()

    @property
    def msgId(self) -> str:
        """
        The id that the sending client gave; without one, the broker's.
        """
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offsetMsgId

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        # All but the cache: having been asked for its properties changes no value.
        return msgspec.structs.astuple(self)[:-1] == msgspec.structs.astuple(other)[:-1]

    def __ne__(self, other: object) -> bool:
        # Struct has one of its own, which would compare the cache as well.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.storeHostData, self.commitLogOffset, self.queueOffset, self.body))
