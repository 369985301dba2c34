# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.ha.hello}: the handshake between brokers of ours.
"""

from __future__ import annotations

import contextlib
import zlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.ha.streams import cut, places
from txrocket.errors import InvalidMessage, MalformedReplication
from txrocket.protocol.ha.hello import (
    EPOCH_LIMIT,
    SAMPLE_LIMIT,
    HelloReader,
    MasterHello,
    Sample,
    SlaveHello,
)

MASTER = MasterHello("group", "boot", True, 1 << 30, 4096, 9000, ((1, 0), (4, 5000)))
SLAVE = SlaveHello(
    *("group", "boot", "10.0.0.7:10911", 2, 4096, 8000, 7000),
    (Sample(5000, 3000, 17),),
    ((1, 0), (4, 5000)),
)

epochs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=5).map(
    lambda steps: tuple(
        (sum(each[0] for each in steps[: count + 1]), sum(each[1] for each in steps[:count]))
        for count in range(len(steps))
    )
)
texts = st.text(max_size=20)


@st.composite
def hellos(draw: st.DrawFn) -> MasterHello | SlaveHello:
    """
    Hellos of both kinds.
    """
    first, middle, end = sorted(draw(st.tuples(*[st.integers(0, 2**62)] * 3)))
    own, boot, listed = draw(texts), draw(texts), draw(epochs)
    if draw(st.booleans()):
        size = draw(st.integers(0, 2**31 - 1))
        return MasterHello(own, boot, draw(st.booleans()), size, first, end, listed)
    samples = (Sample(middle, min(end - middle, SAMPLE_LIMIT), draw(st.integers(0, 2**32 - 1))),)
    address, number = draw(texts), draw(st.integers(0, 99))
    return SlaveHello(own, boot, address, number, first, end, middle, samples, listed)


def signed(stream: bytes) -> bytes:
    """
    A hello with a right sum.
    """
    return stream[:-4] + zlib.crc32(stream[:-4]).to_bytes(4, "big")


class HelloTests(SynchronousTestCase):
    """
    Hellos of both sides.
    """

    @given(hellos(), st.binary(max_size=10), places)
    def test_anyCutsGiveSameHello(
        self, sent: MasterHello | SlaveHello, rest: bytes, places: list[int]
    ) -> None:
        """
        A hello is decoded as it was encoded, wherever the stream is cut, and what follows it
        is given back.
        """
        reader = HelloReader()
        pieces = cut(sent.encode() + rest, places)
        found = None
        while found is None:
            found = reader.feed(pieces.pop(0))
        self.assertEqual(found[0], sent)
        self.assertEqual(found[1] + b"".join(pieces), rest)
        self.assertEqual(reader.held, 0)

    @given(hellos(), st.data())
    def test_anyFlippedBitIsFound(
        self, hello: MasterHello | SlaveHello, data: st.DataObject
    ) -> None:
        """
        A hello of which one bit is another is refused, or waits for the bytes that a longer
        one would have.
        """
        stream = bytearray(hello.encode())
        bit = data.draw(st.integers(0, len(stream) * 8 - 1))
        stream[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(MalformedReplication):
            self.assertIsNone(HelloReader().feed(bytes(stream)))

    @given(st.binary(min_size=1, max_size=100))
    def test_anyOtherBytesAreRefused(self, stream: bytes) -> None:
        """
        What does not begin as a hello is refused with its first wrong byte: an offset of
        RocketMQ 4.9.7 is, for example.
        """
        if not b"TXHA".startswith(stream[:4]):
            self.assertRaises(MalformedReplication, HelloReader().feed, stream)
        self.assertRaises(MalformedReplication, HelloReader().feed, b"\0")
        self.assertRaises(MalformedReplication, HelloReader().feed, b"TXX")

    def test_layoutIsAsDrawn(self) -> None:
        """
        The bytes of both hellos, field by field.
        """
        master = bytes.fromhex(
            "54584841"  # TXHA
            "01"  # version
            "01"  # kind: a master
            "003c"  # size of the body
            "0005 67726f7570"  # group
            "0004 626f6f74"  # boot
            "01"  # counts flushed bytes
            "40000000"  # file size
            "0000000000001000"  # first
            "0000000000002328"  # end
            "0002"  # two epochs
            "00000001 0000000000000000"
            "00000004 0000000000001388"
        )
        self.assertEqual(MASTER.encode()[:-4], master)
        slave = bytes.fromhex(
            "54584841 01 02 0068"
            "0005 67726f7570"  # group
            "0004 626f6f74"  # boot
            "000e 31302e302e302e373a3130393131"  # 10.0.0.7:10911
            "0000000000000002"  # replicaId
            "0000000000001000"  # first
            "0000000000001f40"  # end
            "0000000000001b58"  # flushed
            "01"  # one sample
            "0000000000001388 00000bb8 00000011"
            "0002"  # two epochs
            "00000001 0000000000000000"
            "00000004 0000000000001388"
        )
        self.assertEqual(SLAVE.encode()[:-4], slave)

    def test_impossibleHelloIsRefused(self) -> None:
        """
        Logs that end before they begin, epochs that do not grow and samples that lie outside
        of the log, or are longer than a master reads for a stranger, are refused.
        """
        for hello in (
            MASTER._replace(first=9001),
            MASTER._replace(first=-1),
            MASTER._replace(epochs=((2, 0), (1, 5))),
            MASTER._replace(epochs=((1, 5), (2, 5))),
            MASTER._replace(epochs=((0, 5),)),
            SLAVE._replace(flushed=8001),
            SLAVE._replace(first=8001),
            SLAVE._replace(replicaId=-1),
            SLAVE._replace(samples=(Sample(0, 10, 0),)),
            SLAVE._replace(samples=(Sample(5000, 3001, 0),)),
            SLAVE._replace(end=1 << 30, samples=(Sample(5000, SAMPLE_LIMIT + 1, 0),)),
            SLAVE._replace(samples=(Sample(5000, 1, 0),) * 5),
        ):
            self.assertRaises(MalformedReplication, HelloReader().feed, hello.encode())

    def test_otherVersionOrKindIsRefused(self) -> None:
        """
        A hello of a later version, or of an unknown kind, is refused with its head.
        """
        stream = MASTER.encode()
        for place in (4, 5):
            other = stream[:place] + b"\x03" + stream[place + 1 : 8]
            self.assertRaises(MalformedReplication, HelloReader().feed, other)

    def test_bodyOfWrongLengthIsRefused(self) -> None:
        """
        A body that ends in a field, or has more than its fields, is refused although its sum
        is right.
        """
        stream = MASTER.encode()
        size = len(stream) - 12
        for other in (size - 1, size + 1):
            body = (stream[8:-4] + b"\0")[:other]
            changed = signed(stream[:6] + other.to_bytes(2, "big") + body + bytes(4))
            self.assertRaises(MalformedReplication, HelloReader().feed, changed)
        broken = signed(stream.replace(b"group", b"gr\xff\xfep"))
        self.assertRaises(MalformedReplication, HelloReader().feed, broken)

    def test_newestEpochsAreSent(self) -> None:
        """
        A hello has the newest epochs if there are more than fit, and is less than 64 KiB
        long.
        """
        many = tuple((number, number * 10) for number in range(1, EPOCH_LIMIT + 100))
        stream = SLAVE._replace(epochs=many).encode()
        self.assertLess(len(stream), 65536)
        found = HelloReader().feed(stream)
        assert found is not None
        self.assertEqual(found[0].epochs, many[-EPOCH_LIMIT:])

    def test_tooLongTextIsNotEncoded(self) -> None:
        """
        A text that would not fit is refused before it is sent.
        """
        self.assertRaises(InvalidMessage, MASTER._replace(groupId="x" * 1025).encode)
