# SPDX-License-Identifier: Apache-2.0
"""
What becomes of messages, as clients write it down: the bodies of the messages in
RMQ_SYS_TRACE_TOPIC, Java's C{TraceDataEncoder}.

A text of records, each of which ends with C{\\x02} and has its fields divided by
C{\\x01}::

    Pub             time region group topic msgId tags keys storeHost bodyLength cost
                    msgType offsetMsgId success
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys contextCode time group
    EndTransaction  time region group topic msgId tags keys storeHost msgType
                    transactionId transactionState fromTransactionCheck
    Recall          time region group topic msgId success

Pub is a message that was sent, SubBefore and SubAfter are a listener's call with one,
before and after.  Times are in milliseconds.  What Java has not got it writes as
C{null}, and so do we: L{None} here.

There have been other forms of these, and all are read:

  - Pub has had no offsetMsgId, nor whether it succeeded, and a clientHost at its end;
  - SubAfter has had no time and group, nor the contextCode before them.  Clients of
    Alibaba's cloud leave them out to this day, and 4.9.7's forget to end the record as
    well, so that the next begins where the time would be;
  - Recall, and ordered messages, came with 5.x.

Of records that nobody knows yet nothing is made.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from txrocket.errors import MalformedTrace
from txrocket.message import KEY_SEPARATOR

__all__ = [
    "DEFAULT_REGION",
    "TRACE_TOPIC",
    "ConsumeStatus",
    "EndTransaction",
    "MessageType",
    "Pub",
    "Recall",
    "SubAfter",
    "SubBefore",
    "Trace",
    "decodeTraces",
    "encodeTrace",
    "traceKeys",
]

#: Where clients write, unless they are told otherwise.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

#: The region of a broker that names none.
DEFAULT_REGION: Final = "DefaultRegion"

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"
_NULL: Final = "null"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}\Z").match

_STATES: Final = frozenset({"COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"})

_QUOTED: Final = 40


class MessageType(enum.IntEnum):
    """
    What kind of message was sent.
    """

    Normal_Msg = 0
    Trans_Msg_Half = 1
    Trans_msg_Commit = 2
    Delay_Msg = 3
    Order_Msg = 4


class ConsumeStatus(enum.IntEnum):
    """
    What became of a listener's call, C{ConsumeReturnType} in Java.

    @cvar TIME_OUT: it took too long, whatever came of it.
    @cvar RETURNNULL: it said nothing; of Java's listeners only.
    @cvar FAILED: it said that it did not deal with the message.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class Pub(msgspec.Struct, frozen=True):
    """
    A message was sent.

    @ivar timeStamp: when that began.
    @ivar storeHost: the broker's address.
    @ivar bodyLength: how many bytes were sent, which may have been compressed.
    @ivar costTime: how long it took.
    @ivar clientHost: the sender's address, in an older form.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    tags: str | None
    keys: str | None
    storeHost: str | None
    bodyLength: int
    costTime: int
    msgType: MessageType
    offsetMsgId: str | None = ""
    success: bool = True
    clientHost: str | None = None


class SubBefore(msgspec.Struct, frozen=True):
    """
    A listener is about to be given a message.

    @ivar requestId: of the call.
    @ivar retryTimes: how often the message has come again.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    requestId: str | None
    msgId: str | None
    retryTimes: int
    keys: str | None


class SubAfter(msgspec.Struct, frozen=True):
    """
    A listener was given a message.

    @ivar costTime: how long it took for each message of the call.
    @ivar contextCode: a L{ConsumeStatus}, if it is one that is known.
    @ivar timeStamp: when it was done, if the writer said so.
    """

    requestId: str | None
    msgId: str | None
    costTime: int
    success: bool
    keys: str | None
    contextCode: int = 0
    timeStamp: int | None = None
    groupName: str | None = ""


