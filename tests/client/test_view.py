# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.trace.view}.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel

from tests.client.querycase import HOST, QueryCase, record
from txrocket.client.trace.view import (
    MessageTrace,
    TracedConsume,
    TracedEnd,
    TracedSend,
    TraceReader,
)
from txrocket.errors import TopicNotExist
from txrocket.protocol.compression import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE, deflate
from txrocket.protocol.tracebodies import (
    ConsumeReturnType,
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    encodeTrace,
    traceKeys,
)

TOPIC = "RMQ_SYS_TRACE_TOPIC"
NORMAL = MessageType.Normal_Msg

PUB = Pub(
    *(1_700_000_000_123, "r", "P", "Orders", "ID", "tag", "k1 k2", "192.0.2.7:10911", 11, 4),
    *(NORMAL, "OFFSET", True),
)
SENT = TracedSend(
    "P", HOST, 1_700_000_000.123, 0.004, True, "192.0.2.7:10911", 11, NORMAL, "OFFSET"
)


def before(when: int, call: str = "R1", group: str = "G", times: int = 0) -> SubBefore:
    """
    A listener is called.
    """
    return SubBefore(when, "r", group, call, "ID", times, "k1 k2")


def after(when: int | None, call: str = "R1", group: str = "G", **options: Any) -> SubAfter:
    """
    A listener is done.
    """
    code, success = options.get("code", 0), options.get("success", True)
    return SubAfter(call, "ID", 7, success, "k1 k2", code, when, group)


