# SPDX-License-Identifier: Apache-2.0
"""
The broker's settings, by the names and with the defaults of RocketMQ's
C{BrokerConfig}, in sections: each part of the broker is given its own.

Times are milliseconds.  What is marked C{live} may be changed while the broker
runs; a path, an address or a name never is.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

import attrs

from txrocket.config import atLeast, between
from txrocket.model import MASTER_ID, PERM_READ, PERM_WRITE

__all__ = [
    "SECTIONS",
    "BrokerRole",
    "BrokerSettings",
    "ClientSettings",
    "DelaySettings",
    "FilterSettings",
    "GroupSettings",
    "OffsetSettings",
    "PoolSettings",
    "PullSettings",
    "RegistrationSettings",
    "SendSettings",
    "TopicSettings",
    "TransactionSettings",
    "UnsupportedSettings",
]

_LIVE = {"live": True}

# A broker's and a cluster's name are topics as well, as long as these may be.
_NAME_LIMIT = 127


class BrokerRole(Enum):
    """
    Whether a broker takes messages, and whether they wait for its slaves.
    """

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _name(section: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and (not value.strip() or len(value) > _NAME_LIMIT):
        raise ValueError(f"a name of 1 to {_NAME_LIMIT} characters was expected")


# What RocketMQ 4.9.8 has; paths and roles; and all by which messages are kept for less
# time, are less safe once acknowledged, are given up, or are taken or given no more.
_BLACK_LIST = ";".join(
    (
        *("configBlackList", "brokerConfigPath"),
        *("storePathRootDir", "storePathCommitLog", "brokerRole", "brokerId"),
        *("flushDiskType", "syncFlushTimeout", "fileReservedTime", "deleteWhen"),
        *("diskMaxUsedSpaceRatio", "cleanFileForciblyEnable"),
        *("brokerPermission", "startAcceptSendRequestTimeStamp", "rejectTransactionMessage"),
        *("transactionCheckMax", "transactionTimeOut", "storeReplyMessageEnable"),
        *("timerWheelEnable", "brokerFastFailureEnable"),
    )
)


def _permission(section: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if not 0 <= value <= 7:
        raise ValueError("4 to read, 2 to write, 6 for both was expected")


@attrs.frozen
class BrokerSettings:
    """
    The identity and the permissions of the broker.

    @ivar brokerName: the machine's name if not set; a master and its slaves share it.
    @ivar brokerId: a slave's number, above 0.  A master has 0, whatever the file says: as in
        Java.
    @ivar brokerIP1: the address for clients; that of the machine if not set.
    @ivar brokerIP2: the address for slaves.
    @ivar brokerPermission: 4 to read, 2 to write, 6 for both.
    @ivar regionId: sent to producers, which write it in their traces.
    @ivar traceOn: sent to producers: whether they may write traces.
    @ivar configBlackList: settings that no request may change, with semicolons between
        them; RocketMQ 4.9.8's.
    """

    brokerClusterName: str = attrs.field(default="DefaultCluster", validator=_name)
    brokerName: str | None = attrs.field(default=None, validator=_name)
    brokerId: int = MASTER_ID
    brokerRole: BrokerRole = BrokerRole.ASYNC_MASTER
    brokerIP1: str | None = None
    brokerIP2: str | None = None
    brokerPermission: int = attrs.field(
        default=PERM_READ | PERM_WRITE, validator=_permission, metadata=_LIVE
    )
    regionId: str = "DefaultRegion"
    traceOn: bool = attrs.field(default=True, metadata=_LIVE)
    configBlackList: str = _BLACK_LIST

    def __attrs_post_init__(self) -> None:
        if self.brokerRole is not BrokerRole.SLAVE:
            object.__setattr__(self, "brokerId", MASTER_ID)
        elif self.brokerId <= MASTER_ID:
            raise ValueError(
                f"brokerId={self.brokerId}: a broker with brokerRole=SLAVE has a number above"
                f" {MASTER_ID}, another one than the other slaves of brokerName"
            )


def _refuse(what: str) -> Any:
    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value:
            raise ValueError(what)

    return validate


@attrs.frozen
class UnsupportedSettings:
    """
    Settings of features that this broker does not have.  To ignore one of them would leave
    the broker open to all clients, or its messages unreachable.
    """

    aclEnable: bool = attrs.field(
        default=False, validator=_refuse("access control is not supported: remove it")
    )
    enableDLegerCommitLog: bool = attrs.field(
        default=False, validator=_refuse("DLedger is not supported")
    )
    readOnlyCommitLogStorePaths: str | None = attrs.field(
        default=None, validator=_refuse("a log in several folders is not supported")
    )
    fetchNamesrvAddrByAddressServer: bool = attrs.field(
        default=False, validator=_refuse("set namesrvAddr instead")
    )


@attrs.frozen
class RegistrationSettings:
    """
    Registration with the name servers.

    @ivar namesrvAddr: C{host:port;host:port}; NAMESRV_ADDR of the environment if not
        set.
    @ivar compressedRegister: whether to compress the registration.
    @ivar forceRegister: whether to register every time, without asking first whether
        something has changed.
    """

    namesrvAddr: str | None = attrs.field(factory=lambda: os.environ.get("NAMESRV_ADDR"))
    registerNameServerPeriod: int = attrs.field(default=30_000, validator=atLeast(1))
    registerBrokerTimeoutMills: int = attrs.field(default=6000, validator=atLeast(1))
    compressedRegister: bool = False
    forceRegister: bool = True


@attrs.frozen
class TopicSettings:
    """
    Topics that the broker creates by itself.

    @ivar maxTopicNum: how many topics sends and administrators may create,
        beside the broker's own and the retry topics and dead letters of groups
        (txrocket's own).
    """

    autoCreateTopicEnable: bool = attrs.field(default=True, metadata=_LIVE)
    maxTopicNum: int = attrs.field(default=50_000, validator=atLeast(1))
    defaultTopicQueueNums: int = attrs.field(default=8, validator=atLeast(1))
    clusterTopicEnable: bool = True
    brokerTopicEnable: bool = True
    traceTopicEnable: bool = False
    msgTraceTopicName: str = attrs.field(default="RMQ_SYS_TRACE_TOPIC", validator=_name)


@attrs.frozen
class GroupSettings:
    """
    Groups that the broker creates by itself.

    @ivar maxSubscriptionGroupNum: how many consumer groups heartbeats, pulls and
        administrators may create (txrocket's own).
    """

    autoCreateSubscriptionGroup: bool = attrs.field(default=True, metadata=_LIVE)
    maxSubscriptionGroupNum: int = attrs.field(default=50_000, validator=atLeast(1))


@attrs.frozen
class ClientSettings:
    """
    The connected clients.  The limits are txrocket's own.

    @ivar notifyConsumerIdsChangedEnable: whether the members of a group are notified
        when one joins or leaves.
    @ivar maxGroupNumPerClient: of how many consumer groups one connection may be a
        member, and of how many producer groups.
    @ivar maxGroupMemberNum: how many members all consumer groups may have together, and
        all producer groups.
    @ivar maxSubscriptionNumPerGroup: to how many topics a member of a group may
        subscribe.
    @ivar maxQueueLockNum: how many queues may be locked, by all groups together.
    """

    notifyConsumerIdsChangedEnable: bool = attrs.field(default=True, metadata=_LIVE)
    maxGroupNumPerClient: int = attrs.field(default=2_000, validator=atLeast(1))
    maxGroupMemberNum: int = attrs.field(default=200_000, validator=atLeast(1))
    maxSubscriptionNumPerGroup: int = attrs.field(default=4_096, validator=atLeast(1))
    maxQueueLockNum: int = attrs.field(default=500_000, validator=atLeast(1))


@attrs.frozen
class OffsetSettings:
    """
    The table of the groups' offsets.

    @ivar maxConsumerOffsetNum: in how many topics all groups together may have offsets:
        the lines of C{consumerOffset.json} (txrocket's own).
    """

    flushConsumerOffsetInterval: int = attrs.field(default=5000, validator=atLeast(1))
    maxConsumerOffsetNum: int = attrs.field(default=500_000, validator=atLeast(1))


@attrs.frozen
class DelaySettings:
    """
    Messages that are delivered later.  The settings of timers are those of RocketMQ 5.x.

    @ivar timerWheelEnable: whether messages may request a time of delivery.
    @ivar timerMaxDelaySec: how far away that may be.
    @ivar timerFlushIntervalMs: how often C{timers.json} is written.
    """

    flushDelayOffsetInterval: int = attrs.field(default=10_000, validator=atLeast(1))
    timerWheelEnable: bool = attrs.field(default=True, metadata=_LIVE)
    timerMaxDelaySec: int = attrs.field(default=3 * 24 * 3600, validator=atLeast(1), metadata=_LIVE)
    timerFlushIntervalMs: int = attrs.field(default=1000, validator=atLeast(1))


@attrs.frozen
class TransactionSettings:
    """
    Checks of undecided transactions.

    @ivar transactionTimeOut: the age at which a half is checked first, unless it has its
        own.
    @ivar transactionCheckInterval: how often the broker goes through all of them.
    @ivar transactionCheckMax: how often producers are asked about one.
    """

    transactionTimeOut: int = attrs.field(default=6000, validator=atLeast(0), metadata=_LIVE)
    transactionCheckMax: int = attrs.field(default=15, validator=atLeast(1), metadata=_LIVE)
    transactionCheckInterval: int = attrs.field(default=60_000, validator=atLeast(1))


@attrs.frozen
class SendSettings:
    """
    Sends.

    @ivar startAcceptSendRequestTimeStamp: the time before which all are refused.
    @ivar sendThreadPoolQueueCapacity: how many sends may wait for the disk.
    @ivar osPageCacheBusyTimeOutMills: how long a send may wait for the disk before
        further sends are refused, because they would wait even longer.
    @ivar brokerFastFailureEnable: whether sends are refused early at all.
    @ivar storeReplyMessageEnable: whether replies are stored as well.
    """

    rejectTransactionMessage: bool = attrs.field(default=False, metadata=_LIVE)
    startAcceptSendRequestTimeStamp: int = attrs.field(default=0, metadata=_LIVE)
    sendThreadPoolQueueCapacity: int = attrs.field(
        default=10_000, validator=atLeast(1), metadata=_LIVE
    )
    osPageCacheBusyTimeOutMills: int = attrs.field(
        default=1000, validator=atLeast(1), metadata=_LIVE
    )
    brokerFastFailureEnable: bool = attrs.field(default=True, metadata=_LIVE)
    storeReplyMessageEnable: bool = attrs.field(default=True, metadata=_LIVE)


@attrs.frozen
class PullSettings:
    """
    Pulls.

    @ivar longPollingEnable: whether a pull that finds nothing is held for its own time,
        or for C{shortPollingTimeMills} only.
    @ivar pullThreadPoolQueueCapacity: how many pulls may be held.
    @ivar slaveReadEnable: whether a consumer that is far behind is sent to a slave.
    @ivar offsetCheckInSlave: whether a slave corrects a consumer whose offset is out of range,
        as a master does.  Otherwise the consumer tries again, because the slave may be behind.
    @ivar enablePropertyFilter: whether filters that look at properties may be used.
    @ivar filterSupportRetry: whether they are used for a group's retried messages too.
    """

    longPollingEnable: bool = attrs.field(default=True, metadata=_LIVE)
    shortPollingTimeMills: int = attrs.field(default=1000, validator=atLeast(1), metadata=_LIVE)
    pullThreadPoolQueueCapacity: int = attrs.field(
        default=100_000, validator=atLeast(1), metadata=_LIVE
    )
    slaveReadEnable: bool = attrs.field(default=False, metadata=_LIVE)
    offsetCheckInSlave: bool = attrs.field(default=False, metadata=_LIVE)
    enablePropertyFilter: bool = attrs.field(default=False, metadata=_LIVE)
    filterSupportRetry: bool = attrs.field(default=False, metadata=_LIVE)


@attrs.frozen
class FilterSettings:
    """
    The table of the groups' expressions.

    @ivar filterDataCleanTimeSpan: how long an expression stays that its group does not use
        any more.
    @ivar maxErrorRateOfBloomFilter: of the bits that Java's broker stores beside queues.
    @ivar expectConsumerNumUseFilter: likewise.
    @ivar maxConsumerFilterNum: how many expressions there may be (txrocket's own).
    """

    filterDataCleanTimeSpan: int = attrs.field(default=86_400_000, validator=atLeast(1))
    maxErrorRateOfBloomFilter: int = attrs.field(default=20, validator=between(1, 99))
    expectConsumerNumUseFilter: int = attrs.field(default=32, validator=atLeast(1))
    maxConsumerFilterNum: int = attrs.field(default=20_000, validator=atLeast(1))


@attrs.frozen
class PoolSettings:
    """
    Requests that take long.

    @ivar adminBrokerThreadPoolNums: how many requests of administrators are served at a
        time.
    """

    adminBrokerThreadPoolNums: int = attrs.field(default=16, validator=atLeast(1))
    queryThreadPoolQueueCapacity: int = attrs.field(default=20_000, validator=atLeast(1))


SECTIONS: tuple[type, ...] = (
    BrokerSettings,
    RegistrationSettings,
    TopicSettings,
    GroupSettings,
    ClientSettings,
    OffsetSettings,
    DelaySettings,
    SendSettings,
    TransactionSettings,
    PullSettings,
    FilterSettings,
    PoolSettings,
    UnsupportedSettings,
)
