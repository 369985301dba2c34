# SPDX-License-Identifier: Apache-2.0
"""
Both implementations of what is done to requests by the thousand: frames are split alike,
sends and pulls that both read are read alike, responses are encoded alike.

The compiled one may leave more to the rules, and never less: a header that no client writes
is decoded there.
"""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.sanitized.arguments import ARGUMENTS
from txrocket.bulk import DecodedSends, SentMessage, compiled, python
from txrocket.protocol.codes import SerializeType
from txrocket.protocol.command import (
    RemotingCommand,
    decodeCommand,
    requestCommand,
    responseCommand,
)
from txrocket.protocol.frames import frameEnd
from txrocket.protocol.headers import SendMessageResponseHeader
from txrocket.protocol.headertemplates import MARK, responsePieces

LIMIT = 1 << 20

headers = st.sampled_from(
    [
        *(b'{"code":310}', b'{"code":310,"flag":0}', b'{"code":0}', b'{"code":7}', b'{"code":-7}'),
        *(b'{"code":310', b'{"code":}', b'{"code":1234567}', b'{"code": 310}', b'{"flag":0}', b""),
        *(b'{"code":99999}', b'{"code":999999}', b'{"code":03,"a":0}', b"{}", b'{"code":31'),
    ]
)
frames = st.builds(
    lambda type, header, extra, body: (
        (4 + len(header) + len(body)).to_bytes(4)
        + (type << 24 | max(0, len(header) + extra)).to_bytes(4)
        + header
        + body
    ),
    st.sampled_from([0, 0, 0, 1, 2, 255]),
    headers | st.binary(max_size=24),
    st.sampled_from([0, 0, 0, 1, -1, 9]),
    st.binary(max_size=5),
)


class SplitTests(SynchronousTestCase):
    """
    C{splitFrames}.
    """

    if compiled is None:
        skip = "the compiled module was not built"

    @given(
        st.lists(frames, max_size=8), st.binary(max_size=9), st.integers(0, 60), st.integers(0, 60)
    )
    @example([], b"\xff\xff\xff\xff\xff\xff\xff\xff", 50, 50)
    @example([], b"\x00\x00\x00\x03\x00\x00\x00\x00", 50, 50)
    def test_bytesGiveSameRuns(
        self, given: list[bytes], rest: bytes, limit: int, headerLimit: int
    ) -> None:
        """
        Whatever comes, both give the same runs, and stop at the same place.
        """
        assert compiled is not None
        data = b"".join(given) + rest
        for limits in ((LIMIT, LIMIT), (limit, headerLimit)):
            self.assertEqual(compiled.splitFrames(data, *limits), python.splitFrames(data, *limits))

    def test_neighboursOfOneCodeAreOneRun(self) -> None:
        """
        Frames of one code that follow each other are one run; both forms of header count.
        """
        assert compiled is not None
        send, pull = (requestCommand(code) for code in (310, 11))
        binary = requestCommand(310)
        binary.serializeType = SerializeType.ROCKETMQ
        data = b"".join(each.encode() for each in (send, binary, send, pull, send))
        for bulk in (python, compiled):
            runs, end = bulk.splitFrames(data, LIMIT, LIMIT)
            self.assertEqual([run[0] for run in runs], [310, 11, 310])
            self.assertEqual(end, len(data))
            self.assertTrue(all(run[1] is data for run in runs))


class DecodeTests(SynchronousTestCase):
    """
    C{decodeSends} and C{decodePulls}.
    """

    if compiled is None:
        skip = "the compiled module was not built"

    @settings(max_examples=300)
    @given(st.integers(0, 2**64))
    def test_sendsGiveSameMessages(self, seed: int) -> None:
        """
        Messages that the compiled one reads, the other reads alike.
        """
        assert compiled is not None
        chance = random.Random(seed)
        calls, *rest = ARGUMENTS["decodeSends"](chance)
        for sent in (calls, [_damaged(each, chance) for each in calls]):
            for one, other in zip(
                compiled.decodeSends(sent, *rest), python.decodeSends(sent, *rest), strict=True
            ):
                self.assertIsInstance(one, DecodedSends)
                mine = _byOwner(one)
                wanted = _byOwner(other)
                for owner, messages in mine.items():
                    self.assertEqual(wanted[owner][: len(messages)], messages)

    @settings(max_examples=300)
    @given(st.integers(0, 2**64))
    def test_pullsGiveSame(self, seed: int) -> None:
        """
        Pulls that the compiled one reads, the other reads alike.
        """
        assert compiled is not None
        chance = random.Random(seed)
        data, start, end = ARGUMENTS["decodePulls"](chance)
        self.assertEqual(
            compiled.decodePulls(data, start, end), python.decodePulls(data, start, end)
        )
        _, _, damaged, start, end = _damaged((None, b"", data, start, end), chance)
        found = compiled.decodePulls(damaged, start, end)
        self.assertEqual(python.decodePulls(damaged, start, end)[: len(found)], found)