class EndTransaction(msgspec.Struct, frozen=True):
    """
    A transaction has ended.

    @ivar transactionState: a name of
        L{LocalTransactionState<txrocket.client.transaction.LocalTransactionState>}.
    @ivar fromTransactionCheck: whether a broker had asked.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    tags: str | None
    keys: str | None
    storeHost: str | None
    msgType: MessageType
    transactionId: str | None
    transactionState: str
    fromTransactionCheck: bool


class Recall(msgspec.Struct, frozen=True):
    """
    A message that was to be delivered later was taken back; of 5.x.
    """

    timeStamp: int
    regionId: str | None
    groupName: str | None
    topic: str | None
    msgId: str | None
    success: bool
    keys: ClassVar[str | None] = None


#: A record.
Trace: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall


# --- writing -------------------------------------------------------------


def encodeTrace(trace: Trace) -> str:
    """
    Write a record.

    @raise MalformedTrace: if a text holds what divides fields and records.
    """
    fields = [type(trace).__name__, *map(_text, astuple(trace))]
    if isinstance(trace, Pub) and trace.clientHost is None:
        fields.pop()
    elif isinstance(trace, SubAfter) and trace.timeStamp is None:
        del fields[-2:]
    text = _FIELD.join(fields)
    if text.count(_FIELD) != len(fields) - 1 or _RECORD in text:
        raise MalformedTrace("a text of a trace holds \\x01 or \\x02")
    return text + _RECORD


def _text(value: str | int | None) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:d}"


def traceKeys(trace: Trace) -> list[str]:
    """
    By what a record may be looked up: the message's id, and its keys.
    """
    keys = [trace.msgId or "", *(trace.keys or "").split(KEY_SEPARATOR)]
    return [each for each in keys if each]


# --- reading -------------------------------------------------------------


def decodeTraces(body: bytes) -> list[Trace]:
    """
    Read the body of a message of the trace topic.  Bytes that are no UTF-8 give
    U+FFFD, as in Java.

    @raise MalformedTrace: if a record has too few fields, or one that cannot be.
    """
    traces: list[Trace] = []
    for line in body.decode("utf-8", "replace").split(_RECORD):
        for name, fields in _divided(line.split(_FIELD)):
            reader = _READERS.get(name)
            if reader is not None:
                traces.append(reader(_Fields(name, fields)))
    return traces


def _divided(fields: list[str]) -> Iterator[tuple[str, list[str]]]:
    """
    The records of a line, which are several only if somebody forgot to end them.
    """
    start = 0
    while start < len(fields):
        name, following, end = fields[start], start + 7, len(fields)
        if name == "SubAfter" and following < end and fields[following] in _READERS:
            end = following
        own = fields[start + 1 : end]
        # As Java's split does: what is empty at the end is not there.
        while own and not own[-1]:
            own.pop()
        yield name, own
        start = end


class _Fields:
    """
    The fields of a record, one after the other.
    """

    def __init__(self, name: str, fields: list[str]) -> None:
        self.name = name
        self.count = len(fields)
        self._fields = fields
        self._index = 0

    def raw(self) -> str:
        """
        The next one as it is.
        """
        if self._index >= self.count:
            raise MalformedTrace(f"{self.name}: it has {self.count} fields only")
        self._index += 1
        return self._fields[self._index - 1]

    def text(self) -> str | None:
        """
        A text.
        """
        text = self.raw()
        return None if text == _NULL else text

    def last(self) -> str | None:
        """
        A text at the end, which is not there if it is empty.
        """
        return self.text() if self._index < self.count else ""

    def number(self, bits: int = 32) -> int:
        """
        A number.
        """
        text = self.raw()
        number = int(text) if _NUMBER(text) else None
        limit = 1 << (bits - 1)
        if number is None or not -limit <= number < limit:
            raise self._wrong(f"no number of {bits} bits", text)
        return number

    def time(self) -> int:
        """
        A time.
        """
        return self.number(64)

    def flag(self) -> bool:
        """
        Yes or no.
        """
        return self.raw().lower() == "true"

    def messageType(self) -> MessageType:
        """
        A kind of message.
        """
        number = self.number()
        try:
            return MessageType(number)
        except ValueError:
            raise self._wrong("no type of message", str(number)) from None

    def state(self) -> str:
        """
        What became of a transaction.
        """
        text = self.raw()
        if text not in _STATES:
            raise self._wrong("no state of a transaction", text)
        return text

    def _wrong(self, what: str, text: str) -> MalformedTrace:
        return MalformedTrace(f"{self.name}: field {self._index}, {text[:_QUOTED]!r}, is {what}")


# Arguments are evaluated in their order, which is that of the fields.


def _pub(read: _Fields) -> Pub:
    pub = Pub(
        timeStamp=read.time(),
        regionId=read.text(),
        groupName=read.text(),
        topic=read.text(),
        msgId=read.text(),
        tags=read.text(),
        keys=read.text(),
        storeHost=read.text(),
        bodyLength=read.number(),
        costTime=read.number(),
        msgType=read.messageType(),
    )
    if read.count < 12:
        return pub
    if read.count == 12:
        return replace(pub, success=read.flag())
    return replace(
        pub,
        offsetMsgId=read.text(),
        success=read.flag(),
        clientHost=read.text() if read.count > 13 else None,
    )


def _subBefore(read: _Fields) -> SubBefore:
    return SubBefore(
        timeStamp=read.time(),
        regionId=read.text(),
        groupName=read.text(),
        requestId=read.text(),
        msgId=read.text(),
        retryTimes=read.number(),
        keys=read.last(),
    )


def _subAfter(read: _Fields) -> SubAfter:
    after = SubAfter(
        requestId=read.text(),
        msgId=read.text(),
        costTime=read.number(),
        success=read.flag(),
        keys=read.last(),
        contextCode=read.number() if read.count > 5 else 0,
    )
    if read.count < 8:
        return after
    return replace(after, timeStamp=read.time(), groupName=read.text())


def _endTransaction(read: _Fields) -> EndTransaction:
    return EndTransaction(
        timeStamp=read.time(),
        regionId=read.text(),
        groupName=read.text(),
        topic=read.text(),
        msgId=read.text(),
        tags=read.text(),
        keys=read.text(),
        storeHost=read.text(),
        msgType=read.messageType(),
        transactionId=read.text(),
        transactionState=read.state(),
        fromTransactionCheck=read.flag(),
    )


def _recall(read: _Fields) -> Recall:
    return Recall(
        timeStamp=read.time(),
        regionId=read.text(),
        groupName=read.text(),
        topic=read.text(),
        msgId=read.text(),
        success=read.flag(),
    )


_READERS: Final[dict[str, Callable[[_Fields], Trace]]] = {
    "Pub": _pub,
    "SubBefore": _subBefore,
    "SubAfter": _subAfter,
    "EndTransaction": _endTransaction,
    "Recall": _recall,
}
