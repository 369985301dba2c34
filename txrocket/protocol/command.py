# SPDX-License-Identifier: Apache-2.0
"""
One command, request or response, and its two header forms; Java's
C{RemotingCommand}, C{RemotingSerializable} and C{RocketMQSerializable}.

The JSON form, members in the order in which fastjson writes them, C{extFields}
and C{remark} left out where there is nothing to say::

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON",
     "opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}

The binary form::

      0      2          3         5        9      13
      +------+----------+---------+--------+------+--------+------- -+--------+------- -+
      | code | language | version | opaque | flag | remark | remark  | fields | fields  |
      |  i16 |       i8 |     i16 |    i32 |  i32 | length |         | length |         |
      +------+----------+---------+--------+------+--------+------- -+--------+------- -+

    fields:  nameLength:i16 name valueLength:i32 value, again and again

Null and the empty string are one and the same in the binary form: both are
written as a length of zero, and a length of zero is read as null, which for a
field means that it is not there.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, field

from txrocket.errors import HeaderTooLong, InvalidMessage, MalformedHeader, UnknownSerializeType
from txrocket.protocol.codes import VERSION, LanguageCode, SerializeType, requestName
from txrocket.protocol.fields import (
    Header,
    Int32,
    decodeExtFields,
    decodeHeader,
    headerFromFields,
)

__all__ = [
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "RemotingCommand",
    "decodeCommand",
    "requestCommand",
    "responseCommand",
]

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

_JSON: Final = int(SerializeType.JSON)
_BINARY: Final = int(SerializeType.ROCKETMQ)
_HEADER_LIMIT: Final = 0xFFFFFF

_NO_EXT = Raw()
_encodeJson = msgspec.json.Encoder().encode
_Header = TypeVar("_Header", bound=Header)


class RemotingCommand(msgspec.Struct, kw_only=True):
    """
    A request or a response.

    The Struct is also what a JSON header is decoded into, in one step; the
    attributes below whose wire names begin with a dash are no members of the
    header and are set by L{decodeCommand}.

    @ivar code: a request code, or a response code.
    @ivar language: the sender's, by its name in L{LanguageCode}.
    @ivar version: the sender's, as the ordinal of Java's C{MQVersion}.
    @ivar opaque: ties a response to its request.
    @ivar flag: bit 0 for a response, bit 1 for a request that wants none.
    @ivar remark: words for a reader; Java puts the reason of a failure here.
    @ivar body: the payload, opaque at this level.
    @ivar serializeType: the form of the header; a response uses its request's.
    """

    code: Int32 = 0
    language: str = "JAVA"
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    raw: Raw = field(default=_NO_EXT, name="extFields")
    fields: dict[str, str] | None = field(default=None, name="-fields")
    body: bytes = field(default=b"", name="-body")
    serializeType: int = field(default=_JSON, name="-serializeType")

    @property
    def isResponse(self) -> bool:
        """
        Whether this answers a request.
        """
        return self.flag & RESPONSE_FLAG != 0

    @property
    def isOneway(self) -> bool:
        """
        Whether this is a request that wants no answer.
        """
        return self.flag & ONEWAY_FLAG != 0

    @property
    def extFields(self) -> dict[str, str]:
        """
        The header's fields by their wire names.  What is put in is sent.

        They are decoded when they are first asked for: a command that is only
        passed on, or read by L{decodeHeader}, never pays for a map.
        """
        if self.fields is None:
            self.fields = decodeExtFields(self.raw) if self.raw else {}
        return self.fields

    def decodeHeader(self, header: type[_Header]) -> _Header:
        """
        The header's fields as a typed header.

        @raise ProtocolError: naming the field that is missing or malformed.
        """
        if self.fields is None and self.raw:
            return decodeHeader(header, self.raw)
        return headerFromFields(header, self.fields or {})

    def encode(self) -> bytes:
        """
        The command as a whole frame.
        """
        return self.encodeHead() + self.body

    def encodeHead(self) -> bytes:
        """
        The frame up to its body, for a writer that gathers pieces.
        """
        header = self._binaryHeader() if self.serializeType == _BINARY else self._jsonHeader()
        size = len(header)
        if size > _HEADER_LIMIT:
            raise InvalidMessage(f"header of {size} bytes: at most {_HEADER_LIMIT} can be sent")
        return _PREFIX.pack(4 + size + len(self.body), self.serializeType << 24 | size) + header

    def _jsonHeader(self) -> bytes:
        if self.fields is not None:
            ext = b'"extFields":%b,' % _encodeJson(self.fields) if self.fields else b""
        else:
            ext = b'"extFields":%b,' % self.raw if self.raw else b""
        return (
            b'{"code":%d,%b"flag":%d,"language":%b,"opaque":%d,%b'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
        ) % (
            self.code,
            ext,
            self.flag,
            _QUOTED.get(self.language) or _encodeJson(self.language),
            self.opaque,
            b"" if self.remark is None else b'"remark":%b,' % _encodeJson(self.remark),
            self.version,
        )

    def _binaryHeader(self) -> bytes:
        remark = (self.remark or "").encode()
        pieces: list[bytes] = []
        for name, value in self.extFields.items():
            nameBytes, valueBytes = name.encode(), value.encode()
            if len(nameBytes) > 0x7FFF:
                raise InvalidMessage(f"field name of {len(nameBytes)} bytes: at most 32767 fit")
            pieces += (
                _SHORT.pack(len(nameBytes)),
                nameBytes,
                _INT.pack(len(valueBytes)),
                valueBytes,
            )
        ext = b"".join(pieces)
        if not -0x8000 <= self.code <= 0x7FFF:
            raise InvalidMessage(f"code {self.code} does not fit a binary header")
        return b"".join(
            (
                _FIXED.pack(
                    self.code,
                    _NUMBER.get(self.language, LanguageCode.OTHER),
                    # Wide versions wrap as in Java; nothing depends on them.
                    (self.version + 0x8000) % 0x10000 - 0x8000,
                    self.opaque,
                    self.flag,
                    len(remark),
                ),
                remark,
                _INT.pack(len(ext)),
                ext,
            )
        )

    def __str__(self) -> str:
        what = f"response {self.code}" if self.isResponse else f"request {requestName(self.code)}"
        said = f": {self.remark}" if self.remark else ""
        return f"<{what} opaque {self.opaque}, body of {len(self.body)} bytes{said}>"


_NUMBER = {each.name: int(each) for each in LanguageCode}
_NAME = {int(each): each.name for each in LanguageCode}
_QUOTED = {each.name: _encodeJson(each.name) for each in LanguageCode}

_PREFIX = Layout(">iI")
_TYPE_AND_SIZE = Layout(">I").unpack_from
_FIXED = Layout(">hbhiii")
_SHORT = Layout(">h")
_INT = Layout(">i")


def requestCommand(
    code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """
    A request of ours.  Its C{opaque} is set when it is sent.
    """
    return RemotingCommand(
        code=code,
        language="PYTHON",
        version=VERSION,
        flag=ONEWAY_FLAG if oneway else 0,
        fields=None if header is None else header.toFields(),
        body=body,
    )


def responseCommand(
    code: int = 0, remark: str | None = None, header: Header | None = None, body: bytes = b""
) -> RemotingCommand:
    """
    A response of ours.  Its C{opaque} and its form are set from the request
    that it answers.
    """
    return RemotingCommand(
        code=code,
        language="PYTHON",
        version=VERSION,
        flag=RESPONSE_FLAG,
        remark=remark,
        fields=None if header is None else header.toFields(),
        body=body,
    )


_decodeJson = msgspec.json.Decoder(RemotingCommand, strict=False).decode


def decodeCommand(frame: bytes) -> RemotingCommand:
    """
    A command from a frame without its length.

    @raise ProtocolError: if the frame is no command.
    """
    mark = _TYPE_AND_SIZE(frame)[0]
    end = 4 + (mark & _HEADER_LIMIT)
    if end > len(frame):
        raise HeaderTooLong(end - 4, len(frame) - 4)
    serializeType = mark >> 24
    if serializeType == _JSON:
        try:
            command = _decodeJson(frame[4:end])
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedHeader(f"JSON header: {error}") from None
        command.fields = None
    elif serializeType == _BINARY:
        command = _decodeBinary(frame, end)
    else:
        raise UnknownSerializeType(serializeType)
    command.serializeType = serializeType
    command.body = frame[end:]
    return command


def _decodeBinary(frame: bytes, end: int) -> RemotingCommand:
    start = 4 + _FIXED.size
    if start > end:
        raise MalformedHeader(f"binary header of {end - 4} bytes is truncated")
    code, language, version, opaque, flag, remarkLength = _FIXED.unpack_from(frame, 4)
    stop = start + remarkLength
    if remarkLength < 0 or stop + 4 > end:
        raise MalformedHeader(f"binary header: remark length {remarkLength} does not fit")
    (extLength,) = _INT.unpack_from(frame, stop)
    if extLength < 0 or stop + 4 + extLength > end:
        raise MalformedHeader(f"binary header: fields length {extLength} does not fit")
    try:
        return RemotingCommand(
            code=code,
            language=_NAME.get(language, "OTHER"),
            version=version,
            opaque=opaque,
            flag=flag,
            remark=frame[start:stop].decode() or None,
            fields=_decodeFields(frame, stop + 4, stop + 4 + extLength) if extLength else None,
        )
    except UnicodeDecodeError as error:
        raise MalformedHeader(f"binary header: {error}") from None


def _decodeFields(frame: bytes, start: int, end: int) -> dict[str, str]:
    # The name's length is added up from its bytes because that costs half of
    # unpacking it, and a pull or a send has a dozen fields.
    fields: dict[str, str] = {}
    while start + 6 <= end:
        name = start + 2
        stop = name + (frame[start] << 8 | frame[start + 1])
        value = stop + 4
        after = value + int.from_bytes(frame[stop:value], "big")
        if after > end:
            break
        if value < after:
            fields[frame[name:stop].decode()] = frame[value:after].decode()
        start = after
    if start != end:
        raise MalformedHeader("binary header: a field runs over the end")
    return fields
