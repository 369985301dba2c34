# SPDX-License-Identifier: Apache-2.0
"""
Tests for sends that are served together: the outcome is the same as if each were served
alone.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address

from tests.processors.sentmessages import ID, Message, batches, messages, plain, requestOf
from tests.processors.support import BrokerTests, Client, pullHeader, sendHeader
from tests.store.support import Held, filesOf
from txrocket.broker.settings import SendSettings
from txrocket.message import Message as Item
from txrocket.model import TopicConfig
from txrocket.processors.messages.send import checkedtopics as soundModule
from txrocket.processors.messages.send import sendtogether
from txrocket.processors.messages.send.checkedtopics import CheckedTopics
from txrocket.protocol.codes import RequestCode, ResponseCode, SerializeType
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.settings import FlushDiskType


class ManyCase(BrokerTests):
    """
    The base: a broker, and messages that need no rule.
    """

    def ordinary(self, count: int = 1, **changes: Any) -> list[RemotingCommand]:
        """
        Ordinary messages.
        """
        properties = f"UNIQ_KEY\x01{ID % 1}\x02WAIT\x01true\x02TAGS\x01a\x02"
        header = sendHeader(**{"properties": properties, **changes})
        return [self.message(header, b"%d" % number) for number in range(count)]

    def answered(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """
        The answers to requests that come together.
        """
        self.client.write(*requests)
        self.turns()
        return self.client.answers()

    def begin(self, sync: bool, together: bool) -> Callable[[Message], RemotingCommand]:
        """
        Start anew, with two topics.

        @return: what makes the request that sends a message.
        """
        self.together = together
        flush = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
        self.storeOptions = {"flushDiskType": flush}
        self.setUp()
        for name in ("T", "U"):
            self.topic(name)
        return partial(requestOf, self.client)

    def known(self) -> None:
        """
        Have a topic, whose messages are known to be in order.
        """
        self.topic("T")
        [answer] = self.answered(*self.ordinary())
        self.assertEqual((answer.code, self.taken), (0, 0))


class ManyTests(ManyCase):
    """
    Messages that come together.
    """

    def test_taken(self) -> None:
        """
        All messages after the first are served together.  Each is in the store, and its
        producer gets its place, in the order in which the messages came.
        """
        self.known()
        requests = self.ordinary(5)
        answers = self.answered(*requests)
        self.assertEqual(self.taken, 1)
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        offsets = [each.extFields["queueOffset"] for each in answers]
        self.assertEqual(offsets, ["1", "2", "3", "4", "5"])
        stored = self.stored()[1:]
        self.assertEqual([each.body for each in stored], [b"0", b"1", b"2", b"3", b"4"])
        self.assertEqual(
            [each.offsetMsgId for each in stored], [each.extFields["msgId"] for each in answers]
        )

    def test_mixed(self) -> None:
        """
        Requests of all kinds are answered in the order in which they came.
        """
        self.known()
        pull = self.client.request(RequestCode.PULL_MESSAGE, pullHeader())
        first, last = self.ordinary(2), self.ordinary(2)
        answers = self.answered(*first, pull, *last)
        self.assertEqual(
            [each.opaque for each in answers],
            [each.opaque for each in (*first, pull, *last)],
        )
        self.assertEqual({each.code for each in answers}, {0})

    def test_batches(self) -> None:
        """
        Batches are served together as well, and each is answered with the ids of all its
        messages.  A damaged batch is refused, and the next one is served.
        """
        self.known()
        body = encodeBatch([Item("T", b"a"), Item("T", b"b")])
        requests = [
            self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), each)
            for each in (body, body, body[:-1], body)
        ]
        answers = self.answered(*requests)
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        self.assertEqual([each.code for each in answers], [0, 0, ResponseCode.MESSAGE_ILLEGAL, 0])
        ids = [each.offsetMsgId for each in self.stored()[1:]]
        told = [each.extFields["msgId"] for each in answers if not each.code]
        self.assertEqual(",".join(told), ",".join(ids))
        self.assertEqual((self.taken, len(ids)), (2, 6))

    def test_largeBatchIsServedByTheRules(self) -> None:
        """
        A batch whose ids may be too long for a header is served alone, and those behind it
        are served together again.
        """
        self.known()
        self.patch(sendtogether, "_LARGE_BATCH", 100)
        small, large = (encodeBatch([Item("T", bytes(each))]) for each in (1, 101))
        answers = self.answered(
            *(
                self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), each)
                for each in (small, large, small)
            )
        )
        self.assertEqual([each.extFields["queueOffset"] for each in answers], ["1", "2", "3"])
        self.assertEqual((self.taken, len(self.stored())), (2, 4))

    def test_oneway(self) -> None:
        """
        Who wants no answer gets none, and the message is there.
        """
        self.known()
        requests = self.ordinary(3)
        for each in requests:
            each.flag = 2
        self.assertEqual(self.answered(*requests), [])
        self.assertEqual((self.taken, len(self.stored())), (1, 4))

    def test_torn(self) -> None:
        """
        However the network cuts the requests, all of them are served.
        """
        self.known()
        data = b"".join(each.encode() for each in self.ordinary(4))
        for size in (1, 7, 100, 399, len(data) - 1):
            for start in range(0, len(data), size):
                self.client.peer.dataReceived(data[start : start + size])
            self.clock.advance(0)
            self.assertEqual([each.code for each in self.client.answers()], [0] * 4)

    def test_otherwise(self) -> None:
        """
        It is left alone while hooks look at requests.
        """
        self.known()
        self.remoting.hooks.append(Watch())  # type: ignore[arg-type]
        self.assertEqual([each.code for each in self.answered(*self.ordinary(2))], [0, 0])
        self.remoting.hooks.clear()
        self.assertEqual(self.taken, 0)
        self.answered(*self.ordinary(2))
        self.assertEqual(self.taken, 1)

    def test_changed(self) -> None:
        """
        A topic that has changed is looked at again, and so are all when settings are
        others.
        """
        self.known()
        self.topic("T", 2)
        codes = [each.code for each in self.answered(*self.ordinary(1, queueId=3))]
        self.assertEqual(codes, [ResponseCode.SYSTEM_ERROR])
        self.sendSettings.now = SendSettings(startAcceptSendRequestTimeStamp=1 << 60)
        codes = [each.code for each in self.answered(*self.ordinary(2))]
        self.assertEqual(codes, [ResponseCode.SYSTEM_ERROR] * 2)
        self.assertEqual(self.taken, 0)

    def test_removed(self) -> None:
        """
        A topic that is gone is no longer known.
        """
        self.known()
        self.topics.remove("T")
        self.clock.advance(0)
        self.send._checked.refresh()
        self.assertEqual((self.send._checked.queues, self.send._checked.fields), ({}, {}))

    def test_full(self) -> None:
        """
        If the disk does not take the messages, each sender is told so.
        """
        self.known()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        requests = self.ordinary(3)
        answers = self.answered(*requests)
        self.assertEqual(self.taken, 1)
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        for answer in answers:
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.stats.failures, 3)
        self.disk.failing.clear()
        [answer] = self.answered(*self.ordinary())
        self.assertEqual((answer.code, answer.extFields["queueOffset"]), (0, "1"))

    def test_batchesFull(self) -> None:
        """
        If the disk does not take batches, the sender of each is told so, also where one
        of them needs a new file, for which those before it have to be written.
        """
        self.known()
        body = encodeBatch([Item("T", b"x" * 900)])
        requests = [
            self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), body)
            for _ in range(20)
        ]
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        answers = self.answered(*requests)
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        self.assertEqual({each.code for each in answers}, {ResponseCode.SERVICE_NOT_AVAILABLE})
        self.disk.failing.clear()
        self.assertEqual([each.code for each in self.answered(*requests)], [0] * 20)
        self.assertEqual(len(self.stored()), 21)

    def test_refused(self) -> None:
        """
        A store that takes nothing says so to each.
        """
        self.known()
        self.disk.failing["sync"] = OSError(errno.EIO, "broken")
        self.flushFails()
        answers = self.answered(*self.ordinary(2))
        self.assertEqual([each.code for each in answers], [ResponseCode.SERVICE_NOT_AVAILABLE] * 2)
        self.assertEqual(self.taken, 0)

    def flushFails(self) -> None:
        """
        Have the store fail for good.
        """
        self.store.flushed().addErrback(lambda failure: None)
        self.clock.advance(0)
        self.assertIsNotNone(self.store.failure)


class BrokenTests(ManyCase):
    """
    Something raises what nobody expects while messages are served together.
    """

    def codes(self, *requests: RemotingCommand) -> list[int]:
        """
        The codes of the answers to requests that come together, each of which gets one.
        """
        answers = self.answered(*requests)
        self.assertEqual(
            sorted(each.opaque for each in answers), sorted(each.opaque for each in requests)
        )
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        return [each.code for each in answers]

    def batch(self) -> RemotingCommand:
        """
        A batch of two messages.
        """
        body = encodeBatch([Item("T", b"a"), Item("T", b"b")])
        return self.client.request(RequestCode.SEND_BATCH_MESSAGE, sendHeader(), body)

    def test_countingFailsMessagesAreStoredOnce(self) -> None:
        """
        If the broker fails after messages are appended, each is stored once, and its producer
        learns where.
        """
        self.known()
        self.patch(self.stats, "put", broken)
        self.assertEqual(self.codes(*self.ordinary(3)), [0, 0, 0])
        self.assertEqual([each.body for each in self.stored()[1:]], [b"0", b"1", b"2"])

    def test_countingFailsBatchesAreStoredOnce(self) -> None:
        """
        If the broker fails after a batch is appended, the batch is stored once and answered;
        a batch behind it is refused and not stored.
        """
        self.known()
        self.patch(self.stats, "put", broken)
        codes = self.codes(self.batch(), self.batch())
        self.assertEqual(codes, [0, ResponseCode.SYSTEM_ERROR])
        self.assertEqual([each.body for each in self.stored()[1:]], [b"a", b"b"])

    def test_appendFailsMessagesAreStoredAtMostOnce(self) -> None:
        """
        If the store fails in a way that tells nothing of the messages, their producers get an
        error, and no message is appended again.
        """
        self.known()
        append = self.store.appender.append

        def appendAndBreak(*arguments: Any) -> Any:
            append(*arguments)
            raise ZeroDivisionError

        self.patch(self.store.appender, "append", appendAndBreak)
        codes = self.codes(*self.ordinary(2))
        self.assertEqual(codes, [ResponseCode.SYSTEM_ERROR] * 2)
        self.assertEqual([each.body for each in self.stored()[1:]], [b"0", b"1"])


def broken(*arguments: object) -> None:
    """
    Raise what nobody expects.
    """
    raise ZeroDivisionError


class WaitingTests(ManyCase):
    """
    Messages that wait for the disk.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def setUp(self) -> None:
        self.held = Held()
        self.inThread = self.held
        super().setUp()

    def work(self) -> None:
        """
        Let threads do all that they were asked for.
        """
        while self.held.jobs:
            self.held.work()

    def answered(self, *requests: RemotingCommand) -> list[RemotingCommand]:
        """
        The answers to requests that come together.
        """
        self.client.write(*requests)
        self.clock.advance(0)
        self.work()
        self.clock.advance(0)
        return self.client.answers()

    def test_waits(self) -> None:
        """
        There is no answer before the disk has all.
        """
        self.known()
        self.client.write(*self.ordinary(3))
        self.clock.advance(0)
        self.assertEqual((self.taken, self.client.answers()), (1, []))
        self.work()
        self.clock.advance(0)
        self.assertEqual([each.code for each in self.client.answers()], [0, 0, 0])

    def test_late(self) -> None:
        """
        A disk that takes too long is told of, with the place of each message.
        """
        self.known()
        self.client.write(*self.ordinary(2))
        self.clock.advance(0)
        self.clock.advance(5)
        answers = self.client.answers()
        self.assertEqual(
            [(each.code, each.extFields["queueOffset"]) for each in answers],
            [(ResponseCode.FLUSH_DISK_TIMEOUT, "1"), (ResponseCode.FLUSH_DISK_TIMEOUT, "2")],
        )

    def test_busy(self) -> None:
        """
        While too much waits, further messages go the way on which they are refused.
        """
        self.known()
        self.sendSettings.now = SendSettings(sendThreadPoolQueueCapacity=3)
        self.answered(*self.ordinary())
        self.client.write(*self.ordinary(4))
        self.clock.advance(0)
        self.assertEqual(self.taken, 1)
        self.client.write(*self.ordinary(4))
        self.clock.advance(0)
        self.assertEqual(self.taken, 1)
        self.assertIn(ResponseCode.SYSTEM_BUSY, [each.code for each in self.client.answers()])
        self.work()
        self.clock.advance(0)

    def test_lost(self) -> None:
        """
        Who is gone is not answered.
        """
        self.known()
        self.client.write(*self.ordinary(2))
        self.clock.advance(0)
        self.client.lose()
        self.work()
        self.clock.advance(0)
        self.assertEqual(len(self.stored()), 3)


