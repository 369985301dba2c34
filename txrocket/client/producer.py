# SPDX-License-Identifier: Apache-2.0
"""
Sending; Java's C{DefaultMQProducer}.

    async with Producer(cluster, "orders") as producer:
        result = await producer.send(Message("Orders", b"...", tags="new"))

One message's way::

    check, name, compress --> L{Attempts<txrocket.client.attempts.Attempts>} --> SendResult
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.asking import Asking, replyTo
from txrocket.client.attempts import Attempts
from txrocket.client.cluster import Cluster
from txrocket.client.queues import FaultTable, Selector, byHash
from txrocket.client.quicksend import QuickSends
from txrocket.client.results import SendResult
from txrocket.client.sending import ISendMessageHook, Sending
from txrocket.errors import InvalidMessage, RocketError, SendFailed, ServiceNotAvailable
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.batch import splitBatch
from txrocket.protocol.bodies import ProducerData
from txrocket.protocol.headers import CheckTransactionStateRequestHeader
from txrocket.protocol.names import checkGroupName

if TYPE_CHECKING:
    from txrocket.client.tracing import SendTrace

__all__ = ["ISendMessageHook", "Producer", "Sending", "innerProducer"]

_INNER: Final = "CLIENT_INNER_PRODUCER"


class Producer(Service):
    """
    Sends messages.

    @ivar group: the producer's group.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str = "DEFAULT_PRODUCER",
        *,
        timeout: float = 3.0,
        retries: int = 2,
        compressOver: int = 4096,
        maxMessageSize: int = 4 * 1024 * 1024,
        defaultTopicQueueNums: int = 4,
        retryNotStored: bool = False,
        faults: FaultTable | None = None,
        hooks: Sequence[ISendMessageHook] = (),
        trace: bool | str = False,
    ) -> None:
        """
        @param timeout: how many seconds a send may take, all attempts included.
        @param retries: how often it is tried again.
        @param compressOver: bodies of so many bytes, or more, are compressed.
        @param defaultTopicQueueNums: how many queues a topic gets at each broker if
            this producer brings it into being.
        @param retryNotStored: whether to try another broker if one has the message
            but says that it is not as safe as it should be.
        @param faults: keeps away from brokers that are slow, if given.
        @param trace: whether to write down what becomes of each message, for tools to
            show: in RMQ_SYS_TRACE_TOPIC, or in the topic that is named.
        """
        checkGroupName(group)
        self.cluster = cluster
        self.group = group
        self._timeout = timeout
        self._compressOver = compressOver
        self._maxMessageSize = maxMessageSize
        self._trace: SendTrace | None = None
        if trace:
            # It needs this module in its turn.
            from txrocket.client.tracing import sendTrace

            self._trace = sendTrace(cluster, group, trace)
            hooks = (*hooks, self._trace)
        self._attempts = Attempts(
            cluster,
            group,
            retries=retries,
            queues=defaultTopicQueueNums,
            retryNotStored=retryNotStored,
            faults=faults,
            hooks=hooks,
        )
        self._underWay = self._attempts.underWay
        self._asking = Asking(cluster, self._attempts.topics, defaultTopicQueueNums, self.send)
        self._quick: QuickSends | None = None
        if faults is None and not hooks:
            self._quick = QuickSends(
                cluster,
                group,
                self._attempts,
                queues=defaultTopicQueueNums,
                compressOver=compressOver,
                maxMessageSize=maxMessageSize,
            )

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if the cluster has a producer of this group already.
        """
        self.cluster.addProducer(self)
        Service.startService(self)
        if self._trace is not None:
            self._trace.traces.start()

    def start(self) -> Deferred[None]:
        """
        Begin.
        """
        try:
            self.startService()
        except RocketError:
            return fail()
        return succeed(None)

    @inlineCallbacks
    def stop(self, within: float = 5.0) -> Generator[Deferred[Any], Any, None]:
        """
        Take no more messages, wait for those that are under way, and leave.

        @param within: how many seconds to wait.
        """
        if not self.running:
            return
        Service.stopService(self)
        clock = self.cluster.reactor
        end = clock.seconds() + within
        drained = self._underWay.drained()
        yield drained.addTimeout(within, clock).addErrback(self._notDrained)
        leaving = self.cluster.removeProducer(self)
        if self._trace is not None:
            yield self._trace.traces.stop(max(0.0, end - clock.seconds()))
        yield leaving

    def stopService(self) -> Deferred[None]:
        """
        The same, for who stops services.
        """
        return self.stop()

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def _notDrained(self, failure: Failure) -> None:
        self._log.warn(
            "Producer {group} stops while {count} messages are under way",
            group=self.group,
            count=self._underWay.count,
        )

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it has sent to.
        """
        return self._attempts.topics

    def producerData(self) -> ProducerData:
        """
        What its heartbeat says.
        """
        return ProducerData(self.group)

    def checkTransaction(
        self, header: CheckTransactionStateRequestHeader, message: MessageExt, address: str
    ) -> None:
        """
        A broker asks about a transaction, of which this producer makes none.
        """
        self._log.warn(
            "Broker {address} asks producer group {group} about a transaction, and it makes none",
            address=address,
            group=self.group,
        )

    # --- sending ---------------------------------------------------------

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        selector: Selector | None = None,
        key: Any = None,
        timeout: float | None = None,
    ) -> Deferred[SendResult]:
        """
        Send a message.

        @param queue: the one to send it to.
        @param selector: chooses the queue, in place of each in turn;
            L{byHash<txrocket.client.queues.byHash>} if only a key is given.
        @param key: what the selector goes by.
        @param timeout: in seconds, in place of the producer's.
        @return: a Deferred that fails with L{InvalidMessage} if the message cannot
            be sent, and with L{SendFailed} if it could not.
        """
        chosen = queue is not None or selector is not None or key is not None
        if not chosen and self._quick is not None and self.running:
            quick = self._quick.send(message, self._timeout if timeout is None else timeout)
            if quick is not None:
                return quick
        try:
            sending = self._prepared(message, timeout)
        except RocketError:
            return fail()
        return self._attempts.send(_aimed(sending, queue, selector, key))

    def sendBatch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> Deferred[list[SendResult]]:
        """
        Send many messages of one topic, as few requests as their sizes allow, one
        after the other.  All are checked before the first is sent.

        @param timeout: in seconds, of each request.
        @return: a Deferred of a result for each request.  It fails as L{send}'s does
            with the first that fails; those before it were sent, and their results are
            in the error's C{sent}, those after it not.
        """
        return self._sendBatches(messages, queue, timeout)

    @inlineCallbacks
    def _sendBatches(
        self, messages: Iterable[Message], queue: MessageQueue | None, timeout: float | None
    ) -> Generator[Deferred[Any], Any, list[SendResult]]:
        batches = [
            self._preparedBatch(each, timeout)
            for each in splitBatch(messages, self._maxMessageSize)
        ]
        if not batches:
            raise InvalidMessage("a batch has at least one message")
        if len({each.topic for each in batches}) > 1:
            raise InvalidMessage("the messages of a batch have one topic")
        results: list[SendResult] = []
        # Between two requests none is under way, but the whole is.
        self._underWay.count += 1
        try:
            for sending in batches:
                results.append((yield self._attempts.send(_aimed(sending, queue))))
        except SendFailed as error:
            error.sent = tuple(results)
            raise
        finally:
            self._underWay.over()
        return results

    def sendOneway(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        selector: Selector | None = None,
        key: Any = None,
        timeout: float | None = None,
    ) -> Deferred[None]:
        """
        Send a message and do not wait for an answer: it may be lost, and nobody
        will know.

        @return: a Deferred that fires once the message is handed to the network,
            and fails as L{send}'s does.
        """
        try:
            sending = self._prepared(message, timeout)
        except RocketError:
            return fail()
        sending.oneway = True
        return self._attempts.send(_aimed(sending, queue, selector, key))

    def request(self, message: Message, timeout: float | None = None) -> Deferred[MessageExt]:
        """
        Send a message and wait for the reply of the consumer that gets it.

        @param timeout: in seconds, for both.
        @return: a Deferred of the reply; it fails with L{RequestTimedOut} if none
            comes in time, and as L{send}'s does.
        """
        if not self.running:
            return fail(self._notRunning())
        return self._asking.request(message, self._timeout if timeout is None else timeout)

    def reply(
        self, request: MessageExt, body: bytes, timeout: float | None = None
    ) -> Deferred[SendResult]:
        """
        Reply to a message that was sent by L{request}.

        @param request: the message, as it was consumed.
        """
        try:
            answer = replyTo(request, body)
        except InvalidMessage:
            return fail()
        return self.send(answer, timeout=timeout)

    def queuesOf(self, topic: str) -> Deferred[tuple[MessageQueue, ...]]:
        """
        The queues that a topic's messages can be sent to.
        """
        return self.cluster.routes.find(topic).addCallback(lambda route: route.writeQueues)

    # --- preparing -------------------------------------------------------

    def _begin(
        self, topic: str, message: Message | Sequence[Message], timeout: float | None
    ) -> Sending:
        if not self.running:
            raise self._notRunning()
        return Sending(topic, message, self._timeout if timeout is None else timeout)

    def _prepared(self, message: Message, timeout: float | None) -> Sending:
        sending = self._begin(message.topic, message, timeout)
        sending.take(message, self.cluster.uniqueId, self._compressOver, self._maxMessageSize)
        return sending

    def _preparedBatch(self, messages: list[Message], timeout: float | None) -> Sending:
        sending = self._begin(messages[0].topic, messages, timeout)
        sending.takeBatch(messages, self.cluster.uniqueId, self._maxMessageSize)
        return sending

    def _notRunning(self) -> ServiceNotAvailable:
        return ServiceNotAvailable(f"producer {self.group} is not started, or was stopped")


def _aimed(
    sending: Sending,
    queue: MessageQueue | None,
    selector: Selector | None = None,
    key: Any = None,
) -> Sending:
    """
    A message that is to go to a queue, or to one that a selector chooses.
    """
    if queue is not None:
        sending.fixed, sending.queue = True, queue
    if selector is not None or key is not None:
        sending.selector, sending.key = selector or byHash, key
    return sending


def innerProducer(cluster: Cluster) -> Producer:
    """
    The producer that a cluster's consumers share, to send back what they could not
    deal with.
    """
    known = cluster.producers.get(_INNER)
    if isinstance(known, Producer):
        return known
    producer = Producer(cluster, _INNER)
    producer.startService()
    return producer
