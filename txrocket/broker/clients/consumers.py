# SPDX-License-Identifier: Apache-2.0
"""
The consumers that are connected to a broker, by group; Java's C{ConsumerManager} and
C{ConsumerGroupInfo}.

A consumer sends a heartbeat every 30 seconds.  It leaves a group when it says so, when its
connection ends, or when the broker has not heard from it for 120 seconds.

The consumers of a group divide the queues among themselves, and each computes its share
alone.  So the broker notifies all members when one joins or leaves, and when the group
subscribes to other topics::

    heartbeat, unregister, lost, expired --> changed --> NOTIFY_CONSUMER_IDS_CHANGED
                                             (a turn)    to every member, oneway

A group has one subscription per topic: of those that its members sent, the one with the
greatest C{subVersion}.  A topic that a heartbeat leaves out is no longer subscribed to.  So
members with different subscriptions lose messages.  The broker logs when that begins, when
it changes and when it ends, and an operator can ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from txrocket.broker.clients.inconsistent import InconsistentSubscriptions, differencesOf
from txrocket.broker.clients.registry import (
    ClientChannelInfo,
    GroupMember,
    MemberLimits,
    Members,
    Registry,
)
from txrocket.broker.clients.subscriptionviews import SubscriptionViews
from txrocket.errors import RemoteSystemError, RocketError
from txrocket.model import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from txrocket.protocol.bodies import ConsumerConnection, ConsumerData
from txrocket.protocol.bodies.inspect import DifferingConsumerConnection
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["ConsumerGroup", "Consumers"]


class ConsumerGroup(Members):
    """
    The consumers of one group and their common subscriptions.  The last heartbeat counts
    for all of them.

    @ivar consumeType: whether they pull or are pushed to.
    @ivar messageModel: whether they broadcast or share.
    @ivar consumeFromWhere: where the group starts when it is new.
    @ivar subscriptions: topic to subscription.
    @ivar views: the subscriptions that each of them sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.consumeType: ConsumeType | None = None
        self.messageModel: MessageModel | None = None
        self.consumeFromWhere: ConsumeFromWhere | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.views = SubscriptionViews()

    def remove(self, member: GroupMember) -> None:
        """
        Remove a member.
        """
        super().remove(member)
        self.views.forget(member.client.clientId)

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """
        Make the subscriptions of a heartbeat those of the group.

        @return: whether the topics have changed.  A newer expression for a topic moves no
            queue from one consumer to another.
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


class Consumers(Registry[ConsumerGroup]):
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
        @param notifies: whether to notify the members of a group: its own
            C{notifyConsumerIdsChangedEnable}, which is true without a configuration, and
            the broker's.
        @param now: the time of day in milliseconds, to be shown; without it, the clock's.
        @param maxSubscriptions: to how many topics a member may subscribe,
            C{maxSubscriptionNumPerGroup}.
        @param slices: divides the time among work that takes long.
        """
        self._notifies = notifies
        self._maxSubscriptions = maxSubscriptions
        self._slices = slices or Cooperator(scheduler=lambda each: clock.callLater(0, each))
        super().__init__(ConsumerGroup, self._changed, limits, self._slices.cooperate)
        # Groups to notify, and groups to compare, when the turn ends.
        self._told: dict[str, None] = {}
        self._looked: dict[str, None] = {}
        self._telling = False
        self.differing = InconsistentSubscriptions(
            self.groups, now or (lambda: int(clock.seconds() * 1000))
        )

    def register(self, data: ConsumerData, client: ClientChannelInfo, now: int) -> bool:
        """
        Add a client to a consumer group, or renew its membership and subscriptions.

        @param now: in milliseconds.
        @return: whether the group has changed.
        @raise RemoteSystemError: if it is new and a limit is reached, or if it subscribes
            to too many topics.
        """
        wanted = len(data.subscriptionDataSet)
        if wanted > self._maxSubscriptions:
            raise RemoteSystemError(
                f"a member of group {data.groupName} subscribes to {wanted} topics, and"
                f" maxSubscriptionNumPerGroup is {self._maxSubscriptions}: set it higher in the"
                " broker's file and start the broker anew"
            )
        group, joined = self.join(data.groupName, client, now)
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

    def get(self, group: str) -> ConsumerGroup | None:
        """
        A group; L{None} if no member is connected.
        """
        return self.groups.get(group)

    def subscriptions(self) -> Iterator[tuple[str, Iterable[SubscriptionData]]]:
        """
        The subscriptions of each group.
        """
        for name, group in self.groups.items():
            yield name, group.subscriptions.values()

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """
        The subscription of a group to a topic.
        """
        found = self.groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groupsOf(self, topic: str) -> set[str]:
        """
        The groups that subscribe to a topic.
        """
        return {name for name, each in self.groups.items() if topic in each.subscriptions}

    def clientIds(self, group: str) -> tuple[str, ...]:
        """
        The ids of a group's members, each once.
        """
        found = self.groups.get(group)
        return () if found is None else tuple(found.byId)

    def peer(self, group: str, clientId: str) -> RemotingProtocol | None:
        """
        The connection of one member of a group.
        """
        found = self.groups.get(group)
        member = None if found is None else found.byId.get(clientId)
        return None if member is None else member.client.peer

    def connection(self, group: str) -> ConsumerConnection | None:
        """
        The consumers of a group; L{None} if none is connected.
        """
        found = self.groups.get(group)
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

    # --- notifying members -------------------------------------------------

    def _changed(self, group: str) -> None:
        """
        Notify a group's members at the end of the turn.

        Java notifies all of them at each change: ten thousand consumers that connect
        after a restart of the broker cause fifty million notifications.  Here one round of
        notifications serves all changes of a turn.
        """
        self._soon(self._told, group)

    def _soon(self, due: dict[str, None], group: str) -> None:
        due[group] = None
        if not self._telling:
            self._telling = True
            self._slices.cooperate(self._tell())

    def _tell(self) -> Iterator[None]:
        """
        Notify members bit by bit: a group may have ten thousand members, and a client may
        be in thousands of groups.
        """
        while self._told or self._looked:
            told, looked = self._told, self._looked
            self._told, self._looked = {}, {}
            for name in told | looked:
                self.differing.look(name)
                yield
            for name in told:
                group = self.groups.get(name)
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
                "{failed} of {count} members of group {group} could not be notified of its"
                " change; they rebalance within 20 s: {said}",
                failed=failed,
                count=len(peers),
                group=group,
                said=said,
            )
