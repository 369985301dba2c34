# SPDX-License-Identifier: Apache-2.0
"""
Compressed bodies: RocketMQ's C{CompressionType} and C{Compressor}s.  Two parts of
C{sysFlag} say how a body is stored::

    bit    10   9   8  ...  0
         +-----------+     +---+
         |   type    |     | c |     c: the body is compressed
         +-----------+     +---+
           0  zlib: older clients omit the type
           1  an LZ4 frame
           2  a Zstandard frame
           3  zlib

zlib is part of Python.  The libraries for LZ4 and Zstandard are imported when a body
needs one, so they need not be installed if no client uses them.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Final

import msgspec

from txrocket.errors import MalformedRecord, UnsupportedCompression
from txrocket.message import MessageExt

__all__ = [
    "COMPRESSED_FLAG",
    "COMPRESSION_LZ4_TYPE",
    "COMPRESSION_TYPE_COMPARATOR",
    "COMPRESSION_ZLIB_TYPE",
    "COMPRESSION_ZSTD_TYPE",
    "INFLATED_LIMIT",
    "deflate",
    "inflate",
    "inflated",
]

COMPRESSED_FLAG: Final = 0x1
COMPRESSION_LZ4_TYPE: Final = 0x100
COMPRESSION_ZSTD_TYPE: Final = 0x200
COMPRESSION_ZLIB_TYPE: Final = 0x300
COMPRESSION_TYPE_COMPARATOR: Final = 0x700

# Sixteen times the largest body that a broker accepts by default.  It is enough for any
# honest message, and a decompression bomb cannot fill the memory.
INFLATED_LIMIT: Final = 64 * 1024 * 1024

# The default of the Java client.
_LEVEL: Final = 5


def inflate(body: bytes, sysFlag: int, limit: int = INFLATED_LIMIT) -> bytes:
    """
    Decompress a body with the method that C{sysFlag} names.

    @param limit: the maximum size of the result, in bytes.
    @raise MalformedRecord: if the body is damaged, or the result exceeds C{limit}.
    @raise UnsupportedCompression: if the method is unknown, or its library is
        not installed.
    """
    kind = sysFlag & COMPRESSION_TYPE_COMPARATOR
    if kind in (0, COMPRESSION_ZLIB_TYPE):
        result = _inflateZlib(body, limit)
    elif kind == COMPRESSION_LZ4_TYPE:
        result = _inflateLz4(body, limit)
    elif kind == COMPRESSION_ZSTD_TYPE:
        result = _inflateZstd(body, limit)
    else:
        raise UnsupportedCompression(f"unknown compression type {kind >> 8}")
    if len(result) > limit:
        raise _tooLarge(limit)
    return result


def inflated(message: MessageExt, limit: int = INFLATED_LIMIT) -> MessageExt:
    """
    Return the same message if its body is not compressed, else a copy with the
    decompressed body and without the flag.  C{bodyCRC} and C{storeSize} still describe
    the record.

    @raise MalformedRecord: as L{inflate}.
    @raise UnsupportedCompression: as L{inflate}.
    """
    if not message.sysFlag & COMPRESSED_FLAG:
        return message
    return msgspec.structs.replace(
        message,
        # Leave an empty body as it is: Java does not decompress one either.
        body=message.body and inflate(message.body, message.sysFlag, limit),
        sysFlag=message.sysFlag & ~COMPRESSED_FLAG,
    )


def deflate(body: bytes, kind: int = COMPRESSION_ZLIB_TYPE, level: int = _LEVEL) -> bytes:
    """
    Compress a body.  The caller must set C{COMPRESSED_FLAG | kind} in the message's
    C{sysFlag}.

    @param kind: one of the C{COMPRESSION_..._TYPE} values.
    @param level: the level for zlib and Zstandard; LZ4 uses its fastest, as in Java.
    @raise UnsupportedCompression: as L{inflate}.
    """
    compressed: bytes
    if kind == COMPRESSION_ZLIB_TYPE:
        compressed = zlib.compress(body, level)
    elif kind == COMPRESSION_LZ4_TYPE:
        compressed = _library("lz4.frame", "lz4").compress(body)
    elif kind == COMPRESSION_ZSTD_TYPE:
        compressed = _library("zstandard", "zstandard").ZstdCompressor(level).compress(body)
    else:
        raise UnsupportedCompression(f"unknown compression type {kind >> 8}")
    return compressed


def _inflateZlib(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise MalformedRecord(f"zlib body: {error}") from None
    if not inflater.eof and len(result) <= limit:
        raise MalformedRecord("zlib body: ends too early")
    return result


def _inflateLz4(body: bytes, limit: int) -> bytes:
    inflater = _library("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        result: bytes = inflater.decompress(body, max_length=limit + 1)
    except RuntimeError as error:
        raise MalformedRecord(f"LZ4 body: {error}") from None
    if not inflater.eof and len(result) <= limit:
        raise MalformedRecord("LZ4 body: ends too early")
    return result


def _inflateZstd(body: bytes, limit: int) -> bytes:
    library = _library("zstandard", "zstandard")
    try:
        # Check a size in the frame's header first, because the library allocates it
        # regardless of the limit.  A frame that Java wrote has no size there.
        if library.frame_content_size(body) > limit:
            raise _tooLarge(limit)
        result: bytes = library.ZstdDecompressor().decompress(body, max_output_size=limit)
    except library.ZstdError as error:
        raise MalformedRecord(
            f"Zstandard body, damaged or of more than {limit} bytes: {error}"
        ) from None
    return result


def _tooLarge(limit: int) -> MalformedRecord:
    return MalformedRecord(f"compressed body expands to more than {limit} bytes")


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UnsupportedCompression(
            f"a body is compressed with {package}, which is not installed:"
            f" pip install {package}, or txrocket[compression]"
        ) from None
