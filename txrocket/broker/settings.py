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
    "AnnounceSettings",
    "BrokerRole",
    "BrokerSettings",
    "ClientSettings",
    "DelaySettings",
    "FilterSettings",
    "GroupSettings",
    "OffsetSettings",
    "PoolSettings",
    "PullSettings",
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


def _masterRole(section: object, attribute: attrs.Attribute[Any], value: BrokerRole) -> None:
    # To take such a role and not to replicate would promise what is not kept.
    if value is not BrokerRole.ASYNC_MASTER:
        raise ValueError("replication is not supported: only ASYNC_MASTER is")


def _masterId(section: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if value != MASTER_ID:
        raise ValueError(f"replication is not supported: only {MASTER_ID}, a master, is")


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
    Who the broker is and what may be done at all.

    @ivar brokerName: the machine's name if not set.
    @ivar brokerIP1: the address that clients are told; found out if not set.
    @ivar brokerIP2: the address that slaves are told.
    @ivar brokerPermission: 4 to read, 2 to write, 6 for both.
    @ivar regionId: told to senders, who note it in their traces.
    @ivar traceOn: told to senders: whether they may write traces.
    @ivar configBlackList: settings that no request may change, with semicolons between
        them; RocketMQ 4.9.8's.
    """

    brokerClusterName: str = attrs.field(default="DefaultCluster", validator=_name)
    brokerName: str | None = attrs.field(default=None, validator=_name)
    brokerId: int = attrs.field(default=MASTER_ID, validator=_masterId)
    brokerRole: BrokerRole = attrs.field(default=BrokerRole.ASYNC_MASTER, validator=_masterRole)
    brokerIP1: str | None = None
    brokerIP2: str | None = None
    brokerPermission: int = attrs.field(
        default=PERM_READ | PERM_WRITE, validator=_permission, metadata=_LIVE
    )
    regionId: str = "DefaultRegion"
    traceOn: bool = attrs.field(default=True, metadata=_LIVE)
    configBlackList: str = _BLACK_LIST


def _refuse(what: str) -> Any:
    def validate(section: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value:
            raise ValueError(what)

    return validate


@attrs.frozen
class UnsupportedSettings:
    """
    What this broker does not do, and must not seem to do: to pass over one of
    these would leave the broker open to all, or its messages unfound.
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
class AnnounceSettings:
    """
    Telling the name servers.

    @ivar namesrvAddr: C{host:port;host:port}; NAMESRV_ADDR of the environment if not
        set.
    @ivar compressedRegister: whether to deflate what is told.
    @ivar forceRegister: whether to tell all every time, and not to ask first
        whether something has changed.
    """

    namesrvAddr: str | None = attrs.field(factory=lambda: os.environ.get("NAMESRV_ADDR"))
    registerNameServerPeriod: int = attrs.field(default=30_000, validator=atLeast(1))
    registerBrokerTimeoutMills: int = attrs.field(default=6000, validator=atLeast(1))
    compressedRegister: bool = False
    forceRegister: bool = True


@attrs.frozen
class TopicSettings:
    """
    Topics that come into being by themselves.

    @ivar maxTopicNum: how many topics there may be, by sends and by administrators,
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
    Groups that come into being by themselves.

    @ivar maxSubscriptionGroupNum: how many consumer groups there may be, by heartbeats,
        pulls and administrators (txrocket's own).
    """

    autoCreateSubscriptionGroup: bool = attrs.field(default=True, metadata=_LIVE)
    maxSubscriptionGroupNum: int = attrs.field(default=50_000, validator=atLeast(1))


@attrs.frozen
class ClientSettings:
    """
    The connected clients.  The limits are txrocket's own.

    @ivar notifyConsumerIdsChangedEnable: whether the members of a group are told
        when one comes or goes.
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
    Keeping the groups' offsets.

    @ivar maxConsumerOffsetNum: in how many topics all groups together may have offsets:
        the lines of C{consumerOffset.json} (txrocket's own).
    """

    flushConsumerOffsetInterval: int = attrs.field(default=5000, validator=atLeast(1))
    maxConsumerOffsetNum: int = attrs.field(default=500_000, validator=atLeast(1))


@attrs.frozen
class DelaySettings:
    """
    Messages that are delivered late.  What begins with C{timer} is of RocketMQ 5.x.

    @ivar timerWheelEnable: whether messages are taken that have a time of their own.
    @ivar timerMaxDelaySec: how far away that may be.
    @ivar timerFlushIntervalMs: how often it is written how far these were delivered.
    """

    flushDelayOffsetInterval: int = attrs.field(default=10_000, validator=atLeast(1))
    timerWheelEnable: bool = attrs.field(default=True, metadata=_LIVE)
    timerMaxDelaySec: int = attrs.field(default=3 * 24 * 3600, validator=atLeast(1), metadata=_LIVE)
    timerFlushIntervalMs: int = attrs.field(default=1000, validator=atLeast(1))


@attrs.frozen
class TransactionSettings:
    """
    Asking about transactions that are undecided.

    @ivar transactionTimeOut: how old half of one must be, unless it says so itself.
    @ivar transactionCheckInterval: how often all of them are looked at.
    @ivar transactionCheckMax: how often producers are asked about one.
    """

    transactionTimeOut: int = attrs.field(default=6000, validator=atLeast(0), metadata=_LIVE)
    transactionCheckMax: int = attrs.field(default=15, validator=atLeast(1), metadata=_LIVE)
    transactionCheckInterval: int = attrs.field(default=60_000, validator=atLeast(1))


@attrs.frozen
class SendSettings:
    """
    Taking messages.

    @ivar startAcceptSendRequestTimeStamp: the time before which none is taken.
    @ivar sendThreadPoolQueueCapacity: how many sends may wait for the disk.
    @ivar osPageCacheBusyTimeOutMills: how long the disk may take for what waits
        for it before further sends are refused; they would only wait longer.
    @ivar brokerFastFailureEnable: whether sends are refused early at all.
    @ivar storeReplyMessageEnable: whether replies are kept that were brought to who
        asked.
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
    Giving messages.

    @ivar longPollingEnable: whether a pull that finds nothing is held as long as
        it wishes, or for C{shortPollingTimeMills} only.
    @ivar pullThreadPoolQueueCapacity: how many pulls may be held.
    @ivar slaveReadEnable: whether to send those who are far behind to a slave.
    @ivar enablePropertyFilter: whether filters that look at properties may be used.
    @ivar filterSupportRetry: whether they are used for a group's retried messages too.
    """

    longPollingEnable: bool = attrs.field(default=True, metadata=_LIVE)
    shortPollingTimeMills: int = attrs.field(default=1000, validator=atLeast(1), metadata=_LIVE)
    pullThreadPoolQueueCapacity: int = attrs.field(
        default=100_000, validator=atLeast(1), metadata=_LIVE
    )
    slaveReadEnable: bool = attrs.field(default=False, metadata=_LIVE)
    enablePropertyFilter: bool = attrs.field(default=False, metadata=_LIVE)
    filterSupportRetry: bool = attrs.field(default=False, metadata=_LIVE)


@attrs.frozen
class FilterSettings:
    """
    Keeping the groups' expressions.

    @ivar filterDataCleanTimeSpan: how long one is kept that its group uses no more.
    @ivar maxErrorRateOfBloomFilter: of what Java's broker may keep beside the queues.
    @ivar expectConsumerNumUseFilter: likewise.
    @ivar maxConsumerFilterNum: how many are kept (txrocket's own).
    """

    filterDataCleanTimeSpan: int = attrs.field(default=86_400_000, validator=atLeast(1))
    maxErrorRateOfBloomFilter: int = attrs.field(default=20, validator=between(1, 99))
    expectConsumerNumUseFilter: int = attrs.field(default=32, validator=atLeast(1))
    maxConsumerFilterNum: int = attrs.field(default=20_000, validator=atLeast(1))


@attrs.frozen
class PoolSettings:
    """
    The threads for what blocks.

    @ivar adminBrokerThreadPoolNums: how many administrators are served at a time.
    """

    adminBrokerThreadPoolNums: int = attrs.field(default=16, validator=atLeast(1))
    queryThreadPoolQueueCapacity: int = attrs.field(default=20_000, validator=atLeast(1))


SECTIONS: tuple[type, ...] = (
    BrokerSettings,
    AnnounceSettings,
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
