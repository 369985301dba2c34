# SPDX-License-Identifier: Apache-2.0
"""
One command, a request or a response, and the two formats of its header; Java's
C{RemotingCommand}, C{RemotingSerializable} and C{RocketMQSerializable}.

The JSON format has its members in fastjson's order, and omits C{extFields} and
C{remark} if they are empty::

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON",
     "opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}

The binary format::

      0      2          3         5        9      13
      +------+----------+---------+--------+------+--------+------- -+--------+------- -+
      | code | language | version | opaque | flag | remark | remark  | fields | fields  |
      |  i16 |       i8 |     i16 |    i32 |  i32 | length |         | length |         |
      +------+----------+---------+--------+------+--------+------- -+--------+------- -+

    each field:  nameLength:i16 name valueLength:i32 value

The binary format does not distinguish null from the empty string: both are written as
a length of zero.  A length of zero is read as null, and a field that is null is absent.
"""

from __future__ import annotations

import functools
from struct import Struct as Layout
from struct import error as StructError
from typing import Final, TypeVar

import msgspec
import orjson
from msgspec import Raw, field

from txrocket.errors import HeaderTooLong, InvalidMessage, MalformedHeader, UnknownSerializeType
from txrocket.model import Int32
from txrocket.protocol.codes import VERSION, LanguageCode, SerializeType, requestName
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.protocol.headers.fields import (
    UNREADABLE,
    Header,
    decodeExtFields,
    decodeHeader,
    headerFromFields,
)

__all__ = [
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "RemotingCommand",
    "decodeCommand",
    "rawRequest",
    "requestCommand",
    "responseCommand",
]

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

_JSON: Final = int(SerializeType.JSON)
_BINARY: Final = int(SerializeType.ROCKETMQ)
_HEADER_LIMIT: Final = 0xFFFFFF

_NO_EXT = Raw()
_LANGUAGE: Final = "PYTHON"

_Header = TypeVar("_Header", bound=Header)


class RemotingCommand(msgspec.Struct, gc=False):
    """
    A request or a response.

    msgspec decodes a JSON header straight into this Struct.  The attributes whose wire
    names begin with a dash are not members of the header; L{decodeCommand} sets them.

    @ivar code: a request code or a response code.
    @ivar language: the sender's language, by its name in L{LanguageCode}.
    @ivar version: the sender's version, as the ordinal of Java's C{MQVersion}.
    @ivar opaque: the number of the request, which its response repeats.
    @ivar flag: bit 0: this is a response; bit 1: this request expects no response.
    @ivar remark: a text, such as the reason of a failure.
    @ivar body: the payload as bytes.
    @ivar serializeType: the format of the header; a response has that of its request.
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
        Whether this is a response.
        """
        return self.flag & RESPONSE_FLAG != 0

    @property
    def isOneway(self) -> bool:
        """
        Whether this is a request that expects no response.
        """
        return self.flag & ONEWAY_FLAG != 0

    @property
    def extFields(self) -> dict[str, str]:
        """
        The header's fields by their wire names.  Changes of the map are sent.

        The map is decoded at the first access, so a command that is only forwarded, or
        read by L{decodeHeader}, needs none.
        """
        if self.fields is None:
            self.fields = decodeExtFields(self.raw) if self.raw else {}
        return self.fields

    def decodeHeader(self, header: type[_Header]) -> _Header:
        """
        Decode the header's fields as a typed header.

        @raise ProtocolError: if a field is missing or malformed; the error names it.
        """
        if self.fields is None and self.raw is not _NO_EXT:
            return decodeHeader(header, self.raw)
        return headerFromFields(header, self.extFields)

    def encode(self) -> bytes:
        """
        Encode the command as a whole frame.
        """
        return self.encodeHead() + self.body

    def encodeHead(self, limit: int = FRAME_LIMIT) -> bytes:
        """
        Encode the frame up to its body, for a writer that gathers pieces.

        @param limit: the maximum length of the whole frame.
        @raise InvalidMessage: if the frame exceeds the limit or cannot be encoded.
        """
        try:
            header = self._binaryHeader() if self.serializeType == _BINARY else self._jsonHeader()
        except (orjson.JSONEncodeError, UnicodeEncodeError, StructError) as error:
            raise InvalidMessage(f"{self} cannot be written: {error}") from None
        size = len(header)
        length = 4 + size + len(self.body)
        if length + 4 > limit or size > _HEADER_LIMIT:
            raise InvalidMessage(
                f"{self} would be a frame of {length + 4} bytes, {size} of them header: "
                f"the limits are {limit} and {_HEADER_LIMIT}"
            )
        return _PREFIX.pack(length, self.serializeType << 24 | size) + header

    def _jsonHeader(self) -> bytes:
        header: dict[str, object] = {"code": self.code}
        if self.fields is not None:
            # Java writes an empty map for a header without fields, and omits the member
            # for no header.  A forwarded command keeps the one it came with.
            if self.fields or self.raw:
                header["extFields"] = self.fields
        elif self.raw:
            header["extFields"] = orjson.Fragment(bytes(self.raw))
        header["flag"] = self.flag
        header["language"] = self.language
        header["opaque"] = self.opaque
        if self.remark is not None:
            header["remark"] = self.remark
        header["serializeTypeCurrentRPC"] = "JSON"
        header["version"] = self.version
        return orjson.dumps(header)

    def _binaryHeader(self) -> bytes:
        if not -0x8000 <= self.code <= 0x7FFF:
            raise InvalidMessage(f"code {self.code} does not fit a binary header")
        pieces: list[bytes] = []
        for name, value in self.extFields.items():
            valueBytes = value.encode()
            pieces.append(_namePrefix(name))
            pieces.append(_INT.pack(len(valueBytes)))
            pieces.append(valueBytes)
        fields = b"".join(pieces)
        remark = (self.remark or "").encode()
        fixed = _FIXED.pack(
            self.code,
            _NUMBER.get(self.language, LanguageCode.OTHER),
            # Larger versions wrap, as in Java.
            (self.version + 0x8000) % 0x10000 - 0x8000,
            self.opaque,
            self.flag,
            len(remark),
        )
        return b"".join((fixed, remark, _INT.pack(len(fields)), fields))

    def __str__(self) -> str:
        what = f"response {self.code}" if self.isResponse else f"request {requestName(self.code)}"
        said = f": {self.remark}" if self.remark else ""
        return f"<{what} opaque {self.opaque}, body of {len(self.body)} bytes{said}>"