class ResponseTests(SynchronousTestCase):
    """
    C{encodeSendResponses}.
    """

    if compiled is None:
        skip = "the compiled module was not built"

    @given(st.integers(0, 2**64))
    def test_appendedGiveSameFrames(self, seed: int) -> None:
        """
        Both give the same bytes.
        """
        assert compiled is not None
        arguments = ARGUMENTS["encodeSendResponses"](random.Random(seed))
        self.assertEqual(
            compiled.encodeSendResponses(*arguments), python.encodeSendResponses(*arguments)
        )

    def test_framesAreResponses(self) -> None:
        """
        A frame tells where the message is; a oneway send has none.
        """
        assert compiled is not None
        messages = [SentMessage(each, ("T", 3), b"", b"", 0) for each in (7, None)]
        appended = [(("T", 3), 5, 100, 91), (("T", 3), 6, 191, 91)]
        head, tail = b'{"code":0,"extFields":{"msgId":"AB', b',"version":1}'
        for bulk in (python, compiled):
            made = bulk.encodeSendResponses(
                messages,
                appended,
                [(0, 1), (1, 1)],
                head,
                tail,
                False,
            )
            self.assertEqual(made[1], b"")
            response: RemotingCommand = decodeCommand(made[0], 4, len(made[0]))
            self.assertEqual((response.opaque, response.isResponse), (7, True))
            header = response.decodeHeader(SendMessageResponseHeader)
            self.assertEqual((header.queueId, header.queueOffset), (3, 5))
            self.assertEqual(header.msgId, "AB0000000000000064")


class HeadTests(SynchronousTestCase):
    """
    C{encodeHeads}.
    """

    if compiled is None:
        skip = "the compiled module was not built"

    @given(st.integers(0, 2**64))
    def test_valuesGiveSameHeads(self, seed: int) -> None:
        """
        Both give the same bytes.
        """
        assert compiled is not None
        arguments = ARGUMENTS["encodeHeads"](random.Random(seed))
        self.assertEqual(compiled.encodeHeads(*arguments), python.encodeHeads(*arguments))

    @given(
        st.dictionaries(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1), max_size=5),
        st.none() | st.text(max_size=20),
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=9),
    )
    def test_valuesGiveHeadOfResponse(
        self, fields: dict[str, int], remark: str | None, opaque: int, body: bytes
    ) -> None:
        """
        A head has the bytes that a response with the same fields encodes.
        """
        assert compiled is not None
        pieces = responsePieces(dict.fromkeys(fields, MARK), remark)
        response = responseCommand(remark=remark, body=body)
        response.fields = {name: str(value) for name, value in fields.items()}
        response.opaque = opaque
        row = (*fields.values(), opaque, len(body))
        for bulk in (python, compiled):
            self.assertEqual(bulk.encodeHeads(pieces, [row]), [response.encodeHead()])

    def test_headerTooLongRefused(self) -> None:
        """
        A header that is longer than 24 bits can tell is a ValueError.
        """
        assert compiled is not None
        for bulk in (python, compiled):
            text = "x" * (2**24 - 3)
            self.assertEqual(len(bulk.encodeHeads((b"[", b"]"), [(text, 0)])[0]), 2**24 + 7)
            row = (text + "x", 0)
            self.assertRaises(ValueError, bulk.encodeHeads, (b"[", b"]"), [row])


def _byOwner(sends: DecodedSends) -> dict[int, list[tuple[object, ...]]]:
    messages, hosts, owners = sends
    found: dict[int, list[tuple[object, ...]]] = {}
    place = 0
    for index, count in owners:
        pairs = zip(messages[place : place + count], hosts[place : place + count], strict=True)
        found[index] = [(*tuple(each)[:9], host) for each, host in pairs]
        place += count
    return found


def _damaged(
    call: tuple[object, bytes, bytes, int, int], chance: random.Random
) -> tuple[object, bytes, bytes, int, int]:
    """
    A call whose frames have damaged headers and bodies, and true lengths.
    """
    peer, host, data, start, end = call
    pieces = []
    while start < end:
        stop = frameEnd(data, start)
        content = bytearray(data[start + 8 : stop])
        if content and chance.random() < 0.7:
            content[chance.randrange(len(content))] = chance.randrange(256)
        pieces.append(data[start : start + 8] + content)
        start = stop
    whole = b"".join(pieces)
    return peer, host, whole, 0, len(whole)
