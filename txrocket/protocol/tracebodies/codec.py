# SPDX-License-Identifier: Apache-2.0
"""
Encode and decode the records of a message trace; see L{txrocket.protocol.tracebodies}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import astuple, replace

from txrocket.errors import MalformedTrace
from txrocket.message import KEY_SEPARATOR
from txrocket.protocol.tracebodies.records import (
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
)

__all__ = ["decodeTraces", "encodeTrace", "traceKeys"]

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"
_NULL: Final = "null"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}\Z").match

_STATES: Final = frozenset({"COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"})

# Characters of a malformed field that an error quotes.
_QUOTED: Final = 40


def encodeTrace(trace: Trace) -> str:
    """
    Encode a record.

    @raise MalformedTrace: if a text contains a separator of fields or records.
    """
    fields = [type(trace).__name__, *map(_text, astuple(trace))]
    if isinstance(trace, Pub) and trace.clientHost is None:
        fields.pop()
    elif isinstance(trace, SubAfter) and trace.timeStamp is None:
        del fields[-2:]
    text = _FIELD.join(fields)
    if text.count(_FIELD) != len(fields) - 1 or _RECORD in text:
        raise MalformedTrace("a text of a trace contains \\x01 or \\x02")
    return text + _RECORD


def _text(value: str | int | None) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:d}"


def traceKeys(trace: Trace) -> list[str]:
    """
    List the index keys of a record: the message's id and its keys.
    """
    keys = [trace.msgId or "", *(trace.keys or "").split(KEY_SEPARATOR)]
    return [each for each in keys if each]


def decodeTraces(body: bytes) -> list[Trace]:
    """
    Decode the body of a message of the trace topic.  Bytes that are not UTF-8 are read
    as U+FFFD, as in Java.

    @raise MalformedTrace: if a record has too few fields, or a field is not valid.
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
    Divide a line into records.  There are several only if a client omitted the end of
    a record.
    """
    start = 0
    while start < len(fields):
        name, following, end = fields[start], start + 7, len(fields)
        if name == "SubAfter" and following < end and fields[following] in _READERS:
            end = following
        own = fields[start + 1 : end]
        # Like Java's split, ignore empty fields at the end.
        while own and not own[-1]:
            own.pop()
        yield name, own
        start = end


class _Fields:
    """
    A cursor over the fields of a record.  Each method reads the next field.
    """

    def __init__(self, name: str, fields: list[str]) -> None:
        self.name = name
        self.count = len(fields)
        self._fields = fields
        self._index = 0

    def raw(self) -> str:
        """
        Read a field without conversion.
        """
        if self._index >= self.count:
            raise MalformedTrace(f"{self.name}: has only {self.count} fields")
        self._index += 1
        return self._fields[self._index - 1]

    def text(self) -> str | None:
        """
        Read a text; C{null} is L{None}.
        """
        text = self.raw()
        return None if text == _NULL else text

    def last(self) -> str | None:
        """
        Read a text at the end of the record, which is absent if it is empty.
        """
        return self.text() if self._index < self.count else ""

    def number(self, bits: int = 32) -> int:
        """
        Read a number.
        """
        text = self.raw()
        number = int(text) if _NUMBER(text) else None
        limit = 1 << (bits - 1)
        if number is None or not -limit <= number < limit:
            raise self._wrong(f"not a number of {bits} bits", text)
        return number

    def time(self) -> int:
        """
        Read a time.
        """
        return self.number(64)

    def flag(self) -> bool:
        """
        Read a boolean; every text but C{true} is false.
        """
        return self.raw().lower() == "true"

    def messageType(self) -> MessageType:
        """
        Read a message type.
        """
        number = self.number()
        try:
            return MessageType(number)
        except ValueError:
            raise self._wrong("not a message type", str(number)) from None

    def state(self) -> str:
        """
        Read a transaction state.
        """
        text = self.raw()
        if text not in _STATES:
            raise self._wrong("not a transaction state", text)
        return text

    def _wrong(self, what: str, text: str) -> MalformedTrace:
        return MalformedTrace(f"{self.name}: field {self._index}, {text[:_QUOTED]!r}, is {what}")


# Python evaluates arguments in their order, which is the order of the fields.


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
