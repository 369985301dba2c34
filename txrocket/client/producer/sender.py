# SPDX-License-Identifier: Apache-2.0
"""
The road of every send; C{sendDefaultImpl}, C{sendKernelImpl} and C{onExceptionImpl} of
Java's producers::

    check --> route known? --> queue --> encode --> post ~~> answer --> SendResult
                  |              ^                             |
               refresh           |   refused or lost; retriable, time left:
                                 +---- at another broker, if there is one

A message is one L{PendingSend<txrocket.client.producer.pendingsend.PendingSend>} from its
first attempt to its last.  Sends are pipelined: a send does not wait for the answer to the
one before it.

An error that another attempt would not cure ends the send at once: see C{retriable} of
L{RocketError}.  All attempts together have one time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.producer.options import ProducerOptions
from txrocket.client.producer.pendingsend import InFlight, PendingSend
from txrocket.client.producer.sendcontext import SendWatch
from txrocket.client.producer.sendtargets import SendTarget, SendTargets
from txrocket.client.routes import Route
from txrocket.client.sansio.queueselector import Selector, byHash
from txrocket.client.sansio.results import SendStatus
from txrocket.client.sansio.sendrequest import SendRequest
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
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.names import checkSendTopic

__all__ = ["MessageSender"]

_Awaited = TypeVar("_Awaited")

# To look up a member of an enumeration takes as long as a call.
_SEND_OK: Final = SendStatus.SEND_OK

# For how many seconds not to ask the system for the time of day again; see hotpath: send.
_WALL_INTERVAL: Final = 0.01


class MessageSender:
    """
    Sends messages, and tries again.

    @ivar topics: the topics whose routes the producer needs.
    @ivar inFlight: counts the sends that have not ended.
    @ivar stop: ends the questions for routes that are asked on behalf of sends that are over.
    """

    _log = Logger()

    def __init__(self, cluster: Cluster, group: str, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._group = group
        self._options = options
        self._routes = cluster.routes
        self._clock = cluster.reactor
        self._wall = cluster.wall
        self._uniqueId = cluster.uniqueId
        self._frameLimit = cluster.remoting.limits.frame
        self.inFlight = InFlight()
        # What the time of day is ahead of the reactor's clock, and until when to believe it.
        self._wallAhead = self._wallUntil = 0.0
        self._targets = SendTargets(cluster, group, options)
        self.topics = self._targets.topics
        self.stop = self._targets.newTopics.stop
        self._watch = SendWatch(options.hooks)
        # Whether the first attempt goes to the next queue, and no hook is to see it.
        self._inTurn = options.faults is None and not options.hooks

    # --- beginning -------------------------------------------------------

    def send(
        self,
        message: Any,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: Any = None,
        *,
        oneway: bool = False,
        batch: SendRequest | None = None,
    ) -> PendingSend:
        """
        Send a message, or a batch.

        @param message: a L{Message}; of a batch, the messages.
        @param timeout: in seconds, in place of the producer's.
        @param selector: chooses the queue; L{byHash} if only a key is given.
        @param batch: the messages as one request, as L{batch} gives it.
        @return: a Deferred that fails with L{SendFailed}.
        @raise InvalidMessage: if the message cannot be sent.
        """
        options, known = self._options, self._targets
        sending: PendingSend = PendingSend(self._cancel)
        sending.sender = self
        sending.message = message
        sending.timeout = timeout = options.timeout if timeout is None else timeout
        sending.began = began = self._clock.seconds()
        sending.deadline = began + timeout
        if began >= self._wallUntil:
            self._wallAhead = self._wall() - began
            self._wallUntil = began + _WALL_INTERVAL
        sending.born = born = int((began + self._wallAhead) * 1000)
        if batch is None:
            sending.topic = topic = message.topic
            targets = known.byTopic.get(topic)
            if targets is None:
                checkSendTopic(topic)
            msgId = self._uniqueId.at(born)
            sending.take(message, msgId, options.compressOver, options.maxMessageSize)
        else:
            sending.copy(batch)
            targets = known.byTopic.get(batch.topic)
        self.inFlight.count += 1
        chosen = queue is not None or selector is not None or key is not None
        fresh = known.version == self._routes.version
        if targets and fresh and self._inTurn and not chosen and not oneway and timeout > 0:
            known.turn = turn = known.turn + 1
            sending.attempts = 1
            self._post(sending, targets[turn % len(targets)])
        else:
            sending.oneway = oneway
            if chosen:
                sending.chosen = True
                sending.queue, sending.selector, sending.key = queue, selector or byHash, key
            self._begin(sending, fresh=fresh)
        return sending

    def _begin(self, sending: PendingSend, *, fresh: bool) -> None:
        """
        Make the first attempt, once hooks have seen the message and its route is known.
        """
        if self._options.hooks:
            self._watch.before(sending)
        route = self._routes.get(sending.topic)
        if fresh and route is not None and sending.topic in self._targets.byTopic:
            self._attempt(sending, route)
        else:
            self._await(sending, self._targets.route(sending), self._attempt)

    def batch(self, messages: Sequence[Message]) -> SendRequest:
        """
        Messages of one topic as one request.

        @raise InvalidMessage: if they cannot be sent, or not together.
        """
        request = SendRequest(messages[0].topic)
        request.takeBatch(messages, self._uniqueId, self._options.maxMessageSize)
        return request

    def _await(
        self,
        sending: PendingSend,
        awaited: Deferred[_Awaited],
        then: Callable[[PendingSend, _Awaited], None],
    ) -> None:
        """
        Go on with a send once a Deferred has fired; end the send if that fails.  To cancel
        the send cancels the Deferred.
        """

        def fired(result: _Awaited | Failure) -> None:
            sending.waiting = None
            if isinstance(result, Failure):
                self._end(sending, result)
            else:
                then(sending, result)

        sending.waiting = awaited
        awaited.addBoth(fired)

    # --- one attempt -----------------------------------------------------

    def _attempt(self, sending: PendingSend, route: Route) -> None:
        sending.timeout = sending.deadline - self._clock.seconds()
        try:
            if sending.timeout <= 0:
                raise RequestTimedOut("", "no time was left to send it")
            target = self._targets.choose(sending, self._targets.of(route))
        except Exception:
            self._end(sending, Failure())
            return
        sending.attempts += 1
        if sending.oneway:
            sending.target = target
            self._ask(sending, target)
        else:
            self._post(sending, target)

    def _post(self, sending: PendingSend, target: SendTarget) -> None:
        """
        Encode the request of an attempt, and give it to the connection.
        """
        try:
            sending.target = target
            protocol = target.protocol
            opaque = -1 if protocol is None else protocol.outbox.reserve()
            if protocol is None or opaque < 0:
                self._ask(sending, target)
                return
            sending.opaque = opaque
            head = sending.encodeHead(target.template, opaque, self._frameLimit)
            if head is None:
                request = self._request(sending, target)
                request.opaque = opaque
                sending.code = request.code
                head = request.encodeHead(self._frameLimit)
            protocol.outbox.post(sending, head, sending.body)
        except Exception:
            self._end(sending, Failure())

    def _request(self, sending: PendingSend, target: SendTarget) -> RemotingCommand:
        queues = self._options.defaultTopicQueueNums
        return sending.request(
            self._group, target.queue, queues, sending.born, oneway=sending.oneway
        )

    def _ask(self, sending: PendingSend, target: SendTarget) -> None:
        """
        Send the request of an attempt by L{Peers<txrocket.remoting.peers.Peers>}, because
        there is no connection yet, or the connection's hooks are to see the request, or no
        answer is awaited.
        """
        address, peers, left = target.address, self._cluster.peers, sending.timeout
        if not address:
            self._seek(sending, target)
            return
        request = self._request(sending, target)
        if sending.oneway:
            self._await(sending, peers.oneway(address, request, left), self._end)
            return

        def fired(result: RemotingCommand | Failure) -> None:
            sending.waiting = None
            # For the next message.
            target.protocol = peers.up(address)
            if isinstance(result, Failure):
                self.unanswered(sending, result)
            else:
                self.answered(sending, result)

        sending.waiting = peers.request(address, request, left)
        target.protocol = peers.up(address)
        sending.waiting.addBoth(fired)

    def _seek(self, sending: PendingSend, target: SendTarget) -> None:
        """
        Ask for the route again, because the broker of the queue is in no known route.
        """
        error = ConnectFailed("", f"no master of broker {target.queue.brokerName} is known")
        found = self._targets.seek(sending)
        self._await(sending, found, lambda sending, route: self._again(sending, error))

    # --- outcomes --------------------------------------------------------

    def answered(self, sending: PendingSend, response: RemotingCommand) -> None:
        """
        A broker has answered the last attempt.
        """
        target = sending.target
        assert target is not None
        try:
            result = sending.resultOf(response, target.queue, target.address)
        except ResponseError as error:
            self._failed(sending, error)
            return
        except ProtocolError:
            self._end(sending, Failure())
            return
        if self._options.faults is not None:
            self._addLatency(sending, failed=False)
        if target.inherited:
            # The broker has created the topic with this message.
            self._targets.newTopics.created(sending.topic, sending.deadline)
        if result.sendStatus is not _SEND_OK and self._mayGoElsewhere(sending):
            sending.stored = result
            self._retry(sending, responseError(response.code, response.remark))
        elif sending.context is not None:
            self._end(sending, result)
        else:
            self.inFlight.over()
            sending.callback(result)

    def unanswered(self, sending: PendingSend, failure: Failure) -> None:
        """
        No answer to the last attempt will come.
        """
        error = failure.value
        if isinstance(error, RocketError):
            self._failed(sending, error)
        else:
            self._end(sending, failure)

    def _failed(self, sending: PendingSend, error: RocketError) -> None:
        target = sending.target
        assert target is not None
        if self._options.faults is not None:
            self._addLatency(sending, failed=True)
        denied = isinstance(error, TopicNotExist)
        if denied or isinstance(error, ServiceNotAvailable) or not isinstance(error, ResponseError):
            # The broker may have moved, be gone, or be a slave now.
            self._routes.doubt(sending.topic, target.queue.brokerName, denied=denied)
        self._again(sending, error)

    def _addLatency(self, sending: PendingSend, *, failed: bool) -> None:
        faults, target = self._options.faults, sending.target
        assert faults is not None and target is not None
        now = self._clock.seconds()
        latency = int((now - sending.deadline + sending.timeout) * 1000)
        faults.add(target.queue.brokerName, latency, int(now * 1000), failed=failed)

    def _mayRetry(self, sending: PendingSend) -> bool:
        # A oneway send promises nothing.
        retries = 0 if sending.oneway else self._options.retries
        return sending.attempts <= retries and self._clock.seconds() < sending.deadline

    def _mayGoElsewhere(self, sending: PendingSend) -> bool:
        return self._options.retryNotStored and not sending.chosen and self._mayRetry(sending)

    def _again(self, sending: PendingSend, error: RocketError) -> None:
        if error.retriable and self._mayRetry(sending):
            self._retry(sending, error)
        else:
            self._end(sending, Failure(error))

    def _retry(self, sending: PendingSend, error: RocketError) -> None:
        self._log.info(
            "Sending to topic {topic} again after attempt {attempts}: {error}",
            topic=sending.topic,
            attempts=sending.attempts,
            error=error,
        )

        def noRoute(failure: Failure) -> Route:
            failure.trap(RocketError)
            # There is no other attempt, so the send fails as the last one did.
            raise error

        self._await(sending, self._targets.route(sending).addErrback(noRoute), self._attempt)

    def _end(self, sending: PendingSend, result: Any) -> None:
        """
        The last attempt is over, or there was none.

        @param result: a L{SendResult}, L{None} of a oneway send, or a L{Failure}.
        """
        if sending.called:
            return
        if isinstance(result, Failure):
            result = self._failure(sending, result)
        if sending.context is not None:
            self._watch.after(sending, sending.context, result)
        self.inFlight.over()
        sending.callback(result)

    def _failure(self, sending: PendingSend, failure: Failure) -> Any:
        error = failure.value
        # An InvalidMessage was never sent, and other exceptions are bugs or cancellations.
        if not isinstance(error, RocketError) or isinstance(error, InvalidMessage):
            return failure
        if sending.stored is not None:
            # Another broker was to have the message as well, but one has it.
            return sending.stored
        elapsed = self._clock.seconds() - sending.began
        address = "" if sending.target is None else sending.target.address
        return Failure(SendFailed(sending.topic, error, address, sending.attempts, elapsed))

    def _cancel(self, cancelled: Deferred[Any]) -> None:
        assert isinstance(cancelled, PendingSend)
        if cancelled.waiting is not None:
            cancelled.waiting.cancel()
        elif cancelled.target is not None and cancelled.target.protocol is not None:
            # If the connection is another one by now, the table that had it is gone.
            cancelled.target.protocol.responseTable.forget(cancelled)
        self._end(cancelled, Failure(CancelledError()))
