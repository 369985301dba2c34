# SPDX-License-Identifier: Apache-2.0
"""
The name server's settings, by the names and with the defaults of RocketMQ's
C{NamesrvConfig}.

Four of Java's have no meaning here: C{rocketmqHome}; C{configStorePath}, because a
changed setting is kept in the file that it was read from; C{clusterTest} and
C{productEnvName}, which ask a name server of Alibaba's own for topics that are not
known.
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
    What a name server can be told.

    @ivar kvConfigPath: the file that keeps the key-value settings.
    @ivar orderMessageEnable: whether routes tell the order that is configured for
        a topic.
    @ivar configBlackList: settings that no request may change, with semicolons between
        them; RocketMQ 4.9.8's.
    """

    kvConfigPath: str = attrs.field(factory=_kvConfigPath)
    orderMessageEnable: bool = attrs.field(default=False, metadata={"live": True})
    configBlackList: str = "configBlackList;configStorePath;kvConfigPath"