class TraceReaderTests(QueryCase):
    """
    A reader of the traces of two brokers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ns.routes[TOPIC] = self.ns.routes["T"]
        self.reader = TraceReader(self.cluster)
        self.stored = 0

    def message(
        self, *traces: Trace, text: str = "", topic: str = TOPIC, zipped: bool = False
    ) -> bytes:
        """
        A message with traces.
        """
        keys = " ".join(key for each in traces for key in traceKeys(each)) or "ID"
        body = (text or "".join(map(encodeTrace, traces))).encode()
        self.stored += 1
        if zipped:
            flags = COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
            return record(deflate(body), self.stored, keys, topic, sysFlag=flags)
        return record(body, self.stored, keys, topic)

    def byId(self, *traces: Trace, msgId: str = "ID") -> MessageTrace:
        """
        The trace of a message.
        """
        self.has("a", self.message(*traces))
        trace = self.got(self.reader.byId(msgId))
        assert isinstance(trace, MessageTrace)
        return trace

    # --- what it tells ---------------------------------------------------

    def test_sendIsShown(self) -> None:
        """
        The group, the address, the time and the duration of a send are shown.
        """
        trace = self.byId(PUB)
        self.assertEqual(trace, MessageTrace("ID", "Orders", "tag", ("k1", "k2"), (SENT,), {}, ()))

    def test_missingFieldsAreAbsent(self) -> None:
        """
        Fields that the sender did not write are absent.
        """
        bare = Pub(1, None, None, None, "ID", None, None, None, 1, 1, NORMAL, None, False)
        trace = self.byId(bare)
        self.assertEqual((trace.topic, trace.tags, trace.keys), (None, None, ()))
        self.assertEqual(
            trace.sent, (TracedSend("", HOST, 0.001, 0.001, False, "", 1, NORMAL, ""),)
        )

    def test_oldClientTellsItsHost(self) -> None:
        """
        An old client writes its own address.
        """
        old = Pub(1, "r", "P", "T", "ID", "", "", "h", 1, 1, NORMAL, "O", True, "192.0.2.8")
        self.assertEqual(self.byId(old).sent[0].host, "192.0.2.8")

    def test_callsAreShownByGroup(self) -> None:
        """
        Each call of a listener is shown, by group and in order; its traces from before and
        after belong together, however they were found.
        """
        trace = self.byId(
            after(4000, "R2", code=4, success=False),
            PUB,
            after(6000, "R3", times=1),
            before(5000, "R3", times=1),
            before(3000, "R2"),
            before(3500, "R4", "H"),
        )
        self.assertEqual(
            trace.consumed,
            {
                "G": (
                    TracedConsume("G", HOST, 3.0, 4.0, 0.007, False, ConsumeReturnType.FAILED, 0),
                    TracedConsume("G", HOST, 5.0, 6.0, 0.007, True, ConsumeReturnType.SUCCESS, 1),
                ),
                "H": (TracedConsume("H", HOST, 3.5, retryTimes=0),),
            },
        )

    def test_lostBeforeTraceShowsAfter(self) -> None:
        """
        If the trace from before a call is lost, the one from after it is shown; that of an
        old client has no time and no group.
        """
        trace = self.byId(after(4000))
        self.assertEqual(
            trace.consumed["G"],
            (TracedConsume("G", HOST, None, 4.0, 0.007, True, ConsumeReturnType.SUCCESS),),
        )
        trace = self.byId(after(None, group="", success=False), before(3000))
        (call,) = trace.consumed["G"]
        self.assertEqual(call, TracedConsume("G", HOST, 3.0, None, 0.007, False, None, 0))
        self.assertEqual(list(self.byId(after(None, group="")).consumed), [""])

    def test_unknownStatusIsAbsent(self) -> None:
        """
        An unknown status is absent, and a bare failure has no reason.
        """
        for code, success, expected in (
            (0, True, ConsumeReturnType.SUCCESS),
            (0, False, None),
            (1, True, ConsumeReturnType.TIME_OUT),
            (2, False, ConsumeReturnType.EXCEPTION),
            (3, False, ConsumeReturnType.RETURNNULL),
            (9, False, None),
        ):
            (call,) = self.byId(after(1, code=code, success=success)).consumed["G"]
            self.assertEqual((call.status, call.success), (expected, success))

    def test_endIsShown(self) -> None:
        """
        The state of a transaction is shown, and whether it was checked.
        """

        def end(when: int, state: str, *, checked: bool) -> EndTransaction:
            type_ = MessageType.Trans_msg_Commit
            return EndTransaction(
                *(when, "r", "P", "Orders", "ID", "tag", "k1", "h", type_, "TX", state, checked)
            )

        trace = self.byId(
            end(2000, "COMMIT_MESSAGE", checked=True), end(1000, "UNKNOW", checked=False)
        )
        self.assertEqual(
            trace.ended,
            (
                TracedEnd("P", HOST, 1.0, "UNKNOW", False),
                TracedEnd("P", HOST, 2.0, "COMMIT_MESSAGE", True),
            ),
        )
        self.assertEqual((trace.topic, trace.tags, trace.keys), ("Orders", "tag", ("k1",)))

    def test_recallIsSkipped(self) -> None:
        """
        A recall of 5.x is skipped.
        """
        self.assertEqual(self.byId(Recall(1, "r", "g", "T", "ID", True)), MessageTrace("ID"))

    # --- where it is found -----------------------------------------------

    def test_tracesOfAllBrokersAreJoined(self) -> None:
        """
        Traces of several brokers, also compressed ones, are joined; repeated ones count
        once, and those of other messages are left out.
        """
        other = SubBefore(9000, "r", "G", "R9", "OTHER", 0, None)
        self.has("a", self.message(PUB, other), self.message(after(6000), zipped=True))
        self.has("b", self.message(before(5000)), self.message(PUB, before(5000)))
        trace = self.got(self.reader.byId("ID"))
        assert trace is not None
        self.assertEqual(trace.sent, (SENT,))
        self.assertEqual(
            trace.consumed["G"],
            (TracedConsume("G", HOST, 5.0, 6.0, 0.007, True, ConsumeReturnType.SUCCESS, 0),),
        )
        self.assertEqual({header.topic for _, header in self.asked}, {TOPIC})

    def test_untracedMessageShowsNothing(self) -> None:
        """
        A message without traces shows nothing.
        """
        self.assertIsNone(self.got(self.reader.byId("ID")))
        self.assertEqual(self.got(self.reader.byKey("k")), [])

    def test_keyFindsMessages(self) -> None:
        """
        Messages are found by a key, each by itself, but not by a key that is another's id.
        """
        one = SubBefore(1000, "r", "G", "R1", "ID1", 0, "k a")
        two = SubBefore(2000, "r", "G", "R2", "ID2", 0, "k ID1")
        self.has("a", self.message(two), self.message(one))
        found = self.got(self.reader.byKey("k"))
        told = [(each.msgId, each.keys) for each in found]
        self.assertEqual(told, [("ID2", ("k", "ID1")), ("ID1", ("k", "a"))])
        self.assertEqual([each.msgId for each in self.got(self.reader.byKey("ID1"))], ["ID2"])
        found = self.got(self.reader.byId("ID1"))
        self.assertEqual((found.msgId, list(found.consumed)), ("ID1", ["G"]))

    def test_malformedTraceIsSkipped(self) -> None:
        """
        A message that cannot be decoded does not hide the others.
        """
        self.has("a", self.message(text="Pub\x01x\x02"), self.message(PUB))
        trace = self.got(self.reader.byId("ID"))
        assert trace is not None
        self.assertEqual(trace.sent, (SENT,))
        (warning,) = self.logged(LogLevel.warn)
        self.assertIn("is not a number of 64 bits", warning)

    def test_topicAndNumberAreOptions(self) -> None:
        """
        The topic and the number of requested messages are options.
        """
        self.failed(TraceReader(self.cluster, "Traces").byId("ID"), TopicNotExist)
        self.ns.routes["Traces"] = self.ns.routes["T"]
        self.has("a", self.message(PUB, topic="Traces"))
        reader = TraceReader(self.cluster, "Traces", most=3, timeout=1.0)
        trace = self.got(reader.byId("ID"))
        assert trace is not None
        self.assertEqual(trace.sent, (SENT,))
        self.assertEqual({header.maxNum for _, header in self.asked}, {3})
