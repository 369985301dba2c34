# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.quicksend}: it ends where the general way does.
"""

from __future__ import annotations

import gc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tests.client.answering import Network, Received, routeTo
from tests.client.producercase import HELLO, ProducerCase
from tests.client.test_producerlife import Watch
from tests.remoting.doubles import Recorder
from txrocket.client.producer import Producer
from txrocket.client.queues import FaultTable
from txrocket.client.quicksend import QuickSend
from txrocket.client.results import SendResult
from txrocket.errors import SendFailed
from txrocket.message import Message
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import rawResponse, responseCommand
from txrocket.remoting.node import Limits

ONE, BOTH = routeTo("broker-a"), routeTo("broker-a", "broker-b")
# What a route may become; the last is that there is none.
ROUTES = [ONE, BOTH, routeTo("broker-b", queues=3), routeTo("broker-a", perm=4), None]

texts = st.sampled_from(["a", "b", "%d %b", 'quo"te', "é", "\x01", "\ud800", "x" * 5000, ""])
properties = st.one_of(
    st.just({}),
    st.builds(lambda tags: {"TAGS": tags}, texts),
    st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "MINE", "UNIQ_KEY", "MSG_TYPE", "TRAN_MSG", "%d"]),
        st.one_of(texts, st.sampled_from(["reply", "true"])),
        max_size=3,
    ),
)
# Most are ordinary, and are answered: the rest is a story's salt.
ordinary = st.builds(
    lambda topic, body, flag, given: Message(topic, body, flag=flag, properties=given),
    # The last does not exist until it is sent to, and not for the name servers then.
    st.sampled_from(["T", "T", "T", "T", "New"]),
    st.sampled_from([b"x", b"y" * 900, b"%d"]),
    st.sampled_from([0, 0, 7, -1]),
    properties,
)
odd = st.builds(
    lambda topic, body: Message(topic, body, "tag"),
    st.sampled_from(["T", "U", "%RETRY%g", "no/topic"]),
    st.sampled_from([b"x", b"", b"z" * 4095, b"z" * 4096]),
)
ANSWERS = "elsewhere", "late", "busy", "busy", "illegal", "empty", "bad", "bare"
kinds: dict[str, st.SearchStrategy[Any]] = {
    "send": st.tuples(ordinary, st.sampled_from([None, None, None, 0.5, 0.0]), st.booleans()),
    "odd": st.tuples(odd, st.sampled_from([None, 0.0]), st.booleans()),
    "answer": st.tuples(st.integers(0, 9), st.just("stored")),
    "other": st.tuples(st.integers(0, 9), st.sampled_from(ANSWERS)),
    "wait": st.tuples(st.sampled_from([0.001, 0.3, 1.0, 40.0])),
    "cancel": st.tuples(st.integers(0, 9)),
    "lose": st.tuples(st.integers(0, 9)),
    "route": st.tuples(st.sampled_from("TU"), st.integers(0, len(ROUTES) - 1)),
    "full": st.just(()),
    "hook": st.just(()),
}
weights = {"send": 12, "answer": 5, "other": 5, "wait": 2, "cancel": 2}
steps = st.lists(
    st.sampled_from([kind for kind in kinds for _ in range(weights.get(kind, 1))]).flatmap(
        lambda kind: st.tuples(st.just(kind), kinds[kind])
    ),
    min_size=20,
    max_size=60,
)


class Story:
    """
    What becomes of messages.

    @ivar told: the outcome of each.
    @ivar quickly: how many went the quick way.
    """

    def __init__(self, *, quick: bool, **options: Any) -> None:
        self.network = Network()
        self.network.routes.update(T=BOTH, U=ONE, TBW102=ONE)
        self.cluster = self.network.cluster(limits=Limits(requests=4, unsent=2000))
        self.producer = Producer(self.cluster, "senders", **options)
        self.producer.startService()
        if not quick:
            self.producer._quick = None
        self.told: list[list[Any]] = []
        self.pending: list[Deferred[SendResult]] = []
        self.quickly = 0

    def send(self, message: Message, timeout: float | None, again: bool) -> None:
        """
        Send a message, and perhaps another from its callback.
        """
        outcome: list[Any] = []
        self.told.append(outcome)
        sent = self.producer.send(message, timeout=timeout)
        self.quickly += isinstance(sent, QuickSend)
        self.pending.append(sent)

        def over(result: Any) -> None:
            error = getattr(result, "value", None)
            outcome.append((type(error), str(error)) if error is not None else result)
            if again:
                self.send(message, timeout, False)

        sent.addBoth(over)

    def answer(self, which: int, how: str) -> None:
        """
        Have a broker answer.
        """
        waiting = self.network.run()
        if not waiting:
            return
        received = waiting.pop(which % len(waiting))
        codes = {"late": 10, "busy": ResponseCode.SYSTEM_BUSY, "illegal": 13}
        if how == "stored":
            received.stored(MSG_REGION="r", TRACE_ON="false")
        elif how == "elsewhere":
            received.stored(queueId=9)
        elif how == "late":
            received.stored(codes[how])
        elif how in codes:
            received.refuse(codes[how])
        else:
            fields = {
                # Bare numbers, as some brokers have them.
                "bare": f'{{"msgId":"0A","queueId":{received.fields["e"]},"queueOffset":1}}',
                "bad": '{"msgId":"0A","queueId":"x"}',
                "empty": "{}",
            }
            received.answer(rawResponse(fields[how].encode()))

    odd = send
    other = answer

    def cancel(self, which: int) -> None:
        """
        Give a message up.
        """
        if self.pending:
            # One of the last, which are under way yet.
            self.pending[-1 - which % len(self.pending)].cancel()

    def lose(self, which: int) -> None:
        """
        Have a broker close a connection.
        """
        waiting = self.network.run()
        if waiting:
            protocol = waiting[which % len(waiting)].protocol
            waiting[:] = [each for each in waiting if each.protocol is not protocol]
            Received("", responseCommand(), protocol).lose()

    def route(self, topic: str, which: int) -> None:
        """
        Have a route change.
        """
        data = ROUTES[which]
        if data is None:
            self.network.routes.pop(topic, None)
        else:
            self.network.routes[topic] = data
        self.cluster.refreshRoutes()

    def wait(self, seconds: float) -> None:
        """
        Let time pass.
        """
        self.network.run()
        self.network.clock.advance(seconds)

    def full(self) -> None:
        """
        Have brokers read no more than a thousand bytes ahead, from now on.
        """
        for _, wire, _ in self.network._wires:
            wire.capacity = 1000

    def hook(self) -> None:
        """
        Have a hook that looks at requests.
        """
        self.cluster.remoting.registerHook(Recorder("hook", []))

    def run(self, steps: list[Any], stop: bool) -> Any:
        """
        Let all happen.

        @param stop: whether to stop the producer before the end.
        @return: all that can be told: what was written, and what became of messages.
        """
        for _ in range(8):
            # Until all connections are up, nothing is ordinary.
            self.send(HELLO, None, False)
            self.answer(0, "stored")
        for what, details in steps:
            getattr(self, what)(*details)
        if stop:
            self.producer.stop()
        self.wait(0.0)
        self.wait(100.0)
        self.network.run()
        written = [(at, b"".join(wire.writes)) for at, wire, _ in self.network._wires]
        return self.told, written, self.producer._underWay.count


class SameTests(ProducerCase):
    """
    The quick way and the general one.
    """

    @settings(max_examples=40, deadline=None)
    @given(steps, st.booleans(), st.booleans())
    def test_same(self, steps: list[Any], stop: bool, retryNotStored: bool) -> None:
        """
        Whatever is sent, answered, lost and given up, the same bytes are written to the
        same brokers in the same order, and the same becomes of every message.
        """
        options: dict[str, Any] = {"retryNotStored": retryNotStored}
        quick, general = Story(quick=True, **options), Story(quick=False, **options)
        self.assertEqual(quick.run(steps, stop), general.run(steps, stop))
        # What nobody looked at is of no interest here.
        del quick, general
        gc.collect()
        self.flushLoggedErrors()


class QuickTests(ProducerCase):
    """
    When the quick way is taken.
    """

    def warm(self, **options: Any) -> Producer:
        """
        A producer whose connections are up.
        """
        producer = self.producer(**options)
        for _ in range(8):
            self.sent(producer).stored()
            self.successResultOf(self.sending)
        return producer

    def test_ordinary(self) -> None:
        """
        Ordinary messages take it, whatever their tags, keys, flags and time limits.
        """
        producer = self.warm()
        for message in (
            HELLO,
            Message("T", b"hello", "tag", "key", flag=7),
            Message("T", bytes(4095), properties={"mine": "is this"}),
        ):
            for timeout in (None, 1.0):
                received = self.sent(producer, message, timeout=timeout)
                self.assertIsInstance(self.sending, QuickSend)
                received.stored(offset=9)
                self.assertEqual(self.successResultOf(self.sending).queueOffset, 9)

    def test_others(self) -> None:
        """
        All others do not: those that go where their sender says, are changed on their
        way, or are something more than a message.
        """
        producer = self.warm()
        queue = self.successResultOf(producer.queuesOf("T"))[0]
        for message, options in (
            (HELLO, {"queue": queue}),
            (HELLO, {"key": 1}),
            (Message("T", bytes(4096)), {}),
            (Message("T", b"x", properties={"UNIQ_KEY": "mine"}), {}),
            (Message("T", b"x", properties={"TRAN_MSG": "true"}), {}),
            (Message("T", b"x", properties={"long": "x" * 5000}), {}),
        ):
            self.sent(producer, message, **options).stored()
            self.assertNotIsInstance(self.sending, QuickSend)
            self.successResultOf(self.sending)

    def test_watched(self) -> None:
        """
        Nothing is ordinary while somebody looks at messages or at requests, or slow
        brokers are avoided.
        """
        for options in ({"hooks": [Watch()]}, {"faults": FaultTable()}):
            self.setUp()
            self.sent(self.warm(**options))
            self.assertNotIsInstance(self.sending, QuickSend)
        self.setUp()
        producer = self.warm()
        self.cluster.remoting.registerHook(Recorder("hook", []))
        self.sent(producer)
        self.assertNotIsInstance(self.sending, QuickSend)

    def test_unknownBroker(self) -> None:
        """
        Where a queue is of a broker that nobody knows, none is ordinary: that may change
        with any message.
        """
        self.network.routes["T"] = replace(
            routeTo("broker-a"), orderTopicConf="broker-a:1;broker-x:1"
        )
        producer = self.producer()
        for _ in range(4):
            self.sending = producer.send(HELLO)
            for received in list(self.network.run()):
                self.network.received.remove(received)
                received.stored()
            self.assertNotIsInstance(self.sending, QuickSend)
            self.successResultOf(self.sending)

    def test_smallFrames(self) -> None:
        """
        Where frames are so short that a message may not fit, none is ordinary.
        """
        producer = Producer(self.network.cluster(limits=Limits(frame=8000)), "senders")
        self.successResultOf(producer.start())
        for _ in range(8):
            self.sent(producer).stored()
            self.assertNotIsInstance(self.sending, QuickSend)

    def test_cancelled(self) -> None:
        """
        A message that is given up while it is tried again is not sent a third time,
        and the producer stops as ever.
        """
        producer = self.warm()
        self.sent(producer).refuse(ResponseCode.SYSTEM_BUSY)
        sending = self.sending
        self.assertIsInstance(sending, QuickSend)
        again = self.network.only()
        sending.cancel()
        self.failureResultOf(sending, CancelledError)
        again.refuse(ResponseCode.SYSTEM_BUSY)
        self.assertEqual(self.network.run(), [])
        stopping = producer.stop()
        self.network.run()
        self.successResultOf(stopping)

    def test_allCancelled(self) -> None:
        """
        Who gives up all messages when one fails with its connection gets along.
        """
        self.network.routes["T"] = routeTo("broker-a")
        producer = self.warm(retries=0)
        others = [producer.send(HELLO) for _ in range(3)]
        (first, *_) = self.network.run()

        def giveUp(failure: Failure) -> Failure:
            for each in others[1:]:
                each.cancel()
            # Now the way has no connection.
            self.sending = producer.send(HELLO)
            return failure

        others[0].addErrback(giveUp)
        first.lose()
        self.failureResultOf(others[0], SendFailed)
        for each in others[1:]:
            self.failureResultOf(each, CancelledError)
        self.network.received.clear()
        self.network.only().stored()
        self.successResultOf(self.sending)
        self.assertEqual(producer._underWay.count, 0)
