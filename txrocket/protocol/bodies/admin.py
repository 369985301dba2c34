# SPDX-License-Identifier: Apache-2.0
"""
Bodies of the admin tool's requests to a broker: consumer groups, statistics and ACL
accounts.
"""

from __future__ import annotations

import msgspec

from txrocket.model import DataVersion, Int64, PlainAccessConfig, SubscriptionGroupConfig

__all__ = [
    "AclConfig",
    "BrokerStatsData",
    "BrokerStatsItem",
    "ClusterAclVersionInfo",
    "GetBrokerClusterAclConfigResponseBody",
    "GroupList",
    "SubscriptionGroupWrapper",
]


class GroupList(msgspec.Struct, frozen=True):
    """
    Names of consumer groups.

    @ivar groupList: the names.
    """

    groupList: frozenset[str] = frozenset()


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True):
    """
    A broker's consumer groups.

    @ivar subscriptionGroupTable: group name to its configuration.
    @ivar dataVersion: the table's version.
    """

    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = {}
    dataVersion: DataVersion = DataVersion()


class BrokerStatsItem(msgspec.Struct, frozen=True):
    """
    A counter over one period.

    @ivar sum: the total.
    @ivar tps: the total per second.
    @ivar avgpt: the total per call.
    """

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(msgspec.Struct, frozen=True):
    """
    A counter over the last minute, hour and day.

    @ivar statsMinute: the last minute.
    @ivar statsHour: the last hour.
    @ivar statsDay: the last day.
    """

    statsMinute: BrokerStatsItem | None = None
    statsHour: BrokerStatsItem | None = None
    statsDay: BrokerStatsItem | None = None


class AclConfig(msgspec.Struct, frozen=True):
    """
    The ACL accounts of a broker, as the admin tool holds them.

    @ivar globalWhiteAddrs: the addresses that need no signature.
    @ivar plainAccessConfigs: the accounts.
    """

    globalWhiteAddrs: tuple[str, ...] | None = None
    plainAccessConfigs: tuple[PlainAccessConfig, ...] | None = None


class GetBrokerClusterAclConfigResponseBody(msgspec.Struct, frozen=True):
    """
    The response to GET_BROKER_CLUSTER_ACL_CONFIG: the ACL accounts of a broker.

    @ivar globalWhiteAddrs: the addresses that need no signature.
    @ivar plainAccessConfigs: the accounts.
    """

    globalWhiteAddrs: tuple[str, ...] | None = None
    plainAccessConfigs: tuple[PlainAccessConfig, ...] | None = None


class ClusterAclVersionInfo(msgspec.Struct, frozen=True):
    """
    The versions of a broker's ACL files.  The admin tool builds it from the header of
    the response to GET_BROKER_CLUSTER_ACL_INFO.

    @ivar brokerName: the broker's name.
    @ivar brokerAddr: the broker's address.
    @ivar aclConfigDataVersion: the version of the default file.
    @ivar allAclConfigDataVersion: file to version.
    @ivar clusterName: the cluster's name.
    """

    brokerName: str | None = None
    brokerAddr: str | None = None
    aclConfigDataVersion: DataVersion | None = None
    allAclConfigDataVersion: dict[str, DataVersion] | None = None
    clusterName: str | None = None
