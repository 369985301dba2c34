# SPDX-License-Identifier: Apache-2.0
"""
Each queue of a topic visited from time to time; Java's
C{MQPullConsumerScheduleService}::

    async def visit(queue, consumer):
        offset = await consumer.fetchOffset(queue) or 0
        result = await consumer.pull(queue, offset)
        ...
        consumer.updateOffset(queue, result.nextBeginOffset)
        return 0 if result.messages else 1.0

    schedule = PullSchedule(PullConsumer(cluster, "audit"))
    schedule.register("Orders", visit)
    await schedule.start()

The queues are divided among the members of the group, and one that is lost is not
visited any more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.memberservice import MemberService
from txrocket.errors import ServiceNotAvailable
from txrocket.model import MessageQueue

__all__ = ["PullSchedule", "PullTask"]

#: Visits a queue: after how many seconds next, 0.2 if it returns L{None}.  May return
#: a Deferred, or be an C{async def}.
PullTask: TypeAlias = Callable[[MessageQueue, PullConsumer], Any]

# In seconds: Java's pullNextDelayTimeMillis, and what follows a task that failed.
_AFTER: Final = 0.2
_AFTER_FAILURE: Final = 1.0


class PullSchedule(MemberService):
    """
    Visits queues.
    """

    _log = Logger()

    def __init__(self, consumer: PullConsumer) -> None:
        """
        @param consumer: is started and stopped with this.
        """
        self._consumer = consumer
        self._clock = consumer.cluster.reactor
        self._tasks: dict[str, PullTask] = {}
        self._due: dict[MessageQueue, IDelayedCall] = {}
        self._mine: set[MessageQueue] = set()
        self._visits: set[MessageQueue] = set()
        self._drained: list[Deferred[None]] = []

    def register(self, topic: str, task: PullTask) -> None:
        """
        Have each queue of a topic visited.  May be called before and after the
        start.

        @raise InvalidMessage: if the topic's name is not valid.
        """
        self._consumer.listen(topic, self._changed)
        self._tasks[topic] = task

    # --- life ------------------------------------------------------------

    def startService(self) -> None:
        """
        Begin.

        @raise ConfigError: if the cluster has a consumer of this group already.
        """
        self._consumer.startService()
        super().startService()

    @inlineCallbacks
    def _shutDown(self, within: float) -> Generator[Deferred[Any], Any, None]:
        """
        Begin no more visits, wait for those that run, and leave.
        """
        for call in self._due.values():
            call.cancel()
        self._due.clear()
        self._mine.clear()
        if self._visits:
            drained: Deferred[None] = Deferred()
            self._drained.append(drained)
            yield drained.addTimeout(within, self._clock).addErrback(self._notDrained)
        yield self._consumer.stop(within)

    def _notDrained(self, failure: Failure) -> None:
        self._log.warn(
            "Consumer {group} stops while {count} queues are visited",
            group=self._consumer.group,
            count=len(self._visits),
        )

    # --- visits ----------------------------------------------------------

    def _changed(
        self, topic: str, added: Sequence[MessageQueue], removed: Sequence[MessageQueue]
    ) -> None:
        self._mine.difference_update(removed)
        self._mine.update(added)
        for queue in removed:
            call = self._due.pop(queue, None)
            if call is not None:
                call.cancel()
        for queue in added:
            # The visit to a queue that was lost and has come back may still run.
            if queue not in self._visits:
                self._visitAfter(queue, 0)

    def _visitAfter(self, queue: MessageQueue, seconds: float) -> None:
        self._due[queue] = self._clock.callLater(seconds, self._visit, queue)

    def _visit(self, queue: MessageQueue) -> None:
        del self._due[queue]
        self._visits.add(queue)
        task = self._tasks[queue.topic]
        visited = maybeDeferred(_call, task, queue, self._consumer)
        visited.addErrback(self._failed, queue).addCallback(self._visited, queue)

    def _failed(self, failure: Failure, queue: MessageQueue) -> float:
        # Its consumer was stopped under it.
        if self.running or not failure.check(ServiceNotAvailable):
            self._log.failure("The visit to {queue} failed", failure, queue=queue)
        return _AFTER_FAILURE

    def _visited(self, seconds: float | None, queue: MessageQueue) -> None:
        self._visits.remove(queue)
        if self.running and queue in self._mine:
            self._visitAfter(queue, _AFTER if seconds is None else seconds)
        while self._drained and not self._visits:
            self._drained.pop().callback(None)


def _call(task: PullTask, queue: MessageQueue, consumer: PullConsumer) -> Any:
    result = task(queue, consumer)
    return Deferred.fromCoroutine(result) if inspect.iscoroutine(result) else result