class Watch:
    """
    A hook that only looks.
    """

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        pass

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        pass


class SameTests(ManyCase):
    """
    Whatever comes, in whatever pieces.
    """

    def outcome(
        self, given: list[Message], cuts: list[int], sync: bool, together: bool
    ) -> tuple[Any, ...]:
        """
        What becomes of messages.
        """
        requestOf = self.begin(sync, together)
        data = b"".join(requestOf(each).encode() for each in given)
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for start, stop in pairwise(places):
            self.client.peer.dataReceived(data[start:stop])
            if stop % 3:
                self.clock.advance(0)
        self.clock.advance(0)
        answers = [
            (each.opaque, each.code, each.remark, each.extFields, each.serializeType)
            for each in self.client.answers()
        ]
        if sync:
            # Answers that need not wait for the disk overtake the others.
            answers.sort(key=itemgetter(0))
        sums: Counter[str] = Counter()
        rest: list[int]
        for topic, count, size, *rest in self.stats.puts:
            sums[f"{topic} count"] += count
            sums[f"{topic} size"] += size
            sums[f"{topic} times"] += rest[0] if rest else 1
        self.store.stop()
        return answers, sums, self.stats.failures, filesOf(self.root)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(messages | plain | batches, max_size=30),
        st.lists(st.integers(0, 20_000), max_size=8),
        st.booleans(),
    )
    @example([Message(properties="TAGS\x01a")] * 8, [2000], False)
    @example([Message(properties="TAGS\x01a")] * 8, [2000], True)
    def test_sameAsEvery(self, given: list[Message], cuts: list[int], sync: bool) -> None:
        """
        The answers are the same, and so are all files.
        """
        plain = self.outcome(given, cuts, sync, together=False)
        self.assertEqual(self.outcome(given, cuts, sync, together=True), plain)


