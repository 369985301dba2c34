# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.bodies.registerbroker}.
"""

from __future__ import annotations

import contextlib
import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedBody
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies import registerbroker as registration
from txrocket.protocol.bodies.registerbroker import decodeRegisterBroker, encodeRegisterBroker


class RegisterBrokerTests(SynchronousTestCase):
    """
    Tests for L{encodeRegisterBroker} and L{decodeRegisterBroker}.
    """

    # RegisterBrokerBody.encode(true) of rocketmq-common 4.9.7.
    COMPRESSED = bytes.fromhex(
        "78da636060d0ac564ace2fcd2b492d52b2323632d7512ac9cc4d2d2e49cc2d50b23234b73431b7b434"
        "343437b630ae656060600462f192fc82cc6447050b0513053385604f3f771fd7f81047779054b492a1"
        "91b99e01101a5a192ae928651c5e6965a4140b00345818e9"
    )
    INFLATED = (
        b'\0\0\0\x29{"counter":327,"timestamp":1794799117383}'  # length, the version
        b"\0\0\0\x01"  # one topic
        b"\0\0\0\x17topicA 8 4 6 SINGLE_TAG"  # length, name, queues, perm, filter
        b'\0\0\0\x17["127.0.0.1:1","h\xc3\xa9:2"]'  # length, filter servers
    )
    BODY = RegisterBrokerBody(
        TopicConfigSerializeWrapper(
            {"topicA": TopicConfig("topicA", 8, 4, 6)}, DataVersion(1794799117383, 327)
        ),
        ("127.0.0.1:1", "hé:2"),
    )

    def refuse(self, inflated: bytes, reason: str) -> None:
        """
        Assert that the decompressed bytes are refused for this reason.
        """
        error = self.assertRaises(
            MalformedBody, decodeRegisterBroker, zlib.compress(inflated), True
        )
        self.assertIn(reason, str(error))

    def test_compressedBytesHaveJavasLayout(self) -> None:
        """
        Java's bytes are a zlib stream of this layout, and so are ours.
        """
        self.assertEqual(zlib.decompress(self.COMPRESSED), self.INFLATED)
        self.assertEqual(zlib.decompress(encodeRegisterBroker(self.BODY, True)), self.INFLATED)

    def test_javaBytesAreDecoded(self) -> None:
        """
        Java's bytes are decoded.
        """
        self.assertEqual(decodeRegisterBroker(self.COMPRESSED, True), self.BODY)

    def test_compressedFormLosesFlagAndOrder(self) -> None:
        """
        The compressed format does not contain the flag and the order of a topic.
        """
        topic = TopicConfig("t", topicSysFlag=1, order=True)
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({"t": topic}))
        decoded = decodeRegisterBroker(encodeRegisterBroker(body, True), True)
        self.assertEqual(
            decoded.topicConfigSerializeWrapper.topicConfigTable, {"t": TopicConfig("t")}
        )

    def test_plainFormLosesNothing(self) -> None:
        """
        Without compression it is JSON, which loses nothing.
        """
        topic = TopicConfig("t", topicSysFlag=1, order=True)
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({"t": topic}))
        encoded = encodeRegisterBroker(body, False)
        self.assertTrue(encoded.startswith(b'{"filterServerList":[]'))
        self.assertEqual(decodeRegisterBroker(encoded, False), body)

    @given(
        st.booleans(),
        st.builds(
            RegisterBrokerBody,
            st.builds(
                TopicConfigSerializeWrapper,
                st.dictionaries(
                    st.text("ab%_", min_size=1), st.builds(TopicConfig, st.just("t")), max_size=3
                ),
                st.builds(DataVersion, st.integers(0, 9), st.integers(0, 9)),
            ),
            st.lists(st.text("ab:1")).map(tuple),
        ),
    )
    def test_unwantedTopicsAreSkipped(self, compressed: bool, body: RegisterBrokerBody) -> None:
        """
        If the caller does not want the topics of a version, the result has all but the
        topics; otherwise it has all of them.
        """
        data = encodeRegisterBroker(body, compressed)
        asked: list[DataVersion] = []

        def wanted(version: DataVersion) -> bool:
            asked.append(version)
            return len(asked) == 2

        plain = decodeRegisterBroker(data, compressed)
        version = body.topicConfigSerializeWrapper.dataVersion
        self.assertEqual(
            decodeRegisterBroker(data, compressed, wanted),
            RegisterBrokerBody(TopicConfigSerializeWrapper({}, version), plain.filterServerList),
        )
        self.assertEqual(decodeRegisterBroker(data, compressed, wanted), plain)
        self.assertEqual(asked, [version, version])

    def test_wrongLayoutIsMalformed(self) -> None:
        """
        Bytes of another layout are MalformedBody.
        """
        self.refuse(b"", "truncated")
        self.refuse(self.INFLATED[:-1], "exceeds the remaining bytes")
        self.refuse(b"\xff\xff\xff\xff" + self.INFLATED, "exceeds the remaining bytes")
        self.refuse(b"\x7f\xff\xff\xff" + self.INFLATED, "exceeds the remaining bytes")
        self.refuse(
            self.INFLATED[:45] + b"\x7f\xff\xff\xff" + self.INFLATED[49:], "the limit is 100000"
        )
        self.refuse(self.INFLATED.replace(b"topicA 8", b"topicA x"), "readQueueNums")
        self.refuse(self.INFLATED.replace(b"SINGLE_TAG", b"DOUBLE_TAG"), "topicFilterType")
        self.refuse(self.INFLATED.replace(b"topicA 8", b"topicA88"), "does not have five words")
        self.refuse(self.INFLATED.replace(b"topicA 8", b"topic\xff 8"), "not UTF-8")
        self.refuse(self.INFLATED.replace(b'["127', b"[[127"), "tuple")
        self.refuse(self.INFLATED.replace(b'{"counter":327', b'{"counter":[]7'), "DataVersion")

    def test_truncatedStreamIsMalformed(self) -> None:
        """
        Bytes that are not a complete zlib stream are MalformedBody.
        """
        for data, reason in [
            (b"", "truncated"),
            (b"{}", "not a zlib stream"),
            (self.COMPRESSED[:-5], "truncated"),
            (self.COMPRESSED[:-1] + b"\0", "not a zlib stream"),
        ]:
            error = self.assertRaises(MalformedBody, decodeRegisterBroker, data, True)
            self.assertIn(reason, str(error))

    def test_decompressionBombIsMalformed(self) -> None:
        """
        A stream that expands beyond the limit is MalformedBody.
        """
        self.patch(registration, "_MAX_INFLATED", 1000)
        self.refuse(struct.pack(">i", 100_000) + bytes(100_000), "more than 1000 bytes")

    @given(st.binary(max_size=80))
    def test_anyBytesRaiseOnlyMalformedBody(self, data: bytes) -> None:
        """
        Any decompressed bytes are a body or MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            decodeRegisterBroker(zlib.compress(data), True)
