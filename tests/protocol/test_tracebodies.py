# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.tracebodies}, with the records that RocketMQ's own client
wrote and read, in C{tests/fixtures/trace.json}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import MalformedTrace
from txrocket.protocol.tracebodies import (
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decodeTraces,
    encodeTrace,
    traceKeys,
)

TYPES: dict[str, type[Trace]] = {
    each.__name__: each for each in (Pub, SubBefore, SubAfter, EndTransaction)
}
JAVA: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "trace.json").read_text("utf-8")
)
RECALL = "Recall\x011\x01r\x01g\x01t\x01ID\x01true\x02"


def ours(record: dict[str, Any]) -> Trace:
    """
    Convert a record of the fixture to ours.
    """
    fields = dict(record)
    return msgspec.convert(fields, TYPES[fields.pop("type")])


def shown(trace: Trace) -> dict[str, Any]:
    """
    Convert our record to the form of the fixture.
    """
    # Java reads C{null} as a text of four letters.
    texts = {name for name, type_ in trace.__annotations__.items() if type_ == "str | None"}
    fields = {
        name: "null" if value is None and name in texts - {"clientHost"} else value
        for name, value in msgspec.structs.asdict(trace).items()
    }
    return {"type": type(trace).__name__, **fields}


def line(words: str) -> bytes:
    """
    A record with the words as its fields.
    """
    return words.replace(" ", "\x01").encode()


class EncodeTests(SynchronousTestCase):
    """
    L{encodeTrace} and L{traceKeys}.
    """

    def test_recordsAreJavas(self) -> None:
        """
        Records have the bytes of RocketMQ's client.
        """
        rows = [row for row in JAVA["encoded"] if row["channel"] == "LOCAL"]
        self.assertEqual(len(rows), 240)
        for row in rows:
            records = [ours(each) for each in row["records"]]
            self.assertEqual("".join(map(encodeTrace, records)), row["text"])

    def test_keysAreIdAndMessageKeys(self) -> None:
        """
        The keys of a record are the message's id and each of its keys, as in RocketMQ's
        client, without empty ones.
        """
        for row in JAVA["encoded"]:
            keys = {key for each in row["records"] for key in traceKeys(ours(each))}
            self.assertEqual(keys, set(row["keys"]) - {""})

    def test_separatorInTextIsRefused(self) -> None:
        """
        A text with a separator is refused.
        """
        for text in ("a\x01b", "a\x02b", "\x02"):
            with self.assertRaises(MalformedTrace):
                encodeTrace(SubBefore(1, "r", "g", "R", "ID", 0, text))

    def test_olderFormatIsKept(self) -> None:
        """
        A record that was read in an older format is written in that format.
        """
        for each in (
            line("SubAfter R ID 4 true k 4"),
            line("Pub 1 r g t ID tag k h 11 4 0 OFFSET true 192.0.2.8"),
        ):
            (trace,) = decodeTraces(each)
            self.assertEqual(encodeTrace(trace).encode(), each + b"\x02")