#: Headers that are nearly ordinary.
FIELDS = dict(
    zip(
        "abcdefghijkm",
        [
            "P",
            "T",
            "TBW102",
            "4",
            "0",
            "0",
            "1600000000000",
            "0",
            "TAGS\x01a\x02",
            "0",
            "false",
            "false",
        ],
        strict=True,
    )
)
VALUES = st.sampled_from(
    [
        *("", "0", "-0", "00", "1", "-1", "+1", " 1", "2147483647", "2147483648", "-2147483648"),
        *("9223372036854775807", "9223372036854775808", "true", "false", "True", "x", "é", "\0"),
        *(
            "a\x01b\x02",
            "WAIT\x01true",
            "WAIT\x01false\x02",
            "CLUSTER\x01c",
            "a\x02\x02b",
            "\ud800",
        ),
        *('"', "\\", "/", "\n", "\x7f", "🚀", "n" * 33_000),
    ]
)


class HeaderTests(ManyCase):
    """
    Headers that are not as clients write them.
    """

    def frame(self, header: bytes, kind: int, body: bytes = b"x") -> bytes:
        """
        A frame with a header of a kind.
        """
        return (
            (4 + len(header) + len(body)).to_bytes(4, "big")
            + (kind << 24 | len(header)).to_bytes(4, "big")
            + header
            + body
        )

    def outcome(self, header: bytes, together: bool, kind: int) -> tuple[Any, ...]:
        """
        What becomes of a header that comes after a good one.
        """
        self.together = together
        self.setUp()
        self.known()
        self.client.peer.dataReceived(self.frame(header, kind))
        self.clock.advance(0)
        answers = [
            (each.opaque, each.code, each.remark, each.extFields, each.serializeType)
            for each in self.client.answers()
        ]
        self.store.stop()
        return answers, self.client.wire.disconnecting, filesOf(self.root)

    def check(self, header: bytes, kind: int = SerializeType.JSON) -> None:
        """
        The same becomes of it on either way.
        """
        self.assertEqual(
            self.outcome(header, True, kind), self.outcome(header, False, kind), header
        )

    @settings(max_examples=60, deadline=None)
    @given(
        st.dictionaries(st.sampled_from("abcdefghijklmnop"), VALUES | st.none(), max_size=3),
        st.sampled_from(SerializeType),
    )
    @example({"a": ""}, SerializeType.ROCKETMQ)
    def test_fields(self, changes: dict[str, str | None], kind: SerializeType) -> None:
        """
        Fields of any value, that are missing, or that nobody knows.
        """
        request = requestCommand(RequestCode.SEND_MESSAGE_V2)
        request.fields = {
            name: value for name, value in (FIELDS | changes).items() if value is not None
        }
        if any("\ud800" in each for each in request.fields.values()):
            return
        request.opaque = 77
        request.serializeType = kind
        self.check(request.encode()[8:], kind)

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_damaged(self, data: st.DataObject) -> None:
        """
        Headers of which a byte is another, is missing, or is there twice.
        """
        request = requestCommand(RequestCode.SEND_MESSAGE_V2)
        request.fields = dict(FIELDS)
        request.opaque = 77
        request.serializeType = kind = data.draw(st.sampled_from(SerializeType))
        header = bytearray(request.encode()[8:])
        place = data.draw(st.integers(0, len(header) - 1))
        how = data.draw(st.sampled_from(["change", "drop", "double", "cut"]))
        if how == "change":
            header[place] = data.draw(st.integers(0, 255))
        elif how == "drop":
            del header[place]
        elif how == "double":
            header.insert(place, header[place])
        else:
            del header[place:]
        self.check(bytes(header), kind)

    def test_written(self) -> None:
        """
        Blanks, other orders, escapes, members that are there twice or that nobody
        knows.
        """
        fields = b'{"a":"P","b":"T","c":"C","d":"4","e":"1","f":"0","g":"5","h":"-7"%s}'
        for header in (
            b'{"code":310,"extFields":' + fields % b"" + b',"flag":0,"opaque":5}',
            b'{"code":310,"opaque":5,"extFields":' + fields % b',"i":"k\\u0001v\\u0002"' + b"}",
            b'{"code":310,"extFields":'
            + fields % b',"i":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041"'
            + b"}",
            b'{"code":310,"extFields":' + fields % b',"i":"k\\u0001\\u00e9"' + b"}",
            b'{"code":310,"extFields":' + fields % b',"i":"k\\u0001\xc3\xa9"' + b"}",
            b'{"code":310,"extFields":' + fields % b',"i":"k\\u0001\xc3"' + b"}",
            b'{"code":310,"extFields":' + fields % b',"e":"2"' + b"}",
            b'{"code":310,"extFields":' + fields % b',"i":null' + b"}",
            b'{"code":310,"extFields":' + fields % b',"k":true' + b"}",
            b'{"code":310, "extFields":' + fields % b"" + b"}",
            b'{"code":310,"extFields":' + fields % b"" + b',"code":10}',
            b'{"code":310,"extFields":' + fields % b"" + b',"remark":"r"}',
            b'{"code":310,"extFields":' + fields % b"" + b',"language":"GO","version":1}',
            b'{"code":310,"extFields":{}}',
            b'{"code":310,"extFields":null}',
            b'{"code":310}',
            b'{"code":310,"flag":1,"extFields":' + fields % b"" + b"}",
            b'{"code":310,"flag":3,"extFields":' + fields % b"" + b"}",
            b'{"code":310,',
            b"{",
            b"",
        ):
            self.check(header)

    def test_binary(self) -> None:
        """
        A request with a binary header gets a binary answer, and requests of one form are
        served together.
        """
        self.known()
        requests = self.ordinary(6)
        for each in requests[2:4]:
            each.serializeType = SerializeType.ROCKETMQ
        answers = self.answered(*requests[:2])
        answers += self.answered(*requests[2:4])
        answers += self.answered(*requests[4:])
        self.assertEqual([each.code for each in answers], [0] * 6)
        self.assertEqual([each.serializeType for each in answers], [0, 0, 1, 1, 0, 0])
        self.assertEqual(self.taken, 3)
        answers = self.answered(*requests)
        self.assertEqual([each.serializeType for each in answers], [0, 0, 1, 1, 0, 0])


