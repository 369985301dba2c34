# SPDX-License-Identifier: Apache-2.0
"""
Who is connected to a broker: the producers and the consumers of each group;
Java's C{ProducerManager}, C{ConsumerManager} and C{ConsumerGroupInfo}.

Clients tell of themselves every 30 seconds.  One goes when it says so, when its
connection ends, or when it has not been heard of for 120 seconds.

The consumers of a group divide the queues among themselves, each by its own
reckoning, so all are told when one comes or goes or when the topics change that
the group subscribes to::

    heartbeat, unregister, lost, expired --> changed --> NOTIFY_CONSUMER_IDS_CHANGED
                                             (a turn)    to every member, oneway

A group has one subscription for each topic, whoever of its members told of it:
the one with the greatest C{subVersion}.  A topic that a heartbeat leaves out is
no longer subscribed to.  So members that do not want the same lose messages; that
is logged when it begins, when it changes and when it ends, and can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from txrocket.broker.differing import DifferingGroups, differencesOf
from txrocket.broker.members import (
    Client,
    Later,
    Member,
    MemberLimits,
    Members,
    Registry,
    atOnce,
)
from txrocket.broker.views import Views
from txrocket.errors import RemoteSystemError, RocketError
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from txrocket.protocol.bodies import (
    ConsumerConnection,
    ConsumerData,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from txrocket.protocol.inspection import DifferingConsumerConnection
from txrocket.protocol.javajson import Gradual
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["Client", "ConsumerGroup", "Consumers", "Producers"]


class _ProducerGroup(Members):
    """
    The producers of one group.

    @ivar turn: how often one of them was chosen.
    """

    turn = 0


# Groups that are told of at once.
_STEP: Final = 64


class Producers:
    """
    The connected producers.
    """

    def __init__(
        self,
        timeOf: Callable[[int], int] = lambda now: now,
        limits: MemberLimits | None = None,
        later: Later = atOnce,
    ) -> None:
        """
        @param timeOf: the time of day to show for a C{now} of L{register}, which is that
            of a clock which nobody can set.
        @param later: as in L{Registry}.
        """
        self._timeOf = timeOf
        self._registry = Registry(_ProducerGroup, lambda group: None, limits, later)

    def register(self, group: str, client: Client, now: int) -> None:
        """
        A client's heartbeat names a producer group.

        @param now: in milliseconds.
        @raise RemoteSystemError: if it is new there, and there is no room.
        """
        self._registry.join(group, client, now)

    def unregister(self, group: str, peer: RemotingProtocol) -> None:
        """
        The client on a connection gives a group up.
        """
        self._registry.leave(group, peer)

    def expire(self, now: int) -> Gradual[None]:
        """
        Forget the clients that were silent for too long; called every 10 seconds.
        """
        return self._registry.expire(now)

    def choose(self, group: str) -> RemotingProtocol | None:
        """
        The connection of one producer of a group, each in turn: to ask it about a
        transaction.

        @return: L{None} if there is none.
        """
        found = self._registry.groups.get(group)
        # One that is being dropped is still known until it is gone.
        peers = [each for each in found.byPeer if each.connected] if found else []
        if found is None or not peers:
            return None
        found.turn += 1
        return peers[found.turn % len(peers)]

    def find(self, clientId: str) -> RemotingProtocol | None:
        """
        The connection of a client that has a producer of any group: to bring it a
        reply.

        @return: L{None} if there is none.
        """
        return self._registry.find(clientId)

    def connection(self, group: str) -> ProducerConnection | None:
        """
        The producers of a group; L{None} if there are none.
        """
        found = self._registry.groups.get(group)
        return None if found is None else ProducerConnection(found.connections())

    def table(self) -> Gradual[ProducerTableInfo]:
        """
        All producers.
        """
        groups = list(self._registry.groups.items())
        table = {}
        for count, (name, group) in enumerate(groups, 1):
            table[name] = tuple(map(self._info, group.byId.values()))
            if count % _STEP == 0:
                yield
        return ProducerTableInfo(table)

    def _info(self, member: Member) -> ProducerInfo:
        client = member.client
        # As Java prints an address.
        address = f"/{client.peer.address}"
        heard = self._timeOf(member.heard)
        return ProducerInfo(client.clientId, address, client.language, client.version, heard)


class ConsumerGroup(Members):
    """
    The consumers of one group, and what they want as a group.  What the last
    heartbeat said is so for all of them.

    @ivar consumeType: whether they pull or are pushed to.
    @ivar messageModel: whether they broadcast or share.
    @ivar consumeFromWhere: where the group starts when it is new.
    @ivar subscriptions: topic to subscription.
    @ivar views: what each of them said itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.consumeType: ConsumeType | None = None
        self.messageModel: MessageModel | None = None
        self.consumeFromWhere: ConsumeFromWhere | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.views = Views()

    def remove(self, member: Member) -> None:
        """
        A member leaves.
        """
        super().remove(member)
        self.views.forget(member.client.clientId)

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """
        Take the subscriptions of a heartbeat for the group's.

        @return: whether there are other topics now.  A newer expression for a topic
            moves no queue from one consumer to another.
        """
        subscriptions = self.subscriptions
        topics = set()
        changed = False
        for each in wanted:
            topics.add(each.topic)
            known = subscriptions.get(each.topic)
            if known is None or each.subVersion > known.subVersion:
                subscriptions[each.topic] = each
                changed = changed or known is None
        for topic in subscriptions.keys() - topics:
            del subscriptions[topic]
            changed = True
        return changed


