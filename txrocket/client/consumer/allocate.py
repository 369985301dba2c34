# SPDX-License-Identifier: Apache-2.0
"""
How the queues of a topic are divided among the members of a consumer group.

Every member computes its own share from the same sorted lists of queues and members.
All compute alike, so no two members take one queue.  Java's clients may be members, so
each strategy has the result of its class in
C{org.apache.rocketmq.client.consumer.rebalance}::

    seven queues         q0 q1 q2 q3 q4 q5 q6
    averagely            A  A  A  B  B  C  C
    averagelyByCircle    A  B  C  A  B  C  A
    byConfig             each has its own
    byMachineRoom        as averagely, but the rest at the end: A A B B C C A;
                         only queues in some rooms, and no member has the others
    nearby               those in a room with members to these, the others to all
    consistentHash       whoever follows on a ring: when one leaves, only its
                         queues move

Any function of this form is a strategy.  All members of a group must use the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5
from typing import Final, TypeAlias, TypeVar

import attrs
from twisted.logger import Logger

from txrocket.client.sansio.queueselector import roomOf
from txrocket.errors import AssignFailed, ConfigError
from txrocket.model import MessageQueue

__all__ = [
    "Assign",
    "Strategy",
    "averagely",
    "averagelyByCircle",
    "byConfig",
    "byMachineRoom",
    "consistentHash",
    "nearby",
]

#: The group, this member's client id, the queues and the client ids of all members,
#: both sorted, to this member's queues.
Assign: TypeAlias = Callable[
    [str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]

_Placed = TypeVar("_Placed", MessageQueue, str)

_log = Logger()


@attrs.frozen
class Strategy:
    """
    A strategy that has a name.

    @ivar strategyName: as Java's C{getName} gives it.
    """

    strategyName: str
    _assign: Assign = attrs.field(repr=False)

    def __call__(
        self,
        group: str,
        clientId: str,
        queues: Sequence[MessageQueue],
        clientIds: Sequence[str],
    ) -> Sequence[MessageQueue]:
        """
        Which queues a member gets.

        @param queues: of a topic, sorted.
        @param clientIds: of all members, sorted, each once.
        @return: nothing if the client is not among the members.
        @raise AssignFailed: if there is no queue or no member, or the client id is
            empty.
        """
        return self._assign(group, clientId, queues, clientIds)


def _checked(divide: Assign) -> Assign:
    """
    A strategy, preceded by what Java checks in C{AbstractAllocateMessageQueueStrategy}.
    """

    def assign(
        group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
    ) -> Sequence[MessageQueue]:
        for given, missing in ((clientId, "client id"), (queues, "queue"), (clientIds, "member")):
            if not given:
                raise AssignFailed(f"dividing queues in group {group}: there is no {missing}")
        if clientId not in clientIds:
            # So it is until a broker has heard of a member that has just come.
            _log.info(
                "{clientId} is not among the {count} members of group {group}: it gets no queue",
                clientId=clientId,
                count=len(clientIds),
                group=group,
            )
            return ()
        return divide(group, clientId, queues, clientIds)

    return assign


def _averagely(
    group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
) -> Sequence[MessageQueue]:
    index = clientIds.index(clientId)
    each, rest = divmod(len(queues), len(clientIds))
    start = index * each + min(index, rest)
    return queues[start : start + each + (index < rest)]


def _byCircle(
    group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
) -> Sequence[MessageQueue]:
    return queues[clientIds.index(clientId) :: len(clientIds)]


#: Neighbouring queues to each, the first members one more where they do not come out
#: even.
averagely: Final = Strategy("AVG", _checked(_averagely))

#: Queues one by one to each in turn.
averagelyByCircle: Final = Strategy("AVG_BY_CIRCLE", _checked(_byCircle))


def byConfig(queues: Iterable[MessageQueue]) -> Strategy:
    """
    Always the same queues, whatever members and queues there are.
    """
    configured = tuple(queues)
    return Strategy("CONFIG", lambda group, clientId, queues, clientIds: configured)


def byMachineRoom(rooms: Collection[str]) -> Strategy:
    """
    The queues in some machine rooms, of brokers that are named C{room@name}.
    No member gets the others.
    """
    wanted = frozenset(rooms)

    def divide(
        group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
    ) -> Sequence[MessageQueue]:
        index = clientIds.index(clientId)
        near = [queue for queue in queues if roomOf(queue.brokerName) in wanted]
        each = len(near) // len(clientIds)
        over = each * len(clientIds) + index
        return near[index * each : (index + 1) * each] + near[over : over + 1]

    return Strategy("MACHINE_ROOM", _checked(divide))


def nearby(
    within: Strategy,
    brokerRoom: Callable[[MessageQueue], str],
    clientRoom: Callable[[str], str],
) -> Strategy:
    """
    The queues of a machine room to the members in it, and those of a room without
    members to all.

    @param within: divides the queues of one room.
    @param brokerRoom: in which room a queue is.
    @param clientRoom: in which room a client id is.
    @return: a strategy that raises L{AssignFailed} also if a room is empty.
    """

    def divide(
        group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
    ) -> Sequence[MessageQueue]:
        queuesIn = _grouped(queues, brokerRoom)
        clientsIn = _grouped(clientIds, clientRoom)
        own = clientRoom(clientId)
        got: list[MessageQueue] = []
        if own in queuesIn:
            got += within(group, clientId, queuesIn[own], clientsIn[own])
        for room in sorted(queuesIn.keys() - clientsIn.keys()):
            got += within(group, clientId, queuesIn[room], clientIds)
        return got

    return Strategy(f"MACHINE_ROOM_NEARBY-{within.strategyName}", _checked(divide))


def _grouped(
    members: Iterable[_Placed], roomOf: Callable[[_Placed], str]
) -> dict[str, list[_Placed]]:
    grouped: dict[str, list[_Placed]] = {}
    for each in members:
        room = roomOf(each)
        if not room:
            raise AssignFailed(f"{each} is in no machine room")
        grouped.setdefault(room, []).append(each)
    return grouped


def _hash(text: str) -> int:
    # The first 32 bits, and "?" where Java has it: neither is there for safety.
    digest = md5(text.encode(errors="replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _ring(clientIds: Iterable[str], virtualNodes: int) -> dict[int, str]:
    ring: dict[int, str] = {}
    seen: set[str] = set()
    for clientId in clientIds:
        # One that is connected twice gets more places, as Java has it.
        first = sum(each == clientId for each in ring.values()) if clientId in seen else 0
        seen.add(clientId)
        for number in range(first, first + virtualNodes):
            ring[_hash(f"{clientId}-{number}")] = clientId
    return ring


def consistentHash(virtualNodes: int = 10) -> Strategy:
    """
    Each queue to the member that follows it on a ring of hashes (C{ConsistentHashRouter}).

    @param virtualNodes: in how many places of the ring each member stands: the more,
        the more evenly queues are spread.
    @raise ConfigError: if it stands in none.
    """
    if virtualNodes < 1:
        raise ConfigError(f"virtualNodes: at least 1 was expected, not {virtualNodes}")

    def divide(
        group: str, clientId: str, queues: Sequence[MessageQueue], clientIds: Sequence[str]
    ) -> Sequence[MessageQueue]:
        ring = _ring(clientIds, virtualNodes)
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            # Java's MessageQueue.toString.
            place = bisect_left(
                places,
                _hash(
                    f"MessageQueue [topic={queue.topic}, brokerName={queue.brokerName},"
                    f" queueId={queue.queueId}]"
                ),
            )
            return ring[places[place % len(places)]]

        return [queue for queue in queues if owner(queue) == clientId]

    return Strategy("CONSISTENT_HASH", _checked(divide))