class SoundTests(BrokerTests):
    """
    L{CheckedTopics}.
    """

    def test_bounded(self) -> None:
        """
        So many are known, and the next begin anew.
        """
        self.patch(soundModule, "_KNOWN", 3)
        sound = CheckedTopics(self.sendChecks)
        for number in range(10):
            sound.add(TopicConfig(f"T{number}", 2, 2))
            for table in (sound.configs, sound.queues, sound.fields):
                self.assertLessEqual(len(table), 3)
        self.assertEqual(sound.queues[b"T9"], (("T9", 0), ("T9", 1)))


CLIENTS = 3


class SeveralCase(ManyCase):
    """
    The base: several clients of a broker, whose turns end when a test says so.
    """

    def setUp(self) -> None:
        super().setUp()
        self.remoting.turn.driven = True
        addresses: list[Any] = [
            IPv4Address("TCP", "192.0.2.8", 50002),
            IPv6Address("TCP", "2001:db8::9", 50003),
        ]
        self.clients = [self.client, *(Client(self.remoting, each) for each in addresses)]

    def knowAll(self) -> None:
        """
        Have a topic, and clients that have sent to it before.
        """
        self.known()
        for client in self.clients:
            client.write(*self.ordinary())
            self.turns()
            self.assertEqual([each.code for each in client.answers()], [0])

    def sendOneEach(self) -> None:
        """
        Have each client send a message in the same turn.
        """
        for client in self.clients:
            client.write(*self.ordinary())
        self.turns()