class Consumers:
    """
    The connected consumers.

    @ivar differing: the groups whose members have different subscriptions.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        notifies: Callable[[str], bool],
        now: Callable[[], int] | None = None,
        limits: MemberLimits | None = None,
        maxSubscriptions: int = 4_096,
        slices: Cooperator | None = None,
    ) -> None:
        """
        @param maxSubscriptions: to how many topics a member may subscribe,
            C{maxSubscriptionNumPerGroup}.
        @param slices: divides the time among work that takes long.
        @param notifies: whether a group's members are to be told of changes: its
            C{notifyConsumerIdsChangedEnable}, true for a group without a
            configuration, and the broker's own.
        @param now: the time of day in milliseconds, to be shown; without it, the clock's.
        """
        self._notifies = notifies
        self._maxSubscriptions = maxSubscriptions
        self._slices = slices or Cooperator(scheduler=lambda each: clock.callLater(0, each))
        self._registry = Registry(ConsumerGroup, self._changed, limits, self._slices.cooperate)
        # Groups whose members are told, and those that are looked at, when the turn ends.
        self._told: dict[str, None] = {}
        self._looked: dict[str, None] = {}
        self._telling = False
        self.differing = DifferingGroups(
            self._registry.groups, now or (lambda: int(clock.seconds() * 1000))
        )

    def register(self, data: ConsumerData, client: Client, now: int) -> bool:
        """
        A client's heartbeat names a consumer group and what it subscribes to.

        @param now: in milliseconds.
        @return: whether the group has changed.
        @raise RemoteSystemError: if it is new there, and there is no room, or if it
            subscribes to too many topics.
        """
        wanted = len(data.subscriptionDataSet)
        if wanted > self._maxSubscriptions:
            raise RemoteSystemError(
                f"a member of group {data.groupName} subscribes to {wanted} topics, and"
                f" maxSubscriptionNumPerGroup is {self._maxSubscriptions}: set it higher in the"
                " broker's file and start the broker anew"
            )
        group, joined = self._registry.join(data.groupName, client, now)
        group.consumeType = data.consumeType
        group.messageModel = data.messageModel
        group.consumeFromWhere = data.consumeFromWhere
        changed = group.subscribe(data.subscriptionDataSet) or joined
        otherwise = group.views.say(client.clientId, data.subscriptionDataSet)
        if changed:
            self._changed(data.groupName)
        elif otherwise:
            self._soon(self._looked, data.groupName)
        return changed

    def unregister(self, group: str, peer: RemotingProtocol) -> None:
        """
        The client on a connection gives a group up.
        """
        self._registry.leave(group, peer)

    def expire(self, now: int) -> Gradual[None]:
        """
        Forget the clients that were silent for too long; called every 10 seconds.
        """
        return self._registry.expire(now)

    def get(self, group: str) -> ConsumerGroup | None:
        """
        A group; L{None} if it has no member.
        """
        return self._registry.groups.get(group)

    def subscriptions(self) -> Iterator[tuple[str, Iterable[SubscriptionData]]]:
        """
        What each group wants.
        """
        for name, group in self._registry.groups.items():
            yield name, group.subscriptions.values()

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """
        What a group wants of a topic.
        """
        found = self._registry.groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groupsOf(self, topic: str) -> set[str]:
        """
        The groups that subscribe to a topic.
        """
        return {name for name, each in self._registry.groups.items() if topic in each.subscriptions}

    def clientIds(self, group: str) -> tuple[str, ...]:
        """
        The ids of a group's members, each once.
        """
        found = self._registry.groups.get(group)
        return () if found is None else tuple(found.byId)

    def peer(self, group: str, clientId: str) -> RemotingProtocol | None:
        """
        The connection of one member of a group.
        """
        found = self._registry.groups.get(group)
        member = None if found is None else found.byId.get(clientId)
        return None if member is None else member.client.peer

    def connection(self, group: str) -> ConsumerConnection | None:
        """
        The consumers of a group; L{None} if there are none.
        """
        found = self._registry.groups.get(group)
        if found is None:
            return None
        told = (
            found.connections(),
            dict(found.subscriptions),
            found.consumeType,
            found.messageModel,
            found.consumeFromWhere,
        )
        differences = differencesOf(found)
        if differences:
            return DifferingConsumerConnection(*told, differences)
        return ConsumerConnection(*told)

    # --- telling members ---------------------------------------------------

    def _changed(self, group: str) -> None:
        """
        Tell a group's members at the end of the turn.

        Java tells all of them at once, each time: ten thousand that come after a
        restart of the broker make fifty million notices.  Many heartbeats are
        read in one turn of the reactor, and so are the ends of many connections;
        all changes of a turn are told in one round of notices.
        """
        self._soon(self._told, group)

    def _soon(self, due: dict[str, None], group: str) -> None:
        due[group] = None
        if not self._telling:
            self._telling = True
            self._slices.cooperate(self._tell())

    def _tell(self) -> Iterator[None]:
        """
        Tell members, bit by bit: a group may have ten thousand of them, and a client may
        be in thousands of groups.
        """
        while self._told or self._looked:
            told, looked = self._told, self._looked
            self._told, self._looked = {}, {}
            for name in told | looked:
                self.differing.look(name)
                yield
            for name in told:
                group = self._registry.groups.get(name)
                if group is not None and self._notifies(name):
                    yield from self._notify(name, list(group.byPeer))
        self._telling = False

    def _notify(self, group: str, peers: list[RemotingProtocol]) -> Iterator[None]:
        header = NotifyConsumerIdsChangedRequestHeader(group)
        failed = 0
        for peer in peers:
            try:
                peer.oneway(requestCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            except RocketError as error:
                failed += 1
                said = error
            yield
        if failed:
            self._log.info(
                "{failed} of {count} members of group {group} could not be told that it changed;"
                " they will see for themselves within 20 s: {said}",
                failed=failed,
                count=len(peers),
                group=group,
                said=said,
            )
