# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.compression}; bodies that Java compressed are in
L{tests.protocol.test_record}.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import zlib

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_record import makeRecord
from txrocket.errors import MalformedRecord, UnsupportedCompression
from txrocket.protocol.compression import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
    INFLATED_LIMIT,
    deflate,
    inflate,
    inflated,
)
from txrocket.protocol.record import decodeRecord, decodeRecords

KINDS = (COMPRESSION_ZLIB_TYPE, COMPRESSION_LZ4_TYPE, COMPRESSION_ZSTD_TYPE)


class CompressionTests(SynchronousTestCase):
    """
    Compressed bodies.
    """

    def test_compressedBodyIsDecompressed(self) -> None:
        """
        A body is decompressed as it was compressed, by each method.
        """
        for kind in KINDS:
            for body in (b"", b"x", b"hello" * 1000):
                self.assertEqual(inflate(deflate(body, kind), COMPRESSED_FLAG | kind), body)

    def test_defaultIsZlibLevel5(self) -> None:
        """
        zlib at level 5 is the default, as in the Java client, and a sysFlag without a
        type means zlib.
        """
        body = b"hello " * 100
        self.assertEqual(deflate(body), zlib.compress(body, 5))
        self.assertEqual(inflate(deflate(body), COMPRESSED_FLAG), body)

    def test_resultOverLimitIsRefused(self) -> None:
        """
        A result may have exactly the limit, and no byte more.
        """
        for kind in KINDS:
            packed = deflate(bytes(1000), kind)
            self.assertEqual(len(inflate(packed, kind, 1000)), 1000)
            self.assertRaises(MalformedRecord, inflate, packed, kind, 999)

    def test_decompressionBombIsRefused(self) -> None:
        """
        A small body that would fill the memory is refused, with or without its size in
        the header.
        """
        zeros = bytes(INFLATED_LIMIT // 8)
        for kind in KINDS:
            packed = deflate(zeros, kind)
            self.assertRaises(MalformedRecord, inflate, packed, kind, len(zeros) // 2)
        zstandard = importlib.import_module("zstandard")
        stream = zstandard.ZstdCompressor().compressobj()
        unsized = stream.compress(zeros) + stream.flush()
        self.assertEqual(zstandard.frame_content_size(unsized), -1)
        self.assertRaises(MalformedRecord, inflate, unsized, COMPRESSION_ZSTD_TYPE, len(zeros) // 2)
        bomb = makeRecord(body=zlib.compress(bytes(INFLATED_LIMIT + 1)), sysFlag=0x301)
        self.assertLess(len(bomb), 100_000)
        self.assertRaises(MalformedRecord, decodeRecords, bomb)

    def test_damagedBodyIsMalformed(self) -> None:
        """
        A compressed body that is cut at any byte is malformed; one with any byte changed
        gives bytes or that error.
        """
        for kind in KINDS:
            packed = deflate(b"hello world " * 10, kind)
            for end in range(len(packed)):
                self.assertRaises(MalformedRecord, inflate, packed[:end], kind)
            for place in range(len(packed)):
                for flip in (0x01, 0x80, 0xFF):
                    damaged = bytearray(packed)
                    damaged[place] ^= flip
                    with contextlib.suppress(MalformedRecord):
                        self.assertIsInstance(inflate(bytes(damaged), kind, 10000), bytes)

    def test_unknownTypeIsRefused(self) -> None:
        """
        A type that 4.9.7 does not know is named in the error.
        """
        error = self.assertRaises(UnsupportedCompression, inflate, b"", 0x501)
        self.assertIn("type 5", str(error))
        self.assertRaises(UnsupportedCompression, deflate, b"", 0x400)

    def test_missingLibraryIsNamed(self) -> None:
        """
        Without its library, LZ4 or Zstandard gives an error that names the package to
        install; zlib needs none.
        """
        samples = {kind: deflate(b"hello", kind) for kind in KINDS}
        for kind, module, package in (
            (COMPRESSION_LZ4_TYPE, "lz4.frame", "lz4"),
            (COMPRESSION_ZSTD_TYPE, "zstandard", "zstandard"),
        ):
            # With None there, Python refuses the import.
            self.patch(sys, "modules", {**sys.modules, module: None})
            error = self.assertRaises(UnsupportedCompression, inflate, samples[kind], kind)
            self.assertIn(f"pip install {package}", str(error))
            self.assertRaises(UnsupportedCompression, deflate, b"hello", kind)
        self.assertEqual(inflate(samples[COMPRESSION_ZLIB_TYPE], 1), b"hello")

    def test_inflatedMessageIsNotCompressed(self) -> None:
        """
        The decompressed copy of a message has no compression flag. A message that is not
        compressed is returned as it is, and an empty body stays empty.
        """
        stored = decodeRecord(makeRecord(body=deflate(b"hello"), sysFlag=0x305))
        message = inflated(stored)
        self.assertEqual(message, msgspec.structs.replace(stored, body=b"hello", sysFlag=0x304))
        self.assertIs(inflated(message), message)
        empty = decodeRecord(makeRecord(body=b"", sysFlag=0x301))
        self.assertEqual(inflated(empty).body, b"")
