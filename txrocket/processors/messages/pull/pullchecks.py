# SPDX-License-Identifier: Apache-2.0
"""
Whether a consumer may pull, and what is right for it::

    header --> broker, group and topic may be read? --> subscription --> filter
"""

from __future__ import annotations

from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.replication.role import BrokerRoleState
from txrocket.broker.settings import BrokerSettings, PullSettings
from txrocket.broker.tables.topics import Topics
from txrocket.config.live import Live
from txrocket.errors import NoPermission, RemoteSystemError, ServiceNotAvailable, TopicNotExist
from txrocket.filters.expressions import MessageFilter
from txrocket.model import MASTER_ID, PERM_READ, SubscriptionGroupConfig, TopicConfig
from txrocket.protocol.headers import PullMessageRequestHeader

__all__ = ["PullChecks"]


class PullChecks:
    """
    Permits pulls.

    @ivar settings: how pulls are served.
    @ivar role: whether the broker leads or follows.
    """

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        broker: Live[BrokerSettings],
        settings: Live[PullSettings],
        role: BrokerRoleState,
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._broker = broker
        self.settings = settings
        self.role = role

    @property
    def corrects(self) -> bool:
        """
        Whether a consumer whose offset is out of range is told the right one.  A slave may be
        behind, so it lets the consumer try again.
        """
        return self.role.isMaster or self.settings.now.offsetCheckInSlave

    def permit(
        self, header: PullMessageRequestHeader
    ) -> tuple[SubscriptionGroupConfig, TopicConfig, MessageFilter]:
        """
        Whose pull it is, of which topic, and what it wants.

        @raise ResponseError: if it may not be.
        """
        if self.role.isSuspended:
            raise ServiceNotAvailable("this broker has no role at the moment: pull from another")
        if not self._broker.now.brokerPermission & PERM_READ:
            raise NoPermission("brokerPermission forbids to pull from this broker")
        group = self._subscriptions.group(header.consumerGroup)
        config = self._check(header)
        return group, config, self._subscriptions.wanted(header, group)

    def _check(self, header: PullMessageRequestHeader) -> TopicConfig:
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotExist(f"topic {header.topic} does not exist")
        if not config.perm & PERM_READ:
            raise NoPermission(f"topic {header.topic} may not be read from")
        if not 0 <= header.queueId < config.readQueueNums:
            raise RemoteSystemError(
                f"queue {header.queueId} is not one of topic {header.topic}, which has"
                f" {config.readQueueNums} to read from"
            )
        return config

    def suggested(self, group: SubscriptionGroupConfig, *, fromDisk: bool) -> int:
        """
        Which broker to pull from next.
        """
        if not self.settings.now.slaveReadEnable:
            return MASTER_ID
        return group.whichBrokerWhenConsumeSlowly if fromDisk else group.brokerId
