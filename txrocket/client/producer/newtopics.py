# SPDX-License-Identifier: Apache-2.0
"""
Topics that a producer's first message has created, until the client knows their routes::

    send answered --> ask the name server --> route: all members of the client are told
                          ^        | not known there yet, or no answer
                          +- pause + 10 ms, 20 ms, 40 ms ... as long as the send had time

The broker registers a new topic while the first message is on its way to the disk, so its
answer may come before the name servers know the topic.  The broker does not wait for them:
a name server that is down would make the first send time out, and a producer that sends again
stores the message twice.  Java's broker does not wait for their answers either, and clients
have to get along with it.

Without a question at that moment, the consumers of the same client would learn of the topic
with the next refresh of all routes, half a minute later.
"""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from txrocket.client.routes import Routes
from txrocket.errors import RocketError

__all__ = ["NewTopics"]

# Seconds between two questions: the first pause, and the longest.
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0


class _Search:
    """
    The questions for one topic.

    @ivar deadline: when the last question may be asked.
    @ivar call: the next question; L{None} while a question is open.
    """

    __slots__ = ("call", "deadline", "pause")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.pause = _FIRST_PAUSE
        self.call: IDelayedCall | None = None


class NewTopics:
    """
    Asks for the routes of topics that were just created.
    """

    def __init__(self, routes: Routes, clock: IReactorTime) -> None:
        self._routes = routes
        self._clock = clock
        self._searches: dict[str, _Search] = {}

    def created(self, topic: str, deadline: float) -> None:
        """
        Ask for a topic's route, now and until it is known.  All messages that have created
        the topic share the questions.

        @param deadline: until when, by the clock; one question is asked in any case.
        """
        search = self._searches.get(topic)
        if search is not None:
            search.deadline = max(search.deadline, deadline)
            return
        self._searches[topic] = _Search(deadline)
        self._ask(topic)

    def stop(self) -> None:
        """
        Ask no more.
        """
        searches, self._searches = self._searches, {}
        for search in searches.values():
            if search.call is not None:
                search.call.cancel()

    def _ask(self, topic: str) -> None:
        self._searches[topic].call = None
        asked = self._routes.refresh(topic)
        asked.addCallbacks(
            lambda route: self._searches.pop(topic, None), self._failed, errbackArgs=(topic,)
        )

    def _failed(self, failure: Failure, topic: str) -> None:
        # Until the next refresh of all routes, the inherited one serves.
        failure.trap(RocketError)
        search = self._searches.get(topic)
        if search is None:
            return
        if self._clock.seconds() + search.pause > search.deadline:
            del self._searches[topic]
            return
        search.call = self._clock.callLater(search.pause, self._ask, topic)
        search.pause = min(2 * search.pause, _LONGEST_PAUSE)