class SeveralTests(SeveralCase):
    """
    Clients that send in the same turn.
    """

    def test_together(self) -> None:
        """
        Requests of several producers are served together, and each producer gets the
        places of its own messages.
        """
        self.knowAll()
        before = len(self.stored())
        for number, client in enumerate(self.clients):
            client.write(*self.ordinary(1, queueId=number))
        self.assertEqual([each.answers() for each in self.clients], [[]] * CLIENTS)
        self.turns()
        for number, client in enumerate(self.clients):
            [answer] = client.answers()
            [stored] = self.stored(queueId=number)[before if number == 0 else 0 :]
            self.assertEqual(answer.extFields["queueId"], f"{number}")
            self.assertEqual(answer.extFields["msgId"], stored.offsetMsgId)
            self.assertEqual(stored.bornHostData, client.peer.host)

    def test_alone(self) -> None:
        """
        A producer that is alone in a turn is served as ever.
        """
        self.knowAll()
        self.assertEqual([each.code for each in self.answered(*self.ordinary(2))], [0, 0])

    def test_more(self) -> None:
        """
        A client's pull between two messages of one turn is served between them.
        """
        self.knowAll()
        client, other, _ = self.clients
        pull = client.request(RequestCode.PULL_MESSAGE, pullHeader())
        requests = [*self.ordinary(1), pull, *self.ordinary(1)]
        client.write(*requests[:2])
        other.write(*self.ordinary(1))
        client.write(*requests[2:])
        self.turns()
        answers = client.answers()
        self.assertEqual([each.opaque for each in answers], [each.opaque for each in requests])
        self.assertEqual([each.code for each in (*answers, *other.answers())], [0] * 4)

    def test_cut(self) -> None:
        """
        A frame that is not whole waits for the rest of it.
        """
        self.knowAll()
        client, other, _ = self.clients
        data = b"".join(each.encode() for each in self.ordinary(2))
        client.peer.dataReceived(data[:-5])
        other.write(*self.ordinary(1))
        self.turns()
        self.assertEqual(len(client.answers()), 1)
        self.assertEqual(len(other.answers()), 1)
        client.peer.dataReceived(data[-5:])
        other.write(*self.ordinary(1))
        self.turns()
        self.assertEqual(len(client.answers()), 1)
        self.assertEqual(len(other.answers()), 1)

    def test_large(self) -> None:
        """
        What is long does not wait.
        """
        self.knowAll()
        requests = self.ordinary(200)
        self.assertGreater(sum(len(each.encode()) for each in requests), 1 << 15)
        for client in self.clients:
            client.write(*requests)
        self.turns()
        self.assertEqual([len(each.answers()) for each in self.clients], [200] * CLIENTS)

    def test_gone(self) -> None:
        """
        What a client has sent before it closes its connection is there, though no answer
        is wanted.
        """
        self.knowAll()
        before = len(self.stored())
        client, other, _ = self.clients
        requests = self.ordinary(3)
        for each in requests:
            each.flag = 2
        client.write(*requests)
        other.write(*self.ordinary(1))
        client.lose()
        self.turns()
        self.assertEqual(len(self.stored()), before + 4)
        self.assertEqual([each.code for each in other.answers()], [0])

    def test_hooks(self) -> None:
        """
        While hooks look at requests, each request is served alone.
        """
        self.knowAll()
        self.remoting.hooks.append(Watch())  # type: ignore[arg-type]
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)

    def test_full(self) -> None:
        """
        If the disk does not take the messages, every sender is told so.
        """
        self.knowAll()
        self.disk.failing["pwrite"] = OSError(errno.ENOSPC, "full")
        self.sendOneEach()
        for client in self.clients:
            [answer] = client.answers()
            self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)
            self.assertEqual(set(answer.extFields), {"MSG_REGION", "TRACE_ON"})
        self.assertEqual(self.stats.failures, CLIENTS)

    def test_newFile(self) -> None:
        """
        Those for whom a new file of the log must be made are put there.
        """
        self.knowAll()
        before = len(self.stored())
        for _ in range(30):
            for client in self.clients:
                client.write(self.large())
            self.turns()
        for client in self.clients:
            self.assertEqual([each.code for each in client.answers()], [0] * 30)
        self.assertEqual(len(self.stored()), before + 90)
        self.assertGreater(len(self.store.log.segments.bases), 2)

    def large(self) -> RemotingCommand:
        """
        A message of which few fit into a file.
        """
        [request] = self.ordinary()
        request.body = b"x" * 700
        return request


