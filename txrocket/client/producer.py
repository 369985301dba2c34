# SPDX-License-Identifier: Apache-2.0
"""
Sending; Java's C{DefaultMQProducer}.

    async with Producer(cluster, "orders") as producer:
        result = await producer.send(Message("Orders", b"...", tags="new"))

One message's way::

    check --> route known? --> queue --> request --> SendResult
                 |                ^         |
               ask for it         |   failed, may be tried again, time left:
                                  +---- at another broker, if there is one

An error that another attempt would not cure ends it at once: see C{retriable} of
L{RocketError}.  All attempts together have one time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from txrocket.client.asking import Asking
from txrocket.client.cluster import Cluster
from txrocket.client.outgoing import REPLY, Outgoing
from txrocket.client.queues import FaultTable, Selector, byHash, inTurn
from txrocket.client.results import SendResult, SendStatus
from txrocket.client.routes import Route
from txrocket.errors import (
    ConnectFailed,
    InvalidMessage,
    ProtocolError,
    RequestTimedOut,
    ResponseError,
    RocketError,
    SendFailed,
    ServiceNotAvailable,
    TopicNotExist,
    responseError,
)
from txrocket.message import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    Message,
    MessageExt,
)
from txrocket.model import MessageQueue
from txrocket.protocol.batch import splitBatch
from txrocket.protocol.bodies import ProducerData
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers import (
    CheckTransactionStateRequestHeader,
)
from txrocket.protocol.names import checkGroupName, checkSendTopic, replyTopic

if TYPE_CHECKING:
    from txrocket.client.tracing import SendTrace

__all__ = ["ISendMessageHook", "Producer", "Sending", "innerProducer"]

_INNER: Final = "CLIENT_INNER_PRODUCER"

# To look up a member of an enumeration takes as long as a call.
_SEND_OK: Final = SendStatus.SEND_OK


class Sending(Outgoing):
    """
    A message on its way; what a hook sees.

    @ivar message: the message, or the messages of a batch.
    @ivar queue: where it is sent, as of the last attempt.
    @ivar attempts: how often it was tried.
    @ivar began: when the first attempt began, in seconds.
    @ivar result: what became of it, once that is known.
    @ivar error: why it failed, once it has.
    @ivar oneway: whether nobody waits for the answer.
    """

    began = 0.0
    deadline = 0.0
    attempts = 0
    address = ""
    queue: MessageQueue | None = None
    fixed = False
    selector: Selector | None = None
    key: Any = None
    oneway = False
    result: SendResult | None = None
    error: BaseException | None = None

    def __init__(self, topic: str, message: Message | Sequence[Message], timeout: float) -> None:
        checkSendTopic(topic)
        self.topic = topic
        self.message = message
        self.timeout = timeout


class ISendMessageHook(Interface):
    """
    Looks at every message that a producer sends.
    """

    name: str = Attribute("For logs.")

    def beforeSend(sending: Sending) -> None:
        """
        A message is about to be sent, for the first time.

        What a hook raises is logged, and changes nothing.
        """

    def afterSend(sending: Sending) -> None:
        """
        A message was sent, or was not.
        """


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
        self._retries = retries
        self._compressOver = compressOver
        self._maxMessageSize = maxMessageSize
        self._queues = defaultTopicQueueNums
        self._retryNotStored = retryNotStored
        self._faults = faults
        self._hooks = hooks
        self._trace: SendTrace | None = None
        if trace:
            # It needs this module in its turn.
            from txrocket.client.tracing import sendTrace

            self._trace = sendTrace(cluster, group, trace)
            self._hooks = (*hooks, self._trace)
        self._routes = cluster.routes
        self._clock = cluster.reactor
        self._topics: dict[str, None] = {}
        self._asking = Asking(cluster, self._topics, defaultTopicQueueNums, self.send)
        self._turn = cluster.choose(2**31)
        self._underWay = 0
        self._drained: list[Deferred[None]] = []

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
    def stop(self, within: float = 5.0) -> Any:
        """
        Take no more messages, wait for those that are under way, and leave.

        @param within: how many seconds to wait.
        """
        if not self.running:
            return
        Service.stopService(self)
        end = self._clock.seconds() + within
        if self._underWay:
            drained: Deferred[None] = Deferred()
            self._drained.append(drained)
            yield drained.addTimeout(within, self._clock).addErrback(self._notDrained)
        leaving = self.cluster.removeProducer(self)
        if self._trace is not None:
            yield self._trace.traces.stop(max(0.0, end - self._clock.seconds()))
        yield leaving

    def stopService(self) -> Any:
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
            count=self._underWay,
        )

    # --- as a member -----------------------------------------------------

    def topics(self) -> Iterable[str]:
        """
        The topics that it has sent to.
        """
        return self._topics

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
        try:
            sending = self._prepared(message, timeout)
        except RocketError:
            return fail()
        return self._send(sending, queue, selector, key)

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
            with the first that fails; those before it were sent, those after it not.
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
        results = []
        # Between two requests none is under way, but the whole is.
        self._underWay += 1
        try:
            for sending in batches:
                results.append((yield self._send(sending, queue, None, None)))
        finally:
            self._over()
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
        return self._send(sending, queue, selector, key)

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
        properties = request.properties
        cluster = properties.get(PROPERTY_CLUSTER)
        asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if not cluster or not asker:
            return fail(InvalidMessage("a message that wants no reply cannot be replied to"))
        answer = Message(
            replyTopic(cluster),
            body,
            properties={
                PROPERTY_MSG_TYPE: REPLY,
                PROPERTY_REPLY_TO_CLIENT: asker,
                **{
                    name: properties[name]
                    for name in (PROPERTY_CORRELATION_ID, PROPERTY_TTL)
                    if name in properties
                },
            },
        )
        return self.send(answer, timeout=timeout)

    def queuesOf(self, topic: str) -> Deferred[tuple[MessageQueue, ...]]:
        """
        The queues that a topic's messages can be sent to.
        """
        return self._routes.find(topic).addCallback(lambda route: route.writeQueues)

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

    # --- attempts --------------------------------------------------------

    def _send(
        self,
        sending: Sending,
        queue: MessageQueue | None,
        selector: Selector | None,
        key: Any,
    ) -> Deferred[Any]:
        if queue is not None:
            sending.fixed, sending.queue = True, queue
        if selector is not None or key is not None:
            sending.selector, sending.key = selector or byHash, key
        sending.began = self._clock.seconds()
        sending.deadline = sending.began + sending.timeout
        for hook in self._hooks:
            self._show(hook, hook.beforeSend, sending)
        self._underWay += 1
        route = self._routes.get(sending.topic)
        if route is not None and route.writeQueues and sending.topic in self._topics:
            return self._attempt(route, sending)
        return self._attemptOn(self._route(sending), sending)

    def _done(
        self, result: SendResult | Failure | None, sending: Sending
    ) -> SendResult | Failure | None:
        """
        A message's last attempt is over, or there was none.
        """
        if isinstance(result, Failure):
            result = self._gaveUp(result, sending)
        else:
            sending.result = result
        for hook in self._hooks:
            self._show(hook, hook.afterSend, sending)
        self._over()
        return result

    def _gaveUp(self, failure: Failure, sending: Sending) -> SendResult | Failure:
        error = failure.value
        # What cannot be sent was not, and what else is raised is somebody's bug or wish.
        if isinstance(error, RocketError) and not isinstance(error, InvalidMessage):
            if sending.result is not None:
                # Another broker was to have it as well, and one has it.
                return sending.result
            elapsed = self._clock.seconds() - sending.began
            error = SendFailed(sending.topic, error, sending.address, sending.attempts, elapsed)
            failure = Failure(error)
        sending.error = error
        return failure

    def _show(
        self, hook: ISendMessageHook, look: Callable[[Sending], None], sending: Sending
    ) -> None:
        try:
            look(sending)
        except Exception:
            self._log.failure(
                "Hook {name} failed of a message to {topic}", name=hook.name, topic=sending.topic
            )

    def _over(self) -> None:
        self._underWay -= 1
        while self._drained and not self._underWay:
            self._drained.pop().callback(None)

    def _route(self, sending: Sending) -> Deferred[Route]:
        topic = sending.topic
        self._topics[topic] = None
        known = self._routes.get(topic)
        if known is not None and known.writeQueues:
            return succeed(known)

        def inherit(failure: Failure) -> Deferred[Route]:
            failure.trap(TopicNotExist)

            def missing(inherited: Failure) -> Failure:
                return failure if inherited.check(TopicNotExist) else inherited

            return self._routes.inherit(topic, self._queues).addErrback(missing)

        # One that has no queues may have some by now.
        return self._inTime(self._routes.refresh(topic).addErrback(inherit), sending)

    def _inTime(self, found: Deferred[Route], sending: Sending) -> Deferred[Route]:
        """
        A route, if it comes before the message's time is over.
        """

        def late(result: Any, after: float) -> Failure:
            said = f"no name server told the route of {sending.topic} within {after:g} s"
            return Failure(RequestTimedOut("", said))

        left = max(0.0, sending.deadline - self._clock.seconds())
        return found.addTimeout(left, self._clock, onTimeoutCancel=late)

    # Whatever follows ends with _done, which each attempt calls itself if it is the last:
    # to add it to the Deferred of each message would cost a microsecond.

    def _attemptOn(self, found: Deferred[Route], sending: Sending) -> Deferred[Any]:
        args = (sending,)
        return found.addCallbacks(self._attempt, self._done, callbackArgs=args, errbackArgs=args)

    def _attempt(self, route: Route, sending: Sending) -> Deferred[Any]:
        began = self._clock.seconds()
        left = sending.deadline - began
        peers = self.cluster.peers
        try:
            if left <= 0:
                raise RequestTimedOut("", "no time was left to send it")
            request = self._request(sending, route)
            if request is None:
                return self._seek(sending)
        except Exception:
            return fail().addErrback(self._done, sending)
        if sending.oneway:
            return peers.oneway(sending.address, request, left).addBoth(self._done, sending)
        args = sending, began
        return peers.request(sending.address, request, left).addCallbacks(
            self._answered, self._unanswered, callbackArgs=args, errbackArgs=args
        )

    def _request(self, sending: Sending, route: Route) -> RemotingCommand | None:
        """
        The next request for a message; L{None} if the broker that it is for is not
        known.
        """
        failed = sending.queue.brokerName if sending.attempts and sending.queue else None
        if not sending.fixed:
            sending.queue = self._choose(sending, route, failed)
        queue = sending.queue
        assert queue is not None
        sending.attempts += 1
        sending.address = self._routes.address(queue.brokerName) or ""
        if not sending.address:
            return None
        born = int(sending.began * 1000)
        return sending.request(self.group, queue, self._queues, born, oneway=sending.oneway)

    def _seek(self, sending: Sending) -> Deferred[Any]:
        """
        Find the broker of a queue, which is in no route that is known.
        """
        assert sending.queue is not None
        error = ConnectFailed("", f"no master of broker {sending.queue.brokerName} is known")

        def unanswered(failure: Failure) -> None:
            failure.trap(RocketError)

        sought = self._inTime(self._routes.refresh(sending.topic), sending)
        return sought.addErrback(unanswered).addCallbacks(
            lambda found: self._again(error, sending), self._done, errbackArgs=(sending,)
        )

    def _choose(self, sending: Sending, route: Route, failed: str | None) -> MessageQueue:
        queues = route.writeQueues
        if not queues:
            raise TopicNotExist(f"topic {sending.topic} has no queue that can be written to")
        if sending.selector is not None:
            message = sending.message
            assert isinstance(message, Message)
            return sending.selector(queues, message, sending.key)
        self._turn += 1
        if self._faults is not None:
            return self._faults.select(queues, self._turn, self.cluster.now())
        if failed is None:
            return queues[self._turn % len(queues)]
        queue = inTurn(queues, self._turn, failed)
        # It counts on over those that were left out: all after them get their share.
        self._turn += (queues.index(queue) - self._turn) % len(queues)
        return queue

    def _answered(self, response: RemotingCommand, sending: Sending, began: float) -> Any:
        queue = sending.queue
        assert queue is not None
        refused: ResponseError | None = None
        try:
            result = sending.resultOf(response, queue, sending.address)
        except ResponseError as error:
            refused = error
        except ProtocolError:
            return self._done(Failure(), sending)
        if self._faults is not None:
            self._note(queue, began, failed=refused is not None)
        if refused is not None:
            return self._again(refused, sending)
        route = self._routes.get(sending.topic)
        if route is not None and route.inherited:
            # It has come into being with this message.
            self._refresh(sending.topic)
        if result.sendStatus is not _SEND_OK and self._mayGoElsewhere(sending):
            sending.result = result
            return self._retry(sending, responseError(response.code, response.remark))
        return self._done(result, sending)

    def _mayGoElsewhere(self, sending: Sending) -> bool:
        chosen = sending.fixed or sending.selector is not None
        return self._retryNotStored and not chosen and self._mayRetry(sending)

    def _unanswered(self, failure: Failure, sending: Sending, began: float) -> Any:
        error = failure.value
        if not isinstance(error, RocketError):
            return self._done(failure, sending)
        assert sending.queue is not None
        if self._faults is not None:
            self._note(sending.queue, began, failed=True)
        # The broker may have moved, or be gone.
        self._refresh(sending.topic)
        return self._again(error, sending)

    def _refresh(self, topic: str) -> None:
        # A failure leaves things as they were.
        self._routes.refresh(topic).addErrback(lambda failure: failure.trap(RocketError))

    def _note(self, queue: MessageQueue, began: float, *, failed: bool) -> None:
        assert self._faults is not None
        latency = int((self._clock.seconds() - began) * 1000)
        self._faults.note(queue.brokerName, latency, self.cluster.now(), failed=failed)

    def _mayRetry(self, sending: Sending) -> bool:
        # What nobody waits for is not worth a second attempt.
        retries = 0 if sending.oneway else self._retries
        return sending.attempts <= retries and self._clock.seconds() < sending.deadline

    def _again(self, error: RocketError, sending: Sending) -> Any:
        if not error.retriable or not self._mayRetry(sending):
            return self._done(Failure(error), sending)
        return self._retry(sending, error)

    def _retry(self, sending: Sending, error: RocketError) -> Deferred[Any]:
        self._log.info(
            "Sending to topic {topic} again after attempt {attempts}: {error}",
            topic=sending.topic,
            attempts=sending.attempts,
            error=error,
        )

        def nowhere(failure: Failure) -> Route:
            failure.trap(RocketError)
            # There is no other attempt, so the last one's failure is the message's.
            raise error

        return self._attemptOn(self._route(sending).addErrback(nowhere), sending)


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
