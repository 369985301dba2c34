# SPDX-License-Identifier: Apache-2.0
"""
The name server's settings, by the names and with the defaults of RocketMQ's
C{NamesrvConfig}.

Four settings of Java have no effect here: C{rocketmqHome}; C{configStorePath}, because
a changed setting is written to the file that it was read from; C{clusterTest} and
C{productEnvName}, with which Java asks a name server of Alibaba for unknown topics.
"""

from __future__ import annotations

import os

import attrs

__all__ = ["NamesrvSettings"]


def _kvConfigPath() -> str:
    return os.path.join(os.path.expanduser("~"), "namesrv", "kvConfig.json")


@attrs.frozen
class NamesrvSettings:
    """
    The settings of a name server.

    @ivar kvConfigPath: the file of the key-value table.
    @ivar orderMessageEnable: whether the route of an ordered topic has its
        C{orderTopicConf}.
    @ivar configBlackList: settings that no request may change, separated by semicolons;
        from RocketMQ 4.9.8.
    """

    kvConfigPath: str = attrs.field(factory=_kvConfigPath)
    orderMessageEnable: bool = attrs.field(default=False, metadata={"live": True})
    configBlackList: str = "configBlackList;configStorePath;kvConfigPath"
