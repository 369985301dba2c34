# SPDX-License-Identifier: Apache-2.0
"""
Messages: L{Message} as a producer makes it, L{MessageExt} as the broker stores it and
a consumer receives it, and the names of the properties that RocketMQ itself uses.
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

# The property names that RocketMQ itself uses (MessageConst).  A constant is named
# PROPERTY_ and the text on the wire.
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

# Delivery times of RocketMQ 5.x, and of ali-ons.
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY___STARTDELIVERTIME: Final = "__STARTDELIVERTIME"

#: The properties that set a delivery time.  If a message has several, the first counts.
TIMER_PROPERTIES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY___STARTDELIVERTIME,
)

KEY_SEPARATOR: Final = " "


def splitProperties(text: str) -> dict[str, str]:
    """
    Parse the properties of headers and records: entries C{name \\x01 value}, separated
    by C{\\x02}, with or without a separator at the end.

    As in Java, an entry without C{\\x01}, without a name or without a value is skipped.
    If two entries have the same name, the last one counts.
    """
    properties = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def decodeHost(data: bytes) -> tuple[str, int]:
    """
    Decode an address of a record: an IP address of 4 or 16 bytes, and a port of 4 bytes.

    @return: the IP address as text, and the port.
    """
    packed, port = data[:-4], int.from_bytes(data[-4:], "big")
    if len(packed) == 4:
        return ".".join(map(str, packed)), port
    return str(ipaddress.IPv6Address(packed)), port


class _WithProperties:
    """
    The attributes of a message that are stored as properties.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """
        All properties by name.
        """

    @property
    def tags(self) -> str | None:
        """
        The tag, by which consumers filter.
        """
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """
        The keys by which the message can be queried.
        """
        text = self.properties.get(PROPERTY_KEYS, "")
        return [key for key in text.split(KEY_SEPARATOR) if key]

    @property
    def delayTimeLevel(self) -> int:
        """
        The broker's delay level for the delivery; 0 is no delay.

        @raise InvalidMessage: if the property is not a number.
        """
        text = self.properties.get(PROPERTY_DELAY, "0")
        try:
            return int(text)
        except ValueError:
            raise InvalidMessage(f"delay level {text[:20]!r} is not a number") from None

    @property
    def waitStoreMsgOK(self) -> bool:
        """
        Whether the broker responds only after it has flushed or replicated the message as
        configured.
        """
        return self.properties.get(PROPERTY_WAIT, "true").lower() == "true"


@attrs.frozen(init=False)
class Message(_WithProperties):
    """
    A message as a producer makes it.

    @ivar flag: a number for the application; RocketMQ does not use it.
    @ivar properties: the properties of the application and of RocketMQ.
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
        @param delayTimeLevel: the broker's delay level for the delivery.
        @param delayTimeMs: the delay of the delivery, in milliseconds.  Brokers of
            RocketMQ 4.x ignore this and C{deliverTimeMs} and deliver at once.
        @param deliverTimeMs: the time of the delivery, in milliseconds since 1970.
        @param properties: further properties, which the other arguments override.
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
            # Remove the others, because the first of them would count.
            for name in TIMER_PROPERTIES:
                merged.pop(name, None)
            if delayTimeMs:
                merged[PROPERTY_TIMER_DELAY_MS] = str(delayTimeMs)
            else:
                merged[PROPERTY_TIMER_DELIVER_MS] = str(deliverTimeMs)
        if not waitStoreMsgOK:
            # True needs no property: every reader treats a missing WAIT as true.
            merged[PROPERTY_WAIT] = "false"
        _setTopic(self, topic)
        _setBody(self, body)
        _setFlag(self, flag)
        _setProperties(self, merged)


# Set the slots directly, which is faster than attrs' way around a frozen class.
_setTopic, _setBody, _setFlag, _setProperties = (
    Message.__dict__[name].__set__ for name in ("topic", "body", "flag", "properties")
)


# A Struct, because msgspec creates it faster than a class with __slots__ can be created.
class MessageExt(_WithProperties, msgspec.Struct, frozen=True, eq=False):
    """
    A message as the commit log holds it and consumers receive it: all fields of a
    record.

    Properties, addresses and ids are stored as the bytes of the record and decoded on
    access, because most callers need few of them.

    @ivar body: the body as stored; compressed if C{sysFlag} says so.
    @ivar propertiesData: the encoded properties.
    @ivar commitLogOffset: the record's offset in the broker's commit log.
    @ivar bornHostData: the producer's address: 4 or 16 bytes and a port of 4 bytes.
    @ivar storeHostData: the broker's address, in the same format.
    @ivar bodyCRC: the checksum of the body as stored.
    @ivar storeSize: the size of the record.
    @ivar brokerName: the broker from which the message was pulled; not part of the record.
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
        The properties, which are decoded at the first access.  As in Java, bytes that are
        not UTF-8 are read as U+FFFD: a broker does not check the properties of a batch.
        """
        data, split = self.propertiesData, self._split
        # Cached with its bytes, because msgspec.structs.replace copies the cache too.
        if split is None or split[0] is not data:
            split = data, splitProperties(str(data, "utf-8", "replace"))
            msgspec.structs.force_setattr(self, "_split", split)
        return split[1]

    @property
    def bornHost(self) -> tuple[str, int]:
        """
        The producer's IP address and port, as the broker saw them.
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
        The broker's id of the message: its address and the record's offset.
        """
        offset = self.commitLogOffset.to_bytes(8, "big", signed=True)
        return (self.storeHostData + offset).hex().upper()

    @property
    def msgId(self) -> str:
        """
        The producer's id of the message; without one, the broker's.
        """
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offsetMsgId

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        # Without the cache: an access to the properties must not make messages unequal.
        return msgspec.structs.astuple(self)[:-1] == msgspec.structs.astuple(other)[:-1]

    def __ne__(self, other: object) -> bool:
        # Struct's own method would compare the cache too.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.storeHostData, self.commitLogOffset, self.queueOffset, self.body))