class SeveralWaitingTests(SeveralCase):
    """
    Messages that wait for the disk.
    """

    storeOptions = {"flushDiskType": FlushDiskType.SYNC_FLUSH}

    def test_alone(self) -> None:
        """
        They wait for nothing else.
        """
        self.knowAll()
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)

    def test_becomes(self) -> None:
        """
        A broker that is to wait for the disk from now on does so at once.
        """
        self.store.apply(attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.ASYNC_FLUSH))
        self.knowAll()
        self.store.apply(attrs.evolve(self.store.settings, flushDiskType=FlushDiskType.SYNC_FLUSH))
        self.sendOneEach()
        self.assertEqual([len(each.answers()) for each in self.clients], [1] * CLIENTS)
        self.assertEqual(self.store.flusher.flushed.offset, self.store.log.written)


class SeveralSameTests(SeveralCase):
    """
    Whatever comes, from whomever.
    """

    def outcome(
        self, given: list[tuple[int, Message, bool]], sync: bool, together: bool
    ) -> tuple[Any, ...]:
        """
        What becomes of messages: what each client is told, but for the places, and what is
        stored of each client in each queue.
        """
        self.begin(sync, together)
        bodies = {}
        for number, (who, message, turns) in enumerate(given):
            request = requestOf(self.client, message._replace(body=b"%d" % number))
            bodies[request.opaque] = request.body
            self.clients[who].write(request)
            if turns:
                self.turns()
        self.turns()
        told: list[Any] = []
        for client in self.clients:
            for answer in client.answers():
                fields = dict(answer.extFields)
                msgId = fields.pop("msgId", "")
                fields.pop("queueOffset", None)
                told.append(
                    (client.peer.address, answer.opaque, answer.code, answer.remark, fields)
                )
                if answer.code == 0:
                    self.check(msgId, bodies[answer.opaque])
        stored: dict[Any, list[bytes]] = {}
        for topic, queueId, _ in list(self.store.queues):
            got = self.store.get(topic, queueId, 0, 100)
            for each in decodeRecords(got.data, inflate=False):
                key = topic, queueId, each.bornHostData
                stored.setdefault(key, []).append(each.body)
        self.store.stop()
        # Where one waits for the disk, what is refused is answered before it.
        return sorted(told, key=itemgetter(1)), stored, self.stats.failures

    def check(self, msgId: str, body: bytes) -> None:
        """
        A message is where its sender was told.
        """
        data = self.store.messageAt(int(msgId[-16:], 16))
        assert data is not None
        self.assertIn(body, data)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, CLIENTS - 1),
                messages | plain | plain | plain,
                st.sampled_from([False, False, False, True]),
            ),
            max_size=32,
        ),
        st.booleans(),
    )
    def test_sameAsAlone(self, given: list[tuple[int, Message, bool]], sync: bool) -> None:
        """
        Everybody is told the same, and has the same in each queue, in the same order.
        """
        plain = self.outcome(given, sync, together=False)
        self.assertEqual(self.outcome(given, sync, together=True), plain)