class DecodeTests(SynchronousTestCase):
    """
    L{decodeTraces}.
    """

    def lenient(self, record: str) -> bool:
        """
        Whether we decode a record that RocketMQ's client cannot: one without a name, one
        with empty keys at its end, or one with a message type of 5.x.
        """
        name, *rest = record.rstrip("\x01").split("\x01")
        return (
            not name
            or (name, len(rest)) in {("SubBefore", 6), ("SubAfter", 4)}
            or (name == "Pub" and rest[10] == "4")
            or (name == "EndTransaction" and rest[8] == "4")
        )

    def test_javaRecordsAreDecoded(self) -> None:
        """
        Records are decoded as by RocketMQ's client. Those that it fails to decode are
        malformed, except for a few that can be decoded.
        """
        failed = read = 0
        for text, said in JAVA["decoded"]:
            try:
                traces = list(map(shown, decodeTraces(text.encode())))
            except MalformedTrace:
                self.assertIsInstance(said, str, text)
                failed += 1
                continue
            if isinstance(said, str):
                records = text.strip("\x02").split("\x02")
                self.assertTrue(any(map(self.lenient, records)), text)
            else:
                self.assertEqual(traces, said, text)
                read += 1
        self.assertGreater(failed, 100)
        self.assertGreater(read, 400)

    def test_unterminatedRecordsAreDivided(self) -> None:
        """
        Records without an end are divided, whatever follows them.
        """
        rows = [row for row in JAVA["encoded"] if row["channel"] == "CLOUD"]
        self.assertEqual(len(rows), 10)
        for row in rows:
            expected = [
                {**each, "timeStamp": None, "groupName": ""}
                for each in map(shown, map(ours, row["records"]))
            ]
            text = row["text"]
            self.assertEqual(list(map(shown, decodeTraces(text.encode()))), expected)
            more = decodeTraces(f"{text}{RECALL}".encode())
            self.assertEqual(len(more), len(expected) + 1)
            self.assertIsInstance(more[-1], Recall)

    def test_recordsOf5xAreDecoded(self) -> None:
        """
        Records of 5.x are decoded: a recalled message, an orderly message, and the end of
        a record of a cloud client.
        """
        recall = Recall(1, "r", "g", "t", "ID", True)
        self.assertEqual(decodeTraces(RECALL.encode()), [recall])
        self.assertEqual(encodeTrace(recall), RECALL)
        self.assertEqual(traceKeys(recall), ["ID"])
        (pub,) = decodeTraces(line("Pub 1 r g t ID tag k h 11 4 4 OFFSET true"))
        assert isinstance(pub, Pub)
        self.assertIs(pub.msgType, MessageType.Order_Msg)
        self.assertEqual(
            decodeTraces(b"SubAfter\x01R\x01ID\x014\x01true\x01\x010\x01\x02" + RECALL.encode()),
            [SubAfter("R", "ID", 4, True, ""), recall],
        )

    def test_emptyKeysAtTheEndAreAccepted(self) -> None:
        """
        Keys at the end of a record may be empty.
        """
        (before,) = decodeTraces(line("SubBefore 1 r g R ID 0 "))
        self.assertEqual(before, SubBefore(1, "r", "g", "R", "ID", 0, ""))

    def test_bytesThatAreNotUtf8AreAccepted(self) -> None:
        """
        Bytes that are not UTF-8 are no error.
        """
        (before,) = decodeTraces(b"SubBefore\x011\x01r\x01g\x01R\x01ID\x010\x01\xff\x02")
        self.assertEqual(before.keys, "\ufffd")

    def test_errorNamesField(self) -> None:
        """
        An error names the field.
        """
        for each, expected in (
            (line("SubBefore x"), "SubBefore: field 1, 'x', is not a number of 64 bits"),
            (line("SubBefore 1"), "SubBefore: has only 1 fields"),
            (
                line("Pub 1 r g t ID tag k h 11 4 9"),
                "Pub: field 11, '9', is not a message type",
            ),
            (
                line("EndTransaction 1 r g t ID tag k h 2 TX GONE true"),
                "EndTransaction: field 11, 'GONE', is not a transaction state",
            ),
        ):
            error = self.assertRaises(MalformedTrace, decodeTraces, each)
            self.assertEqual(str(error), expected)

    @given(st.binary(max_size=200))
    def test_anyBytesRaiseOnlyMalformedTrace(self, noise: bytes) -> None:
        """
        Any bytes are records or raise MalformedTrace.
        """
        pieces = (b"", b"Pub\x01", b"SubAfter\x01R\x01ID\x011\x01true\x01k\x011\x01", noise)
        for start in pieces:
            try:
                traces = decodeTraces(start + noise)
            except MalformedTrace:
                continue
            self.assertIsInstance(traces, list)

    texts = st.none() | st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"))
    times = st.integers(-(2**63), 2**63 - 1)
    numbers = st.integers(-(2**31), 2**31 - 1)
    types = st.sampled_from(MessageType)
    flags = st.booleans()
    records = st.lists(
        st.one_of(
            st.builds(
                Pub,
                *(times, texts, texts, texts, texts, texts, texts, texts),
                *(numbers, numbers, types, texts, flags),
            ),
            st.builds(SubBefore, times, texts, texts, texts, texts, numbers, texts),
            st.builds(SubAfter, texts, texts, numbers, flags, texts, numbers, times, st.just("g")),
            st.builds(
                EndTransaction,
                *(times, texts, texts, texts, texts, texts, texts, texts, types, texts),
                *(st.sampled_from(["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]), flags),
            ),
        )
    )

    @given(records)
    def test_encodedRecordIsDecoded(self, traces: list[Trace]) -> None:
        """
        A record is decoded as it was encoded; C{null} is L{None}.
        """
        data = "".join(map(encodeTrace, traces)).encode()
        again = decodeTraces(data)
        self.assertEqual("".join(map(encodeTrace, again)).encode(), data)
        self.assertEqual(list(map(shown, again)), list(map(shown, traces)))
