# SPDX-License-Identifier: Apache-2.0
"""
What may be sent: the checks that every message passes on its way into the store;
C{preSend} and C{msgCheck} of Java's C{SendMessageProcessor}::

    is the broker ready? --> the topic, made if it may be --> may it be written to?
"""

from __future__ import annotations

from collections.abc import Callable

from txrocket.broker.names import NOT_SENT_TO, checkSendable, checkTopic
from txrocket.broker.replication.durability import Durability
from txrocket.broker.replication.role import BrokerRoleState
from txrocket.broker.settings import BrokerSettings, SendSettings
from txrocket.broker.tables.topics import Topics
from txrocket.config.live import Live
from txrocket.errors import (
    NoPermission,
    RemoteSystemError,
    ServiceNotAvailable,
    StoreError,
    SystemBusy,
)
from txrocket.model import PERM_WRITE, TopicConfig
from txrocket.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocket.remoting.protocol import RemotingProtocol

__all__ = ["SendChecks"]


class SendChecks:
    """
    Decides what may be sent.

    @ivar durability: tells when a message is stored.
    @ivar together: how many messages wait for the disk beside the first of those that were
        appended together, which wait as one.
    """

    def __init__(
        self,
        durability: Durability,
        role: BrokerRoleState,
        topics: Topics,
        broker: Live[BrokerSettings],
        settings: Live[SendSettings],
        now: Callable[[], int],
    ) -> None:
        """
        @param now: the time in milliseconds.
        """
        self.durability = durability
        self._role = role
        self.topics = topics
        self.broker = broker
        self.settings = settings
        self.now = now
        self.together = 0

    @property
    def rules(self) -> tuple[object, object]:
        """
        The settings that decide, as they are now: other objects once they have changed.
        """
        return self.broker.now, self.settings.now

    def admit(self) -> None:
        """
        Refuse all while the broker takes nothing.

        @raise ResponseError: if it takes no message now.
        """
        self.checkRole()
        self.checkBusy()
        self.checkBegun()

    def checkRole(self) -> None:
        """
        Refuse all while the broker is not a master.

        @raise ServiceNotAvailable: if it is not.
        """
        if not self._role.isMaster:
            raise ServiceNotAvailable(
                "this broker has no role at the moment: send to another one"
                if self._role.isSuspended
                else "this broker is a slave: messages are put to its master"
            )

    def checkBegun(self) -> None:
        """
        Refuse what comes before the operator wants it.

        @raise RemoteSystemError: if no message is taken yet.
        """
        if self.settings.now.startAcceptSendRequestTimeStamp > self.now():
            raise RemoteSystemError(
                "no message is taken before startAcceptSendRequestTimeStamp, "
                f"{self.settings.now.startAcceptSendRequestTimeStamp}"
            )

    def checkBusy(self) -> None:
        """
        Refuse early what would be answered late.

        @raise SystemBusy: if too much waits for the disk.
        """
        settings = self.settings.now
        waiting, seconds = self.durability.waiting
        if waiting and settings.brokerFastFailureEnable:
            waiting += self.together
            if waiting >= settings.sendThreadPoolQueueCapacity:
                raise SystemBusy(
                    f"[OVERLOAD] {waiting} sends wait for the disk already, and"
                    " sendThreadPoolQueueCapacity is"
                    f" {settings.sendThreadPoolQueueCapacity}: try again in a while"
                )
            if seconds * 1000 > settings.osPageCacheBusyTimeOutMills:
                raise SystemBusy(
                    f"[PCBUSY] the disk has taken {seconds:.1f} s for what waits for it,"
                    " try again in a while"
                )

    def topic(
        self,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        peer: RemotingProtocol,
    ) -> TopicConfig:
        """
        The topic of a message, made if it is not there and may be made.

        @raise ResponseError: if the topic does not exist and may not be created, or if this
            message may not go there.
        """
        config = self.topics.get(header.topic) or self._make(header, peer)
        self.check(config, header.queueId)
        return config

    def _make(
        self,
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2,
        peer: RemotingProtocol,
    ) -> TopicConfig:
        checkSendable(checkTopic(header.topic))
        config, saved = self.topics.inherit(
            header.topic,
            header.defaultTopic,
            header.defaultTopicQueueNums,
            header.unitMode,
            peer.address,
        )
        # The sender is told by the one that it waits for.
        saved.addErrback(lambda failure: failure.trap(StoreError) and None)
        return config

    def check(self, config: TopicConfig, queueId: int) -> None:
        """
        Refuse what may not go to a queue of a topic.

        @param queueId: if it is negative, any queue will do.
        @raise ResponseError: if it may not.
        """
        topic = config.topicName
        if topic in NOT_SENT_TO:
            checkSendable(topic)
        if config.order and not self.broker.now.brokerPermission & PERM_WRITE:
            raise NoPermission("brokerPermission forbids to send to this broker")
        if not config.perm & PERM_WRITE:
            raise NoPermission(f"topic {topic} may not be written to")
        if queueId >= config.writeQueueNums and queueId >= config.readQueueNums:
            raise RemoteSystemError(
                f"queue {queueId} is not one of topic {topic}, which has {config.writeQueueNums}"
                f" to write to and {config.readQueueNums} to read from"
            )
        if queueId < 0 and not config.writeQueueNums:
            raise NoPermission(f"topic {topic} has no queue to write to")
