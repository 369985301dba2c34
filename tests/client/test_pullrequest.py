# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.sansio.pullrequest}.
"""

from __future__ import annotations

import zlib

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from txrocket.bulk import python
from txrocket.client.sansio import pullrequest as pullRequestModule
from txrocket.client.sansio.pullrequest import (
    COMMIT_FLAG,
    PullRequest,
    pullHeader,
    pullResult,
    readable,
    readAll,
    wantedTags,
)
from txrocket.client.sansio.results import PullResult, PullStatus
from txrocket.errors import (
    MalformedRecord,
    MissingField,
    NoPermission,
    SubscriptionParseFailed,
    UnsupportedCompression,
)
from txrocket.message import MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol import salvage as salvageModule
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import PullMessageResponseHeader
from txrocket.protocol.record import (
    decodeRecord,
    encodeHost,
    encodeProperties,
    encodeRecord,
    encodeTopic,
)

QUEUE = MessageQueue("T", "broker-a", 2)
HOST = encodeHost("192.0.2.1", 10911)


def record(offset: int, body: bytes = b"body", tag: str = "a", sysFlag: int = 0) -> bytes:
    """
    A record as the log holds it.
    """
    properties = encodeProperties({"TAGS": tag} if tag else {})
    return encodeRecord(
        *(encodeTopic("T"), body, properties, 2, 0, offset, offset * 100, sysFlag),
        *(1, HOST, 2, HOST),
    )


def answered(code: int, *records: bytes) -> RemotingCommand:
    """
    The answer to a pull.
    """
    return responseCommand(code, None, PullMessageResponseHeader(1, 9, 3, 20), b"".join(records))


def messages(*records: bytes) -> PullResult:
    """
    A pull that found messages.
    """
    decoded = tuple(decodeRecord(each, brokerName="broker-a") for each in records)
    return PullResult(PullStatus.FOUND, 9, 3, 20, decoded)


class AskTests(SynchronousTestCase):
    """
    The request of a pull.
    """

    def test_headerHasAllFields(self) -> None:
        """
        All fields are in the header, times in milliseconds.
        """
        header = pullHeader(
            "g", PullRequest(QUEUE, 7, 32, "a", version=5, commitOffset=6, wait=1.5)
        )
        self.assertEqual(
            header.toFields(),
            {
                "consumerGroup": "g",
                "topic": "T",
                "queueId": "2",
                "queueOffset": "7",
                "maxMsgNums": "32",
                # Commit, suspend, and the subscription is in the request.
                "sysFlag": "7",
                "commitOffset": "6",
                "suspendTimeoutMillis": "1500",
                "subVersion": "5",
                "subscription": "a",
                "expressionType": "TAG",
                "bname": "broker-a",
            },
        )

    def test_flagsFollowRequest(self) -> None:
        """
        Bit 0 of sysFlag has the broker keep an offset, 0 as well; bit 1 has it wait; bit 2
        tells that the expression is in the request.  Its type always is.
        """
        for pull, flag, expression in (
            (PullRequest(QUEUE, 0, 1, "a", brought=False), 0, None),
            (PullRequest(QUEUE, 0, 1, "a", brought=False, commitOffset=0), COMMIT_FLAG, None),
            (PullRequest(QUEUE, 0, 1, "a", brought=False, wait=15.0), 2, None),
            (PullRequest(QUEUE, 0, 1, "a"), 4, "a"),
        ):
            header = pullHeader("g", pull)
            self.assertEqual((header.sysFlag, header.subscription), (flag, expression))
        self.assertEqual(COMMIT_FLAG, 1)
        sql = PullRequest(QUEUE, 0, 1, "a > 1", expressionType="SQL92", brought=False)
        self.assertEqual(pullHeader("g", sql).expressionType, "SQL92")

    def test_tagsComeFromTagExpression(self) -> None:
        """
        Tags are those of a tag expression; everything, and SQL92, have none.
        """
        self.assertEqual(wantedTags("a || b"), {"a", "b"})
        self.assertEqual(wantedTags("*"), set())
        self.assertEqual(wantedTags("a > 5", "SQL92"), set())
        self.assertRaises(SubscriptionParseFailed, wantedTags, "||")


class AnswerTests(SynchronousTestCase):
    """
    The answer to a pull.
    """

    def test_foundMessagesHaveBrokerAndBounds(self) -> None:
        """
        Messages are as the broker keeps them, and know their broker and the bounds of the
        queue.
        """
        result, suggested = pullResult(
            answered(0, record(7), record(8)), QUEUE, 7, frozenset(), "a:1"
        )
        self.assertEqual(result[:4], (PullStatus.FOUND, 9, 3, 20))
        self.assertEqual(suggested, 1)
        self.assertEqual([each.queueOffset for each in result.messages], [7, 8])
        first = result.messages[0]
        self.assertEqual((first.brokerName, first.body, first.tags), ("broker-a", b"body", "a"))
        self.assertEqual(first.properties, {"TAGS": "a", "MIN_OFFSET": "3", "MAX_OFFSET": "20"})

    def test_tagsAreComparedByText(self) -> None:
        """
        Tags are compared, and not their hashes: AaAa and BBBB have the same one.
        """
        answer = answered(0, record(6, tag="AaAa"), record(7, tag=""), record(8, tag="BBBB"))
        result, _ = pullResult(answer, QUEUE, 6, wantedTags("BBBB"), "a:1")
        self.assertEqual([each.queueOffset for each in result.messages], [8])

    @given(
        st.lists(
            st.sampled_from(
                [b"TAGS\x01", b"a", b"b", b"\x01", b"\x02", b"X", b"\xc3\xa9", b"\xff", b"TAGS"]
            )
        )
    )
    @example([b"TAGS\x01", b"a", b"\x02", b"TAGS\x01", b"b"])
    @example([b"TAGS\x01", b"\xff"])
    @example([b"X", b"TAGS\x01", b"a"])
    def test_tagIsThatOfReader(self, parts: list[bytes]) -> None:
        """
        However odd its properties are, a message is wanted if the tag that its reader gets
        is.
        """
        host = (1, HOST, 2, HOST)
        properties = b"".join(parts)
        odd = encodeRecord(encodeTopic("T"), b"x", properties, 2, 0, 0, 0, 0, *host)
        [message] = messages(odd).messages
        for wanted in ({"a"}, {"b", "é"}, {"\ufffd", "ab"}, {"\ud800", "a\x01a"}):
            result, _ = pullResult(answered(0, odd), QUEUE, 0, frozenset(wanted), "a:1")
            self.assertEqual(bool(result.messages), message.tags in wanted)

    def test_codesWithoutMessagesAreStatuses(self) -> None:
        """
        Three codes mean that there is no message, and why.
        """
        for code, status in (
            (19, PullStatus.NO_NEW_MSG),
            (20, PullStatus.NO_MATCHED_MSG),
            (21, PullStatus.OFFSET_ILLEGAL),
        ):
            result, _ = pullResult(answered(code), QUEUE, 7, frozenset(), "a:1")
            self.assertEqual(result, (status, 9, 3, 20, (), ()))

    def test_otherCodeIsError(self) -> None:
        """
        Any other code is an error.
        """
        error = self.assertRaises(
            NoPermission, pullResult, responseCommand(16, "no"), QUEUE, 7, frozenset(), "a:1"
        )
        self.assertEqual(error.address, "a:1")

    def test_answerThatDoesNotLeadOnIsRefused(self) -> None:
        """
        An answer without offsets cannot be decoded.  One with messages that does not lead
        on is refused too: the same pull would be made for ever.
        """
        missing = responseCommand()
        self.assertRaises(MissingField, pullResult, missing, QUEUE, 7, frozenset(), "a:1")
        for code, offset in ((0, 9), (0, 10), (20, 9)):
            answer = answered(code, record(9))
            self.assertRaises(
                MalformedRecord, pullResult, answer, QUEUE, offset, frozenset(), "a:1"
            )
        for code in (19, 21):
            pullResult(answered(code), QUEUE, 9, frozenset(), "a:1")

    def pulled(self, *records: bytes) -> list[int]:
        """
        The queue offsets of the messages of a pull from 3 to 9; the faults are kept.
        """
        result, _ = pullResult(answered(0, *records), QUEUE, 3, frozenset(), "a:1")
        self.assertEqual((PullStatus.FOUND, 9), (result.pullStatus, result.nextBeginOffset))
        self.faults = result.faults
        return [each.queueOffset for each in result.messages]

    def test_tornRecordIsSkipped(self) -> None:
        """
        Bytes that are no record are skipped at any place, and told.
        """
        self.assertEqual([3, 4], self.pulled(record(3), record(4), record(5)[:-1]))
        for torn in (record(5)[:-20], record(5)[:40], b"x", bytes(100), b"no record at all" * 9):
            self.assertEqual([3, 4], self.pulled(record(3), record(4), torn))
            self.assertEqual(1, len(self.faults))
            self.assertEqual([4, 6], self.pulled(torn, record(4), torn, record(6)))
            self.assertEqual(2, len(self.faults))
            self.assertEqual([], self.pulled(torn))

    def test_zeroedSectorIsSkipped(self) -> None:
        """
        Zeros in any part of the answer cost the messages in it, and no other.
        """
        data = b"".join(record(each, b"b" * 50) for each in range(3, 9))
        size = len(data) // 6
        for start in range(0, len(data) - 60, 7):
            damaged = data[:start] + bytes(60) + data[start + 60 :]
            lost = range(3 + start // size, 3 + (start + 59) // size + 1)
            expected = [each for each in range(3, 9) if each not in lost]
            found = self.pulled(damaged)
            # Fields that nothing tells of may be zero, or were.
            self.assertEqual(expected, [each for each in found if each not in lost], start)

    def test_wrongCrcIsSkipped(self) -> None:
        """
        A body that does not match its CRC is skipped; one whose broker gives no CRC is not.
        """
        wrong = record(4).replace(b"body", b"bodY")
        self.assertEqual([3, 5], self.pulled(record(3), wrong, record(5)))
        self.assertIn("does not match its CRC", self.faults[0])
        without = wrong[:8] + bytes(4) + wrong[12:]
        self.assertEqual([3, 4, 5], self.pulled(record(3), without, record(5)))

    def test_wrongQueueOffsetIsSkipped(self) -> None:
        """
        A message is skipped if its offset is outside the pull or not behind the one before
        it, or if its queue is another.
        """
        for wrong in (1_048_627, 9, 2, -1, 3):
            self.assertEqual([3, 5], self.pulled(record(3), record(wrong), record(5)))
            self.assertIn(f"says that it is {wrong} in queue 2", self.faults[0])
        other = record(4)[:15] + b"\x07" + record(4)[16:]
        self.assertEqual([3, 5], self.pulled(record(3), other, record(5)))
        self.assertIn("says that it is 4 in queue 7", self.faults[0])

    def test_recordInBodyIsNotTaken(self) -> None:
        """
        A record in the body of a damaged one is not taken for a message.
        """
        outer = record(4, record(5, b"inner"))
        damaged = outer[:-1] + bytes([outer[-1] ^ 1])
        damaged = damaged.replace(b"inner", b"inneR")
        self.assertEqual([3, 6], self.pulled(record(3), damaged, record(6)))

    def test_pythonSkipsDamageAsWell(self) -> None:
        """
        All of that holds without the compiled module.
        """
        self.patch(pullRequestModule, "readableRecords", python.readableRecords)
        self.test_tornRecordIsSkipped()
        self.test_zeroedSectorIsSkipped()
        self.test_wrongCrcIsSkipped()
        self.test_wrongQueueOffsetIsSkipped()
        self.test_recordInBodyIsNotTaken()

    def test_searchIsBounded(self) -> None:
        """
        A body full of magic codes does not keep the consumer searching.
        """
        self.patch(salvageModule, "_TRIED", 10)
        codes = b"\xda\xa3\x20\xa7" * 20
        self.assertEqual([3], self.pulled(record(3), b"x" * 9 + codes, record(5)))


class ReadTests(SynchronousTestCase):
    """
    Compressed bodies.
    """

    def setUp(self) -> None:
        self.packed = record(8, zlib.compress(b"unpacked"), sysFlag=0x301)
        self.damaged = record(9, b"damaged", sysFlag=0x301)

    def first(self, data: bytes) -> MessageExt:
        """
        A message that was pulled.
        """
        return messages(data).messages[0]

    def test_pullLeavesBodiesCompressed(self) -> None:
        """
        The result of a pull has bodies as they were sent, so that a damaged one does not
        hold up the others.
        """
        answer = answered(0, record(7, b"damaged", sysFlag=0x301), self.packed)
        result, _ = pullResult(answer, QUEUE, 7, frozenset(), "a:1")
        self.assertEqual(result.messages[0].body, b"damaged")
        self.assertEqual(result.messages[1].body, zlib.compress(b"unpacked"))

    def test_compressedBodyIsDecompressed(self) -> None:
        """
        A compressed body is decompressed, and another is left as it is.
        """
        plain = self.first(record(7))
        self.assertIs(readable(plain), plain)
        self.assertEqual(readable(self.first(self.packed)).body, b"unpacked")

    def test_damagedBodyNamesMessage(self) -> None:
        """
        The error says which message it is.
        """
        for data, kind in (
            (self.damaged, MalformedRecord),
            (record(9, b"x", sysFlag=0x701), UnsupportedCompression),
        ):
            error = self.assertRaises(kind, readable, self.first(data))
            self.assertIn("message 9 in queue 2 of topic T at broker broker-a", str(error))

    def test_damagedMessageIsSkipped(self) -> None:
        """
        A damaged message is skipped, and told.  Messages before one whose library is
        missing are given, and the next pull begins with it.
        """
        good = readAll(messages(record(7), self.packed))
        self.assertEqual([each.body for each in good.messages], [b"body", b"unpacked"])
        self.assertEqual(good.nextBeginOffset, 9)
        some = readAll(messages(self.damaged, self.packed, self.damaged, record(10)))
        self.assertEqual([each.body for each in some.messages], [b"unpacked", b"body"])
        self.assertEqual((some.nextBeginOffset, some.pullStatus), (9, PullStatus.FOUND))
        self.assertEqual(2, len(some.faults))
        self.assertIn("message 9 in queue 2 of topic T", some.faults[0])
        missing = record(8, b"x", sysFlag=0x701)
        some = readAll(messages(record(7), missing, record(9)))
        self.assertEqual((1, 8), (len(some.messages), some.nextBeginOffset))
        self.assertRaises(UnsupportedCompression, readAll, messages(missing, record(10)))
