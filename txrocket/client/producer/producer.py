# SPDX-License-Identifier: Apache-2.0
"""
Sending; Java's C{DefaultMQProducer}.

    async with Producer(cluster, "orders") as producer:
        result = await producer.send(Message("Orders", b"...", tags="new"))

Every send goes through
L{MessageSender<txrocket.client.producer.sender.MessageSender>}.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.memberservice import MemberService
from txrocket.client.producer.options import ProducerOptions
from txrocket.client.producer.requestreply import RequestReply, replyTo
from txrocket.client.producer.sendcontext import ISendMessageHook, Sending
from txrocket.client.producer.sender import MessageSender
from txrocket.client.sansio.faulttable import FaultTable
from txrocket.client.sansio.queueselector import Selector
from txrocket.client.sansio.results import SendResult
from txrocket.errors import InvalidMessage, RocketError, SendFailed, ServiceNotAvailable
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.bodies import ProducerData
from txrocket.protocol.headers import CheckTransactionStateRequestHeader
from txrocket.protocol.names import checkGroupName
from txrocket.protocol.record.batch import splitBatch

if TYPE_CHECKING:
    from txrocket.client.trace.hooks import SendTrace

__all__ = ["ISendMessageHook", "Producer", "Sending", "innerProducer"]

_INNER: Final = "CLIENT_INNER_PRODUCER"


class Producer(MemberService):
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
        The keywords are the fields of
        L{ProducerOptions<txrocket.client.producer.options.ProducerOptions>}, and C{trace}.

        @param trace: whether to trace each message, for tools to show: in
            RMQ_SYS_TRACE_TOPIC, or in the topic of this name.
        @raise InvalidMessage: if the group's name is not valid.
        """
        checkGroupName(group)
        self.cluster = cluster
        self.group = group
        self._trace: SendTrace | None = None
        if trace:
            # It imports this module.
            from txrocket.client.trace.hooks import sendTrace

            self._trace = sendTrace(cluster, group, trace)
            hooks = (*hooks, self._trace)
        self._options = ProducerOptions(
            timeout=timeout,
            retries=retries,
            compressOver=compressOver,
            maxMessageSize=maxMessageSize,
            defaultTopicQueueNums=defaultTopicQueueNums,
            retryNotStored=retryNotStored,
            faults=faults,
            hooks=hooks,
        )
        self._sender = MessageSender(cluster, group, self._options)
        self._inFlight = self._sender.inFlight
        self._requestReply = RequestReply(
            cluster, self._sender.topics, defaultTopicQueueNums, self.send
        )

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if the cluster has a producer of this group already.
        """
        self.cluster.addProducer(self)
        super().startService()
        if self._trace is not None:
            self._trace.traces.start()

    @inlineCallbacks
    def _shutDown(self, within: float) -> Generator[Deferred[Any], Any, None]:
        """
        Wait for the messages in flight, and leave.
        """
        clock = self.cluster.reactor
        end = clock.seconds() + within
        drained = self._inFlight.drained()
        yield drained.addTimeout(within, clock).addErrback(self._notDrained)
        self._sender.stop()
        leaving = self.cluster.removeProducer(self)
        if self._trace is not None:
            yield self._trace.traces.stop(max(0.0, end - clock.seconds()))
        yield leaving

    def _notDrained(self, failure: Failure) -> None:
        self._log.warn(
            "Producer {group} stops while {count} messages are in flight",
            group=self.group,
            count=self._inFlight.count,
        )

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it has sent to.
        """
        return self._sender.topics

    def producerData(self) -> ProducerData:
        """
        The producer's part of the heartbeat.
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
            L{byHash<txrocket.client.sansio.queueselector.byHash>} if only a key is given.
        @param key: what the selector goes by.
        @param timeout: in seconds, in place of the producer's.
        @return: a Deferred that fails with L{InvalidMessage} if the message cannot
            be sent, and with L{SendFailed} if it could not.
        """
        if not self.running:
            return fail(self._notRunning())
        try:
            return self._sender.send(message, timeout, queue, selector, key)
        except RocketError:
            return fail()

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
        if not self.running:
            raise self._notRunning()
        parts = list(splitBatch(messages, self._options.maxMessageSize))
        batches = [self._sender.batch(each) for each in parts]
        if not batches:
            raise InvalidMessage("a batch has at least one message")
        if len({each.topic for each in batches}) > 1:
            raise InvalidMessage("the messages of a batch have one topic")
        results: list[SendResult] = []
        # Between two requests no message is in flight, but the whole is.
        self._inFlight.count += 1
        try:
            for part, batch in zip(parts, batches, strict=True):
                results.append((yield self._sender.send(part, timeout, queue, batch=batch)))
        except SendFailed as error:
            error.sent = tuple(results)
            raise
        finally:
            self._inFlight.over()
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
        Send a message and do not wait for an answer: it may be lost without a notice.

        @return: a Deferred that fires once the message is handed to the network,
            and fails as L{send}'s does.
        """
        if not self.running:
            return fail(self._notRunning())
        try:
            return self._sender.send(message, timeout, queue, selector, key, oneway=True)
        except RocketError:
            return fail()

    def request(self, message: Message, timeout: float | None = None) -> Deferred[MessageExt]:
        """
        Send a message and wait for the reply of the consumer that gets it.

        @param timeout: in seconds, for both.
        @return: a Deferred of the reply; it fails with L{RequestTimedOut} if none
            comes in time, and as L{send}'s does.
        """
        if not self.running:
            return fail(self._notRunning())
        return self._requestReply.request(
            message, self._options.timeout if timeout is None else timeout
        )

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

    def _notRunning(self) -> ServiceNotAvailable:
        return ServiceNotAvailable(f"producer {self.group} is not started, or was stopped")


def innerProducer(cluster: Cluster) -> Producer:
    """
    The producer that a cluster's consumers share, to send back messages that they could not
    consume.
    """
    known = cluster.producers.get(_INNER)
    if isinstance(known, Producer):
        return known
    producer = Producer(cluster, _INNER)
    producer.startService()
    return producer