_NUMBER = {each.name: int(each) for each in LanguageCode}
_NAME = {int(each): each.name for each in LanguageCode}

_PREFIX = Layout(">iI")
_TYPE_AND_SIZE = Layout(">I").unpack_from
_FIXED = Layout(">hbhiii")
_SHORT = Layout(">H")
_INT = Layout(">i")

# Unpack a field's name and the length of its value in one call, by the length of the
# name.
_NAME_AND_LENGTH = [Layout(f">{length}sI").unpack_from for length in range(64)]


@functools.lru_cache(1024)
def _namePrefix(name: str) -> bytes:
    """
    Encode a field's name with its length.
    """
    nameBytes = name.encode()
    if len(nameBytes) > 0x7FFF:
        raise InvalidMessage(f"field name of {len(nameBytes)} bytes: at most 32767 fit")
    return _SHORT.pack(len(nameBytes)) + nameBytes


def requestCommand(
    code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """
    Create a request.  Its C{opaque} is set when it is sent.
    """
    fields = None if header is None else header.toFields()
    flag = ONEWAY_FLAG if oneway else 0
    return RemotingCommand(code, _LANGUAGE, VERSION, 0, flag, None, _NO_EXT, fields, body)


def rawRequest(
    code: int, extFields: bytes, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """
    Create a request whose C{extFields} are already JSON, which avoids creating and
    encoding a map.
    """
    flag = ONEWAY_FLAG if oneway else 0
    return RemotingCommand(code, _LANGUAGE, VERSION, 0, flag, None, Raw(extFields), None, body)


def responseCommand(
    code: int = 0, remark: str | None = None, header: Header | None = None, body: bytes = b""
) -> RemotingCommand:
    """
    Create a response.  Its C{opaque} and C{serializeType} are set from its request later.
    """
    fields = None if header is None else header.toFields()
    return RemotingCommand(
        code, _LANGUAGE, VERSION, 0, RESPONSE_FLAG, remark, _NO_EXT, fields, body
    )


_decodeJson = msgspec.json.Decoder(RemotingCommand, strict=False).decode


def decodeCommand(data: bytes, start: int, stop: int) -> RemotingCommand:
    """
    Decode a command from a frame without its length.

    @param data: the bytes that contain the frame between C{start} and C{stop}.
    @raise ProtocolError: if the frame cannot be decoded.
    """
    mark = _TYPE_AND_SIZE(data, start)[0]
    start += 4
    end = start + (mark & _HEADER_LIMIT)
    if end > stop:
        raise HeaderTooLong(end - start, stop - start)
    serializeType = mark >> 24
    if serializeType == _JSON:
        try:
            command = _decodeJson(data[start:end])
        except UNREADABLE as error:
            raise MalformedHeader(f"JSON header: {error}") from None
        command.fields = None
    elif serializeType == _BINARY:
        command = _decodeBinary(data, start, end)
    else:
        raise UnknownSerializeType(serializeType)
    command.serializeType = serializeType
    command.body = data[end:stop] if end < stop else b""
    return command


def _decodeBinary(data: bytes, start: int, end: int) -> RemotingCommand:
    remark = start + _FIXED.size
    if remark > end:
        raise MalformedHeader(f"binary header of {end - start} bytes is truncated")
    code, language, version, opaque, flag, remarkLength = _FIXED.unpack_from(data, start)
    stop = remark + remarkLength
    if remarkLength < 0 or stop + 4 > end:
        raise MalformedHeader(f"binary header: remark length {remarkLength} does not fit")
    fields = stop + 4
    fieldsLength = _INT.unpack_from(data, stop)[0]
    if fieldsLength < 0 or fields + fieldsLength > end:
        raise MalformedHeader(f"binary header: fields length {fieldsLength} does not fit")
    try:
        return RemotingCommand(
            code,
            _NAME.get(language, "OTHER"),
            version,
            opaque,
            flag,
            data[remark:stop].decode() if remarkLength else None,
            _NO_EXT,
            _decodeFields(data, fields, fields + fieldsLength) if fieldsLength else None,
        )
    except UnicodeDecodeError as error:
        raise MalformedHeader(f"binary header: {error}") from None


def _decodeFields(data: bytes, start: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    short = _SHORT.unpack_from
    try:
        while start < end:
            length = short(data, start)[0]
            if length < 64:
                name, size = _NAME_AND_LENGTH[length](data, start + 2)
            else:
                name, size = Layout(f">{length}sI").unpack_from(data, start + 2)
            value = start + 6 + length
            start = value + size
            if start > end:
                raise MalformedHeader(f"binary header: a field of {size} bytes does not fit")
            if size:
                fields[name.decode()] = data[value:start].decode()
    except StructError:
        raise MalformedHeader("binary header: a field is truncated") from None
    return fields
