# SPDX-License-Identifier: Apache-2.0
"""
Sending a message as often as it takes; C{sendDefaultImpl} and C{onExceptionImpl} of
Java's producers::

    route known? --> queue --> request --> SendResult
         |             ^          |
      ask for it       |   failed, may be tried again, time left:
                       +---- at another broker, if there is one

An error that another attempt would not cure ends it at once: see C{retriable} of
L{RocketError}.  All attempts together have one time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.cluster import Cluster
from txrocket.client.queues import FaultTable, inTurn
from txrocket.client.results import SendResult, SendStatus
from txrocket.client.routes import Route
from txrocket.client.sending import ISendMessageHook, Sending, UnderWay
from txrocket.errors import (
    ConnectFailed,
    InvalidMessage,
    ProtocolError,
    RequestTimedOut,
    ResponseError,
    RocketError,
    SendFailed,
    TopicNotExist,
    responseError,
)
from txrocket.message import Message
from txrocket.model import MessageQueue
from txrocket.protocol.command import RemotingCommand

__all__ = ["Attempts"]

# To look up a member of an enumeration takes as long as a call.
_SEND_OK: Final = SendStatus.SEND_OK


class Attempts:
    """
    Sends messages.

    @ivar turn: a number that says which queue had its turn last.
    @ivar topics: those that messages were sent to.
    @ivar underWay: the messages that are not sent yet.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        retries: int,
        queues: int,
        retryNotStored: bool,
        faults: FaultTable | None,
        hooks: Sequence[ISendMessageHook],
    ) -> None:
        """
        @param group: the producer's.
        @param retries: how often a message is tried again.
        @param queues: how many queues a topic gets at each broker if it is not there
            yet.
        @param retryNotStored: whether to try another broker if one has the message
            but says that it is not as safe as it should be.
        @param faults: keeps away from brokers that are slow, if given.
        """
        self._cluster = cluster
        self._group = group
        self._retries = retries
        self._queues = queues
        self._retryNotStored = retryNotStored
        self._faults = faults
        self._hooks = hooks
        self._routes = cluster.routes
        self._clock = cluster.reactor
        self.turn = cluster.choose(2**31)
        self.topics: dict[str, None] = {}
        self.underWay = UnderWay()

    def send(self, sending: Sending) -> Deferred[Any]:
        """
        Send a message.

        @return: a Deferred of the L{SendResult}, or of L{None} if nobody waits for an
            answer; it fails with L{SendFailed}.
        """
        sending.began = self._clock.seconds()
        sending.born = self._cluster.now()
        sending.deadline = sending.began + sending.timeout
        for hook in self._hooks:
            self._show(hook, hook.beforeSend, sending)
        self.underWay.count += 1
        route = self._routes.get(sending.topic)
        if route is not None and route.writeQueues and sending.topic in self.topics:
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
        self.underWay.over()
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

    def _route(self, sending: Sending) -> Deferred[Route]:
        topic = sending.topic
        self.topics[topic] = None
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
        peers = self._cluster.peers
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
            self.answered, self.unanswered, callbackArgs=args, errbackArgs=args
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
        return sending.request(
            self._group, queue, self._queues, sending.born, oneway=sending.oneway
        )

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
        self.turn += 1
        if self._faults is not None:
            return self._faults.select(queues, self.turn, int(self._clock.seconds() * 1000))
        if failed is None:
            return queues[self.turn % len(queues)]
        queue = inTurn(queues, self.turn, failed)
        # It counts on over those that were left out: all after them get their share.
        self.turn += (queues.index(queue) - self.turn) % len(queues)
        return queue

    def answered(self, response: RemotingCommand, sending: Sending, began: float) -> Any:
        """
        A broker has answered a message's last attempt.

        @param began: when that began, in seconds.
        @return: what became of the message, or a Deferred of that.
        """
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
            if isinstance(refused, TopicNotExist):
                self._routes.doubt(sending.topic, queue.brokerName, denied=True)
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

    def unanswered(self, failure: Failure, sending: Sending, began: float) -> Any:
        """
        The same, if no answer came.
        """
        error = failure.value
        if not isinstance(error, RocketError):
            return self._done(failure, sending)
        assert sending.queue is not None
        if self._faults is not None:
            self._note(sending.queue, began, failed=True)
        # The broker may have moved, or be gone.
        self._routes.doubt(sending.topic, sending.queue.brokerName, denied=False)
        return self._again(error, sending)

    def _refresh(self, topic: str) -> None:
        # A failure leaves things as they were.
        self._routes.refresh(topic).addErrback(lambda failure: failure.trap(RocketError))

    def _note(self, queue: MessageQueue, began: float, *, failed: bool) -> None:
        assert self._faults is not None
        now = self._clock.seconds()
        latency = int((now - began) * 1000)
        self._faults.note(queue.brokerName, latency, int(now * 1000), failed=failed)

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
