# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.producer.sender}: the road of every send, with the connection up
and with the connection yet to be made.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from tests.client.answering import routeTo
from tests.client.producercase import HELLO, ProducerCase
from tests.remoting.doubles import Recorder
from txrocket.client.producer.producer import Producer
from txrocket.errors import InvalidMessage, SendFailed
from txrocket.message import Message
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.remoting.remoting import Limits

texts = st.sampled_from(["a", "b", "%d %b", 'quo"te', "é", "x" * 5000, ""])
messages = st.builds(
    lambda body, flag, given: Message("T", body, flag=flag, properties=given),
    st.sampled_from([b"x", b"y" * 900, b"%d", b"z" * 4095, b"z" * 4096]),
    st.sampled_from([0, 7, -1]),
    st.one_of(
        st.just({}),
        st.builds(lambda tags: {"TAGS": tags}, texts),
        st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "MINE", "UNIQ_KEY", "MSG_TYPE", "TRAN_MSG", "%d"]),
            st.one_of(texts, st.sampled_from(["reply", "true"])),
            max_size=3,
        ),
    ),
)


def _rawResponse(extFields: bytes) -> RemotingCommand:
    response = responseCommand()
    response.raw = Raw(extFields)
    return response


class SenderTests(ProducerCase):
    """
    A producer whose connections are up.
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

    def stop(self, producer: Producer) -> None:
        """
        Stop a producer, which waits for nothing.
        """
        stopping = producer.stop()
        self.network.run()
        self.successResultOf(stopping)

    @given(messages)
    def test_connectionUpSendsSameRequest(self, message: Message) -> None:
        """
        The request of a message is the same whether the connection is up, is yet to be
        made, or has a hook that looks at requests: whichever way its header is encoded.
        """
        requests = []
        for up, hook in ((True, False), (False, False), (True, True)):
            self.setUp()
            # One broker and one queue, so that all go there.
            self.network.routes["T"] = routeTo("broker-a", queues=1)
            producer = self.warm() if up else self.producer()
            if hook:
                self.cluster.remoting.registerHook(Recorder("hook", []))
            self.clock.advance(1)
            received = self.sent(producer, message)
            fields = dict(received.fields)
            # The counter in the id says how many were sent before.
            if "UNIQ_KEY" not in message.properties:
                first, separator, rest = fields["i"].partition("\x02")
                fields["i"] = first[:-4] + separator + rest
            request = received.request
            shape = request.code, request.flag, request.language, request.version
            requests.append((received.at, shape, fields, request.body))
            received.stored(offset=9)
            self.assertEqual(self.successResultOf(self.sending).queueOffset, 9)
        self.assertEqual(requests[0], requests[1])
        self.assertEqual(requests[0], requests[2])

    def test_bareNumbersInAnswerAreRead(self) -> None:
        """
        An answer whose fields are bare numbers, as some brokers have them, is read.
        """
        received = self.sent(self.warm())
        fields = f'{{"msgId":"0A","queueId":{received.fields["e"]},"queueOffset":1}}'
        received.answer(_rawResponse(fields.encode()))
        self.assertEqual(self.successResultOf(self.sending).queueOffset, 1)

    def test_otherQueueInAnswerIsResult(self) -> None:
        """
        If the broker has stored a message in another queue, the result has that queue.
        """
        self.sent(self.warm()).stored(queueId=9)
        self.assertEqual(self.successResultOf(self.sending).messageQueue.queueId, 9)

    def test_unreadableAnswerFailsSend(self) -> None:
        """
        An answer that cannot be decoded fails the send, without another attempt.
        """
        producer = self.warm()
        self.sent(producer).answer(_rawResponse(b'{"msgId":"0A","queueId":"x"}'))
        self.assertEqual(self.failed().attempts, 1)
        self.assertEqual(self.network.run(), [])

    def test_unknownBrokerIsSkipped(self) -> None:
        """
        If a queue is of a broker that no route has, its messages go to another one.
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
            self.successResultOf(self.sending)

    def test_frameTooLongFailsSend(self) -> None:
        """
        A message whose frame would be longer than the limit cannot be sent; shorter ones
        can.
        """
        producer = Producer(self.network.cluster(limits=Limits(frame=3000)), "senders")
        self.successResultOf(producer.start())
        for _ in range(4):
            self.sent(producer).stored()
            self.successResultOf(self.sending)
        self.failureResultOf(producer.send(Message("T", bytes(2900))), InvalidMessage)
        self.stop(producer)

    def test_tooManyRequestsFailSend(self) -> None:
        """
        A message that would be one request too many for its connection fails.
        """
        self.network.routes["T"] = routeTo("broker-a")
        producer = Producer(self.network.cluster(limits=Limits(requests=4)), "senders", retries=0)
        self.successResultOf(producer.start())
        self.sent(producer).stored()
        self.successResultOf(self.sending)
        sent = [producer.send(HELLO) for _ in range(5)]
        self.failureResultOf(sent[-1], SendFailed)
        for received in list(self.network.run()):
            received.stored()
        for each in sent[:-1]:
            self.successResultOf(each)

    def test_routeChangeSendsToNewQueues(self) -> None:
        """
        Once a topic's route is another one, messages go to its queues.
        """
        producer = self.warm()
        self.network.routes["T"] = routeTo("broker-c", queues=1)
        self.cluster.refreshRoutes()
        self.network.run()
        for _ in range(3):
            received = self.sent(producer)
            self.assertEqual((received.at, received.fields["e"]), ("192.0.2.3:10911", "0"))
            received.stored()

    def test_cancelledWhileRetriedIsNotSentAgain(self) -> None:
        """
        A message that is cancelled during its second attempt has no third one, and the
        producer does not wait for it when it stops.
        """
        producer = self.warm()
        self.sent(producer).refuse(ResponseCode.SYSTEM_BUSY)
        sending = self.sending
        again = self.network.only()
        sending.cancel()
        self.failureResultOf(sending, CancelledError)
        again.refuse(ResponseCode.SYSTEM_BUSY)
        self.assertEqual(self.network.run(), [])
        self.stop(producer)

    def test_cancelledWithoutConnectionEnds(self) -> None:
        """
        A message that is cancelled while its connection is being made fails, and the
        producer does not wait for it when it stops.
        """
        producer = self.producer()
        self.network.vanished.update(["192.0.2.1:10911", "192.0.2.2:10911"])
        sending = producer.send(HELLO)
        self.network.run()
        sending.cancel()
        self.failureResultOf(sending, CancelledError)
        stopping = producer.stop(0.0)
        self.network.run()
        self.clock.advance(10)
        self.successResultOf(stopping)

    def test_allCancelledWhenOneFails(self) -> None:
        """
        An application may cancel all other messages when one fails with its connection,
        and send again at once.
        """
        self.network.routes["T"] = routeTo("broker-a")
        producer = self.warm(retries=0)
        others = [producer.send(HELLO) for _ in range(3)]
        (first, *_) = self.network.run()

        def giveUp(failure: Failure) -> Failure:
            for each in others[1:]:
                each.cancel()
            # There is no connection now.
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
        self.stop(producer)
